//! The helper process behind [`Crowd`](super::Crowd).

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::fuse::detach;
use crate::kubepods::pod_below;
use crate::scratch::{container_id, pod_uid};
use crate::syscall::{enter_netns, mount, set_parent_death_signal, unshare, wait_for_input};
use crate::{cgroup, own_root, process, wait};

/// A bridge takes no more than 1024 ports.
const PORTS: u32 = 1000;
/// The smallest stack that a thread may have.
const STACK: usize = 16 * 1024;
/// Addresses of one bridge: a /22.
const PREFIX: u32 = 22;

/// The addresses of pod `index`: its own, and its gateway's. In 198.18.0.0/15,
/// which is for testing (RFC 2544).
fn addresses(index: u32) -> (Ipv4Addr, Ipv4Addr) {
    let subnet = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + ((index / PORTS) << (32 - PREFIX));
    (
        Ipv4Addr::from(subnet + 2 + index % PORTS),
        Ipv4Addr::from(subnet + 1),
    )
}

/// One pod: its process, and the name of its namespace.
struct Pod {
    pid: u32,
    name: PathBuf,
}

/// The helper itself. Says `ready`, and ends it all when stdin is closed.
pub(crate) fn serve(folder: &Path, top: &str, netns: u32, tasks: u32) -> anyhow::Result<()> {
    own_root::enter(folder, &[])?;
    let node = File::open("/proc/self/ns/net")?;
    let mut pods = Vec::new();
    let built = build(&node, top, netns, tasks, &mut pods);
    if let Ok(true) = built {
        println!("ready");
        let _ = io::stdin().read_to_end(&mut Vec::new());
    }
    let ended = end(&node, &pods);
    built?;
    ended
}

/// Whether the one who asked for all this has given up.
fn unwanted() -> bool {
    wait_for_input(Duration::ZERO)
}

/// Makes everything. Returns whether it is all there.
fn build(
    node: &File,
    top: &str,
    netns: u32,
    tasks: u32,
    pods: &mut Vec<Pod>,
) -> anyhow::Result<bool> {
    let hierarchy = cgroup::roots().pop().context("no cgroup hierarchy")?;
    for index in 0..netns {
        if unwanted() {
            return Ok(false);
        }
        let threads = tasks / netns + u32::from(index < tasks % netns);
        let path = format!("{}/{}", pod_below(top, &pod_uid()?), container_id()?);
        let cgroup = hierarchy.join(path.trim_start_matches('/'));
        fs::create_dir_all(&cgroup).with_context(|| format!("mkdir {}", cgroup.display()))?;
        pods.push(Pod {
            pid: start_pod(threads, &cgroup).with_context(|| format!("pod {index}"))?,
            name: PathBuf::from(format!("/run/netns/cni-{index:08}")),
        });
    }
    // The names after all processes: none is to have copies of them.
    for pod in &*pods {
        File::create(&pod.name)?;
        let netns = PathBuf::from(format!("/proc/{}/ns/net", pod.pid));
        mount(Some(&netns), &pod.name, None, libc::MS_BIND)?;
    }
    enter_netns(node)?;
    ip_batch(&links(pods))?;
    for (index, pod) in (0..).zip(&*pods) {
        if unwanted() {
            return Ok(false);
        }
        enter_netns(&File::open(&pod.name)?)?;
        configure(index).with_context(|| format!("addresses of pod {index}"))?;
    }
    enter_netns(node)?;
    Ok(true)
}

/// Starts a pod's process in a new network namespace, and waits until all its
/// threads are there.
fn start_pod(threads: u32, cgroup: &Path) -> anyhow::Result<u32> {
    unshare(libc::CLONE_NEWNET)?;
    let mut ends = [0; 2];
    // SAFETY: pipe2 writes two descriptors to the array.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error()).context("pipe");
    }
    // SAFETY: both are open, and nobody else's.
    let [reader, writer] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    // SAFETY: this process has one thread, so its child may do all that it may.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()).context("fork"),
        0 => {
            drop(reader);
            let lived = live(threads, cgroup, File::from(writer));
            if let Err(error) = lived {
                eprintln!("stage: a pod of the crowd: {error:#}");
            }
            std::process::exit(1)
        }
        pid => {
            drop(writer);
            let mut byte = [0];
            File::from(reader)
                .read_exact(&mut byte)
                .context("it has ended")?;
            Ok(pid as u32)
        }
    }
}

