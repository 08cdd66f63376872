//! What collects from nodes: real programs of the system, over loopback.

pub mod journal;
pub mod prometheus;

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::helper::Killed;

/// Time to start, and for what is collected to be there.
const LIMIT: Duration = Duration::from_secs(30);

/// A port of loopback that was free a moment ago.
pub fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A program that runs until this is dropped.
#[derive(Debug)]
struct Service {
    child: Killed,
    log: PathBuf,
}

impl Service {
    fn start(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let output = fs::File::create(log).with_context(|| log.display().to_string())?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Ctrl-C is for us.
            .process_group(0);
        let name = command.get_program().display().to_string();
        let child = command.spawn().with_context(|| format!("start {name}"))?;
        Ok(Self {
            child: Killed(child),
            log: log.to_owned(),
        })
    }

    /// Fails, with what it said, if it has ended.
    fn lives(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.child.0.try_wait()? else {
            return Ok(());
        };
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        anyhow::bail!("{} has ended ({status}): {log}", self.log.display())
    }
}
