//! The kernel side as a source: what the kernel offers ([`facts`]), what is
//! made of that ([`plan`]), the loaded programs ([`Attached`]), their records
//! ([`records`]) and what they are asked for ([`inventory`], [`stalls`]).
//!
//! Nothing here interprets: records are handed on as they are, and
//! [`live`](crate::live) makes events of them.

mod asleep;
mod attached;
pub mod btf;
pub mod callers;
pub mod facts;
pub mod inventory;
mod missed;
mod pages;
pub mod plan;
mod probes;
pub mod records;
pub mod stalls;
pub mod symbols;

pub use attached::{Attached, Wanted, use_takes_capability};
pub use probes::{LoadError, ProbeError, Probes};
