//! Descriptors that alone lead to a network namespace, and sockets, which may.
//!
//! Here nothing is known of the namespaces that are looked for, so only such
//! descriptors are found as tell by their link what they are; see
//! [`fds`](super::fds) for the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, OpenOptionsExt as _},
    },
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::Pid,
    thread::{CapabilitySet, capabilities},
};

use super::{
    Procfs, ProcfsError,
    fds::{add, descriptors, is_namespace, name, namespaces_device},
    hidden::{Behind, Hidden, Kind, behind},
    namespace_inode, read_file, read_link, status_field,
    whose::namespace,
};
use event::{FdHolder, fault};
use sys::syscall;

/// What the descriptors of processes lead to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptors {
    /// Who holds namespaces that nothing else is known to lead to, by the
    /// namespace's inode; at most [`MAX_HOLDERS`](event::MAX_HOLDERS) of
    /// each.
    pub namespaces: BTreeMap<u32, Vec<FdHolder>>,
    /// The sockets of each process that has any: its number, and descriptor
    /// and inode of each socket. Root's on the host come first.
    pub sockets: Vec<(u32, Vec<(u32, u64)>)>,
    /// What may keep namespaces out of sight, by the descriptor that leads
    /// there; one of each process.
    pub hidden: Vec<Hidden>,
    /// The first thing that could not be looked at, or for how many there was
    /// no time.
    pub unread: Option<String>,
    /// It is not only process 1, which can be guarded even from root and is
    /// nobody to keep a pod's namespace.
    pub partial: bool,
    /// There was no time for all those of a process.
    pub(super) late: bool,
}

/// Processes with something out of sight that are listed.
const MAX_HIDDEN: usize = 4096;

/// Sockets of one process that are listed.
const MAX_SOCKETS: usize = 65_536;

impl Procfs {
    /// The descriptors of network namespaces other than the `known` ones, and
    /// those of sockets, found within the time given. A namespace that is
    /// mounted nowhere and that no task is in is known by these alone.
    ///
    /// Looked at are those of the `processes` that are in the host's network
    /// namespace (`true`), have `CAP_SYS_ADMIN` or are in a user namespace of
    /// their own (a user can have opened any mounted namespace before that), but
    /// for the tracer itself: the processes of an ordinary pod cannot have been in another namespace
    /// than they are in now, and they have most of a node's descriptors.
    pub fn descriptors(
        &self,
        processes: &BTreeMap<u32, bool>,
        known: &BTreeSet<u32>,
        limit: Duration,
    ) -> Descriptors {
        let mut all = Descriptors::default();
        let pids = self.searched(processes, &mut all);
        let known = known.clone();
        let (pids, answers) = self.share(pids, limit, move |proc, pid, end| {
            let mut found = Descriptors::default();
            found.search(&proc.join(pid.to_string()), pid, &known, end);
            found
        });
        let hung = answers.hung.as_ref().map(|error| fault::chain(error));
        all.unread = all.unread.or(hung);
        let mut late = 0;
        for (pid, found) in pids.into_iter().zip(answers.each) {
            let Some(found) = found else {
                late += 1;
                continue;
            };
            for (inode, holders) in found.namespaces {
                add(&mut all.namespaces, inode, holders);
            }
            all.sockets.extend(found.sockets);
            let room = MAX_HIDDEN.saturating_sub(all.hidden.len());
            all.hidden.extend(found.hidden.into_iter().take(room));
            late += usize::from(found.late);
            all.partial |= found.unread.is_some() && pid != 1;
            all.unread = all.unread.or(found.unread);
        }
        if late > 0 {
            all.partial = true;
            // One that hangs takes the time of the others.
            let late = format!("not all those of {late} processes: it took too long");
            all.unread = Some(match answers.hung {
                Some(error) => format!("{late}; {}", fault::chain(&error)),
                None => late,
            });
        }
        all
    }

    /// Those processes that can have been in another namespace than they are in
    /// now. That it cannot be told of some is noted.
    fn searched(&self, processes: &BTreeMap<u32, bool>, all: &mut Descriptors) -> Vec<u32> {
        let own = self.own_pid();
        let others = processes.iter().filter(|(pid, _)| Some(**pid) != own);
        let (on_host, elsewhere): (Vec<_>, Vec<_>) = others.partition(|(_, on_host)| **on_host);
        let mut movers: Vec<u32> = elsewhere.into_iter().map(|(pid, _)| *pid).collect();
        let (by_number, users) = (self.has_own_processes(), self.host_users());
        if !movers.is_empty() {
            let (found, missed) = self.many(movers, move |proc, pid| {
                let folder = proc.join(pid.to_string());
                let is_apart = || namespace(&folder, "user").is_some_and(|ns| !users.has(ns));
                // With other numbers here, only their files say it.
                let may = match by_number {
                    true => may_enter_namespaces(pid),
                    false => may_move(&folder)?,
                };
                Ok((may || is_apart()).then_some(pid))
            });
            movers = found;
            all.unread = missed.say(|n| format!("those of {n} processes"));
            all.partial = missed.count > 0;
        }
        let on_host = on_host.into_iter().map(|(pid, _)| *pid);
        on_host.chain(movers).collect()
    }
}

