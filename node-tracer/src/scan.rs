//! `node-tracer scan`: one look at the node, and everything that is wrong in
//! it, worst first.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    path::Path,
    task::Poll,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    cluster::Cluster,
    config::Config,
    outcome::{self, Outcome},
    output,
    recording::{self, Marker, Recorder},
    reservations::Reservations,
    snapshot::{API_PATIENCE, Differences, NodeReader, Snapshot},
};
use engine::{Settings, confirm::Confirmation, summary};
use event::{
    Event, What,
    clock::Timestamp,
    fault,
    finding::{Phase, State},
    record::{CoverageItem, Record},
};
use sink::Sink;

/// Pause between looks of a scan that goes on.
const PAUSE: Duration = Duration::from_secs(1);

/// How long the end waits for the recording's disk.
const DISK: Duration = Duration::from_secs(2);

/// Pause before a second look.
const SECOND_LOOK: Duration = Duration::from_millis(50);

/// Looks, and tells.
pub(crate) fn run(config: &Config) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let mut sinks = output::sinks(config, true)?;
    let recorder = config.record.as_deref().map(|path| {
        let (limit, threshold) = (config.record_limit, config.stall_threshold);
        let opened = Recorder::open(path)?;
        Recorder::start(
            opened,
            limit,
            recording::Command::Scan,
            &config.node,
            threshold,
        )
    });
    let mut looker = NodeReader::new(config)?;
    looker.read_kernels_list();
    let mut scan = Scan::new(config, &looker, recorder.transpose()?)?;
    let mut items = scan.look(&mut looker)?;
    if let Some(duration) = config.duration {
        let mut stop = Stop::new()?;
        while started.elapsed() + PAUSE < duration && !stop.within(PAUSE) {
            match scan.look(&mut looker) {
                Ok(more) => merge(&mut items, more),
                Err(error) => merge(&mut items, vec![failed(&error)]),
            }
        }
    }
    items.extend(config.privileges.missing(config.privileges.look()));
    let node = &config.node.name;
    let now = sys::clock::now();
    items.extend(scan.ended(&items, now)?);
    let mut tell = |record: Record<'_>| -> anyhow::Result<()> {
        for sink in &mut sinks {
            output::quietly(Sink::write(sink.as_mut(), &record).map(drop))?;
        }
        Ok(())
    };
    tell(Record::coverage(node, now, &items))?;
    for finding in scan.looks.engine().open() {
        tell(Record::finding(node, now, finding, State::Open))?;
    }
    let summary = summary::of_looks(scan.looks.engine(), &items, started.elapsed());
    tell(Record::summary(node, now, &summary))?;
    for sink in &mut sinks {
        output::quietly(sink.flush())?;
    }
    outcome::say_not_checked(&config.outputs, &summary.not_checked);
    if let Some(recorder) = &mut scan.recorder {
        recorder.hand_on()?;
    }
    Ok(Outcome::of(summary.worst_open, &summary.not_checked))
}

/// Signals that end a scan that goes on: what was found by then is told.
struct Stop {
    runtime: tokio::runtime::Runtime,
    signals: Vec<Signal>,
}

impl Stop {
    fn new() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot wait for signals")?;
        let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
        let signals = runtime.block_on(async { kinds.into_iter().map(signal).collect() });
        let signals: Result<_, std::io::Error> = signals;
        Ok(Self {
            signals: signals.context("cannot listen for signals")?,
            runtime,
        })
    }

    /// Waits, or until one comes. Returns whether one did.
    fn within(&mut self, pause: Duration) -> bool {
        let Self { runtime, signals } = self;
        runtime.block_on(async {
            let mut all: Vec<_> = signals
                .iter_mut()
                .map(|each| Box::pin(each.recv()))
                .collect();
            let any = std::future::poll_fn(|context| {
                let ready = all
                    .iter_mut()
                    .any(|each| each.as_mut().poll(context).is_ready());
                if ready {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            });
            tokio::time::timeout(pause, any).await.is_ok()
        })
    }
}

/// Looks, and the sources that they ask.
pub(crate) struct Scan {
    pub(crate) looks: Confirmation,
    reservations: Reservations,
    cluster: Cluster,
    /// An address that is asked about.
    about: Option<IpAddr>,
    recorder: Option<Recorder>,
    before: Differences,
    /// Every look has gone through all that can lead to a namespace.
    pub(crate) nets_whole: bool,
    /// Network namespaces of which the last look has told all addresses.
    pub(crate) read: BTreeSet<u32>,
}

/// Adds what another look has to say of what is unknown.
fn merge(items: &mut Vec<CoverageItem>, more: Vec<CoverageItem>) {
    for item in more {
        match items.iter_mut().find(|known| known.signal == item.signal) {
            Some(known) => {
                let new = item.unknown.into_iter();
                let new: Vec<String> = new.filter(|text| !known.unknown.contains(text)).collect();
                known.unknown.extend(new);
            }
            None => items.push(item),
        }
    }
}

/// The second look has failed.
fn failed(error: &anyhow::Error) -> CoverageItem {
    CoverageItem {
        signal: String::from("second look"),
        mechanism: None,
        reason: Some(fault::chain(error.as_ref())),
        unknown: vec![String::from(
            "whether anything is so that does not show in one look alone",
        )],
    }
}

