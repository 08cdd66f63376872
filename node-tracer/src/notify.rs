//! What a service manager is told: that the tracer watches, that it is still
//! alive, how things stand, and that it ends.
//!
//! The protocol is that of sd_notify(3): lines of `NAME=VALUE`, one datagram a
//! message, to the socket that `NOTIFY_SOCKET` names. Where the manager asks
//! for signs of life (`WATCHDOG_USEC`) they come twice in that time, and from
//! the event loop alone: a loop that is stuck gives none.
//!
//! Nobody here waits for the manager. What it does not take now is told again
//! a little later.

use std::{
    env,
    ffi::OsString,
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    },
    process,
    time::{Duration, Instant},
};

/// How often the state of things is told, if it has changed.
const STATUS: Duration = Duration::from_secs(10);
/// After a message was not taken.
const AGAIN: Duration = Duration::from_millis(250);

/// Tells the service manager that has started the tracer, if one has.
#[derive(Debug)]
pub(crate) struct Notify {
    manager: Option<Manager>,
}

#[derive(Debug)]
struct Manager {
    socket: UnixDatagram,
    address: SocketAddr,
    /// How often it wants a sign of life.
    watchdog: Option<Duration>,
    /// What it does not know yet.
    ready: bool,
    /// What it was told last.
    status: String,
    /// When it is told something next; `None` before the tracer watches.
    next: Option<Instant>,
    failing: bool,
}

impl Notify {
    /// Whatever the environment asks for. What it asks in vain is said in the
    /// log: the tracer works without.
    pub(crate) fn from_environment() -> Self {
        let manager = Manager::asked(|name| env::var_os(name));
        let manager = manager.unwrap_or_else(|error| {
            tracing::warn!("the service manager cannot be told anything: NOTIFY_SOCKET: {error}");
            None
        });
        Self { manager }
    }

    /// From here on nothing is missed.
    pub(crate) fn ready(&mut self, status: impl FnOnce() -> String) {
        if let Some(manager) = &mut self.manager {
            manager.ready = true;
            manager.next = Some(Instant::now());
        }
        self.step(status);
    }

    /// How long nothing has to be told.
    pub(crate) fn pause(&self) -> Duration {
        let next = self.manager.as_ref().and_then(|manager| manager.next);
        next.map_or(Duration::MAX, |next| {
            next.saturating_duration_since(Instant::now())
        })
    }

    /// Tells what is due.
    pub(crate) fn step(&mut self, status: impl FnOnce() -> String) {
        let now = Instant::now();
        if let Some(manager) = &mut self.manager
            && manager.next.is_some_and(|next| next <= now)
        {
            manager.tell(now, status());
        }
    }

    /// The end has begun. What does not reach the manager now never does.
    pub(crate) fn stopping(&mut self) {
        if let Some(manager) = self.manager.take() {
            // It sees the process end, too.
            let _ = manager.send("STOPPING=1\nSTATUS=Ending\n");
        }
    }
}

impl Manager {
    /// As the environment says; `None` if there is no manager to be told.
    fn asked(variable: impl Fn(&str) -> Option<OsString>) -> io::Result<Option<Self>> {
        let Some(name) = variable("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let number = |name| variable(name)?.into_string().ok()?.parse::<u64>().ok();
        // Meant for the process that was started, not for its children.
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|limit| ours && *limit > 0);
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Some(Self {
            socket,
            address: match name.as_bytes() {
                [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
                [b'/', ..] => SocketAddr::from_pathname(&name)?,
                _ => return Err(io::Error::other(format!("{name:?} is no Unix socket"))),
            },
            watchdog: watchdog.map(|limit| Duration::from_micros(limit.div_ceil(2))),
            ready: false,
            status: String::new(),
            next: None,
            failing: false,
        }))
    }

