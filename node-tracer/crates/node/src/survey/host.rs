//! Which network namespaces are the host's own.

use std::collections::BTreeSet;

use crate::procfs::{Procfs, TaskEntry};

/// The namespaces of the kernel's own threads and of process 1: on a node that
/// is a container itself (kind), only the latter can be seen.
pub(super) fn netns(tasks: &[TaskEntry], unread: &mut Vec<String>) -> BTreeSet<u32> {
    let kernel = tasks.iter().filter(|entry| entry.kernel);
    let kernel = kernel.clone().find_map(|entry| entry.netns);
    // Of a namespace of processes that is not the host's.
    if !tasks.iter().any(|entry| entry.kernel) {
        unread.push(String::from(
            "processes outside the tracer's own PID namespace, which is not the host's",
        ));
    }
    let first = tasks.iter().find(|entry| entry.task.tid == 1);
    let first = first.and_then(|entry| entry.netns);
    let mut host: BTreeSet<u32> = kernel.into_iter().chain(first).collect();
    if host.is_empty() {
        // Both are guarded even from root. The tracer itself is the best guess
        // that is left: a wrong one takes a pod's namespace for the host's.
        host.extend(Procfs::own_netns());
        unread.push(String::from(
            "the network namespaces of process 1 and of the kernel's threads: the tracer's own is taken for the host's",
        ));
    }
    host
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

    fn host(tasks: &[TaskEntry]) -> (Vec<u32>, usize) {
        let mut unread = Vec::new();
        let host = netns(tasks, &mut unread);
        (host.into_iter().collect(), unread.len())
    }

    #[test]
    fn the_host_is_where_the_kernels_threads_and_process_1_are() {
        let pod = task(70, false, Some(9));
        assert_eq!(
            host(&[task(1, false, Some(5)), task(2, true, Some(5)), pod.clone()]),
            (vec![5], 0)
        );
        assert_eq!(
            host(&[
                task(1, false, None),
                task(2, true, None),
                task(3, true, Some(5)),
                pod.clone()
            ]),
            (vec![5], 0),
            "process 1 and one thread are guarded"
        );
        assert_eq!(
            host(&[task(1, false, Some(5)), pod.clone()]),
            (vec![5], 1),
            "a node in a container"
        );
        let (own, unread) = host(&[task(1, false, None), task(2, true, None), pod]);
        assert_eq!((own.len(), unread), (1, 1));
        assert_ne!(own, [9]);
    }
}
