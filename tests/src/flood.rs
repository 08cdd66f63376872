//! Somebody on the node who does one thing without end: an unprivileged user
//! who plays CNI plugins, a container full of impostors, a user with thousands
//! of vfork(2) parents. All are real processes, children of one helper.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::cgroup::Cgroup;
use crate::hangfs::HangFs;
use crate::helper::{self, Helper, Killed, ready_until_the_end};
use crate::{fuse, wait};

/// `nobody`, who owns nothing.
pub const NOBODY: u32 = 65_534;

pub(crate) const CALLS: &str = "flood-calls";
pub(crate) const IMPOSTORS: &str = "flood-impostors";
pub(crate) const VFORK: &str = "flood-vfork";
pub(crate) const READERS: &str = "flood-readers";
pub(crate) const WRITEBACK: &str = "flood-writeback";
pub(crate) const EXECS: &str = "flood-execs";

/// For all of it to have begun.
const LIMIT: Duration = Duration::from_secs(120);

/// A flood that has come to its height. Dropping it ends all its processes.
#[derive(Debug)]
pub struct Flood(Helper);

impl Flood {
    /// So many executions of a program with CNI variables, one after the other,
    /// by a user. Back when all are over.
    pub fn calls(user: u32, count: u32, plugin: &Path) -> anyhow::Result<Self> {
        let arguments = [
            user.to_string(),
            count.to_string(),
            plugin.display().to_string(),
        ];
        Self::start(CALLS, &arguments)
    }

    /// So many plugins of root's in the host's PID namespace and a pod's
    /// cgroup, which sleep.
    pub fn impostors(count: u32, plugin: &Path, pod: &Cgroup) -> anyhow::Result<Self> {
        let mut arguments = vec![count.to_string(), plugin.display().to_string()];
        arguments.extend(pod.procs().iter().map(|path| path.display().to_string()));
        Self::start(IMPOSTORS, &arguments)
    }

    /// So many processes of a user that wait for their vfork children, which
    /// sleep, each in state D.
    pub fn vfork_parents(user: u32, count: u32) -> anyhow::Result<Self> {
        Self::start(VFORK, &[user.to_string(), count.to_string()])
    }

    /// So many processes of a user that read the file that hangs and were
    /// killed, each in state D until the file system is released. To be dropped
    /// after that.
    pub fn stuck_readers(user: u32, count: u32, volume: &HangFs) -> anyhow::Result<Self> {
        let file = volume.file().display().to_string();
        Self::start(READERS, &[user.to_string(), count.to_string(), file])
    }

    /// Processes of a user that sleep in state D for so long: each executes a
    /// program, and waits for a thread that is traced and not waited for. So
    /// many new ones ten times a second. Back when the first are there.
    pub fn stream_of_execs(user: u32, each: u32, life: Duration) -> anyhow::Result<Self> {
        let numbers = [user.to_string(), each.to_string()];
        let life = life.as_millis().to_string();
        Self::start(EXECS, &[numbers.as_slice(), &[life]].concat())
    }

    /// So many FUSE file systems of a user, each with a file whose content the
    /// kernel writes back after half a minute: the workers that do it are in state
    /// D until this is dropped. `folder` is an empty one for the mount points.
    pub fn written_file_systems(user: u32, count: u32, folder: &Path) -> anyhow::Result<Self> {
        let folder = folder.display().to_string();
        Self::start(WRITEBACK, &[user.to_string(), count.to_string(), folder])
    }

    /// One such process of root's in mounts of its own, as a container has.
    pub fn container_exec() -> anyhow::Result<Self> {
        Self::start(EXECS, &["0", "1", "0"].map(String::from))
    }

    fn start(role: &str, arguments: &[String]) -> anyhow::Result<Self> {
        let mut command = helper::command(None, None, role);
        let helper = Helper::start(command.args(arguments), LIMIT)?;
        helper.wait_until_ready(role, LIMIT)?;
        Ok(Self(helper))
    }

