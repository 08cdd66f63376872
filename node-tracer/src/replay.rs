//! `node-tracer replay FILE…`: recorded runs again, and logs that nobody
//! traced ([`logs`]), through the same engine into the same sinks; and what the
//! tool has printed ([`printed`]), which is told again.
//!
//! A run is told as the command told it that recorded it: of a trace, what it
//! saw, its events, and findings as they came; of a scan, what it saw and what
//! was found at the end. Times are those of the run. The first record is the
//! coverage of that run with the recording itself as one more source, because
//! a verdict is worth what was seen for it. What is missing in a recording is
//! said, and what it costs.

mod gaps;
#[cfg(feature = "testing")]
mod heard;
mod logs;
mod printed;
mod run;

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
};

use self::run::Run;
use crate::{
    config,
    outcome::Outcome,
    output,
    progress::Tally,
    recording::{Line, ReadError, Recording},
};
use ::logs::read::{Input, LogError, LogOptions};
use event::{Event, What, clock::steady, fault, wording::escape::Printable};
use sink::{Sink, SinkError};

/// What is read of a recording at a time.
const BUFFER: usize = 1 << 20;

/// Replays recordings one after the other, each as a run of its own, and all
/// logs as one story. Returns what was found in any.
pub(crate) fn run(config: &config::Replay) -> anyhow::Result<Outcome> {
    let tally = Tally::default();
    let frame = logs::Frame {
        options: LogOptions {
            year: config.year,
            offset: config.utc_offset,
        },
        node_name: config.node_name.clone(),
    };
    each(&config.files, &frame, &tally, || sinks(config, &tally))
}

/// The same into sinks of somebody else's, one for each run. What cannot be read
/// to its end is told as far as it goes.
pub(crate) fn into_sinks(
    files: &[PathBuf],
    mut sink: impl FnMut() -> Box<dyn Sink>,
) -> anyhow::Result<Outcome> {
    let tally = Tally::default();
    each(files, &logs::Frame::default(), &tally, || {
        Ok(vec![tally.findings(sink())])
    })
}

fn each(
    files: &[PathBuf],
    frame: &logs::Frame,
    tally: &Tally,
    mut sinks: impl FnMut() -> Result<Vec<Box<dyn Sink>>, Failure>,
) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut failed = Failed::default();
    let mut logs = Vec::new();
    // What was told of files that are logs besides.
    let mut sifted = Vec::new();
    let _shown = tally.show(files);
    // One that may go on in the next file.
    let mut begun: Option<Run> = None;
    for path in files {
        let recording = match Input::open(path, &tally.read) {
            Ok(input) if printed::may_be_in(input.beginning()) => {
                let told = match sinks().map(|sinks| printed::sift(input, sinks)) {
                    Ok((printed, Ok(Some(rest)))) => {
                        logs.push(rest);
                        sifted.push(printed);
                        continue;
                    }
                    Ok((printed, Ok(None))) => printed.borrow_mut().finish(),
                    Ok((printed, Err(error))) => {
                        failed.note(Failure::Log(error))?;
                        if !printed.borrow().is_told() {
                            continue;
                        }
                        printed.borrow_mut().finish()
                    }
                    Err(failure) => Err(failure),
                };
                if !failed.is_heard(told, &mut outcome)? {
                    return unheard(outcome);
                }
                continue;
            }
            Ok(input) if logs::is_recording(input.beginning()) => recording(input),
            Ok(input) => {
                logs.push(input);
                continue;
            }
            Err(error) => Err(Failure::Log(error)),
        };
        let mut recording = match recording {
            Ok(recording) => recording,
            Err(failure) => {
                failed.note(failure)?;
                continue;
            }
        };
        let mut run = match begun.take() {
            Some(mut run) if run.goes_on_in(recording.header()) => {
                run.next_part();
                run
            }
            before => {
                if let Some(before) = before {
                    outcome = outcome.max(before.finish()?);
                }
                // New sinks for each: what one run has printed is not what the
                // next has.
                match sinks() {
                    Ok(sinks) => begin(&recording, sinks),
                    Err(failure) => {
                        failed.note(failure)?;
                        continue;
                    }
                }
            }
        };
        match hear(&mut recording, &mut run) {
            Ok(Heard::Whole) => {}
            // There is nobody left to tell.
            Ok(Heard::Part) => return unheard(outcome.max(run.found())),
            Err(Failure::Write(error)) => return Err(error.into()),
            Err(failure) => {
                outcome = outcome.max(run.finish()?);
                failed.note(failure)?;
                continue;
            }
        }
        begun = Some(run);
    }
    if let Some(run) = begun {
        outcome = outcome.max(run.finish()?);
    }
    if !logs.is_empty() {
        let told = sinks().and_then(|sinks| logs::run(logs, &sifted, frame, sinks));
        if !failed.is_heard(told, &mut outcome)? {
            return unheard(outcome);
        }
    }
    for printed in sifted {
        if printed.borrow().has_failed() || printed.borrow().is_told() {
            let told = printed.borrow_mut().finish();
            if !failed.is_heard(told, &mut outcome)? {
                return unheard(outcome);
            }
        }
    }
    failed.end(files.len())?;
    Ok(outcome)
}

/// The end of a run whose readers have gone. Something was found or, as the rest
/// is not read, nobody knows: that is not the same as nothing.
fn unheard(found: Outcome) -> anyhow::Result<Outcome> {
    anyhow::ensure!(
        found == Outcome::Something,
        "the reader of the output has gone before all was read, and nothing was found until then; \
         for the exit code alone: >/dev/null"
    );
    Ok(found)
}

