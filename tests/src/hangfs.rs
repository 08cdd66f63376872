//! A file system with one file whose read never returns.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use crate::helper::{self, Helper};
use crate::scratch::Scratch;
use crate::{fuse, wait};

/// For the server and for a reader, on a machine that does much else.
const LIMIT: Duration = Duration::from_secs(60);

/// A file system that answers nothing, mounted over something: whoever needs an
/// answer waits in uninterruptible sleep until this is dropped.
#[derive(Debug)]
pub struct SilentFs {
    server: Helper,
    mount_point: PathBuf,
}

impl SilentFs {
    /// Covers a file or a folder.
    pub fn cover(path: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            server: serve("fuse-silent", path)?,
            mount_point: path.to_owned(),
        })
    }
}

impl Drop for SilentFs {
    fn drop(&mut self) {
        self.server.end();
        fuse::detach(&self.mount_point);
    }
}

/// Starts a server. Its device is closed with it, and the kernel fails all that
/// is open.
fn serve(role: &str, at: &Path) -> anyhow::Result<Helper> {
    let mut command = helper::command(None, None, role);
    let server = Helper::start(command.arg(at), Duration::from_secs(3))?;
    server.wait_until_ready("the FUSE server", LIMIT)?;
    Ok(server)
}

/// A mounted file system of [`fuse`](crate::hangfs), served by a child process.
///
/// Who reads [`file`](Self::file) and is then killed stays in uninterruptible
/// sleep until [`release`](Self::release), or until this guard or the process
/// that holds it is gone: the server ends when its stdin is closed, and the
/// kernel then fails all its open requests.
#[derive(Debug)]
pub struct HangFs {
    server: Option<Helper>,
    readers: Vec<u32>,
    mount_point: PathBuf,
    // Dropped last: the mount point is in it.
    _folder: Scratch,
}

impl HangFs {
    /// Mounts it in a folder of its own.
    pub fn mount() -> anyhow::Result<Self> {
        let folder = Scratch::create()?;
        let mount_point = folder.path().join("volume");
        fs::create_dir(&mount_point).context("the mount point")?;
        Ok(Self {
            server: Some(serve("fuse", &mount_point)?),
            readers: Vec::new(),
            mount_point,
            _folder: folder,
        })
    }

    /// The file whose read hangs.
    pub fn file(&self) -> PathBuf {
        self.mount_point.join(fuse::FILE)
    }

    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Waits until the server has taken in a read of this process.
    pub fn wait_for_reader(&mut self, pid: u32) -> anyhow::Result<()> {
        let what = format!("process {pid} to read {}", self.file().display());
        let server = self.server.as_ref().context("it was released")?;
        wait::until(&what, LIMIT, || {
            if let Some(line) = server.said()? {
                self.readers.extend(
                    line.strip_prefix("read ")
                        .and_then(|pid| pid.parse::<u32>().ok()),
                );
            }
            Ok(self.readers.contains(&pid).then_some(()))
        })
    }

    /// From now on it answers nothing at all, not even whether a file is there.
    pub fn stop(&self) -> anyhow::Result<()> {
        let server = self.server.as_ref().context("it was released")?;
        server.signal(libc::SIGSTOP)
    }

    /// Ends the server: every stuck reader gets an error and goes on.
    pub fn release(&mut self) {
        let Some(mut server) = self.server.take() else {
            return;
        };
        let _ = server.signal(libc::SIGCONT);
        server.end();
        fuse::detach(&self.mount_point);
    }
}

impl Drop for HangFs {
    fn drop(&mut self) {
        self.release();
    }
}
