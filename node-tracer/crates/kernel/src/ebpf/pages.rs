//! Finds out how the kernel's pages are read, for the programs that look into
//! a plugin's pipes.
//!
//! A pipe's buffer names its page by the page's `struct page`. Both the pages
//! and these structs lie in arrays whose begin is chosen at boot; symbols for
//! them are there only on kernels built with all of them, and a dump of the
//! kernel's memory map (`/proc/kcore`) only on some. But the arrays are arrays:
//! with one page of which the frame's number is known (`/proc/self/pagemap`),
//! the struct's address (it lies in a pipe) and the content (ours), the rest
//! follows. The kernel program tries the possible places; what it finds is
//! right, because the content is random.

use std::{
    fs::File,
    io::{self, Read as _},
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::fs::FileExt as _,
    },
    ptr::NonNull,
};

use node_tracer_ebpf::record::PageProbe;

use super::probes::{ProbeError, Probes, Value};

/// Why the kernel's pages cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum PagesError {
    /// A system call failed.
    #[error("{call} failed")]
    Call {
        call: &'static str,
        #[source]
        source: io::Error,
    },
    /// It is hidden without `CAP_SYS_ADMIN` in the host's user namespace.
    #[error("/proc/self/pagemap does not show where a page lies (it takes CAP_SYS_ADMIN)")]
    Hidden,
    /// The program did not run.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The map of the kernel's memory is of another form.
    #[error("none of the places where the kernel can map its memory shows the page")]
    NotFound,
}

/// How much memory a machine has at most for its places to be all tried.
const MEMORY: u64 = 4 << 40;

/// What the kernel maps its memory at a multiple of, by the size of its pages: on
/// x86-64 `PUD_SIZE`, on arm64 `ARM64_MEMSTART_ALIGN`.
fn step(page_bytes: u64) -> u64 {
    match page_bytes {
        0x1_0000 => 512 << 20,
        _ => 1 << 30,
    }
}

/// A page of memory of one's own.
struct Page {
    address: NonNull<libc::c_void>,
    bytes: usize,
}

impl Page {
    fn new(content: &[u64; 4]) -> Result<Self, PagesError> {
        // SAFETY: no preconditions.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let bytes = usize::try_from(bytes).map_err(|_| failed("sysconf"))?;
        // SAFETY: new memory of one page.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(failed("mmap"));
        }
        let address = NonNull::new(address).ok_or_else(|| failed("mmap"))?;
        let page = Self { address, bytes };
        // SAFETY: 32 bytes at the start of the page, which is ours.
        unsafe { page.address.cast::<[u64; 4]>().write(*content) };
        Ok(page)
    }

    /// The number of its frame.
    fn frame(&self) -> Result<u64, PagesError> {
        let read = |source| PagesError::Call {
            call: "reading /proc/self/pagemap",
            source,
        };
        let map = File::open("/proc/self/pagemap").map_err(read)?;
        let mut entry = [0; 8];
        let place = self.address.as_ptr() as u64 / self.bytes as u64 * 8;
        map.read_exact_at(&mut entry, place).map_err(read)?;
        // Documentation/admin-guide/mm/pagemap.rst: bits 0-54, if bit 63.
        let entry = u64::from_ne_bytes(entry);
        match entry & ((1 << 55) - 1) {
            0 => Err(PagesError::Hidden),
            frame if entry >> 63 == 1 => Ok(frame),
            _ => Err(PagesError::Hidden),
        }
    }

    /// Puts it into a pipe: the page itself, no copy.
    fn lay_into(&self, pipe: &OwnedFd) -> Result<(), PagesError> {
        let part = libc::iovec {
            iov_base: self.address.as_ptr(),
            iov_len: size_of::<[u64; 4]>(),
        };
        // SAFETY: one part of memory that is ours and outlives the pipe.
        let moved = unsafe { libc::vmsplice(pipe.as_raw_fd(), &part, 1, libc::SPLICE_F_NONBLOCK) };
        match usize::try_from(moved) {
            Ok(moved) if moved == part.iov_len => Ok(()),
            _ => Err(failed("vmsplice")),
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, with this length.
        unsafe { libc::munmap(self.address.as_ptr(), self.bytes) };
    }
}

impl Probes {
    /// Tells the programs how the kernel's pages are read.
    ///
    /// # Errors
    /// It cannot be found out on this kernel, or by this process.
    pub(super) fn find_pages(&mut self) -> Result<(), PagesError> {
        let mut pattern = [0_u8; 32];
        let random = |source| PagesError::Call {
            call: "reading /dev/urandom",
            source,
        };
        let mut source = File::open("/dev/urandom").map_err(random)?;
        source.read_exact(&mut pattern).map_err(random)?;
        let mut content = [0; 4];
        for (word, bytes) in content.iter_mut().zip(pattern.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        }
        let page = Page::new(&content)?;
        let (read, write) = pipe()?;
        page.lay_into(&write)?;
        let step = step(page.bytes as u64);
        let places = (MEMORY / step) as u32;
        self.set_pages(PageProbe {
            places,
            fd: u32::try_from(read.as_raw_fd()).unwrap_or(u32::MAX),
            // After it was put there: what is in a pipe is not moved.
            frame: page.frame()?,
            page_bytes: page.bytes as u64,
            step,
            pattern: content,
            ..PageProbe::default()
        })?;
        // Some places at each task; a run goes by all tasks once.
        let mut left = places;
        loop {
            self.run("page_probe")?;
            let PageProbe { direct, places, .. } = self.pages()?;
            if direct != 0 {
                return Ok(());
            }
            if places == 0 || places == left {
                return Err(PagesError::NotFound);
            }
            left = places;
        }
    }

    /// Has records sent of what lies in the pipes of plugins that run.
    ///
    /// # Errors
    /// The iterator cannot be run.
    pub fn peek(&mut self) -> Result<(), ProbeError> {
        self.run("cni_peek")
    }

    fn set_pages(&mut self, probe: PageProbe) -> Result<(), ProbeError> {
        let set = self.pages.set(0, Value(probe), 0);
        set.map_err(|source| ProbeError::Map {
            name: node_tracer_ebpf::map::PAGES,
            source,
        })
    }

    fn pages(&self) -> Result<PageProbe, ProbeError> {
        let got = self.pages.get(&0, 0);
        let Value(probe) = got.map_err(|source| ProbeError::Map {
            name: node_tracer_ebpf::map::PAGES,
            source,
        })?;
        Ok(probe)
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), PagesError> {
    let mut fds = [-1; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(failed("pipe2"));
    }
    // SAFETY: just made, and nobody else's.
    unsafe { Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))) }
}

fn failed(call: &'static str) -> PagesError {
    PagesError::Call {
        call,
        source: io::Error::last_os_error(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_places_are_tried_some_at_a_time_whatever_the_pages() {
        for (page, places) in [(4 << 10, 4096), (16 << 10, 4096), (64 << 10, 8192)] {
            assert_eq!(MEMORY / step(page), places, "pages of {page}");
            // The program takes them by 16.
            assert_eq!(places % 16, 0);
        }
    }
}
