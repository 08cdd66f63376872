//! What `/proc` says about tasks: whose they are, where they sleep, and what
//! else keeps a network namespace alive (mounts, descriptors).
//!
//! The proc file system is that below the host's root, as the tracer may run
//! in a container. Never read are `cmdline`, `environ` and `maps`: they wait
//! for the memory map's lock, which a stuck task can hold. The files that are
//! read can block too, though rarely; each read is therefore [`Bounded`].
//!
//! A process that vanishes while it is looked at is ordinary: it is left out,
//! or the answer is `None`. A file that cannot be read for another reason is
//! an error, so that it does not pass for "no".
//!
//! The `procfs` crate reads the two formats that are worth a parser, `stat`
//! and mountinfo. The walk itself is direct: the crate opens three
//! descriptors a task and reads `ns/` as a whole with a `stat` of each entry,
//! which takes a reference of each namespace where a `readlink` takes none.

use node_tracer_ebpf::layout::INITIAL_USER_NS;
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    io::{self, Read as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use ::procfs::{FromRead as _, ProcError, process::Stat};

use super::{
    cgroup::{Maker, Place},
    root::Root,
};
use event::UserNs;
use hung::{Hung, Reader, Turn};

pub use crate::cgroup::Owner;

pub use self::{
    bounded::{Bounded, NoAnswer},
    descriptors::Descriptors,
    each::Missed,
    fds::FdHolders,
    fuse::FuseServers,
    hidden::Hidden,
    mounts::NsfsMount,
    sleep::{Stall, Stalls},
    sockets::socket_namespace,
    tasks::{TaskEntry, Tasks},
    whose::{Whose, in_turn},
};

mod bounded;
mod descriptors;
mod each;
mod fds;
mod fuse;
mod hidden;
mod hung;
mod mounts;
mod not_stuck;
mod one_task;
mod place;
mod share;
mod sleep;
mod sockets;
mod tasks;
pub(crate) mod whose;
mod worker;

#[cfg(test)]
mod tests;

/// How long one file may take; a healthy one takes microseconds.
pub const PATIENCE: Duration = Duration::from_millis(250);

/// How long a listing of all processes may take.
const WALK_PATIENCE: Duration = Duration::from_secs(10);

/// How long one process may take in a walk over all: one can have ten thousand
/// threads, or descriptors.
const PROCESS_PATIENCE: Duration = Duration::from_secs(2);

/// Largest file that is read as a whole; the kernel's are far smaller.
const MAX_FILE: u64 = 256 << 10;

/// The user namespaces of the node itself: the initial one, in which only root
/// makes network namespaces, and that of the node's first process, if it is in
/// another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostUsers([u32; 2]);

impl HostUsers {
    fn has(self, inode: u32) -> bool {
        self.0.contains(&inode)
    }

    /// A user namespace, if it is not one of these.
    pub fn other(self, user_ns: UserNs) -> Option<UserNs> {
        (!self.has(user_ns.inode)).then_some(user_ns)
    }
}

/// Why `/proc` gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProcfsError {
    /// A file or folder cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// There is more in it than can be read in time.
    #[error("{} is too long to be read in time", path.display())]
    TooLong { path: PathBuf },
    /// Their owner has had its part of the time.
    #[error("{count} mount namespaces of {owner} were not read in time")]
    NoTime { count: usize, owner: String },
    /// A read does not return.
    #[error("{} does not answer", path.display())]
    NoAnswer {
        path: PathBuf,
        #[source]
        source: NoAnswer,
    },
    /// A file holds something else than the kernel's documentation says.
    #[error("{} is not understood", path.display())]
    Format {
        path: PathBuf,
        /// Where it went wrong.
        #[source]
        source: ProcError,
    },
    /// Others of its kind do not answer, so it was not tried.
    #[error("{} was not tried: others of its kind do not answer", path.display())]
    NotTried { path: PathBuf },
    /// Where a task's cgroup is on the node cannot be told; see
    /// [`Procfs::place_unknown`].
    #[error("where their cgroups are on the node is not known")]
    Place,
    /// There is no process at all: not a proc file system.
    #[error(
        "no process in {}: it must be the host's proc file system (in a container: run in the host's PID namespace, with the host's root as --root)",
        path.display()
    )]
    Empty {
        /// Where processes were looked for.
        path: PathBuf,
    },
}

