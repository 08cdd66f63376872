//! The helper processes: this same program again, with `stage-helper ROLE …`.
//!
//! A fresh exec, not a fork, because the programs that use the stage have
//! threads. Each helper has its own process group, so that Ctrl-C in a
//! terminal reaches only the program that cleans up; and each ends when its
//! stdin is closed, so that none outlives that program.

use std::ffi::{CString, OsStr};
use std::fmt;
use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;

use crate::netns::Netns;
use crate::{
    bare, containerd, crowd, flood, fuse, journald, keeper, kube, memory, paste, process, rtnl,
    runtime, scripted_cri, stuck, wait,
};

const MARK: &str = "stage-helper";

/// Acts as a helper and ends the process, if that is what the program was
/// started for. To be called first thing in `main`.
pub fn act_if_asked() {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() != Some(MARK) {
        return;
    }
    let role = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    match act(&role, &rest) {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            eprintln!("stage-helper {role}: {error:#}");
            std::process::exit(1);
        }
    }
}

fn act(role: &str, args: &[String]) -> anyhow::Result<()> {
    match (role, args) {
        ("fuse", [at]) => fuse::serve(Path::new(at), fuse::Manner::HangingRead),
        ("fuse-silent", [at]) => fuse::serve(Path::new(at), fuse::Manner::Silent),
        ("runtime", []) => runtime::serve(),
        ("journald", [folder]) => journald::serve(Path::new(folder)),
        ("containerd", [folder, generation, plugins, network, volumes @ ..]) => {
            let (generation, plugins) = (generation.parse()?, Path::new(plugins));
            containerd::node::serve(Path::new(folder), generation, plugins, network, volumes)
        }
        ("bare", [folder]) => bare::serve(Path::new(folder)),
        ("crowd", [folder, top, netns, tasks]) => {
            crowd::serve(Path::new(folder), top, netns.parse()?, tasks.parse()?)
        }
        ("kube-prepare", [node]) => kube::inside::serve(node.parse()?),
        ("pause", [comm, cgroups @ ..]) => {
            settle_in(comm, cgroups)?;
            ready_until_the_end()
        }
        ("read", [comm, file, cgroups @ ..]) => {
            settle_in(comm, cgroups)?;
            // One read(2). It fails once the file system is gone, which is the end that is wanted.
            let mut file = fs::File::open(file).with_context(|| format!("open {file}"))?;
            let _ = file.read(&mut [0; 16]);
            Ok(())
        }
        ("write", [comm, file, cgroups @ ..]) => {
            settle_in(comm, cgroups)?;
            let options = fs::File::options().append(true).open(file);
            let mut file = options.with_context(|| format!("open {file}"))?;
            println!("{READY}");
            // What is asked for is one write(2), once the file system is frozen.
            std::io::stdin().read_exact(&mut [0])?;
            file.write_all(b"x").context("write")
        }
        ("vfork", [comm, file, cgroups @ ..]) => {
            settle_in(comm, cgroups)?;
            // This sleeps until the child has called exec or has ended.
            if let Ok(mut child) = Command::new(file).spawn() {
                child.wait().context("wait for the child")?;
            }
            Ok(())
        }
        (memory::ROLE, [comm, cgroups @ ..]) => {
            settle_in(comm, cgroups)?;
            memory::swell()
        }
        (stuck::ROLE, [file, count]) => stuck::write_in_many(Path::new(file), count.parse()?),
        (flood::CALLS, [user, count, plugin]) => flood::call(user.parse()?, count.parse()?, plugin),
        (flood::IMPOSTORS, [count, plugin, cgroups @ ..]) => {
            flood::pose(count.parse()?, plugin, cgroups)
        }
        (flood::VFORK, [user, count]) => flood::wait_for_children(user.parse()?, count.parse()?),
        (flood::READERS, [user, count, file]) => {
            flood::read_and_be_killed(user.parse()?, count.parse()?, Path::new(file))
        }
        (flood::WRITEBACK, [user, count, folder]) => {
            flood::write_and_wait(user.parse()?, count.parse()?, Path::new(folder))
        }
        (flood::EXECS, [user, each, life]) => {
            let life = Duration::from_millis(life.parse()?);
            flood::execute_without_end(user.parse()?, each.parse()?, life)
        }
        (scripted_cri::ROLE, [socket, sandboxes]) => {
            scripted_cri::serve_until_closed(socket, sandboxes)
        }
        ("paste", [file]) => paste::paste_all(file),
        (paste::ROLE, args) => paste::crictl(args),
        ("hold-rtnl", [file]) => rtnl::hold(file),
        ("keep", [kind, path]) => keeper::keep(kind, path),
        ("leaderless", [comm, file, cgroups @ ..]) => {
            settle_in(comm, cgroups)?;
            keeper::read_without_leader(file)
        }
        _ => anyhow::bail!("unknown role or wrong number of arguments"),
    }
}

