//! Where network namespaces are mounted, in every mount namespace: such a
//! mount keeps its namespace alive without any task in it.
//!
//! Only mountinfo is read here. Who then opens a mount point must mind that it
//! is named as the mount's own process sees it, and can lie on a file system
//! that hangs: see [`Root::namespace`](crate::root::Root::namespace).

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs,
    io::{self, BufRead},
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use ::procfs::process::MountInfo;
use sys::syscall::user_namespace_of;

use super::{
    PROCESS_PATIENCE, Procfs, ProcfsError, namespace_inode, numbers, read_link, read_stat,
    share::Shares,
    unless_gone,
    whose::{Whose, in_turn},
};

/// Paths that are kept of one namespace. A container may mount its own
/// thousands of times.
pub(super) const MAX_PATHS: usize = 8;
/// Bytes that are kept of a path: a mount point can lie deeper than any path
/// that can be opened.
const MAX_PATH: usize = 1024;
/// Stands at the end of a path that was cut.
const CUT: &str = "...";
/// Mount namespaces that may hang before the rest is given up; those of users
/// come last.
const MAX_HUNG: usize = 2;
/// How long all mount namespaces together may take to read, shared out as
/// [`share`](super::share) says: anybody can have thousands of them, each of which
/// takes long. A node's own take a few milliseconds.
const SEARCH: Duration = Duration::from_secs(1);
/// Owners that are named whose mount namespaces there was no time for.
const MAX_LATE: usize = 8;
const OTHER_USERS: &str = "other users";

/// Longest line of mountinfo that is read: two paths of 4096 bytes, each byte
/// escaped.
const MAX_LINE: u64 = 64 << 10;
/// Of a longer one, so much of its end.
const LINE_END: usize = 8 << 10;

/// A mount of a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NsfsMount {
    /// The mount point, as those in the mount namespace see it.
    pub path: PathBuf,
    /// Inode of the mount namespace.
    pub mount_ns: u32,
    /// A task in it, by which it was read.
    pub tid: u32,
    /// It is the host's own: that of process 1 and of the kernel's threads.
    pub host: bool,
    /// The mount namespace belongs to another user namespace than the node's: in
    /// it a user mounts what it likes.
    pub of_user: bool,
}

impl NsfsMount {
    /// Where it is, on the node.
    pub fn on_node(&self) -> PathBuf {
        match (self.host, self.of_user) {
            (true, _) => self.path.clone(),
            (false, false) => event::mount::of_process(self.tid, &self.path),
            (false, true) => event::mount::of_user(self.tid, &self.path),
        }
    }
}

/// All mounts of network namespaces.
#[derive(Debug, Default)]
pub struct NsfsMounts {
    /// By the network namespace's inode; the host's come first, and at most
    /// [`MAX_PATHS`] of a namespace are kept.
    pub mounts: BTreeMap<u32, Vec<NsfsMount>>,
    /// Mount namespaces that could not be read: what is mounted there is
    /// unknown.
    pub unread: Vec<ProcfsError>,
    /// There can be other mount namespaces among them than that of a guarded
    /// process 1, which is the kernel's own and was read by its threads.
    pub partial: bool,
}

impl Procfs {
    /// The mounts of network namespaces in every mount namespace that a
    /// process is in.
    ///
    /// # Errors
    /// The processes cannot be listed. A single mount namespace that cannot be
    /// read is among [`NsfsMounts::unread`].
    pub fn nsfs_mounts(&self) -> Result<NsfsMounts, ProcfsError> {
        self.nsfs_mounts_by(nsfs_lines)
    }