/// A proc file system.
#[derive(Clone, Debug)]
pub struct Procfs {
    root: PathBuf,
    proc: PathBuf,
    /// Once it is known, for all clones.
    place: Arc<OnceLock<Arc<Place>>>,
    bounded: Bounded,
    hung: Hung,
    /// For files of the node and of its first process, which nothing that hangs
    /// of others' processes keeps from being read.
    node: Bounded,
    /// What is read apart has its own.
    apart: (Bounded, Hung),
    patience: Duration,
}

impl Procfs {
    /// That below a root folder, of which each file may take [`PATIENCE`].
    /// `bounded` counts the reads that hang, together with its clones'.
    pub fn new(root: &Path, bounded: Bounded) -> Self {
        let hung = Hung::default();
        Self {
            root: root.to_owned(),
            proc: root.join("proc"),
            place: Arc::default(),
            bounded,
            node: Bounded::default(),
            apart: (Bounded::default(), hung.beside()),
            hung,
            patience: PATIENCE,
        }
    }

    /// The same files, read so that those that hang do not count against other
    /// sources'.
    pub fn apart(&self) -> Self {
        Self {
            bounded: self.apart.0.clone(),
            hung: self.apart.1.clone(),
            ..self.clone()
        }
    }

    /// Whose many tasks are, in their order.
    pub fn task_owners(&self, tids: Vec<u32>) -> Vec<Owner> {
        self.owners_and_missed(tids).0
    }

    /// Whose many tasks are, in their order, and of how many it could not be
    /// told although they are there.
    pub fn owners_and_missed(&self, tids: Vec<u32>) -> (Vec<Owner>, Missed) {
        let place = self.place();
        let answers = self.each(tids, self.patience, None, |proc, tid| {
            read_file(&proc.join(tid.to_string()).join("cgroup"))
        });
        let mut missed = Missed::default();
        let texts = answers.each.iter().filter_map(|answer| match answer {
            Some(Ok(Some(bytes))) => Some(String::from_utf8_lossy(bytes)),
            _ => None,
        });
        let mut folders = BTreeSet::new();
        for text in texts {
            place.owner(&text, |folder| {
                folders.insert(folder);
                Maker::Unknown
            });
        }
        let makers = self.makers(folders);
        let owner = |answer: Option<Result<Option<Vec<u8>>, ProcfsError>>| match answer {
            Some(Ok(Some(bytes))) => {
                let maker = |folder| makers.get(&folder).copied().unwrap_or(Maker::Unknown);
                let owner = place.owner(&String::from_utf8_lossy(&bytes), maker);
                if owner == Owner::Unknown && !place.is_known() {
                    missed.add(&ProcfsError::Place);
                }
                owner
            }
            Some(Ok(None)) => Owner::Unknown,
            Some(Err(error)) => {
                missed.add(&error);
                Owner::Unknown
            }
            None => {
                missed.add_all(1, answers.hung.as_ref());
                Owner::Unknown
            }
        };
        let owners = answers.each.into_iter().map(owner).collect();
        (owners, missed)
    }

    /// Inode number of a process's mount namespace.
    pub fn mount_namespace(&self, pid: u32) -> Option<u32> {
        let read = |proc: &Path, pid| read_link(&proc.join(format!("{pid}/ns/mnt")));
        let mut answers = self.each(vec![pid], self.patience, None, read).each;
        let link = answers.pop().flatten()?.ok().flatten()?;
        namespace_inode(link.as_os_str(), "mnt")
    }

    /// Whether a process is a service of the node's first process.
    pub fn is_service(&self, pid: u32) -> bool {
        let place = self.place();
        let read = |proc: &Path, pid| read_file(&proc.join(format!("{pid}/cgroup")));
        let mut answers = self.each(vec![pid], self.patience, None, read).each;
        matches!(answers.pop().flatten(), Some(Ok(Some(text)))
            if place.is_service(&String::from_utf8_lossy(&text)))
    }

