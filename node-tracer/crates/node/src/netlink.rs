//! What is in a network namespace (devices, addresses, rules, routes, neighbours),
//! by rtnetlink: for a look at the node without eBPF, and for kernels where
//! the tracer's programs cannot walk the addresses.
//!
//! Asking means to be in the namespace for a moment, so everything here is
//! about leaving it: a thread of its own enters, closes the namespace's file,
//! asks through one socket, closes it, and goes on or back to where it came
//! from. After that the kernel keeps the closed socket for a grace period
//! (milliseconds), then nothing of the tracer holds the namespace. If the
//! kernel lets the thread wait (it takes the lock of all network configuration
//! to list devices), the thread is abandoned as [`Bounded`] says and leaves
//! the namespace as soon as it can run.
//!
//! Only the few attributes that are used are decoded, over
//! `netlink-packet-core`: a decoder of whole messages refuses those of kernels
//! that it does not know.

use std::{
    fs, io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use netlink_packet_core::DecodeError;
use rustix::{
    fs::{Mode, OFlags},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use self::dump::{Contents, DumpError, Lists};
pub use self::{
    changes::{Changes, News},
    decode::dad,
    rounds::{Target, visit_all},
};
use super::{
    procfs::{Bounded, NoAnswer, socket_namespace},
    root::{Root, namespace},
};
use event::{
    Address, Device, Neighbour, Netns, Route, UserNs,
    clock::Timestamp,
    forwarding::{Forwarding, RouteKind, TableRoute},
};
use sys::syscall;

mod changes;
mod decode;
mod dump;
mod nsid;
mod rounds;
#[cfg(test)]
mod tests;

/// Why the contents of a namespace are not known.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// Its file cannot be opened: mostly, it is gone.
    #[error("cannot open the network namespace {}", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It cannot be entered: not a network namespace, or no `CAP_SYS_ADMIN`.
    #[error("cannot enter the network namespace {} (it needs CAP_SYS_ADMIN)", path.display())]
    Enter {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The kernel was asked for a list and did not give it.
    #[error("rtnetlink {request} in {}", path.display())]
    Request {
        path: PathBuf,
        /// What it was asked for.
        request: &'static str,
        #[source]
        source: io::Error,
    },
    /// The kernel's answer is not understood.
    #[error("the rtnetlink answer in {} is not understood", path.display())]
    Format {
        path: PathBuf,
        /// Where it went wrong.
        #[source]
        source: DecodeError,
    },
    /// The kernel does not answer.
    #[error("rtnetlink in {}", path.display())]
    NoAnswer {
        path: PathBuf,
        #[source]
        source: NoAnswer,
    },
    /// What leads there does not answer: it lies on a file system that hangs.
    #[error("the way to the network namespace {}", path.display())]
    WayHangs {
        path: PathBuf,
        #[source]
        source: NoAnswer,
    },
    /// The visits of other namespaces took too long, or hang.
    #[error("rtnetlink in {}: not tried, as other namespaces took too long to answer", path.display())]
    NotTried { path: PathBuf },
}

impl NetlinkError {
    /// Whether this is how it looks when a namespace has ended meanwhile.
    pub fn is_gone(&self) -> bool {
        let gone = |source: &io::Error| {
            let code = source.raw_os_error();
            source.kind() == io::ErrorKind::NotFound
                || matches!(code, Some(libc::ESRCH | libc::EBADF))
        };
        matches!(self, Self::Open { source, .. } if gone(source))
    }
}

/// A way to a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// A file: `/run/netns/NAME`, `/proc/TID/ns/net`, `/proc/PID/fd/N`.
    File(PathBuf),
    /// A mount, as a process sees it.
    Mount {
        /// The process's root folder, `/proc/TID/root`.
        root: PathBuf,
        /// The mount point in it. What it leads through belongs to others.
        path: PathBuf,
    },
    /// A socket in it, the descriptor of another process.
    Socket {
        /// A living thread of that one.
        tid: u32,
        /// The descriptor's number in it.
        fd: u32,
    },
}

impl Way {
    fn open(&self) -> io::Result<fs::File> {
        match self {
            Self::File(path) => open(path),
            Self::Mount { root, path } => reopen(&Root::open(root)?.namespace(path)?),
            Self::Socket { tid, fd } => socket_namespace(*tid, *fd),
        }
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Mount { root, path } => root.join(path.strip_prefix("/").unwrap_or(path)),
            Self::Socket { tid, fd } => PathBuf::from(format!("/proc/{tid}/fd/{fd}")),
        }
    }
}

/// Opens a namespace's file, and no other: a mount point can have become a link
/// to a device that does something when it is opened.
fn open(path: &Path) -> io::Result<fs::File> {
    let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    namespace::inode_of(&place)?;
    reopen(&place)
}

/// Opens what a handle is of.
fn reopen(place: &OwnedFd) -> io::Result<fs::File> {
    fs::File::open(format!("/proc/self/fd/{}", place.as_raw_fd()))
}

