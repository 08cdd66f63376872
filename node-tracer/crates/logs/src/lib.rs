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

#![forbid(unsafe_code)]

pub mod block;
pub mod entry;
pub mod failures;
#[cfg(feature = "testing")]
pub mod fuzz;
#[cfg(test)]
mod hostile;
pub mod kubectl;
pub mod meaning;

pub mod read;
