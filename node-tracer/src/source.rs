//! Where events come from. Each source reads one thing and can be missing; it
//! then says so, and what only it knows is unknown.

pub(crate) mod bundles;
pub(crate) mod cgroup;
pub(crate) mod cni;
pub(crate) mod containers;
pub(crate) mod cri;
pub(crate) mod ebpf;
pub(crate) mod hostlocal;
pub(crate) mod ipam;
pub(crate) mod kube;
pub(crate) mod kubelet;
pub(crate) mod live;
pub(crate) mod logs;
pub(crate) mod netlink;
pub(crate) mod pods;
pub(crate) mod procfs;
pub(crate) mod redact;
pub(crate) mod root;
pub(crate) mod survey;
