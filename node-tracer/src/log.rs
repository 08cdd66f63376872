//! What the tool says about itself, on stderr.
//!
//! A stream must not wait for who reads stderr, no more than for who reads its
//! output, least of all when it says that nobody does (`2>&1 | less`): it has
//! [`queue`]d lines. All other commands write at once.

use std::{
    io::{self, Write},
    sync::OnceLock,
    time::Duration,
};

use tracing_subscriber::{filter::Targets, prelude::*};

use crate::{progress, terminal};
use sink::Outlet;

/// How long the end waits for a reader of stderr.
const PATIENCE: Duration = Duration::from_millis(500);

static QUEUE: OnceLock<Outlet> = OnceLock::new();

/// Warnings of the tool about itself, with --quiet only errors.
/// `NODE_TRACER_LOG=debug` says more; what
/// its libraries say stays unsaid, as it can hold what is nobody's business.
pub(crate) fn to_stderr() {
    let level = std::env::var("NODE_TRACER_LOG").ok();
    let usual = match terminal::is_quiet() {
        true => tracing::Level::ERROR,
        false => tracing::Level::WARN,
    };
    let level = level.and_then(|level| level.parse().ok()).unwrap_or(usual);
    let own = Targets::new()
        .with_default(usual)
        .with_target(env!("CARGO_CRATE_NAME"), level);
    let to_stderr = tracing_subscriber::fmt::layer()
        .with_writer(|| Stderr)
        .with_target(false);
    tracing_subscriber::registry()
        .with(to_stderr.with_filter(own))
        .init();
}

/// From now on lines are queued, and [`flush`] has to be called at the end.
///
/// # Errors
/// There can be no thread.
pub(crate) fn queue() -> io::Result<()> {
    let outlet = Outlet::start("stderr", |line| {
        // Nothing is left to do if even this cannot be written.
        let _ = progress::aside(|| io::stderr().write_all(line));
        Ok(())
    })?;
    // A second one would only be another thread.
    let _ = QUEUE.set(outlet);
    Ok(())
}

/// Waits a moment until all is written.
pub(crate) fn flush() {
    if let Some(outlet) = QUEUE.get() {
        outlet.drain(PATIENCE, PATIENCE);
    }
}

/// Each write is a line, or several whole ones.
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match QUEUE.get() {
            Some(outlet) => {
                // What there is no room for is said to nobody.
                let _ = outlet.put(lines);
            }
            None => progress::aside(|| io::stderr().write_all(lines))?,
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
