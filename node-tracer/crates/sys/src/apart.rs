//! Threads that may hang, in a process of their own.
//!
//! A thread in uninterruptible sleep keeps its process: the kernel ends a
//! process when its last thread has ended, and until then whoever waits for it
//! waits on. So what may hang (a read of a file on a dead file server, a write
//! to one) does not run in the tracer's process, but in a second one that
//! shares its memory and its descriptors: for the program these are threads
//! like all others, for the kernel they are another process, which nobody waits
//! for. When the tracer ends, the kernel kills that process; what is stuck in
//! it stays behind and keeps nobody.
//!
//! [`begin`] starts that process, after privileges were given up: its threads
//! have what is left. Its first thread does nothing but start the others, one
//! for each [`spawn`]. Without it (in commands that read what they are given
//! and nothing else, or if the system refuses) they are threads of the tracer.
//!
//! The first thread was made by `clone` with `CLONE_VM` and without
//! `CLONE_THREAD`, on a stack of its own, by a thread of the tracer, the host.
//! The two share what the C library and the standard library keep for each
//! thread. That is sound because the host uses none of it any more: it does
//! nothing but wait, in one system call, for the end of that process. Should
//! it be killed, the tracer ends as well. Should it end by itself, as it may not
//! be bound to the tracer, the host ends, and there is no such process.

use std::{
    io::{self, Write as _},
    os::fd::{AsRawFd as _, BorrowedFd, RawFd},
    sync::{
        Mutex, OnceLock, PoisonError,
        mpsc::{self, Receiver, Sender, SyncSender},
    },
    thread,
    time::Duration,
};

use libc::c_int;
use rustix::fs::{AtFlags, FileType, StatxFlags, statx};
/// For the thread that starts others; the memory is given page by page.
const STACK: usize = 256 << 10;
/// How long the end waits for files to be closed.
const CLOSING: Duration = Duration::from_millis(200);
/// The exit code should that process be killed before the tracer ends.
const FAILED: c_int = 2;

static GROUP: OnceLock<Group> = OnceLock::new();

/// What a thread does.
pub type Work = Box<dyn FnOnce() + Send>;

/// A thread that is wanted.
struct Wanted {
    name: &'static str,
    stack: usize,
    work: Work,
    started: SyncSender<io::Result<()>>,
}

struct Group(Mutex<Sender<Wanted>>);

/// What its first thread is given.
struct First {
    parent: libc::pid_t,
    wanted: Receiver<Wanted>,
    begun: SyncSender<io::Result<()>>,
}

/// From now on threads that may hang are in a process of their own, with the
/// privileges that the caller has now.
pub fn begin() {
    if GROUP.get().is_some() {
        return;
    }
    match Group::start() {
        // Should another thread have been first, this one ends.
        Ok(group) => drop(GROUP.set(group)),
        Err(error) => tracing::debug!("no process for what may hang: {error}"),
    }
}

/// Starts a thread that may hang.
///
/// # Errors
/// There is none to be had.
pub fn spawn(
    name: &'static str,
    stack: usize,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    match GROUP.get() {
        Some(group) => group.spawn(name, stack, Box::new(work)),
        None => start(name, stack, Box::new(work)),
    }
}

/// Ends the tracer. Whoever waits for the end of what it writes, or for a lock
/// that it was started under, waits for no thread that hangs. That one has all
/// descriptors, too, also those that keep objects of the node and the eBPF
/// programs, so all are closed here.
pub fn exit(code: u8) -> std::process::ExitCode {
    if GROUP.get().is_none() {
        return code.into();
    }
    // All that matters has been flushed where errors count.
    let _ = io::stdout().flush();
    // An event loop of another thread panics when its descriptors are gone, and again
    // while it is taken down, which would end the process with another code.
    std::panic::set_hook(Box::new(|_| {
        loop {
            thread::park();
        }
    }));
    // Reads as at an end, and is not to be written: threads go on until the
    // process ends, and no number may come to mean another file for them.
    if let Ok((end, _)) = io::pipe() {
        close_all(end.as_raw_fd());
    }
    // SAFETY: it does not return.
    unsafe { libc::_exit(c_int::from(code)) }
}

