//! Whose tasks are, as far as it matters for who gets how much of a look.
//!
//! Anybody can have thousands of stuck tasks, or millions of descriptors. What
//! a look has room or time for is therefore given out in turn: the host's own
//! and each container have one each, and all users of the host together one,
//! in which each user has a turn.

use event::order::Order as _;
use std::{
    collections::{BTreeMap, HashMap},
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use super::{
    HostUsers, PROCESS_PATIENCE, Procfs,
    mounts::{first_process, mount_namespace},
    namespace_inode, read_file, read_link, status_field,
    worker::who_answers,
};

/// Whose a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// Root's, in the host's own mount namespace. What a user has started with
    /// root's rights is the user's.
    Host,
    /// That of what has this mount namespace, which root of the host has made: a
    /// container, or a service with mounts of its own. Of what has left its
    /// mounts as it exits it is the PID namespace, which it keeps.
    Container(u32),
    /// A user's of the host, or of a user namespace; so is a worker of the kernel
    /// that waits for the FUSE file system of one. Nobody's if the number is the
    /// highest: the task is gone, or guarded, or the user is not known.
    User(u32),
}

impl Whose {
    /// All users are one.
    pub(super) fn party(self) -> Self {
        match self {
            Self::User(_) => Self::User(0),
            other => other,
        }
    }
}

impl Procfs {
    /// Whose tasks are, in their order.
    pub fn whose(&self, tids: Vec<u32>) -> Vec<Whose> {
        let home = |proc: &Path| {
            let first = first_process(proc).map(|pid| mount_namespace(proc, pid));
            Ok(first.transpose()?.flatten().map(|member| member.mount_ns))
        };
        let home = self.bounded(self.patience, self.proc.clone(), home);
        let pids = |proc: &Path| {
            Ok(first_process(proc).and_then(|pid| namespace(&proc.join(pid.to_string()), "pid")))
        };
        let pids = self.bounded(self.patience, self.proc.clone(), pids);
        let homes = Homes {
            mounts: home.ok().flatten(),
            pids: pids.ok().flatten(),
            users: self.host_users(),
            connections: self.root.join("sys/fs/fuse/connections"),
            known: Mutex::default(),
        };
        let answers = self.each(tids, PROCESS_PATIENCE, None, move |proc, tid| {
            homes.whose(proc, tid)
        });
        let each = answers.each.into_iter();
        each.map(|answer| answer.unwrap_or(Whose::User(u32::MAX)))
            .collect()
    }
}

impl Procfs {
    /// Whether a process was started by neither root nor the user who runs the
    /// node's first process.
    pub fn is_users(&self, pid: u32) -> bool {
        let uid = |proc: &Path, pid: u32| real_uid(&proc.join(pid.to_string()));
        let first = |proc: &Path| Ok(first_process(proc));
        let first = self.bounded(self.patience, self.proc.clone(), first);
        let first = first.ok().flatten().unwrap_or(1);
        let mut uids = self.each(vec![pid, first], self.patience, None, uid).each;
        let first = uids.pop().flatten().flatten();
        let own = uids.pop().flatten().flatten();
        own.is_some_and(|uid| uid != 0 && Some(uid) != first)
    }
}

/// What is the host's own.
struct Homes {
    mounts: Option<u32>,
    pids: Option<u32>,
    users: HostUsers,
    /// Where the kernel tells of each FUSE file system whose it is.
    connections: PathBuf,
    /// Whether the mount namespaces seen so far were made by the host's root.
    known: Mutex<HashMap<u32, bool>>,
}

