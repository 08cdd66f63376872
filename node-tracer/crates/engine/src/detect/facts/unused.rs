//! Namespaces that nothing uses: no task is in them and no runtime claims them.

use crate::{
    detect::{
        View, answering,
        facts::{
            command::{Command, remove_sandbox},
            common::{fd_label, socket_label},
            ghosts, own,
        },
        stuck_in,
    },
    model::{
        Model,
        netns::NetnsEntry,
        runtime::{CRI, SandboxList},
        sandbox::PodEvidence,
    },
};
mod name;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::Duration,
};

use event::{
    Attachment, RuntimeSandbox,
    clock::Timestamp,
    mount::{self, Place},
    wording::advice::commented,
};

/// What making a sandbox, or removing one, may take.
const SETTLED: Duration = Duration::from_secs(60);

/// A namespace in which nothing runs and that no runtime claims.
#[derive(Debug)]
pub struct Unused<'a> {
    pub entry: &'a NetnsEntry,
    /// The earliest time at which it is known to have existed; `None` if all
    /// that is known is that it exists now.
    pub since: Option<Timestamp>,
    /// What the runtime answered, if it did.
    pub runtime: Option<&'a SandboxList>,
    /// The sandbox that the runtime has as not ready.
    pub stopped: Option<&'a RuntimeSandbox>,
}

/// What shows that a namespace was a pod sandbox's.
#[derive(Clone, Copy, Debug)]
pub enum SandboxProof<'a> {
    /// It is known as a pod's.
    Sandbox(PodEvidence),
    /// Its mount is named as a runtime names a sandbox's.
    Mount(&'a Path),
}

/// A namespace that is kept for nothing.
#[derive(Debug)]
pub struct Pinned<'a> {
    pub unused: Unused<'a>,
    /// It was a pod's.
    pub tie: SandboxProof<'a>,
}

/// Whether a namespace is pinned, and nothing else.
pub fn verdict<'a>(view: &View<'a>, entry: &'a NetnsEntry) -> Option<Pinned<'a>> {
    let tie = tie(view.model, entry)?;
    let unused = unused(view, entry)?;
    let has_address = !own::addresses(view, entry).is_empty();
    let gone = ghosts::gone(view, entry).is_some();
    if (gone && has_address) || ghosts::verdict(view, entry).is_some() {
        return None;
    }
    let remembered = matches!(
        tie,
        SandboxProof::Sandbox(PodEvidence::Cni { .. } | PodEvidence::Cache { .. })
    );
    if unused.runtime.is_none() && !remembered {
        return None;
    }
    // One in the making looks the same, and it holds nothing anyway.
    let harmless = unused.since.is_none() && !has_address;
    (!harmless).then_some(Pinned { unused, tie })
}

/// Whether nothing runs in a namespace and no runtime claims it, although it
/// is no sandbox in the making and none on its way out.
pub fn unused<'a>(view: &View<'a>, entry: &'a NetnsEntry) -> Option<Unused<'a>> {
    let is_held = !entry.mounts.is_empty() || !entry.fds.is_empty() || !entry.sockets.is_empty();
    entry.held_at.filter(|_| is_held)?;
    if entry.host || entry.dying.is_some() || entry.task_count > 0 {
        return None;
    }
    if !stuck_in(view.model, entry).is_empty() {
        return None;
    }
    let runtime = answering(view.model);
    let since = known_since(view, entry)?;
    let mut stopped = None;
    for list in view.model.runtime.lists() {
        // What a runtime that answers does not list is not there, whatever its
        // folders still have.
        if list.source != CRI && runtime.is_some() {
            continue;
        }
        let Some(sandbox) = sandbox_of(view, list, entry) else {
            continue;
        };
        if sandbox.ready != Some(false) || !has_settled(view, entry) {
            return None;
        }
        stopped = Some(sandbox);
    }
    // A list that is older than the namespace proves nothing.
    let older = |list: &SandboxList| list.at < since.unwrap_or(list.at);
    (!runtime.is_some_and(older)).then_some(Unused {
        entry,
        since,
        runtime,
        stopped,
    })
}

/// Whether what keeps a namespace has been the same for so long that nobody is
/// about to remove it.
pub fn has_settled(view: &View<'_>, entry: &NetnsEntry) -> bool {
    let looked_at = entry.held_at;
    looked_at.is_some_and(|at| view.passed(at.plus(SETTLED)))
}

