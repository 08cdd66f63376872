//! `node-tracer replay FILE…`: recorded runs again, and logs that nobody
//! traced ([`logs`]), through the same engine into the same sinks.
//!
//! A run is told as the command told it that recorded it: of a trace, what it
//! saw, its events, and findings as they came; of a scan, what it saw and what
//! was found at the end. Times are those of the run. The first record is the
//! coverage of that run with the recording itself as one more source, because
//! a verdict is worth what was seen for it. What is missing in a recording is
//! said, and what it costs.

mod gaps;
mod logs;
mod run;

use std::io::{BufRead, BufReader};

use self::run::Run;
use crate::{
    config, output,
    recording::{Line, ReadError, Recording},
    report,
    sink::{Sink, SinkError, escape::Printable},
    source::logs::read::{Input, LogError},
};

/// What is read of a recording at a time.
const BUFFER: usize = 1 << 20;

/// Replays recordings one after the other, each as a run of its own, and all
/// logs as one story. Returns whether anything of severity warning or above
/// was found in any.
pub(crate) fn run(config: &config::Replay) -> anyhow::Result<bool> {
    let mut something = false;
    let mut failed = Failed::default();
    let mut logs = Vec::new();
    for path in &config.files {
        let told = match Input::open(path) {
            Ok(input) if logs::is_recording(input.beginning()) => one(input, config),
            Ok(input) => {
                logs.push(input);
                continue;
            }
            Err(error) => Err(Failure::Log(error)),
        };
        match told {
            Ok(Told::Whole { found }) => something |= found,
            // There is nobody left to tell.
            Ok(Told::Unheard { found }) => return Ok(something | found),
            Err(failure) => failed.note(failure)?,
        }
    }
    if !logs.is_empty() {
        match logs::run(logs, config) {
            Ok(Told::Whole { found } | Told::Unheard { found }) => something |= found,
            Err(failure) => failed.note(failure)?,
        }
    }
    failed.end(config.files.len())?;
    Ok(something)
}

/// What could not be replayed.
#[derive(Default)]
struct Failed {
    all: Vec<anyhow::Error>,
}

impl Failed {
    /// The others can still be replayed, unless nothing can be written.
    fn note(&mut self, failure: Failure) -> anyhow::Result<()> {
        self.all.push(match failure {
            Failure::Read(error) => error.into(),
            Failure::Log(error) => error.into(),
            Failure::NotUnderstood { name } => anyhow::anyhow!(logs::not_understood(&name)),
            Failure::Write(error) => return Err(error.into()),
        });
        Ok(())
    }

    fn end(mut self, of: usize) -> anyhow::Result<()> {
        match self.all.pop() {
            None => Ok(()),
            Some(only) if of == 1 => Err(only),
            Some(last) => {
                for error in self.all.iter().chain([&last]) {
                    tracing::error!("{}", Printable(report::chain(error.as_ref())));
                }
                let failed = self.all.len() + 1;
                Err(anyhow::anyhow!(
                    "{failed} of {of} files could not be replayed"
                ))
            }
        }
    }
}

/// How far a run was told, and whether anything was found by then.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    /// To its end.
    Whole { found: bool },
    /// Until the readers of all outputs had gone.
    Unheard { found: bool },
}

/// Why it was not.
#[derive(Debug)]
enum Failure {
    /// The other files can still be replayed.
    Read(ReadError),
    /// The same of a log.
    Log(LogError),
    /// The same of one that is none.
    NotUnderstood { name: String },
    /// Nothing can be said.
    Write(SinkError),
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<SinkError> for Failure {
    fn from(error: SinkError) -> Self {
        Self::Write(error)
    }
}

fn one(input: Input, config: &config::Replay) -> Result<Told, Failure> {
    let name = input.name().to_owned();
    let recording = Recording::new(name, BufReader::with_capacity(BUFFER, input))?;
    // New ones for each: what one run has printed is not what the next has.
    let sinks = output::sinks_of(&config.outputs, &config.root, true)?;
    tell(recording, sinks)
}

fn tell<R: BufRead>(
    mut recording: Recording<R>,
    sinks: Vec<Box<dyn Sink>>,
) -> Result<Told, Failure> {
    let (header, name) = (recording.header().clone(), recording.name().to_owned());
    let mut run = Run::new(header, &name, sinks);
    loop {
        let line = match recording.next() {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(error) => {
                // What was read by then is told all the same.
                run.breaks_off();
                run.finish()?;
                return Err(error.into());
            }
        };
        match line {
            Line::Event(event) => run.event(&event)?,
            Line::Note(note) => run.note(note)?,
            Line::Unknown(kind) => run.unknown(&kind),
            Line::Damaged { line, why } => run.damaged(line, &why)?,
            Line::Torn => run.torn(),
        }
        if run.is_unheard() {
            let found = run.found();
            return Ok(Told::Unheard { found });
        }
    }
    Ok(Told::Whole {
        found: run.finish()?,
    })
}

/// A recording.
#[cfg(fuzzing)]
pub(crate) fn fuzz(data: &[u8]) {
    let sinks: Vec<Box<dyn Sink>> = vec![Box::new(crate::sink::JsonSink::new(std::io::sink()))];
    if let Ok(recording) = Recording::new(String::from("x"), data) {
        let _ = tell(recording, sinks);
    }
}

#[cfg(test)]
mod tests;
