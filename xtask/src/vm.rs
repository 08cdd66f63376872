//! `vm`: the real tracer on Debian's real kernels, in QEMU.
//!
//! | module | what |
//! |---|---|
//! | [`kernel`] | Debian's kernels, fetched by apt and unpacked |
//! | [`modules`] | the modules that a guest loads |
//! | [`initramfs`] | the guest's file system |
//! | [`programs`] | what is built for it |
//! | [`tools`] | the programs of others that it has |
//! | [`disk`] | the disk of a guest that is a whole node |
//! | [`suite`] | what is run in guests, and in which |
//! | [`qemu`] | one guest, from start to end |
//! | [`reports`], [`table`] | what came of it |
//!
//! What runs in the guest, from its first process on, is
//! `node_tracer_tests::guest`. It reports on its second serial line, one JSON
//! object a line; its first one is the kernel's console.

mod disk;
mod initramfs;
pub(crate) mod kernel;
mod modules;
mod programs;
mod qemu;
mod reports;
mod suite;
mod table;
mod tools;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use node_tracer_tests::stage::{self, Need, in_path};
use node_tracer_tests::wait;
use serde_json::{Value, json};

use crate::arch::Arch;
use crate::{apt, generated, setup};
use kernel::{Kernel, Wanted};
use programs::Programs;
use qemu::{Files, GuestEnd};
use reports::Reports;
use suite::{Boot, Suite};
use table::Table;
use tools::Tools;

/// Kernels that are taken if none is named: an old and a new one.
const DEFAULT: [&str; 2] = ["6.1", "6.12"];

/// What `vm` is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Vm {
    /// 5.10, 6.1, 6.12, 7.2, 7.3 [default: 6.1 and 6.12]
    #[arg(value_name = "KERNEL")]
    kernels: Vec<String>,
    /// The guests' architecture [default: this machine's]
    #[arg(long, value_enum, default_value_t = Arch::HOST, hide_default_value = true)]
    arch: Arch,
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
    /// Bring and build what guests need, and run none
    #[arg(long)]
    no_run: bool,
    /// Debian's archive (it ends in /debian) [default: that of this machine's apt]
    #[arg(long, value_name = "URL")]
    archive: Option<String>,
    /// Run nothing; put what the last whole runs said into node-tracer/doc/kernels.md
    #[arg(long, conflicts_with_all = ["kernels", "all", "suite", "tests"])]
    doc: bool,
    /// Run only the tests with this in their name
    #[arg(last = true, value_name = "TEST")]
    tests: Vec<String>,
}

/// Where kernels are kept between runs.
fn cache(arch: Arch) -> anyhow::Result<PathBuf> {
    apt::cache(match arch {
        Arch::Amd64 => "node-tracer-vm",
        Arch::Arm64 => "node-tracer-vm-arm64",
    })
}

