//! Processes that keep a network namespace in ways that are hard to see: by a
//! descriptor or a socket from outside, or by a thread whose leader has ended.

use std::fs;
use std::io::Read as _;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;

use crate::cgroup::Cgroup;
use crate::hangfs::HangFs;
use crate::helper::{self, Helper};
use crate::netns::Netns;
use crate::process::{state, wchan};
use crate::{syscall, wait};

/// By what a [`Keeper`] keeps a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// An open file of it.
    Descriptor,
    /// A socket that was opened in it.
    Socket,
    /// A file of it in a unix socket's queue. This and what follows is done by a user
    /// without any right.
    InFlight,
    /// A file of it that is registered with an io_uring.
    IoUring,
    /// A watch of its file.
    Watch,
    /// An open file of it in a thread's own table of descriptors.
    Thread,
    /// A mount in a mount namespace of its own, below another mount: it can be
    /// seen, and nothing leads there.
    Covered,
}

impl By {
    /// As a holder's `kind` has it.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Descriptor => "fd",
            Self::Socket => "socket",
            Self::InFlight => "in-flight",
            Self::IoUring => "io-uring",
            Self::Watch => "watch",
            Self::Thread => "thread",
            Self::Covered => "covered",
        }
    }
}

/// A process outside a namespace that keeps it. Ends on drop.
#[derive(Debug)]
pub struct Keeper(Helper);

/// A user without any right.
pub const NOBODY: u32 = 65_534;

/// To be where they are to be, and to end.
const LIMIT: Duration = Duration::from_secs(10);

impl Keeper {
    /// Starts one; `path` is the namespace's.
    pub fn start(by: By, path: &Path) -> anyhow::Result<Self> {
        let mut command = helper::command(None, None, "keep");
        let helper = Helper::start(command.arg(by.kind()).arg(path), LIMIT)?;
        helper.wait_until_ready("a keeper", LIMIT)?;
        Ok(Self(helper))
    }

    pub fn pid(&self) -> u32 {
        self.0.pid()
    }
}

/// The helper of a [`Keeper`].
pub(crate) fn keep(kind: &str, path: &str) -> anyhow::Result<()> {
    let out_of_sight = [
        By::InFlight,
        By::IoUring,
        By::Watch,
        By::Thread,
        By::Covered,
    ];
    let out_of_sight = out_of_sight.into_iter().find(|by| by.kind() == kind);
    if out_of_sight.is_some() {
        syscall::become_user(NOBODY)?;
    }
    if kind == By::Thread.kind() {
        return keep_in_a_thread(Path::new(path));
    }
    if kind == By::Covered.kind() {
        return keep_below_a_mount(path);
    }
    let netns = fs::File::open(path).with_context(|| path.to_owned())?;
    let kept: Box<dyn std::any::Any> = if kind == By::Descriptor.kind() {
        Box::new(netns)
    } else if let Some(by) = out_of_sight {
        let kept = match by {
            By::IoUring => vec![syscall::register_with_io_uring(&netns)?],
            By::Watch => vec![syscall::watch(Path::new(path))?],
            _ => syscall::put_in_flight(&netns)?,
        };
        drop(netns);
        Box::new(kept)
    } else {
        // In a thread of its own, which then ends: the process stays outside.
        let open = || -> anyhow::Result<UdpSocket> {
            syscall::enter_netns(&netns).context("setns")?;
            Ok(UdpSocket::bind("0.0.0.0:0")?)
        };
        let socket = std::thread::scope(|scope| scope.spawn(open).join());
        drop(netns);
        Box::new(socket.map_err(|_| anyhow::anyhow!("the thread panicked"))??)
    };
    let ended = helper::ready_until_the_end();
    drop(kept);
    ended
}

/// The main thread's table, which is the process's, never has the file.
fn keep_in_a_thread(path: &Path) -> anyhow::Result<()> {
    let (opened, is_opened) = mpsc::channel();
    let path = path.to_owned();
    std::thread::spawn(move || {
        let open = || {
            syscall::unshare_descriptors()?;
            fs::File::open(&path)
        };
        // Until the process ends.
        let file = open();
        let _ = opened.send(file.as_ref().map(drop).map_err(ToString::to_string));
        loop {
            std::thread::park();
        }
    });
    let opened = is_opened.recv().context("the thread has ended")?;
    opened.map_err(anyhow::Error::msg)?;
    helper::ready_until_the_end()
}

