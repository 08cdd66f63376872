//! A file system with one file whose read never returns.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::Context as _;

use crate::scratch::Scratch;
use crate::{fuse, helper, wait};

/// For the server and for a reader, on a machine that does much else.
const LIMIT: Duration = Duration::from_secs(60);

/// A file system that answers nothing, mounted over something: whoever needs an
/// answer waits in uninterruptible sleep until this is dropped.
#[derive(Debug)]
pub struct SilentFs {
    server: Child,
    mount_point: PathBuf,
}

impl SilentFs {
    /// Covers a file or a folder.
    pub fn cover(path: &Path) -> anyhow::Result<Self> {
        let mut server = helper::command(None, None, "fuse-silent")
            .arg(path)
            .stdout(Stdio::piped())
            .spawn()
            .context("start the FUSE server")?;
        let stdout = server.stdout.take().context("no pipe")?;
        let this = Self {
            server,
            mount_point: path.to_owned(),
        };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        anyhow::ensure!(line == "ready\n", "the FUSE server says {line:?}");
        Ok(this)
    }
}

impl Drop for SilentFs {
    fn drop(&mut self) {
        end(&mut self.server);
        fuse::detach(&self.mount_point);
    }
}

/// Ends a server: its device is closed with it, and the kernel fails all that
/// is open.
fn end(server: &mut Child) {
    drop(server.stdin.take());
    let ended = |server: &mut Child| matches!(server.try_wait(), Ok(Some(_)) | Err(_));
    if !wait::settle(Duration::from_secs(3), || ended(server)) {
        let _ = server.kill();
        wait::settle(Duration::from_secs(3), || ended(server));
    }
}

/// A mounted file system of [`fuse`](crate::hangfs), served by a child process.
///
/// Who reads [`file`](Self::file) and is then killed stays in uninterruptible
/// sleep until [`release`](Self::release), or until this guard or the process
/// that holds it is gone: the server ends when its stdin is closed, and the
/// kernel then fails all its open requests.
#[derive(Debug)]
pub struct HangFs {
    server: Option<Child>,
    said: Receiver<String>,
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
        let mut server = helper::command(None, None, "fuse")
            .arg(&mount_point)
            .stdout(Stdio::piped())
            .spawn()
            .context("start the FUSE server")?;
        let lines = BufReader::new(server.stdout.take().context("no pipe")?).lines();
        let (say, said) = mpsc::channel();
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .try_for_each(|line| say.send(line))
        });
        let mut this = Self {
            server: Some(server),
            said,
            readers: Vec::new(),
            mount_point,
            _folder: folder,
        };
        wait::until("the FUSE server", LIMIT, || {
            Ok(this.line()?.filter(|line| line == "ready"))
        })?;
        Ok(this)
    }

    /// The file whose read hangs.
    pub fn file(&self) -> PathBuf {
        self.mount_point.join(fuse::FILE)
    }

    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// A line from the server, if there is one.
    fn line(&mut self) -> anyhow::Result<Option<String>> {
        match self.said.recv_timeout(Duration::from_millis(1)) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                anyhow::bail!("the FUSE server has ended (its message is above)")
            }
        }
    }

    /// Waits until the server has taken in a read of this process.
    pub fn wait_for_reader(&mut self, pid: u32) -> anyhow::Result<()> {
        let what = format!("process {pid} to read {}", self.file().display());
        wait::until(&what, LIMIT, || {
            if let Some(line) = self.line()? {
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
        signal(server, libc::SIGSTOP).context("stop the FUSE server")
    }

    /// Ends the server: every stuck reader gets an error and goes on.
    pub fn release(&mut self) {
        let Some(mut server) = self.server.take() else {
            return;
        };
        let _ = signal(&server, libc::SIGCONT);
        end(&mut server);
        fuse::detach(&self.mount_point);
    }
}

impl Drop for HangFs {
    fn drop(&mut self) {
        self.release();
    }
}

fn signal(server: &Child, signal: libc::c_int) -> std::io::Result<()> {
    // SAFETY: kill takes no pointers; the child has not been waited for.
    match unsafe { libc::kill(server.id() as libc::pid_t, signal) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
