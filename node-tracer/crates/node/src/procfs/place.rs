//! Where the node's cgroups are among the paths that the tracer is shown.
//!
//! A container has a cgroup namespace of its own on cgroup2, unless it is
//! privileged: what is beside it reads `/../../podUID/ID` there, and the names
//! of what is above it are not shown. They are where the node mounts its
//! cgroups, below the root: the tracer's own cgroup there is the one that lists
//! the tracer's process.
//!
//! Who has made a pod's cgroup is told there, too: kubelet is root, and whoever
//! else may make cgroups is not. Where the root has no cgroups mounted, those are
//! looked at that the node's first process sees.

use std::{
    collections::{BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::fs::FileType;

use super::{Procfs, read_file};
use crate::{
    cgroup::{Maker, Place, PodFolder},
    root::{Entry, Found, Root},
};

const MOUNT: &str = "/sys/fs/cgroup";

/// The node's first process.
const FIRST: u32 = 1;

/// How long the search for the tracer's own cgroup may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// Folders of one hierarchy that are looked at.
const MAX_CGROUPS: usize = 65_536;

/// Longest list of a cgroup's processes that is read.
const MAX_PROCS: usize = 1 << 20;

impl Procfs {
    /// Where the node's cgroups are among the paths that the tracer is shown;
    /// found out once.
    pub fn place(&self) -> Arc<Place> {
        if let Some(place) = self.place.get() {
            return Arc::clone(place);
        }
        let first = self.text("1/cgroup");
        let place = Arc::new(self.find(first.as_deref().unwrap_or_default()));
        // What could not be read is read again.
        if first.is_some() {
            return Arc::clone(self.place.get_or_init(|| place));
        }
        place
    }

    /// Why not all pods can be told by their processes' cgroups, if so.
    pub fn place_unknown(&self) -> Option<String> {
        let place = self.place();
        if place.is_known() {
            return None;
        }
        let first = self.proc.join("1/cgroup");
        let cgroups = self.root.join(&MOUNT[1..]);
        Some(match place.is_empty() {
            true => format!("{} cannot be read", first.display()),
            false => format!(
                "the tracer has a cgroup namespace of its own, and its cgroup is not found in {}: \
                 mount the node's / with all below it, and name it with --root",
                cgroups.display()
            ),
        })
    }

    /// Who has made pods' cgroups.
    pub(super) fn makers(&self, folders: BTreeSet<PodFolder>) -> HashMap<PodFolder, Maker> {
        if folders.is_empty() {
            return HashMap::new();
        }
        let roots = [self.root.clone(), self.root_path(FIRST)];
        let look = move || {
            let roots: Vec<Root> = roots
                .iter()
                .filter_map(|root| Root::open(root).ok())
                .collect();
            let each = folders.into_iter().map(|folder| {
                let found = roots.iter().find_map(|root| maker(root, &folder));
                (folder, found.unwrap_or(Maker::Unknown))
            });
            each.collect()
        };
        self.node.read(PATIENCE, look).unwrap_or_default()
    }

    fn text(&self, file: &str) -> Option<String> {
        let bytes = self.bounded(self.patience, self.proc.join(file), read_file);
        Some(String::from_utf8_lossy(&bytes.ok()??).into_owned())
    }

    fn find(&self, first: &str) -> Place {
        let mut found = Vec::new();
        Place::of(first, |hierarchy| {
            // Only one that can be told from its own cgroup: what is below the
            // folder where its namespace begins.
            let own = self.text("self/cgroup")?;
            let own = own.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                rest.strip_prefix(hierarchy)?.strip_prefix(":/")
            })?;
            let (root, mount, known) = (self.root.clone(), mount(hierarchy), found.clone());
            let search = move || {
                let root = Root::open(&root).ok()?;
                own_folder(&root, &mount, &known)
            };
            let folder = self.node.read(PATIENCE, search).ok().flatten()?;
            if !found.contains(&folder) {
                found.push(folder.clone());
            }
            let own: Vec<&str> = own.split('/').filter(|part| !part.is_empty()).collect();
            let mut parts: Vec<String> = folder
                .iter()
                .map(|part| part.to_string_lossy().into_owned())
                .collect();
            let above = parts.len().checked_sub(own.len())?;
            (parts[above..] == own).then(|| {
                parts.truncate(above);
                parts
            })
        })
    }
}

/// Who has made a pod's cgroup; `None` if it is not below a root.
fn maker(root: &Root, folder: &PodFolder) -> Option<Maker> {
    let PodFolder {
        hierarchy,
        path,
        node,
    } = folder;
    let (above, own) = path.split_at_checked(*node)?;
    // A mount can begin at the folder of the node's own cgroups, too.
    let above: PathBuf = above.iter().collect();
    let starts = [above.as_path(), Path::new("")];
    let mounts = mount(hierarchy);
    let tops = mounts
        .iter()
        .flat_map(|mount| starts.map(|start| mount.join(start)));
    tops.into_iter().find_map(|top| {
        // A node that is a user's own has that user for its root.
        let root_of_node = root.uid(&top)?;
        let mut folder = top;
        for part in own {
            folder.push(part);
            // What is below another's folder need not be looked at.
            match root.uid(&folder)? {
                0 => {}
                uid if uid == root_of_node => {}
                _ => return Some(Maker::Other),
            }
        }
        Some(Maker::Node)
    })
}

/// Where a hierarchy may be mounted.
fn mount(hierarchy: &str) -> Vec<PathBuf> {
    let mount = Path::new(MOUNT);
    match hierarchy {
        "" => vec![mount.to_owned(), mount.join("unified")],
        name => vec![mount.join(name.trim_start_matches("name="))],
    }
}

/// The folder of a hierarchy that lists the tracer's process; `known` are those
/// of others, which are mostly called the same.
fn own_folder(root: &Root, mounts: &[PathBuf], known: &[PathBuf]) -> Option<PathBuf> {
    let exists = |mount: &&PathBuf| lists(root, mount).is_some();
    let mount = mounts.iter().find(exists)?;
    let has = |folder: &&PathBuf| lists(root, &mount.join(folder)) == Some(true);
    if let Some(folder) = known.iter().find(has) {
        return Some(folder.clone());
    }
    let mut waiting = vec![PathBuf::new()];
    for _ in 0..MAX_CGROUPS {
        let folder = waiting.pop()?;
        let path = mount.join(&folder);
        if lists(root, &path) == Some(true) {
            return Some(folder);
        }
        // One that goes away meanwhile is not the tracer's.
        let opened = root.folder(&path).ok().flatten();
        let listed = opened.and_then(|opened| opened.list(MAX_CGROUPS).ok());
        let below = listed.map(|listing| listing.entries).unwrap_or_default();
        let folders = below
            .iter()
            .filter(|entry| entry.kind == FileType::Directory);
        waiting.extend(folders.map(|entry| folder.join(&entry.name)));
    }
    None
}

/// Whether a cgroup lists the tracer's process; `None` for what is none. The
/// kernel numbers the processes as the reader's PID namespace does.
fn lists(root: &Root, cgroup: &Path) -> Option<bool> {
    let folder = root.folder(cgroup).ok().flatten()?;
    match folder.read(&Entry::named("cgroup.procs"), MAX_PROCS) {
        Ok(Found::File(content)) => {
            let own = std::process::id().to_string();
            let mut pids = content.bytes.split(|byte| *byte == b'\n');
            Some(pids.any(|pid| pid == own.as_bytes()))
        }
        // A cgroup of threads has no list of processes.
        Err(_) => Some(false),
        Ok(Found::Missing | Found::Folder) => None,
    }
}