impl Homes {
    fn whose(&self, proc: &Path, tid: u32) -> Whose {
        let folder = proc.join(tid.to_string());
        if let Some(whose) = who_answers(&folder, &self.connections) {
            return whose;
        }
        let Ok(Some(member)) = mount_namespace(proc, tid) else {
            let pids = namespace(&folder, "pid").filter(|_| self.is_by_root(&folder));
            if let (Some(pids), Some(hosts)) = (pids, self.pids)
                && pids != hosts
            {
                return Whose::Container(pids);
            }
            // This folder's owner is the task's user, whatever else is hidden of it.
            let folder = fs::metadata(folder);
            return Whose::User(folder.map_or(u32::MAX, |folder| folder.uid()));
        };
        if Some(member.mount_ns) == self.mounts {
            return match member.uid {
                0 => match real_uid(&member.folder) {
                    None | Some(0) => Whose::Host,
                    Some(uid) => Whose::User(uid),
                },
                uid => Whose::User(uid),
            };
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let by_root = known.entry(member.mount_ns);
        match *by_root.or_insert_with(|| self.is_by_root(&member.folder)) {
            true => Whose::Container(member.mount_ns),
            false => Whose::User(member.uid),
        }
    }

    /// Whether the namespaces of a task were made by the host's root.
    fn is_by_root(&self, folder: &Path) -> bool {
        namespace(folder, "user").is_some_and(|inode| self.users.has(inode))
    }
}

/// A namespace of the task whose folder this is.
pub(super) fn namespace(folder: &Path, kind: &str) -> Option<u32> {
    let link = read_link(&folder.join("ns").join(kind)).ok().flatten();
    link.and_then(|link| namespace_inode(link.as_os_str(), kind))
}

/// The user who has started a task's program.
pub(super) fn real_uid(folder: &Path) -> Option<u32> {
    let status = read_file(&folder.join("status")).ok()??;
    let uids = status_field(&status, "Uid:")?;
    uids.split_whitespace().next()?.parse().ok()
}

/// Puts things so that each owner's first comes before anybody's second.
pub fn in_turn<T>(all: Vec<(Whose, T)>) -> Vec<(Whose, T)> {
    turns(turns(all, |whose| whose), Whose::party)
}

fn turns<T>(all: Vec<(Whose, T)>, party: fn(Whose) -> Whose) -> Vec<(Whose, T)> {
    let mut had: BTreeMap<Whose, usize> = BTreeMap::new();
    let mut turns: Vec<_> = Vec::with_capacity(all.len());
    for (whose, each) in all {
        let had = had.entry(party(whose)).or_default();
        turns.push((*had, party(whose), (whose, each)));
        *had += 1;
    }
    turns.order_by_key(|(turn, party, _)| (*turn, *party));
    turns.into_iter().map(|(_, _, each)| each).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::procfs::Bounded;

    /// A user's 98 processes (2 to 99), root's on the host (1, 102) and in a
    /// container (100), and another user's (101).
    pub(crate) fn crowded(root: &Path) {
        process(root, 1, 0, 10, 20);
        for pid in 2..100 {
            process(root, pid, 1_000, 10, 20);
        }
        process(root, 100, 0, 11, 20);
        process(root, 101, 1_001, 10, 20);
        process(root, 102, 0, 10, 20);
    }

    /// A process in these mount and user namespaces.
    pub(crate) fn process(root: &Path, pid: u32, uid: u32, mount_ns: u32, user_ns: u32) {
        let folder = root.join(format!("proc/{pid}"));
        fs::create_dir_all(folder.join("ns")).unwrap();
        symlink(format!("mnt:[{mount_ns}]"), folder.join("ns/mnt")).unwrap();
        symlink(format!("user:[{user_ns}]"), folder.join("ns/user")).unwrap();
        // Without rights all of them are the one's who runs the tests.
        let _ = std::os::unix::fs::chown(&folder, Some(uid), None);
    }

    #[test]
    fn a_task_is_the_hosts_a_containers_or_a_users() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 1, 0, 10, 20);
        process(root.path(), 7, 0, 10, 20);
        process(root.path(), 8, 1_000, 10, 20);
        process(root.path(), 9, 1_000, 11, 20);
        process(root.path(), 10, 0, 11, 20);
        // It has made both for itself.
        process(root.path(), 11, 1_000, 12, 21);
        // su(1), as it waits for a password.
        process(root.path(), 13, 0, 10, 20);
        let status = "Name:\tsu\nUid:\t1000\t0\t0\t0\n";
        fs::write(root.path().join("proc/13/status"), status).unwrap();
        let procfs = Procfs::new(root.path(), Bounded::default());
        let found = procfs.whose(vec![7, 8, 9, 10, 11, 12, 13]);
        let expected = [
            Whose::Host,
            Whose::User(1_000),
            Whose::Container(11),
            Whose::Container(11),
            Whose::User(1_000),
            Whose::User(u32::MAX),
            Whose::User(1_000),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_exits_is_of_the_container_whose_processes_it_is_among() {
        let root = tempfile::tempdir().unwrap();
        let pids = [(1, 30, 20), (7, 30, 20), (8, 31, 20), (9, 32, 21)];
        for (pid, pid_ns, user_ns) in pids {
            process(root.path(), pid, 1_000, 10, user_ns);
            let folder = root.path().join(format!("proc/{pid}/ns"));
            symlink(format!("pid:[{pid_ns}]"), folder.join("pid")).unwrap();
            if pid != 1 {
                fs::remove_file(folder.join("mnt")).unwrap();
                fs::create_dir(root.path().join(format!("proc/{pid}/task"))).unwrap();
            }
        }
        let uid = fs::metadata(root.path().join("proc/7")).unwrap().uid();
        let procfs = Procfs::new(root.path(), Bounded::default());
        let expected = [Whose::User(uid), Whose::Container(31), Whose::User(uid)];
        assert_eq!(procfs.whose(vec![7, 8, 9]), expected);
    }

    #[test]
    fn each_owner_has_a_turn_and_all_users_have_one_together() {
        use Whose::{Container, Host, User};
        let many = (0..3).map(|n| (User(1_000), n));
        let others = [
            (User(1_001), 3),
            (Container(5), 4),
            (Host, 5),
            (Container(5), 6),
            (Host, 7),
        ];
        let all = in_turn(many.chain(others).collect());
        let order: Vec<i32> = all.iter().map(|(_, number)| *number).collect();
        assert_eq!(order, [5, 4, 0, 7, 6, 3, 1, 2]);
    }
}