/// Puts this descriptor in the place of all.
fn close_all(end: RawFd) {
    let open: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let (closed, all_closed) = mpsc::channel();
    for fd in open {
        if is_closed_at_once(fd) {
            replace(fd, end);
            continue;
        }
        let closed = closed.clone();
        let work = move || {
            replace(fd, end);
            drop(closed);
        };
        // What is not closed now is closed with the process.
        let _ = spawn("closing", STACK, work);
    }
    drop(closed);
    // Nothing is ever sent: it ends when all have closed theirs.
    let _: Result<(), _> = all_closed.recv_timeout(CLOSING);
}

/// Whether no file system has a say when this is closed: it is a pipe, a socket
/// or nothing that has a name. Others ask their server even after a read. No
/// server is asked here, and no lock taken that a writer holds.
fn is_closed_at_once(fd: RawFd) -> bool {
    // SAFETY: a number that is no open descriptor only fails.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(file, "", how, StatxFlags::TYPE).is_ok_and(|stat| {
        let kind = FileType::from_raw_mode(stat.stx_mode.into());
        matches!(kind, FileType::Fifo | FileType::Socket | FileType::Unknown)
    })
}

/// Closes what is there, with something else in its place from before that on.
fn replace(fd: RawFd, by: RawFd) {
    // SAFETY: it takes numbers. The process ends, and whoever still uses this
    // one finds nothing to read, and may not write.
    unsafe { libc::dup2(by, fd) };
}

fn start(name: &'static str, stack: usize, work: Work) -> io::Result<()> {
    let thread = thread::Builder::new().name(String::from(name));
    thread.stack_size(stack).spawn(work).map(drop)
}

impl Group {
    fn start() -> io::Result<Self> {
        let (sender, wanted) = mpsc::channel();
        let (begun, told) = mpsc::sync_channel(1);
        let first = Box::new(First {
            // SAFETY: it takes nothing and cannot fail.
            parent: unsafe { libc::getpid() },
            wanted,
            begun,
        });
        start("host", STACK, Box::new(move || host(first)))?;
        let gone = |_| io::Error::other("the thread has ended");
        told.recv().map_err(gone)??;
        Ok(Self(Mutex::new(sender)))
    }

    fn spawn(&self, name: &'static str, stack: usize, work: Work) -> io::Result<()> {
        let (started, answer) = mpsc::sync_channel(1);
        let wanted = Wanted {
            name,
            stack,
            work,
            started,
        };
        let gone = || io::Error::other("the process for what may hang has ended");
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sender.send(wanted).map_err(|_| gone())?;
        drop(sender);
        answer.recv().map_err(|_| gone())?
    }
}

/// Makes the process, and from then on waits for its end.
fn host(first: Box<First>) {
    // It is told of no signal but SIGKILL, which the kernel sends when the
    // host ends: those of a terminal go to it as well.
    // SAFETY: an all-zero set is a valid one; the pointers are to it, or null,
    // which is allowed.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
    // Never given back: it is in use until the end.
    let stack = Vec::<u128>::with_capacity(STACK / size_of::<u128>()).leak();
    let top = stack.as_mut_ptr().wrapping_byte_add(STACK);
    let first = Box::into_raw(first);
    let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_FS;
    // SAFETY: the stack has `STACK` bytes, is aligned and nobody else's; `run`
    // takes the box over. The thread-local memory that both have is used by
    // the new one alone: what follows here is system calls.
    let pid = unsafe { libc::clone(run, top.cast(), flags, first.cast()) };
    if pid < 0 {
        let error = io::Error::last_os_error();
        // SAFETY: nothing was started, so the box is still this thread's.
        let first = unsafe { Box::from_raw(first) };
        // Whoever wanted it waits for this.
        let _ = first.begun.send(Err(error));
        return;
    }
    let mut status = libc::SIGKILL;
    // SAFETY: the status outlives the call, which returns when that process has
    // ended.
    unsafe {
        let none: *const libc::c_void = std::ptr::null();
        libc::syscall(libc::SYS_wait4, pid, &raw mut status, libc::__WALL, none);
    }
    // It was not to be had, or nobody can want anything of it any more.
    if libc::WIFEXITED(status) {
        return;
    }
    // SAFETY: it takes a number.
    unsafe { libc::syscall(libc::SYS_exit_group, FAILED) };
}