    /// The network namespace at a path, as a process sees it; `None` if there
    /// is none, or if it is not where runtimes put theirs: a path that a
    /// plugin was given is not followed anywhere else.
    pub fn netns_at(&self, pid: u32, path: &str) -> Option<u32> {
        const PLACES: [&str; 2] = ["/run/netns/", "/var/run/netns/"];
        if let Some(other) = path.strip_prefix("/proc/") {
            let other = other.strip_suffix("/ns/net")?;
            return self.netns_of(other.rsplit('/').next()?.parse().ok()?);
        }
        if !PLACES.iter().any(|place| path.starts_with(place)) {
            return None;
        }
        let path = PathBuf::from(path);
        let root = self.task_path(pid, "root");
        let inode = self.bounded(self.patience, root, move |root| {
            let root = Root::open(root).ok();
            Ok(root.and_then(|root| root.nsfs_inode(&path)))
        });
        inode.ok().flatten()
    }

    /// Where the proc file system is.
    pub fn folder(&self) -> &Path {
        &self.proc
    }

    /// The file of a task's network namespace.
    pub fn task_netns_path(&self, tid: u32) -> PathBuf {
        self.task_path(tid, "ns/net")
    }

    /// Where a descriptor of a process leads.
    pub fn fd_path(&self, pid: u32, fd: u32) -> PathBuf {
        self.task_path(pid, "fd").join(fd.to_string())
    }

    /// The root folder of those who see a task's mounts at their paths.
    pub fn root_path(&self, tid: u32) -> PathBuf {
        self.task_path(tid, "root")
    }

    /// The reads that may hang, for other sources to count theirs with: of files
    /// of the node, and of no process but its first.
    pub fn bounded_reads(&self) -> &Bounded {
        &self.node
    }

    /// The mount namespace of a task; `None` if it is gone or not to be seen.
    pub fn mount_ns_of(&self, tid: u32) -> Option<u32> {
        let path = self.task_path(tid, "ns/mnt");
        let link = self.bounded(self.patience, path, read_link).ok()??;
        namespace_inode(link.as_os_str(), "mnt")
    }

    /// The network namespace of a process; `None` if it is gone or not to be
    /// seen.
    pub fn netns_of(&self, pid: u32) -> Option<u32> {
        let path = self.task_path(pid, "ns/net");
        let link = self.bounded(self.patience, path, read_link).ok()??;
        namespace_inode(link.as_os_str(), "net")
    }

    /// The network namespace of the calling thread, by the proc file system
    /// that the tracer itself has: there nobody is kept from their own files,
    /// whatever they may not see of others.
    pub fn own_netns() -> Option<u32> {
        let link = fs::read_link("/proc/thread-self/ns/net").ok()?;
        namespace_inode(link.as_os_str(), "net")
    }

    /// The user namespaces of the node itself.
    pub fn host_users(&self) -> HostUsers {
        let path = self.task_path(1, "ns/user");
        let link = self.bounded(self.patience, path, read_link).ok().flatten();
        let first = link.and_then(|link| namespace_inode(link.as_os_str(), "user"));
        HostUsers([INITIAL_USER_NS, first.unwrap_or(INITIAL_USER_NS)])
    }

    /// The kernel function that a task sleeps in; `None` if it does not sleep,
    /// or is gone.
    ///
    /// # Errors
    /// The file cannot be read, or does not answer.
    pub fn wchan(&self, tid: u32) -> Result<Option<String>, ProcfsError> {
        let text = self.task_file(tid, "wchan")?;
        Ok(text.filter(|name| !matches!(name.as_str(), "" | "0")))
    }

    /// Whether a task has been sent a SIGKILL that it has not taken yet; `None`
    /// if that cannot be read.
    pub fn sigkill_pending(&self, tid: u32) -> Option<bool> {
        let status = self.task_file(tid, "status").ok()??;
        sigkill_pending(status.as_bytes())
    }

