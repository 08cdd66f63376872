//! Cgroups shaped like those of a pod, below a private top folder.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use crate::scratch::own_prefix;
use crate::wait;

/// The cgroup of one container, in each hierarchy that the machine has:
/// `/nt-test-PID/kubepods/besteffort/podUID/CONTAINER-ID`.
///
/// kubelet's own would be without the first part (its cgroupRoot can add
/// such a one); with it nothing real is touched.
#[derive(Debug)]
pub struct Cgroup {
    path: String,
    /// (mount point of a hierarchy, whether this cgroup was made in it).
    roots: Vec<PathBuf>,
}

/// Mount points of the hierarchies to use, from the text of mountinfo: cgroup2,
/// and of version 1 the two by which tools go, `name=systemd` and `pids`.
fn hierarchies(mountinfo: &str) -> Vec<PathBuf> {
    let wanted = |line: &str| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = file_system.split(' ');
        let kind = fields.next()?;
        let options = fields.nth(1).unwrap_or_default();
        let version_1 = || {
            options
                .split(',')
                .any(|option| matches!(option, "name=systemd" | "pids"))
        };
        (kind == "cgroup2" || kind == "cgroup" && version_1())
            .then(|| mount.split(' ').nth(4).map(PathBuf::from))?
    };
    let mut found: Vec<PathBuf> = mountinfo.lines().filter_map(wanted).collect();
    found.sort();
    found.dedup();
    found
}

/// Mount points of the hierarchies of this machine.
pub(crate) fn roots() -> Vec<PathBuf> {
    hierarchies(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

impl Cgroup {
    /// Makes it for this container of this pod.
    pub fn create(pod_uid: &str, container_id: &str) -> anyhow::Result<Self> {
        Self::create_below("", pod_uid, container_id)
    }

    /// The same where the kubelet is in this cgroup, that of a container say:
    /// `/docker/ID/kubelet`.
    pub fn create_below(kubelet: &str, pod_uid: &str, container_id: &str) -> anyhow::Result<Self> {
        let roots = roots();
        anyhow::ensure!(!roots.is_empty(), "no cgroup hierarchy is mounted");
        let top = own_prefix();
        let path = format!("/{top}{kubelet}/kubepods/besteffort/pod{pod_uid}/{container_id}");
        // A guard from the start, so that what was made before a failure goes away.
        let this = Self { path, roots };
        for folder in this.folders() {
            fs::create_dir_all(&folder).with_context(|| format!("mkdir {}", folder.display()))?;
        }
        Ok(this)
    }

    /// Its path inside each hierarchy, as /proc/PID/cgroup shows it.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn folders(&self) -> impl Iterator<Item = PathBuf> {
        self.roots
            .iter()
            .map(|root| root.join(self.path.trim_start_matches('/')))
    }

    /// The files to write a PID to.
    pub fn procs(&self) -> Vec<PathBuf> {
        self.folders()
            .map(|folder| folder.join("cgroup.procs"))
            .collect()
    }

    /// Puts a process into it, in every hierarchy.
    pub fn enter(&self, pid: u32) -> anyhow::Result<()> {
        for procs in self.procs() {
            fs::write(&procs, pid.to_string())
                .with_context(|| format!("write {pid} to {}", procs.display()))?;
        }
        Ok(())
    }
}

fn gone(folder: &Path) -> bool {
    match fs::remove_dir(folder) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for (root, leaf) in self.roots.iter().zip(self.folders()) {
            // The last process may be on its way out still.
            if !wait::settle(Duration::from_secs(5), || gone(&leaf)) {
                eprintln!(
                    "stage: cannot remove {}: a process is in it",
                    leaf.display()
                );
                continue;
            }
            // The folders above, up to one that another container still uses.
            let mut above = leaf.parent();
            while let Some(folder) = above.filter(|folder| *folder != root && gone(folder)) {
                above = folder.parent();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hybrid_machines_have_three_hierarchies_of_interest() {
        let mountinfo = "\
            39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n\
            35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
            40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n\
            42 31 0:39 / /proc rw - proc proc rw\n";
        let expected =
            ["pids", "systemd", "unified"].map(|name| Path::new("/sys/fs/cgroup").join(name));
        assert_eq!(hierarchies(mountinfo), expected);
    }

    #[test]
    fn a_pure_version_2_machine_has_one() {
        let mountinfo = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(hierarchies(mountinfo), [Path::new("/sys/fs/cgroup")]);
    }
}
