//! kubectl(1) as the transport: it has the caller's credentials, and reaches a
//! node's tracer by `exec`. Nobody waits for it, or for what it has started,
//! beyond its time, and no more is read of it than its reader has room for.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, set_parent_process_death_signal, waitid,
};
use serde::de::DeserializeOwned;

/// More than a list has of the pods of 10,000 nodes.
const MAX_LIST: usize = 128 << 20;
/// What is kept of standard error: its end.
const MAX_STDERR: usize = 8 << 10;
/// For what the API server alone answers.
const PATIENCE: Duration = Duration::from_secs(60);
/// What it has printed is there when it ends, or hardly later.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How often an end is looked for.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

pub(crate) struct Kubectl {
    program: OsString,
    options: Vec<String>,
}

/// How a command ended. Its exit code is no part of it: a tracer that has found
/// something ends with 1, and kubectl with 1 for whatever it is.
pub(crate) struct Ended {
    stderr: String,
    ok: bool,
    /// Its reader did not want all that it printed.
    pub(crate) is_cut: bool,
}

impl Kubectl {
    pub(crate) fn new(context: Option<&str>, kubeconfig: Option<&str>) -> Self {
        let option = |name: &str, value: Option<&str>| value.map(|it| format!("--{name}={it}"));
        let options = [option("context", context), option("kubeconfig", kubeconfig)];
        Self {
            program: "kubectl".into(),
            options: options.into_iter().flatten().collect(),
        }
    }

    /// A script of sh(1) in its place.
    #[cfg(test)]
    pub(crate) fn script(script: &str) -> Self {
        Self {
            program: "sh".into(),
            options: ["-c", script, "kubectl"].map(str::to_owned).into(),
        }
    }

    /// Objects, of which no more is kept than `T` has.
    pub(crate) fn get<T: DeserializeOwned>(&self, args: &[&str]) -> anyhow::Result<T> {
        let text = self.table(&[args, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).context("kubectl get: no JSON")
    }

    /// What `kubectl get` prints.
    pub(crate) fn table(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut text = Vec::new();
        let ended = self.run(&[&["get"], args].concat(), PATIENCE, |piece| {
            text.extend_from_slice(piece);
            text.len() <= MAX_LIST
        })?;
        let what = || format!("kubectl get {}", args.join(" "));
        if ended.is_cut {
            bail!("{}: more than {} MiB", what(), MAX_LIST >> 20);
        }
        if !ended.ok {
            bail!("{}: {}", what(), ended.why());
        }
        String::from_utf8(text).with_context(what)
    }

    /// Runs kubectl; what takes longer than `limit` is ended. `take` has what it
    /// prints as it comes, and says whether it wants more.
    pub(crate) fn run(
        &self,
        args: &[&str],
        limit: Duration,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> anyhow::Result<Ended> {
        let deadline = Instant::now() + limit;
        let mut command = Command::new(&self.program);
        command.args(&self.options).args(args);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // What it starts, such as a credential plugin, ends with it. A terminal's
        // ^C does not reach that group; then it ends with this program.
        command.process_group(0);
        let with_parent = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
        // SAFETY: it is one prctl(2), which may be called between fork and exec.
        unsafe { command.pre_exec(with_parent) };
        let child = command.spawn();
        let mut group = Group::of(child.context("start kubectl: it must be in PATH")?)?;
        let mut stdout = Pipe::new(group.child.stdout.take());
        let mut stderr = Pipe::new(group.child.stderr.take());
        let mut words = Vec::new();
        let mut ended: Option<Instant> = None;
        let mut is_cut = false;
        while !is_cut {
            if ended.is_none() && group.has_ended()? {
                ended = Some(Instant::now());
            }
            wait(&stdout, &stderr)?;
            stdout.read(|piece| is_cut = !take(piece))?;
            stderr.read(|piece| {
                words.extend_from_slice(piece);
                words.drain(..words.len().saturating_sub(MAX_STDERR));
            })?;
            match ended {
                Some(_) if !stdout.is_open() && !stderr.is_open() => break,
                // What it has started can live on, and keep a pipe open.
                Some(at) if at.elapsed() >= LAST_WORDS => break,
                None if Instant::now() >= deadline => {
                    bail!("no answer within {}", humantime::format_duration(limit))
                }
                _ => {}
            }
        }
        Ok(Ended {
            stderr: String::from_utf8_lossy(&words).into_owned(),
            ok: group.end() && !is_cut,
            is_cut,
        })
    }
}

impl Ended {
    /// Why it failed, as kubectl says it.
    pub(crate) fn why(&self) -> String {
        let mut lines = self.stderr.lines().rev().map(str::trim);
        let last = lines.find(|line| !line.is_empty());
        last.unwrap_or("it failed and did not say why").to_owned()
    }
}

/// A process that leads a group of its own, which ends with this.
struct Group {
    child: Child,
    id: Pid,
}

impl Group {
    fn of(child: Child) -> anyhow::Result<Self> {
        let id = Pid::from_raw(child.id().cast_signed()).context("no process ID")?;
        Ok(Self { child, id })
    }

    /// Whether its leader has ended, which then still keeps the group's number.
    fn has_ended(&self) -> anyhow::Result<bool> {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.id), how).context("wait for kubectl")?;
        Ok(status.is_some())
    }

