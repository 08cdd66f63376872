//! The processes of a pod: the one that only holds the sandbox open, and the
//! one that ends up in uninterruptible sleep.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::cgroup::Cgroup;
use crate::hangfs::HangFs;
use crate::netns::Netns;
use crate::{helper, wait};

/// State letter of a process (`S`, `D`, `Z`, …); `None` when it is gone.
pub fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything.
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// The numbers that the descriptors of a process have under this name in
/// `/proc/PID/fdinfo`, such as `link_id:`.
///
/// # Errors
/// The process is gone, or belongs to somebody else.
pub fn fd_numbers(pid: u32, name: &str) -> anyhow::Result<Vec<u32>> {
    let folder = format!("/proc/{pid}/fdinfo");
    let mut numbers = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.clone())? {
        // A descriptor may be closed meanwhile.
        let text = fs::read_to_string(entry?.path()).unwrap_or_default();
        let number = text.lines().find_map(|line| line.strip_prefix(name));
        numbers.extend(number.and_then(|number| number.trim().parse::<u32>().ok()));
    }
    Ok(numbers)
}

/// Sends a signal to a process that is known to be the one that is meant: a
/// child that was not waited for, say.
pub fn signal(pid: u32, signal: i32) -> std::io::Result<()> {
    // SAFETY: kill takes numbers.
    match unsafe { libc::kill(pid.cast_signed(), signal) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Where in the kernel a process sleeps; empty if that cannot be read.
pub fn wchan(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default()
}

/// A child of this process.
fn child_of(parent: u32) -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
        let of = fields.and_then(|fields| fields.split_whitespace().nth(1)?.parse::<u32>().ok());
        of == Some(parent)
    })
}

/// Kernel stack of a process, function names only; empty if it cannot be read.
pub fn stack(pid: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stack")).unwrap_or_default();
    let name = |line: &str| {
        Some(
            line.split_whitespace()
                .nth(1)?
                .split('+')
                .next()?
                .to_owned(),
        )
    };
    text.lines().filter_map(name).collect()
}

/// A process inside a pod's network namespace and cgroup. Killed on drop; one
/// that cannot end yet is waited for briefly and then left to its release.
#[derive(Debug)]
pub struct PodProcess {
    child: Child,
    pid: u32,
}

impl PodProcess {
    fn spawn(
        role: &str,
        comm: &str,
        netns: &Netns,
        cgroup: Option<&Cgroup>,
        file: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let child = helper::command(None, Some(netns), role)
            .arg(comm)
            .args(file)
            .args(cgroup.map(Cgroup::procs).unwrap_or_default())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {comm} in {}", netns.name()))?;
        Ok(Self {
            pid: child.id(),
            child,
        })
    }

    /// One that only waits, as a sandbox's pause container does.
    pub fn pause(netns: &Netns, cgroup: Option<&Cgroup>) -> anyhow::Result<Self> {
        let mut this = Self::spawn("pause", "pause", netns, cgroup, None)?;
        this.wait_until_in()?;
        Ok(this)
    }

    /// Waits until it says that it is where it is to be.
    fn wait_until_in(&mut self) -> anyhow::Result<()> {
        let stdout = self.child.stdout.take().context("no pipe")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        anyhow::ensure!(line == "ready\n", "process {} did not start", self.pid);
        Ok(())
    }

    /// One that will write to a file, which it has open: [`write_into_d`](Self::write_into_d).
    pub fn writer(
        comm: &str,
        netns: &Netns,
        cgroup: Option<&Cgroup>,
        file: &Path,
    ) -> anyhow::Result<Self> {
        let mut this = Self::spawn("write", comm, netns, cgroup, Some(file))?;
        this.wait_until_in()?;
        Ok(this)
    }

    /// A writer writes; back when it is in uninterruptible sleep.
    pub fn write_into_d(&mut self) -> anyhow::Result<()> {
        let stdin = self.child.stdin.as_mut().context("no pipe")?;
        stdin.write_all(b"w").context("tell the writer to write")?;
        let pid = self.pid;
        wait::until(
            &format!("process {pid} to be in state D"),
            Duration::from_secs(10),
            || Ok((state(pid) == Some('D')).then_some(())),
        )
    }

    /// One that reads the file that hangs; back when its read is under way.
    pub fn reader(
        comm: &str,
        netns: &Netns,
        cgroup: Option<&Cgroup>,
        file: &mut HangFs,
    ) -> anyhow::Result<Self> {
        let this = Self::spawn("read", comm, netns, cgroup, Some(&file.file()))?;
        file.wait_for_reader(this.pid)?;
        Ok(this)
    }

    /// One that starts the file that hangs, as a program that is to be its
    /// child: it sleeps in vfork(2) until the child has called exec, and that
    /// does not return. Back with the child's process ID when both sleep.
    pub fn vfork_parent(
        comm: &str,
        netns: &Netns,
        cgroup: Option<&Cgroup>,
        file: &mut HangFs,
    ) -> anyhow::Result<(Self, u32)> {
        let this = Self::spawn("vfork", comm, netns, cgroup, Some(&file.file()))?;
        let pid = this.pid;
        let what = format!("a child of process {pid}");
        let limit = Duration::from_secs(10);
        let child = wait::until(&what, limit, || Ok(child_of(pid)))?;
        file.wait_for_reader(child)?;
        let what = format!("process {pid} to be in state D");
        wait::until(&what, limit, || Ok((state(pid) == Some('D')).then_some(())))?;
        Ok((this, child))
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends SIGKILL. (The child is not reaped yet, so the PID is its own.)
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child
            .kill()
            .with_context(|| format!("kill {}", self.pid))
    }

    /// Kills a reader and waits until it is in uninterruptible sleep.
    pub fn kill_into_d(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        let pid = self.pid;
        wait::until(
            &format!("process {pid} to be in state D"),
            Duration::from_secs(10),
            || match state(pid) {
                Some('D') => Ok(Some(())),
                None | Some('Z' | 'X') => anyhow::bail!("process {pid} died instead of blocking"),
                Some(_) => Ok(None),
            },
        )?;
        // On its way it passes through a killable wait, which looks the same
        // for a moment, but has not put it to sleep: it has no wchan.
        wait::settle(Duration::from_millis(500), || wchan(pid) != "0");
        anyhow::ensure!(state(pid) == Some('D'), "process {pid} did not stay in D");
        Ok(())
    }

    /// Waits until it has ended, and reaps it.
    pub fn wait_for_end(&mut self, limit: Duration) -> anyhow::Result<()> {
        let ended = wait::settle(limit, || {
            matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
        });
        anyhow::ensure!(
            ended,
            "process {} has not ended (state {})",
            self.pid,
            state(self.pid).unwrap_or('?')
        );
        Ok(())
    }
}

impl Drop for PodProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        if let Err(error) = self.wait_for_end(Duration::from_secs(5)) {
            eprintln!("stage: {error:#}");
        }
    }
}
