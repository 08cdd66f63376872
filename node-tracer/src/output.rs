//! From the outputs that were asked for to sinks.

mod stdout;

use std::{io, path::Path};

use self::stdout::Stdout;

use crate::{config::Config, progress, terminal};
use cli::Output;
use event::record::Record;
use sink::{JournaldSink, JsonSink, Lines, Outlet, Sink, SinkError, TextSink, journald};

/// One sink for each output; a `stream` keeps its preliminaries short.
///
/// # Errors
/// journald was asked for and is not there, or standard output and is closed.
pub(crate) fn sinks(config: &Config, stream: bool) -> Result<Vec<Box<dyn Sink>>, SinkError> {
    sinks_of(&config.outputs, &config.node.root, stream)
}

/// The same for outputs alone; journald's is below the host's root.
///
/// # Errors
/// As there.
pub(crate) fn sinks_of(
    outputs: &[Output],
    root: &Path,
    stream: bool,
) -> Result<Vec<Box<dyn Sink>>, SinkError> {
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    for output in outputs {
        if matches!(output, Output::Text | Output::Json) {
            has_stdout()?;
        }
        sinks.push(match output {
            Output::Text if stream => {
                let quiet = terminal::is_quiet();
                Box::new(text(progress::Stdout).brief().quiet(quiet))
            }
            Output::Text => Box::new(text(progress::Stdout)),
            Output::Json => Box::new(JsonSink::new(progress::Stdout)),
            Output::Journald => Box::new(JournaldSink::connect(&journald::socket(root))?),
        });
    }
    Ok(sinks)
}

/// Whether there is a standard output: what writes there once and ends would
/// otherwise end as if somebody had read it.
///
/// # Errors
/// The process was started without one.
pub(crate) fn has_stdout() -> Result<(), SinkError> {
    match sys::syscall::stdout_was_missing() {
        true => Err(SinkError::Missing),
        false => Ok(()),
    }
}

/// A sink that keeps nobody waiting, and the queue that it puts into. Text and
/// JSON on standard output have one queue, so that they stay in order.
pub(crate) struct Patient {
    pub(crate) sink: Box<dyn Sink>,
    pub(crate) outlet: Outlet,
}

/// As [`sinks`], for a stream that must go on whatever its readers do.
///
/// # Errors
/// journald was asked for and is not there; there can be no thread.
pub(crate) fn patient_sinks(config: &Config) -> anyhow::Result<Vec<Patient>> {
    let mut stdout: Option<Outlet> = None;
    let mut sinks = Vec::new();
    for output in &config.outputs {
        let (sink, outlet): (Box<dyn Sink>, _) = match output {
            Output::Text | Output::Json => {
                let outlet = match &stdout {
                    Some(outlet) => outlet.clone(),
                    None => stdout.insert(to_stdout()?).clone(),
                };
                let to = outlet.clone();
                match output {
                    Output::Json => (Box::new(JsonSink::new(to)), outlet),
                    _ => {
                        let quiet = terminal::is_quiet();
                        (Box::new(text(to).brief().quiet(quiet)), outlet)
                    }
                }
            }
            Output::Journald => {
                let path = journald::socket(&config.node.root);
                let (sink, outlet) = JournaldSink::connect(&path)?.patient()?;
                (Box::new(sink), outlet)
            }
        };
        sinks.push(Patient { sink, outlet });
    }
    Ok(sinks)
}

fn to_stdout() -> io::Result<Outlet> {
    let mut lines = Lines::new(Stdout::new()?);
    Outlet::start("standard output", move |record| lines.put(record))
}

/// Text as standard output shows it.
fn text<W: io::Write>(out: W) -> TextSink<W> {
    TextSink::new(out, terminal::colours())
        .wide(terminal::text_columns)
        .cut_at(terminal::edge)
        .verbose(terminal::verbosity())
}

/// Prints an answer that is no record.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print(text: &str) -> Result<(), SinkError> {
    has_stdout()?;
    let mut out = io::stdout().lock();
    let written = io::Write::write_all(&mut out, text.as_bytes());
    let written = written.and_then(|()| io::Write::flush(&mut out));
    quietly(written.map_err(SinkError::from))
}

/// Writes to those who still listen; the others are let go.
///
/// # Errors
/// A sink could not take it; the rest have it all the same.
pub(crate) fn to_listeners(
    sinks: &mut Vec<Box<dyn Sink>>,
    record: &Record<'_>,
) -> Result<(), SinkError> {
    let mut failed = None;
    sinks.retain_mut(|sink| match sink.write(record) {
        Ok(_) => true,
        Err(SinkError::Closed) => false,
        Err(error) => {
            failed.get_or_insert(error);
            true
        }
    });
    failed.map_or(Ok(()), Err)
}

/// A reader that has gone away is no error.
pub(crate) fn quietly(result: Result<(), SinkError>) -> Result<(), SinkError> {
    match result {
        Err(SinkError::Closed) => Ok(()),
        other => other,
    }
}
