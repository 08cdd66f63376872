//! What others can do to the programs of a tracer: BPF links by their IDs.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use crate::process;

const BPF_LINK_GET_FD_BY_ID: libc::c_int = 30;
const BPF_LINK_DETACH: libc::c_int = 34;

/// The IDs of a process's links.
pub fn of_process(pid: u32) -> anyhow::Result<Vec<u32>> {
    process::fd_numbers(pid, "link_id:")
}

/// Detaches a link, as anybody with the rights can.
pub fn detach(id: u32) -> io::Result<()> {
    let fd = bpf(BPF_LINK_GET_FD_BY_ID, id)?;
    // SAFETY: the kernel has just made this descriptor, and nobody else has it.
    let link = unsafe { OwnedFd::from_raw_fd(fd) };
    bpf(BPF_LINK_DETACH, link.as_raw_fd() as u32).map(drop)
}

/// bpf(2) with an argument that is one number.
fn bpf(command: libc::c_int, argument: u32) -> io::Result<libc::c_int> {
    let mut attribute = [0_u32; 32];
    attribute[0] = argument;
    // SAFETY: both commands read a number at the start of the attribute, which
    // is of the size that is told, and zero otherwise.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attribute.as_ptr(),
            size_of_val(&attribute),
        )
    };
    match result {
        0.. => Ok(result as libc::c_int),
        _ => Err(io::Error::last_os_error()),
    }
}
