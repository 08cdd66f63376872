//! Logs that nobody traced: what the kubelet, container runtimes, CNI plugins
//! and the kernel have written down, as events.
//!
//! ```text
//! file, pipe  ->  read: lines, folded ones joined, dates completed  ->  Entry
//! Entry       ->  meaning, failures                                 ->  Event
//! plain text  ->  kubectl (describe, get events)                    ->  Event
//! ```
//!
//! Nothing of a log is believed beyond what it says: a line's time, host and
//! writer are the log's own word.

pub(crate) mod block;
pub(crate) mod entry;
pub(crate) mod failures;
#[cfg(fuzzing)]
pub(crate) mod fuzz;
pub(crate) mod kubectl;
pub(crate) mod meaning;

pub(crate) mod read;
