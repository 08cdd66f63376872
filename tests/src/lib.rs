//! The stage: real kernel objects for the tests and for `cargo xtask demo`.
//!
//! Everything here is made in the kernel for real: network namespaces, veth
//! pairs, cgroups, a file system whose read never returns, processes in
//! uninterruptible sleep, runs of the real CNI plugins. Each object is a guard
//! that removes it when it is dropped, so that a failure, a panic and Ctrl-C
//! ([`wait::catch_signals`]) all leave the machine as it was. All names carry
//! the process ID (`nt-test-PID-…`); all devices and all traffic are inside
//! namespaces made here, never in the host's own.
//!
//! | module | holds |
//! |---|---|
//! | [`incident`] | the whole story of a force-deleted pod, step by step |
//! | [`stage`] | what the stage needs; what a run left behind |
//! | [`netns`], [`cgroup`], [`kubepods`], [`hangfs`], [`frozen`], [`freezer`], [`process`], [`keeper`], [`rtnl`] | one kind of kernel object each |
//! | [`network`], [`cni`], [`runtime`] | a pod's interface and address, by CNI or by hand |
//! | [`containerd`], [`cri`] | a node with a real container runtime, and the client for it |
//! | [`kube`] | etcd, the API server and kubelet on such a node |
//! | [`recorder`], [`scripted`], [`terway`] | CNI plugins that write down what they do, or do what other products do |
//! | [`calls`] | programs with a plugin's variables, many of them |
//! | [`stuck`] | a thousand tasks in uninterruptible sleep at once |
//! | [`small_disk`] | a disk that is soon full |
//! | [`bare`], [`scripted_cri`] | a node without a runtime, and the socket of one by script |
//! | [`crowd`] | thousands of namespaces and tasks |
//! | [`pods`] | the list that `kubectl get pods -A -o json` would print |
//! | [`journald`] | a systemd-journald of one's own |
//! | [`collect`] | what collects from nodes: a remote journal, Prometheus |
//! | [`terminal`] | a pseudo terminal |
//! | [`paste`] | a root's shell on a node, for the commands of advice |
//! | [`tracer`], [`snapshot_run`] | the tracer under test: running, or one run to its end |
//! | [`links`] | BPF links of a process, and what others can do to them |
//! | [`rights`] | programs with fewer rights than root has |
//! | [`harness`] | runs the integration tests |
//! | [`guest`] | what runs in the guests of `cargo xtask vm` |
//!
//! A program that uses the stage calls [`helper::act_if_asked`] first thing in
//! `main`: the helper processes are that same program again.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the harness and the helper processes speak on stdout and stderr"
)]

// Registers the integration tests.
#[doc(hidden)]
pub use linkme;

pub mod bare;
pub mod calls;
pub mod cgroup;
pub mod cni;
pub mod collect;
pub mod containerd;
pub mod cri;
pub mod crowd;
pub mod flood;
pub mod freezer;
pub mod frozen;
mod fuse;
pub mod guest;
pub mod hangfs;
pub mod harness;
pub mod helper;
pub mod incident;
pub mod journald;
pub mod keeper;
pub mod kube;
pub mod kubepods;
pub mod links;
pub mod manifest;
pub mod memory;
pub mod netns;
pub mod network;
mod own_root;
pub mod paste;
pub mod picture;
pub mod pods;
pub mod process;
pub mod recorder;
pub mod rights;
pub mod rtnl;
pub mod runtime;
pub mod scratch;
pub mod scripted;
pub mod scripted_cri;
pub mod small_disk;
pub mod snapshot_run;
pub mod stage;
pub mod stuck;
mod syscall;
pub mod terminal;
pub mod terway;
pub mod tracer;
pub mod wait;
