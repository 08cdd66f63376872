//! Many tasks that go in and out of uninterruptible sleep all at once: they
//! write to a file system that is frozen and thawed.
//!
//! All of them are processes, children of one helper. Needs what
//! [`FrozenFs`] needs.

use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::frozen::FrozenFs;
use crate::helper::{self, Helper};
use crate::{process, syscall, wait};

pub(crate) const ROLE: &str = "writers";
/// Between two writes of one task.
const BETWEEN: Duration = Duration::from_millis(50);
/// A write that takes so long has slept.
const SLEPT: Duration = Duration::from_millis(5);
/// For all of them to have started, to be stuck, or to be gone.
const LIMIT: Duration = Duration::from_secs(60);

/// The tasks and their file system. Dropping it thaws that and ends them.
#[derive(Debug)]
pub struct Stuck {
    // Dropped in this order: the tasks have a file of the disk open.
    helper: Helper,
    disk: FrozenFs,
    pids: Vec<u32>,
}

impl Stuck {
    /// Starts so many; nothing is frozen yet.
    pub fn start(count: u32) -> anyhow::Result<Self> {
        let disk = FrozenFs::mount()?;
        let mut command = helper::command(None, None, ROLE);
        command.arg(disk.file()).arg(count.to_string());
        let mut this = Self {
            disk,
            helper: Helper::start(&mut command, LIMIT)?,
            pids: Vec::new(),
        };
        for _ in 0..count {
            let line = this.helper.line("the writers", LIMIT)?;
            this.pids.push(line.parse().context(line)?);
        }
        Ok(this)
    }

    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// Gives each of them one CPU to run on, in turns, so that they sleep and
    /// wake on all at the same time. Returns how many CPUs there are.
    pub fn spread(&self) -> anyhow::Result<usize> {
        let cpus = syscall::cpus(0)?;
        for (pid, cpu) in self.pids.iter().zip(cpus.iter().cycle()) {
            syscall::pin(*pid, *cpu).with_context(|| format!("pin {pid} to CPU {cpu}"))?;
        }
        Ok(cpus.len())
    }

    /// From here on each of them gets stuck with its next write.
    pub fn freeze(&mut self) -> anyhow::Result<()> {
        self.disk.freeze()
    }

    pub fn thaw(&mut self) -> anyhow::Result<()> {
        self.disk.thaw()
    }

    /// Freezes it, and waits until all of them are stuck.
    pub fn freeze_all(&mut self) -> anyhow::Result<()> {
        self.freeze()?;
        let pids = &self.pids;
        wait::until("all writers to be in state D", LIMIT, || {
            Ok(pids
                .iter()
                .all(|pid| process::state(*pid) == Some('D'))
                .then_some(()))
        })
    }

    /// Has all of them stuck for so long.
    pub fn stall_for(&mut self, length: Duration) -> anyhow::Result<()> {
        self.freeze_all()?;
        let waited = wait::pause(length);
        self.thaw()?;
        waited
    }

    /// Freezes and thaws in turns of this length, for so long.
    pub fn flap_for(&mut self, turn: Duration, length: Duration) -> anyhow::Result<()> {
        self.take_turns(turn, turn, length)
    }

    /// Freezes and thaws in turns of these lengths, for so long.
    pub fn take_turns(
        &mut self,
        frozen: Duration,
        thawed: Duration,
        length: Duration,
    ) -> anyhow::Result<()> {
        let end = Instant::now() + length;
        while Instant::now() < end {
            self.freeze()?;
            let waited = wait::pause(frozen);
            self.thaw()?;
            waited?;
            wait::pause(thawed)?;
        }
        Ok(())
    }

    /// Ends them. Returns how often they have slept in all.
    pub fn stop(mut self) -> anyhow::Result<u64> {
        self.thaw()?;
        self.helper.close();
        let said = self.helper.line("the writers' last word", LIMIT)?;
        said.parse().context(said)
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        // Nobody who is stuck can end.
        if let Err(error) = self.thaw() {
            eprintln!("stage: {error:#}");
        }
    }
}

/// The helper: starts the writers, says who they are, and at the end how often
/// they have slept.
pub(crate) fn write_in_many(file: &Path, count: u32) -> anyhow::Result<()> {
    let slept = SharedCounter::new()?;
    let own = std::process::id();
    let mut writers = Vec::new();
    for _ in 0..count {
        // SAFETY: this process has one thread, so the child may do what it wants.
        match unsafe { libc::fork() } {
            -1 => return Err(std::io::Error::last_os_error()).context("fork"),
            0 => {
                let ended = write_again_and_again(file, own, &slept);
                std::process::exit(i32::from(ended.is_err()));
            }
            pid => writers.push(pid),
        }
    }
    for pid in &writers {
        println!("{pid}");
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    for pid in &writers {
        let _ = process::signal(pid.cast_unsigned(), libc::SIGKILL);
    }
    for pid in &writers {
        // SAFETY: a null pointer says that the status is not wanted.
        unsafe { libc::waitpid(*pid, std::ptr::null_mut(), 0) };
    }
    println!("{}", slept.get().load(Ordering::Relaxed));
    Ok(())
}

/// One writer. It ends with its parent.
fn write_again_and_again(file: &Path, parent: u32, slept: &SharedCounter) -> anyhow::Result<()> {
    syscall::set_parent_death_signal(libc::SIGKILL)?;
    anyhow::ensure!(std::os::unix::process::parent_id() == parent, "too late");
    // SAFETY: PR_SET_NAME reads a NUL-terminated string, which outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"writer".as_ptr()) };
    let file = std::fs::File::options().write(true).open(file)?;
    loop {
        let begin = Instant::now();
        // SAFETY: the buffer has as many bytes as are told.
        let written = unsafe { libc::pwrite(file.as_raw_fd(), b"x".as_ptr().cast(), 1, 0) };
        anyhow::ensure!(written == 1, std::io::Error::last_os_error());
        if begin.elapsed() >= SLEPT {
            slept.get().fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(BETWEEN);
    }
}

/// A number that a process shares with its children.
struct SharedCounter(*mut libc::c_void);

impl SharedCounter {
    fn new() -> anyhow::Result<Self> {
        // SAFETY: a new mapping, of nothing.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<AtomicU64>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match address {
            libc::MAP_FAILED => Err(std::io::Error::last_os_error()).context("mmap"),
            address => Ok(Self(address)),
        }
    }

    fn get(&self) -> &AtomicU64 {
        // SAFETY: the mapping is a page, zeroed, and stays until `self` is dropped.
        unsafe { &*self.0.cast::<AtomicU64>() }
    }
}

impl Drop for SharedCounter {
    fn drop(&mut self) {
        // SAFETY: the mapping is this guard's own.
        unsafe { libc::munmap(self.0, size_of::<AtomicU64>()) };
    }
}
