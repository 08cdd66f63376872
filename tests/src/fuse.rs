//! The FUSE server behind [`HangFs`](crate::hangfs::HangFs), straight on
//! /dev/fuse: one folder with one file, `hang`, whose read is taken in and
//! never answered; or nothing at all is answered. Runs in a helper process.
//!
//! The reader becomes uninterruptible only when it is killed *after* its
//! request was taken in, so each one is reported on stdout (`read PID`).
//! Layouts are those of linux/fuse.h, protocol 7.31.

use std::ffi::CString;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::Context as _;

use crate::scratch::own_prefix;

/// Name of the one file.
pub(crate) const FILE: &str = "hang";

const ROOT_NODE: u64 = 1;
const FILE_NODE: u64 = 2;
const CACHE_SECONDS: u64 = 3600;
/// Each read(2) is a request of its own, nothing comes from the page cache.
const FOPEN_DIRECT_IO: u32 = 1;

/// What can be asked (the opcodes that matter here).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Lookup,
    GetAttr,
    Open,
    OpenDir,
    Read,
    ReadDir,
    Close,
    Init,
    /// Takes no answer: forget, and the interrupt sent when a reader is killed.
    Unanswered,
    Other,
}

impl Request {
    fn of(opcode: u32) -> Self {
        match opcode {
            1 => Self::Lookup,
            3 => Self::GetAttr,
            14 => Self::Open,
            27 => Self::OpenDir,
            15 => Self::Read,
            28 => Self::ReadDir,
            18 | 25 | 29 => Self::Close,
            26 => Self::Init,
            2 | 36 | 42 => Self::Unanswered,
            _ => Self::Other,
        }
    }
}

/// What the server does about a request.
#[derive(Debug, PartialEq, Eq)]
enum FuseReply {
    Data(Vec<u8>),
    Error(i32),
    /// No answer, ever: the read of the file, by this process.
    Hang(u32),
    None,
}

/// A struct being laid out, field by field.
#[derive(Default)]
struct Layout(Vec<u8>);

impl Layout {
    fn u16(mut self, values: &[u16]) -> Self {
        values
            .iter()
            .for_each(|value| self.0.extend(value.to_ne_bytes()));
        self
    }

    fn u32(mut self, values: &[u32]) -> Self {
        values
            .iter()
            .for_each(|value| self.0.extend(value.to_ne_bytes()));
        self
    }

    fn u64(mut self, values: &[u64]) -> Self {
        values
            .iter()
            .for_each(|value| self.0.extend(value.to_ne_bytes()));
        self
    }

