//! Finding mounted namespaces without waiting for a file system that does not
//! answer: anything can be mounted over their files, by mistake or on purpose.
//!
//! A mount point and the folders above it are in the kernel's memory for as
//! long as it is mounted, and so is what is mounted there last: that is looked
//! up without asking a file system (`RESOLVE_CACHED`), and what it is comes from
//! what is known of it already (`AT_STATX_DONT_SYNC`).
//!
//! Where that is not enough (Linux before 5.12, a root on a network, a folder
//! that another mount covers) only the file system knows. It is asked in a
//! thread that can be left behind, and a folder that has left one behind is not
//! asked again until it answers: one that hangs costs its own entries alone.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use rustix::fs::{AtFlags, CWD, OFlags, ResolveFlags, Statx, StatxAttributes, StatxFlags, statx};

use super::Root;
use crate::procfs::Bounded;

/// How long a file system may take for one path.
const PATIENCE: Duration = Duration::from_millis(150);

/// A folder of a root, of which device and inode are known.
type Place = (u32, u32, u64, PathBuf);

/// Folders in which a thread has been left behind, and is there still.
static HANGING: Mutex<BTreeSet<Place>> = Mutex::new(BTreeSet::new());
static ASKERS: LazyLock<Bounded> = LazyLock::new(Bounded::default);

fn hanging() -> MutexGuard<'static, BTreeSet<Place>> {
    HANGING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known of a file without asking a server.
fn known(file: impl AsFd, path: &str) -> io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(statx(file, path, flags, StatxFlags::INO)?)
}

/// The device of the kernel's file system of namespaces, which is one for all.
fn nsfs() -> Option<(u32, u32)> {
    static DEVICE: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    *DEVICE.get_or_init(|| {
        let own = known(CWD, "/proc/self/ns/net").ok()?;
        Some((own.stx_dev_major, own.stx_dev_minor))
    })
}

/// The inode of a namespace by its file.
///
/// # Errors
/// The file is none of a namespace, or that cannot be told. It is `NotFound`
/// where that is how it looks when it is no longer mounted.
pub fn inode_of(file: &OwnedFd) -> io::Result<u32> {
    let stat = known(file, "")?;
    if nsfs() == Some((stat.stx_dev_major, stat.stx_dev_minor)) {
        // Inodes of the kernel's namespaces have 32 bits.
        return u32::try_from(stat.stx_ino).map_err(io::Error::other);
    }
    let covered = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    Err(match covered {
        true => io::Error::other("another file system is mounted over it"),
        false => {
            let text = "it is no namespace, or no longer mounted";
            io::Error::new(io::ErrorKind::NotFound, text)
        }
    })
}

/// Says, on any way out, that a thread is not left behind any more.
struct Asking {
    place: Place,
    over: Arc<AtomicBool>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut hanging = hanging();
        self.over.store(true, SeqCst);
        hanging.remove(&self.place);
    }
}

impl Root {
    /// A handle of the namespace that is mounted at a path. It never waits for
    /// long.
    ///
    /// # Errors
    /// There is no namespace (`NotFound`), or none that can be reached.
    pub fn namespace(&self, path: &Path) -> io::Result<OwnedFd> {
        self.found(path).map(|(file, _)| file)
    }

    /// The inode of the namespace that is mounted at a path; `None` also for
    /// another file, such as a name whose mount is gone. The namespace is not
    /// entered, and not held for longer than this takes.
    pub fn nsfs_inode(&self, path: &Path) -> Option<u32> {
        self.found(path).ok().map(|(_, inode)| inode)
    }

    fn found(&self, path: &Path) -> io::Result<(OwnedFd, u32)> {
        use io::ErrorKind::{InvalidInput, WouldBlock};
        let file = match self.resolve(path, OFlags::PATH, ResolveFlags::CACHED) {
            Err(error) if matches!(error.kind(), InvalidInput | WouldBlock) => self.ask(path)?,
            result => result?,
        };
        let inode = inode_of(&file)?;
        Ok((file, inode))
    }

    /// Has the file system look a path up.
    fn ask(&self, path: &Path) -> io::Result<OwnedFd> {
        let folder = path.parent().unwrap_or(path).to_owned();
        let stuck = |why: &dyn std::fmt::Display| {
            let text = format!("the file system of {}: {why}", folder.display());
            io::Error::new(io::ErrorKind::TimedOut, text)
        };
        let top = known(&self.0, "")?;
        let device = (top.stx_dev_major, top.stx_dev_minor);
        let place = (device.0, device.1, top.stx_ino, folder.clone());
        if hanging().contains(&place) {
            return Err(stuck(&"an earlier look-up still hangs"));
        }
        let over = Arc::new(AtomicBool::new(false));
        let asking = Asking {
            place: place.clone(),
            over: Arc::clone(&over),
        };
        let (root, path) = (Self(self.0.try_clone()?), path.to_owned());
        let answer = ASKERS.read(PATIENCE, move || {
            let _asking = asking;
            root.handle(&path)
        });
        answer.unwrap_or_else(|why| {
            let mut hanging = hanging();
            // It may have ended just now.
            if !over.load(SeqCst) {
                hanging.insert(place);
            }
            Err(stuck(&why))
        })
    }
}