    /// A task's kernel stack, innermost function first, as `function+0xoffset`.
    /// Empty if the kernel keeps no stacks, or the task is gone.
    ///
    /// # Errors
    /// The file cannot be read (it needs `CAP_SYS_ADMIN`), or does not answer.
    pub fn kernel_stack(&self, tid: u32) -> Result<Vec<String>, ProcfsError> {
        let text = self.task_file(tid, "stack")?.unwrap_or_default();
        Ok(text.lines().filter_map(frame).collect())
    }

    /// The name of the file that a process runs; `None` for a kernel thread
    /// and for a process that is gone.
    ///
    /// # Errors
    /// The link cannot be read, or does not answer.
    pub fn exe_name(&self, pid: u32) -> Result<Option<String>, ProcfsError> {
        let path = self.task_path(pid, "exe");
        let target = self.bounded(self.patience, path, read_link)?;
        Ok(target.as_deref().and_then(file_name))
    }

    /// The same of a process that is root's alone; `None` for any other. What a
    /// user starts by a set-user-ID program is the user's all the same, and can
    /// become a program of the user's own at any moment.
    ///
    /// # Errors
    /// As [`exe_name`](Self::exe_name).
    pub fn exe_name_of_root(&self, pid: u32) -> Result<Option<String>, ProcfsError> {
        let before = self.exe_name(pid)?;
        let status = self.task_file(pid, "status")?;
        let uids = status.and_then(|status| status_field(status.as_bytes(), "Uid:"));
        let is_roots = uids.is_some_and(|uids| uids.split_whitespace().all(|uid| uid == "0"));
        let after = self.exe_name(pid)?;
        Ok(after.filter(|after| is_roots && before.as_ref() == Some(after)))
    }

    fn task_path(&self, tid: u32, file: &str) -> PathBuf {
        // Not listed by readdir, but every thread has its folder there too.
        self.proc.join(tid.to_string()).join(file)
    }

    fn task_file(&self, tid: u32, file: &str) -> Result<Option<String>, ProcfsError> {
        let path = self.task_path(tid, file);
        let bytes = self.bounded(self.patience, path, read_file)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim_end().to_owned()))
    }

    /// All processes, by number.
    fn processes(&self) -> Result<Vec<u32>, ProcfsError> {
        self.bounded(WALK_PATIENCE, self.proc.clone(), processes)
    }

    /// The tracer's own number among these processes, or that of the process its
    /// readers have for themselves; `None` if it is not one of them. In a PID
    /// namespace of its own it knows itself by another.
    fn own_pid(&self) -> Option<u32> {
        let own = self.bounded(self.patience, self.proc.join("self"), read_link);
        own.ok()??.to_str()?.parse().ok()
    }

    /// The task whose file this is, and which one.
    fn task_of(&self, path: &Path) -> Option<(u32, String)> {
        let mut below = path.strip_prefix(&self.proc).ok()?.components();
        let tid = below.next()?.as_os_str().to_str()?.parse().ok()?;
        Some((tid, below.as_path().display().to_string()))
    }

    /// Runs a read of `path` that may hang. If it is no task's, nothing is read
    /// of one in which it can hang.
    pub(crate) fn bounded<T: Send + 'static>(
        &self,
        timeout: Duration,
        path: PathBuf,
        read: impl FnOnce(&Path) -> Result<T, ProcfsError> + Send + 'static,
    ) -> Result<T, ProcfsError> {
        let task = self.task_of(&path);
        let party = |tid| self.parties(&[tid]).pop().flatten();
        if let Some((tid, what)) = task.as_ref().filter(|_| !self.hung.is_quiet())
            && self.hung.turn(*tid, what, party(*tid).as_ref(), &[]) == Turn::Never
        {
            return Err(ProcfsError::NotTried { path });
        }
        let (of, reader) = (path.clone(), Reader::default());
        let ending = reader.ending();
        let read = move || {
            let _ending = ending;
            read(&path)
        };
        let reads = match task {
            Some((tid, _)) if tid != 1 => &self.bounded,
            _ => &self.node,
        };
        reads.read(timeout, read).unwrap_or_else(|source| {
            if let (Some((tid, what)), NoAnswer::TimedOut { after }) = (task, &source) {
                self.hung.add(tid, &what, party(tid), (reader, *after));
            }
            Err(ProcfsError::NoAnswer { path: of, source })
        })
    }
}

