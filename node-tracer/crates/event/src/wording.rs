//! How things are named and spelt wherever people read them.

pub mod duration;
pub mod escape;
pub mod plural;
pub mod signal;
pub mod stack;
pub mod subjects;
