//! What the node's own files, its kernel and its runtime say. Each source reads
//! one thing and can be missing; it then says so, and what only it knows is
//! unknown.

#![cfg_attr(not(test), forbid(unsafe_code))]

pub mod bundles;
pub mod cgroup;
pub mod cni;
pub mod containers;
pub mod cri;
pub mod home;
pub mod hostlocal;
pub mod kubelet;
pub mod netlink;
pub mod pci;
pub mod pods;
pub mod procfs;
pub mod redact;
pub mod root;
pub mod survey;
