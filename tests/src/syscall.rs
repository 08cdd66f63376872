//! System calls that std does not have.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

/// Moves the calling thread into new namespaces.
pub(crate) fn unshare(kinds: libc::c_int) -> anyhow::Result<()> {
    // SAFETY: unshare takes no pointers; it moves this thread alone.
    match unsafe { libc::unshare(kinds) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()).context("unshare"),
    }
}

/// mount(2) without data. No source is `none`.
pub(crate) fn mount(
    source: Option<&Path>,
    target: &Path,
    kind: Option<&str>,
    flags: libc::c_ulong,
) -> anyhow::Result<()> {
    let c = |path: &Path| CString::new(path.as_os_str().as_bytes());
    let from = c(source.unwrap_or(Path::new("none")))?;
    let onto = c(target)?;
    let kind = CString::new(kind.unwrap_or("none"))?;
    // SAFETY: mount reads NUL-terminated strings, which outlive the call, and no data.
    let result = unsafe {
        libc::mount(
            from.as_ptr(),
            onto.as_ptr(),
            kind.as_ptr(),
            flags,
            std::ptr::null(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error())
            .with_context(|| format!("mount on {}", target.display())),
    }
}

/// The calling process gets this signal when its parent (thread) ends.
pub(crate) fn set_parent_death_signal(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes a number.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether stdin has something within this time, if only its end.
pub(crate) fn wait_for_input(limit: Duration) -> bool {
    let mut stdin = libc::pollfd {
        fd: libc::STDIN_FILENO,
        events: libc::POLLIN,
        revents: 0,
    };
    let limit = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: poll reads and writes the one entry that it is told of.
    unsafe { libc::poll(&raw mut stdin, 1, limit) > 0 }
}

/// Moves the calling thread into a network namespace.
pub(crate) fn enter_netns(netns: &std::fs::File) -> io::Result<()> {
    enter(netns, libc::CLONE_NEWNET)
}

/// Moves the calling thread into a namespace of this kind. Into mounts only a
/// process of one thread can go.
pub(crate) fn enter(namespace: &std::fs::File, kind: libc::c_int) -> io::Result<()> {
    let fd = AsRawFd::as_raw_fd(namespace);
    // SAFETY: setns takes a descriptor, which is open while it is borrowed.
    match unsafe { libc::setns(fd, kind) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The CPUs that a process may run on; 0 is the calling thread.
pub(crate) fn cpus(pid: u32) -> io::Result<Vec<usize>> {
    // SAFETY: a set of CPUs is an array of integers, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes no more than the size that is told.
    match unsafe { libc::sched_getaffinity(pid as libc::pid_t, size_of_val(&set), &raw mut set) } {
        0 => {
            let all = 0..libc::CPU_SETSIZE as usize;
            // SAFETY: the number is within the set.
            Ok(all
                .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) })
                .collect())
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets a process run on this CPU only.
pub(crate) fn pin(pid: u32, cpu: usize) -> io::Result<()> {
    // SAFETY: as above.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: CPU_SET indexes an array, and panics beyond its end.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the kernel reads the set, of which the size is told.
    match unsafe { libc::sched_setaffinity(pid as libc::pid_t, size_of_val(&set), &raw const set) }
    {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What a call has returned, or its error.
fn checked(result: libc::c_long, what: &'static str) -> anyhow::Result<i32> {
    match result {
        ..0 => Err(io::Error::last_os_error()).context(what),
        _ => Ok(i32::try_from(result)?),
    }
}

fn owned(result: libc::c_long, what: &'static str) -> anyhow::Result<OwnedFd> {
    let fd = checked(result, what)?;
    // SAFETY: a call has just opened it for us, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Gives the calling thread a table of descriptors of its own.
pub(crate) fn unshare_descriptors() -> io::Result<()> {
    // SAFETY: no memory is passed.
    match unsafe { libc::unshare(libc::CLONE_FILES) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the process one of a user without any right.
pub(crate) fn become_user(user: u32) -> anyhow::Result<()> {
    // SAFETY: these take numbers, and no list of groups.
    let results = unsafe {
        [
            libc::setgroups(0, std::ptr::null()),
            libc::setgid(user),
            libc::setuid(user),
        ]
    };
    match results {
        [0, 0, 0] => Ok(()),
        _ => Err(io::Error::last_os_error()).context("setuid"),
    }
}

/// Sends a descriptor through a socket that nobody reads. Returns the sockets.
pub(crate) fn put_in_flight(file: &impl AsRawFd) -> anyhow::Result<Vec<OwnedFd>> {
    let (from, to) = std::os::unix::net::UnixStream::pair()?;
    send_descriptor(&from, file)?;
    Ok(vec![from.into(), to.into()])
}

/// Sends a descriptor through a Unix socket. Nothing is allocated.
pub(crate) fn send_descriptor(socket: &impl AsRawFd, file: &impl AsRawFd) -> io::Result<()> {
    let mut text = *b"x";
    let (mut data, mut control) = (one_byte(&mut text), Control::default());
    let message = with_descriptor(&mut data, &mut control);
    // SAFETY: there is room for one control message with one descriptor, and all
    // that the message leads to outlives the call.
    let sent = unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
        libc::CMSG_DATA(head)
            .cast::<i32>()
            .write_unaligned(file.as_raw_fd());
        libc::sendmsg(socket.as_raw_fd(), &raw const message, 0)
    };
    match sent {
        1.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A descriptor that was sent through a Unix socket; none at its end.
pub(crate) fn receive_descriptor(socket: &impl AsRawFd) -> io::Result<Option<OwnedFd>> {
    let mut text = [0];
    let (mut data, mut control) = (one_byte(&mut text), Control::default());
    let mut message = with_descriptor(&mut data, &mut control);
    // SAFETY: the kernel writes into what the message leads to, which outlives
    // the call; of a control message it has written, one descriptor is read.
    unsafe {
        match libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) {
            0 => return Ok(None),
            1.. => {}
            _ => return Err(io::Error::last_os_error()),
        }
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        if head.is_null() || (*head).cmsg_type != libc::SCM_RIGHTS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let number = libc::CMSG_DATA(head).cast::<i32>().read_unaligned();
        Ok(Some(OwnedFd::from_raw_fd(number)))
    }
}

/// Room for a control message with a descriptor, as aligned as its head.
type Control = [u64; 4];

fn one_byte(text: &mut [u8; 1]) -> libc::iovec {
    libc::iovec {
        iov_base: text.as_mut_ptr().cast(),
        iov_len: text.len(),
    }
}

/// A message of a byte, with room for a descriptor. It leads to both.
fn with_descriptor(data: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: zeroes are a valid message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = data;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: takes a number.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<i32>() as u32) } as _;
    message
}

/// Registers a file with a new io_uring, which is returned.
pub(crate) fn register_with_io_uring(file: &impl AsRawFd) -> anyhow::Result<OwnedFd> {
    const IORING_REGISTER_FILES: libc::c_int = 2;
    // The size of struct io_uring_params.
    let mut params = [0_u32; 30];
    // SAFETY: the parameters are of the size that the kernel has for them, and
    // outlive the call.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, params.as_mut_ptr()) };
    let ring = owned(ring, "io_uring_setup")?;
    let files = [file.as_raw_fd()];
    // SAFETY: reads one descriptor's number, which outlives the call.
    let registered = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring.as_raw_fd(),
            IORING_REGISTER_FILES,
            files.as_ptr(),
            files.len(),
        )
    };
    checked(registered, "io_uring_register")?;
    Ok(ring)
}

/// Watches a file by inotify.
pub(crate) fn watch(path: &Path) -> anyhow::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: takes a number.
    let watcher = unsafe { libc::inotify_init1(libc::IN_CLOEXEC) };
    let watcher = owned(watcher.into(), "inotify_init1")?;
    // SAFETY: reads a NUL-terminated string, which outlives the call.
    let watch =
        unsafe { libc::inotify_add_watch(watcher.as_raw_fd(), path.as_ptr(), libc::IN_ALL_EVENTS) };
    checked(watch.into(), "inotify_add_watch")?;
    Ok(watcher)
}
