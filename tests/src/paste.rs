//! A root's shell on a node, into which the commands of advice are pasted as
//! they are printed.
//!
//! Its programs are the machine's own, with two in front of them: the tracer,
//! and a stand-in for `crictl`, which no distribution has. The stand-in
//! ([`crictl`]) asks the real runtime, and takes what advice says and nothing else.
//!
//! What no stage has is not pasted: the commands of trapped-device (hardware) and
//! netns-teardown-stall (a kernel that does not let go), those of calicoctl,
//! tcpdump, arping and terway-cli, and those with a word to fill in. Whether a
//! shell parses them, and their programs have their options, is asked of them,
//! too ([`options`]).

pub mod options;

use std::collections::BTreeSet;
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
    /// It was taken, and did what it says where that can be seen.
    pub done: bool,
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
    /// fails if one does not do what it says.
    pub fn paste_all(&self, finding: &Value) -> anyhow::Result<Vec<Pasted>> {
        self.paste(finding, &[])
    }

    /// The same but for commands of programs that the stage lacks.
    pub fn paste(&self, finding: &Value, lacking: &[&str]) -> anyhow::Result<Vec<Pasted>> {
        let mut all = Vec::new();
        for line in commands(finding) {
            if can_be_pasted(line, lacking) {
                let pasted = try_out(line, &|line| self.run(line))?;
                ensure!(pasted.done, "{pasted:#?}");
                all.push(pasted);
            }
        }
        Ok(all)
    }
}

impl Pasted {
    fn of(line: &str, shell: &mut Command) -> anyhow::Result<Self> {
        let output = shell.output().context("start a shell")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut this = Self {
            line: line.to_owned(),
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            done: false,
        };
        this.done = this.is_taken();
        Ok(this)
    }

    /// Whether the shell and the programs took it. A verdict has exit codes of its
    /// own. What searches may find nothing in logs, which a stage has few of, and
    /// where its comment says so.
    fn is_taken(&self) -> bool {
        let verdicts = ["scan ", "explain ", "repair --plan "];
        let is_verdict = verdicts
            .map(|verdict| format!("node-tracer {verdict}"))
            .iter()
            .any(|verdict| self.line.starts_with(verdict));
        let is_log = |program: &&str| self.line.starts_with(program);
        let may_be_empty = ["journalctl ", "dmesg "].iter().any(is_log)
            || ["# must print no", "# prints nothing", ", if any"]
                .iter()
                .any(|comment| self.line.contains(comment));
        let is_empty = self.stdout.is_empty()
            && self
                .stderr
                .lines()
                .all(|line| line == "No journal files were found.");
        match self.code {
            Some(0) => true,
            Some(1) => is_verdict || (may_be_empty && is_empty),
            // A process that has ended meanwhile has no file to search.
            Some(2) => may_be_empty && is_empty && self.line.starts_with("grep "),
            Some(3) => is_verdict,
            _ => false,
        }
    }
}

/// The commands of a finding's advice, as they are printed, in order. Each has a
/// comment, which no sentence has.
pub fn commands(finding: &Value) -> Vec<&str> {
    let steps = finding["advice"].as_array().into_iter().flatten();
    let steps = steps.filter_map(Value::as_str);
    steps.filter(|step| step.contains("    # ")).collect()
}

fn can_be_pasted(line: &str, lacking: &[&str]) -> bool {
    !line.contains(FILL_IN) && !lacking.iter().any(|program| line.contains(program))
}

