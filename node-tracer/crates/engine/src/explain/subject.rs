//! The word that was typed, as the kinds of things that it can name. How it is
//! read is [`parse()`]'s.

mod parse;

use std::{
    net::IpAddr,
    path::{Component, Path, PathBuf},
};

pub use self::parse::parse;
use event::wording::escape::Printable;

/// The shortest beginning of an ID.
const SHORTEST: usize = 3;

/// What was asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// As it was typed.
    pub(super) text: String,
    /// What it can be, likeliest first; at least one.
    pub(super) forms: Vec<Form>,
}

/// One thing that a word can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Address(IpAddr),
    /// A pod by namespace and name.
    Pod(String, String),
    /// A pod by UID.
    Uid(String),
    /// A sandbox or container by the beginning of its ID.
    Container(String),
    /// A pod by its name alone.
    Name(String),
    /// A network device by its name, and by its hardware address.
    Device(String),
    Mac(String),
    /// A network device by its hardware: a PCI address.
    Pci(String),
    /// A network namespace by its inode number.
    Inode(u32),
    /// A network namespace by a path.
    Path(PathBuf),
    /// A process or thread.
    Pid(u32),
}

/// Why a question has no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    /// It is no name of anything.
    #[error(
        "{asked:?} {why}\nhelp: ask about one of these\n  \
         10.244.7.2, fd00::2         an IP address\n  \
         NAMESPACE/NAME, NAME, UID   a pod\n  \
         {SHORTEST} or more hex digits     a sandbox or container, by the beginning of its ID\n  \
         veth1234, 0a:58:0a:f4:07:02 an interface, a MAC address\n  \
         4026532249, /run/netns/X    a network namespace\n  \
         /var/lib/cni/networks/...   a reservation\n  \
         22260                       a process\n\
         If it can be several things, put ip:, pod:, uid:, container:, dev:, mac:, pci:, netns: or pid: \
         before it."
    )]
    Malformed {
        /// As much of it as can be repeated.
        asked: String,
        why: String,
    },
    /// It can mean several things.
    #[error(
        "{asked:?} is the {what}\nhelp: ask about one of them\n{}",
        listed(.candidates, *.more)
    )]
    Ambiguous {
        asked: String,
        /// `beginning of 3 IDs`
        what: String,
        /// The first of them.
        candidates: Vec<Candidate>,
        /// How many there are besides.
        more: usize,
    },
}

/// One thing that an ambiguous word can mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// What to ask for: the ID in full.
    pub id: String,
    pub what: String,
}

fn listed(candidates: &[Candidate], more: usize) -> String {
    let listed: Vec<String> = candidates
        .iter()
        .map(|Candidate { id, what }| {
            let (id, what) = (Printable(id), Printable(what));
            format!("  node-tracer explain {id}    # {what}")
        })
        .collect();
    let more = match more {
        0 => String::new(),
        more => format!("\n  and {more} more"),
    };
    listed.join("\n") + &more
}

impl Asked {
    /// The process or thread that is to be looked up in `/proc`: its namespace
    /// and itself, for [`Hints`](super::Hints).
    pub fn pid(&self) -> Option<u32> {
        self.forms.iter().find_map(|form| match form {
            Form::Pid(pid) => Some(*pid),
            Form::Path(path) => pid_of_path(path),
            _ => None,
        })
    }

    /// The address that is asked about, for what only others know of it.
    pub fn address(&self) -> Option<IpAddr> {
        self.forms.iter().find_map(|form| match form {
            Form::Address(ip) => Some(*ip),
            _ => None,
        })
    }

    /// Whether it is a network device's MAC or PCI address.
    pub(super) fn hardware(&self) -> Option<&str> {
        self.forms.iter().find_map(|form| match form {
            Form::Mac(address) | Form::Pci(address) => Some(address.as_str()),
            _ => None,
        })
    }

    /// The path that is to be looked up below the host's root, for
    /// [`Hints`](super::Hints).
    pub fn path(&self) -> Option<&Path> {
        self.forms.iter().find_map(|form| match form {
            Form::Path(path) => Some(path.as_path()),
            _ => None,
        })
    }
}

/// The process of `/proc/PID/ns/net` and `/proc/PID/task/TID/ns/net`.
pub(super) fn pid_of_path(path: &Path) -> Option<u32> {
    let parts: Vec<&str> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(part) => part.to_str(),
            _ => None,
        })
        .collect();
    match parts.as_slice() {
        ["proc", pid, "ns", "net"] | ["proc", _, "task", pid, "ns", "net"] => pid.parse().ok(),
        _ => None,
    }
}

/// A path as it is compared: `/var/run` is `/run` on every host.
pub(super) fn same_path(a: &Path, b: &Path) -> bool {
    let plain = |path: &Path| match path.strip_prefix("/var/run") {
        Ok(rest) => Path::new("/run").join(rest),
        Err(_) => path.components().collect(),
    };
    plain(a) == plain(b)
}
