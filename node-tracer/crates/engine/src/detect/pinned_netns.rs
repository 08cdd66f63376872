//! pinned-netns: a pod sandbox's network namespace is kept although nothing
//! runs in it, and no runtime has a sandbox of it that is ready.
//!
//! It is one if all of these are so:
//!
//! 1. no task is in it; a mount, a descriptor or a socket keeps it;
//! 2. it was a pod sandbox's: CNI ADD, libcni's cache or the runtime's folders
//!    say so, or its mount is named as runtimes name those. A namespace that a
//!    person, docker, podman or a service manager made is nobody's business;
//! 3. the container runtime, asked, lists no sandbox of it. One that it lists
//!    as not ready may be on its way out: that must last a minute;
//! 4. it is older than a minute, or it would be a pod's in the making;
//! 5. it is no ghost: those whose pod is gone and whose address is theirs still
//!    are [`ghost_sandbox`](super::ghost_sandbox)'s.
//!
//! If the runtime does not answer, what libcni remembers or CNI ADD said is
//! reported as worth knowing.

mod finding;

use super::{View, facts::unused::verdict};
use event::finding::Finding;

/// One finding a namespace.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let pinned = view.model.netns.live();
    pinned
        .filter_map(|entry| verdict(view, entry))
        .map(|pinned| finding::finding(view, &pinned))
        .collect()
}

#[cfg(test)]
mod tests;
