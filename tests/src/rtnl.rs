//! A task that holds the kernel's RTNL lock and does not come back.
//!
//! Much of what an ethtool ioctl answers is copied to the caller while the
//! lock is held. If the caller's buffer is a page of a file on a volume that
//! hangs, and the caller is killed, it stays in uninterruptible sleep with the
//! lock, and with it stand all changes of devices and addresses, in every
//! network namespace, and the teardown of namespaces.
//!
//! **The whole machine stands still on it: only for guests.**

use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Child;
use std::ptr;
use std::time::Duration;

use anyhow::Context as _;

use crate::hangfs::HangFs;
use crate::netns::Netns;
use crate::process::{stack, state};
use crate::{helper, wait};

pub const COMM: &std::ffi::CStr = c"rtnl-holder";

/// Holds the lock, killed, until the volume is released: before it is dropped.
#[derive(Debug)]
pub struct RtnlHolder {
    child: Child,
}

impl RtnlHolder {
    /// Starts one in a namespace; back when it has the lock and is killed.
    pub fn start(netns: &Netns, volume: &mut HangFs) -> anyhow::Result<Self> {
        let child = helper::command(None, Some(netns), "hold-rtnl")
            .arg(volume.file())
            .spawn()
            .context("start the holder of the lock")?;
        let mut this = Self { child };
        let pid = this.pid();
        // Before the request was taken in it would just die.
        volume.wait_for_reader(pid)?;
        this.child.kill().context("kill the holder of the lock")?;
        let held = || state(pid) == Some('D') && stack(pid).iter().any(|f| f == "dev_ethtool");
        anyhow::ensure!(
            wait::settle(Duration::from_secs(10), held),
            "the holder of the lock is in {:?}: {:?}",
            state(pid),
            stack(pid)
        );
        Ok(this)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for RtnlHolder {
    fn drop(&mut self) {
        let ended = wait::settle(Duration::from_secs(10), || {
            matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
        });
        if !ended {
            eprintln!("stage: the holder of the lock {} does not end", self.pid());
        }
    }
}

const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// Any device has it; its answer is copied under the lock.
const ETHTOOL_GLINK: u32 = 0x0a;
const PAGE: usize = 4096;

/// Memory for the rest of the process: a page that is there, and one of a file.
fn page_before(file: &fs::File) -> anyhow::Result<*mut u8> {
    let map = |at, pages, flags, file| {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | flags;
        // SAFETY: either a new mapping, or one over half of that very mapping.
        let at = unsafe { libc::mmap(at, pages * PAGE, access, flags, file, 0) };
        anyhow::ensure!(
            at != libc::MAP_FAILED,
            "mmap: {}",
            std::io::Error::last_os_error()
        );
        Ok(at)
    };
    let first = map(ptr::null_mut(), 2, libc::MAP_ANONYMOUS, -1)?.cast::<u8>();
    // SAFETY: within the two pages.
    let second = unsafe { first.add(PAGE) };
    map(second.cast(), 1, libc::MAP_FIXED, file.as_raw_fd())?;
    Ok(first)
}

/// The helper of an [`RtnlHolder`].
pub(crate) fn hold(path: &str) -> anyhow::Result<()> {
    let file = fs::File::open(Path::new(path)).with_context(|| path.to_owned())?;
    let first = page_before(&file)?;
    // The question is at the end of the page that is there, the answer is to
    // go into the other.
    // SAFETY: the last four bytes of a mapped page, which is aligned.
    let question = unsafe { first.add(PAGE - 4) };
    // SAFETY: as above.
    unsafe { question.cast::<u32>().write(ETHTOOL_GLINK) };
    // SAFETY: PR_SET_NAME reads a NUL-terminated string, which outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, COMM.as_ptr()) };
    // SAFETY: an all-zero ifreq is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_data = question.cast();
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // It fails when the volume does, which is the end that is wanted.
    // SAFETY: the request lives, and the memory that it names stays.
    unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    Ok(())
}