/// Pastes a line, and looks whether it did what it says and nothing beside that.
fn try_out(line: &str, run: &dyn Fn(&str) -> anyhow::Result<Pasted>) -> anyhow::Result<Pasted> {
    let command = line.split("    # ").next().unwrap_or(line);
    let mut words: Vec<&str> = command.split(' ').collect();
    // What it does is the same on each socket.
    if words.starts_with(&["crictl", "-r"]) {
        words.drain(1..3);
    }
    let (way, words) = match words.as_slice() {
        ["nsenter", way, words @ ..] => (format!("nsenter {way} "), words),
        words => (String::new(), words),
    };
    // What is beside that which it is about.
    let all = match *words {
        ["ip", object @ ("link" | "neigh"), ..] => format!("{way}ip -br {object}"),
        ["crictl", "stopp" | "rmp", ..] => String::from("crictl pods"),
        _ => String::from("true"),
    };
    let listed = || -> anyhow::Result<BTreeSet<String>> {
        let list = run(&all)?.stdout;
        let firsts = list.lines().filter_map(|line| line.split(' ').next());
        Ok(firsts.map(str::to_owned).collect())
    };
    let is = |test: String| Ok::<_, anyhow::Error>(run(&test)?.code == Some(0));
    let before = listed()?;
    let mut pasted = run(line)?;
    let after = listed()?;
    let gone: Vec<&String> = before.difference(&after).collect();
    let only = |is_its: &dyn Fn(&str) -> bool| !gone.is_empty() && gone.iter().all(|it| is_its(it));
    pasted.done &= match *words {
        ["ip", "link", "del", name] => only(&|it| it.split('@').any(|part| part == name)),
        ["ip", "neigh", "replace", address, "lladdr", mac, ..] => {
            let entry = run(&format!("{way}ip neigh show {address}"))?;
            let is_written = entry.stdout.contains(&format!("lladdr {mac} PERMANENT"));
            is_written && gone.is_empty()
        }
        ["crictl", "stopp", id, ..] | ["crictl", "rmp", id] => only(&|it| it.starts_with(id)),
        ["umount", path, "&&", ..] => is(format!("test ! -e {path}"))?,
        ["findmnt", path, ..] => is(format!("findmnt {path}"))?,
        ["node-tracer", "repair", "--plan", file] => is(format!("test -s {file}"))?,
        ["cp", "-n", _, file] => is(format!("test -e {file}"))?,
        ["kill", "-9", ref pids @ ..] => {
            let ended = pids
                .iter()
                .map(|pid| format!("! grep -q '^State:.[^ZD]' /proc/{pid}/status 2>/dev/null"));
            let ended: Vec<String> = ended.collect();
            is(format!("sleep 0.2; {}", ended.join(" && ")))?
        }
        _ => true,
    };
    Ok(pasted)
}

/// What a staged node of the zoo lacks: a cluster, traffic, and the minute that a
/// plan takes.
const ELSEWHERE: [&str; 4] = ["calicoctl", "kubectl", "node-tracer repair", "tcpdump"];

/// The helper that pastes, where it is, all commands of the findings in a file of
/// records, but those with a word to fill in. It says which did what they say.
/// What two findings advise is pasted once.
pub(crate) fn paste_all(file: &str) -> anyhow::Result<()> {
    let run = |line: &str| {
        let mut shell = Command::new("sh");
        Pasted::of(line, shell.args(["-c", line]).stdin(Stdio::null()))
    };
    let no_runtime = (!Path::new(SOCKET).exists()).then_some("crictl");
    let lacking: Vec<&str> = ELSEWHERE.into_iter().chain(no_runtime).collect();
    let mut printed = BTreeSet::new();
    for record in fs::read_to_string(file)?.lines() {
        let record: Value = serde_json::from_str(record)?;
        for line in commands(&record) {
            if !printed.insert(line.to_owned()) {
                continue;
            }
            let mut told = json!({ "type": "printed", "rule": record["rule"], "line": line });
            if can_be_pasted(line, &lacking) {
                let Pasted {
                    code, stderr, done, ..
                } = try_out(line, &run)?;
                let pasted = json!({ "done": done, "code": code, "stderr": stderr });
                told["pasted"] = pasted;
            }
            println!("{told}");
        }
    }
    Ok(())
}

/// The stand-in for `crictl`: fails as that does, and prints what that prints.
pub(crate) fn crictl(args: &[String]) -> anyhow::Result<()> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (socket, words) = match words.as_slice() {
        ["-r", endpoint, words @ ..] => (endpoint.trim_start_matches("unix://"), words),
        words => (SOCKET, words),
    };
    let cri = Cri::connect(Path::new(socket))?;
    match words {
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
        ["pods", id @ ..] => {
            let id = match id {
                ["--id", id] => id,
                [] => "",
                _ => bail!("crictl pods has no stand-in for {id:?}"),
            };
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
