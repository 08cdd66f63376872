//! The record layout that kernel programs and the tracer share.
//!
//! Everything here is `repr(C)` with explicit padding and no `bool` or `enum`,
//! so that a record is the same bytes on both sides; the assertions at the end
//! of each module and the tests keep it so. The library has no dependencies
//! and is compiled for the host and for eBPF alike. The programs themselves
//! are in the binary target (`main.rs`, `probes/`).

#![no_std]

pub mod layout;
pub mod record;

/// Names of the maps that the tracer opens.
pub mod map {
    /// Ring buffer with everything that happens ([`record`](crate::record)).
    pub const EVENTS: &str = "EVENTS";
    /// Ring buffer of untrusted callers' CNI records, so that they displace
    /// each other only. It wakes nobody.
    pub const STRANGERS: &str = "STRANGERS";
    /// What untrusted callers did beyond their budget, by
    /// [`record::Owner`](crate::record::Owner).
    pub const CALLERS: &str = "CALLERS";
    /// Mount namespaces that the host and its runtimes are in, by inode number.
    pub const HOMES: &str = "HOMES";
    /// CNI plugins that run, by process ID, with the time of their start.
    pub const CNI_RUNNING: &str = "CNI_RUNNING";
    /// The same for untrusted callers.
    pub const CNI_STRANGERS: &str = "CNI_STRANGERS";
    /// How many entries of [`BLOCKED`] each crowd has
    /// ([`record::Owner::crowd`](crate::record::Owner::crowd)).
    pub const CROWDS: &str = "CROWDS";
    /// Arguments that a return probe will want.
    pub const ARGUMENTS: &str = "ARGUMENTS";
    /// Ring buffer that the namespace walk fills on demand.
    pub const WALK: &str = "WALK";
    /// Per-CPU counters of records that could not be handed over.
    pub const LOST: &str = "LOST";
    /// Tasks in uninterruptible sleep, by thread ID.
    pub const BLOCKED: &str = "BLOCKED";
    /// How many they are. The tracer maps it, and counts what it adds and
    /// strikes out itself.
    pub const ASLEEP: &str = "ASLEEP";
    /// Where the kernel keeps its pages
    /// ([`record::PageProbe`](crate::record::PageProbe)).
    pub const PAGES: &str = "PAGES";
    /// What the next walk is to do ([`record::WalkRequest`](crate::record::WalkRequest)).
    pub const WALK_REQUEST: &str = "WALK_REQUEST";
}