/// The sandbox of a namespace that a list has, a ready one rather than others.
pub fn sandbox_of<'a>(
    view: &View<'a>,
    list: &'a SandboxList,
    entry: &NetnsEntry,
) -> Option<&'a RuntimeSandbox> {
    let id = entry.sandbox.id.as_deref();
    let by_id = id.and_then(|id| list.of_container(id));
    // Where it is or was mounted. In mounts of their own users name it as they
    // like.
    let paths = entry.paths.iter().filter(|_| !entry.is_strangers());
    let source = list.source.as_str();
    let by_path = paths.flat_map(|path| view.unresolved().at(source, path));
    let all = list.in_netns(entry.id).chain(by_id).chain(by_path.copied());
    all.max_by_key(|sandbox| sandbox.ready != Some(false))
}

/// Sandboxes whose namespace is known by its path alone, by the list that has
/// them and that path.
#[derive(Debug)]
pub struct Unresolved<'a> {
    by_path: HashMap<(&'a str, &'a Path), Vec<&'a RuntimeSandbox>>,
}

impl<'a> Unresolved<'a> {
    pub(in crate::detect) fn new(model: &'a Model) -> Self {
        let mut by_path: HashMap<_, Vec<_>> = HashMap::new();
        for list in model.runtime.lists() {
            let source = list.source.as_str();
            for sandbox in list.sandboxes().filter(|each| each.netns.is_none()) {
                if let Some(path) = &sandbox.netns_path {
                    let path = below_run(Path::new(path));
                    by_path.entry((source, path)).or_default().push(sandbox);
                }
            }
        }
        Self { by_path }
    }

    /// Those of a list that name a path.
    fn at<'s>(&'s self, source: &'s str, path: &'s Path) -> &'s [&'a RuntimeSandbox] {
        let there = self.by_path.get(&(source, below_run(path)));
        there.map_or(&[], Vec::as_slice)
    }
}

/// `/var/run` is `/run`.
fn below_run(path: &Path) -> &Path {
    path.strip_prefix("/var/run")
        .or_else(|_| path.strip_prefix("/run"))
        .unwrap_or(path)
}

/// Since when a namespace is known to exist: `None` if it is too young to be
/// judged, `Some(None)` if nothing tells its age.
pub fn known_since(view: &View<'_>, entry: &NetnsEntry) -> Option<Option<Timestamp>> {
    let model = view.model;
    let adds = attachments(model, entry).map(|add| add.written);
    let addresses = own::addresses(view, entry);
    let reserved = addresses
        .iter()
        .flat_map(|address| model.cni.reservations(*address))
        .map(|(_, reservation)| reservation.modified);
    let lists = model.runtime.lists();
    let made = lists.filter_map(|list| sandbox_of(view, list, entry)?.created);
    let told = adds.chain(reserved).chain(made).min();
    let known = told.map_or(entry.seen, |told| told.min(entry.seen));
    if view.passed(known.plus(SETTLED)) {
        return Some(Some(known));
    }
    let unknown = told.is_none() && !entry.created;
    unknown.then_some(None)
}

/// What libcni remembers of a namespace.
fn attachments<'a>(
    model: &'a Model,
    entry: &'a NetnsEntry,
) -> impl Iterator<Item = &'a Attachment> {
    let id = entry.sandbox.id.as_deref().into_iter();
    let there = model.cni.in_netns(entry.id.inode);
    // A process ID is used again.
    let there = there.filter(|add| !add.netns_path.starts_with("/proc/"));
    id.flat_map(|id| model.cni.of_container(id)).chain(there)
}

fn tie<'a>(model: &Model, entry: &'a NetnsEntry) -> Option<SandboxProof<'a>> {
    match entry.sandbox.known.filter(|_| entry.sandbox.pod.is_some()) {
        // A guest's thread can have been in any namespace.
        None | Some(PodEvidence::Cgroup { .. }) => {}
        Some(known) => return Some(SandboxProof::Sandbox(known)),
    }
    if entry.is_users() {
        return None;
    }
    let crio = answering(model).is_some_and(name::is_crio);
    let mut paths = entry.paths.iter().map(|path| path.as_path());
    let path = paths.find(|path| name::is_sandbox(path, crio))?;
    Some(SandboxProof::Mount(path))
}

