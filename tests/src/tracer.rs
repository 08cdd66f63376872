//! The tracer under test, as a child process whose records are read as they come.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;

use crate::process;
use crate::wait::{self, Interrupted};

/// Long enough for anything that is to happen at once, on a busy machine too.
pub const SOON: Duration = Duration::from_secs(20);

/// What came out so far.
#[derive(Debug, Default)]
struct Output {
    records: Vec<(Instant, Value)>,
    /// Lines on stdout that are not records.
    text: Vec<String>,
    /// Lines on stdout that act on a terminal.
    unsafe_lines: Vec<String>,
    stderr: String,
}

/// A running `node-tracer`.
#[derive(Debug)]
pub struct Tracer {
    child: Child,
    said: Arc<Mutex<Output>>,
    readers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub records: Vec<Value>,
    /// Lines on stdout that are not records.
    pub text: Vec<String>,
    /// Lines on stdout, records too, that hold a control character.
    pub unsafe_lines: Vec<String>,
    pub stderr: String,
}

/// Path of the tracer, from `NODE_TRACER_BIN`.
pub fn binary() -> anyhow::Result<PathBuf> {
    std::env::var_os("NODE_TRACER_BIN")
        .map(PathBuf::from)
        .context("NODE_TRACER_BIN is not set")
}

/// The tracer's command line, to be run as it is.
pub fn command(args: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(binary()?);
    command.args(args).stdin(Stdio::null());
    Ok(command)
}

