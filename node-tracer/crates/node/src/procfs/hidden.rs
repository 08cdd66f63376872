//! What keeps a namespace and is no descriptor of it in any table: a descriptor
//! on its way through a unix socket (`SCM_RIGHTS`), a file that is registered
//! with an io_uring, and a watch of its file by inotify or fanotify. Any user can
//! open `/run/netns/NAME`, and so make any of these.
//!
//! `fdinfo` of the descriptor behind which it is tells that there is something,
//! of watches also which inode. A socket that is itself on its way is behind
//! another that is not: the outermost is in some table, and says so.

use std::{
    fs,
    io::{self, BufRead as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::Instant,
};

use super::{ProcfsError, fds::name, whose::real_uid};

/// The longest line of `fdinfo` that is read: those of io_uring have paths.
const MAX_LINE: u64 = 8192;

/// Where something is out of sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Socket,
    IoUring,
    Watch,
}

impl Kind {
    /// By the link of a descriptor; `None` for those that have nothing behind them.
    pub(super) fn of(link: &[u8]) -> Option<Self> {
        match link {
            b"anon_inode:[io_uring]" => Some(Self::IoUring),
            b"anon_inode:inotify" | b"anon_inode:[fanotify]" => Some(Self::Watch),
            _ if link.starts_with(b"socket:[") => Some(Self::Socket),
            _ => None,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Socket => "has descriptors in flight in a unix socket",
            Self::IoUring => "has files registered with an io_uring",
            Self::Watch => "watches a namespace's file by inotify or fanotify",
        }
    }
}

/// A descriptor behind which there may be a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hidden {
    pub pid: u32,
    pub fd: u32,
    kind: Kind,
    /// Who has started it.
    uid: Option<u32>,
    comm: Option<String>,
    /// The inode, where it is told: those of all namespaces are different.
    pub inode: Option<u32>,
}

impl Hidden {
    pub(super) fn new(
        process: &Path,
        (pid, fd): (u32, u32),
        kind: Kind,
        inode: Option<u32>,
    ) -> Self {
        Self {
            pid,
            fd,
            kind,
            uid: real_uid(process).or_else(|| Some(fs::metadata(process).ok()?.uid())),
            comm: name(process),
            inode,
        }
    }

    /// In words. Its name is the process's own choice.
    pub fn words(&self) -> String {
        let comm = self.comm.as_deref().unwrap_or("a process");
        let user = self.uid.map(|uid| format!(", user {uid}"));
        format!(
            "{} (PID {}{}) {}",
            comm.escape_debug(),
            self.pid,
            user.unwrap_or_default(),
            self.kind.words()
        )
    }
}

/// What `fdinfo` says to be behind a descriptor.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Behind {
    Nothing,
    /// Files, of which it is not told which.
    Files,
    /// The kernel did not say: the ring is in use.
    Unsaid,
    /// Files of namespaces, by inode.
    Inodes(Vec<u32>),
}

