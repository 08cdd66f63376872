//! The pod sandboxes of the node as their runtimes have left them on disk: the
//! folder of each container that exists, with its OCI specification. It says
//! much of what CRI says, and it answers when the runtime does not.
//!
//! containerd keeps one folder a container below its state folder, CRI-O below
//! that of containers/storage. Of each is read the specification, for the
//! annotations and the namespaces only, and the file with the process ID; an
//! ID is believed only if that process is in the container's cgroup. Whether a
//! sandbox is ready is not on disk.
//!
//! Other layouts (rootless, other engines) are absent, not wrong: this list
//! alone never proves that a sandbox does not exist.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::FileType;

use self::spec::{Network, Role, Spec, Writer, is_id};
use super::{
    cri,
    procfs::{NoAnswer, Owner, Procfs},
    root::{Found, Root, RootError},
};
use event::{Netns, RuntimeContainer, RuntimeSandbox, clock::Timestamp};

pub mod spec;
#[cfg(test)]
mod tests;

/// The name of this source in events.
pub const SOURCE: &str = "bundles";

/// Bundles that are read, in all.
const MAX_BUNDLES: usize = 4096;

/// Largest specification that is read, one at a time: a pod can have 1.5 MB, and Go
/// writes `<` in six bytes.
const MAX_SPEC: usize = 16 << 20;

/// Largest file with a process ID.
const MAX_PID: usize = 64;

/// Problems that are told one by one.
const MAX_UNREAD: usize = 16;

/// How long reading all of it may take; the folders are on a tmpfs.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a runtime lays out the folder of a container.
#[derive(Clone, Copy, Debug)]
struct Layout {
    folder: &'static str,
    writer: Writer,
    /// What is between a container's folder and its files.
    inside: &'static str,
    /// The file with the process ID.
    pid: &'static str,
}

const fn containerd(folder: &'static str) -> Layout {
    Layout {
        folder,
        writer: Writer::Containerd,
        inside: "",
        pid: "init.pid",
    }
}

/// Where the runtimes that are known keep theirs.
const LAYOUTS: [Layout; 6] = [
    containerd("/run/containerd/io.containerd.runtime.v2.task/k8s.io"),
    containerd("/run/containerd/io.containerd.runtime.v1.linux/k8s.io"),
    containerd("/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io"),
    containerd("/run/k0s/containerd/io.containerd.runtime.v2.task/k8s.io"),
    containerd("/var/snap/microk8s/common/run/containerd/io.containerd.runtime.v2.task/k8s.io"),
    Layout {
        folder: "/run/containers/storage/overlay-containers",
        writer: Writer::Crio,
        inside: "userdata",
        pid: "pidfile",
    },
];

/// Why nothing can be said of any bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundlesError {
    /// The host's root cannot be opened.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The files do not answer.
    #[error("the container runtimes' folders below /run do not answer")]
    NoAnswer(#[from] NoAnswer),
}

/// What one folder of bundles says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    pub folder: PathBuf,
    /// The sandboxes, by ID, each with its containers.
    pub sandboxes: Vec<RuntimeSandbox>,
    /// What could not be read or understood, and why; some of it.
    pub unread: Vec<String>,
}

#[derive(Debug)]
struct Bundle {
    id: String,
    role: Role,
    spec: Spec,
    written: Timestamp,
    pid: Option<u32>,
}

/// Lists the bundles of every runtime below a root folder: one list for each
/// folder that there is.
///
/// # Errors
/// See [`BundlesError`]. A folder or a bundle that cannot be read is in
/// [`Listing::unread`].
pub fn list(root: &Path, procfs: &Procfs) -> Result<Vec<Listing>, BundlesError> {
    let root = root.to_owned();
    let inner = procfs.clone();
    procfs.bounded_reads().read(PATIENCE, move || {
        let root = Root::open(&root)?;
        let mut left = MAX_BUNDLES;
        let lists = LAYOUTS.iter();
        Ok(lists
            .filter_map(|layout| read_folder(&root, *layout, &inner, &mut left))
            .collect())
    })?
}

