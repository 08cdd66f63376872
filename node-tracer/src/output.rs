//! From the outputs that were asked for to sinks.

mod stdout;

use std::{
    io::{self, IsTerminal as _},
    path::Path,
};

use self::stdout::Stdout;

use crate::{
    cli::Output,
    config::Config,
    record::Record,
    sink::{JournaldSink, JsonSink, Lines, Outlet, Sink, SinkError, TextSink, journald},
};

/// One sink for each output; a `stream` keeps its preliminaries short.
///
/// # Errors
/// journald was asked for and is not there.
pub(crate) fn sinks(config: &Config, stream: bool) -> Result<Vec<Box<dyn Sink>>, SinkError> {
    sinks_of(&config.outputs, &config.node.root, stream)
}

/// The same for outputs alone; journald's is below the host's root.
///
/// # Errors
/// journald was asked for and is not there.
pub(crate) fn sinks_of(
    outputs: &[Output],
    root: &Path,
    stream: bool,
) -> Result<Vec<Box<dyn Sink>>, SinkError> {
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    for output in outputs {
        sinks.push(match output {
            Output::Text if stream => Box::new(TextSink::new(io::stdout(), coloured()).brief()),
            Output::Text => Box::new(TextSink::new(io::stdout(), coloured())),
            Output::Json => Box::new(JsonSink::new(io::stdout())),
            Output::Journald => Box::new(JournaldSink::connect(&journald::socket(root))?),
        });
    }
    Ok(sinks)
}

/// A sink that keeps nobody waiting, and the queue that it puts into. Text and
/// JSON on standard output have one queue, so that they stay in order.
pub(crate) struct Patient {
    /// The sink.
    pub(crate) sink: Box<dyn Sink>,
    /// Its queue.
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
                    _ => (Box::new(TextSink::new(to, coloured()).brief()), outlet),
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

/// Colours go to terminals only, or where they are forced
/// (`CLICOLOR_FORCE`), and nowhere if they are unwanted (`NO_COLOR`).
fn coloured() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    if set("NO_COLOR") {
        return false;
    }
    set("CLICOLOR_FORCE") || io::stdout().is_terminal()
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