    /// Its first process.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }
}

/// A namespace in which addresses come and go without end. It ends when this is
/// dropped.
#[derive(Debug)]
pub struct Restless {
    // The kernel ends its child with it, and the child's PID namespace.
    _first: Killed,
}

impl Restless {
    /// A user's own; the user makes others all the time. Back when the first
    /// addresses are there.
    pub fn user(user: u32) -> anyhow::Result<Self> {
        let user = user.to_string();
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", &user, "--regid", &user, "--clear-groups"])
            .args(["unshare", "--map-root-user"]);
        Self::start(command, "(while :; do unshare --net true; done) &")
    }

    /// One in a user namespace that root has made, as root in a container does;
    /// others are made all the time, each in a user namespace of its own. Back
    /// when the first addresses are there.
    pub fn container() -> anyhow::Result<Self> {
        let mut command = Command::new("unshare");
        command.arg("--map-root-user");
        let others = "(while :; do unshare --map-root-user --net true; done) &";
        Self::start(command, others)
    }

    /// One that root has made, as a runtime does for a pod that may change
    /// addresses. Back when the first are there.
    pub fn pod() -> anyhow::Result<Self> {
        Self::start(Command::new("unshare"), "")
    }

    fn start(mut command: Command, meanwhile: &str) -> anyhow::Result<Self> {
        const COMMANDS: &str = "
            each() { i=0; while [ $i -lt 2000 ]; do
                echo addr $1 10.9.$((i / 250)).$((i % 250 + 1))/32 dev eth0; i=$((i + 1))
            done; }
            added=$(each add); removed=$(each del)
            ip link add eth0 type veth peer name p0
            eval \"$1\"
            echo \"$added\" | ip -batch - && echo there
            while :; do echo \"$removed\" | ip -batch -; echo \"$added\" | ip -batch -; done";
        let mut child = command
            .args(["--net", "--pid", "--fork", "--kill-child"])
            .args(["sh", "-c", COMMANDS, "restless", meanwhile])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("setpriv or unshare")?;
        let stdout = child.stdout.take().context("no pipe")?;
        let this = Self {
            _first: Killed(child),
        };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        anyhow::ensure!(line == "there\n", "no addresses can be added");
        Ok(this)
    }
}

/// A command that anybody can give: a program that seems to be a CNI plugin.
fn plugin(path: &str) -> Command {
    let folder = Path::new(path).parent().unwrap_or(Path::new("/"));
    let mut command = Command::new(path);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env_clear()
        .env("CNI_COMMAND", "DEL")
        .env("CNI_CONTAINERID", "stranger")
        .env("CNI_IFNAME", "eth0")
        .env("CNI_NETNS", "/run/netns/stranger")
        .env("CNI_PATH", folder);
    command
}

/// For good: groups, too.
fn become_user(user: u32) -> anyhow::Result<()> {
    // SAFETY: these take numbers, and a null pointer for no groups.
    let changed = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setgid(user) == 0
            && libc::setuid(user) == 0
    };
    anyhow::ensure!(changed, std::io::Error::last_os_error());
    Ok(())
}

/// The helper of [`Flood::calls`].
pub(crate) fn call(user: u32, count: u32, path: &str) -> anyhow::Result<()> {
    become_user(user)?;
    let mut running = Vec::new();
    for _ in 0..count {
        running.push(plugin(path).spawn().context("spawn")?);
        if running.len() >= 8 {
            running.remove(0).wait()?;
        }
    }
    for mut child in running {
        child.wait()?;
    }
    ready_until_the_end()
}

