//! System calls that no library has a safe function for.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd as _, FromRawFd as _, RawFd},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// `SO_NETNS_COOKIE` of asm-generic/socket.h, since Linux 5.14.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// An ioctl(2) without an argument that answers with a descriptor.
fn opened_by(result: RawFd) -> io::Result<File> {
    match result {
        ..0 => Err(io::Error::last_os_error()),
        // SAFETY: a call has just opened it for us, with close-on-exec, and
        // nobody else has it.
        fd => Ok(unsafe { File::from_raw_fd(fd) }),
    }
}

/// The user namespace that owns a namespace (`NS_GET_USERNS`, ioctl_ns(2)).
///
/// # Errors
/// It is not below the caller's own user namespace.
pub fn user_namespace_of(namespace: impl AsFd) -> io::Result<File> {
    // SAFETY: takes no argument, and the descriptor is open.
    opened_by(unsafe { libc::ioctl(namespace.as_fd().as_raw_fd(), libc::NS_GET_USERNS) })
}

/// The user who made a user namespace (`NS_GET_OWNER_UID`).
pub fn owner_of_user_namespace(namespace: impl AsFd) -> Option<u32> {
    let mut uid: libc::uid_t = 0;
    let fd = namespace.as_fd().as_raw_fd();
    // SAFETY: writes a user ID to where the pointer leads, which outlives the call.
    let result = unsafe { libc::ioctl(fd, libc::NS_GET_OWNER_UID, &raw mut uid) };
    (result == 0).then_some(uid)
}

/// Whether a file is one of a network namespace (`NS_GET_NSTYPE`).
pub fn is_network_namespace(file: impl AsFd) -> bool {
    // SAFETY: takes no argument, and the descriptor is open.
    let kind = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::NS_GET_NSTYPE) };
    kind == libc::CLONE_NEWNET
}

/// The network namespace of a socket (`SIOCGSKNS`). To other files the request
/// means something else.
///
/// # Errors
/// It is in none, or the caller may not know.
pub fn namespace_of_socket(socket: impl AsFd) -> io::Result<File> {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: takes no argument, and the descriptor is open.
    opened_by(unsafe { libc::ioctl(fd, libc::SIOCGSKNS as libc::Ioctl) })
}

/// The `net_cookie` of a socket's network namespace; none before Linux 5.14.
pub fn netns_cookie(socket: impl AsFd) -> Option<u64> {
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: writes at most `length` bytes to `cookie`, and the length; both
    // outlive the call, and the descriptor is open.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    (result == 0 && cookie != 0).then_some(cookie)
}

/// Makes a mount and all below it read-only (mount_setattr(2), since Linux 5.12),
/// in the mount namespace of the caller and those that share the mounts.
///
/// # Errors
/// The kernel is too old, or the caller may not.
pub fn make_mounts_read_only(root: impl AsFd) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path is empty and ends with a zero, the attributes are of the
    // size that is given, and both outlive the call, which keeps neither.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            root.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has glibc's allocator use one arena, map blocks of `large` bytes by themselves
/// and keep `spare` free bytes at the arena's end (mallopt(3)). To be called
/// before there are threads. musl has one arena and gives large blocks back as
/// it is: there this does nothing.
pub fn keep_little_memory(large: i32, spare: i32) {
    #[cfg(target_env = "gnu")]
    for (option, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_MMAP_THRESHOLD, large),
        (libc::M_TRIM_THRESHOLD, spare),
    ] {
        // SAFETY: mallopt takes numbers, and no other thread runs yet.
        if unsafe { libc::mallopt(option, value) } == 0 {
            tracing::debug!(option, value, "the allocator refuses this");
        }
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = (large, spare);
}

/// Has glibc's allocator give back what is free between what is used.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// There was no standard output when the process was started.
static STDOUT_WAS_MISSING: AtomicBool = AtomicBool::new(false);

extern "C" fn look_for_stdout() {
    // SAFETY: it takes no pointer, and changes nothing but errno.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    STDOUT_WAS_MISSING.store(flags == -1, Relaxed);
}

/// Has the C library call [`look_for_stdout`] before the standard library's
/// start, which opens `/dev/null` in its place.
// SAFETY: the section holds pointers to functions that take no argument they
// need and return nothing; this one uses nothing that is set up later.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_FOR_STDOUT: extern "C" fn() = look_for_stdout;

/// Whether there was no standard output when the process was started (`>&-`).
pub fn stdout_was_missing() -> bool {
    STDOUT_WAS_MISSING.load(Relaxed)
}
