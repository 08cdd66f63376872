//! Wrappers around the real CNI plugins that write down every call: what the
//! tracer's recording is compared with.
//!
//! A wrapper has the plugin's name and stands where the runtime, and the
//! plugins themselves, look for plugins. It runs the real one, which is in a
//! folder that is not in `CNI_PATH`, as a child with its own stdin, writes a
//! line to the log, and then answers what the real one answered, in one write
//! and with its exit code. So the line is there before the runtime goes on.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use crate::containerd::Generation;
use crate::scratch::Scratch;
use crate::scripted;

/// The plugins that containerd and the stage's pod network need.
pub const PLUGINS: [&str; 3] = ["loopback", "bridge", "host-local"];

/// A folder of wrappers, and what they wrote.
#[derive(Debug)]
pub struct Recorder {
    folder: Scratch,
    plugins: PathBuf,
}

/// One call, as its wrapper saw it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Recorded {
    /// The wrapper's process ID.
    pub pid: u32,
    /// `CNI_COMMAND`
    pub command: String,
    /// `CNI_CONTAINERID`
    pub container_id: String,
    /// `CNI_IFNAME`
    pub ifname: String,
    pub plugin: String,
    pub exit_code: i64,
    /// What it wrote to stdout, with blanks for newlines.
    pub output: String,
}

impl Recorded {
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.splitn(7, '\t');
        let mut next = || parts.next();
        Some(Self {
            pid: next()?.parse().ok()?,
            command: next()?.to_owned(),
            container_id: next()?.to_owned(),
            ifname: next()?.to_owned(),
            plugin: next()?.to_owned(),
            exit_code: next()?.parse().ok()?,
            output: next()?.to_owned(),
        })
    }

    /// Its answer; null if it gave none.
    pub fn answer(&self) -> Value {
        serde_json::from_str(&self.output).unwrap_or_default()
    }

    /// Addresses in its result, without prefix lengths.
    pub fn ips(&self) -> Vec<IpAddr> {
        let answer = self.answer();
        let ips = answer["ips"].as_array().into_iter().flatten();
        ips.filter_map(|ip| ip["address"].as_str()?.split('/').next()?.parse().ok())
            .collect()
    }
}

impl Recorder {
    /// Wrappers around the plugins that a node has.
    pub fn create(of: Generation) -> anyhow::Result<Self> {
        let real = of.plugins().context("the CNI plugins are not installed")?;
        let folder = Scratch::create()?;
        let this = Self {
            plugins: folder.path().join("bin"),
            folder,
        };
        fs::create_dir(&this.plugins).context("mkdir bin")?;
        fs::write(this.log(), "")?;
        for plugin in PLUGINS {
            let commands = wrapper(&real.join(plugin), &this.log());
            scripted::write(&this.plugins.join(plugin), &commands)?;
        }
        Ok(this)
    }

    /// The folder that the node must have: the plugins and the log are in it.
    pub fn volume(&self) -> &Path {
        self.folder.path()
    }

    /// The folder of plugins.
    pub fn plugins(&self) -> &Path {
        &self.plugins
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// All calls so far, in the order in which they ended.
    pub fn calls(&self) -> anyhow::Result<Vec<Recorded>> {
        let text = fs::read_to_string(self.log()).context("the wrappers' log")?;
        let parse = |line| Recorded::parse(line).with_context(|| format!("a line of it: {line}"));
        text.lines().map(parse).collect()
    }
}

/// The wrapper's commands. Nothing but the shell's own besides the plugin: it
/// is called more than a thousand times. One `printf` is one write.
fn wrapper(real: &Path, log: &Path) -> String {
    format!(
        r#"output=$('{real}')
code=$?
set -f
IFS='
'
set -- $output
IFS=' '
printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$$" "$CNI_COMMAND" "$CNI_CONTAINERID" "$CNI_IFNAME" "${{0##*/}}" "$code" "$*" >>'{log}'
[ -z "$output" ] || printf '%s' "$output"
exit $code"#,
        real = real.display(),
        log = log.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    /// A plugin that answers with what it was told, over several lines.
    fn run(commands: &str) -> (Recorded, String, Option<i32>) {
        let folder = Scratch::create().unwrap();
        let (real, log) = (folder.path().join("real"), folder.path().join("log"));
        scripted::write(&real, commands).unwrap();
        let plugin = folder.path().join("bridge");
        scripted::write(&plugin, &wrapper(&real, &log)).unwrap();
        let mut child = Command::new(&plugin)
            .envs([("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "abc")])
            .env("CNI_IFNAME", "eth0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id();
        let mut stdin = child.stdin.take().unwrap();
        stdin
            .write_all(b"{ \"ips\": [ {\n \"address\": \"198.18.0.7/24\"\n } ] }")
            .unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let text = fs::read_to_string(&log).unwrap();
        let recorded = Recorded::parse(text.trim_end_matches('\n')).unwrap();
        assert_eq!(recorded.pid, pid);
        let stdout = String::from_utf8(output.stdout).unwrap();
        (recorded, stdout, output.status.code())
    }

    #[test]
    fn a_wrapper_passes_config_and_result_on_and_writes_one_line() {
        let (recorded, stdout, code) = run("cat");
        assert_eq!(code, Some(0));
        assert_eq!(
            stdout,
            "{ \"ips\": [ {\n \"address\": \"198.18.0.7/24\"\n } ] }"
        );
        assert_eq!(
            (recorded.exit_code, recorded.plugin.as_str()),
            (0, "bridge")
        );
        assert_eq!(recorded.ips(), ["198.18.0.7".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn a_failure_is_passed_on_and_written_down() {
        let (recorded, stdout, code) = run(r#"echo '{"code": 7, "msg": "no *"}'; exit 3"#);
        assert_eq!(code, Some(3));
        assert_eq!(stdout, r#"{"code": 7, "msg": "no *"}"#);
        assert_eq!(recorded.exit_code, 3);
        assert_eq!(recorded.answer()["msg"], "no *");
    }

    #[test]
    fn a_plugin_that_says_nothing_is_one_line_too() {
        let (recorded, stdout, code) = run("exit 0");
        assert_eq!((stdout.as_str(), code), ("", Some(0)));
        assert_eq!(recorded.answer(), Value::Null);
    }
}
