//! Why a pod does not start, by what was said: the one place that knows the
//! words of CNI plugins, runtimes and kubelets.
//!
//! - [`phrase`]: what a phrase is, and how it is found.
//! - `table`: which phrases mean which [`Cause`], in the order in which they
//!   are looked for. A new phrase is a line there and one in `lines.txt`.
//! - `remedy`: what a cause means in a clause, and what to do about it; finer
//!   where a message says more than its cause.
//! - [`speaker`]: whose words are whose in a chain of errors.
//! - [`gate`]: whether a line of a log is about a pod's start at all.

mod cause;
pub mod gate;
pub mod phrase;
mod remedy;
pub mod speaker;
mod table;

pub use self::{
    cause::{Cause, PluginFailure},
    remedy::Remedy,
};

/// Every phrase of the table, as a text in which it is found.
#[cfg(any(test, feature = "testing"))]
pub fn phrases() -> Vec<String> {
    table::phrases()
}