impl Descriptors {
    fn search(&mut self, process: &Path, pid: u32, known: &BTreeSet<u32>, end: Instant) {
        if Instant::now() >= end {
            self.late = true;
            return;
        }
        let (task, fds) = match descriptors(process) {
            Ok(found) => found,
            Err(error) => return self.failed(&error),
        };
        let folder = task.join("fd");
        let mut sockets = Vec::new();
        for fd in fds {
            if Instant::now() >= end {
                self.late = true;
                break;
            }
            let path = folder.join(fd.to_string());
            let link = match read_link(&path) {
                Ok(Some(link)) => link,
                Ok(None) => continue,
                Err(error) => {
                    self.failed(&error);
                    continue;
                }
            };
            let link = link.as_os_str();
            if let Some(kind) = Kind::of(link.as_bytes()) {
                let info = task.join("fdinfo").join(fd.to_string());
                self.look_behind(process, &info, (pid, fd), kind, known, end);
            }
            if let Some(inode) = numbered(link.as_bytes(), b"socket:[") {
                if sockets.len() < MAX_SOCKETS {
                    sockets.push((fd, inode));
                }
                continue;
            }
            let inode = match link.as_bytes() {
                // Opened by a mount that is no more, or the root folder.
                b"/" => unmounted(&path),
                _ => namespace_inode(link, "net"),
            };
            if let Some(inode) = inode.filter(|inode| !known.contains(inode)) {
                let comm = name(process);
                add(&mut self.namespaces, inode, [FdHolder { pid, fd, comm }]);
            }
        }
        if !sockets.is_empty() {
            self.sockets.push((pid, sockets));
        }
    }

