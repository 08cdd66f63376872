//! A real systemd-journald that touches neither the machine's journal nor its /run.
//!
//! It runs in a mount namespace with a /run and a machine ID of its own, and in
//! a network namespace of its own, so that the machine's audit socket stays out
//! of reach. Its sockets and its files are in a folder of the stage, which is
//! bound into that /run: so the tracer reaches it by a short path of the host,
//! and `journalctl` reads what it wrote.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

use crate::fuse::detach;
use crate::helper::{self, Helper};
use crate::scratch::{PREFIX, Scratch, container_id};
use crate::syscall::{mount, set_parent_death_signal, unshare, wait_for_input};
use crate::{process, wait};

/// The program; it is in no PATH.
pub(crate) const PROGRAM: &str = "/lib/systemd/systemd-journald";
/// Another one is bound over it.
pub(crate) const MACHINE_ID: &str = "/etc/machine-id";

const SETTINGS: &str = "[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=\nForwardToSyslog=no\n\
    ForwardToKMsg=no\nForwardToConsole=no\nForwardToWall=no\nRateLimitIntervalSec=0\n";

/// A unix socket's path has so many bytes, the NUL included.
const SOCKET_PATH: usize = 108;

/// Time to start, to end, and for an entry to be readable.
const LIMIT: Duration = Duration::from_secs(20);

/// A journald of one's own. It can end and start again with the same files.
#[derive(Debug)]
pub struct Journald {
    helper: Option<Helper>,
    machine_id: String,
    // Dropped last: everything is in it.
    folder: Scratch,
}

impl Journald {
    /// Starts it; back when it listens.
    pub fn start() -> anyhow::Result<Self> {
        let folder = Scratch::create()?;
        let machine_id = container_id()?[..32].to_owned();
        for name in ["sockets", "log"] {
            fs::create_dir(folder.path().join(name)).with_context(|| format!("mkdir {name}"))?;
        }
        fs::write(folder.path().join("machine-id"), format!("{machine_id}\n"))?;
        let mut this = Self {
            helper: None,
            machine_id,
            folder,
        };
        let socket = this.socket();
        anyhow::ensure!(
            socket.as_os_str().len() < SOCKET_PATH,
            "{} is too long for a socket: set TMPDIR to a shorter one",
            socket.display()
        );
        this.start_again()?;
        Ok(this)
    }

    /// Starts it after [`stop`](Self::stop).
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        anyhow::ensure!(self.helper.is_none(), "journald runs already");
        // What an earlier one left would look like this one's.
        let _ = fs::remove_file(self.socket());
        let log = fs::File::create(self.folder.path().join("journald.log"))?;
        let mut command = helper::command(None, None, "journald");
        command.arg(self.folder.path()).stderr(log);
        // journald gets a signal of its own when its parent dies.
        let helper = self.helper.insert(Helper::start(&mut command, LIMIT)?);
        let socket = self.folder.path().join("sockets/socket");
        let entries = self.folder.path().join("log").join(&self.machine_id);
        let started = wait::until("journald to listen", LIMIT, || {
            anyhow::ensure!(!helper.has_ended(), "journald has ended");
            let listens = fs::metadata(&socket).is_ok_and(|file| file.file_type().is_socket());
            Ok((listens && entries.is_dir()).then_some(()))
        });
        started.with_context(|| {
            let log = fs::read_to_string(self.folder.path().join("journald.log"));
            format!("journald: {}", log.unwrap_or_default().trim())
        })
    }

    /// Ends it as `systemctl stop` does. Its socket's file stays.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        let ended = self.helper.take().is_none_or(|mut helper| helper.end());
        anyhow::ensure!(ended, "journald did not end by itself");
        Ok(())
    }

    /// Stops it in its tracks: its socket's queue fills up. It is to be let go
    /// on before it is to end.
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.signal(libc::SIGSTOP)
    }

    /// Lets it go on.
    pub fn thaw(&self) -> anyhow::Result<()> {
        self.signal(libc::SIGCONT)
    }

    fn signal(&self, signal: libc::c_int) -> anyhow::Result<()> {
        let helper = self.helper.as_ref().context("journald does not run")?.pid();
        let path = format!("/proc/{helper}/task/{helper}/children");
        let children = fs::read_to_string(&path).with_context(|| path.clone())?;
        let pid = children.trim().parse().with_context(|| path)?;
        // The helper reaps it only at its end.
        process::signal(pid, signal).context("signal journald")
    }

    /// Where it takes entries by the native protocol.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("sockets/socket")
    }

    /// The folder with its files.
    pub fn entries(&self) -> PathBuf {
        self.folder.path().join("log").join(&self.machine_id)
    }

    /// The entries that have all of these (`FIELD=value`), oldest first, as
    /// `journalctl -o json` prints them. It may be a moment behind.
    pub fn records(&self, matches: &[&str]) -> anyhow::Result<Vec<Value>> {
        read(&["-D".as_ref(), self.entries().as_os_str()], matches)
    }

    /// Waits for an entry that has all of these, and is wanted.
    pub fn wait_for(
        &self,
        what: &str,
        matches: &[&str],
        wanted: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        wait::until(&format!("{what} in the journal"), LIMIT, || {
            Ok(self
                .records(matches)?
                .into_iter()
                .find(|entry| wanted(entry)))
        })
    }
}

