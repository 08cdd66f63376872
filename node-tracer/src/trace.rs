//! `node-tracer trace`: attach, take stock, then stream until stopped.

mod effects;
mod lock;
mod pods;
mod runtime;
mod space;

use std::{
    os::fd::{AsRawFd, RawFd},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::{
    io::{Interest, unix::AsyncFd},
    signal::unix::{Signal, SignalKind, signal},
};

use self::{effects::Effects, lock::Lock, pods::PodsSource, runtime::Runtime, space::Space};
use crate::{
    clock::Timestamp,
    config::{Config, Node},
    coverage,
    engine::{Engine, Settings},
    event::{Event, What},
    fault,
    look::Looker,
    notify::Notify,
    output,
    privileges::{self, ATTACH, Starter, WRITE},
    record::{CoverageItem, Record, Summary},
    recording::{self, Note, Recorder, RecordingError},
    reservations::Reservations,
    sink::{
        Shown, Sink, SinkError,
        metrics::{Metrics, server},
    },
    source::{
        ebpf::{self, Attached, symbols::Symbols},
        live::{self, Live},
        procfs::{Bounded, Procfs},
    },
    summary,
};

/// Rules are applied at most this often, and at least once a second.
const TICK: Duration = Duration::from_millis(10);
const SLOW_TICK: Duration = Duration::from_secs(1);
/// How often files are looked at.
const POLL: Duration = Duration::from_millis(250);
/// Batches of records taken before timers get a turn.
const BATCHES: usize = 16;

/// Streams until a signal or the end of `--duration`.
pub(crate) fn run(config: &Config) -> anyhow::Result<()> {
    // Before there are threads: they have what their starter has.
    let look = config.privileges.trace(ebpf::use_takes_capability);
    let starter = Starter::start(ATTACH | look | WRITE)?;
    privileges::keep(look);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")?;
    runtime.block_on(stream(config, starter))
}

async fn stream(config: &Config, starter: Starter) -> anyhow::Result<()> {
    let mut notify = Notify::from_environment();
    let _lock = Lock::take(&config.node)?;
    // Before signals are taken over: a list that is typed in, or comes from a
    // pipe that nobody writes to, can be interrupted.
    let (mut pods, no_server) = PodsSource::find(config)?;
    let listed = pods.first()?;
    let mut stop = Stop::new(config.duration)?;
    let mut out = Out::new(config, &starter)?;
    if let Some(address) = config.metrics {
        let metrics = Metrics::new();
        let at = server::serve(address, metrics.shelf()).await?;
        tracing::info!("metrics are at http://{at}/metrics");
        out.count_in(metrics);
    }

    // Before the kernel's records, which do not wait.
    let looker = Looker::new(config)?;
    let looked = looker.look_back();
    let mut runtime = Runtime::new(config, looker.procfs());
    let mut reservations = Reservations::watch(config);
    let mut effects = Effects::new(looker.procfs(), &config.node.root);
    let mut space = Space::new(&config.node.root);
    let procfs = Procfs::new(&config.node.root, Bounded::default());
    let (attached, symbols) = attach(config, starter)?;
    let live_config = live::Config {
        stall_threshold: config.stall_threshold,
    };
    let (mut live, stock) = Live::start(live_config, procfs, attached, symbols)?;

    let mut items = coverage::of_plan(live.plan());
    items.extend(config.privileges.missing(ATTACH | config.privileges.look()));
    let pods_item = coverage::of_pods(&config.pods, pods.name().as_deref(), no_server.as_deref());
    items.push(pods_item);
    items.extend(reservations.coverage());
    items.extend(looked.items);
    items.push(runtime.coverage());
    items.push(effects.coverage(config.privileges.may_enter()));
    out.coverage(&items);
    let mut events: Vec<Event> = stock.into_iter().chain(listed).collect();
    events.extend(looked.events);
    effects.step(&mut events);
    out.take(events.drain(..));
    out.tick();
    notify.ready(|| out.status());

    let readable = Readable(live.as_raw_fd());
    // SAFETY: the descriptor is the ring buffer's, which `live` keeps open
    // until after `ring` is dropped.
    let ring = unsafe { AsyncFd::register_with_interest(readable, Interest::READABLE) }
        .context("cannot wait for kernel records")?;
    let mut next_poll = Instant::now() + POLL;
    let mut more = false;
    while !out.closed {
        if !more {
            let until_poll = next_poll.saturating_duration_since(Instant::now());
            let pause = live.pause().min(until_poll).min(out.until_tick());
            let pause = pause.min(effects.pause()).min(notify.pause());
            tokio::select! {
                guard = ring.readable() => {
                    guard.context("cannot wait for kernel records")?.clear_ready();
                }
                () = tokio::time::sleep(pause) => {}
                () = stop.wait() => break,
            }
        }
        if more {
            // Signals arrive only while this waits, if only for a moment.
            tokio::task::yield_now().await;
        }
        for _ in 0..BATCHES {
            more = live.drain(&mut events);
            if !more {
                break;
            }
        }
        let watch = out.engine.watched().clone();
        live.run_due(!watch.netns.is_empty(), &mut events);
        if Instant::now() >= next_poll {
            next_poll = Instant::now() + POLL;
            if pods.poll(&mut events) {
                live.want_holders();
            }
            reservations.poll(&watch.addresses, &mut events);
            runtime.poll(&mut events);
        }
        effects.step(&mut events);
        space.step(&mut events);
        out.take(events.drain(..));
        if out.until_tick().is_zero() {
            out.tick();
        }
        notify.step(|| out.status());
        if stop.is_now() {
            break;
        }
    }
    notify.stopping();
    live.finish(&mut events);
    out.take(events.drain(..));
    out.tick();
    out.finish()
}

/// Attaches the programs, and reads the kernel's symbols while that is allowed.
/// What only this takes is given up afterwards.
fn attach(config: &Config, starter: Starter) -> anyhow::Result<(Attached, Option<Symbols>)> {
    let wanted = config.wanted();
    let (attached, symbols) = starter.run(move || {
        let symbols = Symbols::load(Path::new("/proc/kallsyms"));
        let attached = Attached::new(Path::new("/proc"), &wanted);
        (attached, symbols.ok())
    })?;
    let attached = attached?;
    for warning in &attached.warnings {
        tracing::info!("{warning}");
    }
    Ok((attached, symbols))
}

/// The ring buffer's descriptor, for waiting only.
struct Readable(RawFd);

impl AsRawFd for Readable {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

/// What ends the stream.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
    deadline: Option<tokio::time::Instant>,
}

impl Stop {
    fn new(after: Option<Duration>) -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            // A terminal that goes away ends the stream like Ctrl-C, except
            // under nohup.
            hangup: match ignores_hangup() {
                true => None,
                false => Some(listen(SignalKind::hangup())?),
            },
            deadline: after.map(|after| tokio::time::Instant::now() + after),
        })
    }

    async fn wait(&mut self) {
        let deadline = self.deadline;
        let deadline = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            Some(_) = received(&mut self.hangup) => {}
            () = deadline => {}
        }
    }

    /// For a stream so busy that it never waits.
    fn is_now(&mut self) -> bool {
        use std::task::{Context, Poll, Waker};
        let mut context = Context::from_waker(Waker::noop());
        self.deadline
            .is_some_and(|deadline| tokio::time::Instant::now() >= deadline)
            || [
                Some(&mut self.interrupt),
                Some(&mut self.terminate),
                self.hangup.as_mut(),
            ]
            .into_iter()
            .flatten()
            .any(|signal| matches!(signal.poll_recv(&mut context), Poll::Ready(_)))
    }
}

