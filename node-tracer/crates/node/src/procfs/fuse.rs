//! The FUSE mounts that a stuck task may wait for, and the processes that serve
//! them.
//!
//! A task waits for a mount that it sees, as a rule; if it has files open on some of
//! these, for one of those; where the host shows `/sys/fs/fuse/connections`, for one
//! that has requests without an answer, or for none that it sees. Linux 6.18 and later say which
//! connection a descriptor of `/dev/fuse` serves; on others any process that has
//! one may be the one that serves the mount.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use super::{
    Procfs, ProcfsError,
    fds::{descriptors, name},
    mounts::{each_line, line_of_type, mount_point},
    numbers, read_file, read_link,
};
use event::order::Order as _;
use event::{FuseMount, FuseServer, sleep};

/// Mounts, and servers of each, that are named.
const MAX_NAMED: usize = 4;
/// Mounts of a task that are told apart.
const MAX_MOUNTS: usize = 256;
/// Descriptors of a task that are looked at.
const MAX_OPEN: usize = 1024;
/// How long a task's mounts may take to read.
const MOUNTS: Duration = Duration::from_millis(100);
/// How long the search for the servers may take, and for how long its result is
/// used.
const SEARCH: Duration = Duration::from_millis(200);
const FRESH: Duration = Duration::from_secs(10);

/// A descriptor of `/dev/fuse`.
#[derive(Clone, Debug)]
struct Serving {
    server: FuseServer,
    /// The connection that it serves, if the kernel says so.
    connection: Option<u32>,
}

/// The processes that serve FUSE mounts, looked for when they are first needed.
#[derive(Debug, Default)]
pub struct FuseServers {
    found: Option<(Instant, Vec<Serving>)>,
}

/// A FUSE mount that a task sees.
#[derive(Debug)]
struct VisibleMount {
    id: u64,
    connection: u32,
    /// What can be alike in the server's name: the type's second part
    /// (`fuse.s3fs`) and the mount's source.
    words: [String; 2],
    mount: FuseMount,
}

impl FuseServers {
    /// The mounts that a task may wait for that sleeps there; empty if it waits
    /// for no FUSE daemon, or its mounts cannot be read.
    pub fn waited_for(
        &mut self,
        procfs: &Procfs,
        tid: u32,
        stack: &[String],
        wchan: Option<&str>,
    ) -> Vec<FuseMount> {
        if !sleep::is_fuse(stack, wchan) {
            return Vec::new();
        }
        let folder = procfs.folder().join(tid.to_string());
        let control = procfs.root.join("sys/fs/fuse/connections");
        let read = move |folder: &Path| -> Result<Vec<VisibleMount>, ProcfsError> {
            let mut seen = mounts(folder)?;
            for one in &mut seen {
                let folder = control.join(one.connection.to_string());
                one.mount.has_control = folder.join("abort").exists();
            }
            Ok(waiting(seen, &control))
        };
        let Ok(seen) = procfs.bounded(procfs.patience, folder, read) else {
            return Vec::new();
        };
        if seen.is_empty() {
            return Vec::new();
        }
        let servers = self.fresh(procfs);
        let named = seen.into_iter().take(MAX_NAMED);
        named.map(|one| served(one, servers)).collect()
    }

    fn fresh(&mut self, procfs: &Procfs) -> &[Serving] {
        let is_fresh = |(since, _): &(Instant, _)| since.elapsed() < FRESH;
        if !self.found.as_ref().is_some_and(is_fresh) {
            self.found = Some((Instant::now(), search(procfs)));
        }
        self.found.as_ref().map_or(&[], |(_, all)| all)
    }
}

