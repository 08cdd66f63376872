//! What the system gives a process: its clocks, its privileges, threads that
//! may hang.

pub mod apart;
pub mod clock;
pub mod privileges;
