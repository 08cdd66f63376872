//! `vm`: the real tracer on Debian's real kernels, in QEMU.
//!
//! | module | what |
//! |---|---|
//! | [`kernel`] | Debian's kernels, fetched by apt and unpacked |
//! | [`modules`] | the modules that a guest loads |
//! | [`initramfs`] | the guest's file system |
//! | [`disk`] | the disk of a guest that is a whole node |
//! | [`suite`] | what is run in guests, and in which |
//! | [`qemu`] | one guest, from start to end |
//! | [`table`] | what came of it |
//! | [`readme`] | the same in the README |
//!
//! What runs in the guest, from its first process on, is
//! `node_tracer_tests::guest`. It reports on its second serial line, one JSON
//! object a line; its first one is the kernel's console.

mod disk;
mod initramfs;
mod kernel;
mod modules;
mod qemu;
mod readme;
mod suite;
mod table;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ValueEnum as _;
use node_tracer_tests::stage::in_path;
use node_tracer_tests::{cni, wait};
use serde_json::Value;

use crate::{cargo, setup};
use initramfs::Archive;
use kernel::{Kernel, Wanted};
use qemu::{End, Files};
use suite::{Boot, Suite};
use table::Table;

/// Kernels that are taken if none is named: an old and a new one.
const DEFAULT: [&str; 2] = ["6.1", "6.12"];

/// What `vm` is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Vm {
    /// 5.10, 6.1, 6.12, 7.2 [default: 6.1 and 6.12]
    #[arg(value_name = "KERNEL")]
    kernels: Vec<String>,
    /// All of them, and all suites
    #[arg(long, conflicts_with = "kernels")]
    all: bool,
    /// What is run (may be given several times) [default: matrix]
    #[arg(long, value_name = "SUITE")]
    suite: Vec<Suite>,
    /// Forget the kernels that are here and fetch the newest
    #[arg(long)]
    fetch: bool,
    /// Virtualise instead of emulating (where that works; nested it may hang)
    #[arg(long)]
    kvm: bool,
    /// Where a kernel or QEMU cannot be had, say so and go on
    #[arg(long)]
    if_possible: bool,
    /// Debian's archive (it ends in /debian) [default: that of this machine's apt]
    #[arg(long, value_name = "URL")]
    archive: Option<String>,
    /// Put the tables into README.md
    #[arg(long, requires = "all")]
    readme: bool,
    /// Run only the tests with this in their name
    #[arg(last = true, value_name = "TEST")]
    tests: Vec<String>,
}

/// What the guests of one kernel reported, beside it.
const REPORTS: &str = "reports.jsonl";

/// Where kernels are kept between runs.
fn cache() -> anyhow::Result<PathBuf> {
    let folder = match std::env::var_os("XDG_CACHE_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => {
            let home =
                std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?;
            Path::new(&home).join(".cache")
        }
    };
    Ok(folder.join("node-tracer-vm"))
}

