//! A task that holds the kernel's RTNL lock and does not come back.
//!
//! Much of what an ethtool ioctl answers is copied to the caller while the
//! lock is held. If the caller's buffer is in memory that has to be fetched
//! first, from a volume that hangs, say, the lock is held as long as that
//! takes, and with it stand all changes of devices and addresses, in every
//! network namespace, and the teardown of namespaces. Here userfaultfd is what
//! does not deliver the page.
//!
//! **The whole machine stands still on it: only for guests.**

use std::io::Read as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::Child;
use std::time::Duration;

use anyhow::Context as _;

use crate::netns::Netns;
use crate::process::state;
use crate::{helper, wait};

/// Holds the lock until it is dropped.
#[derive(Debug)]
pub struct RtnlHolder {
    child: Child,
}

impl RtnlHolder {
    /// Starts one in a namespace; back when it has the lock.
    pub fn start(netns: &Netns) -> anyhow::Result<Self> {
        let child = helper::command(None, Some(netns), "hold-rtnl")
            .spawn()
            .context("start the holder of the lock")?;
        let this = Self { child };
        let pid = this.pid();
        let held = wait::until("the holder of RTNL", Duration::from_secs(20), || {
            anyhow::ensure!(state(pid) != Some('Z'), "the holder has ended");
            let held = tasks(pid)
                .iter()
                .any(|stack| stack.contains("handle_userfault"));
            Ok(held.then_some(()))
        });
        held.with_context(|| format!("it is in {:?}", tasks(pid)))?;
        Ok(this)
    }

    /// Its process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// The kernel stack of each of its threads. (5.10 has no wchan.)
fn tasks(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let stack = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stack"));
    let tasks = tasks.into_iter().flatten().flatten();
    tasks.filter_map(|task| stack(task).ok()).collect()
}

impl Drop for RtnlHolder {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let ended = wait::settle(Duration::from_secs(10), || {
            matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
        });
        if !ended {
            eprintln!("stage: the holder of the lock {} does not end", self.pid());
            let _ = self.child.kill();
        }
    }
}

/// Of `linux/userfaultfd.h`.
mod uffd {
    pub(super) const API: libc::c_ulong = 0xc018_aa3f;
    pub(super) const REGISTER: libc::c_ulong = 0xc020_aa00;
    pub(super) const VERSION: u64 = 0xaa;
    pub(super) const MISSING: u64 = 1;

    #[repr(C)]
    #[derive(Default)]
    pub(super) struct Api {
        pub(super) api: u64,
        pub(super) features: u64,
        pub(super) ioctls: u64,
    }

    #[repr(C)]
    #[derive(Default)]
    pub(super) struct Register {
        pub(super) start: u64,
        pub(super) len: u64,
        pub(super) mode: u64,
        pub(super) ioctls: u64,
    }
}

const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// Any device has it; its answer is copied under the lock.
const ETHTOOL_GLINK: u32 = 0x0a;
const PAGE: usize = 4096;

/// Memory that is never there: reads and writes of it wait while this lives.
struct Missing {
    at: *mut u8,
    _handler: OwnedFd,
}

fn check(result: libc::c_int, what: &'static str) -> anyhow::Result<()> {
    match result {
        0.. => Ok(()),
        _ => Err(std::io::Error::last_os_error()).context(what),
    }
}

impl Missing {
    /// A page that is there, followed by one that is not.
    fn after_a_page() -> anyhow::Result<Self> {
        // SAFETY: a new private mapping, which is kept for the rest of the process.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                2 * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        anyhow::ensure!(at != libc::MAP_FAILED, "mmap");
        // SAFETY: userfaultfd takes flags.
        let handler = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        check(handler as libc::c_int, "userfaultfd")?;
        // SAFETY: a descriptor that is this function's own.
        let handler = unsafe { OwnedFd::from_raw_fd(handler as libc::c_int) };
        let mut api = uffd::Api {
            api: uffd::VERSION,
            ..Default::default()
        };
        let mut register = uffd::Register {
            start: at as u64 + PAGE as u64,
            len: PAGE as u64,
            mode: uffd::MISSING,
            ..Default::default()
        };
        // SAFETY: both take a structure of their own, which lives.
        unsafe {
            let handler = handler.as_raw_fd();
            check(
                libc::ioctl(handler, uffd::API as _, &raw mut api),
                "UFFDIO_API",
            )?;
            let done = libc::ioctl(handler, uffd::REGISTER as _, &raw mut register);
            check(done, "UFFDIO_REGISTER")?;
        }
        Ok(Self {
            at: at.cast(),
            _handler: handler,
        })
    }
}

/// The helper of an [`RtnlHolder`].
pub(crate) fn hold() -> anyhow::Result<()> {
    let missing = Missing::after_a_page()?;
    // The question is in the page that is there, the answer in the other.
    // SAFETY: four bytes at the end of the first of two mapped pages.
    let question = unsafe { missing.at.add(PAGE - 4) };
    // SAFETY: as above, and aligned.
    unsafe { question.cast::<u32>().write(ETHTOOL_GLINK) };
    let question = question as usize;
    let asks = std::thread::Builder::new()
        .name(String::from("rtnl-holder"))
        .spawn(move || -> anyhow::Result<()> {
            // SAFETY: an all-zero ifreq is a valid value.
            let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
            request.ifr_name[0] = b'l' as libc::c_char;
            request.ifr_name[1] = b'o' as libc::c_char;
            request.ifr_ifru.ifru_data = question as *mut libc::c_char;
            let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
            // SAFETY: the request lives, and the memory that it names for the
            // rest of the process.
            let done =
                unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
            let done = check(done, "SIOCETHTOOL");
            done
        })?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    // Who waits for the page gets an empty one.
    drop(missing);
    asks.join().unwrap_or_else(|_| anyhow::bail!("panicked"))
}
