//! The kernel side as a source: what the kernel offers ([`facts`]), what is
//! made of that ([`plan`]), the loaded programs ([`Attached`]), their records
//! ([`records`]) and what they are asked for ([`inventory`], [`stalls`]).
//!
//! Nothing here interprets: records are handed on as they are, and
//! [`live`](super::live) makes events of them.

mod asleep;
mod attached;
pub(crate) mod btf;
pub(crate) mod callers;
pub(crate) mod facts;
pub(crate) mod inventory;
mod missed;
mod pages;
pub(crate) mod plan;
mod probes;
pub(crate) mod records;
pub(crate) mod stalls;
pub(crate) mod symbols;

pub(crate) use attached::{Attached, Wanted, use_takes_capability};
pub(crate) use probes::{ProbeError, Probes};