pub(crate) fn run(asked: &Vm) -> anyhow::Result<ExitCode> {
    let kernels: Vec<Wanted> = match (asked.all, asked.kernels.as_slice()) {
        (true, _) => kernel::ALL.to_vec(),
        (false, []) => DEFAULT
            .map(Wanted::of)
            .into_iter()
            .collect::<Result<_, _>>()?,
        (false, names) => names
            .iter()
            .map(|name| Wanted::of(name))
            .collect::<Result<_, _>>()?,
    };
    let suites = match (asked.suite.as_slice(), asked.all) {
        ([], false) => &[Suite::Matrix],
        ([], true) => Suite::value_variants(),
        (named, _) => named,
    };
    match setup::for_guests() {
        Err(error) if asked.if_possible => {
            println!("skipped: vm: {error:#}");
            return Ok(ExitCode::SUCCESS);
        }
        brought => brought?,
    }
    wait::catch_signals()?;
    let cache = cache()?;
    let mut table = Table::default();
    // What is said again at the end, below the table.
    let mut remarks = Vec::new();
    let mut guests = Vec::new();
    println!("── vm: kernels");
    for wanted in kernels {
        if asked.fetch {
            let _ = fs::remove_dir_all(cache.join(wanted.name));
        }
        match wanted.bring(&cache, asked.archive.as_deref()) {
            Ok(kernel) => {
                println!("vm: {}: {}", kernel.name, kernel.release);
                guests.push(kernel);
            }
            Err(error) => {
                println!("skipped: vm: {}: {error:#}", wanted.name);
                if !asked.if_possible {
                    table.fail();
                }
                remarks.push(format!("{}: not run: {error:#}", wanted.name));
            }
        }
    }
    if asked.if_possible && (guests.is_empty() || in_path(qemu::PROGRAM).is_none()) {
        println!("skipped: vm: needs a kernel and {}", qemu::PROGRAM);
        return Ok(ExitCode::SUCCESS);
    }
    let mut suites = suites.to_vec();
    let mut disk = None;
    if suites.iter().any(|suite| suite.has_disk()) {
        if asked.fetch {
            disk::forget(&cache);
        }
        match disk::bring(&cache, asked.archive.as_deref()) {
            Ok(path) => disk = Some(path),
            Err(_) if wait::interrupted() => anyhow::bail!("interrupted"),
            Err(error) => {
                println!("vm: the node's disk: {error:#}");
                table.fail();
                remarks.push(format!("suite node: not run: {error:#}"));
                suites.retain(|suite| !suite.has_disk());
            }
        }
    }
    println!("── vm: build");
    let programs = Programs::build()?;
    for kernel in guests {
        println!("── vm: {}", kernel.release);
        // From here on all of its guests add to it.
        let _ = fs::remove_file(cache.join(kernel.name).join(REPORTS));
        table.kernel(&kernel.release);
        for boot in suites.iter().flat_map(|suite| suite.boots()) {
            if asked.all && !boot.suite.is_for(kernel.name) {
                let name = boot.suite.name();
                remarks.push(format!("{}: suite {name} is not for it", kernel.release));
                continue;
            }
            let disk = disk.as_deref();
            match guest(&kernel, &boot, &programs, disk, asked, &cache, &mut table) {
                Ok(mut said) => remarks.append(&mut said),
                Err(_) if wait::interrupted() => anyhow::bail!("interrupted"),
                Err(error) => {
                    table.fail();
                    remarks.push(format!("{}: {error:#}", kernel.release));
                }
            }
        }
    }
    println!("── vm: kernel, signal, mechanism, verdict\n\n{table}");
    for remark in &remarks {
        println!("{remark}");
    }
    if asked.readme {
        readme::write(&format!("{table}\n{}", remarks.join("\n")))?;
    }
    Ok(match table.failures() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// What is built for the guests.
#[derive(Debug)]
struct Programs {
    tracer: PathBuf,
    guest: PathBuf,
}

impl Programs {
    fn build() -> anyhow::Result<Self> {
        let build = |package: &str, name: &str| {
            let args = [
                "--profile",
                "guest",
                "--target",
                setup::GUESTS,
                "--package",
                package,
            ];
            cargo::build(&[&args[..], &["--bin", name]].concat(), name)
        };
        Ok(Self {
            tracer: build("node-tracer", "node-tracer")?,
            guest: build("node-tracer-tests", "node-tracer-guest")?,
        })
    }
}

/// Boots one kernel and prints what it reports; returns what is to be said
/// again at the end.
fn guest(
    kernel: &Kernel,
    boot: &Boot,
    programs: &Programs,
    disk: Option<&Path>,
    asked: &Vm,
    cache: &Path,
    table: &mut Table,
) -> anyhow::Result<Vec<String>> {
    let modules = modules::of(kernel, &boot.suite.modules())?;
    let mut remarks = Vec::new();
    if !modules.missing.is_empty() {
        remarks.push(format!(
            "{}: not in this kernel: {}",
            kernel.release,
            modules.missing.join(", ")
        ));
    }
    let folder = cache.join(kernel.name);
    let archive = folder.join("initramfs");
    pack(programs, &modules, boot.suite)?.write(&archive)?;
    let console = folder.join("console.log");
    let log = folder.join(REPORTS);
    let mut reports = fs::File::options()
        .create(true)
        .append(true)
        .open(&log)
        .with_context(|| log.display().to_string())?;
    println!("vm: {} {}", boot.suite.name(), boot.append);
    let files = Files {
        initramfs: &archive,
        disk: disk.filter(|_| boot.suite.has_disk()),
        console: &console,
    };
    let machine = if asked.kvm { &qemu::KVM } else { &qemu::TCG };
    let command = qemu::command(kernel, boot, machine, &files, &asked.tests);
    let end = qemu::run(command, &console, |report| {
        if report["kind"] == "alive" {
            return;
        }
        table.take(&report);
        // It is for reading afterwards; what matters is on the terminal, too.
        let _ = writeln!(reports, "{report}");
        if let Some(line) = line(&report) {
            println!("{line}");
        }
        if let Some(remark) = remark(kernel, &report)
            && !remarks.contains(&remark)
        {
            remarks.push(remark);
        }
    });
    if let End::Badly { what, console } = end? {
        table.fail();
        println!("{what}; the end of its console:\n{console}");
        remarks.push(format!("{}: {what}", kernel.release));
    }
    Ok(remarks)
}

/// What a report is as a line on the terminal.
fn line(report: &Value) -> Option<String> {
    let text = |key: &str| report[key].as_str().unwrap_or_default();
    match text("kind") {
        "cell" => Some(format!(
            "{:8} {:16} {:10} {:6.1} s  {}",
            text("verdict"),
            text("signal"),
            text("mechanism"),
            report["seconds"].as_f64().unwrap_or_default(),
            text("detail").replace('\n', "\n         "),
        )),
        "case" => Some(format!(
            "{:8} {:10} {:6.1} s  {}  {}",
            text("verdict"),
            text("suite"),
            report["seconds"].as_f64().unwrap_or_default(),
            text("case"),
            text("detail").replace('\n', "\n         "),
        )),
        "text" => Some(format!("         {}", text("text"))),
        _ => None,
    }
}

/// Failures and refusals are said again at the end.
fn remark(kernel: &Kernel, report: &Value) -> Option<String> {
    let text = |key: &str| report[key].as_str().unwrap_or_default();
    let what = match text("kind") {
        "cell" => format!("{} {}", text("signal"), text("mechanism")),
        "case" => format!("{} {}", text("suite"), text("case")),
        _ => return None,
    };
    let (verdict, detail) = (text("verdict"), text("detail"));
    let worth = matches!(verdict, "FAILED" | "refused" | "skipped");
    worth.then(|| format!("{} {what} {verdict}: {detail}", kernel.release))
}

/// The guest's file system.
fn pack(programs: &Programs, modules: &modules::Modules, suite: Suite) -> anyhow::Result<Archive> {
    let mut archive = Archive::default();
    for folder in ["/proc", "/sys", "/dev", "/run", "/tmp", "/etc", "/root"] {
        archive.folder(Path::new(folder));
    }
    archive.copy(&programs.guest, Path::new("/init"))?;
    archive.copy(&programs.tracer, Path::new("/bin/node-tracer"))?;
    // Loaded in the order of their names.
    for (at, module) in modules.load.iter().enumerate() {
        let path = format!("/modules/{at:02}-{}.ko", module.name);
        archive.file(Path::new(&path), 0o644, &module.content);
    }
    if suite.has_disk() {
        return Ok(archive);
    }
    let ip = in_path("ip").context("no ip (Debian: iproute2); cargo xtask setup brings it")?;
    archive.program(&ip, Path::new("/bin/ip"))?;
    let busybox = in_path("busybox").context("no busybox (Debian: busybox-static)")?;
    archive.program(&busybox, Path::new("/bin/busybox"))?;
    for applet in ["sh", "cat", "ls", "stat", "true", "unshare"] {
        archive.link(Path::new(&format!("/bin/{applet}")), "busybox");
    }
    archive.link(Path::new("/opt/cni/bin/nt-plugin"), "/init");
    if let Some(folder) = cni::folder() {
        for plugin in ["bridge", "host-local", "loopback"] {
            let to = Path::new("/usr/lib/cni").join(plugin);
            archive.program(&folder.join(plugin), &to)?;
        }
    }
    Ok(archive)
}