async fn received(signal: &mut Option<Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Whether SIGHUP was ignored when the program was started (`nohup`).
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    ignored.is_some_and(|set| set & 1 << (libc::SIGHUP - 1) != 0)
}

/// Events on their way out: through the engine, into sinks and recording.
struct Out<'a> {
    node: &'a Node,
    engine: Engine,
    sinks: Vec<SinkState>,
    /// Counts what goes to the sinks; it keeps nobody waiting, and nobody
    /// waits for it.
    metrics: Option<Metrics>,
    recorder: Option<Recorder>,
    started: Instant,
    last_tick: Instant,
    dirty: bool,
    /// There is nobody left to write to.
    closed: bool,
    /// To be told with the next tick.
    lost: Vec<(&'static str, u64)>,
}

/// A sink, and whether it failed last time.
struct SinkState {
    sink: Box<dyn Sink>,
    failing: bool,
    /// Its reader has gone.
    closed: bool,
    lost: u64,
}

impl<'a> Out<'a> {
    fn new(config: &'a Config, starter: &Starter) -> anyhow::Result<Self> {
        let sinks = output::sinks(config, true)?;
        let recorder = config.record.clone().map(|path| {
            let (node, threshold) = (config.node.clone(), config.stall_threshold);
            let command = recording::Command::Trace;
            // The folder may be closed to who has given up root's rights.
            starter.run(move || Recorder::create(&path, command, &node, threshold))
        });
        let recorder = recorder.transpose()?;
        Ok(Self {
            node: &config.node,
            engine: Engine::new(Settings {
                boot_id: config.node.boot_id.clone(),
                node: config.node.name.clone(),
                stall_threshold: config.stall_threshold,
            }),
            sinks: sinks
                .into_iter()
                .map(|sink| SinkState {
                    sink,
                    failing: false,
                    closed: false,
                    lost: 0,
                })
                .collect(),
            metrics: None,
            recorder: recorder.transpose()?,
            started: Instant::now(),
            last_tick: Instant::now(),
            dirty: false,
            closed: false,
            lost: Vec::new(),
        })
    }

