//! The first process of a guest. It prepares what a booted system has, runs
//! the tests in a child, buries what is orphaned, and powers off.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::Context as _;

use super::node;
use super::report::{Case, Host, Verdict};
use crate::syscall::mount;

/// The argument by which the child is told what it is.
pub(super) const TESTS: &str = "tests";
/// Where the host has put the modules, to be loaded in the order of names.
const MODULES: &str = "/modules";
/// (kind, folder); a kernel without one of the last few is fine.
const MOUNTS: [(&str, &str); 9] = [
    ("devtmpfs", "/dev"),
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("tmpfs", "/run"),
    ("tmpfs", "/tmp"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("bpf", "/sys/fs/bpf"),
    ("tracefs", "/sys/kernel/tracing"),
    ("securityfs", "/sys/kernel/security"),
];

/// The first of them, which a system of the guest's own goes on with: it mounts
/// the others itself.
const FIRST: usize = 3;

/// Runs the guest, and ends it: this does not come back.
pub(super) fn run() -> ExitCode {
    match guest() {
        Ok(mut host) => host.end(),
        // The console is where the host looks then.
        Err(error) => eprintln!("guest: {error:#}"),
    }
    power_off();
    ExitCode::FAILURE
}

fn guest() -> anyhow::Result<Host> {
    let mount_all = |mounts: &[(&str, &str)]| {
        for (kind, folder) in mounts {
            if let Err(error) = mount(None, Path::new(folder), Some(kind), 0) {
                eprintln!("guest: {kind}: {error:#}");
            }
        }
    };
    mount_all(&MOUNTS[..FIRST]);
    let mut host = Host::open()?;
    raw()?;
    for error in load_modules()? {
        host.text(&error);
    }
    let suite = asked("nt.suite=").pop().unwrap_or_default();
    let tests = asked("nt.tests=");
    if let Some(disk) = asked("nt.disk=").pop() {
        if !asked("nt.set-up=").is_empty() {
            if let Err(error) = node::boot::set_up(Path::new(&disk), &mut host) {
                host.text(&format!("{error:#}"));
            }
            return Ok(host);
        }
        let Err(error) = node::boot::switch_root(Path::new(&disk), &suite, &tests);
        return Err(error);
    }
    mount_all(&MOUNTS[FIRST..]);
    fs::write("/proc/sys/kernel/hostname", "guest").context("hostname")?;
    // As on a node: the tracer is to find what it needs all the same.
    let _ = fs::write("/proc/sys/kernel/unprivileged_bpf_disabled", "2");
    let child = Command::new("/init")
        .arg(TESTS)
        .arg(&suite)
        .args(&tests)
        .env("PATH", "/bin")
        .env("NODE_TRACER_BIN", "/bin/node-tracer")
        .env("RUST_BACKTRACE", "0")
        .spawn()
        .context("start the tests")?;
    let status = bury_until(child.id());
    // What they have said so far is not all of it.
    if !status.is_some_and(|status| status.success()) {
        host.case(&Case {
            suite: &suite,
            name: "the tests end well",
            verdict: Verdict::Failed,
            detail: status.map_or(String::from("not known"), |status| status.to_string()),
            seconds: 0.0,
        });
    }
    Ok(host)
}

/// The serial line to the host.
pub(super) fn line() -> anyhow::Result<String> {
    asked("nt.line=").pop().context("no nt.line")
}

/// It is a terminal until it is told to be none.
pub(super) fn raw() -> anyhow::Result<()> {
    let line = line()?;
    let line = File::open(&line).context(line)?;
    // SAFETY: an all-zero termios is a valid value, overwritten below.
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: both calls take an open descriptor and a termios that lives.
    let done = unsafe {
        libc::tcgetattr(line.as_raw_fd(), &raw mut settings);
        libc::cfmakeraw(&raw mut settings);
        libc::tcsetattr(line.as_raw_fd(), libc::TCSANOW, &raw const settings)
    };
    if done != 0 {
        return Err(io::Error::last_os_error()).context("the serial line");
    }
    Ok(())
}

/// What is asked for on the kernel's command line: `nt.suite=A nt.tests=B,C`.
fn asked(key: &str) -> Vec<String> {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let words = line.split_whitespace();
    let names = words.filter_map(|word| word.strip_prefix(key));
    names
        .flat_map(|names| names.split(','))
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Loads all of them; returns what went wrong.
fn load_modules() -> anyhow::Result<Vec<String>> {
    let mut files: Vec<PathBuf> = fs::read_dir(MODULES)
        .context(MODULES)?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    let mut wrong = Vec::new();
    for path in files {
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        // SAFETY: finit_module takes a descriptor, a NUL-terminated string, and flags.
        let done =
            unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
        if done != 0 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EEXIST) {
                wrong.push(format!("module {}: {error}", path.display()));
            }
        }
    }
    Ok(wrong)
}

/// Waits for every process that ends, until this one has; how it did.
fn bury_until(child: u32) -> Option<ExitStatus> {
    loop {
        let mut status = 0;
        // SAFETY: waitpid writes the status that it is given.
        let ended = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if ended == child as libc::pid_t {
            return Some(ExitStatus::from_raw(status));
        }
        if ended < 0 {
            return None;
        }
    }
}

fn power_off() {
    // SAFETY: both take no pointers. As the first process this must not end.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
}