    /// struct fuse_attr (88 bytes).
    fn attr(self, node: u64) -> Self {
        let (mode, links, size) = if node == ROOT_NODE {
            (libc::S_IFDIR | 0o755, 2, 0)
        } else {
            (libc::S_IFREG | 0o555, 1, 16)
        };
        self.u64(&[node, size, 0, 0, 0, 0]) // ino, size, blocks, three times
            .u32(&[0, 0, 0, mode, links]) // three nanoseconds, mode, links
            .u32(&[0, 0, 0, 4096, 0]) // uid, gid, rdev, block size, flags
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// Answers one request, given as /dev/fuse hands it out. Returns the
/// request's unique number with the answer; `None` for a torn one.
fn answer(request: &[u8]) -> Option<(u64, FuseReply)> {
    // struct fuse_in_header: len, opcode, unique, nodeid, uid, gid, pid, 2 × u16.
    let opcode = u32::from_ne_bytes(number(request, 4)?);
    let unique = u64::from_ne_bytes(number(request, 8)?);
    let node = u64::from_ne_bytes(number(request, 16)?);
    let pid = u32::from_ne_bytes(number(request, 32)?);
    let body = request.get(40..)?;
    let known = node == ROOT_NODE || node == FILE_NODE;

    let answer = match Request::of(opcode) {
        Request::Init => FuseReply::Data(
            Layout::default()
                .u32(&[7, 31, 0, 0]) // version, read-ahead, flags
                .u16(&[0, 0])
                .u32(&[65536, 1]) // largest write, time granularity
                .u16(&[0, 0])
                .u32(&[0; 8])
                .0,
        ),
        Request::Lookup if node == ROOT_NODE && body == [FILE.as_bytes(), b"\0"].concat() => {
            FuseReply::Data(
                Layout::default()
                    .u64(&[FILE_NODE, 0, CACHE_SECONDS, CACHE_SECONDS])
                    .u32(&[0, 0])
                    .attr(FILE_NODE)
                    .0,
            )
        }
        Request::Lookup => FuseReply::Error(libc::ENOENT),
        Request::GetAttr if known => FuseReply::Data(
            Layout::default()
                .u64(&[CACHE_SECONDS])
                .u32(&[0, 0])
                .attr(node)
                .0,
        ),
        Request::GetAttr => FuseReply::Error(libc::ENOENT),
        Request::Open => FuseReply::Data(Layout::default().u64(&[0]).u32(&[FOPEN_DIRECT_IO, 0]).0),
        Request::OpenDir => FuseReply::Data(Layout::default().u64(&[0]).u32(&[0, 0]).0),
        Request::Read => FuseReply::Hang(pid),
        Request::ReadDir | Request::Close => FuseReply::Data(Vec::new()),
        Request::Unanswered => FuseReply::None,
        Request::Other => FuseReply::Error(libc::ENOSYS),
    };
    Some((unique, answer))
}

/// Whether a request is the first one.
fn is_init(request: &[u8]) -> bool {
    let opcode = number(request, 4).map(u32::from_ne_bytes);
    opcode.map(Request::of) == Some(Request::Init)
}

fn reply(device: &mut File, unique: u64, error: i32, data: &[u8]) {
    let header = Layout::default()
        .u32(&[16 + data.len() as u32, (-error) as u32])
        .u64(&[unique])
        .0;
    // ENOENT: who asked is gone. Anything else ends the loop at its next read.
    let _ = device.write_all(&[header.as_slice(), data].concat());
}

fn c_path(path: &Path) -> anyhow::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).context("a path with a NUL")
}

/// Detaches what is mounted at `path`; that nothing is, is fine.
pub(crate) fn detach(path: &Path) {
    if let Ok(path) = c_path(path) {
        // SAFETY: umount2 reads a NUL-terminated string, which outlives the call.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Fails all that is open or asked for at `path`, and detaches it. Who has both
/// the device and files open cannot exit without.
pub(crate) fn abort(path: &Path) {
    if let Ok(path) = c_path(path) {
        // SAFETY: umount2 reads a NUL-terminated string, which outlives the call.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_FORCE | libc::MNT_DETACH) };
    }
}

/// What a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// All but the read of the file.
    HangingRead,
    /// Nothing, once it is mounted: requests are taken in, so that no signal
    /// ends who waits for one.
    Silent,
    /// All but what the kernel writes back: what was written stays in its cache,
    /// and its worker that writes it waits in state D.
    NoWriteback,
}

/// `FUSE_WRITEBACK_CACHE`
const WRITEBACK_CACHE: u32 = 1 << 16;

/// What [`Manner::NoWriteback`] answers otherwise than the others.
fn answer_but_writeback(request: &[u8]) -> Option<(u64, FuseReply)> {
    let opcode = u32::from_ne_bytes(number(request, 4)?);
    let unique = u64::from_ne_bytes(number(request, 8)?);
    let answer = match opcode {
        14 => FuseReply::Data(Layout::default().u64(&[0]).u32(&[0, 0]).0),
        // Attributes, pages, and the flush before the last close.
        4 | 16 => FuseReply::None,
        _ => {
            let mut answer = answer(request)?;
            if let (true, FuseReply::Data(data)) = (is_init(request), &mut answer.1) {
                data[12..16].copy_from_slice(&WRITEBACK_CACHE.to_ne_bytes());
            }
            return Some(answer);
        }
    };
    Some((unique, answer))
}

/// Mounts at `mount_point`, a folder or a file, and serves until stdin is
/// closed.
pub(crate) fn serve(mount_point: &Path, manner: Manner) -> anyhow::Result<()> {
    // SAFETY: PR_SET_NAME reads a NUL-terminated string, which outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"hangfs".as_ptr()) };
    let mut device = mount(mount_point, 0)?;
    println!("ready");
    let served = answer_all(&mut device, manner);
    detach(mount_point);
    served
}

/// Mounts a user's file system, as `fusermount` does.
pub(crate) fn mount(mount_point: &Path, user: u32) -> anyhow::Result<File> {
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .context("open /dev/fuse")?;
    let source = CString::new(own_prefix())?;
    let target = c_path(mount_point)?;
    let mode = match mount_point.is_dir() {
        true => libc::S_IFDIR,
        false => libc::S_IFREG,
    };
    let options = CString::new(format!(
        "fd={},rootmode={mode:o},user_id={user},group_id={user},allow_other",
        device.as_raw_fd()
    ))?;
    // SAFETY: mount reads NUL-terminated strings, which outlive the call.
    let mounted = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            c"fuse".as_ptr(),
            libc::MS_NOSUID | libc::MS_NODEV,
            options.as_ptr().cast(),
        )
    };
    if mounted != 0 {
        return Err(std::io::Error::last_os_error())
            .with_context(|| format!("mount {}", mount_point.display()));
    }
    Ok(device)
}

