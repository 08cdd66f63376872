//! How things are named and spelt wherever people read them.

pub(crate) mod duration;
pub(crate) mod escape;
pub(crate) mod plural;
pub(crate) mod signal;
pub(crate) mod stack;
pub(crate) mod subjects;