/// The helper of [`Flood::impostors`].
pub(crate) fn pose(count: u32, path: &str, cgroups: &[String]) -> anyhow::Result<()> {
    for procs in cgroups {
        std::fs::write(procs, "0").with_context(|| format!("write {procs}"))?;
    }
    let mut sleepers = Vec::new();
    let mut started = Ok(());
    for _ in 0..count {
        let mut command = plugin(path);
        command.arg("100000");
        // SAFETY: the closure makes one system call, which is allowed between fork and exec.
        unsafe {
            command.pre_exec(|| crate::syscall::set_parent_death_signal(libc::SIGKILL));
        }
        match command.spawn() {
            Ok(child) => sleepers.push(child),
            Err(error) => {
                started = Err(error);
                break;
            }
        }
    }
    let ended = started
        .context("spawn")
        .and_then(|()| ready_until_the_end());
    for child in &mut sleepers {
        child.kill()?;
    }
    for mut child in sleepers {
        child.wait()?;
    }
    ended
}

/// The helper of [`Flood::vfork_parents`]. All end with its group.
pub(crate) fn wait_for_children(user: u32, count: u32) -> anyhow::Result<()> {
    become_user(user)?;
    let parents = Children::fork(count, || vfork_and_wait())?;
    parents.wait_for('D')?;
    let ended = ready_until_the_end();
    parents.kill();
    ended
}

/// The helper of [`Flood::stuck_readers`].
pub(crate) fn read_and_be_killed(user: u32, count: u32, file: &Path) -> anyhow::Result<()> {
    let readers = Children::fork(count, || {
        // The folder above it is root's alone.
        if let Ok(mut file) = std::fs::File::open(file)
            && become_user(user).is_ok()
        {
            let _ = file.read(&mut [0; 16]);
        }
    })?;
    readers.wait_for('S')?;
    // Those die whose requests the server has not taken yet.
    std::thread::sleep(Duration::from_secs(1));
    readers.kill();
    readers.wait_for('D')?;
    ready_until_the_end()
}

/// The helper of [`Flood::written_file_systems`].
pub(crate) fn write_and_wait(user: u32, count: u32, folder: &Path) -> anyhow::Result<()> {
    // SAFETY: unshare takes numbers.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
    anyhow::ensure!(unshared, std::io::Error::last_os_error());
    let private = libc::MS_REC | libc::MS_PRIVATE;
    let no = std::ptr::null();
    // SAFETY: a path that ends in NUL, and nulls for what is not used.
    let made = unsafe { libc::mount(no, c"/".as_ptr(), no, private, no.cast()) } == 0;
    anyhow::ensure!(made, std::io::Error::last_os_error());
    let mount_points: Vec<_> = (0..count).map(|at| folder.join(at.to_string())).collect();
    let written = mount_points.iter().map(|path| write_in_new(path, user));
    let written: anyhow::Result<Vec<_>> = written.collect();
    let ended = written.and_then(|files| {
        let ended = ready_until_the_end();
        mount_points.iter().for_each(|path| fuse::abort(path));
        drop(files);
        ended
    });
    mount_points.iter().for_each(|path| fuse::abort(path));
    ended
}

/// A file of a new file system, with a page that is to be written back.
fn write_in_new(mount_point: &Path, user: u32) -> anyhow::Result<std::fs::File> {
    std::fs::create_dir(mount_point)?;
    let mut device = fuse::mount(mount_point, user)?;
    std::thread::spawn(move || fuse::answer_all(&mut device, fuse::Manner::NoWriteback));
    let options = std::fs::File::options()
        .write(true)
        .open(mount_point.join(fuse::FILE));
    let mut file = options.context("open the file")?;
    // A whole page: nothing need be read before.
    file.write_all(&[0; 4096])?;
    Ok(file)
}