/// Answers until the device or stdin is closed.
pub(crate) fn answer_all(device: &mut File, manner: Manner) -> anyhow::Result<()> {
    let mut buffer = vec![0; 1 << 17];
    loop {
        let wait = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut ready = [wait(device.as_raw_fd()), wait(libc::STDIN_FILENO)];
        // SAFETY: the pointer and the length describe the array above.
        if unsafe { libc::poll(ready.as_mut_ptr(), 2, -1) } < 0 {
            continue; // a signal
        }
        if ready[1].revents != 0 {
            return Ok(());
        }
        let length = match device.read(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
            // The asker went away between poll and read.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Interrupted) => {
                continue;
            }
            Err(error) => return Err(error).context("read /dev/fuse"),
        };
        let request = &buffer[..length];
        if manner == Manner::Silent && !is_init(request) {
            continue;
        }
        let answer = match manner {
            Manner::NoWriteback => {
                // The kernel need not ask for interrupts: it waits in state D at once.
                if let Some(unique) = number(request, 8).map(u64::from_ne_bytes)
                    && !is_init(request)
                {
                    reply(device, unique | 1, libc::ENOSYS, &[]);
                }
                answer_but_writeback(request)
            }
            Manner::HangingRead | Manner::Silent => answer(request),
        };
        match answer {
            Some((unique, FuseReply::Data(data))) => reply(device, unique, 0, &data),
            Some((unique, FuseReply::Error(error))) => reply(device, unique, error, &[]),
            Some((_, FuseReply::Hang(pid))) => println!("read {pid}"),
            Some((_, FuseReply::None)) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
        let header = Layout::default()
            .u32(&[40 + body.len() as u32, opcode])
            .u64(&[77, node])
            .u32(&[0, 0, 4711])
            .u16(&[0, 0])
            .0;
        [header.as_slice(), body].concat()
    }

    fn size_of_answer(opcode: u32, node: u64, body: &[u8]) -> usize {
        match answer(&request(opcode, node, body)) {
            Some((77, FuseReply::Data(data))) => data.len(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_have_the_sizes_of_the_protocol() {
        assert_eq!(size_of_answer(26, 0, &[0; 64]), 64, "fuse_init_out");
        assert_eq!(
            size_of_answer(1, ROOT_NODE, b"hang\0"),
            128,
            "fuse_entry_out"
        );
        assert_eq!(size_of_answer(3, ROOT_NODE, &[0; 16]), 104, "fuse_attr_out");
        assert_eq!(size_of_answer(14, FILE_NODE, &[0; 8]), 16, "fuse_open_out");
    }

    #[test]
    fn only_the_read_hangs() {
        assert_eq!(
            answer(&request(15, FILE_NODE, &[0; 40])),
            Some((77, FuseReply::Hang(4711)))
        );
        assert_eq!(
            answer(&request(36, 0, &[0; 8])),
            Some((77, FuseReply::None))
        );
        assert_eq!(
            answer(&request(1, ROOT_NODE, b"other\0")),
            Some((77, FuseReply::Error(libc::ENOENT)))
        );
        assert_eq!(
            answer(&request(99, ROOT_NODE, b"")),
            Some((77, FuseReply::Error(libc::ENOSYS)))
        );
    }

    #[test]
    fn a_torn_request_is_not_answered() {
        assert_eq!(answer(&[0; 12]), None);
        assert_eq!(answer(&[]), None);
    }
}
