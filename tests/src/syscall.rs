//! System calls that std does not have.

use std::ffi::CString;
use std::io;
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
    let fd = std::os::fd::AsRawFd::as_raw_fd(namespace);
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
