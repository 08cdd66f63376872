//! `node-tracer replay FILE…`: recorded runs again, through the same engine
//! into the same sinks.
//!
//! A run is told as the command told it that recorded it: of a trace, what it
//! saw, its events, and findings as they came; of a scan, what it saw and what
//! was found at the end. Times are those of the run. The first record is the
//! coverage of that run with the recording itself as one more source, because
//! a verdict is worth what was seen for it. What is missing in a recording is
//! said, and what it costs.

mod gaps;
mod run;

use std::{io::BufRead, path::Path};

use self::run::Run;
use crate::{
    clock::steady,
    config,
    event::{Event, What},
    output,
    recording::{Line, ReadError, Recording},
    report,
    sink::{Sink, SinkError, escape::Printable},
};

/// Replays one file after the other, each as a run of its own. Returns whether
/// anything of severity warning or above was found in any.
pub(crate) fn run(config: &config::Replay) -> anyhow::Result<bool> {
    let mut something = false;
    let mut failed = 0;
    for path in &config.files {
        match one(path, config) {
            Ok(Told::Whole { found }) => something |= found,
            // There is nobody left to tell.
            Ok(Told::Unheard { found }) => return Ok(something | found),
            Err(Failure::Read(error)) if config.files.len() > 1 => {
                tracing::error!("{}", Printable(report::chain(&error)));
                failed += 1;
            }
            Err(Failure::Read(error)) => return Err(error.into()),
            Err(Failure::Write(error)) => return Err(error.into()),
        }
    }
    let of = config.files.len();
    anyhow::ensure!(failed == 0, "{failed} of {of} files could not be replayed");
    Ok(something)
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

fn one(path: &Path, config: &config::Replay) -> Result<Told, Failure> {
    steady::forget_steps();
    let recording = Recording::open(path)?;
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
            Line::Event(event) => run.event(&after_step(event))?,
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

/// Where the recorded node's clock was set, so is the one that times are read
/// and written by; the event itself was written by the new one.
fn after_step(mut event: Event) -> Event {
    if let What::ClockStepped { by_ms, .. } = event.what {
        event.time = event.time.minus_ms(by_ms);
        steady::shift_by(by_ms);
    }
    event
}

#[cfg(test)]
mod tests;