pub(crate) fn run(asked: &Vm) -> anyhow::Result<ExitCode> {
    let arch = asked.arch;
    let cache = cache(arch)?;
    let archive = asked.archive.as_deref();
    if asked.doc {
        let (table, remarks) = reports::all(&cache);
        let mut text = format!("{table}\n");
        for remark in &remarks {
            // The rest is what the tracer said meanwhile.
            let first = remark.lines().next().unwrap_or_default();
            text += &format!("* {first}\n");
        }
        let command = format!("vm --arch {}", arch.name());
        generated::write("kernels.md", &command, &text)?;
        return Ok(ExitCode::SUCCESS);
    }
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
        ([], true) => &Suite::ALL[..],
        (named, _) => named,
    };
    match setup::for_arch(arch) {
        Err(error) if asked.if_possible => {
            println!("skipped: vm: {error:#}");
            return Ok(ExitCode::SUCCESS);
        }
        brought => brought?,
    }
    wait::catch_signals()?;
    let mut table = Table::default();
    // What is said again at the end, below the table.
    let mut remarks = Vec::new();
    let mut guests = Vec::new();
    println!("── vm: kernels");
    for wanted in kernels {
        if asked.fetch {
            let _ = fs::remove_dir_all(cache.join(wanted.name));
        }
        match wanted.bring(arch, &cache, archive) {
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
    let qemu = qemu::program(arch);
    if asked.if_possible && (guests.is_empty() || in_path(&qemu).is_none()) {
        println!("skipped: vm: needs a kernel and {qemu}");
        return Ok(ExitCode::SUCCESS);
    }
    if asked.fetch {
        tools::forget(&cache);
    }
    let tools = match Tools::bring(arch, &cache, archive) {
        Err(error) if asked.if_possible => {
            println!("skipped: vm: {error:#}");
            return Ok(ExitCode::SUCCESS);
        }
        brought => brought?,
    };
    let mut suites = suites.to_vec();
    // Its programs are in no distribution.
    let lacked = stage::missing(&[Need::KubeAssets]);
    if asked.all && arch == Arch::HOST && !lacked.is_empty() {
        remarks.push(format!("suite cluster: not run: {}", lacked.join("; ")));
    }
    if asked.all && !lacked.is_empty() {
        suites.retain(|suite| *suite != Suite::Cluster);
    }
    println!("── vm: build");
    let programs = Programs::build(arch, &suites)?;
    let start = Start {
        programs: &programs,
        tools: &tools,
        cache: &cache,
        asked,
    };
    let mut disk = None;
    if suites.iter().any(|suite| suite.has_disk()) {
        if asked.fetch {
            disk::forget(&cache);
        }
        let set_up = |disk: &Path| start.set_up(guests.first().context("no kernel")?, disk);
        match disk::bring(arch, &cache, archive, set_up) {
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
    if asked.no_run {
        return Ok(ExitCode::SUCCESS);
    }
    for kernel in guests {
        println!("── vm: {}", kernel.release);
        table.kernel(&kernel.release);
        for suite in &suites {
            if asked.all && !suite.is_for(kernel.name) {
                let name = suite.name();
                remarks.push(format!("{}: suite {name} is not for it", kernel.release));
                continue;
            }
            let whole = asked.tests.is_empty();
            let mut guests = Guests {
                kernel: &kernel,
                start: &start,
                disk: disk.as_deref().filter(|_| suite.has_disk()),
                table: &mut table,
                reports: Reports::create(&cache, &kernel, *suite, whole)?,
                remarks: &mut remarks,
                verdicts: 0,
            };
            for boot in suite.boots() {
                match guests.boot(&boot) {
                    Ok(()) => {}
                    Err(_) if wait::interrupted() => anyhow::bail!("interrupted"),
                    Err(error) => guests.failed(&boot, &format!("{error:#}")),
                }
            }
            if guests.verdicts == 0 {
                table.fail();
                let none = "no test was run: none has that in its name";
                remarks.push(format!("{} {}: {none}", kernel.release, suite.name()));
            }
        }
    }
    println!("── vm: kernel, signal, mechanism, verdict\n\n{table}");
    for remark in &remarks {
        println!("{remark}");
    }
    Ok(match table.failures() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// What every guest is started with.
struct Start<'a> {
    programs: &'a Programs,
    tools: &'a Tools,
    cache: &'a Path,
    asked: &'a Vm,
}

impl Start<'_> {
    /// Runs a guest to its end, and hands on what it reports. The modules of
    /// its suite that its kernel does not have, and how it ended.
    fn guest(
        &self,
        kernel: &Kernel,
        boot: &Boot,
        (disk, keep): (Option<&Path>, bool),
        each: impl FnMut(Value),
    ) -> anyhow::Result<(Vec<&'static str>, GuestEnd)> {
        let modules = modules::of(kernel, &boot.suite.modules())?;
        let folder = self.cache.join(kernel.name);
        let archive = folder.join("initramfs");
        programs::pack(self.programs, self.tools, &modules, boot.suite)?.write(&archive)?;
        let console = folder.join("console.log");
        println!("vm: {} {}", boot.suite.name(), boot.append);
        let files = Files {
            initramfs: &archive,
            disk,
            keep,
            console: &console,
        };
        let (kvm, tests) = (self.asked.kvm, &self.asked.tests);
        let command = qemu::command(kernel, boot, kvm, &files, tests);
        Ok((modules.missing, qemu::run(command, &console, each)?))
    }

    /// Has a guest set up the packages of a disk.
    fn set_up(&self, kernel: &Kernel, disk: &Path) -> anyhow::Result<()> {
        let boot = Boot {
            suite: Suite::Node,
            append: "nt.set-up=packages",
        };
        let mut said = Vec::new();
        let each = |report: Value| said.extend(reports::line(&report));
        match self.guest(kernel, &boot, (Some(disk), true), each)? {
            (_, GuestEnd::Well) if said.is_empty() => Ok(()),
            (_, GuestEnd::Well) => anyhow::bail!("set up in a guest: {}", said.join("\n")),
            (_, GuestEnd::Badly { what, console }) => {
                anyhow::bail!("set up in a guest: {what}\nthe end of its console:\n{console}")
            }
        }
    }
}

/// The guests of one suite on one kernel.
struct Guests<'a> {
    kernel: &'a Kernel,
    start: &'a Start<'a>,
    disk: Option<&'a Path>,
    table: &'a mut Table,
    reports: Reports,
    /// What is to be said again at the end.
    remarks: &'a mut Vec<String>,
    verdicts: usize,
}

impl Guests<'_> {
    /// Starts one, and shows what it reports until its end.
    fn boot(&mut self, boot: &Boot) -> anyhow::Result<()> {
        let (start, kernel, disk) = (self.start, self.kernel, self.disk);
        let (missing, end) =
            start.guest(kernel, boot, (disk, false), |report| self.take(&report))?;
        if !missing.is_empty() {
            self.remark(format!(
                "{}: not in this kernel: {}",
                kernel.release,
                missing.join(", ")
            ));
        }
        if let GuestEnd::Badly { what, console } = end {
            println!("the end of its console:\n{console}");
            self.failed(boot, &what);
        }
        Ok(())
    }

    fn take(&mut self, report: &Value) {
        if report["kind"] == "alive" {
            return;
        }
        self.verdicts += usize::from(report["verdict"].is_string());
        self.table.take(report);
        self.reports.keep(report);
        if let Some(line) = reports::line(report) {
            println!("{line}");
        }
        if let Some(remark) = reports::remark(&self.kernel.release, report) {
            self.remark(remark);
        }
    }

    /// A guest did not come to its end: a case that failed.
    fn failed(&mut self, boot: &Boot, what: &str) {
        self.take(&json!({
            "kind": "case",
            "suite": boot.suite.name(),
            "case": format!("a guest {}", boot.append).trim_end(),
            "verdict": "FAILED",
            "detail": what,
        }));
    }

    fn remark(&mut self, remark: String) {
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }
}
