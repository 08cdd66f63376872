//! Programs that are started with fewer rights than root has, or with
//! something of the system taken away from them.

mod helper;

use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::syscall::send_descriptor;

pub use helper::BPF_LOOP;

/// A capability's number and name.
pub type Capability = (u32, &'static str);

/// Those that the tracer's documentation lists: all that it takes with them as
/// root, and nothing else.
pub const DOCUMENTED: [Capability; 8] = [
    BPF,
    PERFMON,
    SYS_RESOURCE,
    SYSLOG,
    SYS_PTRACE,
    SYS_ADMIN,
    DAC_READ_SEARCH,
    NET_ADMIN,
];
/// Those of them that a trace keeps.
pub const KEPT: [Capability; 4] = [SYS_PTRACE, SYS_ADMIN, DAC_READ_SEARCH, NET_ADMIN];

/// Programs, maps.
pub const BPF: Capability = (39, "CAP_BPF");
/// Programs that look into the kernel.
pub const PERFMON: Capability = (38, "CAP_PERFMON");
/// Locked memory beyond the limit, before Linux 5.11.
pub const SYS_RESOURCE: Capability = (24, "CAP_SYS_RESOURCE");
pub const SYSLOG: Capability = (34, "CAP_SYSLOG");
pub const SYS_PTRACE: Capability = (19, "CAP_SYS_PTRACE");
pub const SYS_ADMIN: Capability = (21, "CAP_SYS_ADMIN");
pub const DAC_READ_SEARCH: Capability = (2, "CAP_DAC_READ_SEARCH");
/// The namespace of a socket.
pub const NET_ADMIN: Capability = (12, "CAP_NET_ADMIN");

/// The bits of some.
pub fn mask(capabilities: &[Capability]) -> u64 {
    capabilities
        .iter()
        .fold(0, |mask, (number, _)| mask | 1 << number)
}

/// The documented ones but these.
pub fn without(missing: &[Capability]) -> Vec<Capability> {
    DOCUMENTED
        .into_iter()
        .filter(|one| !missing.contains(one))
        .collect()
}

/// What a program is started with. By default, with all that its starter has.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// No capabilities but these, whatever is executed.
    pub capabilities: Option<Vec<Capability>>,
    /// It may lock so many bytes of memory.
    pub memlock: Option<u64>,
    /// Folders that are empty for it.
    pub hidden: Vec<&'static str>,
    /// bpf(2) is refused by a seccomp filter.
    pub no_bpf: bool,
    /// Programs that call a helper of this number are refused, as by a kernel
    /// that does not have it.
    pub no_helper: Option<i32>,
}

/// What fails, as an error of the system.
fn done(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Rights {
    /// Has a command be started with these.
    ///
    /// # Errors
    /// A path with a NUL.
    pub fn limit(&self, command: &mut Command) -> anyhow::Result<()> {
        let Self {
            capabilities,
            memlock,
            hidden,
            no_bpf,
            no_helper,
        } = self.clone();
        let no_helper = no_helper.map(helper::supervisor).transpose()?;
        let c = |path: &&str| CString::new(Path::new(path).as_os_str().as_bytes());
        let hidden: Result<Vec<CString>, _> = hidden.iter().map(c).collect();
        let hidden = hidden.context("a path")?;
        let keep = capabilities.map(|capabilities| mask(&capabilities));
        let limit = move || {
            if !hidden.is_empty() {
                hide(&hidden)?;
            }
            if let Some(bytes) = memlock {
                let limit = libc::rlimit {
                    rlim_cur: bytes,
                    rlim_max: bytes,
                };
                // SAFETY: setrlimit reads the struct that it is given.
                done(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) })?;
            }
            if no_bpf {
                filter_bpf(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0)?;
            }
            if let Some(supervisor) = &no_helper {
                let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
                let listener = filter_bpf(libc::SECCOMP_RET_USER_NOTIF, flags)?;
                // SAFETY: the descriptor is new, and this process's own.
                let listener = unsafe { OwnedFd::from_raw_fd(listener) };
                send_descriptor(supervisor, &listener)?;
            }
            if let Some(keep) = keep {
                bound(keep)?;
            }
            Ok(())
        };
        // SAFETY: the closure makes system calls alone, on memory that it owns
        // already, which is allowed between fork and exec.
        unsafe { command.pre_exec(limit) };
        Ok(())
    }
}

