//! A network namespace with a name.

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::fuse::detach;
use crate::scratch::unique_name;

/// Where named namespaces are, as for `ip netns`.
pub const FOLDER: &str = "/run/netns";

/// A network namespace, bound to `/run/netns/nt-test-PID-N`.
///
/// No descriptor of it is held: the name is the only thing here that keeps it.
#[derive(Debug)]
pub struct Netns {
    name: String,
    path: PathBuf,
    inode: u64,
    named: bool,
}

fn last_error(what: &str) -> anyhow::Result<()> {
    Err(std::io::Error::last_os_error()).with_context(|| what.to_owned())
}

/// Moves the calling thread into a new namespace and binds it to `path`.
fn unshare_onto(path: &Path) -> anyhow::Result<()> {
    let target = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: unshare takes no pointers; it moves this thread alone.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return last_error("unshare a network namespace");
    }
    // SAFETY: mount reads NUL-terminated strings, which outlive the call, and no data.
    let bound = unsafe {
        libc::mount(
            c"/proc/thread-self/ns/net".as_ptr(),
            target.as_ptr(),
            c"none".as_ptr(),
            libc::MS_BIND,
            std::ptr::null(),
        )
    };
    if bound != 0 {
        return last_error("bind the network namespace");
    }
    Ok(())
}

impl Netns {
    /// Makes an empty one (`lo`, down).
    pub fn create() -> anyhow::Result<Self> {
        fs::create_dir_all(FOLDER).with_context(|| format!("mkdir {FOLDER}"))?;
        Self::create_in(Path::new(FOLDER))
    }

    /// Makes one whose name is in another folder. (`ip` knows it by
    /// [`path`](Self::path) alone.)
    pub fn create_in(folder: &Path) -> anyhow::Result<Self> {
        let name = unique_name();
        let path = folder.join(&name);
        fs::File::create_new(&path).with_context(|| format!("create {}", path.display()))?;
        let mut this = Self {
            name,
            path,
            inode: 0,
            named: true,
        };
        // In a thread of its own, which then ends: only the name keeps the namespace.
        std::thread::scope(|scope| scope.spawn(|| unshare_onto(&this.path)).join())
            .map_err(|_| anyhow::anyhow!("the thread that makes the namespace panicked"))??;
        this.inode = fs::metadata(&this.path)?.ino();
        Ok(this)
    }

    /// Its name in its folder, [`FOLDER`] if nothing else was said.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its path, as CNI_NETNS has it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its inode number, by which the kernel and the tracer call it.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// A command that will run inside.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let path = CString::new(self.path.as_os_str().as_bytes()).unwrap_or_default();
        let enter = move || {
            // SAFETY: open reads a NUL-terminated string, which the closure owns.
            let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
            // SAFETY: setns takes any number for a descriptor and fails on a bad one.
            if fd < 0 || unsafe { libc::setns(fd, libc::CLONE_NEWNET) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        };
        let mut command = Command::new(program);
        // SAFETY: the closure only makes system calls, which is allowed between fork and exec.
        unsafe { command.pre_exec(enter) };
        command
    }

    /// Runs `ip ARGS` inside.
    pub fn ip(&self, args: &str) -> anyhow::Result<()> {
        let output = self
            .command("ip")
            .args(args.split_whitespace())
            .output()
            .with_context(|| format!("ip {args}"))?;
        anyhow::ensure!(
            output.status.success(),
            "ip {args} (in {}): {}",
            self.name,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(())
    }

    /// Takes the name away. The namespace lives on if something else holds it.
    pub fn delete(&mut self) -> anyhow::Result<()> {
        if !std::mem::take(&mut self.named) {
            return Ok(());
        }
        detach(&self.path);
        fs::remove_file(&self.path).with_context(|| format!("rm {}", self.path.display()))
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        if let Err(error) = self.delete() {
            eprintln!("stage: {error:#}");
        }
    }
}

/// Connects two namespaces with a veth pair; each side is (device, address/prefix).
pub fn connect(a: (&Netns, &str, &str), b: (&Netns, &str, &str)) -> anyhow::Result<()> {
    a.0.ip(&format!(
        "link add {} type veth peer name {} netns {}",
        a.1,
        b.1,
        b.0.name()
    ))?;
    for (netns, device, address) in [a, b] {
        netns.ip(&format!("addr add {address} dev {device}"))?;
        netns.ip(&format!("link set {device} up"))?;
    }
    Ok(())
}

/// Inode of the network namespace that a process is in.
pub fn inode_of_process(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/ns/net");
    Ok(fs::metadata(&path).with_context(|| path)?.ino())
}