/// Reads what is behind a descriptor; `device` is that of the namespaces' file
/// system, as the kernel writes it.
pub(super) fn behind(
    info: &Path,
    kind: Kind,
    device: Option<u64>,
    end: Instant,
) -> Result<Behind, ProcfsError> {
    let failed = |source| ProcfsError::Read {
        path: info.to_owned(),
        source,
    };
    let file = match fs::File::open(info) {
        Ok(file) => file,
        Err(error) if is_gone(&error) => return Ok(Behind::Nothing),
        Err(error) => return Err(failed(error)),
    };
    match parse(io::BufReader::new(file), kind, device, end) {
        Ok(Some(behind)) => Ok(behind),
        Ok(None) => Err(ProcfsError::TooLong {
            path: info.to_owned(),
        }),
        Err(error) if is_gone(&error) => Ok(Behind::Nothing),
        Err(error) => Err(failed(error)),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// `None` if there was no time for all of it.
fn parse(
    mut info: impl io::BufRead,
    kind: Kind,
    device: Option<u64>,
    end: Instant,
) -> io::Result<Option<Behind>> {
    let (mut inodes, mut said) = (Vec::new(), kind != Kind::IoUring);
    let mut line = Vec::new();
    loop {
        line.clear();
        if io::Read::take(&mut info, MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        let count = |field: &str| text.strip_prefix(field).map(str::trim);
        match kind {
            // There since Linux 5.6.
            Kind::Socket => {
                if let Some(count) = count("scm_fds:") {
                    return Ok(Some(if count == "0" {
                        Behind::Nothing
                    } else {
                        Behind::Files
                    }));
                }
            }
            Kind::IoUring => {
                if let Some(count) = count("UserFiles:") {
                    if count != "0" {
                        return Ok(Some(Behind::Files));
                    }
                    said = true;
                }
            }
            Kind::Watch => inodes.extend(watched(&text, device)),
        }
        if Instant::now() >= end {
            return Ok(None);
        }
    }
    Ok(Some(match (said, inodes.is_empty()) {
        (false, _) => Behind::Unsaid,
        (true, true) => Behind::Nothing,
        (true, false) => Behind::Inodes(inodes),
    }))
}

/// The namespace in `inotify wd:1 ino:f000022b sdev:4 mask:…`.
fn watched(line: &str, device: Option<u64>) -> Option<u32> {
    if !line.starts_with("inotify ") && !line.starts_with("fanotify ") {
        return None;
    }
    let field = |name: &str| {
        let value = line
            .split_whitespace()
            .find_map(|word| word.strip_prefix(name))?;
        u64::from_str_radix(value, 16).ok()
    };
    let (inode, on) = (field("ino:")?, field("sdev:")?);
    u32::try_from(inode)
        .ok()
        .filter(|_| device.is_none_or(|device| device == on))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn of(kind: Kind, info: &str) -> Behind {
        let end = Instant::now() + Duration::from_secs(9);
        let parsed = parse(info.as_bytes(), kind, Some(4), end).unwrap();
        parsed.unwrap()
    }

    #[test]
    fn a_socket_tells_how_many_descriptors_are_in_flight_in_it() {
        let info = |count: &str| format!("pos:\t0\nino:\t13188328\n{count}");
        assert_eq!(of(Kind::Socket, &info("scm_fds: 1\n")), Behind::Files);
        assert_eq!(of(Kind::Socket, &info("scm_fds: 0\n")), Behind::Nothing);
        assert_eq!(of(Kind::Socket, &info("")), Behind::Nothing);
    }

    #[test]
    fn a_ring_tells_its_files_unless_it_is_in_use() {
        let with = "SqThread:\t-1\nUserFiles:\t1\n    0: /run/netns/k\nUserBufs:\t0\n";
        assert_eq!(of(Kind::IoUring, with), Behind::Files);
        let without = "pos:\t0\nUserFiles:\t0\nUserBufs:\t0\n";
        assert_eq!(of(Kind::IoUring, without), Behind::Nothing);
        assert_eq!(
            of(Kind::IoUring, "pos:\t0\nflags:\t02000002\n"),
            Behind::Unsaid
        );
    }

    #[test]
    fn a_watch_tells_the_inode_and_the_file_system() {
        let info = "pos:\t0\ninotify wd:2 ino:f000022b sdev:4 mask:fff ignored_mask:0\n\
                    inotify wd:1 ino:f000022c sdev:fe00000 mask:fff ignored_mask:0\n\
                    fanotify ino:f000022d sdev:4 mflags:0 mask:20 ignored_mask:0\n\
                    fanotify mnt_id:26 mflags:0 mask:20 ignored_mask:0\n";
        let inodes = vec![0xf000_022b, 0xf000_022d];
        assert_eq!(of(Kind::Watch, info), Behind::Inodes(inodes));
    }

    #[test]
    fn what_is_not_read_in_time_is_not_nothing() {
        let parsed = parse(&b"pos:\t0\n"[..], Kind::Watch, None, Instant::now());
        assert_eq!(parsed.unwrap(), None);
    }
}
