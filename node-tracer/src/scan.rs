//! `node-tracer scan`: one look at the node, and everything that is wrong in
//! it, worst first.

use std::time::{Duration, Instant};

use crate::{
    clock::Timestamp,
    config::Config,
    engine::{Engine, Settings},
    event::{Event, What},
    finding::{Rule, Severity, State},
    look::{Differences, Looked, Looker},
    output,
    record::{Count, CoverageItem, Record, Summary},
    recording::Recorder,
    reservations::Reservations,
    sink::Sink,
};

/// Pause between looks of a scan that goes on.
const PAUSE: Duration = Duration::from_secs(1);

/// Pause before a second look.
const SECOND_LOOK: Duration = Duration::from_millis(50);

/// Looks, and tells. Returns whether there is anything of severity warning or
/// above.
pub(crate) fn run(config: &Config) -> anyhow::Result<bool> {
    let started = Instant::now();
    let mut sinks = output::sinks(config, true)?;
    let recorder = config.record.as_deref().map(|path| {
        let node = &config.node;
        Recorder::create(path, &node.name, &node.boot_id, config.stall_threshold)
    });
    let mut looker = Looker::new(config)?;
    let mut scan = Scan::new(config, &looker, recorder.transpose()?)?;
    let items = scan.look(&mut looker)?;
    if let Some(duration) = config.duration {
        while started.elapsed() + PAUSE < duration {
            std::thread::sleep(PAUSE);
            scan.look(&mut looker)?;
        }
    }
    let node = &config.node.name;
    let now = Timestamp::now();
    let mut tell = |record: Record<'_>| -> anyhow::Result<()> {
        for sink in &mut sinks {
            output::quietly(Sink::write(sink.as_mut(), &record).map(drop))?;
        }
        Ok(())
    };
    tell(Record::coverage(node, now, &items))?;
    for finding in scan.engine.open() {
        tell(Record::finding(node, now, finding, State::Open))?;
    }
    let summary = scan.summary(started.elapsed());
    tell(Record::summary(node, now, &summary))?;
    for sink in &mut sinks {
        output::quietly(sink.flush())?;
    }
    Ok(summary.worst_open >= Some(Severity::Warning))
}

/// Whether a rule compares things that were not read at the same moment.
fn needs_confirmation(rule: Rule) -> bool {
    match rule {
        Rule::OrphanVeth
        | Rule::PinnedNetns
        | Rule::TrappedDevice
        | Rule::MissingGatewayNeighbour
        | Rule::LeakedReservation
        | Rule::DuplicateAddress => true,
        Rule::GhostSandbox
        | Rule::RangeExhausted
        | Rule::NetnsTeardownStall
        | Rule::BlockedTask
        | Rule::EventsLost => false,
    }
}

/// An engine that is given looks.
pub(crate) struct Scan {
    pub(crate) engine: Engine,
    reservations: Reservations,
    recorder: Option<Recorder>,
    before: Differences,
}

impl Scan {
    /// One that knows nothing yet.
    ///
    /// # Errors
    /// The host's root cannot be opened.
    pub(crate) fn new(
        config: &Config,
        looker: &Looker<'_>,
        recorder: Option<Recorder>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            engine: Engine::new(Settings {
                boot_id: config.node.boot_id.clone(),
                node: config.node.name.clone(),
                stall_threshold: config.stall_threshold,
            }),
            reservations: Reservations::of(looker.stores()?),
            recorder,
            before: Differences::default(),
        })
    }

    /// Takes one look in.
    ///
    /// # Errors
    /// See [`Looker::look`]; or the recording cannot be written.
    pub(crate) fn look(&mut self, looker: &mut Looker<'_>) -> anyhow::Result<Vec<CoverageItem>> {
        let Looked { events, items } = looker.look()?;
        self.take(&events)?;
        // Namespaces are read one after the other, and files after them: what
        // was moving meanwhile is told from what stays by a second look.
        let open = self.engine.open();
        let uncertain = open.iter().any(|finding| needs_confirmation(finding.rule));
        if uncertain {
            std::thread::sleep(SECOND_LOOK);
            self.take(&looker.look_again()?.events)?;
        }
        // Only now it is known which addresses matter.
        let mut answers = Vec::new();
        let watched = self.engine.watched().addresses.clone();
        self.reservations.poll(&watched, &mut answers);
        for event in &answers {
            self.apply(event)?;
        }
        if !answers.is_empty() {
            self.tick()?;
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.flush()?;
        }
        Ok(items)
    }

    fn take(&mut self, events: &[Event]) -> anyhow::Result<()> {
        let gone = self.before.next(events);
        for event in gone.iter().chain(events) {
            self.apply(event)?;
        }
        self.tick()
    }

    fn tick(&mut self) -> anyhow::Result<()> {
        // The engine pauses between evaluations; a look does not.
        let now = Timestamp::now();
        let time = self.engine.not_before().map_or(now, |pause| pause.max(now));
        self.apply(&Event {
            time,
            what: What::Tick,
        })
    }

    fn apply(&mut self, event: &Event) -> anyhow::Result<()> {
        if let Some(recorder) = &mut self.recorder {
            recorder.write(event)?;
        }
        self.engine.apply(event);
        Ok(())
    }

    fn summary(&self, took: Duration) -> Summary {
        let engine = self.engine.summary();
        let mut summary = Summary {
            events_seen: engine.events,
            events_lost: engine.lost,
            unknown: self.engine.gaps().to_vec(),
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            ..Summary::default()
        };
        let one = |count: &mut Count| count.open += 1;
        for finding in self.engine.open() {
            one(summary.rules.entry(finding.rule).or_default());
            one(summary.severities.entry(finding.severity).or_default());
            summary.worst_open = summary.worst_open.max(Some(finding.severity));
        }
        summary.worst_seen = summary.worst_open;
        summary
    }
}
