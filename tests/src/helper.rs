//! The helper processes: this same program again, with `stage-helper ROLE …`.
//!
//! A fresh exec, not a fork, because the programs that use the stage have
//! threads. Each helper has its own process group, so that Ctrl-C in a
//! terminal reaches only the program that cleans up; and each ends when its
//! stdin is closed, so that none outlives that program.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::netns::Netns;
use crate::{
    bare, containerd, crowd, flood, fuse, journald, keeper, kube, memory, rtnl, runtime, stuck,
    wait,
};

const MARK: &str = "stage-helper";

/// Acts as a helper and ends the process, if that is what the program was
/// started for. To be called first thing in `main`.
pub fn act_if_asked() {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() != Some(MARK) {
        return;
    }
    let role = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    match act(&role, &rest) {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            eprintln!("stage-helper {role}: {error:#}");
            std::process::exit(1);
        }
    }
}

fn act(role: &str, args: &[String]) -> anyhow::Result<()> {
    match (role, args) {
        ("fuse", [at]) => fuse::serve(Path::new(at), fuse::Manner::HangingRead),
        ("fuse-silent", [at]) => fuse::serve(Path::new(at), fuse::Manner::Silent),
        ("runtime", []) => runtime::serve(),
        ("journald", [folder]) => journald::serve(Path::new(folder)),
        ("containerd", [folder, plugins, network, volumes @ ..]) => {
            containerd::node::serve(Path::new(folder), Path::new(plugins), network, volumes)
        }
        ("bare", [folder]) => bare::serve(Path::new(folder)),
        ("crowd", [folder, top, netns, tasks]) => {
            crowd::serve(Path::new(folder), top, netns.parse()?, tasks.parse()?)
        }
        ("kube-prepare", [node]) => kube::inside::serve(node.parse()?),
        ("pause", [comm, cgroups @ ..]) => {
            settle_in(comm, cgroups)?;
            println!("in");
            std::io::stdin()
                .read_to_end(&mut Vec::new())
                .context("stdin")?;
            Ok(())
        }
        ("read", [comm, file, cgroups @ ..]) => {
            settle_in(comm, cgroups)?;
            // One read(2). It fails once the file system is gone, which is the end that is wanted.
            let mut file = fs::File::open(file).with_context(|| format!("open {file}"))?;
            let _ = file.read(&mut [0; 16]);
            Ok(())
        }
        ("write", [comm, file, cgroups @ ..]) => {
            settle_in(comm, cgroups)?;
            let options = fs::File::options().append(true).open(file);
            let mut file = options.with_context(|| format!("open {file}"))?;
            println!("in");
            // What is asked for is one write(2), once the file system is frozen.
            std::io::stdin().read_exact(&mut [0])?;
            file.write_all(b"x").context("write")
        }
        ("vfork", [comm, file, cgroups @ ..]) => {
            settle_in(comm, cgroups)?;
            // This sleeps until the child has called exec or has ended.
            if let Ok(mut child) = Command::new(file).spawn() {
                child.wait().context("wait for the child")?;
            }
            Ok(())
        }
        (memory::ROLE, [comm, cgroups @ ..]) => {
            settle_in(comm, cgroups)?;
            memory::swell()
        }
        (stuck::ROLE, [file, count]) => stuck::write_in_many(Path::new(file), count.parse()?),
        (flood::CALLS, [user, count, plugin]) => flood::call(user.parse()?, count.parse()?, plugin),
        (flood::IMPOSTORS, [count, plugin, cgroups @ ..]) => {
            flood::pose(count.parse()?, plugin, cgroups)
        }
        (flood::VFORK, [user, count]) => flood::wait_for_children(user.parse()?, count.parse()?),
        (flood::READERS, [user, count, file]) => {
            flood::read_and_be_killed(user.parse()?, count.parse()?, Path::new(file))
        }
        (flood::WRITEBACK, [user, count, folder]) => {
            flood::write_and_wait(user.parse()?, count.parse()?, Path::new(folder))
        }
        (flood::EXECS, [user, each, life]) => {
            let life = Duration::from_millis(life.parse()?);
            flood::execute_without_end(user.parse()?, each.parse()?, life)
        }
        ("hold-rtnl", [file]) => rtnl::hold(file),
        ("keep", [kind, path]) => keeper::keep(kind, path),
        ("leaderless", [comm, file, cgroups @ ..]) => {
            settle_in(comm, cgroups)?;
            keeper::read_without_leader(file)
        }
        _ => anyhow::bail!("unknown role or wrong number of arguments"),
    }
}

/// Takes the name and the cgroups of the container process that it plays.
fn settle_in(comm: &str, cgroups: &[String]) -> anyhow::Result<()> {
    for procs in cgroups {
        fs::write(procs, "0").with_context(|| format!("write {procs}"))?;
    }
    let comm = CString::new(comm)?;
    // SAFETY: PR_SET_NAME reads a NUL-terminated string, which outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, comm.as_ptr()) };
    Ok(())
}

/// Starts a program that this process has just written. Another thread that
/// starts something at that moment has the file open for writing for a moment,
/// and then the kernel refuses to execute it.
pub(crate) fn spawn_copy(command: &mut Command) -> anyhow::Result<Child> {
    let what = format!("start {}", command.get_program().display());
    wait::until(&what, Duration::from_secs(5), || match command.spawn() {
        Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => Ok(None),
        spawned => spawned.map(Some).with_context(|| what.clone()),
    })
}

/// A command that starts a helper, from `program` (a copy of this one) or
/// from this program itself, in `netns` or where the caller is.
pub(crate) fn command(program: Option<&Path>, netns: Option<&Netns>, role: &str) -> Command {
    let program: &OsStr = program.map_or(OsStr::new("/proc/self/exe"), Path::as_os_str);
    let mut command = match netns {
        Some(netns) => netns.command(program),
        None => Command::new(program),
    };
    command
        .args([MARK, role])
        .stdin(Stdio::piped())
        .process_group(0);
    command
}