/// One runtime's list; `None` if it has no folder.
fn read_folder(root: &Root, layout: Layout, procfs: &Procfs, left: &mut usize) -> Option<Listing> {
    let folder = Path::new(layout.folder);
    let mut listing = Listing {
        folder: folder.to_owned(),
        ..Listing::default()
    };
    let names = root
        .folder(folder)
        .and_then(|opened| opened.map(|opened| opened.list(*left)).transpose());
    let names = match names {
        Ok(None) => return None,
        Ok(Some(names)) => names,
        Err(error) => {
            listing.unread.push(problem(folder, &error));
            return Some(listing);
        }
    };
    *left -= names.entries.len();
    if names.cut {
        let what = format!(
            "{}: more than {MAX_BUNDLES} bundles; the others are not read",
            folder.display()
        );
        listing.unread.push(what);
    }
    let mut bundles = Vec::new();
    for entry in names.entries {
        let id = entry.text().filter(|name| is_id(name));
        if let Some(id) = id
            && matches!(entry.kind, FileType::Directory | FileType::Unknown)
        {
            let inside = folder.join(id).join(layout.inside);
            match read_bundle(root, &inside, id, layout) {
                Ok(bundle) => bundles.extend(bundle),
                Err(error) if listing.unread.len() < MAX_UNREAD => {
                    listing
                        .unread
                        .push(problem(&inside.join("config.json"), &error));
                }
                Err(_) => {}
            }
        }
    }
    believe_pids(&mut bundles, procfs);
    listing.sandboxes = group(bundles);
    for sandbox in &mut listing.sandboxes {
        sandbox.netns = cri::netns(sandbox, root, procfs).map(|inode| Netns {
            inode,
            cookie: None,
        });
    }
    Some(listing)
}

fn problem(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// One container; `None` if it is of no pod, or has gone.
fn read_bundle(root: &Root, folder: &Path, id: &str, layout: Layout) -> io::Result<Option<Bundle>> {
    let Found::File(content) = root.read(&folder.join("config.json"), MAX_SPEC)? else {
        return Ok(None);
    };
    // serde_json's message could quote what it does not understand.
    let spec: Spec = serde_json::from_slice(&content.bytes).map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "it is no OCI runtime specification",
        )
    })?;
    let Some(role) = spec.role(layout.writer, id) else {
        return Ok(None);
    };
    // Without it the container is still known.
    let pid = match root.read(&folder.join(layout.pid), MAX_PID) {
        Ok(Found::File(content)) => String::from_utf8(content.bytes).ok(),
        Ok(Found::Missing | Found::Folder) | Err(_) => None,
    };
    Ok(Some(Bundle {
        id: id.to_owned(),
        role,
        spec,
        written: content.modified,
        pid: pid
            .and_then(|text| text.trim().parse().ok())
            .filter(|pid| *pid > 0),
    }))
}

/// Drops the process IDs that are another process's by now.
fn believe_pids(bundles: &mut [Bundle], procfs: &Procfs) {
    let pids: Vec<u32> = bundles.iter().filter_map(|bundle| bundle.pid).collect();
    let mut owners = procfs.task_owners(pids).into_iter();
    for bundle in bundles.iter_mut().filter(|bundle| bundle.pid.is_some()) {
        let container = match owners.next() {
            Some(Owner::Pod(owner)) => owner.container_id,
            Some(Owner::NoPod | Owner::Unknown) | None => None,
        };
        if container.as_ref() != Some(&bundle.id) {
            bundle.pid = None;
        }
    }
}

/// Sandboxes with their containers. A container whose sandbox has no folder
/// any more shows that there was one.
fn group(bundles: Vec<Bundle>) -> Vec<RuntimeSandbox> {
    let mut sandboxes: BTreeMap<String, RuntimeSandbox> = BTreeMap::new();
    let (own, others): (Vec<_>, Vec<_>) =
        bundles.into_iter().partition(|bundle| bundle.role.sandbox);
    for bundle in own {
        let network = bundle.spec.network();
        sandboxes.insert(
            bundle.id.clone(),
            RuntimeSandbox {
                id: bundle.id,
                ips: bundle.spec.ips(),
                host_network: network == Some(Network::Host),
                netns_path: match network {
                    Some(Network::At(path)) => Some(path),
                    Some(Network::Host | Network::Own) | None => None,
                },
                pod: bundle.role.pod,
                created: Some(bundle.written),
                pid: bundle.pid,
                ..RuntimeSandbox::default()
            },
        );
    }
    for bundle in others {
        let Role {
            sandbox_id,
            pod,
            name,
            ..
        } = bundle.role;
        let sandbox = sandboxes
            .entry(sandbox_id.clone())
            .or_insert_with(|| RuntimeSandbox {
                id: sandbox_id,
                pod,
                ..RuntimeSandbox::default()
            });
        sandbox.containers.push(RuntimeContainer {
            id: bundle.id,
            name,
            state: None,
            pid: bundle.pid,
        });
    }
    sandboxes.into_values().collect()
}
