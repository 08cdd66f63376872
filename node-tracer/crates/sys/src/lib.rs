//! What the system gives a process: its clocks, its privileges, threads that
//! may hang, the few system calls that need `unsafe`.

pub mod apart;
pub mod clock;
pub mod privileges;
pub mod share;
pub mod syscall;