    fn nsfs_mounts_by(&self, read: ReadLines) -> Result<NsfsMounts, ProcfsError> {
        let first = |proc: &Path| Ok(first_process(proc));
        let first = self.bounded(self.patience, self.proc.clone(), first)?;
        let pids = self.processes()?;
        let answers = self.each(pids.clone(), PROCESS_PATIENCE, None, mount_namespace);
        let mut found = NsfsMounts {
            partial: answers.hung.is_some(),
            unread: answers.hung.into_iter().collect(),
            ..NsfsMounts::default()
        };
        let (mut all, mut home) = (BTreeMap::<u32, Members>::new(), None);
        for (pid, member) in pids.into_iter().zip(answers.each) {
            match member {
                Some(Ok(Some(member))) => {
                    home = home.or((Some(pid) == first).then_some(member.mount_ns));
                    let members = all.entry(member.mount_ns).or_default();
                    members.push((pid, member));
                }
                Some(Ok(None)) | None => {}
                Some(Err(error)) => {
                    found.partial |= pid != 1 || first.is_none();
                    found.unread.push(error);
                }
            }
        }
        let all = self.mounts_in_turn(all, home);
        let (shares, end) = (Shares::new(SEARCH), Instant::now() + SEARCH);
        let (mut hung, mut late) = (0, BTreeMap::new());
        for (whose, members) in all {
            let start = Instant::now();
            let left = shares.left(whose).min(end.saturating_duration_since(start));
            if left.is_zero() {
                let owner = late_owner(whose, &late);
                *late.entry(owner).or_default() += 1;
                continue;
            }
            // Who copies many mounts again and again has each read wait for the
            // lock. The host's are worth it, as they lead to most pods.
            let timeout = match whose {
                Whose::Host => SEARCH,
                _ => self.patience,
            };
            let patience = left.min(timeout / 2);
            for (_, member) in members {
                let path = member.folder.join("mountinfo");
                // One lock is behind all of them: who waits for it once too often
                // leaves no thread to read anything else with.
                if hung >= MAX_HUNG {
                    found.partial = true;
                    found.unread.push(ProcfsError::NotTried { path });
                    return Ok(found.without(late));
                }
                let read = move |path: &Path| read(path, patience);
                match self.bounded(timeout, path.clone(), read) {
                    Ok(Some(lines)) => {
                        let host = Some(member.mount_ns) == home;
                        let of_user = match host || lines.mounts.is_empty() {
                            true => Some(false),
                            false => self.is_of_user(&member),
                        };
                        // Gone meanwhile.
                        let Some(of_user) = of_user else {
                            continue;
                        };
                        if !lines.whole {
                            found.partial = true;
                            found.unread.push(ProcfsError::TooLong { path });
                        }
                        found.add(lines.mounts, &member, host, of_user);
                        break;
                    }
                    // Gone meanwhile: the next process may still be in it.
                    Ok(None) => {}
                    Err(error @ ProcfsError::NotTried { .. }) => {
                        found.partial = true;
                        found.unread.push(error);
                    }
                    Err(error) => {
                        found.partial = true;
                        hung += usize::from(matches!(error, ProcfsError::NoAnswer { .. }));
                        found.unread.push(error);
                        break;
                    }
                }
            }
            shares.spend(whose, start.elapsed());
        }
        Ok(found.without(late))
    }

    /// Mount namespaces in the order in which they are read: the host's, those
    /// that root has made, each user's first, and what else users have.
    fn mounts_in_turn(
        &self,
        all: BTreeMap<u32, Members>,
        home: Option<u32>,
    ) -> Vec<(Whose, Members)> {
        let firsts = all.values().filter_map(|members| members.first());
        let whose = self.whose(firsts.map(|(pid, _)| *pid).collect());
        let mut owned = Vec::with_capacity(all.len());
        for (whose, (mount_ns, members)) in whose.into_iter().zip(all) {
            let is_hosts = Some(mount_ns) == home;
            owned.push((if is_hosts { Whose::Host } else { whose }, members));
        }
        in_turn(owned)
    }

    /// Whether the user namespace that its mount namespace belongs to is not the
    /// node's; `None` if the process has left it.
    fn is_of_user(&self, member: &Member) -> Option<bool> {
        let path = member.folder.join("ns/mnt");
        let owner = self.bounded(self.patience, path.clone(), owner_of);
        if let Ok(Some(owner)) = owner {
            return Some(!self.host_users().has(owner));
        }
        let link = self.bounded(self.patience, path, read_link).ok()??;
        let inode = namespace_inode(link.as_os_str(), "mnt");
        (inode == Some(member.mount_ns)).then_some(false)
    }
}

/// Reads the lines of a mountinfo file, for so long.
type ReadLines = fn(&Path, Duration) -> Result<Option<NsfsLines>, ProcfsError>;

/// The processes in one mount namespace, with their numbers.
type Members = Vec<(u32, Member)>;

/// By what name those are counted whose mount namespaces there was no time for.
fn late_owner(whose: Whose, late: &BTreeMap<String, usize>) -> String {
    let name = match whose {
        Whose::Host => String::from("the host"),
        Whose::Container(_) => String::from("services and containers"),
        Whose::User(u32::MAX) => String::from(OTHER_USERS),
        Whose::User(uid) => format!("user {uid}"),
    };
    match late.len() < MAX_LATE || late.contains_key(&name) {
        true => name,
        false => String::from(OTHER_USERS),
    }
}