/// The child ends with its stdin.
fn keep_below_a_mount(path: &str) -> anyhow::Result<()> {
    const MOUNTS: &str = "mount -t tmpfs none /mnt && touch /mnt/netns && \
        mount --bind \"$0\" /mnt/netns && mount -t tmpfs none /mnt && echo mounted && exec cat";
    let mut child = Command::new("unshare")
        .args(["-Urm", "--propagation", "private", "sh", "-c", MOUNTS, path])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("unshare")?;
    let mut said = [0; 8];
    let stdout = child.stdout.as_mut().context("no stdout")?;
    stdout.read_exact(&mut said).context("it does not mount")?;
    let ended = helper::ready_until_the_end();
    drop(child.stdin.take());
    child.wait()?;
    ended
}

/// A process in a pod's network namespace and cgroup whose main thread has
/// ended, and whose other thread reads a file that hangs.
#[derive(Debug)]
pub struct Leaderless {
    child: Child,
    tid: u32,
}

impl Leaderless {
    /// Starts one; back when its read is under way.
    pub fn start(
        comm: &str,
        netns: &Netns,
        cgroup: Option<&Cgroup>,
        file: &mut HangFs,
    ) -> anyhow::Result<Self> {
        let child = helper::command(None, Some(netns), "leaderless")
            .arg(comm)
            .arg(file.file())
            .args(cgroup.map(Cgroup::procs).unwrap_or_default())
            .spawn()
            .context("start a process without a leader")?;
        let pid = child.id();
        let mut this = Self { child, tid: 0 };
        let tasks = format!("/proc/{pid}/task");
        this.tid = wait::until("the second thread", Duration::from_secs(10), || {
            let tasks = fs::read_dir(&tasks).context("the helper has ended")?;
            let mut tids = tasks.flatten().filter_map(|task| {
                let tid: u32 = task.file_name().to_str()?.parse().ok()?;
                (tid != pid).then_some(tid)
            });
            Ok(tids.next().filter(|_| state(pid) == Some('Z')))
        })?;
        file.wait_for_reader(this.tid)?;
        Ok(this)
    }

    /// The process: the ID of the thread that has ended.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The thread that reads.
    pub fn tid(&self) -> u32 {
        self.tid
    }

    /// Kills it, and waits until the thread is in uninterruptible sleep.
    pub fn kill_into_d(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("kill")?;
        let (pid, tid) = (self.pid(), self.tid);
        wait::until(
            &format!("thread {tid} to be in state D"),
            Duration::from_secs(10),
            || {
                let stuck = state(tid) == Some('D') && wchan(tid) != "0";
                Ok(stuck.then_some(()))
            },
        )?;
        let leader = state(pid);
        anyhow::ensure!(leader == Some('Z'), "the leader is {leader:?}");
        Ok(())
    }
}

impl Drop for Leaderless {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let ended = || matches!(self.child.try_wait(), Ok(Some(_)) | Err(_));
        if !wait::settle(Duration::from_secs(5), ended) {
            eprintln!("stage: process {} has not ended", self.pid());
        }
    }
}

/// The helper of a [`Leaderless`], after it has taken its name and cgroups.
pub(crate) fn read_without_leader(file: &str) -> anyhow::Result<()> {
    let file = file.to_owned();
    std::thread::spawn(move || {
        // It fails once the file system is gone, which is the end that is wanted.
        let _ = fs::File::open(file).and_then(|mut file| file.read(&mut [0; 16]));
    });
    // SAFETY: exit takes a number; it ends this thread alone. Nothing of its
    // stack is borrowed by the other one.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    Ok(())
}

/// A process in new namespaces of its own, as a service with `PrivateNetwork=`
/// is one: without a name anywhere.
#[derive(Debug)]
pub struct Private(Helper);

impl Private {
    pub fn start() -> anyhow::Result<Self> {
        let mut command = Command::new("unshare");
        command
            .args(["--net", "--mount", "sh", "-c"])
            .arg("ip link set lo up && echo ready && exec cat >/dev/null")
            .stdin(Stdio::piped());
        let process = Helper::start(&mut command, LIMIT)?;
        process.wait_until_ready("unshare", LIMIT)?;
        Ok(Self(process))
    }

    pub fn pid(&self) -> u32 {
        self.0.pid()
    }
}
