//! A kernel without one of the helpers that programs call: this process
//! answers bpf(2) of another in the kernel's place, where a program calls it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;

use crate::syscall::receive_descriptor;

/// `BPF_FUNC_loop`, of Linux 5.17.
pub const BPF_LOOP: i32 = 181;

/// `BPF_PROG_LOAD`
const LOAD: u64 = 5;
/// Where `union bpf_attr` has the number and the address of the instructions.
const COUNT: usize = 4;
const INSTRUCTIONS: usize = 8;
/// The size of an instruction.
const SIZE: usize = 8;
/// `BPF_JMP | BPF_CALL`; of a helper with the source register 0.
const CALL: u8 = 0x85;

/// A socket for the listeners of seccomp filters that notify of bpf(2). Each is
/// served until the last process with its filter has ended.
pub(super) fn supervisor(helper: i32) -> io::Result<UnixStream> {
    let (child, own) = UnixStream::pair()?;
    std::thread::spawn(move || {
        while let Ok(Some(listener)) = receive_descriptor(&own) {
            std::thread::spawn(move || while answer(&listener, helper).is_ok() {});
        }
    });
    Ok(child)
}

/// Answers one call; fails when there is nobody left to answer.
fn answer(listener: &OwnedFd, helper: i32) -> io::Result<()> {
    let mut poll = libc::pollfd {
        fd: listener.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one descriptor, which outlives the call.
    if unsafe { libc::poll(&raw mut poll, 1, -1) } < 0 || poll.revents & libc::POLLHUP != 0 {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    // SAFETY: zeroes are valid for both, and what the kernel asks for.
    let (mut call, mut reply): (libc::seccomp_notif, libc::seccomp_notif_resp) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    let listener = listener.as_raw_fd();
    // SAFETY: the kernel writes one notification, for which there is room.
    if unsafe { libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) } != 0 {
        // Who has called was killed meanwhile.
        return Ok(());
    }
    reply.id = call.id;
    match calls(&call, helper) {
        Ok(true) => reply.error = -libc::EINVAL,
        _ => reply.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
    }
    // SAFETY: the kernel reads one reply. If it fails, the caller is gone.
    unsafe { libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut reply) };
    Ok(())
}

/// Whether the program that is to be loaded calls the helper.
fn calls(call: &libc::seccomp_notif, helper: i32) -> io::Result<bool> {
    let [command, attributes, ..] = call.data.args;
    if command != LOAD {
        return Ok(false);
    }
    let memory = File::open(format!("/proc/{}/mem", call.pid))?;
    let mut head = [0; INSTRUCTIONS + 8];
    memory.read_exact_at(&mut head, attributes)?;
    let (head, address) = head.split_at(INSTRUCTIONS);
    let count = u32::from_ne_bytes(head[COUNT..].try_into().unwrap_or_default());
    let address = u64::from_ne_bytes(address.try_into().unwrap_or_default());
    let mut program = vec![0; count as usize * SIZE];
    memory.read_exact_at(&mut program, address)?;
    let (instructions, _) = program.as_chunks::<SIZE>();
    Ok(instructions
        .iter()
        .any(|&[code, registers, _, _, a, b, c, d]| {
            code == CALL && registers >> 4 == 0 && i32::from_ne_bytes([a, b, c, d]) == helper
        }))
}