/// A task, and the mount namespace that it is in.
pub(super) struct Member {
    tid: u32,
    pub(super) folder: PathBuf,
    pub(super) mount_ns: u32,
    /// The user who owns its folder in /proc.
    pub(super) uid: u32,
}

/// A process in the host's mount namespace: 1, or if that one is guarded from
/// the tracer the kernel's own 2.
pub(super) fn first_process(proc: &Path) -> Option<u32> {
    if matches!(mount_namespace(proc, 1), Ok(Some(_))) {
        return Some(1);
    }
    let stat = read_stat(&proc.join("2/stat")).ok()??;
    (stat.comm == "kthreadd" && stat.ppid == 0).then_some(2)
}

/// The mount namespace of a process, and a task in it: the leader, or another
/// thread if the leader is a zombie.
pub(super) fn mount_namespace(proc: &Path, pid: u32) -> Result<Option<Member>, ProcfsError> {
    let of = |tid: u32, folder: PathBuf| -> Result<Option<Member>, ProcfsError> {
        let link = read_link(&folder.join("ns/mnt"))?;
        let inode = link.and_then(|link| namespace_inode(link.as_os_str(), "mnt"));
        Ok(inode.map(|mount_ns| Member {
            tid,
            uid: fs::metadata(&folder).map_or(0, |folder| folder.uid()),
            folder,
            mount_ns,
        }))
    };
    let process = proc.join(pid.to_string());
    if let Some(found) = of(pid, process.clone())? {
        return Ok(Some(found));
    }
    let tasks = process.join("task");
    for tid in numbers(&tasks)? {
        if let Some(found) = of(tid, tasks.join(tid.to_string()))? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The user namespace that a mount namespace belongs to; `None` if the kernel
/// does not tell, as of one that is not below the tracer's own.
fn owner_of(mount_ns: &Path) -> Result<Option<u32>, ProcfsError> {
    let owner = || -> io::Result<u32> {
        let owner = user_namespace_of(fs::File::open(mount_ns)?)?;
        u32::try_from(owner.metadata()?.ino()).map_err(io::Error::other)
    };
    Ok(owner().ok())
}

impl NsfsMounts {
    /// Tells that so many mount namespaces of these owners were not read.
    fn without(mut self, late: BTreeMap<String, usize>) -> Self {
        self.partial |= !late.is_empty();
        let late = late.into_iter();
        let late = late.map(|(owner, count)| ProcfsError::NoTime { count, owner });
        self.unread.extend(late);
        self
    }

    fn add(&mut self, mounts: Vec<NsfsLine>, member: &Member, host: bool, of_user: bool) {
        for NsfsLine { inode, path, .. } in mounts {
            let paths = self.mounts.entry(inode).or_default();
            // A user's mounts begin as a copy of the node's.
            let is_copy = of_user && paths.iter().any(|of| !of.of_user && of.path == path);
            if paths.len() < MAX_PATHS && !is_copy {
                paths.push(NsfsMount {
                    path,
                    mount_ns: member.mount_ns,
                    tid: member.tid,
                    host,
                    of_user,
                });
            }
        }
    }
}

/// One line of mountinfo, of a network namespace.
pub(super) struct NsfsLine {
    pub(super) id: u64,
    /// The network namespace's inode.
    pub(super) inode: u32,
    path: PathBuf,
}

/// What a mountinfo file says of network namespaces.
pub(super) struct NsfsLines {
    pub(super) mounts: Vec<NsfsLine>,
    /// The file was read to its end.
    pub(super) whole: bool,
}

/// The network namespaces that a mountinfo file lists, and where, as far as it
/// can be read in this time; `None` if the process is gone.
pub(super) fn nsfs_lines(
    path: &Path,
    patience: Duration,
) -> Result<Option<NsfsLines>, ProcfsError> {
    let mut mounts = Vec::new();
    let mut kept: BTreeMap<u32, usize> = BTreeMap::new();
    let whole = each_line(path, patience, |line| {
        if let Some(mount) = nsfs_mount(line) {
            let count = kept.entry(mount.inode).or_default();
            *count += 1;
            if *count <= MAX_PATHS {
                mounts.push(mount);
            }
        }
    })?;
    Ok(whole.map(|whole| NsfsLines { mounts, whole }))
}

/// Reads a mountinfo file line by line for so long, and returns whether it came
/// to its end; `None` if the process is gone.
pub(super) fn each_line(
    path: &Path,
    patience: Duration,
    mut take: impl FnMut(&[u8]),
) -> Result<Option<bool>, ProcfsError> {
    let start = Instant::now();
    let mut read = || -> io::Result<bool> {
        let mut file = io::BufReader::with_capacity(32 << 10, fs::File::open(path)?);
        let mut line = Vec::new();
        while read_line(&mut file, &mut line)? {
            take(&line);
            line.clear();
            // What is in the buffer costs no time any more.
            if file.buffer().is_empty() && start.elapsed() > patience {
                return Ok(false);
            }
        }
        Ok(true)
    };
    match read() {
        // On its way out a process has left its mounts before it is gone.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        result => unless_gone(path, result),
    }
}

/// Reads the next line, if there is one. Of one that is too long the middle is left
/// out: that is in the mount point, behind which little follows.
fn read_line(file: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    let mut more = |to: &mut Vec<u8>| {
        let read = io::Read::take(&mut *file, MAX_LINE).read_until(b'\n', to)?;
        io::Result::Ok(read > 0 && !to.ends_with(b"\n"))
    };
    if more(line)? {
        let mut end = line.split_off(line.len().saturating_sub(LINE_END));
        while more(&mut end)? {
            end.drain(..end.len().saturating_sub(LINE_END));
        }
        let end = &end[end.len().saturating_sub(LINE_END)..];
        let behind = end.iter().position(|byte| *byte == b' ');
        line.extend(behind.map_or(end, |at| &end[at..]));
    }
    Ok(!line.is_empty())
}

/// A line of a file system of this type (`nsfs`); most lines are of others, and
/// not worth parsing.
pub(super) fn line_of_type(line: &[u8], kind: &[u8]) -> Option<MountInfo> {
    let mark = [b" - ", kind].concat();
    line.windows(mark.len()).find(|window| *window == mark)?;
    let line = printable(line);
    MountInfo::from_line(line.trim_end_matches('\n')).ok()
}

/// Where something is mounted, without the kernel's escapes and not longer than
/// what is kept.
pub(super) fn mount_point(mount: &MountInfo) -> PathBuf {
    let mut path = unescape(mount.mount_point.as_os_str().as_bytes());
    // What the kernel appends if the file that it covers was removed.
    if path.ends_with(b"//deleted") {
        path.truncate(path.len() - b"//deleted".len());
    }
    if path.len() > MAX_PATH {
        path.truncate(MAX_PATH);
        path.extend(CUT.as_bytes());
    }
    PathBuf::from(OsString::from_vec(path))
}

/// What one line says, if it is of a network namespace.
fn nsfs_mount(line: &[u8]) -> Option<NsfsLine> {
    let mount = line_of_type(line, b"nsfs ")?;
    Some(NsfsLine {
        id: u64::try_from(mount.mnt_id).ok()?,
        inode: namespace_inode(OsStr::new(&mount.root), "net")?,
        path: mount_point(&mount),
    })
}

/// A line as text: bytes that are none of UTF-8 are escaped as the kernel
/// escapes others.
fn printable(line: &[u8]) -> String {
    let mut text = String::with_capacity(line.len());
    for chunk in line.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\{byte:03o}"));
        }
    }
    text
}

/// Undoes the kernel's `\ooo`, which stands for white space, `\` and `#`.
fn unescape(text: &[u8]) -> Vec<u8> {
    let digit = |c: u8| {
        c.is_ascii_digit()
            .then(|| u32::from(c - b'0'))
            .filter(|d| *d < 8)
    };
    let octal = |s: &[u8]| {
        let value = s
            .iter()
            .try_fold(0, |value, c| Some(value * 8 + digit(*c)?))?;
        u8::try_from(value).ok()
    };
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let escaped = after.get(..3).filter(|_| first == b'\\').and_then(octal);
        plain.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() {
            &after[3..]
        } else {
            after
        };
    }
    plain
}

/// A line of mountinfo.
#[cfg(feature = "testing")]
pub(super) fn fuzz(data: &[u8]) {
    nsfs_mount(data);
}

#[cfg(test)]
mod tests;
