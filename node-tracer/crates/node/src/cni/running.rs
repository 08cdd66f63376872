//! CNI plugins that run right now, and for which containers.
//!
//! host-local reserves long before a runtime lists the sandbox, and a chain of
//! plugins can take minutes after that. What tells of such a call is its own
//! process: the variables that it was started with stay in
//! `/proc/PID/environ`.
//!
//! Only processes with a plugin's name are asked, as a file of a stuck process
//! can hang, and none that a user has started: the runtime's are root's. Root in
//! a container can take such a name: it can keep a reservation from being called
//! leaked by that, never the other way round.

use std::{collections::BTreeSet, io::Read as _, path::Path, thread, time::Duration};

use crate::{
    procfs::{Owner, Procfs, ProcfsError},
    root::Root,
};
use event::Network;

/// Where plugins are installed.
const FOLDERS: [&str; 4] = [
    "/opt/cni/bin",
    "/usr/lib/cni",
    "/usr/libexec/cni",
    "/var/lib/rancher/k3s/data/cni",
];

/// Those that are known whatever the folders say.
const KNOWN: [&str; 18] = [
    "aws-cni",
    "bandwidth",
    "bridge",
    "calico",
    "calico-ipam",
    "cilium-cni",
    "firewall",
    "flannel",
    "host-device",
    "host-local",
    "ipvlan",
    "macvlan",
    "multus",
    "portmap",
    "ptp",
    "terway",
    "tuning",
    "whereabouts",
];

/// Names that are taken from a folder.
const MAX_NAMES: usize = 256;
/// The kernel keeps so much of a process's name.
const COMM: usize = 15;
/// Largest environment that is read.
const MAX_ENVIRON: u64 = 1 << 20;
/// How long one process's environment may take.
const PATIENCE: Duration = Duration::from_millis(300);
/// A program that has just been started has no environment yet.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(4);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// The containers that they were called for (`CNI_CONTAINERID`).
    pub containers: BTreeSet<String>,
    /// Those of which that cannot be read: each may be for any container.
    pub unread: Vec<String>,
}

/// What the environment of a process says.
#[derive(Debug, PartialEq, Eq)]
enum Called {
    For(String),
    /// It is no plugin, or is called for no container.
    ForNone,
    Gone,
    /// There is nothing in it.
    Empty,
}

/// The plugins that run.
///
/// # Errors
/// The tasks cannot be listed.
pub fn running(root: &Root, procfs: &Procfs, networks: &[Network]) -> Result<Running, ProcfsError> {
    let names = names(root, networks);
    let tasks = procfs.tasks()?;
    let mut running = Running::default();
    if tasks.missed.count > 0 {
        running.unread.extend(
            tasks
                .missed
                .say(|n| format!("the tasks of {n} processes, which may be CNI plugins")),
        );
    }
    let plugins = tasks.list.into_iter().map(|entry| entry.task);
    let plugins = plugins.filter(|task| task.tid == task.pid && names.contains(&task.comm));
    for task in plugins.filter(|task| !procfs.is_users(task.pid)) {
        match ask(procfs, task.pid) {
            Some(Called::For(id)) => drop(running.containers.insert(id)),
            Some(Called::ForNone | Called::Gone) => {}
            // A container's own processes are no plugins of the node's.
            Some(Called::Empty) | None if is_contained(procfs, task.pid) => {}
            Some(Called::Empty) | None => running.unread.push(format!(
                "for which container {}[{}] was called: its environment cannot be read",
                task.comm, task.pid
            )),
        }
    }
    Ok(running)
}

/// Names that plugins have, as the kernel cuts them.
fn names(root: &Root, networks: &[Network]) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = KNOWN.into_iter().map(str::to_owned).collect();
    for network in networks {
        names.insert(network.plugin.clone());
        names.extend(network.ipam.clone());
    }
    for folder in FOLDERS {
        let listing = root.folder(Path::new(folder)).ok().flatten();
        let listing = listing.and_then(|folder| folder.list(MAX_NAMES).ok());
        let entries = listing.map(|listing| listing.entries).unwrap_or_default();
        names.extend(
            entries
                .iter()
                .filter_map(|entry| entry.text().map(str::to_owned)),
        );
    }
    let cut = |name: String| match name.char_indices().nth(COMM) {
        Some((end, _)) => name[..end].to_owned(),
        None => name,
    };
    names.into_iter().map(cut).collect()
}

fn is_contained(procfs: &Procfs, pid: u32) -> bool {
    let owners = procfs.task_owners(vec![pid]);
    matches!(owners.as_slice(), [Owner::Pod(owner)] if owner.container_id.is_some())
}