impl Scan {
    /// One that knows nothing yet.
    ///
    /// # Errors
    /// The host's root cannot be opened.
    pub(crate) fn new(
        config: &Config,
        looker: &NodeReader<'_>,
        recorder: Option<Recorder>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            looks: Confirmation::new(Settings {
                boot_id: config.node.boot_id.clone(),
                node: config.node.name.clone(),
                node_is_named: config.node.is_named,
                stall_threshold: config.stall_threshold,
                surveyed: true,
            }),
            reservations: Reservations::of(looker.stores()?),
            cluster: Cluster::default(),
            about: None,
            recorder,
            before: Differences::default(),
            nets_whole: true,
            read: BTreeSet::new(),
        })
    }

    /// The same, to ask the cluster about an address in any case.
    pub(crate) fn about(self, about: Option<IpAddr>) -> Self {
        Self { about, ..self }
    }

    /// Takes one look in. Findings that compare what was not read at one moment
    /// count only if a second look shows them, too: namespaces are read one
    /// after the other, and files and runtimes after them.
    ///
    /// # Errors
    /// See [`NodeReader::look`]; or the recording cannot be written. A second look
    /// that fails costs what it would have confirmed, and is told.
    pub(crate) fn look(
        &mut self,
        looker: &mut NodeReader<'_>,
    ) -> anyhow::Result<Vec<CoverageItem>> {
        let looked = looker.look()?;
        let mut items = self.take(looked)?;
        self.ask_cluster(looker)?;
        if self.looks.is_doubtful() {
            std::thread::sleep(SECOND_LOOK);
            match looker.look_again() {
                Ok(looked) => merge(&mut items, self.take(looked)?),
                Err(error) => merge(&mut items, vec![failed(&error)]),
            }
        }
        self.looks.judged();
        self.note(&Marker::Judged)?;
        if let Some(recorder) = &mut self.recorder {
            recorder.flush()?;
        }
        Ok(items)
    }

    /// Takes one look in, and no second one: nothing that is found is confirmed.
    ///
    /// # Errors
    /// See [`snapshot`](Self::look).
    pub(crate) fn look_once(
        &mut self,
        looker: &mut NodeReader<'_>,
    ) -> anyhow::Result<Vec<CoverageItem>> {
        let looked = looker.look()?;
        self.take(looked)
    }

    /// Ends the recording; what it lacks is an item of its own.
    fn ended(
        &mut self,
        items: &[CoverageItem],
        time: Timestamp,
    ) -> anyhow::Result<Option<CoverageItem>> {
        let signals = items.to_vec();
        self.note(&Marker::Coverage { signals })?;
        self.note(&Marker::Ended { time })?;
        let Some(recorder) = &mut self.recorder else {
            return Ok(None);
        };
        let left = recorder.end(DISK);
        let path = recorder.path();
        if path == Path::new(recording::STDOUT) {
            let left = left?;
            anyhow::ensure!(
                left == 0,
                "the recording is not whole: {left} lines could not be kept"
            );
            return Ok(None);
        }
        let (reason, unknown) = match left {
            Ok(0) => return Ok(None),
            Ok(left) => (
                format!("the disk of {} does not answer", path.display()),
                format!("{left} lines are not in the recording"),
            ),
            Err(error) => (
                fault::chain(&error),
                String::from("what the recording lacks"),
            ),
        };
        Ok(Some(CoverageItem {
            signal: String::from("recording"),
            mechanism: None,
            reason: Some(reason),
            unknown: vec![unknown],
        }))
    }

    fn note(&mut self, note: &Marker) -> anyhow::Result<()> {
        if let Some(recorder) = &mut self.recorder {
            recorder.note(note)?;
        }
        Ok(())
    }

    /// Takes in what a look has found, and asks for the reservations of the
    /// addresses that matter by it.
    fn take(&mut self, looked: Snapshot) -> anyhow::Result<Vec<CoverageItem>> {
        let gone = self.before.next(&looked);
        self.nets_whole &= looked.nets_whole;
        self.read.clone_from(&looked.read);
        for event in gone.iter().chain(&looked.events) {
            self.reservations.learn(event);
            self.apply(event)?;
        }
        self.tick()?;
        let mut answers = Vec::new();
        let watched = self.looks.engine().watched();
        let watched = &watched.addresses | &watched.living;
        self.reservations
            .poll(&watched, &BTreeSet::new(), &mut answers);
        for event in &answers {
            self.apply(event)?;
        }
        if !answers.is_empty() {
            self.tick()?;
        }
        self.looks.looked();
        self.note(&Marker::Looked)?;
        for finding in self.looks.engine().open() {
            tracing::debug!(
                "{} {}: {}",
                finding.id,
                finding.rule.as_str(),
                finding.title
            );
        }
        Ok(looked.items)
    }

    /// Asks who has the addresses that matter in the whole cluster, if the server
    /// answers: it is not waited for twice.
    fn ask_cluster(&mut self, looker: &NodeReader<'_>) -> anyhow::Result<()> {
        let engine = self.looks.engine();
        let mut wanted = engine.watched().of_ghosts.clone();
        if let Some(address) = self.about {
            wanted.entry(address).or_insert(Phase::Suspected);
        }
        if wanted.is_empty() || engine.model().pods_failure().is_some() {
            return Ok(());
        }
        if !self.cluster.can_ask() {
            self.cluster = Cluster::new(looker.credentials());
        }
        let mut answers = Vec::new();
        self.cluster.ask_now(&wanted, API_PATIENCE, &mut answers);
        for event in &answers {
            self.apply(event)?;
        }
        if !answers.is_empty() {
            self.tick()?;
        }
        Ok(())
    }

    fn tick(&mut self) -> anyhow::Result<()> {
        // The engine pauses between evaluations; a look does not.
        let now = sys::clock::now();
        let not_before = self.looks.engine().not_before();
        let time = not_before.map_or(now, |pause| pause.max(now));
        self.apply(&Event {
            time,
            what: What::Tick,
        })
    }

    fn apply(&mut self, event: &Event) -> anyhow::Result<()> {
        if let Some(recorder) = &mut self.recorder {
            recorder.write(event)?;
        }
        self.looks.apply(event);
        Ok(())
    }
}