    /// Whether a descriptor leads to what is out of sight. One of a process says
    /// enough, but for the watches, which say of what they are.
    fn look_behind(
        &mut self,
        process: &Path,
        info: &Path,
        (pid, fd): (u32, u32),
        kind: Kind,
        known: &BTreeSet<u32>,
        end: Instant,
    ) {
        if self.hidden.iter().any(|hidden| hidden.inode.is_none()) {
            return;
        }
        // As the kernel has it: the minor number has 20 bits.
        let device = namespaces_device();
        let device = device.map(|(major, minor)| u64::from(major) << 20 | u64::from(minor));
        let hidden = |inode| Hidden::new(process, (pid, fd), kind, inode);
        match behind(info, kind, device, end) {
            Ok(Behind::Nothing) => {}
            Ok(Behind::Files | Behind::Unsaid) => self.hidden.push(hidden(None)),
            Ok(Behind::Inodes(inodes)) => {
                let room = MAX_HIDDEN.saturating_sub(self.hidden.len());
                let unknown = inodes.into_iter().filter(|inode| !known.contains(inode));
                let unknown = unknown.take(room).map(|inode| hidden(Some(inode)));
                self.hidden.extend(unknown);
            }
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&mut self, error: &ProcfsError) {
        self.unread.get_or_insert_with(|| fault::chain(error));
    }
}

/// Whether a process may enter namespaces. The kernel answers at once: a process's
/// `status` takes it 40 ms if that is in 65,536 groups, and any root has such.
fn may_enter_namespaces(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let sets = pid.map(|pid| capabilities(Some(pid)));
    match sets {
        Some(Ok(sets)) => sets.effective.contains(CapabilitySet::SYS_ADMIN),
        Some(Err(error)) => error != Errno::SRCH,
        None => false,
    }
}

/// The same by what its files say.
fn may_move(process: &Path) -> Result<bool, ProcfsError> {
    /// `CAP_SYS_ADMIN`
    const SYS_ADMIN: u64 = 1 << 21;
    let Some(status) = read_file(&process.join("status"))? else {
        return Ok(false);
    };
    let set = status_field(&status, "CapEff:");
    let set = set.and_then(|set| u64::from_str_radix(&set, 16).ok());
    // After very many groups it is cut off.
    Ok(set.is_none_or(|set| set & SYS_ADMIN != 0))
}

/// The number in `socket:[4711]`.
fn numbered(link: &[u8], prefix: &[u8]) -> Option<u64> {
    let number = link.strip_prefix(prefix)?.strip_suffix(b"]")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// The network namespace that a descriptor is of, if it is of one at all.
fn unmounted(path: &Path) -> Option<u32> {
    if !is_namespace(path) {
        return None;
    }
    let mut options = fs::OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    let inode = file.metadata().ok()?.ino();
    syscall::is_network_namespace(&file)
        .then(|| u32::try_from(inode).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::{
        Bounded,
        fds::tests::{fd, holder},
        whose::tests::process,
    };

    #[test]
    fn namespaces_that_nothing_else_leads_to_and_sockets_are_found_in_one_walk() {
        let root = tempfile::tempdir().unwrap();
        fd(root.path(), 7, 3, "net:[100]", "");
        fd(root.path(), 7, 4, "net:[200]", "");
        fd(root.path(), 7, 5, "mnt:[300]", "");
        fd(root.path(), 7, 6, "socket:[4711]", "");
        fd(root.path(), 7, 7, "/tmp/socket:[4712]", "");
        fd(root.path(), 7, 8, "/", "");
        for (pid, capabilities) in [(9, "000001ffffffffff"), (10, "00000000a80425fb")] {
            fd(root.path(), pid, 5, "net:[200]", "");
            let folder = root.path().join(format!("proc/{pid}"));
            fs::write(folder.join("comm"), "leaky\n").unwrap();
            let status = format!("Name:\tleaky\nCapEff:\t{capabilities}\n");
            fs::write(folder.join("status"), status).unwrap();
        }
        let procfs = Procfs::new(root.path(), Bounded::default());
        let known = BTreeSet::from([100]);
        let all = BTreeMap::from([(7, true), (9, false), (10, false)]);
        let search = |limit| procfs.descriptors(&all, &known, limit);
        let found = search(Duration::from_secs(9));
        let named = FdHolder {
            comm: Some(String::from("leaky")),
            ..holder(9, 5)
        };
        let expected = Descriptors {
            namespaces: BTreeMap::from([(200, vec![holder(7, 4), named])]),
            sockets: vec![(7, vec![(6, 4711)])],
            ..Descriptors::default()
        };
        assert_eq!(found, expected);
        let late = search(Duration::ZERO);
        assert!(late.partial);
        let late = late.unread.unwrap();
        assert!(late.contains("of 2 processes: it took too long"), "{late}");
    }

    #[test]
    fn the_kernel_says_of_a_process_what_its_status_says() {
        let own = std::process::id();
        let by_status = may_move(Path::new("/proc/self")).unwrap();
        assert_eq!(may_enter_namespaces(own), by_status);
        assert!(!may_enter_namespaces(u32::MAX >> 1), "there is none");
        let cut = tempfile::tempdir().unwrap();
        fs::write(cut.path().join("status"), "Groups:\t1 2 3").unwrap();
        assert!(may_move(cut.path()).unwrap(), "it is cut off before that");
    }

    #[test]
    fn a_process_that_cannot_be_searched_hides_no_other() {
        let root = tempfile::tempdir().unwrap();
        for pid in [1, 7] {
            fs::create_dir_all(root.path().join(format!("proc/{pid}"))).unwrap();
            fs::write(root.path().join(format!("proc/{pid}/fd")), "").unwrap();
        }
        fd(root.path(), 8, 3, "net:[5]", "");
        let procfs = Procfs::new(root.path(), Bounded::default());
        let search = |pids: [u32; 2]| {
            let processes = pids.map(|pid| (pid, true)).into();
            procfs.descriptors(&processes, &BTreeSet::new(), Duration::from_secs(9))
        };
        for (pid, partial) in [(7, true), (1, false)] {
            let found = search([pid, 8]);
            assert!(found.namespaces.contains_key(&5));
            let unread = found.unread.unwrap();
            assert!(unread.contains(&format!("proc/{pid}/fd")), "{unread}");
            assert_eq!(found.partial, partial);
        }
        // That there was no time matters more than who is guarded.
        let processes = [1, 8].map(|pid| (pid, true)).into();
        let found = procfs.descriptors(&processes, &BTreeSet::new(), Duration::from_nanos(1));
        assert!(found.unread.unwrap().contains("it took too long") && found.partial);
    }

    #[test]
    fn what_root_has_open_is_found_however_much_users_have() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 1, 0, 10, 20);
        for pid in 2..8 {
            process(root.path(), pid, 1_000, 10, 20);
            for number in 0..2_000 {
                fd(root.path(), pid, number, "/", "");
            }
        }
        process(root.path(), 9, 0, 10, 20);
        fd(root.path(), 9, 3, "net:[5]", "");
        let procfs = Procfs::new(root.path(), Bounded::default());
        let all = (1..10).map(|pid| (pid, true)).collect();
        let found = procfs.descriptors(&all, &BTreeSet::new(), Duration::from_millis(20));
        assert!(found.namespaces.contains_key(&5));
        assert!(found.partial && found.unread.unwrap().contains("it took too long"));
    }
}
