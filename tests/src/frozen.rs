//! A file system that is frozen: who writes to it is in uninterruptible sleep
//! at once, before anybody kills it.
//!
//! Needs root, busybox ([`Need::StaticBusybox`](crate::stage::Need)) and
//! [`Need::Loop`](crate::stage::Need).

use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::scratch::Scratch;
use crate::stage::in_path;
use crate::wait;

/// `_IOWR('X', 119, int)` and `_IOWR('X', 120, int)` of linux/fs.h.
const FIFREEZE: libc::Ioctl = 0xc004_5877_u32 as libc::Ioctl;
const FITHAW: libc::Ioctl = 0xc004_5878_u32 as libc::Ioctl;
/// Large enough for any block size that mke2fs may choose.
const SIZE: u64 = 4 << 20;

/// An ext4 in a file of its own. Thawed and unmounted on drop.
#[derive(Debug)]
pub struct FrozenFs {
    mount_point: PathBuf,
    frozen: bool,
    // Dropped last: the image and the mount point are in it.
    _folder: Scratch,
}

fn busybox(applet: &str, args: &[&str], paths: &[&Path]) -> anyhow::Result<()> {
    let program = in_path("busybox").context("busybox is not installed")?;
    let output = Command::new(program)
        .arg(applet)
        .args(args)
        .args(paths)
        .stdin(Stdio::null())
        .output()?;
    anyhow::ensure!(
        output.status.success(),
        "{applet}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

impl FrozenFs {
    /// Makes and mounts it; it is not frozen yet.
    pub fn mount() -> anyhow::Result<Self> {
        let folder = Scratch::create()?;
        let image = folder.path().join("image");
        fs::File::create(&image)?.set_len(SIZE)?;
        busybox("mke2fs", &["-F"], &[&image])?;
        let mount_point = folder.path().join("disk");
        fs::create_dir(&mount_point).context("the mount point")?;
        // The loop device goes with the mount.
        busybox(
            "mount",
            &["-t", "ext4", "-o", "loop"],
            &[&image, &mount_point],
        )?;
        let this = Self {
            mount_point,
            frozen: false,
            _folder: folder,
        };
        fs::write(this.file(), "").context("a file on it")?;
        Ok(this)
    }

    pub fn file(&self) -> PathBuf {
        self.mount_point.join("file")
    }

    /// From here on nobody can write to it.
    pub fn freeze(&mut self) -> anyhow::Result<()> {
        self.request(FIFREEZE).context("freeze")?;
        self.frozen = true;
        Ok(())
    }

    /// All who wait go on.
    pub fn thaw(&mut self) -> anyhow::Result<()> {
        if self.frozen {
            self.request(FITHAW).context("thaw")?;
            self.frozen = false;
        }
        Ok(())
    }

    fn request(&self, request: libc::Ioctl) -> anyhow::Result<()> {
        let folder = fs::File::open(&self.mount_point).context("the mount point")?;
        // SAFETY: neither of the requests reads its argument.
        match unsafe { libc::ioctl(folder.as_raw_fd(), request, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().into()),
        }
    }
}

impl Drop for FrozenFs {
    fn drop(&mut self) {
        if let Err(error) = self.thaw() {
            eprintln!("stage: {error:#}");
        }
        // Who was held up by it may have it open for a moment yet.
        let unmounted = || busybox("umount", &[], &[&self.mount_point]).is_ok();
        if !wait::settle(Duration::from_secs(5), unmounted) {
            eprintln!("stage: cannot unmount {}", self.mount_point.display());
        }
    }
}