    /// All that it does not know yet, and a sign of life.
    fn tell(&mut self, now: Instant, status: String) {
        let mut message = String::new();
        if self.ready {
            message.push_str("READY=1\n");
        }
        if self.watchdog.is_some() {
            message.push_str("WATCHDOG=1\n");
        }
        if status != self.status {
            // One line: a second one would be another variable.
            let line = status.replace(char::is_control, " ");
            message.push_str(&format!("STATUS={line}\n"));
        }
        let pause = self.watchdog.map_or(STATUS, |pause| pause.min(STATUS));
        let told = match message.is_empty() {
            true => Ok(()),
            false => self.send(&message),
        };
        match told {
            Ok(()) => {
                self.ready = false;
                self.status = status;
                self.failing = false;
                self.next = Some(now + pause);
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::info!("the service manager does not listen: {error}");
                }
                self.next = Some(now + pause.min(AGAIN));
            }
        }
    }

    fn send(&self, message: &str) -> io::Result<()> {
        self.socket
            .send_to_addr(message.as_bytes(), &self.address)
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A manager that listens, and what a tracer started by it would have.
    fn started(watchdog: Option<(&str, Option<u32>)>) -> (UnixDatagram, Notify) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nt-test-{}-notify-{next}", process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        socket.set_nonblocking(true).unwrap();
        let manager = Manager::asked(|variable| match variable {
            "NOTIFY_SOCKET" => Some(format!("@{name}").into()),
            "WATCHDOG_USEC" => watchdog.map(|(limit, _)| limit.into()),
            "WATCHDOG_PID" => watchdog?.1.map(|pid| pid.to_string().into()),
            _ => None,
        });
        let manager = manager.unwrap();
        assert!(manager.is_some());
        (socket, Notify { manager })
    }

    /// The messages that are waiting.
    fn told(socket: &UnixDatagram) -> Vec<String> {
        let mut told = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(length) = socket.recv(&mut buffer) {
            told.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        told
    }

    #[test]
    fn without_a_manager_nobody_is_told_and_nothing_is_due() {
        let manager = Manager::asked(|_| None).unwrap();
        let mut notify = Notify { manager };
        notify.ready(|| unreachable!());
        assert_eq!(notify.pause(), Duration::MAX);
        notify.step(|| unreachable!());
        notify.stopping();
    }

    #[test]
    fn ready_is_told_once_and_the_state_when_it_changes() {
        let (socket, mut notify) = started(None);
        assert_eq!(notify.pause(), Duration::MAX, "it does not watch yet");
        notify.ready(|| String::from("two\nlines"));
        assert_eq!(told(&socket), ["READY=1\nSTATUS=two lines\n"]);
        notify.step(|| unreachable!("nothing is due"));
        assert!(notify.pause() > STATUS / 2 && notify.pause() <= STATUS);
        for (status, message) in [("two\nlines", None), ("three", Some("STATUS=three\n"))] {
            notify.manager.as_mut().unwrap().next = Some(Instant::now());
            notify.step(|| String::from(status));
            assert_eq!(told(&socket).first().map(String::as_str), message);
        }
        notify.stopping();
        assert_eq!(told(&socket), ["STOPPING=1\nSTATUS=Ending\n"]);
    }

    #[test]
    fn signs_of_life_come_twice_in_the_time_that_is_given() {
        let (socket, mut notify) = started(Some(("3000000", None)));
        notify.ready(String::new);
        assert_eq!(told(&socket), ["READY=1\nWATCHDOG=1\n"]);
        assert!(notify.pause() <= Duration::from_millis(1_500));
        notify.manager.as_mut().unwrap().next = Some(Instant::now());
        notify.step(String::new);
        assert_eq!(told(&socket), ["WATCHDOG=1\n"]);
        let (socket, mut notify) = started(Some(("3000000", Some(process::id()))));
        notify.ready(String::new);
        assert_eq!(told(&socket), ["READY=1\nWATCHDOG=1\n"]);
    }

    #[test]
    fn signs_of_life_that_are_another_processs_or_in_no_time_are_not_given() {
        for asked in [("3000000", Some(1)), ("0", None), ("soon", None)] {
            let (socket, mut notify) = started(Some(asked));
            notify.ready(String::new);
            assert_eq!(told(&socket), ["READY=1\n"], "{asked:?}");
        }
    }

    #[test]
    fn a_manager_that_does_not_listen_keeps_nobody_waiting_and_is_told_later() {
        let (socket, mut notify) = started(Some(("60000000", None)));
        let address = &notify.manager.as_ref().unwrap().address;
        let other = UnixDatagram::unbound().unwrap();
        other.set_nonblocking(true).unwrap();
        while other.send_to_addr(b"X=1", address).is_ok() {}
        notify.ready(String::new);
        assert!(notify.pause() <= AGAIN);
        assert!(!told(&socket).iter().any(|one| one.contains("READY")));
        std::thread::sleep(notify.pause());
        notify.step(String::new);
        assert_eq!(told(&socket), ["READY=1\nWATCHDOG=1\n"]);
    }

    #[test]
    fn what_is_no_unix_socket_is_refused() {
        for name in ["vsock:2:1234", "relative"] {
            let asked = |variable: &str| (variable == "NOTIFY_SOCKET").then(|| name.into());
            let error = Manager::asked(asked).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
