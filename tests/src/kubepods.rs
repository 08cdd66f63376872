//! A private `kubepods` in every cgroup hierarchy of the machine, for those
//! who put processes there themselves: a container runtime, or a helper.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::scratch::unique_name;
use crate::wait;

/// `/nt-test-PID-N/kubepods`. Made by whoever uses it; removed on drop, which
/// waits a while for the processes in it to end.
#[derive(Debug)]
pub struct Kubepods {
    top: String,
}

/// Mount points of all hierarchies, whatever their version and controllers.
pub(crate) fn hierarchies() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found: Vec<PathBuf> = text
        .lines()
        .filter_map(|line| {
            let (mount, file_system) = line.split_once(" - ")?;
            let kind = file_system.split(' ').next()?;
            let point = mount.split(' ').nth(4)?;
            matches!(kind, "cgroup" | "cgroup2").then(|| PathBuf::from(point))
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

impl Kubepods {
    /// A name that nobody else has. Nothing is made yet.
    pub fn reserve() -> Self {
        Self { top: unique_name() }
    }

    /// The cgroup of a pod, as kubelet's cgroupfs driver names it, below this.
    pub fn pod(&self, uid: &str) -> String {
        pod_below(&self.top, uid)
    }

    /// Name of the topmost folder.
    pub fn top(&self) -> &str {
        &self.top
    }
}

/// See [`Kubepods::pod`]; for a helper, which knows only the top.
pub(crate) fn pod_below(top: &str, uid: &str) -> String {
    format!("/{top}/kubepods/besteffort/pod{uid}")
}

/// Removes a cgroup with all below it. (Of a cgroup only folders can be removed.)
fn remove(folder: &Path) -> bool {
    let below = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    // Every one, also after a failure.
    let left = folders.filter(|entry| !remove(&entry.path())).count();
    left == 0
        && match fs::remove_dir(folder) {
            Ok(()) => true,
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
}

impl Drop for Kubepods {
    fn drop(&mut self) {
        for folder in hierarchies().iter().map(|root| root.join(&self.top)) {
            if !wait::settle(Duration::from_secs(5), || remove(&folder)) {
                eprintln!(
                    "stage: cannot remove {}: a process is in it",
                    folder.display()
                );
            }
        }
    }
}
