//! kubectl(1) as the transport: it has the caller's credentials, and reaches a
//! node's tracer by `exec`.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// More than any answer has; what a node says beyond that is not read.
const MAX_OUTPUT: u64 = 32 << 20;
/// For what the API server alone answers.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often an end is looked for.
const TICK: Duration = Duration::from_millis(20);

pub(crate) struct Kubectl {
    options: Vec<String>,
}

/// What a command printed. Its exit code is no part of it: a tracer that has
/// found something ends with 1, and kubectl with 1 for whatever it is.
pub(crate) struct Printed {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) ok: bool,
}

impl Kubectl {
    pub(crate) fn new(context: Option<&str>, kubeconfig: Option<&str>) -> Self {
        let option = |name: &str, value: Option<&str>| value.map(|it| format!("--{name}={it}"));
        let options = [option("context", context), option("kubeconfig", kubeconfig)];
        Self {
            options: options.into_iter().flatten().collect(),
        }
    }

    /// Objects, as JSON.
    pub(crate) fn get(&self, args: &[&str]) -> anyhow::Result<Value> {
        let text = self.table(&[args, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).context("kubectl get: no JSON")
    }

    /// What `kubectl get` prints.
    pub(crate) fn table(&self, args: &[&str]) -> anyhow::Result<String> {
        let printed = self.run(&[&["get"], args].concat(), PATIENCE)?;
        if !printed.ok {
            bail!("kubectl get {}: {}", args.join(" "), printed.why());
        }
        Ok(printed.stdout)
    }

    /// Runs kubectl; what takes longer than `limit` is ended.
    pub(crate) fn run(&self, args: &[&str], limit: Duration) -> anyhow::Result<Printed> {
        let mut child = Command::new("kubectl")
            .args(&self.options)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start kubectl: it must be in PATH")?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let deadline = Instant::now() + limit;
        thread::scope(|scope| {
            let stdout = scope.spawn(|| read(stdout));
            let stderr = scope.spawn(|| read(stderr));
            let status = loop {
                match child.try_wait().context("wait for kubectl")? {
                    Some(status) => break Some(status),
                    None if Instant::now() >= deadline => {
                        let _ = child.kill();
                        let _ = child.wait();
                        break None;
                    }
                    None => thread::sleep(TICK),
                }
            };
            let text = |read: thread::ScopedJoinHandle<'_, String>| read.join().unwrap_or_default();
            let (stdout, stderr) = (text(stdout), text(stderr));
            match status {
                Some(status) => Ok(Printed {
                    stdout,
                    stderr,
                    ok: status.success(),
                }),
                None => bail!("no answer within {}", humantime::format_duration(limit)),
            }
        })
    }
}

impl Printed {
    /// Why it failed, as kubectl says it.
    pub(crate) fn why(&self) -> String {
        let mut lines = self.stderr.lines().rev().map(str::trim);
        let last = lines.find(|line| !line.is_empty());
        last.unwrap_or("it failed and did not say why").to_owned()
    }
}

fn read(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    let _ = from.map(|from| from.take(MAX_OUTPUT).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
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
        let printed = Printed {
            stdout: String::new(),
            stderr: "Defaulted container\nerror: pod is gone\n\n".into(),
            ok: false,
        };
        assert_eq!(printed.why(), "error: pod is gone");
    }
}
