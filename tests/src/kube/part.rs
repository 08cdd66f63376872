//! One program of the cluster, in a node's namespaces.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::containerd::Containerd;
use crate::helper::Killed;
use crate::process;
use crate::syscall::{enter, set_parent_death_signal};

/// A running program. Killed on drop, and when the thread that started it ends:
/// nothing of it is to last, so nothing is to be finished.
#[derive(Debug)]
pub(super) struct Part {
    child: Killed,
    name: String,
    log: PathBuf,
}

impl Part {
    /// Starts a program that the node has at this path. What it says goes to a
    /// file in `logs`.
    pub(super) fn start(
        node: &Containerd,
        logs: &Path,
        program: &Path,
        args: &[impl AsRef<OsStr>],
    ) -> anyhow::Result<Self> {
        let name = program.file_name().context("a program without a name")?;
        let name = name.to_string_lossy().into_owned();
        let log = logs.join(format!("{name}.log"));
        let output = fs::File::create(&log)?;
        let open = |kind: &str| {
            let path = format!("/proc/{}/ns/{kind}", node.pid());
            fs::File::open(&path).context(path)
        };
        let (netns, mounts) = (open("net")?, open("mnt")?);
        let go_inside = move || -> io::Result<()> {
            set_parent_death_signal(libc::SIGKILL)?;
            enter(&netns, libc::CLONE_NEWNET)?;
            // With it the root is the node's, and the folder too.
            enter(&mounts, libc::CLONE_NEWNS)
        };
        let mut command = Command::new(program);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Ctrl-C is for us.
            .process_group(0);
        // SAFETY: the closure makes system calls only, which is allowed between fork and exec.
        unsafe { command.pre_exec(go_inside) };
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        Ok(Self {
            child: Killed(child),
            name,
            log,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Fails if it has ended.
    pub(super) fn lives(&mut self) -> anyhow::Result<()> {
        match self.child.0.try_wait()? {
            None => Ok(()),
            Some(status) => anyhow::bail!("{} has ended: {status}", self.name),
        }
    }

    /// The last lines of its log, without the stacks of a program that gave up.
    pub(super) fn words(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let said = log
            .lines()
            .take_while(|line| !line.starts_with("goroutine "));
        let lines: Vec<&str> = said.collect();
        let last = lines[lines.len().saturating_sub(6)..].join("\n    ");
        format!("the last lines of {}:\n    {last}\n", self.name)
    }

    /// Sends it a signal. (It is not reaped yet, so the PID is its own.)
    pub(super) fn signal(&self, signal: libc::c_int) -> anyhow::Result<()> {
        process::signal(self.pid(), signal).with_context(|| format!("signal {}", self.name))
    }
}
