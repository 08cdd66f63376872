//! A pseudo terminal, for what a program shows to people only.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::wait;

/// Two ends of a terminal.
#[derive(Debug)]
pub struct Terminal {
    screen: File,
    line: OwnedFd,
}

/// What stops a terminal, as Ctrl-S does.
#[derive(Debug)]
pub struct Flow(OwnedFd);

impl Flow {
    /// From now on it takes nothing.
    pub fn stop(&self) -> anyhow::Result<()> {
        // SAFETY: tcflow takes a descriptor, which is open, and a number.
        if unsafe { libc::tcflow(self.0.as_raw_fd(), libc::TCOOFF) } != 0 {
            return Err(io::Error::last_os_error()).context("tcflow");
        }
        Ok(())
    }
}

/// What came of a program on it.
#[derive(Debug)]
pub struct Shown {
    /// All that was written to the terminal, with what acts on it. (A terminal
    /// ends lines with `\r\n`.)
    pub screen: String,
    /// What went into a pipe instead.
    pub piped: String,
    pub status: ExitStatus,
}

/// Where a program's standard output goes; its standard error goes to the
/// terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// To the terminal as well.
    Terminal,
    Pipe,
    /// Nowhere that anybody looks.
    Null,
}

impl Terminal {
    /// One of so many columns.
    pub fn open(columns: u16) -> anyhow::Result<Self> {
        let size = libc::winsize {
            ws_row: 50,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let (mut screen, mut line) = (-1, -1);
        // SAFETY: both descriptors are written by the call, the size is read;
        // there is no name and no other setting.
        let opened = unsafe {
            libc::openpty(
                &raw mut screen,
                &raw mut line,
                std::ptr::null_mut(),
                std::ptr::null(),
                &raw const size,
            )
        };
        if opened != 0 {
            return Err(io::Error::last_os_error()).context("openpty");
        }
        // SAFETY: openpty has made them, and nobody else has them.
        let (screen, line) = unsafe { (File::from_raw_fd(screen), OwnedFd::from_raw_fd(line)) };
        Ok(Self { screen, line })
    }

    /// What stops it. To be dropped before the program ends.
    pub fn flow(&self) -> anyhow::Result<Flow> {
        Ok(Flow(self.line.try_clone()?))
    }

    /// Runs a program on it to its end. `meanwhile` is done once it runs.
    pub fn run(
        self,
        command: &mut Command,
        out: Out,
        limit: Duration,
        meanwhile: impl FnOnce(&mut std::process::Child) -> anyhow::Result<()>,
    ) -> anyhow::Result<Shown> {
        let Self { mut screen, line } = self;
        command.stderr(line.try_clone()?);
        match out {
            Out::Terminal => command.stdout(line.try_clone()?),
            Out::Pipe => command.stdout(Stdio::piped()),
            Out::Null => command.stdout(Stdio::null()),
        };
        // It would be another terminal's size.
        command.env_remove("COLUMNS").env("TERM", "xterm-256color");
        for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
            command.env_remove(name);
        }
        let mut child = command.spawn().context("start on the terminal")?;
        // The screen ends when nobody has the line any more.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        drop(line);
        let reader = std::thread::spawn(move || {
            let mut seen = Vec::new();
            let mut buffer = [0; 4096];
            // EIO: nobody has it open.
            while let Ok(length @ 1..) = screen.read(&mut buffer) {
                seen.extend_from_slice(&buffer[..length]);
            }
            String::from_utf8_lossy(&seen).into_owned()
        });
        let piped = child.stdout.take().map(|mut pipe| {
            std::thread::spawn(move || {
                let mut text = String::new();
                // What is no text is of no use here.
                let _ = pipe.read_to_string(&mut text);
                text
            })
        });
        let done = meanwhile(&mut child);
        drop(child.stdin.take());
        let ended = wait::until("the program on the terminal to end", limit, || {
            child.try_wait().context("wait for it")
        });
        if ended.is_err() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let joined = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
        let shown = Shown {
            screen: joined(reader),
            piped: piped.map(joined).unwrap_or_default(),
            status: ended?,
        };
        done?;
        Ok(shown)
    }
}

impl Shown {
    /// What of the screen's lines is left at the end: a line that is begun anew
    /// is gone.
    pub fn left(&self) -> String {
        let lines = self.screen.split("\r\n");
        let lines = lines.map(|line| line.rsplit("\r\x1b[K").next().unwrap_or(line));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Whether anything was coloured.
    pub fn is_coloured(&self) -> bool {
        self.left().contains("\x1b[")
    }
}

pub fn plain(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain += part.split_once('m').map_or(part, |(_, rest)| rest);
    }
    plain
}
