//! The addresses in a network namespace, by rtnetlink: for kernels where the
//! tracer's programs cannot walk them.
//!
//! Asking means to be in the namespace for a moment, so everything here is
//! about leaving it: a thread of its own enters, closes the namespace's file,
//! asks, closes the socket, and goes back to where it came from before it
//! hands over the answer. After that the kernel keeps the closed socket for a
//! grace period (milliseconds), then nothing of the tracer holds the namespace.
//! If the kernel lets the thread wait (it takes the lock of all network
//! configuration to list devices), the thread is abandoned as [`Bounded`]
//! says and leaves the namespace as soon as it can run.
//!
//! Only the few attributes that are used are decoded, over
//! `netlink-packet-core`: a decoder of whole messages refuses those of kernels
//! that it does not know.

use std::{
    collections::HashMap,
    fs, io,
    os::fd::AsFd as _,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use netlink_packet_core::{
    DecodeError, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use self::decode::Answer;
use super::procfs::{Bounded, NoAnswer};
use crate::event::Address;

mod decode;
#[cfg(test)]
mod tests;

/// Larger than any message that the kernel makes of a dump (32 KiB).
const BUFFER: usize = 64 << 10;

/// Times that a dump is repeated because the configuration changed meanwhile.
const ATTEMPTS: u32 = 5;

/// Why the addresses of a namespace are not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetlinkError {
    /// Its file cannot be opened: mostly, it is gone.
    #[error("cannot open the network namespace {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// It cannot be entered: not a network namespace, or no `CAP_SYS_ADMIN`.
    #[error("cannot enter the network namespace {} (it needs CAP_SYS_ADMIN)", path.display())]
    Enter {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The kernel was asked for a list and did not give it.
    #[error("rtnetlink {request} in {}", path.display())]
    Request {
        /// The namespace's file.
        path: PathBuf,
        /// What it was asked for.
        request: &'static str,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The kernel's answer is not understood.
    #[error("the rtnetlink answer in {} is not understood", path.display())]
    Format {
        /// The namespace's file.
        path: PathBuf,
        /// Where it went wrong.
        #[source]
        source: DecodeError,
    },
    /// The kernel does not answer.
    #[error("rtnetlink in {}", path.display())]
    NoAnswer {
        /// The namespace's file.
        path: PathBuf,
        /// How it went.
        #[source]
        source: NoAnswer,
    },
}

/// What was found in a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The namespace's inode: that which was really read, should the path by
    /// now lead to another.
    pub(crate) inode: u32,
    /// Its addresses, except those of loopback devices.
    pub(crate) addresses: Vec<Address>,
}

/// The addresses in the network namespace at a path (`/run/netns/NAME`,
/// `/proc/TID/ns/net`), within the time given.
///
/// # Errors
/// See [`NetlinkError`].
pub(crate) fn addresses(
    netns_path: &Path,
    bounded: &Bounded,
    timeout: Duration,
) -> Result<Snapshot, NetlinkError> {
    let path = netns_path.to_owned();
    match bounded.run(timeout, move || visit(&path)) {
        Ok(result) => result,
        Err(source) => Err(NetlinkError::NoAnswer {
            path: netns_path.to_owned(),
            source,
        }),
    }
}

/// Enters the namespace, reads, and leaves. For a thread that ends afterwards.
fn visit(path: &Path) -> Result<Snapshot, NetlinkError> {
    let open = |path: &Path| {
        // Not waiting: the path can be that of a FIFO.
        let result = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path);
        result.map_err(|source| NetlinkError::Open {
            path: path.to_owned(),
            source,
        })
    };
    let enter = |file: fs::File| {
        let inode = file.metadata()?.ino();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        // Inodes of the kernel's namespaces have 32 bits.
        Ok(inode as u32)
    };
    let own = open(Path::new("/proc/thread-self/ns/net"))?;
    let inode = enter(open(path)?).map_err(|source| NetlinkError::Enter {
        path: path.to_owned(),
        source,
    })?;
    let result = read(path);
    // Should this fail, the thread's end does it a moment later.
    let _: io::Result<u32> = enter(own);
    Ok(Snapshot {
        inode,
        addresses: result?,
    })
}

/// Reads the addresses of the namespace that the thread is in.
fn read(path: &Path) -> Result<Vec<Address>, NetlinkError> {
    let mut links = HashMap::new();
    let mut found = Vec::new();
    for answer in list(path, "RTM_GETLINK", libc::RTM_GETLINK)? {
        if let Answer::Link { index, link } = answer {
            links.insert(index, link);
        }
    }
    for answer in list(path, "RTM_GETADDR", libc::RTM_GETADDR)? {
        let Answer::Address {
            index,
            address,
            prefix,
        } = answer
        else {
            continue;
        };
        // A device made after the first list has no name yet.
        let link = links.get(&index);
        if !link.is_some_and(|link| link.loopback) {
            found.push(Address {
                address,
                prefix,
                ifname: link.map_or_else(|| format!("if{index}"), |link| link.name.clone()),
                link_kind: link.and_then(|link| link.kind.clone()),
            });
        }
    }
    found.sort();
    Ok(found)
}

/// A whole list; read again if it changed while it was read.
fn list(path: &Path, request: &'static str, kind: u16) -> Result<Vec<Answer>, NetlinkError> {
    let mut tries = 1;
    loop {
        match dump(kind) {
            Ok(Dump {
                interrupted: true, ..
            }) if tries < ATTEMPTS => tries += 1,
            // A list that keeps changing is still nearly right; each change
            // is an event of its own.
            Ok(dump) => return Ok(dump.answers),
            Err(DumpError::Io(source)) => {
                return Err(NetlinkError::Request {
                    path: path.to_owned(),
                    request,
                    source,
                });
            }
            Err(DumpError::Format(source)) => {
                return Err(NetlinkError::Format {
                    path: path.to_owned(),
                    source,
                });
            }
        }
    }
}

struct Dump {
    answers: Vec<Answer>,
    /// The list changed while the kernel made it.
    interrupted: bool,
}

enum DumpError {
    Io(io::Error),
    Format(DecodeError),
}

impl From<io::Error> for DumpError {
    fn from(source: io::Error) -> Self {
        Self::Io(source)
    }
}

fn dump(kind: u16) -> Result<Dump, DumpError> {
    let kernel = SocketAddr::new(0, 0);
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    // The kernel answers within send and recv, so there is nothing to wait
    // for; a socket that waited would hold the namespace.
    socket.set_non_blocking(true)?;
    let mut request = NetlinkMessage::new(
        NetlinkHeader::default(),
        NetlinkPayload::from(Request(kind)),
    );
    request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    request.header.sequence_number = 1;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send_to(&bytes, &kernel, 0)?;

    let mut dump = Dump {
        answers: Vec::new(),
        interrupted: false,
    };
    let mut buffer = Vec::with_capacity(BUFFER);
    loop {
        buffer.clear();
        let (length, sender) = socket.recv_from(&mut buffer, libc::MSG_TRUNC)?;
        if sender != kernel {
            // Somebody in the namespace talks to the socket.
            continue;
        }
        if length > buffer.len() {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge).into());
        }
        let mut rest = buffer.as_slice();
        while !rest.is_empty() {
            let message = NetlinkMessage::<Answer>::deserialize(rest).map_err(DumpError::Format)?;
            dump.interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
            let length = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(length..).unwrap_or_default();
            match message.payload {
                NetlinkPayload::InnerMessage(answer) => dump.answers.push(answer),
                NetlinkPayload::Done(done) if done.code < 0 => {
                    return Err(io::Error::from_raw_os_error(-done.code).into());
                }
                NetlinkPayload::Done(_) => return Ok(dump),
                NetlinkPayload::Error(error) => return Err(error.to_io().into()),
                _ => {}
            }
        }
    }
}

/// A request for a whole list, of any address family.
#[derive(Debug)]
struct Request(u16);

impl NetlinkSerializable for Request {
    fn message_type(&self) -> u16 {
        self.0
    }

    fn buffer_len(&self) -> usize {
        size_of::<libc::ifinfomsg>()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        // AF_UNSPEC, and no restriction.
        buffer.fill(0);
    }
}

impl From<Request> for NetlinkPayload<Request> {
    fn from(request: Request) -> Self {
        Self::InnerMessage(request)
    }
}
