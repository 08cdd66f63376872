//! Which network namespace is the node's.
//!
//! A node can be in a namespace itself: beside others on one machine, as in kind.
//! Its pods are plugged in where its container runtime runs. That is who listens
//! on the runtime's socket, as the kernel tells who connects; or who calls CNI
//! plugins. Where neither is known, it is the namespace of process 1.

use std::collections::HashMap;

use crate::procfs::Procfs;

/// Callers that are remembered.
const MAX_CALLERS: usize = 16;

/// The node's network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeNetns {
    pub inode: u32,
    /// A process in it.
    pub pid: u32,
}

impl NodeNetns {
    /// That of a process.
    pub fn of(pid: u32, netns_of: impl FnOnce(u32) -> Option<u32>) -> Option<Self> {
        netns_of(pid).map(|inode| Self { inode, pid })
    }
}

/// The first that is known: of who listens on the runtime's socket, of who calls CNI
/// plugins, of process 1.
pub fn choose(
    listener: Option<NodeNetns>,
    caller: Option<NodeNetns>,
    first: Option<NodeNetns>,
) -> Option<NodeNetns> {
    listener.or(caller).or(first)
}

/// What a tracer learns of it while it runs.
#[derive(Debug)]
pub struct Home {
    procfs: Procfs,
    /// Processes by which it is known, with their namespaces.
    listener: Option<NodeNetns>,
    caller: Option<NodeNetns>,
    first: Option<NodeNetns>,
    /// The namespaces that callers are in, by process.
    callers: HashMap<u32, Option<NodeNetns>>,
}

impl Home {
    pub fn new(procfs: Procfs) -> Self {
        Self {
            first: NodeNetns::of(1, |pid| procfs.netns_of(pid)),
            procfs,
            listener: None,
            caller: None,
            callers: HashMap::new(),
        }
    }

    /// This process listens on the runtime's socket. One that is gone has told all
    /// that it could.
    pub fn listens(&mut self, pid: u32) {
        if self.listener.is_none_or(|known| known.pid != pid)
            && let Some(netns) = NodeNetns::of(pid, |pid| self.procfs.netns_of(pid))
        {
            self.listener = Some(netns);
        }
    }

    /// This process calls CNI plugins that are trusted.
    pub fn calls(&mut self, pid: u32) {
        if self.callers.len() >= MAX_CALLERS {
            self.callers.clear();
        }
        let procfs = &self.procfs;
        let netns = self.callers.entry(pid);
        let of = || NodeNetns::of(pid, |pid| procfs.netns_of(pid));
        self.caller = netns.or_insert_with(of).or(self.caller);
    }

    pub fn node(&self) -> Option<NodeNetns> {
        choose(self.listener, self.caller, self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_where_its_runtime_is_else_who_calls_plugins_else_process_1() {
        let netns = |pid| {
            Some(NodeNetns {
                inode: 5 + pid,
                pid,
            })
        };
        assert_eq!(choose(netns(60), netns(70), netns(1)), netns(60));
        assert_eq!(choose(None, netns(70), netns(1)), netns(70));
        assert_eq!(choose(None, None, netns(1)), netns(1));
    }

    #[test]
    fn a_runtime_that_starts_anew_leaves_the_node_where_it_is() {
        let procfs = Procfs::new(std::path::Path::new("/"), crate::procfs::Bounded::default());
        let own = std::process::id();
        let mut home = Home::new(procfs);
        home.listens(own);
        let node = home.node();
        assert_eq!(node.map(|it| it.pid), Some(own));
        home.listens(u32::MAX);
        assert_eq!(home.node(), node);
    }
}