/// `None` if it does not answer or cannot be read.
fn ask(procfs: &Procfs, pid: u32) -> Option<Called> {
    let path = procfs.folder().join(pid.to_string()).join("environ");
    for _ in 0..TRIES {
        let read = |path: &Path| Ok(read(path));
        match procfs.bounded(PATIENCE, path.clone(), read).ok()? {
            Some(Called::Empty) => thread::sleep(PAUSE),
            other => return other,
        }
    }
    // One that has ended and was not waited for has none either.
    match procfs.task(pid) {
        Some(entry) if entry.task.state != Some('Z') => Some(Called::Empty),
        _ => Some(Called::Gone),
    }
}

fn read(path: &Path) -> Option<Called> {
    let mut bytes = Vec::new();
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if is_gone(&error) => return Some(Called::Gone),
        Err(_) => return None,
    };
    match file.take(MAX_ENVIRON).read_to_end(&mut bytes) {
        Ok(_) => Some(called(&bytes)),
        Err(error) if is_gone(&error) => Some(Called::Gone),
        Err(_) => None,
    }
}

fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

fn called(environ: &[u8]) -> Called {
    if environ.is_empty() {
        return Called::Empty;
    }
    let mut variables = environ.split(|byte| *byte == 0);
    let id = variables.find_map(|each| each.strip_prefix(b"CNI_CONTAINERID="));
    match id.map(String::from_utf8_lossy) {
        Some(id) if !id.is_empty() => Called::For(id.into_owned()),
        _ => Called::ForNone,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::{fs::PermissionsExt, process::CommandExt as _},
        process::{Child, Command, Stdio},
    };

    use super::*;
    use crate::procfs::Bounded;

    #[test]
    fn the_container_is_found_wherever_it_is_in_the_environment() {
        let id = |text: &[u8]| called(text);
        assert_eq!(
            id(b"PATH=/bin\0CNI_CONTAINERID=abc\0CNI_COMMAND=ADD\0"),
            Called::For(String::from("abc"))
        );
        assert_eq!(id(b"X_CNI_CONTAINERID=abc\0"), Called::ForNone);
        assert_eq!(id(b"CNI_COMMAND=VERSION\0"), Called::ForNone);
        assert_eq!(id(b""), Called::Empty);
    }

    struct Plugin(Child);

    impl Drop for Plugin {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_plugin_that_runs_is_found_with_its_container() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("host-local");
        std::fs::copy("/bin/sleep", &program).unwrap();
        let start = |id: &str| {
            let mut command = Command::new(&program);
            command.arg("60").env_clear().env("CNI_CONTAINERID", id);
            Plugin(command.stdin(Stdio::null()).spawn().unwrap())
        };
        let plugin = start("nt-running-1");
        let root = Root::open(folder.path()).unwrap();
        let procfs = Procfs::new(Path::new("/"), Bounded::default());
        let look = || running(&root, &procfs, &[]).unwrap();
        assert!(look().containers.contains("nt-running-1"));
        drop(plugin);
        assert!(!look().containers.contains("nt-running-1"));
    }

    #[test]
    fn what_a_user_has_started_is_no_plugin_whatever_it_is_called() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("bridge");
        std::fs::copy("/bin/sleep", &program).unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let start = |environ: &[(&str, &str)]| {
            let mut command = Command::new(&program);
            command.arg("60").env_clear().envs(environ.iter().copied());
            command.uid(12_345).gid(12_345).stdin(Stdio::null());
            Plugin(command.spawn().unwrap())
        };
        let plugins = [start(&[]), start(&[("CNI_CONTAINERID", "nt-running-2")])];
        let root = Root::open(folder.path()).unwrap();
        let procfs = Procfs::new(Path::new("/"), Bounded::default());
        let running = running(&root, &procfs, &[]).unwrap();
        assert!(!running.containers.contains("nt-running-2"));
        for plugin in &plugins {
            let own = format!("[{}]", plugin.0.id());
            assert!(!running.unread.iter().any(|text| text.contains(&own)));
        }
    }

    #[test]
    fn names_are_cut_as_the_kernel_cuts_them() {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("opt/cni/bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("a-plugin-with-a-long-name"), "").unwrap();
        let root = Root::open(folder.path()).unwrap();
        let network = Network {
            plugin: String::from("my-cni"),
            ..Network::default()
        };
        let names = names(&root, &[network]);
        for name in ["a-plugin-with-a", "my-cni", "host-local"] {
            assert!(names.contains(name), "{name}");
        }
    }
}