/// Takes the name and the cgroups of the container process that it plays.
fn settle_in(comm: &str, cgroups: &[String]) -> anyhow::Result<()> {
    for procs in cgroups {
        fs::write(procs, "0").with_context(|| format!("write {procs}"))?;
    }
    let comm = CString::new(comm)?;
    // SAFETY: PR_SET_NAME reads a NUL-terminated string, which outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, comm.as_ptr()) };
    Ok(())
}

/// A running helper. It ends when its stdin is closed: dropping this closes it,
/// waits for so long, and then kills.
#[derive(Debug)]
pub(crate) struct Helper {
    child: Child,
    lines: Mutex<Receiver<String>>,
    patience: Duration,
}

impl Helper {
    /// Starts it; it says lines on its stdout, and takes no longer than
    /// `patience` to end.
    pub(crate) fn start(command: &mut Command, patience: Duration) -> anyhow::Result<Self> {
        let mut child = spawn_copy(command.stdout(Stdio::piped()))?;
        let stdout = child.stdout.take().context("no pipe")?;
        let (say, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut all = BufReader::new(stdout).lines().map_while(Result::ok);
            all.try_for_each(|line| say.send(line))
        });
        Ok(Self {
            child,
            lines: Mutex::new(lines),
            patience,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it says, if there is one already.
    pub(crate) fn said(&self) -> anyhow::Result<Option<String>> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        match lines.recv_timeout(Duration::from_millis(1)) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                anyhow::bail!("the helper has ended (its message is above)")
            }
        }
    }

    /// Waits for the next line.
    pub(crate) fn line(&self, what: &str, limit: Duration) -> anyhow::Result<String> {
        wait::until(what, limit, || self.said()).with_context(|| what.to_owned())
    }

    /// Waits until it says that it is ready.
    pub(crate) fn wait_until_ready(&self, what: &str, limit: Duration) -> anyhow::Result<()> {
        let line = self.line(what, limit)?;
        anyhow::ensure!(line == READY, "{what}: {line:?}");
        Ok(())
    }

    /// Tells it something, on a line of its own.
    pub(crate) fn tell(&mut self, line: &dyn fmt::Display) -> anyhow::Result<()> {
        let stdin = self.child.stdin.as_mut().context("it was told to end")?;
        writeln!(stdin, "{line}").context("the helper has ended")
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
    }

    pub(crate) fn signal(&self, signal: libc::c_int) -> anyhow::Result<()> {
        process::signal(self.pid(), signal).context("signal a helper")
    }

    /// Tells it to end.
    pub(crate) fn close(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Tells it to end, and waits for that; whether it did so by itself.
    pub(crate) fn end(&mut self) -> bool {
        self.close();
        let ended = wait::settle(self.patience, || {
            matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
        });
        if !ended {
            eprintln!("stage: the helper {} does not end", self.pid());
            let _ = self.child.kill();
            wait::settle(self.patience, || self.has_ended());
        }
        ended
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a helper says when what it was started for is there.
const READY: &str = "ready";

/// Says that all is there, and waits until it is to end.
pub(crate) fn ready_until_the_end() -> anyhow::Result<()> {
    println!("{READY}");
    std::io::stdin()
        .read_to_end(&mut Vec::new())
        .context("stdin")?;
    Ok(())
}

/// A process that is killed, and waited for, when this is dropped.
#[derive(Debug)]
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program that this process has just written. Another thread that
/// starts something at that moment has the file open for writing for a moment,
/// and then the kernel refuses to execute it.
pub(crate) fn spawn_copy(command: &mut Command) -> anyhow::Result<Child> {
    let what = format!("start {}", command.get_program().display());
    wait::until(&what, Duration::from_secs(5), || match command.spawn() {
        Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => Ok(None),
        spawned => spawned.map(Some).with_context(|| what.clone()),
    })
}

/// A command that starts a helper, from `program` (a copy of this one) or
/// from this program itself, in `netns` or where the caller is.
pub(crate) fn command(program: Option<&Path>, netns: Option<&Netns>, role: &str) -> Command {
    let program: &OsStr = program.map_or(OsStr::new("/proc/self/exe"), Path::as_os_str);
    let mut command = match netns {
        Some(netns) => netns.command(program),
        None => Command::new(program),
    };
    command
        .args([MARK, role])
        .stdin(Stdio::piped())
        .process_group(0);
    command
}
