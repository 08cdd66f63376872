//! What is done inside a node's namespaces before the cluster's programs start.
//!
//! kubelet sets sysctls that are the whole machine's (`vm.overcommit_memory`,
//! `kernel.panic`, ...). On a node of the stage each of them is a file of the
//! node's, mounted over the real one: so they cannot be left changed, whoever is
//! killed and however. [`changed`] makes sure of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Context as _;

use crate::containerd::Containerd;
use crate::kubepods::hierarchies;
use crate::syscall::{enter, mount};

/// What kubelet sets of the machine's (setupKernelTunables in its source).
const SYSCTLS: [&str; 6] = [
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];

/// The node's address, by which kubelet is known. (Of the addresses for testing
/// of RFC 2544; pods have others.)
pub(super) const ADDRESS: &str = "198.18.255.1";

/// The machine before any kubelet of the stage.
#[derive(Debug)]
struct Before {
    sysctls: Vec<(&'static str, String)>,
    kubepods: Vec<PathBuf>,
}

static BEFORE: OnceLock<Before> = OnceLock::new();

fn sysctls() -> Vec<(&'static str, String)> {
    let value = |name| fs::read_to_string(Path::new("/proc/sys").join(name)).ok();
    let all = SYSCTLS.into_iter();
    all.filter_map(|name| Some((name, value(name)?))).collect()
}

/// The cgroups that kubelet makes where nobody told it of a root.
fn kubepods() -> Vec<PathBuf> {
    let all = hierarchies().into_iter();
    let folders = all.map(|hierarchy| hierarchy.join("kubepods"));
    folders.filter(|folder| folder.is_dir()).collect()
}

/// What of the machine's own is not as it was before the first kubelet of this
/// process; nothing if there was none.
pub(crate) fn changed() -> Vec<String> {
    BEFORE.get().map_or_else(Vec::new, Before::changed)
}

impl Before {
    fn now() -> Self {
        Self {
            sysctls: sysctls(),
            kubepods: kubepods(),
        }
    }

    fn changed(&self) -> Vec<String> {
        let now = Self::now();
        let other = now.sysctls.iter().filter(|now| !self.sysctls.contains(now));
        let other = other.map(|(name, value)| format!("sysctl {name} is {}", value.trim()));
        let made = now.kubepods.iter();
        let made = made.filter(|folder| !self.kubepods.contains(folder));
        let made = made.map(|folder| folder.display().to_string());
        other.chain(made).collect()
    }
}

/// Makes a node ready for the cluster's programs, by a helper process.
pub(super) fn prepare(node: &Containerd) -> anyhow::Result<()> {
    BEFORE.get_or_init(Before::now);
    super::run_helper(&[&node.pid().to_string()]).context("prepare the node for kubelet")
}

/// The helper itself, which has one thread.
pub(crate) fn serve(node: u32) -> anyhow::Result<()> {
    let open = |kind: &str| {
        let path = format!("/proc/{node}/ns/{kind}");
        fs::File::open(&path).context(path)
    };
    let (netns, mounts) = (open("net")?, open("mnt")?);
    enter(&netns, libc::CLONE_NEWNET).context("enter the node's network")?;
    enter(&mounts, libc::CLONE_NEWNS).context("enter the node's mounts")?;
    // As systemd makes a node's root: what is mounted on it comes to pods that
    // ask for that (HostToContainer).
    mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_SHARED)?;
    for (name, value) in sysctls() {
        let own = Path::new("/run/sysctl").join(name);
        let folder = own.parent().context("no folder")?;
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        fs::write(&own, value).with_context(|| own.display().to_string())?;
        let real = Path::new("/proc/sys").join(name);
        mount(Some(&own), &real, None, libc::MS_BIND)?;
    }
    // No other device is needed, and no route: nothing can leave.
    let address = format!("{ADDRESS}/32");
    let added = Command::new("ip")
        .args(["address", "add", &address, "dev", "lo"])
        .status()
        .context("start ip")?;
    anyhow::ensure!(added.success(), "ip address add {address}: {added}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_sysctl_and_a_new_cgroup_are_told() {
        let mut before = Before::now();
        assert_eq!(before.changed(), Vec::<String>::new());
        let (name, value) = before.sysctls.first_mut().unwrap();
        let told = format!("sysctl {name} is {}", value.trim());
        value.push('1');
        assert_eq!(before.changed(), [told]);
    }
}
