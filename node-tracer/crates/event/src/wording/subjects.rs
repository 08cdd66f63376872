//! Pods, containers and tasks in a few words.

use crate::{PodRef, Task};

/// `checkout-api (4242)`, with the thread's ID if it is not the first one.
pub fn task_label(task: &Task) -> String {
    let Task { pid, tid, comm, .. } = task;
    if pid == tid {
        format!("{comm} ({pid})")
    } else {
        format!("{comm} ({pid}, thread {tid})")
    }
}

/// As much of a sandbox's or container's ID as crictl shows.
pub fn short_id(id: &str) -> &str {
    id.char_indices()
        .nth(13)
        .and_then(|(end, _)| id.get(..end))
        .unwrap_or(id)
}

/// What stands after the word "pod": its name, or else its UID.
pub fn pod_word(pod: &PodRef) -> String {
    match (&pod.name, &pod.uid) {
        (None, Some(uid)) => uid.clone(),
        _ => pod.label(),
    }
}
