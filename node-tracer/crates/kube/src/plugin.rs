//! The program that a user's kubeconfig has its credentials from (`exec`), by
//! the protocol of client.authentication.k8s.io.
//!
//! It can hang, as can what it starts. No thread waits for it beyond its time,
//! and while some of its runs hang for good there are no more of them.

use std::{
    io::{self, ErrorKind, Read as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    process::{Pid, Signal, kill_process_group},
};
use serde_json::{Value, json};

use super::{
    error::Problem,
    kubeconfig::{Identity, bearer},
};

/// A program that takes longer waits for somebody to type.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most that it may print.
const MAX_OUTPUT: usize = 256 << 10;
/// What it has printed is there when it ends, or hardly later.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// Runs at the same time, those included that hang.
const MAX_RUNS: usize = 4;

/// Where a cluster's entry has what is for its plugin.
const EXTENSION: &str = "client.authentication.k8s.io/exec";

#[derive(Debug, PartialEq)]
pub(super) struct Plugin {
    command: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// `KUBERNETES_EXEC_INFO`
    info: Value,
}

impl Plugin {
    /// The plugin of a kubeconfig's user.
    pub(super) fn of(user: &Value, cluster: &Value, folder: &Path) -> Option<Self> {
        let exec = user.get("exec").filter(|exec| !exec.is_null())?;
        let text = |value: &Value, name: &str| Some(value.get(name)?.as_str()?.to_owned());
        let list = |name: &str| {
            exec.get(name)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
        };
        let mut command = text(exec, "command").unwrap_or_default();
        // A bare name is looked up in PATH.
        if command.contains('/') {
            command = folder.join(command).to_string_lossy().into_owned();
        }
        let mut spec = json!({ "interactive": false });
        if exec.get("provideClusterInfo") == Some(&Value::Bool(true)) {
            spec["cluster"] = cluster_info(cluster);
        }
        let info = json!({
            "apiVersion": exec.get("apiVersion"), "kind": "ExecCredential", "spec": spec,
        });
        Some(Self {
            command,
            arguments: list("args")
                .filter_map(|one| Some(one.as_str()?.to_owned()))
                .collect(),
            environment: list("env")
                .filter_map(|one| Some((text(one, "name")?, text(one, "value")?)))
                .collect(),
            info,
        })
    }

    /// What it is called.
    pub(super) fn name(&self) -> &str {
        &self.command
    }

    /// Runs it. It cannot ask anybody anything.
    pub(super) fn run(&self) -> Result<Identity, Problem> {
        let turn = Turn::take().ok_or_else(|| failed("earlier runs of it hang"))?;
        let mut child = Command::new(&self.command)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("KUBERNETES_EXEC_INFO", self.info.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let output = output(&mut child);
        if output.is_err() {
            end(child, turn);
        }
        identity(&output?).ok_or_else(|| failed("it prints no credentials"))
    }
}

fn failed(why: impl ToString) -> Problem {
    Problem::Plugin(why.to_string())
}

/// The right to one run.
struct Turn;

static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// Those that even SIGKILL does not end, as they hang in the kernel.
static HANGING: Mutex<Vec<(Child, Turn)>> = Mutex::new(Vec::new());

impl Turn {
    fn take() -> Option<Self> {
        let mut hanging = HANGING.lock().unwrap_or_else(PoisonError::into_inner);
        hanging.retain_mut(|(child, _)| matches!(child.try_wait(), Ok(None)));
        let more = |taken| (taken < MAX_RUNS).then_some(taken + 1);
        TAKEN.fetch_update(SeqCst, SeqCst, more).ok().map(|_| Self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, SeqCst);
    }
}

/// Ends it, with what it has started.
fn end(mut child: Child, turn: Turn) {
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        // They may have ended just now.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let killed = Instant::now();
    while killed.elapsed() < LAST_WORDS {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        thread::sleep(LOOK);
    }
    let mut hanging = HANGING.lock().unwrap_or_else(PoisonError::into_inner);
    hanging.push((child, turn));
}

/// What the program prints until it ends.
fn output(child: &mut Child) -> Result<Vec<u8>, Problem> {
    let Some(mut stdout) = child.stdout.take() else {
        return Ok(Vec::new());
    };
    let flags = fcntl_getfl(&stdout).and_then(|flags| {
        // A read that waited would wait for whoever has the other end.
        fcntl_setfl(&stdout, flags | OFlags::NONBLOCK)
    });
    flags.map_err(failed)?;
    let mut output = Vec::new();
    let started = Instant::now();
    let mut ended: Option<(ExitStatus, Instant)> = None;
    loop {
        let looked = Instant::now();
        let whole = match read_waiting(&mut stdout, &mut output) {
            Ok(whole) => whole,
            Err(_) => return Err(failed("what it prints cannot be read")),
        };
        if ended.is_none() {
            let status = child.try_wait().map_err(failed)?;
            ended = status.map(|status| (status, looked));
        }
        match ended {
            Some((status, _)) if !status.success() => return Err(failed(status)),
            Some(_) if whole => return Ok(output),
            // What it has started can live on, and keep the pipe open.
            Some((_, at)) if at.elapsed() > LAST_WORDS => {
                return Err(failed("what it prints cannot be read"));
            }
            None if started.elapsed() >= PATIENCE => {
                let limit = PATIENCE.as_secs();
                return Err(failed(format!("it takes more than {limit} s")));
            }
            _ => thread::sleep(LOOK),
        }
    }
}

/// Takes what is in the pipe. Returns whether that was all there will be.
fn read_waiting(stdout: &mut ChildStdout, output: &mut Vec<u8>) -> io::Result<bool> {
    let mut piece = [0; 4096];
    loop {
        match stdout.read(&mut piece) {
            Ok(0) => return Ok(true),
            Ok(length) if output.len() + length > MAX_OUTPUT => {
                return Err(ErrorKind::FileTooLarge.into());
            }
            Ok(length) => output.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The `ExecCredential` that a plugin prints.
fn identity(output: &[u8]) -> Option<Identity> {
    let printed: Value = serde_json::from_slice(output).ok()?;
    let status = printed.get("status")?;
    let text = |name: &str| status.get(name)?.as_str().filter(|text| !text.is_empty());
    let pem = |name: &str| text(name).map(|pem| pem.as_bytes().to_vec());
    let identity = Identity {
        certificate: pem("clientCertificateData"),
        key: pem("clientKeyData"),
        authorization: text("token").map(bearer),
    };
    (identity.certificate.is_some() || identity.authorization.is_some()).then_some(identity)
}

/// A cluster's entry as a plugin is told it.
fn cluster_info(cluster: &Value) -> Value {
    let mut info = json!({});
    for name in [
        "server",
        "tls-server-name",
        "insecure-skip-tls-verify",
        "certificate-authority-data",
    ] {
        if let Some(value) = cluster.get(name) {
            info[name] = value.clone();
        }
    }
    let extensions = cluster.get("extensions").and_then(Value::as_array);
    let own = extensions
        .into_iter()
        .flatten()
        .find(|one| one["name"] == EXTENSION);
    if let Some(own) = own.and_then(|own| own.get("extension")) {
        info["config"] = own.clone();
    }
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(script: &str) -> Plugin {
        let user = json!({ "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh", "args": ["-c", script],
            "env": [{ "name": "A", "value": "b" }],
            "provideClusterInfo": true,
        } });
        let cluster = json!({ "server": "https://s", "extensions": [
            { "name": EXTENSION, "extension": { "x": 1 } },
        ] });
        Plugin::of(&user, &cluster, Path::new("/etc")).unwrap()
    }

    fn refusal(script: &str) -> String {
        plugin(script).run().err().unwrap().to_string()
    }

    #[test]
    fn a_plugin_is_told_what_it_is_for_and_gives_the_credentials() {
        let script = r#"test "$A" = b && printf '{"status":{"token":"%s"}}' "$(printf '%s' "$KUBERNETES_EXEC_INFO" | tr -d '"')""#;
        let given = plugin(script).run().unwrap().authorization.unwrap();
        assert_eq!(
            given,
            "Bearer {apiVersion:client.authentication.k8s.io/v1,kind:ExecCredential,spec:\
             {cluster:{config:{x:1},server:https://s},interactive:false}}"
        );
    }

    #[test]
    fn a_plugin_that_fails_is_told_without_what_it_prints() {
        for (script, expected) in [
            ("echo s3cr3t; exit 3", "exit status: 3"),
            ("echo s3cr3t", "it prints no credentials"),
            (
                "echo '{\"status\":{\"token\":\"\",\"x\":\"s3cr3t\"}}'",
                "it prints no credentials",
            ),
            ("kill -9 $$", "signal: 9"),
        ] {
            let text = refusal(script);
            assert!(
                text.contains(expected) && !text.contains("s3cr3t"),
                "{text}"
            );
        }
        let user = json!({ "exec": { "command": "bin/no-such-plugin" } });
        let missing = Plugin::of(&user, &Value::Null, Path::new("/etc")).unwrap();
        assert_eq!(missing.name(), "/etc/bin/no-such-plugin");
        assert!(
            missing
                .run()
                .err()
                .unwrap()
                .to_string()
                .contains("No such file")
        );
        assert_eq!(
            Plugin::of(&json!({ "token": "t" }), &Value::Null, Path::new("/")),
            None
        );
    }

    #[test]
    fn a_plugin_that_leaves_a_process_behind_is_not_waited_for() {
        let started = Instant::now();
        assert!(refusal("sleep 40 & exit 0").contains("cannot be read"));
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    /// Threads of this process that have this name.
    fn threads(name: &str) -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|its| its.trim() == name).count()
    }

    #[test]
    fn a_plugin_that_leaves_a_process_behind_leaves_no_thread_behind() {
        let name = "plugin-threads";
        // What a thread without a name starts has its name, too.
        let runs = thread::Builder::new()
            .name(String::from(name))
            .spawn(move || {
                for _ in 0..2 {
                    refusal("sleep 41 & exit 0");
                }
                threads(name)
            });
        assert_eq!(runs.unwrap().join().unwrap(), 1);
    }

    #[test]
    fn a_plugin_that_prints_without_end_ends() {
        assert!(refusal("exec cat /dev/zero").contains("the credential plugin fails"));
    }
}