/// The helper of [`Flood::stream_of_execs`] and [`Flood::container_exec`].
pub(crate) fn execute_without_end(user: u32, each: u32, life: Duration) -> anyhow::Result<()> {
    const PAUSE: Duration = Duration::from_millis(100);
    if life.is_zero() {
        // SAFETY: unshare takes numbers.
        let unshared = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
        anyhow::ensure!(unshared, std::io::Error::last_os_error());
        return batch(each)?.until_the_end();
    }
    become_user(user)?;
    println!("ready");
    // Who makes a batch traces its threads, and lets them go when it ends.
    let mut batches = Vec::new();
    let mut ended = false;
    while !ended {
        let batch = Children::fork(1, || {
            let _ = crate::syscall::set_parent_death_signal(libc::SIGKILL);
            if let Ok(Batch(sleepers)) = batch(each) {
                std::thread::sleep(life);
                sleepers.kill();
            }
            // Whoever adopts them reaps them.
            std::process::exit(0)
        })?;
        batches.push(batch);
        ended = crate::syscall::wait_for_input(PAUSE);
        let full = life.as_millis() / PAUSE.as_millis() + 20;
        if batches.len() as u128 > full {
            drop(batches.remove(0));
        }
    }
    Ok(())
}

/// Processes that sleep in state D until they are killed.
struct Batch(Children);

fn batch(count: u32) -> anyhow::Result<Batch> {
    Ok(Batch(Children::fork(count, || execute_beside_a_thread())?))
}

impl Batch {
    fn until_the_end(self) -> anyhow::Result<()> {
        self.0.wait_for('D')?;
        let ended = ready_until_the_end();
        self.0.kill();
        // Its parent ends without having waited: dropping would wait for the
        // threads, too.
        std::mem::forget(self);
        ended
    }
}

/// Sleeps until its parent waits for the thread that execve(2) ends.
fn execute_beside_a_thread() -> ! {
    let _ = crate::syscall::set_parent_death_signal(libc::SIGKILL);
    let (say, said) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // SAFETY: this request takes nothing.
        let traced = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        let _ = say.send(traced);
        loop {
            // SAFETY: pause takes nothing.
            unsafe { libc::pause() };
        }
    });
    let _ = said.recv();
    let _ = Command::new("/bin/true").exec();
    std::process::exit(1)
}

/// Children of this process, which has one thread. Dropping it reaps them.
struct Children(Vec<libc::pid_t>);

impl Children {
    fn fork(count: u32, child: impl Fn()) -> anyhow::Result<Self> {
        let mut this = Self(Vec::new());
        for _ in 0..count {
            // SAFETY: this process has one thread, so the child may do what it wants.
            match unsafe { libc::fork() } {
                -1 => return Err(std::io::Error::last_os_error()).context("fork"),
                0 => {
                    child();
                    std::process::exit(0)
                }
                pid => this.0.push(pid),
            }
        }
        Ok(this)
    }

    fn wait_for(&self, state: char) -> anyhow::Result<()> {
        wait::until(&format!("all to be in state {state}"), LIMIT, || {
            let mut states = self
                .0
                .iter()
                .map(|pid| crate::process::state(pid.cast_unsigned()));
            Ok(states.all(|its| its == Some(state)).then_some(()))
        })
    }

    fn kill(&self) {
        for pid in &self.0 {
            // None of them was waited for yet; one that has ended stays ended.
            let _ = crate::process::signal(pid.cast_unsigned(), libc::SIGKILL);
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.kill();
        for pid in &self.0 {
            // SAFETY: a null pointer says that the status is not wanted.
            unsafe { libc::waitpid(*pid, std::ptr::null_mut(), 0) };
        }
    }
}

/// A parent: sleeps until its child has ended, which that does with it.
fn vfork_and_wait() -> ! {
    // Without CLONE_VM the child has memory of its own, so that it may do
    // anything; the parent waits for it all the same.
    let flags = libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: as fork(2), by its own number: no stack, and nothing to be told.
    let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if child == 0 {
        let _ = crate::syscall::set_parent_death_signal(libc::SIGKILL);
        loop {
            // SAFETY: pause takes nothing.
            unsafe { libc::pause() };
        }
    }
    std::process::exit(0)
}