/// The first thread of the process.
extern "C" fn run(first: *mut libc::c_void) -> c_int {
    // SAFETY: it is the box that `host` gives away.
    let first = unsafe { Box::from_raw(first.cast::<First>()) };
    // SAFETY: it takes numbers.
    let bound = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: it takes nothing and cannot fail.
    if bound != 0 || unsafe { libc::getppid() } != first.parent {
        return FAILED;
    }
    // Whoever wanted it waits for this.
    let _ = first.begun.send(Ok(()));
    while let Ok(wanted) = first.wanted.recv() {
        let started = start(wanted.name, wanted.stack, wanted.work);
        // Whoever wanted it waits for this, too.
        let _ = wanted.started.send(started);
    }
    0
}

#[cfg(test)]
mod tests {
    use std::{
        os::fd::AsRawFd as _,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::SeqCst},
        },
    };

    use super::*;

    #[test]
    fn its_threads_are_of_another_process_and_share_memory_and_descriptors() {
        // Never dropped, as the one of the tracer.
        let group: &Group = Box::leak(Box::new(Group::start().unwrap()));
        let (sender, answer) = mpsc::channel();
        let sum = Arc::new(AtomicUsize::new(0));
        // Opened after that process was made.
        let file = tempfile::tempfile().unwrap();
        let fd = file.as_raw_fd();
        for n in 0..100 {
            let (sum, sender) = (Arc::clone(&sum), sender.clone());
            let work = move || {
                sum.fetch_add(n, SeqCst);
                // SAFETY: a number that is no open descriptor only fails.
                let open = unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
                sender.send((std::process::id(), open)).unwrap();
            };
            group.spawn("test", 128 << 10, Box::new(work)).unwrap();
        }
        drop(sender);
        let all: Vec<(u32, bool)> = answer.iter().collect();
        assert_eq!((all.len(), sum.load(SeqCst)), (100, 4950));
        let (pid, _) = all[0];
        assert_ne!(pid, std::process::id());
        assert!(all.iter().all(|one| *one == (pid, true)), "{all:?}");
    }

    #[test]
    fn the_tracer_outlives_a_process_that_nobody_wants_anything_of() {
        let group = Group::start().unwrap();
        let (sender, answer) = mpsc::channel();
        let work = move || sender.send(std::process::id()).unwrap();
        group.spawn("test", 128 << 10, Box::new(work)).unwrap();
        let folder = format!("/proc/{}", answer.recv().unwrap());
        drop(group);
        for _ in 0..2000 {
            if !std::path::Path::new(&folder).exists() {
                // Time for the host to do what it should not.
                thread::sleep(Duration::from_millis(50));
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("it has not ended in 20 s");
    }

    #[test]
    fn what_a_file_system_may_hold_up_is_not_closed_at_once_even_if_it_was_only_read() {
        let (end, other) = io::pipe().unwrap();
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        for fd in [end.as_raw_fd(), socket.as_raw_fd(), event.as_raw_fd()] {
            assert!(is_closed_at_once(fd));
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = std::fs::File::open(file.path()).unwrap();
        let folder = std::fs::File::open("/").unwrap();
        for fd in [file.as_raw_fd(), read.as_raw_fd(), folder.as_raw_fd()] {
            assert!(!is_closed_at_once(fd));
        }
        // The number stays taken.
        drop(other);
        replace(read.as_raw_fd(), end.as_raw_fd());
        assert!(is_closed_at_once(read.as_raw_fd()));
        assert_eq!(io::read_to_string(read).unwrap(), "");
    }
}
