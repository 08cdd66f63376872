//! What a service manager is told: that the tracer watches, that it is alive,
//! and that it ends.

use std::ffi::OsStr;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use node_tracer_tests::netns::Netns;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{SOON, Tracer, is_event, netns_of};

/// Half of it is the time between two signs of life.
const WATCHDOG: Duration = Duration::from_millis(800);

/// A service manager's side.
struct Manager {
    folder: Scratch,
    socket: UnixDatagram,
}

impl Manager {
    fn listen() -> anyhow::Result<Self> {
        let folder = Scratch::create()?;
        let socket = UnixDatagram::bind(folder.path().join("notify"))?;
        Ok(Self { folder, socket })
    }

    /// Starts a tracer as a service, and waits until it has said its first word.
    fn start(&self) -> anyhow::Result<Tracer> {
        let path = self.folder.path().join("notify");
        let watchdog = WATCHDOG.as_micros().to_string();
        let environment: [(&str, &OsStr); 2] = [
            ("NOTIFY_SOCKET", path.as_os_str()),
            ("WATCHDOG_USEC", watchdog.as_ref()),
        ];
        Tracer::trace_with(&[], &environment)
    }

    /// The next message, as lines; `None` if none comes in this time.
    fn next(&self, within: Duration) -> anyhow::Result<Option<Vec<String>>> {
        self.socket.set_read_timeout(Some(within))?;
        let mut buffer = [0; 4096];
        match self.socket.recv(&mut buffer) {
            Ok(length) => {
                let text = str::from_utf8(&buffer[..length])?;
                Ok(Some(text.lines().map(str::to_owned).collect()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error).context("the manager's socket"),
        }
    }
}

fn has(message: &[String], line: &str) -> bool {
    message.iter().any(|one| one == line)
}

test!(
    &[Need::Root, Need::Tracer],
    a_service_manager_is_told_of_the_start_of_life_and_of_the_end
);
fn a_service_manager_is_told_of_the_start_of_life_and_of_the_end() -> anyhow::Result<()> {
    let manager = Manager::listen()?;
    let tracer = manager.start()?;
    let first = manager.next(SOON)?.context("no word of it")?;
    ensure!(
        has(&first, "READY=1") && has(&first, "WATCHDOG=1"),
        "the first message: {first:?}"
    );
    ensure!(
        first.iter().any(|line| line.starts_with("STATUS=Watching")),
        "the first message: {first:?}"
    );
    let start = Instant::now();
    let signs = 6;
    for _ in 0..signs {
        let sign = manager.next(WATCHDOG)?;
        let sign = sign.with_context(|| format!("no sign of life within {WATCHDOG:?}"))?;
        ensure!(
            has(&sign, "WATCHDOG=1") && !has(&sign, "READY=1"),
            "{sign:?}"
        );
    }
    println!("{signs} signs of life in {:?}", start.elapsed());
    // Twice in the time, and not much more often.
    ensure!(
        start.elapsed() > WATCHDOG / 2 * (signs - 2),
        "{signs} signs of life in {:?}",
        start.elapsed()
    );
    tracer.signal(libc::SIGTERM);
    let last = loop {
        let message = manager.next(SOON)?.context("no word of the end")?;
        if has(&message, "STOPPING=1") {
            break message;
        }
    };
    ensure!(last[0] == "STOPPING=1", "{last:?}");
    let ended = tracer.wait_for_end(SOON)?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    let after = manager.next(Duration::from_millis(50))?;
    ensure!(after.is_none(), "after the end: {after:?}");
    Ok(())
}

test!(
    &[Need::Root, Need::Tracer],
    a_tracer_that_is_stopped_in_its_tracks_gives_no_sign_of_life
);
fn a_tracer_that_is_stopped_in_its_tracks_gives_no_sign_of_life() -> anyhow::Result<()> {
    let manager = Manager::listen()?;
    let tracer = manager.start()?;
    manager.next(SOON)?.context("no word of it")?;
    tracer.signal(libc::SIGSTOP);
    // What was under way when it stopped.
    while manager.next(WATCHDOG * 2)?.is_some() {}
    ensure!(manager.next(WATCHDOG * 2)?.is_none(), "a sign of life");
    tracer.signal(libc::SIGCONT);
    let sign = manager.next(SOON)?.context("no sign of life")?;
    ensure!(has(&sign, "WATCHDOG=1"), "{sign:?}");
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    Ok(())
}

test!(
    &[Need::Root, Need::Tracer, IP],
    a_service_manager_that_does_not_read_does_not_stop_the_stream
);
fn a_service_manager_that_does_not_read_does_not_stop_the_stream() -> anyhow::Result<()> {
    let manager = Manager::listen()?;
    let other = UnixDatagram::unbound()?;
    other.set_nonblocking(true)?;
    let path = manager.folder.path().join("notify");
    while other.send_to(b"X_OTHER=1", &path).is_ok() {}
    let mut tracer = manager.start()?;
    let netns = Netns::create()?;
    let inode = netns.inode();
    tracer.wait_for("the namespace's creation", SOON, |record| {
        is_event(record, "netns-created") && netns_of(record) == Some(inode)
    })?;
    // It is told once it reads.
    while let Some(message) = manager.next(SOON)? {
        if has(&message, "READY=1") {
            let ended = tracer.stop()?;
            ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
            return Ok(());
        }
    }
    anyhow::bail!("it was never told READY=1");
}
