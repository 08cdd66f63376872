//! The helper process that plays a node: a root, a mount and a network namespace
//! of its own ([`own_root`]), with containerd as its child.
//!
//! Whatever containerd starts and lets go of (its shims, the containers of a
//! dead shim) becomes a child of this process, which ends it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::{Generation, SOCKET, image};
use crate::fuse::detach;
use crate::syscall::wait_for_input;
use crate::{own_root, process, stage, wait};

/// For containerd to start, and for everything to end.
const LIMIT: Duration = Duration::from_secs(30);

/// The helper itself: `folder` is empty and private; the programs are of this
/// `generation`; `plugins` is the folder of the CNI plugins and `network` their
/// configuration; `volumes` are paths that the node has too.
pub(crate) fn serve(
    folder: &Path,
    generation: Generation,
    plugins: &Path,
    network: &str,
    volumes: &[String],
) -> anyhow::Result<()> {
    become_subreaper()?;
    let mut shared: Vec<&Path> = volumes.iter().map(Path::new).collect();
    shared.extend(generation.plugins());
    if !shared.iter().any(|folder| plugins.starts_with(folder)) {
        shared.push(plugins);
    }
    own_root::enter_system(folder, &generation.system()?, &shared)?;
    own_root::become_first_process()?;
    if generation == Generation::Crun {
        // Where there is version 2 alone, this is no mount.
        detach(Path::new("/sys/fs/cgroup/unified"));
    }
    write_configuration(generation, plugins, network)?;
    ip_link_up("lo")?;
    let mut containerd = Command::new("containerd")
        .args(["--config", "/etc/containerd/config.toml"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("start containerd")?;
    let done = run(&mut containerd);
    end_children(&containerd)?;
    done
}

/// Orphans of all descendants become children of this process.
fn become_subreaper() -> anyhow::Result<()> {
    // SAFETY: PR_SET_CHILD_SUBREAPER takes a number.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1 as libc::c_ulong) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()).context("become a subreaper"),
    }
}

fn write_configuration(
    generation: Generation,
    plugins: &Path,
    network: &str,
) -> anyhow::Result<()> {
    // containerd's own defaults for all paths. containerd 2 reads this version, too,
    // as on a node that has been upgraded.
    let config = format!(
        r#"version = 2
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_tcp_service = true
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{starter}"
"#,
        pause = image::PAUSE,
        plugins = plugins.display(),
        starter = generation.starter(),
    );
    for (path, text) in [
        ("/etc/hosts", "127.0.0.1 localhost\n"),
        ("/etc/resolv.conf", ""),
        ("/etc/cni/net.d/10-stage.conflist", network),
        ("/etc/containerd/config.toml", &config),
    ] {
        let path = Path::new(path);
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

fn ip_link_up(device: &str) -> anyhow::Result<()> {
    run_to_end(Command::new("ip").args(["link", "set", device, "up"]))
}

fn run_to_end(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    anyhow::ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Brings the images in, says that it is ready, and watches over containerd
/// until stdin is closed.
fn run(containerd: &mut Child) -> anyhow::Result<()> {
    let begin = Instant::now();
    let ended = |containerd: &mut Child| -> anyhow::Result<()> {
        match containerd.try_wait() {
            Ok(Some(status)) => anyhow::bail!("containerd has ended: {status}"),
            _ => Ok(()),
        }
    };
    while run_to_end(Command::new("ctr").args(["--address", SOCKET, "version"])).is_err() {
        ended(containerd)?;
        anyhow::ensure!(begin.elapsed() < LIMIT, "containerd does not answer");
        if wait_for_input(Duration::from_millis(20)) {
            return Ok(());
        }
    }
    let busybox = stage::in_path("busybox").context("busybox is not installed")?;
    let (pause, busy) = (
        PathBuf::from("/tmp/pause.tar"),
        PathBuf::from("/tmp/box.tar"),
    );
    image::write_pause(&pause)?;
    image::write_box(&busy, &busybox)?;
    for archive in [pause, busy] {
        let import = [
            "--address",
            SOCKET,
            "--namespace",
            "k8s.io",
            "images",
            "import",
        ];
        run_to_end(Command::new("ctr").args(import).arg(&archive))?;
        fs::remove_file(&archive)?;
    }
    println!("ready {}", containerd.id());
    while !wait_for_input(Duration::from_millis(20)) {
        reap_others(containerd.id());
        ended(containerd)?;
    }
    Ok(())
}

/// Children of this process, from /proc.
fn children() -> Vec<u32> {
    let tasks = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            let pids = list.split_whitespace().map(str::parse).collect::<Vec<_>>();
            pids.into_iter().flatten()
        })
        .collect()
}

/// Takes in the adopted ones that have ended, and leaves containerd to std.
fn reap_others(containerd: u32) {
    for pid in children().into_iter().filter(|&pid| pid != containerd) {
        // SAFETY: waitpid may be told of no place for the status.
        unsafe { libc::waitpid(pid as libc::pid_t, std::ptr::null_mut(), libc::WNOHANG) };
    }
}

/// Kills all descendants. Only children are killed, whose PIDs cannot be
/// another's until they are reaped here: those of a dead one become children.
fn end_children(containerd: &Child) -> anyhow::Result<()> {
    let all_gone = wait::settle(LIMIT, || {
        let children = children();
        for &pid in &children {
            let _ = process::signal(pid, libc::SIGKILL);
        }
        reap_others(0);
        children.is_empty()
    });
    anyhow::ensure!(
        all_gone,
        "processes that containerd ({}) started do not end: {:?}",
        containerd.id(),
        children()
    );
    Ok(())
}
