//! What several rules need to know: read out of the model, with no finding.
//! No rule asks another one.

pub mod calls;
pub mod command;
pub mod common;
pub mod conflicts;
pub mod functions;
pub mod fuse;
pub mod ghosts;
pub mod inner;
pub mod ipam;
pub mod leaks;
pub mod links;
pub mod living;
pub mod own;
pub mod paths;
pub mod reservations;
pub mod rtnl;
pub mod sigkill;
pub mod stack_hint;
pub mod stays;
pub mod unused;
pub mod veth_pairs;
