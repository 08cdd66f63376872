//! The kernel programs: [`ebpf`] loads them and reads what they write, [`live`]
//! makes events of it.

pub mod ebpf;
pub mod live;