/// Whether a namespace is mounted as runtimes mount those of sandboxes.
pub fn has_sandbox_mount(entry: &NetnsEntry) -> bool {
    entry
        .mount_names()
        .any(|path| name::is_sandbox(&path, true))
}

/// Whether somebody other than a runtime has given the namespace a name: then
/// it is kept on purpose.
pub fn is_named_by_others(entry: &NetnsEntry) -> bool {
    entry
        .mount_names()
        .any(|path| !name::is_sandbox(&path, true))
}

/// Mounts of a namespace whose removal is advised one by one.
const MOUNTS: usize = 3;

/// Copies of the node's mounts cannot be unmounted in a user's mount namespace:
/// they go with its processes.
const USERS: &str = "a user process, its own mounts hold the netns open, look again for others";

/// Has the runtime remove the sandbox that it has of a namespace, or may have.
pub(in crate::detect) fn removal(view: &View<'_>, entry: &NetnsEntry) -> Option<Command> {
    let own = entry.sandbox.id.as_deref();
    let id = match answering(view.model) {
        Some(list) => {
            let listed = own.and_then(|id| list.of_container(id));
            let listed = listed.or_else(|| sandbox_of(view, list, entry));
            listed.map(|sandbox| sandbox.id.as_str())
        }
        None => own,
    };
    id.map(|id| remove_sandbox(view.model, id))
}

/// How to end a namespace in which no task is, in steps. CNI DEL gives back what
/// the namespace has and needs it for that: so the runtime comes first.
pub fn release(view: &View<'_>, entry: &NetnsEntry) -> Vec<String> {
    let mut steps = Vec::new();
    if let Some(removal) = removal(view, entry) {
        steps.push(commented(
            removal,
            "runs CNI DEL, which needs the netns, not found: kubelet was first",
        ));
        steps.push(format!(
            "when the sandbox is removed and netns {} still exists, end what holds it:",
            entry.id.inode
        ));
    }
    if !entry.mounts.is_empty() {
        for path in entry.mounts.iter().take(MOUNTS) {
            steps.push(match mount::place(path) {
                Place::User(tid, _) => commented(format!("kill -9 {tid}"), USERS),
                Place::Process(tid, path) => {
                    let unmount = Command::new("umount -N").word(tid.to_string()).word(path);
                    commented(unmount, "only a container or a service has this mount")
                }
                Place::Node(path) => {
                    let unmount = Command::new("umount").word(path);
                    let remove = Command::new("rm -f").word(path);
                    commented(unmount.and(&remove), "nothing runs in it")
                }
            });
        }
        let of_node = |path: &&PathBuf| matches!(mount::place(path), Place::Node(_));
        if let Some(path) = entry.mounts.iter().find(of_node) {
            steps.push(String::from(
                "\"not mounted\" or \"device or resource busy\": another mount namespace has the \
                 mount; unmount it there",
            ));
            // By the number: what a container calls so can be another namespace.
            let whose = format!(
                "grep -ls 'net:\\[{}\\]' /proc/[0-9]*/mountinfo",
                entry.id.inode
            );
            steps.push(commented(whose, "which PIDs still see the mount, if any"));
            // By the node's own program: one in there is whatever its owner has put
            // there.
            let unmount = Command::new("umount -N PID").word(path);
            steps.push(commented(unmount, "fill in PID"));
        }
    } else if let Some(first) = entry.fds.first() {
        let (pid, fd) = (first.pid, first.fd);
        steps.push(format!(
            "restart the daemon that holds {}: it leaks descriptors of sandboxes; the netns goes \
             when they are closed",
            fd_label(first),
        ));
        steps.push(commented(
            format!("ls -l /proc/{pid}/fd/{fd}"),
            "what it holds",
        ));
        steps.push(commented(format!("ps -fp {pid}"), "which daemon it is"));
    } else if let Some(first) = entry.sockets.first() {
        let pid = first.pid;
        steps.push(format!(
            "restart the daemon that holds {}: it opened the socket in the netns and left; the \
             netns goes when the socket is closed",
            socket_label(first),
        ));
        steps.push(commented(format!("ps -fp {pid}"), "which daemon it is"));
    } else {
        steps.push(String::from(
            "find the process that has a socket in it: one that was in the netns and has left it, \
             as node agents and CNI daemons do; ending it releases the netns",
        ));
    }
    steps
}