/// What is found is counted on its way to the first of them.
fn sinks(config: &config::Replay, tally: &Tally) -> Result<Vec<Box<dyn Sink>>, Failure> {
    let mut sinks = output::sinks_of(&config.outputs, &config.root, true)?.into_iter();
    let first = sinks.next().map(|sink| tally.findings(sink));
    Ok(first.into_iter().chain(sinks).collect())
}

/// What could not be replayed.
#[derive(Default)]
struct Failed {
    all: Vec<anyhow::Error>,
}

impl Failed {
    /// The others can still be replayed, unless nothing can be written.
    fn note(&mut self, failure: Failure) -> anyhow::Result<()> {
        match failure {
            Failure::Write(error) => return Err(error.into()),
            other => self.all.push(other.into()),
        }
        Ok(())
    }

    /// Takes in how far something was told; `false` if there is nobody left to tell.
    fn is_heard(
        &mut self,
        told: Result<Replayed, Failure>,
        outcome: &mut Outcome,
    ) -> anyhow::Result<bool> {
        let (found, is_heard) = match told {
            Ok(Replayed::Whole { found }) => (found, true),
            Ok(Replayed::Unheard { found }) => (found, false),
            Err(failure) => {
                self.note(failure)?;
                return Ok(true);
            }
        };
        *outcome = (*outcome).max(found);
        Ok(is_heard)
    }

    fn end(mut self, of: usize) -> anyhow::Result<()> {
        match self.all.pop() {
            None => Ok(()),
            Some(only) if of == 1 => Err(only),
            Some(last) => {
                for error in self.all.iter().chain([&last]) {
                    tracing::error!("{}", Printable(fault::chain(error.as_ref())));
                }
                let failed = self.all.len() + 1;
                Err(anyhow::anyhow!(
                    "{failed} of {of} files could not be replayed"
                ))
            }
        }
    }
}

/// How far a run was told, and what was found by then.
#[derive(Debug, PartialEq, Eq)]
enum Replayed {
    Whole {
        found: Outcome,
    },
    /// Until the readers of all outputs had gone.
    Unheard {
        found: Outcome,
    },
}

#[derive(Debug)]
enum Failure {
    /// The other files can still be replayed.
    Read(ReadError),
    Log(LogError),
    /// The same of one that is none.
    NotUnderstood {
        name: String,
    },
    /// Nothing can be said.
    Write(SinkError),
}

impl From<Failure> for anyhow::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Read(error) => error.into(),
            Failure::Log(error) => error.into(),
            Failure::NotUnderstood { name } => Self::msg(logs::not_understood(&name)),
            Failure::Write(error) => error.into(),
        }
    }
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

type File = Recording<BufReader<Input>>;

fn recording(input: Input) -> Result<File, Failure> {
    let name = input.name().to_owned();
    let input = BufReader::with_capacity(BUFFER, input);
    Ok(Recording::new(name, input)?)
}

fn begin<R: BufRead>(recording: &Recording<R>, sinks: Vec<Box<dyn Sink>>) -> Run {
    steady::forget_steps();
    Run::new(recording.header().clone(), recording.name(), sinks)
}

#[cfg(any(test, feature = "testing"))]
fn tell<R: BufRead>(
    mut recording: Recording<R>,
    sinks: Vec<Box<dyn Sink>>,
) -> Result<Replayed, Failure> {
    let mut run = begin(&recording, sinks);
    match hear(&mut recording, &mut run) {
        Ok(Heard::Part) => Ok(Replayed::Unheard { found: run.found() }),
        Ok(Heard::Whole) => Ok(Replayed::Whole {
            found: run.finish()?,
        }),
        Err(failure @ Failure::Write(_)) => Err(failure),
        Err(failure) => {
            run.finish()?;
            Err(failure)
        }
    }
}

/// How much of a file was taken in.
enum Heard {
    Whole,
    Part,
}

/// Takes a file in, to its end or until nobody listens. What was read before an
/// error is to be told all the same.
fn hear<R: BufRead>(recording: &mut Recording<R>, run: &mut Run) -> Result<Heard, Failure> {
    loop {
        let line = match recording.next() {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(Heard::Whole),
            Err(error) => {
                run.breaks_off();
                return Err(error.into());
            }
        };
        run.texts_cut(recording.take_cut());
        match line {
            Line::Event(event) => run.event(&after_step(event))?,
            Line::Marker(note) => run.note(note)?,
            Line::Unknown(kind) => run.unknown(&kind),
            Line::Damaged { line, why } => run.damaged(line, &why)?,
            Line::Torn => run.torn(),
        }
        if run.is_unheard() {
            return Ok(Heard::Part);
        }
    }
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

/// A recording, told to the end.
#[cfg(feature = "testing")]
pub fn fuzz(data: &[u8]) {
    use heard::{Heard, Of};

    let (heard, _) = Heard::new(Of::Recording);
    let _ = fuzz_into(data, Box::new(heard));
}

/// The same, told to somebody else.
#[cfg(feature = "testing")]
pub(crate) fn fuzz_into(data: &[u8], sink: Box<dyn Sink>) -> Option<()> {
    steady::forget_steps();
    let recording = Recording::new(String::from("x"), data).ok()?;
    tell(recording, vec![sink]).ok().map(|_| ())
}

#[cfg(feature = "testing")]
pub fn fuzz_logs(data: &[u8]) {
    steady::forget_steps();
    logs::fuzz(data);
}

#[cfg(test)]
mod tests;