/// What was found in a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The namespace's inode: that which was really read, should the path by
    /// now lead to another.
    pub inode: u32,
    /// The user namespace that it belongs to; `None` if that cannot be told.
    pub user_ns: Option<UserNs>,
    /// Its addresses, except those of loopback devices.
    pub addresses: Vec<Address>,
    pub cut: bool,
}

/// An address, and when it was added, to about a second.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatedAddress {
    pub address: Address,
    /// By the kernel's own time; it tells none of some.
    pub made: Option<Timestamp>,
}

/// All that was found in a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The namespace that was really read.
    pub netns: Netns,
    /// The user namespace that it belongs to; `None` if that cannot be told.
    pub user_ns: Option<UserNs>,
    /// The ID that it has for the tracer's own namespace, with that one's inode.
    pub home_nsid: Option<(u32, i32)>,
    /// Its addresses, except those of loopback devices.
    pub addresses: Vec<DatedAddress>,
    /// Its devices by index, except loopback devices.
    pub devices: Vec<Device>,
    /// Default routes, and routes to single addresses, of every table.
    pub routes: Vec<Route>,
    /// Neighbours that are gateways of these, and permanent ones.
    pub neighbours: Vec<Neighbour>,
    /// Where it sends packets.
    pub forwarding: Forwarding,
    /// There are more addresses than are kept.
    pub addresses_cut: bool,
    /// There is more of something else; what [`Forwarding`] lacks it says itself.
    pub cut: bool,
}

impl Visit {
    /// Routes that somebody has entered: the kernel's own are no trace of CNI.
    pub fn entered_routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().filter(|route| !route.by_kernel)
    }

    /// Leaves out what there is no room for: whoever makes namespaces makes as
    /// many devices, routes and neighbours in each. The host's is kept whole.
    fn fit(mut self, target: &Target, room: &Room) -> Self {
        if target.is_hosts {
            return self;
        }
        let users = room.own_users.zip(self.user_ns);
        let few = match users.is_some_and(|(own, its)| own != its.inode) {
            true => FEW_OF_USERS,
            false => FEW,
        };
        self.addresses_cut |= room.fit(&mut self.addresses, few);
        self.cut |= room.fit(&mut self.devices, few)
            | room.fit(&mut self.routes, few)
            | room.fit(&mut self.neighbours, few);
        // Most have what every namespace has: only what is entered matters.
        let forwarding = &mut self.forwarding;
        let is_entered = |route: &TableRoute| route.kind != RouteKind::Local || route.is_any_ip();
        forwarding.routes.retain(is_entered);
        if forwarding.is_ordinary() {
            *forwarding = Forwarding::default();
        }
        let local = |routes: &[TableRoute]| routes.iter().filter(|it| it.is_any_ip()).count();
        let all_local = local(&forwarding.routes);
        forwarding.cut |= room.fit(&mut forwarding.rules, few)
            | room.fit(&mut forwarding.routes, few)
            | room.fit(&mut forwarding.neighbours, few)
            | room.fit(&mut forwarding.frames, few);
        forwarding.local_cut |= local(&forwarding.routes) < all_local;
        self
    }

    /// The ID that it has for the host's namespace, if that is the tracer's own.
    pub fn host_nsid(&self, is_host: impl FnOnce(u32) -> bool) -> Option<i32> {
        let (home, id) = self.home_nsid?;
        is_host(home).then_some(id)
    }
}

/// Addresses, devices, routes and neighbours that are kept of all namespaces
/// together, besides those of the host's own.
const MAX_KEPT: usize = 65_536;
/// Of each kind so many are kept in any case of a namespace of the host's users,
const FEW: usize = 64;
/// and so many of one of another user namespace.
const FEW_OF_USERS: usize = 8;

struct Room {
    left: AtomicUsize,
    /// The tracer's own user namespace.
    own_users: Option<u32>,
}

impl Room {
    fn new() -> Self {
        let own = fs::metadata("/proc/self/ns/user").ok();
        Self {
            left: AtomicUsize::new(MAX_KEPT),
            own_users: own.and_then(|own| u32::try_from(own.ino()).ok()),
        }
    }

    /// Returns whether something was left out.
    fn fit<T>(&self, list: &mut Vec<T>, few: usize) -> bool {
        let wanted = list.len().saturating_sub(few);
        let take = |left: usize| Some(left.saturating_sub(wanted));
        let before = self.left.fetch_update(SeqCst, SeqCst, take);
        let kept = few + wanted.min(before.unwrap_or_default());
        let is_cut = list.len() > kept;
        list.truncate(kept);
        list.shrink_to_fit();
        is_cut
    }
}

