//! What `repair` says: plans, and what became of them.

pub mod outcome;
pub mod plan;
