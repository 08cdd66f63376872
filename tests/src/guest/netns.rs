//! Network namespaces, from their making to their end, by every way there is.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt as _;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::matrix::{SignalResult, Stage};
use crate::netns::{Netns, connect, inode_of_process};
use crate::process::PodProcess;
use crate::tracer::{is_event, netns_of};
use crate::{syscall, wait};

/// A namespace that is there, and how it ends.
struct Life {
    inode: u64,
    end: Box<dyn FnOnce() -> anyhow::Result<()>>,
}

impl Life {
    fn new(inode: u64, end: impl FnOnce() -> anyhow::Result<()> + 'static) -> Self {
        Self {
            inode,
            end: Box::new(end),
        }
    }
}

/// A way to make one and to let it go.
type Way = (&'static str, fn() -> anyhow::Result<Life>);

/// What holds it last.
const WAYS: [Way; 8] = [
    ("thread", thread),
    ("clone", clone),
    ("mount", mount),
    ("lazy umount", descriptor),
    ("task", task),
    ("socket", socket),
    ("veth peer", veth),
    // Again: the number that was there a moment ago.
    ("mount, number used again", mount),
];

fn thread() -> anyhow::Result<Life> {
    let (say, inode) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || -> anyhow::Result<()> {
        syscall::unshare(libc::CLONE_NEWNET)?;
        let inode = std::fs::metadata("/proc/thread-self/ns/net")?.ino();
        let _ = say.send(inode);
        // Until the other end is gone.
        let _ = ended.recv();
        Ok(())
    });
    Ok(Life::new(inode.recv().context("unshare")?, move || {
        drop(end);
        thread.join().unwrap_or_else(|_| anyhow::bail!("panicked"))
    }))
}

/// Made in the parent, for the child alone.
fn clone() -> anyhow::Result<Life> {
    let flags = libc::CLONE_NEWNET | libc::SIGCHLD;
    // SAFETY: without a stack of its own the child is as after fork; it only
    // makes one system call, which is allowed there.
    let pid = unsafe {
        let pid = libc::syscall(libc::SYS_clone, flags as libc::c_long, 0, 0, 0, 0);
        if pid == 0 {
            loop {
                libc::pause();
            }
        }
        pid
    };
    ensure!(pid > 0, "clone: {}", std::io::Error::last_os_error());
    Ok(Life::new(inode_of_process(pid as u32)?, move || {
        let mut status = 0;
        // SAFETY: the child is not waited for yet, so the number is its own;
        // waitpid writes the status that it is given.
        unsafe {
            libc::kill(pid as libc::pid_t, libc::SIGKILL);
            libc::waitpid(pid as libc::pid_t, &raw mut status, 0);
        }
        Ok(())
    }))
}

fn mount() -> anyhow::Result<Life> {
    let mut netns = Netns::create()?;
    Ok(Life::new(netns.inode(), move || netns.delete()))
}

fn descriptor() -> anyhow::Result<Life> {
    let mut netns = Netns::create()?;
    let file = File::open(netns.path())?;
    Ok(Life::new(netns.inode(), move || {
        netns.delete()?;
        wait::pause(Duration::from_millis(300))?;
        drop(file);
        Ok(())
    }))
}

fn task() -> anyhow::Result<Life> {
    let mut netns = Netns::create()?;
    let process = PodProcess::pause(&netns, None)?;
    Ok(Life::new(netns.inode(), move || {
        netns.delete()?;
        wait::pause(Duration::from_millis(300))?;
        drop(process);
        Ok(())
    }))
}

fn socket() -> anyhow::Result<Life> {
    let mut netns = Netns::create()?;
    netns.ip("link set lo up")?;
    let file = File::open(netns.path())?;
    let open = move || -> anyhow::Result<UdpSocket> {
        syscall::enter_netns(&file).context("setns")?;
        Ok(UdpSocket::bind("0.0.0.0:0")?)
    };
    let socket = std::thread::spawn(open)
        .join()
        .unwrap_or_else(|_| anyhow::bail!("panicked"))?;
    Ok(Life::new(netns.inode(), move || {
        netns.delete()?;
        wait::pause(Duration::from_millis(300))?;
        drop(socket);
        Ok(())
    }))
}

fn veth() -> anyhow::Result<Life> {
    let (mut netns, peer) = (Netns::create()?, Netns::create()?);
    connect(
        (&netns, "eth0", "198.18.8.2/24"),
        (&peer, "eth0", "198.18.8.3/24"),
    )?;
    Ok(Life::new(netns.inode(), move || {
        netns.delete()?;
        drop(peer);
        Ok(())
    }))
}