/// The mounts that a task sees: those it has files open on, if there are such.
fn mounts(task: &Path) -> Result<Vec<VisibleMount>, ProcfsError> {
    let mut seen: Vec<VisibleMount> = Vec::new();
    each_line(&task.join("mountinfo"), MOUNTS, |line| {
        let new = line_of_type(line, b"fuse").and_then(|mount| {
            let (fuse, kind) = mount
                .fs_type
                .split_once('.')
                .unwrap_or((&mount.fs_type, ""));
            let source = mount.mount_source.as_deref().unwrap_or_default();
            matches!(fuse, "fuse" | "fuseblk").then_some(VisibleMount {
                id: u64::try_from(mount.mnt_id).ok()?,
                connection: connection(&mount.majmin)?,
                words: [kind.to_owned(), source.to_owned()],
                mount: FuseMount {
                    path: mount_point(&mount),
                    connection: connection(&mount.majmin)?,
                    has_control: false,
                    servers: Vec::new(),
                    is_served_surely: false,
                },
            })
        });
        if seen.len() < MAX_MOUNTS {
            seen.extend(new);
        }
    })?;
    let mut open = Vec::new();
    for fd in numbers(&task.join("fd"))?.into_iter().take(MAX_OPEN) {
        let info = read_file(&task.join("fdinfo").join(fd.to_string()))?;
        open.extend(info.and_then(|info| field(&info, "mnt_id:")));
    }
    if seen.iter().any(|one| open.contains(&one.id)) {
        seen.retain(|one| open.contains(&one.id));
    }
    // One connection can be mounted at many places.
    let mut kept = Vec::new();
    seen.retain(|one| {
        let is_new = !kept.contains(&one.connection);
        kept.push(one.connection);
        is_new
    });
    Ok(seen)
}

/// Those that can have a request without an answer, for all that the host shows. If
/// it is none of them, the task waits for one that it does not see: a mount that has
/// been detached meanwhile, or one of another mount namespace.
fn waiting(mut seen: Vec<VisibleMount>, control: &Path) -> Vec<VisibleMount> {
    seen.retain(|one| {
        let path = control.join(one.connection.to_string()).join("waiting");
        let count = fs::read_to_string(path).ok();
        count.is_none_or(|count| count.trim() != "0")
    });
    seen
}

/// The connection's number: the device's, as fusectl names it (`new_encode_dev`
/// is not used there: `MKDEV`, 20 bits of minor number).
fn connection(device: &str) -> Option<u32> {
    let (major, minor) = device.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some(major.checked_mul(1 << 20)? | minor)
}

fn served(mut one: VisibleMount, servers: &[Serving]) -> FuseMount {
    let by_number = servers
        .iter()
        .filter(|it| it.connection == Some(one.connection));
    let mut found: Vec<&FuseServer> = by_number.map(|it| &it.server).collect();
    one.mount.is_served_surely = !found.is_empty();
    if found.is_empty() {
        let unsaid = servers.iter().filter(|it| it.connection.is_none());
        found = unsaid.map(|it| &it.server).collect();
        let is_alike = |server: &&FuseServer| one.words.contains(&server.comm);
        if found.iter().any(is_alike) {
            found.retain(is_alike);
        }
    }
    found.order_by_key(|server| server.pid);
    found.dedup();
    one.mount.servers = found.into_iter().take(MAX_NAMED).cloned().collect();
    one.mount
}

/// Everybody who has `/dev/fuse` open, as far as the time allows.
fn search(procfs: &Procfs) -> Vec<Serving> {
    let Ok(pids) = procfs.processes() else {
        return Vec::new();
    };
    let (_, answers) = procfs.share(pids, SEARCH, |proc, pid, end| {
        serving(&proc.join(pid.to_string()), pid, end)
    });
    answers.each.into_iter().flatten().flatten().collect()
}

fn serving(process: &Path, pid: u32, end: Instant) -> Vec<Serving> {
    let mut found = Vec::new();
    let Ok((folder, fds)) = descriptors(process) else {
        return found;
    };
    for fd in fds {
        if Instant::now() >= end {
            break;
        }
        let link = read_link(&folder.join("fd").join(fd.to_string()));
        if !link.is_ok_and(|link| link.is_some_and(|link| link == Path::new("/dev/fuse"))) {
            continue;
        }
        let info = read_file(&folder.join("fdinfo").join(fd.to_string()));
        let info = info.ok().flatten().unwrap_or_default();
        let connection = field(&info, "fuse_connection:");
        found.extend(name(process).map(|comm| Serving {
            server: FuseServer { pid, comm },
            connection: connection.and_then(|number| u32::try_from(number).ok()),
        }));
    }
    found
}

