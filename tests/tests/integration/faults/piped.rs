//! A tracer whose outputs are read when the test wants to.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use node_tracer_tests::process;
use node_tracer_tests::tracer::{SOON, command};
use node_tracer_tests::wait;

/// The tracer; killed when it is dropped.
pub(crate) struct Piped {
    child: Child,
    stdout: Option<BufReader<File>>,
    /// Its file, if stderr does not go to stdout.
    stderr: Option<std::path::PathBuf>,
}

impl Piped {
    /// `trace -o json ARGS`, stdout in a pipe of which only the first line is
    /// read. Its stderr goes to a file in `folder`, or to the same pipe.
    pub(crate) fn start(args: &[&str], folder: Option<&Path>) -> anyhow::Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        let mut command = command(&["trace", "-o", "json", "--cri", "none", "--pods", "none"])?;
        let stderr = folder.map(|folder| folder.join("stderr"));
        match &stderr {
            Some(path) => command.stderr(File::create(path)?),
            None => command.stderr(writer.try_clone()?),
        };
        let child = command.args(args).stdout(writer).spawn()?;
        // The command holds the writing end.
        drop(command);
        let mut this = Self {
            child,
            stdout: None,
            stderr,
        };
        // No larger than one line, so that nothing is read ahead.
        let mut stdout = BufReader::with_capacity(1, File::from(OwnedFd::from(reader)));
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        ensure!(line.contains("\"coverage\""), "the first line: {line}");
        this.stdout = Some(stdout);
        Ok(this)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: i32) {
        // It fails only if it has ended.
        let _ = process::signal(self.pid(), signal);
    }

    /// Reads all of its output, in a thread.
    pub(crate) fn read(&mut self) -> anyhow::Result<std::thread::JoinHandle<String>> {
        let stdout = self.stdout.take().context("it is read already")?;
        let mut stdout = BufReader::with_capacity(1 << 16, stdout.into_inner());
        Ok(std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stdout.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        }))
    }

    /// Waits for its end; how long that took.
    pub(crate) fn end(&mut self) -> anyhow::Result<(ExitStatus, Duration)> {
        let start = Instant::now();
        let status = wait::until("the tracer to end", SOON, || Ok(self.child.try_wait()?))?;
        Ok((status, start.elapsed()))
    }

    pub(crate) fn stderr(&self) -> anyhow::Result<String> {
        let path = self.stderr.as_ref().context("stderr is in the pipe")?;
        Ok(std::fs::read_to_string(path)?)
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
