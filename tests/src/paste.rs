//! A root's shell on a node, into which the commands of advice are pasted as
//! they are printed.
//!
//! Its programs are the machine's own, with two in front of them: the tracer,
//! and a stand-in for `crictl`, which no distribution has. The stand-in
//! ([`crictl`]) asks the real runtime, and takes what advice says and nothing else.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use crate::containerd::{Containerd, SOCKET};
use crate::cri::Cri;
use crate::tracer;

pub(crate) const ROLE: &str = "crictl";
/// Where the shell's own programs are, on the node.
const PROGRAMS: &str = "/opt/stage";
/// As long as crictl's own users wait for a sandbox to stop.
const LIMIT: Duration = Duration::from_secs(60);

/// In the comment of a command with a word that only the reader knows.
const FILL_IN: &str = "fill in";

#[derive(Debug)]
pub struct Shell {
    pid: u32,
}

/// What one pasted command did.
#[derive(Debug)]
pub struct Pasted {
    pub line: String,
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Shell {
    /// In the namespaces and on the root of a node.
    pub fn on(node: &Containerd) -> anyhow::Result<Self> {
        let folder = node.host_path(PROGRAMS);
        fs::create_dir_all(&folder)?;
        // By this process: the node has neither program.
        let own = format!("/proc/{}", std::process::id());
        let tracer = tracer::binary()?.canonicalize()?;
        for (name, line) in [
            ("crictl", format!("{own}/exe stage-helper {ROLE}")),
            ("node-tracer", format!("{own}/root{}", tracer.display())),
        ] {
            let file = folder.join(name);
            fs::write(&file, format!("#!/bin/sh\nexec {line} \"$@\"\n"))?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        }
        fs::create_dir_all(node.host_path("/root"))?;
        Ok(Self { pid: node.pid() })
    }

    /// The command that has the shell run a line.
    pub fn command(&self, line: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.pid.to_string(), "--mount", "--net"])
            .args(["sh", "-c", line])
            .env("PATH", format!("{PROGRAMS}:{path}"))
            .env("HOME", "/root")
            .stdin(Stdio::null());
        command
    }

    /// Pastes one line, and waits for its end, however that is.
    pub fn run(&self, line: &str) -> anyhow::Result<Pasted> {
        Pasted::of(line, &mut self.command(line))
    }

    /// Pastes each command of a finding's advice, but those with a word to fill in;
    /// fails if one is not taken.
    pub fn paste_all(&self, finding: &Value) -> anyhow::Result<Vec<Pasted>> {
        let mut all = Vec::new();
        for line in commands(finding) {
            if line.contains(FILL_IN) {
                continue;
            }
            let pasted = self.run(line)?;
            ensure!(pasted.is_taken(), "{pasted:#?}");
            all.push(pasted);
        }
        Ok(all)
    }
}

impl Pasted {
    fn of(line: &str, shell: &mut Command) -> anyhow::Result<Self> {
        let output = shell.output().context("start a shell")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Self {
            line: line.to_owned(),
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        })
    }

    /// Whether the shell and the programs took it. What looks for something says by
    /// its exit code what it has found; grep also that a process had ended.
    fn is_taken(&self) -> bool {
        let asks = self.line.starts_with("node-tracer ") && matches!(self.code, Some(1 | 3));
        let greps = self.line.contains("grep ")
            && match self.code {
                Some(1) => true,
                Some(2) => self.stderr.is_empty(),
                _ => false,
            };
        // Two findings can advise it; its comment says that once is enough.
        let is_there = self.stderr.contains("already mounted");
        self.code == Some(0) || is_there || asks || greps
    }
}

/// The commands of a finding's advice, as they are printed, in order. Each has a
/// comment, which no sentence has.
pub fn commands(finding: &Value) -> Vec<&str> {
    let steps = finding["advice"].as_array().into_iter().flatten();
    let steps = steps.filter_map(Value::as_str);
    steps.filter(|step| step.contains("    # ")).collect()
}

/// Programs that need what is not on every stage: a cluster, a runtime, traffic.
const ELSEWHERE: [&str; 4] = ["calicoctl", "crictl", "kubectl", "timeout"];

/// The helper that pastes, where it is, all commands of the findings in a file of
/// records, but those with a word to fill in. It says what was not taken.
pub(crate) fn paste_all(file: &str) -> anyhow::Result<()> {
    for line in fs::read_to_string(file)?.lines() {
        let record: Value = serde_json::from_str(line)?;
        for line in commands(&record) {
            if ELSEWHERE.iter().any(|program| line.contains(program)) || line.contains(FILL_IN) {
                continue;
            }
            let mut shell = Command::new("sh");
            let pasted = Pasted::of(line, shell.args(["-c", line]).stdin(Stdio::null()))?;
            let taken = pasted.is_taken();
            let (code, stderr) = (pasted.code, pasted.stderr);
            let of = &record["rule"];
            let record = json!({ "type": "pasted", "rule": of, "line": line, "taken": taken, "code": code, "stderr": stderr });
            println!("{record}");
        }
    }
    Ok(())
}

/// The stand-in for `crictl`: fails as that does, and prints what that prints.
pub(crate) fn crictl(args: &[String]) -> anyhow::Result<()> {
    let cri = Cri::connect(Path::new(SOCKET))?;
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["stopp", id] => {
            ensure!(
                cri.stop_sandbox(id, LIMIT)?,
                "StopPodSandbox {id}: no answer"
            );
            println!("Stopped sandbox {id}");
        }
        ["rmp", id] => {
            let ready = cri.sandbox_status(id).is_ok_and(|status| status.ready);
            ensure!(!ready, "pod sandbox {id} is running, please stop it first");
            cri.remove_sandbox(id)?;
            println!("Removed sandbox {id}");
        }
        ["pods", "--id", id] => {
            println!("POD ID   CREATED   STATE   NAME   NAMESPACE   ATTEMPT   RUNTIME");
            for one in cri.sandboxes()?.iter().filter(|one| one.id.starts_with(id)) {
                let state = if one.state == 0 { "Ready" } else { "NotReady" };
                println!("{}   {state}", one.id);
            }
        }
        _ => bail!("crictl has no stand-in for {args:?}"),
    }
    Ok(())
}
