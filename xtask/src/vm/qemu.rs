//! One guest: started, listened to, and killed if it hangs.
//!
//! Emulated (TCG) unless asked otherwise: hardware virtualisation is not to be
//! had everywhere, and where it is nested it fails in ways that look like the
//! tracer's.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use node_tracer_tests::helper::Killed;
use node_tracer_tests::wait;
use serde_json::Value;

use super::kernel::Kernel;
use super::suite::Boot;
use crate::arch::Arch;

/// The program for it.
pub(crate) fn program(arch: Arch) -> String {
    format!("qemu-system-{}", arch.machine())
}

/// The longest that a guest may be silent, and may take: more than it waits for
/// anything itself, so that it can say what it has waited for.
const SILENCE: Duration = Duration::from_secs(10 * 60);
const LIMIT: Duration = Duration::from_secs(60 * 60);
/// Lines of the console that are shown of a guest that did not end well.
const TAIL: usize = 40;

#[derive(Debug)]
pub(crate) enum GuestEnd {
    Well,
    /// It hung or crashed; what happened, and the end of its console.
    Badly {
        what: String,
        /// The console's last lines.
        console: String,
    },
}

/// What a guest is, as machine and processor: virtualised or emulated.
fn machine(arch: Arch, kvm: bool) -> &'static [&'static str] {
    match (arch, kvm) {
        // With cmpxchg16b emulated, kernels crash under tracing.
        (Arch::Amd64, false) => &["-accel", "tcg,thread=multi", "-cpu", "max,-cx16"],
        (Arch::Amd64, true) => &["-accel", "kvm", "-cpu", "host"],
        // A processor of servers; the largest has much that takes long to emulate.
        (Arch::Arm64, false) => &[
            "-machine",
            "virt",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "neoverse-n1",
        ],
        (Arch::Arm64, true) => &["-machine", "virt", "-accel", "kvm", "-cpu", "host"],
    }
}

/// What its serial lines are called there.
fn serial(arch: Arch) -> &'static str {
    match arch {
        Arch::Amd64 => "ttyS",
        Arch::Arm64 => "ttyAMA",
    }
}

/// What a guest is started from, and where its console goes.
#[derive(Debug)]
pub(crate) struct Files<'a> {
    pub(crate) initramfs: &'a Path,
    pub(crate) disk: Option<&'a Path>,
    /// Whether what it changes there stays.
    pub(crate) keep: bool,
    pub(crate) console: &'a Path,
}

/// The command that boots a kernel for these tests.
pub(crate) fn command(
    kernel: &Kernel,
    boot: &Boot,
    kvm: bool,
    files: &Files<'_>,
    tests: &[String],
) -> Command {
    let serial = serial(kernel.arch);
    let mut append = format!(
        "console={serial}0 panic=-1 oops=panic nt.line=/dev/{serial}1 nt.suite={} nt.tests={} {}",
        boot.suite.name(),
        tests.join(","),
        boot.append,
    );
    let mut command = Command::new(program(kernel.arch));
    if let Some(disk) = files.disk {
        append.push_str(" nt.disk=/dev/vda");
        command.arg("-drive").arg(format!(
            "file={},format=raw,if=virtio,cache=unsafe,snapshot={}",
            // A comma ends an option's value; two are one of the value's.
            disk.display().to_string().replace(',', ",,"),
            if files.keep { "off" } else { "on" },
        ));
    }
    command
        .args(machine(kernel.arch, kvm))
        .args(["-smp", &boot.suite.processors().to_string(), "-m"])
        .arg(boot.suite.memory().to_string())
        .args(["-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-serial", &format!("file:{}", files.console.display())])
        .args(["-serial", "stdio"])
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(files.initramfs)
        .args(["-append", &append]);
    command
}

/// Runs a guest to its end and hands on each line that it reports.
pub(crate) fn run(
    mut command: Command,
    console: &Path,
    mut each: impl FnMut(Value),
) -> anyhow::Result<GuestEnd> {
    let mut guest = Killed(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start QEMU; cargo xtask setup brings it")?,
    );
    let reports = BufReader::new(guest.0.stdout.take().context("no pipe")?);
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = reports.split(b'\n').map_while(Result::ok);
        lines
            .map(|line| String::from_utf8_lossy(&line).trim().to_owned())
            .try_for_each(|line| send.send(line))
    });
    let begin = Instant::now();
    let mut last = begin;
    let what = loop {
        anyhow::ensure!(!wait::interrupted(), "interrupted");
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => {
                last = Instant::now();
                match serde_json::from_str::<Value>(&line) {
                    Ok(report) if report["kind"] == "end" => return Ok(GuestEnd::Well),
                    Ok(report @ Value::Object(_)) => each(report),
                    _ if line.is_empty() => {}
                    _ => each(serde_json::json!({ "kind": "text", "text": line })),
                }
            }
            Err(RecvTimeoutError::Disconnected) => break String::from("it has ended by itself"),
            Err(RecvTimeoutError::Timeout) if last.elapsed() > SILENCE => {
                break format!("killed after {} s without a word", SILENCE.as_secs());
            }
            Err(RecvTimeoutError::Timeout) if begin.elapsed() > LIMIT => {
                break format!("killed after {} s", LIMIT.as_secs());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    drop(guest);
    Ok(GuestEnd::Badly {
        what,
        console: tail(&String::from_utf8_lossy(
            &fs::read(console).unwrap_or_default(),
        )),
    })
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL);
    lines[from..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_end() {
        let text: String = (0..100).map(|line| format!("{line}\n")).collect();
        assert!(tail(&text).starts_with("60\n"));
        assert_eq!(tail("a\nb"), "a\nb");
    }
}