/// A number in `fdinfo`.
fn field(info: &[u8], name: &str) -> Option<u64> {
    let info = String::from_utf8_lossy(info);
    let value = info.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::procfs::{Bounded, fds::tests::fd};

    const FUSE: &[&str] = &["request_wait_answer+0x12"];

    /// A task 7 with two FUSE mounts, and a server of each: 20 and 21.
    fn node(connection: impl Fn(u32) -> String) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let task = root.path().join("proc/7");
        fs::create_dir_all(&task).unwrap();
        let mountinfo = "30 1 0:58 / /a rw - fuse.s3fs s3fs rw\n\
            31 1 0:59 / /b\\040c rw - fuse juice rw\n\
            32 1 0:60 / /sys/fs/fuse/connections rw - fusectl none rw\n\
            33 1 8:1 / / rw - ext4 /dev/sda rw\n";
        fs::write(task.join("mountinfo"), mountinfo).unwrap();
        for (pid, comm, number) in [(20, "s3fs", 58), (21, "juicefs", 59)] {
            fd(root.path(), pid, 5, "/dev/fuse", &connection(number));
            fs::write(root.path().join(format!("proc/{pid}/comm")), comm).unwrap();
        }
        root
    }

    fn said(number: u32) -> String {
        format!("pos:\t0\nfuse_connection:\t{number}\n")
    }

    fn waited_for(root: &Path, stack: &[&str]) -> Vec<FuseMount> {
        let procfs = Procfs::new(root, Bounded::default());
        let stack: Vec<String> = stack.iter().map(ToString::to_string).collect();
        FuseServers::default().waited_for(&procfs, 7, &stack, None)
    }

    fn mount(path: &str, connection: u32, servers: &[(u32, &str)], surely: bool) -> FuseMount {
        let server = |(pid, comm): &(u32, &str)| FuseServer {
            pid: *pid,
            comm: (*comm).to_owned(),
        };
        FuseMount {
            path: PathBuf::from(path),
            connection,
            has_control: false,
            servers: servers.iter().map(server).collect(),
            is_served_surely: surely,
        }
    }

    #[test]
    fn who_waits_for_no_daemon_is_not_looked_at() {
        let root = node(said);
        assert_eq!(waited_for(root.path(), &["rpc_wait_bit_killable+0x1"]), []);
    }

    #[test]
    fn each_mount_that_a_task_sees_comes_with_the_process_that_serves_it() {
        let root = node(said);
        let expected = [
            mount("/a", 58, &[(20, "s3fs")], true),
            mount("/b c", 59, &[(21, "juicefs")], true),
        ];
        assert_eq!(waited_for(root.path(), FUSE), expected);
    }

    #[test]
    fn an_open_file_says_which_mount_it_is() {
        let root = node(said);
        fd(root.path(), 7, 3, "/b c/file", "pos:\t0\nmnt_id:\t31\n");
        let expected = [mount("/b c", 59, &[(21, "juicefs")], true)];
        assert_eq!(waited_for(root.path(), FUSE), expected);
    }

    #[test]
    fn a_connection_with_requests_without_an_answer_is_the_one() {
        let root = node(said);
        for (connection, waiting) in [(58, "0\n"), (59, "1\n")] {
            let folder = root.path().join("sys/fs/fuse/connections");
            let folder = folder.join(connection.to_string());
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("waiting"), waiting).unwrap();
            fs::write(folder.join("abort"), "").unwrap();
        }
        let expected = FuseMount {
            has_control: true,
            ..mount("/b c", 59, &[(21, "juicefs")], true)
        };
        assert_eq!(waited_for(root.path(), FUSE), [expected]);
    }

    /// Its user has detached the one that it waits for.
    #[test]
    fn a_connection_that_has_answered_all_is_not_the_one_even_if_the_task_sees_no_other() {
        let root = node(said);
        for connection in [58, 59] {
            let folder = format!("sys/fs/fuse/connections/{connection}");
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("waiting"), "0\n").unwrap();
        }
        assert_eq!(waited_for(root.path(), FUSE), []);
    }

    #[test]
    fn where_the_kernel_does_not_say_who_serves_a_mount_it_is_not_sure() {
        let root = node(|_| String::from("pos:\t0\n"));
        let both = [(20, "s3fs"), (21, "juicefs")];
        let expected = [
            mount("/a", 58, &[(20, "s3fs")], false),
            mount("/b c", 59, &both, false),
        ];
        assert_eq!(waited_for(root.path(), FUSE), expected);
    }

    #[test]
    fn a_block_device_has_the_number_that_fusectl_gives_it() {
        assert_eq!(connection("0:58"), Some(58));
        assert_eq!(connection("8:17"), Some(8 << 20 | 17));
        assert_eq!(connection("x"), None);
    }
}
