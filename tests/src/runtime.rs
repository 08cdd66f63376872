//! A stand-in for the container runtime.
//!
//! The tracer believes a CNI call only if a container runtime makes it, so the
//! plugins need a parent that looks like one: a copy of this program named
//! `containerd`, which runs in the node's network namespace and starts the
//! plugins it is told to. The plugins are the real ones.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::helper::{self, Helper};
use crate::netns::Netns;

/// A running stand-in.
#[derive(Debug)]
pub struct Runtime(Helper);

/// For a plugin to end.
const LIMIT: Duration = Duration::from_secs(300);

/// How a plugin ended.
#[derive(Clone, Debug)]
pub struct Run {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Its result, or its error, as JSON.
    pub stdout: String,
    pub stderr: String,
}

impl Runtime {
    /// Starts it in `node`; the copy is put into `folder`.
    pub fn start(node: &Netns, folder: &Path) -> anyhow::Result<Self> {
        Self::start_apart(node, folder, 0)
    }

    /// The same in new namespaces of these kinds (`CLONE_NEW*`), as a container
    /// that shares the host's processes (`docker run --pid=host`) has them.
    pub fn start_apart(node: &Netns, folder: &Path, kinds: i32) -> anyhow::Result<Self> {
        let program = folder.join("containerd");
        fs::copy("/proc/self/exe", &program)
            .with_context(|| format!("copy this program to {}", program.display()))?;
        let mut command = helper::command(Some(&program), Some(node), "runtime");
        let apart = move || {
            // SAFETY: unshare(2) takes flags alone.
            match unsafe { libc::unshare(kinds) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure makes one system call, which is allowed between
        // fork and exec.
        unsafe { command.pre_exec(apart) };
        let helper = Helper::start(&mut command, Duration::from_secs(3))?;
        Ok(Self(helper))
    }

    /// Its process ID, the parent of the plugins.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Has it run a plugin, with these variables added to its own.
    pub fn run(
        &mut self,
        plugin: &Path,
        environment: &BTreeMap<&str, String>,
        config: &Value,
    ) -> anyhow::Result<Run> {
        self.order(&json!({ "plugin": plugin, "environment": environment, "config": config }))
    }

    /// Has it run a plugin with exactly this environment: `NAME=value`, in
    /// this order.
    pub fn run_exactly(&mut self, plugin: &Path, environment: &[String]) -> anyhow::Result<Run> {
        self.order(&json!({ "plugin": plugin, "exactly": environment, "config": {} }))
    }

    fn order(&mut self, order: &Value) -> anyhow::Result<Run> {
        self.0.tell(order)?;
        let line = self.0.line("the stand-in runtime's reply", LIMIT)?;
        let reply: Value = serde_json::from_str(&line)
            .with_context(|| format!("{}: no reply from the stand-in runtime", order["plugin"]))?;
        let text = |key: &str| reply[key].as_str().unwrap_or_default().to_owned();
        Ok(Run {
            code: reply["code"].as_i64().map(|code| code as i32),
            stdout: text("stdout"),
            stderr: text("stderr"),
        })
    }
}

/// The stand-in itself: one order a line on stdin, one reply a line on stdout.
pub(crate) fn serve() -> anyhow::Result<()> {
    for line in std::io::stdin().lines() {
        let order: Value = serde_json::from_str(&line.context("stdin")?)?;
        println!(
            "{}",
            obey(&order).unwrap_or_else(|error| json!({ "stderr": format!("{error:#}") }))
        );
    }
    Ok(())
}

/// Pointers for execve, with what they point to.
struct Strings {
    pointers: Vec<*const libc::c_char>,
    _owned: Vec<CString>,
}

// SAFETY: the pointers are to heap memory that the struct owns and nobody changes.
unsafe impl Send for Strings {}
// SAFETY: as above.
unsafe impl Sync for Strings {}

impl Strings {
    fn new<'a>(strings: impl Iterator<Item = &'a str>) -> anyhow::Result<Self> {
        let owned: Vec<CString> = strings.map(CString::new).collect::<Result<_, _>>()?;
        let end = std::iter::once(std::ptr::null());
        Ok(Self {
            pointers: owned
                .iter()
                .map(|string| string.as_ptr())
                .chain(end)
                .collect(),
            _owned: owned,
        })
    }
}

/// A command with exactly this environment. (`Command` would sort it.)
fn exactly(plugin: &str, environment: &[Value]) -> anyhow::Result<Command> {
    let path = CString::new(plugin)?;
    let argv = Strings::new(std::iter::once(plugin))?;
    let envp = Strings::new(environment.iter().filter_map(Value::as_str))?;
    let exec = move || {
        // The whole structs, not the fields alone, which are not Send.
        let (argv, envp) = (&argv, &envp);
        // SAFETY: both arrays end with a null pointer; they and what they
        // point to are owned by the closure.
        unsafe {
            libc::execve(
                path.as_ptr(),
                argv.pointers.as_ptr(),
                envp.pointers.as_ptr(),
            )
        };
        Err(std::io::Error::last_os_error())
    };
    let mut command = Command::new(plugin);
    // SAFETY: the closure makes one system call, which is allowed between fork and exec.
    unsafe { command.pre_exec(exec) };
    Ok(command)
}

fn obey(order: &Value) -> anyhow::Result<Value> {
    let plugin = order["plugin"]
        .as_str()
        .context("an order without a plugin")?;
    // As libcni does: the runtime's own environment and the CNI variables,
    // the configuration on stdin.
    let mut child = match order["exactly"].as_array() {
        Some(environment) => exactly(plugin, environment)?,
        None => {
            let environment = order["environment"].as_object().into_iter().flatten();
            let mut command = Command::new(plugin);
            command.envs(environment.filter_map(|(name, value)| Some((name, value.as_str()?))));
            command
        }
    };
    let mut child = child
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {plugin}"))?;
    let config = order["config"].to_string();
    // One that ends without reading it has its reasons.
    match child
        .stdin
        .take()
        .context("no pipe")?
        .write_all(config.as_bytes())
    {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    let output = child
        .wait_with_output()
        .with_context(|| format!("wait for {plugin}"))?;
    Ok(json!({
        "code": output.status.code(),
        "stdout": String::from_utf8_lossy(&output.stdout),
        "stderr": String::from_utf8_lossy(&output.stderr),
    }))
}