/// A pod's process: settles in, starts its threads, says so, and sleeps.
fn live(threads: u32, cgroup: &Path, mut ready: File) -> anyhow::Result<()> {
    set_parent_death_signal(libc::SIGKILL)?;
    let procs = cgroup.join("cgroup.procs");
    fs::write(&procs, "0").with_context(|| format!("write {}", procs.display()))?;
    unshare(libc::CLONE_NEWNS)?;
    for _ in 1..threads {
        std::thread::Builder::new()
            .stack_size(STACK)
            .spawn(sleep)
            .context("start a thread")?;
    }
    ready.write_all(b".")?;
    drop(ready);
    sleep();
    Ok(())
}

fn sleep() {
    loop {
        // SAFETY: pause takes nothing.
        unsafe { libc::pause() };
    }
}

/// The bridges and the veth pairs, for `ip -batch`.
fn links(pods: &[Pod]) -> String {
    let mut text = String::from("link set lo up\n");
    for (index, pod) in (0_u32..).zip(pods) {
        let bridge = format!("cni{}", index / PORTS);
        if index % PORTS == 0 {
            let (_, gateway) = addresses(index);
            text += &format!(
                "link add {bridge} type bridge\naddr add {gateway}/{PREFIX} dev {bridge}\nlink set {bridge} up\n"
            );
        }
        text += &format!(
            "link add veth{index} type veth peer name eth0 netns {}\nlink set veth{index} master {bridge} up\n",
            pod.pid
        );
    }
    text
}

fn ip_batch(text: &str) -> anyhow::Result<()> {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .context("start ip")?;
    child
        .stdin
        .take()
        .context("no pipe")?
        .write_all(text.as_bytes())
        .context("ip -batch")?;
    let status = child.wait()?;
    anyhow::ensure!(status.success(), "ip -batch: {status}");
    Ok(())
}

/// An internet address as a socket address.
fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    for (to, from) in data[2..6].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    libc::sockaddr {
        sa_family: libc::AF_INET as libc::sa_family_t,
        sa_data: data,
    }
}

/// Gives the devices of the namespace that the thread is in their addresses.
fn configure(index: u32) -> anyhow::Result<()> {
    let (address, gateway) = addresses(index);
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let fd = socket.as_raw_fd();
    // The number's type differs between C libraries.
    let ioctl = |what: &str, number: libc::c_ulong, argument: *const libc::c_void| {
        // SAFETY: each of these requests reads the one struct that it is given.
        match unsafe { libc::ioctl(fd, number as _, argument) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()).with_context(|| what.to_owned()),
        }
    };
    // SAFETY: an all-zero ifreq is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let mut set =
        |device: &str, what: &str, number: libc::c_ulong, value: libc::__c_anonymous_ifr_ifru| {
            request.ifr_name = [0; libc::IFNAMSIZ];
            for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
                *to = from as libc::c_char;
            }
            request.ifr_ifru = value;
            ioctl(what, number, (&raw const request).cast())
        };
    let address_of = |address| libc::__c_anonymous_ifr_ifru {
        ifru_addr: socket_address(address),
    };
    let up = libc::__c_anonymous_ifr_ifru {
        ifru_flags: (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short,
    };
    let mask = Ipv4Addr::from(u32::MAX << (32 - PREFIX));
    set("lo", "lo up", libc::SIOCSIFFLAGS, up)?;
    set("eth0", "address", libc::SIOCSIFADDR, address_of(address))?;
    set("eth0", "netmask", libc::SIOCSIFNETMASK, address_of(mask))?;
    set("eth0", "eth0 up", libc::SIOCSIFFLAGS, up)?;

    // SAFETY: an all-zero rtentry is a valid value: no device, no metric.
    let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
    route.rt_dst = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_genmask = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_gateway = socket_address(gateway);
    route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
    ioctl("route", libc::SIOCADDRT, (&raw const route).cast())
}

/// Ends all pods, and waits until the kernel has taken their namespaces apart:
/// the last sign of one is the node's end of its veth pair.
fn end(node: &File, pods: &[Pod]) -> anyhow::Result<()> {
    enter_netns(node)?;
    for pod in pods {
        let _ = process::signal(pod.pid, libc::SIGKILL);
    }
    for pod in pods {
        // SAFETY: waitpid may be told of no place for the status.
        unsafe { libc::waitpid(pod.pid as libc::pid_t, std::ptr::null_mut(), 0) };
        detach(&pod.name);
    }
    let veths = || {
        let devices = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        devices.matches("veth").count()
    };
    let gone = wait::settle(super::LIMIT, || veths() == 0);
    anyhow::ensure!(gone, "{} veth pairs are left", veths());
    Ok(())
}