/// The addresses in the network namespace that a way leads to, within the time
/// given.
///
/// # Errors
/// See [`NetlinkError`].
pub fn addresses(
    way: &Way,
    bounded: &Bounded,
    timeout: Duration,
) -> Result<Snapshot, NetlinkError> {
    let (path, way) = (way.path(), way.clone());
    let arrived = Arc::new(AtomicBool::new(false));
    let has_arrived = Arc::clone(&arrived);
    // The thread is home again before it hands over the answer.
    let read = move || {
        let read = |lists: &mut Lists| {
            arrived.store(true, SeqCst);
            lists.addresses()
        };
        let Read {
            netns,
            user_ns,
            contents,
        } = Home::open()?.read(&way, read)?;
        Ok(Snapshot {
            inode: netns.inode,
            user_ns,
            cut: contents.addresses_cut || contents.cut,
            addresses: contents
                .addresses
                .into_iter()
                .map(|dated| dated.address)
                .collect(),
        })
    };
    match bounded.run_apart(timeout, read) {
        Ok(result) => result,
        Err(source) if has_arrived.load(SeqCst) => Err(NetlinkError::NoAnswer { path, source }),
        Err(source) => Err(NetlinkError::WayHangs { path, source }),
    }
}

/// What was read of a namespace.
struct Read {
    netns: Netns,
    user_ns: Option<UserNs>,
    contents: Contents,
}

/// The network namespace that a thread came from, to which it returns when
/// this is dropped.
struct Home(fs::File);

impl Home {
    fn open() -> Result<Self, NetlinkError> {
        let way = Way::File(PathBuf::from("/proc/thread-self/ns/net"));
        match way.open() {
            Ok(file) => Ok(Self(file)),
            Err(source) => Err(NetlinkError::Open {
                path: way.path(),
                source,
            }),
        }
    }

    fn inode(&self) -> Option<u32> {
        u32::try_from(self.0.metadata().ok()?.ino()).ok()
    }

    /// Enters a namespace and reads all of it. The thread stays there until
    /// the next visit, or until this is dropped.
    fn visit(&self, way: &Way) -> Result<Visit, NetlinkError> {
        let mut nsid = None;
        let everything = |lists: &mut Lists| {
            let before = lists.nsid_of(&self.0);
            let contents = lists.everything()?;
            nsid = lists.nsid_of(&self.0);
            // Until it has one for this, it could have had the same for another.
            if nsid == before {
                return Ok(contents);
            }
            lists.everything()
        };
        let Read {
            netns,
            user_ns,
            contents,
        } = self.read(way, everything)?;
        let Contents {
            addresses,
            devices,
            routes,
            neighbours,
            forwarding,
            addresses_cut,
            cut,
        } = contents;
        Ok(Visit {
            netns,
            user_ns,
            home_nsid: self.inode().zip(nsid),
            addresses,
            devices,
            routes,
            neighbours,
            forwarding,
            addresses_cut,
            cut,
        })
    }

    fn read(
        &self,
        way: &Way,
        read: impl FnOnce(&mut Lists) -> Result<Contents, DumpError>,
    ) -> Result<Read, NetlinkError> {
        let file = way.open().map_err(|source| NetlinkError::Open {
            path: way.path(),
            source,
        })?;
        let user_ns = user_ns(&file);
        let inode = enter(file).map_err(|source| NetlinkError::Enter {
            path: way.path(),
            source,
        })?;
        let failed = |request, source| NetlinkError::Request {
            path: way.path(),
            request,
            source,
        };
        let mut lists = Lists::open().map_err(|source| failed("socket", source))?;
        let cookie = lists.cookie();
        match read(&mut lists) {
            Ok(contents) => Ok(Read {
                netns: Netns { inode, cookie },
                user_ns,
                contents,
            }),
            Err(DumpError::Io(list, source)) => Err(failed(list.name(), source)),
            Err(DumpError::Format(source)) => Err(NetlinkError::Format {
                path: way.path(),
                source,
            }),
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Should this fail, the thread's end does it a moment later.
        let _: io::Result<()> = move_into(&self.0);
    }
}

/// The user namespace that a network namespace belongs to; `None` if the kernel
/// does not tell, as of one that is not below the tracer's own.
fn user_ns(netns: &fs::File) -> Option<UserNs> {
    let user_ns = syscall::user_namespace_of(netns).ok()?;
    let inode = u32::try_from(user_ns.metadata().ok()?.ino()).ok()?;
    let uid = syscall::owner_of_user_namespace(&user_ns)?;
    Some(UserNs { inode, uid })
}

/// Moves the thread into a namespace, and returns its inode.
fn enter(file: fs::File) -> io::Result<u32> {
    let inode = file.metadata()?.ino();
    move_into(&file)?;
    // Inodes of the kernel's namespaces have 32 bits.
    Ok(inode as u32)
}

fn move_into(file: &fs::File) -> io::Result<()> {
    Ok(move_into_link_name_space(
        file.as_fd(),
        Some(LinkNameSpaceType::Network),
    )?)
}

/// What the kernel would not send.
#[cfg(feature = "testing")]
pub fn fuzz(data: &[u8]) {
    decode::fuzz(data);
}
