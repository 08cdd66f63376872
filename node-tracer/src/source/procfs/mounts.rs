//! Where network namespaces are mounted, in every mount namespace: such a
//! mount keeps its namespace alive without any task in it.
//!
//! Only mountinfo is read. The mount points themselves are never touched, as
//! they can lie on a file system that hangs.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs,
    io::{self, BufRead as _},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use ::procfs::process::MountInfo;

use super::{Procfs, ProcfsError, namespace_inode, numbers, read_link, read_stat, unless_gone};

/// Paths that are kept of one namespace. A container may mount its own
/// thousands of times.
pub(crate) const MAX_PATHS: usize = 32;

/// Longest line of mountinfo that is read: two paths of 4096 bytes, each byte
/// escaped.
const MAX_LINE: u64 = 64 << 10;

/// A mount of a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NsfsMount {
    /// The mount point, as those in the mount namespace see it.
    pub(crate) path: PathBuf,
    /// Inode of the mount namespace.
    pub(crate) mount_ns: u32,
    /// A process in it, by which it was read.
    pub(crate) pid: u32,
    /// It is the host's own: that of process 1 and of the kernel's threads.
    pub(crate) host: bool,
}

/// All mounts of network namespaces.
#[derive(Debug, Default)]
pub(crate) struct NsfsMounts {
    /// By the network namespace's inode; the host's come first, and at most
    /// [`MAX_PATHS`] of a namespace are kept.
    pub(crate) mounts: BTreeMap<u32, Vec<NsfsMount>>,
    /// Mount namespaces that could not be read: what is mounted there is
    /// unknown.
    pub(crate) unread: Vec<ProcfsError>,
}

impl Procfs {
    /// The mounts of network namespaces in every mount namespace that a
    /// process is in.
    ///
    /// # Errors
    /// The processes cannot be listed. A single mount namespace that cannot be
    /// read is among [`NsfsMounts::unread`].
    pub(crate) fn nsfs_mounts(&self) -> Result<NsfsMounts, ProcfsError> {
        let first = |proc: &Path| Ok(first_process(proc));
        let first = self.bounded(self.patience, self.proc.clone(), first)?;
        let mut members = self.each_process(|proc, pid| {
            let member = mount_namespace(proc, pid);
            Ok(vec![(pid, member)])
        })?;
        // Stable: the host's mount namespace first, the others as they come.
        members.sort_by_key(|(pid, _)| Some(*pid) != first);
        let mut found = NsfsMounts::default();
        let mut seen = BTreeSet::new();
        for (pid, member) in members {
            let (folder, mount_ns) = match member {
                Ok(Some(member)) => member,
                Ok(None) => continue,
                Err(error) => {
                    found.unread.push(error);
                    continue;
                }
            };
            if seen.contains(&mount_ns) {
                continue;
            }
            match self.bounded(self.patience, folder.join("mountinfo"), nsfs_lines) {
                Ok(Some(mounts)) => found.add(mounts, mount_ns, pid, Some(pid) == first),
                // Gone meanwhile: the next process may still be in it.
                Ok(None) => continue,
                Err(error) => found.unread.push(error),
            }
            seen.insert(mount_ns);
        }
        Ok(found)
    }
}

/// A process in the host's mount namespace: 1, or if that one is guarded from
/// the tracer the kernel's own 2.
fn first_process(proc: &Path) -> Option<u32> {
    if matches!(mount_namespace(proc, 1), Ok(Some(_))) {
        return Some(1);
    }
    let stat = read_stat(&proc.join("2/stat")).ok()??;
    (stat.comm == "kthreadd" && stat.ppid == 0).then_some(2)
}

