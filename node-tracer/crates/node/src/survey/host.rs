//! Which network namespaces are the host's own, and which of them is the node's
//! ([`home`]).

use std::collections::BTreeSet;

use crate::{
    home::{self, NodeNetns},
    procfs::{Procfs, TaskEntry},
};

/// The host's namespaces, by inode.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) all: BTreeSet<u32>,
    /// The node's.
    pub(super) node: Option<u32>,
}

/// The namespaces of the kernel's own threads, of process 1 and of the process that
/// listens on the runtime's socket: on a node that is a container itself (kind),
/// the first cannot be seen.
pub(super) fn netns(tasks: &[TaskEntry], runtime: Option<u32>, unread: &mut Vec<String>) -> Host {
    let of_process = |pid: u32| {
        let leader = tasks.iter().find(|entry| entry.task.tid == pid);
        leader.and_then(|entry| entry.netns)
    };
    let kernel = tasks.iter().filter(|entry| entry.kernel);
    let kernel = kernel.clone().find_map(|entry| entry.netns);
    // Of a namespace of processes that is not the host's.
    if !tasks.iter().any(|entry| entry.kernel) {
        unread.push(String::from(
            "processes outside the tracer's own PID namespace, which is not the host's",
        ));
    }
    let first = of_process(1);
    let mut host: BTreeSet<u32> = kernel.into_iter().chain(first).collect();
    if host.is_empty() {
        // Both are guarded even from root. The tracer itself is the best guess
        // that is left: a wrong one takes a pod's namespace for the host's.
        host.extend(Procfs::own_netns());
        unread.push(String::from(
            "the network namespaces of process 1 and of the kernel's threads: the tracer's own is taken for the host's",
        ));
    }
    let netns = |pid: u32| NodeNetns::of(pid, of_process);
    let node = home::choose(runtime.and_then(netns), None, netns(1));
    let node = node.map(|node| node.inode);
    let node = node.or_else(|| host.first().copied());
    host.extend(node);
    Host { all: host, node }
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::Task;

    fn task(tid: u32, kernel: bool, netns: Option<u32>) -> TaskEntry {
        TaskEntry {
            task: Task {
                pid: tid,
                tid,
                ..Task::default()
            },
            netns,
            kernel,
        }
    }

    fn host(tasks: &[TaskEntry], runtime: Option<u32>) -> (Vec<u32>, Option<u32>, usize) {
        let mut unread = Vec::new();
        let Host { all, node } = netns(tasks, runtime, &mut unread);
        (all.into_iter().collect(), node, unread.len())
    }

    #[test]
    fn the_host_is_where_the_kernels_threads_and_process_1_are() {
        let pod = task(70, false, Some(9));
        let whole = [task(1, false, Some(5)), task(2, true, Some(5)), pod.clone()];
        assert_eq!(host(&whole, None), (vec![5], Some(5), 0));
        let guarded = [
            task(1, false, None),
            task(2, true, None),
            task(3, true, Some(5)),
            pod.clone(),
        ];
        assert_eq!(host(&guarded, None), (vec![5], Some(5), 0));
        let container = [task(1, false, Some(5)), pod.clone()];
        assert_eq!(host(&container, None), (vec![5], Some(5), 1));
        let (own, node, unread) = host(&[task(1, false, None), task(2, true, None), pod], None);
        assert_eq!((own.len(), unread), (1, 1));
        assert_ne!(node, Some(9));
    }

    #[test]
    fn the_node_is_where_the_runtime_is() {
        let tasks = [
            task(1, false, Some(5)),
            task(2, true, Some(5)),
            task(60, false, Some(7)),
            task(70, false, Some(9)),
        ];
        assert_eq!(host(&tasks, Some(60)), (vec![5, 7], Some(7), 0));
        assert_eq!(host(&tasks, Some(61)), (vec![5], Some(5), 0), "it is gone");
    }
}
