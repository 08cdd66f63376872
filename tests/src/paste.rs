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
use serde_json::Value;

use crate::containerd::{Containerd, SOCKET};
use crate::cri::Cri;
use crate::tracer;

pub(crate) const ROLE: &str = "crictl";
/// Where the shell's own programs are, on the node.
const PROGRAMS: &str = "/opt/stage";
/// As long as crictl's own users wait for a sandbox to stop.
const LIMIT: Duration = Duration::from_secs(60);

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
        let output = self.command(line).output().context("nsenter")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Pasted {
            line: line.to_owned(),
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        })
    }

    /// The same for what is to go well; what it printed.
    pub fn paste(&self, line: &str) -> anyhow::Result<String> {
        let pasted = self.run(line)?;
        ensure!(pasted.code == Some(0), "{pasted:#?}");
        Ok(pasted.stdout)
    }
}

/// The commands of a finding's advice, as they are printed, in order. Each has a
/// comment, which no sentence has.
pub fn commands(finding: &Value) -> Vec<&str> {
    let steps = finding["advice"].as_array().into_iter().flatten();
    let steps = steps.filter_map(Value::as_str);
    steps.filter(|step| step.contains("    # ")).collect()
}

/// The stand-in for `crictl`: fails as that does, and prints what that prints.
pub(crate) fn crictl(args: &[String]) -> anyhow::Result<()> {
    let cri = Cri::connect(Path::new(SOCKET))?;
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["stopp", id] => {
            ensure!(cri.stop_sandbox(id, LIMIT)?, "StopPodSandbox {id}: no answer");
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