/// Empty file systems over folders, in a mount namespace of one's own.
fn hide(folders: &[CString]) -> io::Result<()> {
    const PRIVATE: libc::c_ulong = libc::MS_REC | libc::MS_PRIVATE;
    let none = std::ptr::null();
    // SAFETY: unshare takes no pointers.
    done(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    // SAFETY: mount reads NUL-terminated strings that outlive the call, and no data.
    done(unsafe { libc::mount(none, c"/".as_ptr(), none, PRIVATE, none.cast()) })?;
    for folder in folders {
        let kind = c"tmpfs".as_ptr();
        // SAFETY: as above.
        let mounted = unsafe { libc::mount(kind, folder.as_ptr(), kind, 0, none.cast()) };
        match done(mounted) {
            // What is not there need not be hidden.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            other => other?,
        }
    }
    Ok(())
}

/// What the kernel does at bpf(2) of this process and of all that it executes.
/// Returns the listener's descriptor, if the flags ask for one.
fn filter_bpf(action: u32, flags: libc::c_ulong) -> io::Result<i32> {
    const NUMBER: u32 = 0;
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, NUMBER),
        step(libc::BPF_JMP | libc::BPF_JEQ, 0, 1, libc::SYS_bpf as u32),
        step(libc::BPF_RET, 0, 0, action),
        step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the kernel copies the program, which lives until then.
    match unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) } {
        0.. if flags == 0 => Ok(0),
        listener @ 0.. => Ok(listener as i32),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Nothing that is executed from here on has other capabilities than these.
fn bound(keep: u64) -> io::Result<()> {
    for number in 0..u64::BITS {
        if keep & 1 << number != 0 {
            continue;
        }
        // SAFETY: PR_CAPBSET_DROP takes a number.
        match done(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number)) }) {
            // Behind the last that this kernel knows.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            other => other?,
        }
    }
    Ok(())
}

/// What one thread holds: the sets of /proc, in the order of [`SETS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub name: String,
    /// Inheritable, permitted, effective, bounding, ambient.
    pub sets: [u64; 5],
    /// It can gain nothing by executing.
    pub no_new_privs: bool,
}

/// Their names in /proc/PID/status.
pub const SETS: [&str; 5] = ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"];

/// What each thread of the tracer holds, with those of the second process in
/// which it does what may hang.
///
/// # Errors
/// /proc does not tell.
pub fn of_threads(pid: u32) -> anyhow::Result<Vec<Held>> {
    let mut all = of_process(pid)?;
    let program = std::fs::read_link(format!("/proc/{pid}/exe"))?;
    let mut children = String::new();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let of_thread = std::fs::read_to_string(thread.path().join("children"));
        children += &of_thread.unwrap_or_default();
    }
    for child in children.split_whitespace() {
        let is_its = std::fs::read_link(format!("/proc/{child}/exe")).ok();
        if is_its.as_ref() == Some(&program) {
            all.extend(of_process(child.parse()?).unwrap_or_default());
        }
    }
    Ok(all)
}

fn of_process(pid: u32) -> anyhow::Result<Vec<Held>> {
    let folder = format!("/proc/{pid}/task");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(&folder).context(folder)?.flatten() {
        // One that has just ended has no rights.
        let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else {
            continue;
        };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::trim).with_context(|| name.to_owned())
        };
        let mut sets = [0; SETS.len()];
        for (set, name) in sets.iter_mut().zip(SETS) {
            *set = u64::from_str_radix(field(name)?, 16)?;
        }
        all.push(Held {
            name: field("Name:")?.to_owned(),
            sets,
            no_new_privs: field("NoNewPrivs:")? == "1",
        });
    }
    anyhow::ensure!(!all.is_empty(), "process {pid} has no threads");
    Ok(all)
}

/// Fails unless every thread of a process holds these capabilities at most and
/// can gain no others. Returns what they are called.
///
/// # Errors
/// One holds more.
pub fn expect_no_more(pid: u32, kept: u64) -> anyhow::Result<Vec<String>> {
    let threads = of_threads(pid)?;
    for thread in &threads {
        let [inheritable, permitted, effective, _, ambient] = thread.sets;
        anyhow::ensure!(
            (permitted | effective) & !kept == 0,
            "more than {kept:#x}: {thread:x?}"
        );
        anyhow::ensure!(inheritable | ambient == 0, "handed on: {thread:x?}");
        anyhow::ensure!(thread.no_new_privs, "it can gain more: {thread:x?}");
    }
    Ok(threads.into_iter().map(|thread| thread.name).collect())
}