fn lock(said: &Mutex<Output>) -> MutexGuard<'_, Output> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tracer {
    /// Starts `trace -o json ARGS` with no source but the kernel, and waits
    /// until it watches.
    pub fn trace(args: &[&str]) -> anyhow::Result<Self> {
        Self::trace_with(args, &[])
    }

    /// The same with variables in its environment.
    pub fn trace_with(args: &[&str], environment: &[(&str, &OsStr)]) -> anyhow::Result<Self> {
        let mut all = vec!["trace", "-o", "json", "--cri", "none"];
        if !args.contains(&"--pods") {
            all.extend(["--pods", "none"]);
        }
        all.extend(args);
        let mut command = Command::new(binary()?);
        command.args(&all).envs(environment.iter().copied());
        let mut this = Self::start(&mut command, |_| ())?;
        this.wait_until_ready()?;
        Ok(this)
    }

    /// Starts the tracer by any command line. Lines on stdout that are not
    /// records (`-o text` beside `-o json`) go to `on_text`, as they come.
    pub fn start(
        command: &mut Command,
        mut on_text: impl FnMut(&str) + Send + 'static,
    ) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for us; the tracer is told by us.
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {}", Path::new(command.get_program()).display()))?;
        let stdout = child.stdout.take().context("no pipe")?;
        let stderr = child.stderr.take().context("no pipe")?;
        let said = Arc::new(Mutex::new(Output::default()));
        let (out, err) = (Arc::clone(&said), Arc::clone(&said));
        let (lines, read) = mpsc::channel();
        let readers = vec![
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                    // Nobody is left to take it only when all has ended.
                    let _ = lines.send((Instant::now(), line));
                }
            }),
            // Read and understood by two, so that thousands of namespaces that
            // are told at once do not wait for this one.
            std::thread::spawn(move || {
                for (at, line) in read {
                    let line = String::from_utf8_lossy(&line);
                    if line.chars().any(char::is_control) {
                        lock(&out).unsafe_lines.push(line.to_string());
                    }
                    match serde_json::from_str(&line) {
                        Ok(record @ Value::Object(_)) => {
                            lock(&out).records.push((at, record));
                        }
                        _ => {
                            on_text(&line);
                            lock(&out).text.push(line.into_owned());
                        }
                    }
                }
            }),
            std::thread::spawn(move || {
                let mut stderr = stderr;
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = stderr.read(&mut buffer) {
                    lock(&err)
                        .stderr
                        .push_str(&String::from_utf8_lossy(&buffer[..length]));
                }
            }),
        ];
        Ok(Self {
            child,
            said,
            readers,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the first coverage record: from there on nothing is missed.
    pub fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        self.wait_for("a coverage record", SOON, |record| {
            record["type"] == "coverage"
        })?;
        Ok(())
    }

    /// Waits for a record, among those that came already too.
    pub fn wait_for(
        &mut self,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        Ok(self.wait_with_time(what, limit, wanted)?.1)
    }

    /// As [`wait_for`](Self::wait_for), with the time at which the record came.
    pub fn wait_with_time(
        &mut self,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<(Instant, Value)> {
        let mut seen = 0;
        let Self { child, said, .. } = self;
        let found = wait::until(what, limit, || {
            let ended = child.try_wait().context("wait for the tracer")?;
            let said = lock(said);
            if let Some(found) = said.records[seen..]
                .iter()
                .find(|(_, record)| wanted(record))
            {
                return Ok(Some(found.clone()));
            }
            seen = said.records.len();
            match ended {
                Some(status) => anyhow::bail!("the tracer has ended ({status}) before {what}"),
                None => Ok(None),
            }
        });
        found.map_err(|error| {
            // An interruption stays what it is; the rest says what was there instead.
            let plain = error.is::<Interrupted>();
            if plain {
                error
            } else {
                anyhow::anyhow!("{error:#}\n{}", self.last_words())
            }
        })
    }

    /// The last few things that it said, for a failed test's message.
    fn last_words(&self) -> String {
        let said = lock(&self.said);
        let from = said.records.len().saturating_sub(6);
        let records: String = said.records[from..]
            .iter()
            .map(|(_, record)| {
                let line: String = record.to_string().chars().take(600).collect();
                format!("    {line}\n")
            })
            .collect();
        format!(
            "node-tracer said {} records, the last of them:\n{records}  and on stderr: {}",
            said.records.len(),
            said.stderr.trim()
        )
    }

    /// All records so far.
    pub fn records(&self) -> Vec<Value> {
        lock(&self.said)
            .records
            .iter()
            .map(|(_, record)| record.clone())
            .collect()
    }

    /// How many records there are of a kind so far.
    pub fn count(&self, wanted: impl Fn(&Value) -> bool) -> usize {
        let said = lock(&self.said);
        let records = said.records.iter().filter(|(_, record)| wanted(record));
        records.count()
    }

    /// Sends it a signal. (It is not reaped yet, so the PID is its own.)
    pub fn signal(&self, signal: i32) {
        // It fails only if it has ended.
        let _ = process::signal(self.pid(), signal);
    }

    /// Sends SIGINT and waits for the end.
    pub fn stop(self) -> anyhow::Result<Ended> {
        self.signal(libc::SIGINT);
        self.wait_for_end(SOON)
    }

    pub fn wait_for_end(mut self, limit: Duration) -> anyhow::Result<Ended> {
        let child = &mut self.child;
        let status: ExitStatus = wait::until("the tracer to end", limit, || {
            child.try_wait().context("wait for the tracer")
        })?;
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        let said = std::mem::take(&mut *lock(&self.said));
        Ok(Ended {
            code: status.code(),
            signal: status.signal(),
            records: said.records.into_iter().map(|(_, record)| record).collect(),
            text: said.text,
            unsafe_lines: said.unsafe_lines,
            stderr: said.stderr,
        })
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(libc::SIGINT);
            let ended = || matches!(self.child.try_wait(), Ok(Some(_)) | Err(_));
            if !wait::settle(Duration::from_secs(5), ended) {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
    }
}

/// Whether a record is this event.
pub fn is_event(record: &Value, event: &str) -> bool {
    record["type"] == "event" && record["event"] == event
}

/// Whether a record is a finding by this rule.
pub fn is_finding(record: &Value, rule: &str) -> bool {
    record["type"] == "finding" && record["rule"] == rule
}

/// Inode of the network namespace that a record is about.
pub fn netns_of(record: &Value) -> Option<u64> {
    record["netns"]["inode"].as_u64()
}

/// Whether a record names this address, with or without a prefix length.
pub fn names_address(record: &Value, address: &str) -> bool {
    let same = |value: &Value| {
        value
            .as_str()
            .is_some_and(|text| text.split('/').next() == Some(address))
    };
    same(&record["address"])
        || record["addresses"]
            .as_array()
            .is_some_and(|all| all.iter().any(same))
}
