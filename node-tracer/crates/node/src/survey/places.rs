//! What leads to each network namespace: what keeps it alive, and the ways in.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::holders;
use crate::{
    netlink::{Target, Way},
    procfs::{Hidden, NsfsMount, Procfs, TaskEntry},
};
use event::{FdHolder, fault};

/// How long the descriptors of all processes may take.
const DESCRIPTORS: Duration = Duration::from_secs(2);
/// How long the sockets among them may take.
const SOCKETS: Duration = Duration::from_millis(300);
/// Ways of each kind into a namespace that are tried.
const MAX_WAYS: usize = 3;

/// What leads to each network namespace, by its inode.
#[derive(Debug, Default)]
pub(super) struct Places<'a> {
    /// The tasks in it, those worth naming first.
    pub(super) tasks: BTreeMap<u32, Vec<&'a TaskEntry>>,
    pub(super) mounts: BTreeMap<u32, Vec<NsfsMount>>,
    /// Descriptors of it, if there are neither tasks nor mounts.
    pub(super) fds: BTreeMap<u32, Vec<FdHolder>>,
    /// Sockets in it, if there is nothing else.
    pub(super) sockets: BTreeMap<u32, Vec<FdHolder>>,
    /// A living thread of each process whose leader is a zombie: what the
    /// process has open is reached by that one alone.
    threads: BTreeMap<u32, u32>,
}

fn is_dead(entry: &TaskEntry) -> bool {
    matches!(entry.task.state, Some('Z' | 'X'))
}

/// The processes, and whether they are in the host's network namespace.
pub(super) fn processes(tasks: &[TaskEntry], host: &BTreeSet<u32>) -> BTreeMap<u32, bool> {
    let mut processes = BTreeMap::new();
    for entry in tasks
        .iter()
        .filter(|entry| !entry.kernel && !is_dead(entry))
    {
        let hosts = entry.netns.is_none_or(|inode| host.contains(&inode));
        *processes.entry(entry.task.pid).or_default() |= hosts;
    }
    processes
}

impl<'a> Places<'a> {
    pub(super) fn of(tasks: &'a [TaskEntry]) -> Self {
        let mut places = Self::default();
        let dead = tasks.iter().filter(|entry| is_dead(entry));
        let dead: BTreeSet<u32> = dead.map(|entry| entry.task.tid).collect();
        for entry in tasks {
            let TaskEntry { task, netns, .. } = entry;
            if let Some(inode) = netns {
                places.tasks.entry(*inode).or_default().push(entry);
            }
            if dead.contains(&task.pid) && !dead.contains(&task.tid) {
                places.threads.entry(task.pid).or_insert(task.tid);
            }
        }
        for tasks in places.tasks.values_mut() {
            holders::sort(tasks);
        }
        places
    }

    /// The namespaces that something leads to.
    pub(super) fn known(&self) -> BTreeSet<u32> {
        let tasks = self.tasks.keys().chain(self.mounts.keys());
        let others = self.fds.keys().chain(self.sockets.keys());
        tasks.chain(others).copied().collect()
    }

    /// The ways to each of them.
    pub(super) fn targets(&self, procfs: &Procfs, hosts: &BTreeSet<u32>) -> Vec<Target> {
        let ways = |inode: u32| {
            let task = |entry: &&TaskEntry| Way::File(procfs.task_netns_path(entry.task.tid));
            let mount = |mount: &NsfsMount| Way::Mount {
                root: procfs.root_path(mount.tid),
                path: mount.path.clone(),
            };
            let thread = |pid: u32| *self.threads.get(&pid).unwrap_or(&pid);
            let fd = |holder: &FdHolder| Way::File(procfs.fd_path(thread(holder.pid), holder.fd));
            let socket = |holder: &FdHolder| Way::Socket {
                tid: thread(holder.pid),
                fd: holder.fd,
            };
            let mut ways = first(&self.tasks, inode, task);
            ways.extend(first(&self.mounts, inode, mount));
            ways.extend(first(&self.fds, inode, fd));
            ways.extend(first(&self.sockets, inode, socket));
            ways
        };
        let known = self.known().into_iter();
        known
            .map(|inode| Target {
                inode,
                ways: ways(inode),
                is_hosts: hosts.contains(&inode),
            })
            .collect()
    }
}

/// The first few ways that a namespace's entries make.
fn first<T>(entries: &BTreeMap<u32, Vec<T>>, inode: u32, way: impl Fn(&T) -> Way) -> Vec<Way> {
    let entries = entries.get(&inode).map(Vec::as_slice).unwrap_or_default();
    entries.iter().take(MAX_WAYS).map(way).collect()
}

/// Namespaces that only descriptors or sockets lead to.
#[derive(Debug, Default)]
pub(super) struct Stray {
    pub(super) fds: BTreeMap<u32, Vec<FdHolder>>,
    pub(super) sockets: BTreeMap<u32, Vec<FdHolder>>,
    /// What could not be looked at.
    pub(super) unread: Vec<String>,
    /// There may be more for that.
    pub(super) partial: bool,
}

impl Stray {
    /// Those in which no task is: who ends what keeps one of them must know of
    /// all that does. `pinned` are those of them that are mounted.
    pub(super) fn find(
        procfs: &Procfs,
        processes: &BTreeMap<u32, bool>,
        inhabited: &BTreeSet<u32>,
        pinned: &BTreeSet<u32>,
    ) -> Self {
        let mut stray = Self::default();
        let descriptors = procfs.descriptors(processes, inhabited, DESCRIPTORS);
        if let Some(what) = &descriptors.unread {
            stray.unread.push(format!(
                "descriptors ({what}): there may be more network namespaces"
            ));
        }
        stray.fds.clone_from(&descriptors.namespaces);
        if !pinned.is_empty() {
            // One that was opened by its mount says so only in its fdinfo.
            match procfs.fd_holders(pinned) {
                Ok(found) => {
                    stray.fds.extend(found.holders);
                    if !found.complete {
                        stray.unread.push(String::from(
                            "descriptors of mounted network namespaces: not every process could \
                             be looked at, so there may be more that hold one",
                        ));
                    }
                }
                Err(error) => stray.unread.push(fault::chain(&error)),
            }
        }
        let is_seen = |inode: &u32| {
            inhabited.contains(inode) || pinned.contains(inode) || stray.fds.contains_key(inode)
        };
        let hidden = descriptors.hidden.iter();
        let hidden = hidden.filter(|it| !it.inode.as_ref().is_some_and(is_seen));
        let hidden: BTreeMap<u32, &Hidden> = hidden.map(|it| (it.pid, it)).collect();
        stray.unread.extend(say_hidden(&hidden));
        let found = procfs.socket_holders(&descriptors, inhabited, SOCKETS);
        stray.sockets = found.holders;
        stray.partial = descriptors.partial || !hidden.is_empty() || found.incomplete.is_some();
        if let Some(why) = found.incomplete {
            stray.unread.push(format!(
                "sockets ({why}): there may be more network namespaces"
            ));
        }
        stray
    }
}

/// What may keep namespaces that nobody can see: the first is named, of the others
/// their number.
fn say_hidden(hidden: &BTreeMap<u32, &Hidden>) -> Option<String> {
    let (_, first) = hidden.first_key_value()?;
    let more = match hidden.len() - 1 {
        0 => String::new(),
        more => format!(", {more} more processes the like"),
    };
    Some(format!(
        "{}{more}: network namespaces may be kept there that cannot be seen",
        first.words()
    ))
}