    /// Counts what is written as well.
    fn count_in(&mut self, metrics: Metrics) {
        self.metrics = Some(metrics);
    }

    fn coverage(&mut self, items: &[CoverageItem]) {
        let signals = items.to_vec();
        self.record(|recorder| recorder.note(&Note::Coverage { signals }));
        let node = self.node.name.clone();
        self.write(&Record::coverage(&node, Timestamp::now(), items));
    }

    fn take(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.dirty = true;
            self.one(&event);
        }
    }

    /// When rules should be applied next.
    fn until_tick(&self) -> Duration {
        let pause = if self.dirty { TICK } else { SLOW_TICK };
        let regular = (self.last_tick + pause).saturating_duration_since(Instant::now());
        let now = Timestamp::now();
        // Never more often than TICK, whatever is pending.
        let soonest = (self.last_tick + TICK).saturating_duration_since(Instant::now());
        let pending = self
            .engine
            .pending()
            .map(|time| time.since(now).max(soonest));
        pending.map_or(regular, |pending| regular.min(pending))
    }

    fn tick(&mut self) {
        self.last_tick = Instant::now();
        self.dirty = false;
        self.tell_lost();
        self.one(&Event {
            time: Timestamp::now(),
            what: What::Tick,
        });
        self.record(Recorder::flush);
    }

    fn one(&mut self, event: &Event) {
        self.record(|recorder| recorder.write(event));
        let node = self.node;
        self.write(&Record::event(&node.name, event));
        for (finding, state) in self.engine.apply(event) {
            self.write(&Record::finding(&node.name, event.time, &finding, state));
        }
    }

    fn write(&mut self, record: &Record<'_>) {
        if let Some(metrics) = &mut self.metrics {
            metrics.count(record);
        }
        for state in self.sinks.iter_mut().filter(|state| !state.closed) {
            match state.sink.write(record) {
                Ok(Shown::Yes) => {
                    if std::mem::take(&mut state.failing) {
                        tracing::warn!("the output works again");
                    }
                }
                Ok(Shown::No) => {}
                Err(SinkError::Closed) => state.closed = true,
                Err(error) => {
                    state.lost += 1;
                    if !std::mem::replace(&mut state.failing, true) {
                        tracing::warn!("{}", fault::chain(&error));
                    }
                }
            }
        }
        self.closed = self.sinks.iter().all(|state| state.closed) && self.recorder.is_none();
    }

    /// Writes to the recording; one that cannot be written is given up, and
    /// that is told.
    fn record(&mut self, write: impl FnOnce(&mut Recorder) -> Result<(), RecordingError>) {
        if let Some(recorder) = &mut self.recorder
            && let Err(error) = write(recorder)
        {
            tracing::warn!("{}; it ends here", fault::chain(&error));
            self.recorder = None;
            self.lost.push(("recording-failed", 1));
        }
    }

    /// Records that a sink did not take, once it takes some again.
    fn tell_lost(&mut self) {
        let working = self.sinks.iter_mut().filter(|state| !state.failing);
        let count: u64 = working.map(|state| std::mem::take(&mut state.lost)).sum();
        self.lost.push(("output-failed", count));
        for (cause, count) in std::mem::take(&mut self.lost) {
            if count > 0 {
                let what = What::EventsLost {
                    cause: cause.to_owned(),
                    count,
                };
                self.one(&Event {
                    time: Timestamp::now(),
                    what,
                });
            }
        }
    }

    /// The run in numbers.
    fn summary(&self) -> Summary {
        let mut summary = summary::of_stream(&self.engine, self.started.elapsed());
        // What no tick has told: a sink that never took anything again.
        let untold: u64 = self.sinks.iter().map(|state| state.lost).sum();
        if untold > 0 {
            let cause = String::from("output-failed");
            *summary.events_lost.entry(cause).or_default() += untold;
        }
        summary
    }

    /// How things stand, in one line.
    fn status(&self) -> String {
        summary::status(&self.engine)
    }

    fn finish(mut self) -> anyhow::Result<()> {
        let summary = self.summary();
        let now = Timestamp::now();
        self.write(&Record::summary(&self.node.name, now, &summary));
        self.record(|recorder| recorder.note(&Note::Ended { time: now }));
        for state in self.sinks.iter_mut().filter(|state| !state.closed) {
            output::quietly(state.sink.flush())?;
        }
        self.record(Recorder::flush);
        Ok(())
    }
}