/// What of each signal was not told, by way.
#[derive(Default)]
struct Missing(BTreeMap<&'static str, Vec<String>>);

impl Missing {
    fn add(&mut self, signal: &'static str, way: &str, error: &anyhow::Error) {
        let all = self.0.entry(signal).or_default();
        all.push(format!("{way}: {error:#}"));
    }

    fn of(&mut self, signal: &'static str) -> SignalResult {
        match self.0.remove(signal) {
            None => (signal, Ok(())),
            Some(all) => (signal, Err(anyhow::anyhow!(all.join("\n")))),
        }
    }
}

pub(super) fn observe(stage: &mut Stage<'_>) -> Vec<SignalResult> {
    let mut missing = Missing::default();
    for (way, make) in WAYS {
        if let Err(error) = live(stage, way, make, &mut missing) {
            missing.add("netns-created", way, &error);
        }
    }
    ["netns-created", "netns-dying", "netns-destroyed"]
        .map(|signal| missing.of(signal))
        .into()
}

/// A namespace that a mount keeps, and nothing else.
pub(super) fn told_of_a_mount(stage: &mut Stage<'_>) -> Vec<SignalResult> {
    let mut missing = Missing::default();
    if let Err(error) = live(stage, "mount", mount, &mut missing) {
        missing.add("netns-created", "mount", &error);
    }
    ["netns-created", "netns-dying", "netns-destroyed"]
        .map(|signal| missing.of(signal))
        .into()
}

/// One life: each of its events once, in order, of the same namespace.
fn live(
    stage: &mut Stage<'_>,
    way: &str,
    make: fn() -> anyhow::Result<Life>,
    missing: &mut Missing,
) -> anyhow::Result<()> {
    let mark = stage.mark();
    let Life { inode, end } = make()?;
    let is = |event: &'static str| {
        move |record: &Value| is_event(record, event) && netns_of(record) == Some(inode)
    };
    let created = stage.after(mark, &format!("netns-created {inode}"), is("netns-created"));
    if let Err(error) = &created {
        missing.add("netns-created", way, error);
    }
    let mark = stage.mark();
    end()?;
    let dying = stage.after(mark, &format!("netns-dying {inode}"), is("netns-dying"));
    if let Err(error) = &dying {
        missing.add("netns-dying", way, error);
    }
    let destroyed = stage.after(
        mark,
        &format!("netns-destroyed {inode}"),
        is("netns-destroyed"),
    );
    if let Err(error) = &destroyed {
        missing.add("netns-destroyed", way, error);
    }
    let (Ok(created), Ok(dying), Ok(destroyed)) = (created, dying, destroyed) else {
        return Ok(());
    };
    for (signal, record) in [("netns-dying", &dying), ("netns-destroyed", &destroyed)] {
        if record["netns"] != created["netns"] {
            let error = anyhow::anyhow!("of another namespace than was made: {created}; {record}");
            missing.add(signal, way, &error);
        }
    }
    let records = stage.records();
    let at = |wanted: &Value| records.iter().position(|record| record == wanted);
    if at(&dying) > at(&destroyed) {
        let error = anyhow::anyhow!("destroyed before it was dying: {dying}; {destroyed}");
        missing.add("netns-dying", way, &error);
    }
    Ok(())
}

/// How many a storm makes.
pub(super) const STORM: usize = 1000;

/// A child that makes a namespace, says its inode and ends: without exec, as
/// fast as the machine can.
fn one_of_storm(pipe: &[i32; 2]) -> anyhow::Result<u64> {
    // SAFETY: after fork the child makes only system calls, and ends by one.
    let pid = unsafe { libc::fork() };
    ensure!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: as above; stat is written before it is read, or 0.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::unshare(libc::CLONE_NEWNET) == 0 {
                libc::stat(c"/proc/self/ns/net".as_ptr(), &raw mut stat);
            }
            let inode = stat.st_ino;
            libc::write(pipe[1], (&raw const inode).cast(), 8);
            libc::_exit(0);
        }
    }
    let mut inode = 0u64;
    let mut status = 0;
    // SAFETY: read writes at most 8 bytes into the number; waitpid the status.
    let read = unsafe {
        let read = libc::read(pipe[0], (&raw mut inode).cast(), 8);
        libc::waitpid(pid, &raw mut status, 0);
        read
    };
    ensure!(read == 8 && inode != 0, "a child of the storm failed");
    Ok(inode)
}

/// 1,000 namespaces as fast as the guest makes them: as many of each event, by
/// inode.
pub(super) fn storm(stage: &mut Stage<'_>) -> Vec<SignalResult> {
    vec![("storm of 1,000", count(stage))]
}

fn count(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(90);
    let mut pipe = [0; 2];
    // SAFETY: pipe writes two descriptors.
    ensure!(unsafe { libc::pipe(pipe.as_mut_ptr()) } == 0, "pipe");
    stage.settle()?;
    let mark = stage.mark();
    let begin = Instant::now();
    let mut made: BTreeMap<u64, usize> = BTreeMap::new();
    for _ in 0..STORM {
        *made.entry(one_of_storm(&pipe)?).or_default() += 1;
    }
    let took = begin.elapsed();
    // SAFETY: the descriptors are this function's own.
    unsafe {
        libc::close(pipe[0]);
        libc::close(pipe[1]);
    }
    let seen = |records: &[Value], event: &str| {
        let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
        for record in records.iter().skip(mark) {
            if let Some(inode) = netns_of(record).filter(|_| is_event(record, event)) {
                *seen.entry(inode).or_default() += 1;
            }
        }
        seen
    };
    let end = Instant::now() + PATIENCE;
    loop {
        let records = stage.records();
        let [created, dying, destroyed] =
            ["netns-created", "netns-dying", "netns-destroyed"].map(|event| seen(&records, event));
        let total = |seen: &BTreeMap<u64, usize>| seen.values().sum::<usize>();
        let counts = format!(
            "made {STORM} in {:.1} s with {} inodes: {} created, {} dying, {} destroyed",
            took.as_secs_f32(),
            made.len(),
            total(&created),
            total(&dying),
            total(&destroyed)
        );
        if created == made && dying == made && destroyed == made {
            stage.say(&counts);
            return Ok(());
        }
        ensure!(Instant::now() < end, "{counts}");
        wait::pause(Duration::from_secs(1))?;
    }
}