/// Drops what only says that a process is gone.
fn unless_gone<T>(path: &Path, result: io::Result<T>) -> Result<Option<T>, ProcfsError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Ok(None),
        Err(source) => Err(ProcfsError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

pub(crate) fn read_file(path: &Path) -> Result<Option<Vec<u8>>, ProcfsError> {
    let mut bytes = Vec::with_capacity(1024);
    let result = fs::File::open(path).and_then(|file| file.take(MAX_FILE).read_to_end(&mut bytes));
    Ok(unless_gone(path, result)?.map(|_| bytes))
}

/// What follows a name in `/proc/TID/status`.
pub(crate) fn status_field(status: &[u8], name: &str) -> Option<String> {
    let status = String::from_utf8_lossy(status);
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().to_owned())
}

/// By the signals that are pending for the thread (`SigPnd`), where the kernel
/// puts it for each thread of a process, and for all of them (`ShdPnd`).
fn sigkill_pending(status: &[u8]) -> Option<bool> {
    const SIGKILL: u64 = 1 << (libc::SIGKILL - 1);
    let pending = |name| u64::from_str_radix(&status_field(status, name)?, 16).ok();
    Some((pending("SigPnd:")? | pending("ShdPnd:")?) & SIGKILL != 0)
}

fn read_stat(path: &Path) -> Result<Option<Stat>, ProcfsError> {
    let Some(bytes) = read_file(path)? else {
        return Ok(None);
    };
    match Stat::from_read(bytes.as_slice()) {
        Ok(stat) => Ok(Some(stat)),
        Err(source) => Err(ProcfsError::Format {
            path: path.to_owned(),
            source,
        }),
    }
}

pub(crate) fn read_link(path: &Path) -> Result<Option<PathBuf>, ProcfsError> {
    unless_gone(path, fs::read_link(path))
}

/// The inode in a namespace's link, `net:[4026531840]`.
pub(crate) fn namespace_inode(link: &OsStr, kind: &str) -> Option<u32> {
    let inode = link.to_str()?.strip_prefix(kind)?.strip_prefix(":[")?;
    inode.strip_suffix(']')?.parse().ok()
}

/// The numbers that a folder's entries are named by: processes, threads or
/// descriptors. Other entries are skipped.
fn numbers(folder: &Path) -> Result<Vec<u32>, ProcfsError> {
    let names = |entry: io::Result<fs::DirEntry>| match entry {
        Ok(entry) => entry.file_name().to_str()?.parse().ok().map(Ok),
        Err(error) => Some(Err(error)),
    };
    let result = fs::read_dir(folder).and_then(|entries| entries.filter_map(names).collect());
    Ok(unless_gone(folder, result)?.unwrap_or_default())
}

/// All processes, by number.
fn processes(proc: &Path) -> Result<Vec<u32>, ProcfsError> {
    let mut pids = numbers(proc)?;
    if pids.is_empty() {
        return Err(ProcfsError::Empty {
            path: proc.to_owned(),
        });
    }
    pids.sort_unstable();
    Ok(pids)
}

/// `function+0x12` of `[<0>] function+0x12/0x34 [module]`; `None` for an
/// address without a name, such as the end mark of old kernels.
fn frame(line: &str) -> Option<String> {
    let (_, call) = line.split_once("] ")?;
    let call = call.split([' ', '/']).next()?;
    (!call.is_empty() && !call.starts_with("0x")).then(|| call.to_owned())
}

fn file_name(target: &Path) -> Option<String> {
    let name = target.file_name()?.as_bytes();
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    Some(String::from_utf8_lossy(name).into_owned())
}

/// A line of what processes and tasks show.
#[cfg(feature = "testing")]
pub fn fuzz(data: &[u8]) {
    mounts::fuzz(data);
    sockets::fuzz(data);
    let text = String::from_utf8_lossy(data);
    sleep::fuzz(&text);
    frame(&text);
    status_field(data, "Tgid:");
    sigkill_pending(data);
    namespace_inode(OsStr::from_bytes(data), "net");
    file_name(Path::new(OsStr::from_bytes(data)));
}
