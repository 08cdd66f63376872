//! News of a namespace's devices, rules, routes and neighbours, as rtnetlink tells
//! them. What has changed is not taken from them: they are read again, so nothing is
//! wrong for news that were lost.
//!
//! The socket keeps its namespace. So it is only opened where that does not matter:
//! in the tracer's own, or in that of process 1.

use std::{io, path::PathBuf, time::Duration};

use netlink_sys::{Socket, protocols::NETLINK_ROUTE};

use super::{Home, NetlinkError, Way, decode::NDMSG, enter};
use crate::procfs::Bounded;

/// What is listened to.
const GROUPS: [u32; 6] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_NEIGH,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV6_RULE,
];

/// Messages that are looked at before the caller gets a turn, and that are passed
/// over at once: the socket has no room for more.
const AT_ONCE: usize = 256;
const MOST: usize = 4_096;
/// What is looked at of a message; a longer one is news all the same.
const BUFFER: usize = 4 << 10;
const HEADER: usize = 16;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum News {
    /// The kernel asks its neighbours again and again, and bridges learn.
    Little,
    Much,
}

/// News of one namespace.
pub struct Changes {
    socket: Socket,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes").finish_non_exhaustive()
    }
}

impl Changes {
    /// Listens in the tracer's own namespace.
    ///
    /// # Errors
    /// There is no socket to be had.
    pub fn here() -> Result<Self, NetlinkError> {
        let path = PathBuf::from("/proc/thread-self/ns/net");
        Self::open().map_err(|source| failed(path, source))
    }

    /// Listens in the namespace that a way leads to, if it is this one.
    ///
    /// # Errors
    /// It cannot be entered, or the kernel does not answer.
    pub fn there(
        way: &Way,
        inode: u32,
        bounded: &Bounded,
        timeout: Duration,
    ) -> Result<Self, NetlinkError> {
        let (path, way) = (way.path(), way.clone());
        let listen = move || {
            // At home again when this is dropped.
            let _home = Home::open()?;
            let file = way.open().map_err(|source| failed(way.path(), source))?;
            let entered = enter(file).map_err(|source| NetlinkError::Enter {
                path: way.path(),
                source,
            })?;
            let elsewhere = || failed(way.path(), io::Error::from(io::ErrorKind::NotFound));
            match entered == inode {
                true => Self::open().map_err(|source| failed(way.path(), source)),
                false => Err(elsewhere()),
            }
        };
        match bounded.run_apart(timeout, listen) {
            Ok(result) => result,
            Err(source) => Err(NetlinkError::NoAnswer { path, source }),
        }
    }

    fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        Ok(Self {
            socket,
            buffer: Vec::with_capacity(BUFFER),
        })
    }

    /// What there is of news, of a bounded number of messages; never waits. That some
    /// were lost is news, too.
    ///
    /// # Errors
    /// The socket cannot be read.
    pub fn news(&mut self) -> io::Result<Option<News>> {
        let mut news = None;
        for _ in 0..AT_ONCE {
            match self.next()? {
                None => break,
                // No other can matter more.
                Some(News::Much) => return Ok(Some(News::Much)),
                Some(News::Little) => news = Some(News::Little),
            }
        }
        Ok(news)
    }

    /// Passes over all that has come, as everything is about to be read.
    ///
    /// # Errors
    /// The socket cannot be read.
    pub fn pass_over(&mut self) -> io::Result<()> {
        for _ in 0..MOST {
            if self.next()?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn next(&mut self) -> io::Result<Option<News>> {
        self.buffer.clear();
        match self.socket.recv_from(&mut self.buffer, libc::MSG_TRUNC) {
            Ok((_, sender)) if sender.port_number() != 0 => {
                // Somebody in the namespace talks to the socket.
                Ok(Some(News::Little))
            }
            Ok((length, _)) if length > self.buffer.len() => Ok(Some(News::Much)),
            Ok(_) => Ok(Some(weight(&self.buffer))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(Some(News::Much)),
            Err(error) => Err(error),
        }
    }
}

fn failed(path: PathBuf, source: io::Error) -> NetlinkError {
    NetlinkError::Request {
        path,
        request: "news",
        source,
    }
}

/// How much messages matter.
fn weight(mut rest: &[u8]) -> News {
    while let Some((head, _)) = rest.split_at_checked(HEADER) {
        let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let kind = u16::from_ne_bytes([head[4], head[5]]);
        let Some(message) = rest.get(HEADER..length) else {
            break;
        };
        let is_little = kind == libc::RTM_NEWNEIGH && is_learnt(message)
            || kind == libc::RTM_DELNEIGH && is_frame(message);
        if !is_little {
            return News::Much;
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    News::Little
}

/// Whether the kernel, or a bridge, has found it out by itself.
fn is_learnt(message: &[u8]) -> bool {
    let Some(head) = message.get(..NDMSG) else {
        return false;
    };
    let state = u16::from_ne_bytes([head[8], head[9]]);
    is_frame(message) || !matches!(state, libc::NUD_PERMANENT | libc::NUD_NOARP)
}

fn is_frame(message: &[u8]) -> bool {
    message.first() == Some(&(libc::AF_BRIDGE as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend(body);
        bytes
    }

    fn neighbour(family: i32, state: u16) -> Vec<u8> {
        let mut body = vec![0; NDMSG];
        body[0] = family as u8;
        body[8..10].copy_from_slice(&state.to_ne_bytes());
        body
    }

    #[test]
    fn what_the_kernel_learns_by_itself_matters_little_and_all_else_much() {
        let neighbours = [
            (libc::AF_INET, libc::NUD_REACHABLE, News::Little),
            (libc::AF_INET6, libc::NUD_FAILED, News::Little),
            (libc::AF_INET, libc::NUD_PERMANENT, News::Much),
            (libc::AF_BRIDGE, libc::NUD_NOARP, News::Little),
        ];
        for (family, state, expected) in neighbours {
            let bytes = message(libc::RTM_NEWNEIGH, &neighbour(family, state));
            assert_eq!(weight(&bytes), expected, "{family} {state}");
        }
        for kind in [libc::RTM_NEWRULE, libc::RTM_DELROUTE, libc::RTM_DELLINK] {
            assert_eq!(weight(&message(kind, &[0; 16])), News::Much);
        }
        let mut both = message(
            libc::RTM_NEWNEIGH,
            &neighbour(libc::AF_INET, libc::NUD_STALE),
        );
        both.extend(message(libc::RTM_DELRULE, &[0; 16]));
        assert_eq!(weight(&both), News::Much);
    }
}