/// The mount namespace of a process, and the folder of a task in it: the
/// leader, or another thread if the leader is a zombie.
fn mount_namespace(proc: &Path, pid: u32) -> Result<Option<(PathBuf, u32)>, ProcfsError> {
    let of = |folder: PathBuf| -> Result<Option<(PathBuf, u32)>, ProcfsError> {
        let link = read_link(&folder.join("ns/mnt"))?;
        let inode = link.and_then(|link| namespace_inode(link.as_os_str(), "mnt"));
        Ok(inode.map(|inode| (folder, inode)))
    };
    let process = proc.join(pid.to_string());
    if let Some(found) = of(process.clone())? {
        return Ok(Some(found));
    }
    let tasks = process.join("task");
    for tid in numbers(&tasks)? {
        if let Some(found) = of(tasks.join(tid.to_string()))? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

impl NsfsMounts {
    fn add(&mut self, mounts: Vec<NsfsLine>, mount_ns: u32, pid: u32, host: bool) {
        for NsfsLine { inode, path, .. } in mounts {
            let paths = self.mounts.entry(inode).or_default();
            if paths.len() < MAX_PATHS {
                paths.push(NsfsMount {
                    path,
                    mount_ns,
                    pid,
                    host,
                });
            }
        }
    }
}

/// One line of mountinfo, of a network namespace.
pub(super) struct NsfsLine {
    /// The mount's number.
    pub(super) id: u64,
    /// The network namespace's inode.
    pub(super) inode: u32,
    path: PathBuf,
}

/// The network namespaces that a mountinfo file lists, and where; `None` if
/// the process is gone.
pub(super) fn nsfs_lines(path: &Path) -> Result<Option<Vec<NsfsLine>>, ProcfsError> {
    let read = || -> io::Result<Vec<NsfsLine>> {
        let mut file = io::BufReader::with_capacity(32 << 10, fs::File::open(path)?);
        let mut mounts = Vec::new();
        let mut kept: BTreeMap<u32, usize> = BTreeMap::new();
        let mut line = Vec::new();
        while io::Read::take(&mut file, MAX_LINE).read_until(b'\n', &mut line)? > 0 {
            if let Some(mount) = nsfs_mount(&line) {
                let count = kept.entry(mount.inode).or_default();
                *count += 1;
                if *count <= MAX_PATHS {
                    mounts.push(mount);
                }
            }
            line.clear();
        }
        Ok(mounts)
    };
    unless_gone(path, read())
}

/// What one line says, if it is of a network namespace.
fn nsfs_mount(line: &[u8]) -> Option<NsfsLine> {
    // Most lines are of other file systems: they are not worth parsing.
    const KIND: &[u8] = b" - nsfs ";
    line.windows(KIND.len()).find(|window| *window == KIND)?;
    let line = std::str::from_utf8(line).ok()?;
    let mount = MountInfo::from_line(line.trim_end_matches('\n')).ok()?;
    let inode = namespace_inode(OsStr::new(&mount.root), "net")?;
    let mut path = unescape(mount.mount_point.as_os_str().as_bytes());
    // What the kernel appends if the file that it covers was removed.
    if path.ends_with(b"//deleted") {
        path.truncate(path.len() - b"//deleted".len());
    }
    Some(NsfsLine {
        id: u64::try_from(mount.mnt_id).ok()?,
        inode,
        path: PathBuf::from(OsString::from_vec(path)),
    })
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::source::procfs::Bounded;

    /// Lines of a containerd node.
    const HOST: &str = "\
        22 28 0:20 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw\n\
        24 28 0:5 / /dev rw,nosuid - devtmpfs udev rw,size=4096k\n\
        612 25 0:4 net:[4026532157] /run/netns/cni-0f2b rw shared:310 - nsfs nsfs rw\n\
        613 25 0:4 net:[4026532261] /run/netns/with\\040space\\134and\\011tab rw shared:311 - nsfs nsfs rw\n\
        614 25 0:4 mnt:[4026532262] /run/snapd/ns/lxd.mnt rw - nsfs nsfs rw\n";
    const CONTAINER: &str = "\
        900 800 0:55 / / rw,relatime - overlay overlay rw,lowerdir=/a\n\
        901 900 0:4 net:[4026532157] /var/run/netns/cni-0f2b//deleted rw - nsfs nsfs rw\n\
        902 900 0:4 net:[4026532999] /host/run/netns/\\303\\244 rw master:3 - nsfs nsfs rw\n";

    fn process(root: &Path, pid: u32, mount_ns: u32, mountinfo: &str) {
        let folder = root.join(format!("proc/{pid}"));
        fs::create_dir_all(folder.join("ns")).unwrap();
        fs::write(folder.join("mountinfo"), mountinfo).unwrap();
        symlink(format!("mnt:[{mount_ns}]"), folder.join("ns/mnt")).unwrap();
    }

    fn paths(found: &NsfsMounts, inode: u32) -> Vec<(String, bool)> {
        let mounts = found
            .mounts
            .get(&inode)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let plain = |mount: &NsfsMount| (mount.path.display().to_string(), mount.host);
        mounts.iter().map(plain).collect()
    }

    #[test]
    fn each_mount_namespace_is_read_once_and_the_hosts_first() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 40, 111, HOST);
        process(root.path(), 1, 111, HOST);
        process(root.path(), 30, 222, CONTAINER);
        process(root.path(), 31, 222, CONTAINER);
        let procfs = Procfs::new(root.path(), Bounded::default());
        let found = procfs.nsfs_mounts().unwrap();
        assert_eq!(
            paths(&found, 4_026_532_157),
            [
                (String::from("/run/netns/cni-0f2b"), true),
                (String::from("/var/run/netns/cni-0f2b"), false)
            ]
        );
        assert_eq!(
            paths(&found, 4_026_532_261),
            [(String::from("/run/netns/with space\\and\ttab"), true)]
        );
        assert_eq!(
            paths(&found, 4_026_532_999),
            [(String::from("/host/run/netns/ä"), false)]
        );
        assert_eq!(
            found.mounts.len(),
            3,
            "a mount namespace is no network namespace"
        );
        assert!(found.unread.is_empty());
    }

    #[test]
    fn a_mount_namespace_that_cannot_be_read_is_named_and_hides_no_other() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 1, 111, HOST);
        process(root.path(), 30, 222, "");
        let mountinfo = root.path().join("proc/30/mountinfo");
        fs::remove_file(&mountinfo).unwrap();
        fs::create_dir(&mountinfo).unwrap();
        let found = Procfs::new(root.path(), Bounded::default())
            .nsfs_mounts()
            .unwrap();
        assert_eq!(found.mounts.len(), 2);
        assert!(
            matches!(found.unread.as_slice(), [ProcfsError::Read { path, .. }] if *path == mountinfo)
        );
    }

    #[test]
    fn a_process_that_is_gone_leaves_its_mount_namespace_to_the_next() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 1, 111, HOST);
        process(root.path(), 30, 222, CONTAINER);
        process(root.path(), 31, 222, CONTAINER);
        fs::remove_file(root.path().join("proc/30/mountinfo")).unwrap();
        let found = Procfs::new(root.path(), Bounded::default())
            .nsfs_mounts()
            .unwrap();
        assert_eq!(found.mounts[&4_026_532_999][0].pid, 31);
    }

    #[test]
    fn a_zombies_mounts_are_read_by_a_thread_that_lives() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 1, 111, "");
        let thread = root.path().join("proc/30/task/33");
        fs::create_dir_all(thread.join("ns")).unwrap();
        symlink("mnt:[222]", thread.join("ns/mnt")).unwrap();
        fs::write(thread.join("mountinfo"), CONTAINER).unwrap();
        let found = Procfs::new(root.path(), Bounded::default())
            .nsfs_mounts()
            .unwrap();
        assert_eq!(found.mounts.len(), 2);
    }

    #[test]
    fn a_namespace_mounted_without_end_is_listed_to_a_limit() {
        let root = tempfile::tempdir().unwrap();
        let line = "9 1 0:4 net:[5] /n rw - nsfs nsfs rw\n";
        process(root.path(), 1, 111, &line.repeat(MAX_PATHS + 5));
        let found = Procfs::new(root.path(), Bounded::default())
            .nsfs_mounts()
            .unwrap();
        assert_eq!(found.mounts[&5].len(), MAX_PATHS);
    }

    #[test]
    fn what_is_no_escape_stays_as_it_is() {
        for (text, plain) in [
            (r"\040", " "),
            (r"a\134040b", r"a\040b"),
            (r"\04", r"\04"),
            (r"\999", r"\999"),
            (r"\777", r"\777"),
            ("", ""),
            (r"\", r"\"),
        ] {
            assert_eq!(unescape(text.as_bytes()), plain.as_bytes(), "{text}");
        }
    }
}