    /// Ends what is left of it; whether its leader did well.
    fn end(&mut self) -> bool {
        // All may have ended by themselves.
        let _ = kill_process_group(self.id, Signal::KILL);
        let killed = Instant::now();
        // One that hangs in the kernel takes no signal.
        while killed.elapsed() < LAST_WORDS {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                Ok(Some(status)) => return status.success(),
                Err(_) => return false,
            }
        }
        false
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Once it is waited for, its number may be somebody else's.
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

/// The end of a pipe that is read.
struct Pipe<R> {
    from: Option<R>,
    piece: Vec<u8>,
}

impl<R: Read + AsFd> Pipe<R> {
    fn new(from: Option<R>) -> Self {
        Self {
            from,
            piece: vec![0; 64 << 10],
        }
    }

    fn is_open(&self) -> bool {
        self.from.is_some()
    }

    fn fd(&self) -> Option<PollFd<'_>> {
        Some(PollFd::new(self.from.as_ref()?, PollFlags::IN))
    }

    /// Hands on a piece of what is in it, if anything is.
    fn read(&mut self, take: impl FnOnce(&[u8])) -> anyhow::Result<()> {
        let Some(from) = &mut self.from else {
            return Ok(());
        };
        let mut fds = [PollFd::new(from, PollFlags::IN)];
        if !matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..)) {
            return Ok(());
        }
        match from.read(&mut self.piece) {
            Ok(0) => self.from = None,
            Ok(length) => take(&self.piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("read what kubectl prints"),
        }
        Ok(())
    }
}

/// Waits until there is something to read, for a moment.
fn wait<A: Read + AsFd, B: Read + AsFd>(stdout: &Pipe<A>, stderr: &Pipe<B>) -> anyhow::Result<()> {
    let mut fds: Vec<_> = [stdout.fd(), stderr.fd()].into_iter().flatten().collect();
    match poll(&mut fds, Some(&TICK)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("wait for what kubectl prints"),
    }
}

/// Does the same for each of many, so many at a time, in their order.
pub(crate) fn side_by_side<T: Sync, R: Send>(
    of: &[T],
    at_a_time: usize,
    each: impl Fn(&T) -> R + Sync,
    done: impl Fn(usize) + Sync,
) -> Vec<R> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let (next, ready) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let worker = || {
        let mut own = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = of.get(at) else { return own };
            own.push((at, each(one)));
            done(ready.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    let mut all: Vec<(usize, R)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..at_a_time.min(of.len()))
            .map(|_| scope.spawn(worker))
            .collect();
        let results = workers.into_iter().map(thread::ScopedJoinHandle::join);
        results.flat_map(Result::unwrap_or_default).collect()
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}

/// A line on standard error that the next one replaces, on a terminal alone.
pub(crate) fn progress(text: &str) {
    use io::{IsTerminal as _, Write as _};
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_done_in_their_order_so_many_at_a_time() {
        let of: Vec<usize> = (0..200).collect();
        let done = side_by_side(&of, 50, |number| number * 2, |_| {});
        assert_eq!(done, (0..200).map(|number| number * 2).collect::<Vec<_>>());
        assert!(side_by_side(&[] as &[u8], 50, |it| *it, |_| {}).is_empty());
    }

    #[test]
    fn the_last_line_says_why_it_failed() {
        let script = "echo Defaulted container >&2; printf 'error: pod is gone\\n\\n' >&2; exit 1";
        let why = Kubectl::script(script).table(&["pods"]).unwrap_err();
        assert_eq!(why.to_string(), "kubectl get pods: error: pod is gone");
    }

    /// How long a script takes that may take a second, and what it says.
    fn timed(script: &str) -> (Duration, anyhow::Result<Ended>, String) {
        let (started, mut text) = (Instant::now(), Vec::new());
        let ended = Kubectl::script(script).run(&[], Duration::from_secs(1), |piece| {
            text.extend_from_slice(piece);
            text.len() < 1 << 20
        });
        (started.elapsed(), ended, String::from_utf8(text).unwrap())
    }

    #[test]
    fn nobody_waits_for_what_kubectl_has_started_and_nothing_of_it_stays() {
        let (took, ended, text) = timed("sleep 61 & echo $!; sleep 62");
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert_eq!(ended.err().unwrap().to_string(), "no answer within 1s");
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", text.trim()));
        assert!(stat.is_err() || stat.is_ok_and(|it| it.contains(") Z")));
        // What was said before its end is an answer, whoever keeps the pipe.
        let (took, ended, text) = timed("sleep 63 & echo said");
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert!(ended.unwrap().ok && text == "said\n");
        // It may have left the group.
        let (took, ended, _) = timed("setsid sleep 3 & exec sleep 64");
        assert!(
            ended.is_err() && took < Duration::from_millis(2500),
            "{took:?}"
        );
    }

    #[test]
    fn who_prints_without_end_is_read_no_further_than_its_reader_wants() {
        let (took, ended, text) = timed("yes; sleep 65");
        assert!(ended.unwrap().is_cut && text.len() < 2 << 20);
        assert!(took < Duration::from_secs(1), "{took:?}");
        let (_, ended, _) = timed("yes >&2");
        assert!(ended.is_err());
    }
}
