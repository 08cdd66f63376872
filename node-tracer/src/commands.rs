//! What the subcommands do: the command line in, an exit code out.

pub(crate) mod eni;
pub(crate) mod explain;
pub(crate) mod report;