impl Drop for Journald {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("stage: {error:#}");
        }
    }
}

/// The entries of a journal (of this machine's, if `which` is empty) that have
/// all of these, oldest first.
pub(crate) fn read(which: &[&OsStr], matches: &[&str]) -> anyhow::Result<Vec<Value>> {
    let output = Command::new("journalctl")
        .args(which)
        .args(["-o", "json", "--all", "--no-pager", "--quiet"])
        .args(matches)
        .stdin(Stdio::null())
        .output()
        .context("journalctl")?;
    anyhow::ensure!(
        output.status.success() || output.stdout.is_empty() && output.stderr.is_empty(),
        "journalctl: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let lines = output.stdout.split(|&byte| byte == b'\n');
    lines
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).context("a line of journalctl -o json"))
        .collect()
}

/// All values of a field of an entry. (`journalctl` prints one value as it is,
/// several as an array, and one that holds control characters as an array of
/// its bytes.)
pub fn values(entry: &Value, field: &str) -> Vec<String> {
    let bytes = |value: &Value| -> Option<String> {
        let bytes = value.as_array()?.iter();
        let bytes: Option<Vec<u8>> = bytes.map(|byte| byte.as_u64()?.try_into().ok()).collect();
        Some(String::from_utf8_lossy(&bytes?).into_owned())
    };
    let one = |value: &Value| value.as_str().map(str::to_owned).or_else(|| bytes(value));
    match &entry[field] {
        Value::Null => Vec::new(),
        value => match (one(value), value.as_array()) {
            (Some(text), _) => vec![text],
            (None, Some(all)) => all.iter().filter_map(one).collect(),
            (None, None) => Vec::new(),
        },
    }
}

/// The helper: makes the namespaces, has journald as its child, and ends it
/// when stdin is closed.
pub(crate) fn serve(folder: &Path) -> anyhow::Result<()> {
    unshare(libc::CLONE_NEWNS | libc::CLONE_NEWNET)?;
    mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_PRIVATE)?;
    drop_copies();
    let run = Path::new("/run");
    mount(None, run, Some("tmpfs"), libc::MS_NOSUID | libc::MS_NODEV)?;
    for (own, seen) in [
        ("sockets", "/run/systemd/journal"),
        ("log", "/run/log/journal"),
    ] {
        fs::create_dir_all(seen).with_context(|| format!("mkdir {seen}"))?;
        mount(
            Some(&folder.join(own)),
            Path::new(seen),
            None,
            libc::MS_BIND,
        )?;
    }
    let machine_id = folder.join("machine-id");
    mount(
        Some(&machine_id),
        Path::new(MACHINE_ID),
        None,
        libc::MS_BIND,
    )?;
    let settings = Path::new("/run/systemd/journald.conf.d");
    fs::create_dir_all(settings)?;
    fs::write(settings.join("stage.conf"), SETTINGS)?;

    let mut command = Command::new(PROGRAM);
    command
        .stdin(Stdio::null())
        .env_remove("NOTIFY_SOCKET")
        .envs([
            ("SYSTEMD_LOG_TARGET", "console"),
            ("SYSTEMD_LOG_LEVEL", "warning"),
        ]);
    // SAFETY: the closure makes one system call, which is allowed between fork and exec.
    unsafe { command.pre_exec(|| set_parent_death_signal(libc::SIGTERM)) };
    let mut journald = command.spawn().context(PROGRAM)?;
    loop {
        if let Some(status) = journald.try_wait()? {
            anyhow::bail!("{PROGRAM} has ended: {status}");
        }
        if wait_for_input(Duration::from_millis(20)) {
            break;
        }
    }
    process::signal(journald.id(), libc::SIGTERM).context("end journald")?;
    let ended = |journald: &mut Child| matches!(journald.try_wait(), Ok(Some(_)) | Err(_));
    if !wait::settle(Duration::from_secs(10), || ended(&mut journald)) {
        journald.kill()?;
        journald.wait()?;
    }
    Ok(())
}

/// The copies of the stage's mounts that came with the mount namespace would
/// keep its network namespaces and its file systems alive.
fn drop_copies() {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for line in mounts.lines() {
        let Some((mount, kind)) = line.split_once(" - ") else {
            continue;
        };
        if let Some(point) = mount.split(' ').nth(4)
            && (kind.starts_with("nsfs ") || point.contains(&format!("/{PREFIX}")))
        {
            detach(Path::new(point));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_has_one_value_or_several_as_text_or_as_bytes() {
        let entry = json!({ "A": "x", "B": ["x", "y"], "C": [27, 91], "D": ["x", [10]] });
        assert_eq!(values(&entry, "A"), ["x"]);
        assert_eq!(values(&entry, "B"), ["x", "y"]);
        assert_eq!(values(&entry, "C"), ["\x1b["]);
        assert_eq!(values(&entry, "D"), ["x", "\n"]);
        assert!(values(&entry, "E").is_empty());
    }
}
