//! `node-tracer trace`: watch with eBPF until stopped.

mod effects;
mod hooks;
mod lock;
mod memory;
mod out;
mod pods;
mod runtime;
mod seal;
mod space;
mod status;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::{
    effects::Effects, hooks::Hooks, lock::Lock, memory::Memory, out::Out, pods::PodsSource,
    runtime::Runtime, space::Space,
};
use crate::{
    cluster::Cluster, config::Config, coverage, heartbeat::Heartbeat, log, notify::Notify,
    progress, reservations::Reservations, snapshot::NodeReader,
};
use event::Event;
use kernel::{
    ebpf::{self, Attached, symbols::Symbols},
    live::{self, Live},
};
use kube::{Credentials, condition::NodeCondition, events::KubeEvents};
use node::procfs::{Bounded, Procfs};
use sink::metrics::{Metrics, server};
use sys::{
    apart,
    privileges::{self, ATTACH, Starter, WRITE},
};

/// How often files are looked at.
const POLL: Duration = Duration::from_millis(250);
/// So long the first verdict waits for the addresses of namespaces with many.
const FIRST_READING: Duration = Duration::from_secs(1);
/// Batches of records taken before timers get a turn.
const BATCHES: usize = 16;
/// While much happens, records are taken this far apart: to be woken for each
/// costs more than to deal with it, here and where it happens. What comes after
/// a quiet moment is taken at once.
const TOGETHER: Duration = Duration::from_millis(5);

/// Streams until a signal or the end of `--duration`.
pub(crate) fn run(config: &Config) -> anyhow::Result<()> {
    memory::keep_little();
    // Before there are threads: they have what their starter has.
    let look = config.privileges.trace(ebpf::use_takes_capability);
    let starter = Starter::start(ATTACH | look | WRITE)?;
    privileges::keep(look);
    apart::begin();
    log::queue().context("cannot start a thread")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")?;
    runtime.block_on(stream(config, starter))
}

async fn stream(config: &Config, starter: Starter) -> anyhow::Result<()> {
    let mut notify = Notify::from_environment();
    let _lock = Lock::take(&config.node)?;
    if config.seal_root {
        seal::seal(&config.node.root)?;
    }
    // Before signals are taken over: a list that is typed in, or comes from a
    // pipe that nobody writes to, can be interrupted.
    let (mut pods, no_server) = PodsSource::find(config)?;
    let listed = {
        let _shown = progress::waiting("the list of pods");
        pods.first()?
    };
    // So can a kubeconfig that is on a file server that hangs.
    let credentials = kube_credentials(config)?;
    let mut stop = Stop::new(config.duration)?;
    let mut heartbeat = Heartbeat::new(config.heartbeat.as_deref())?;
    let mut out = Out::new(config, &starter)?;
    let kube_events = kube_events(config, credentials.as_ref())?;
    if let Some(address) = config.metrics {
        let mut metrics = Metrics::new();
        if config.metrics_findings {
            metrics.show_findings();
        }
        if let Some(events) = &kube_events {
            metrics.show_kube_events(events.counts().family());
        }
        if pods.credentials().is_some() {
            metrics.show_api(kube::traffic::requests(), kube::traffic::received());
        }
        if let Some(at) = server::serve(address, metrics.shelf())? {
            tracing::info!("metrics are at http://{at}/metrics");
        }
        out.count_in(metrics);
    }
    if let Some(events) = kube_events {
        out.tell_kubernetes(events);
    }
    if config.node_condition
        && let Some(credentials) = credentials
    {
        let condition = NodeCondition::start(credentials, &config.node.name);
        out.keep_condition(condition.context("cannot start a thread")?);
    }

    let shown = progress::doing("attaching probes and reading the node");
    // Before the kernel's records, which do not wait.
    let looker = NodeReader::new(config)?;
    let looked = looker.look_back();
    let mut runtime = Runtime::new(config, looker.procfs());
    let mut reservations = Reservations::watch(config);
    let mut cluster = Cluster::new(pods.credentials().cloned());
    let mut effects = Effects::new(
        looker.procfs(),
        &config.node.root,
        config.privileges.may_enter(),
    );
    let mut space = Space::new(&config.node.root);
    let procfs = Procfs::new(&config.node.root, Bounded::default());
    let (attached, symbols) = attach(config, starter)?;
    let live_config = live::Config {
        stall_threshold: config.stall_threshold,
    };
    let (mut live, stock) = Live::start(live_config, procfs, attached, symbols)?;

    let mut hooks = Hooks::of(live.plan());
    let mut items = coverage::of_plan(live.plan());
    items.extend(config.privileges.missing(ATTACH | config.privileges.look()));
    let source = pods.name();
    let (source, no_server) = (source.as_deref(), no_server.as_deref());
    items.push(coverage::of_pods(
        &config.pods,
        source,
        no_server,
        pods.doubt(),
    ));
    items.extend(reservations.coverage());
    items.extend(looked.items);
    items.push(runtime.coverage());
    items.extend(effects.coverage());
    drop(shown);
    out.coverage(&items);
    let mut events: Vec<Event> = stock.into_iter().chain(listed).collect();
    events.extend(looked.events);
    effects.step(&out.watched().unplaced, &mut events);
    out.take(events.drain(..));
    let started = Instant::now();
    while live.read_on(&mut events) && started.elapsed() < FIRST_READING {
        out.take(events.drain(..));
    }
    out.take(events.drain(..));
    reservations.ask_new(&out.possible_ghosts(), &mut events);
    out.take(events.drain(..));
    out.tick();
    out.show_status();
    let mut memory = Memory::after_start();
    notify.ready(|| out.status());
    heartbeat.step();

    let ring = live.readable().context("cannot wait for kernel records")?;
    let mut next_poll = Instant::now() + POLL;
    let mut more = false;
    let mut taken = Instant::now();
    let mut busy = false;
    while !out.is_closed() {
        if !more {
            let rest = TOGETHER.saturating_sub(taken.elapsed());
            if busy && !rest.is_zero() {
                tokio::select! {
                    () = tokio::time::sleep(rest) => {}
                    () = stop.wait() => break,
                }
            }
            let until_poll = next_poll.saturating_duration_since(Instant::now());
            let pause = live.pause().min(until_poll).min(out.until_tick());
            let pause = pause.min(effects.pause()).min(notify.pause());
            let pause = pause.min(heartbeat.pause());
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
        busy = taken.elapsed() < 2 * TOGETHER;
        taken = Instant::now();
        live.trust(runtime.listener());
        for _ in 0..BATCHES {
            more = live.drain(&mut events);
            if !more {
                break;
            }
        }
        let watch = out.watched().clone();
        live.run_due(!watch.netns.is_empty(), &mut events);
        if Instant::now() >= next_poll {
            next_poll = Instant::now() + POLL;
            if pods.poll(&mut events) {
                live.want_holders();
            }
            reservations.poll(&watch.addresses, &watch.living, &mut events);
            cluster.step(&watch.of_ghosts, &mut events);
            if watch.proof {
                pods.prove();
            }
            runtime.poll(&mut events);
            if let Some(pid) = runtime.listener() {
                effects.listens(pid);
            }
            if let Some(inode) = effects.node() {
                live.node_is(inode, &mut events);
            }
            hooks.poll(&mut events);
        }
        effects.step(&watch.unplaced, &mut events);
        space.step(&mut events);
        memory.count(events.len());
        out.take(events.drain(..));
        memory.step(&mut events);
        if out.begins_anew() {
            pods.tell_again(&mut events);
            effects.tell_again();
            out.take(events.drain(..));
        }
        if out.until_tick().is_zero() {
            reservations.ask_new(&out.possible_ghosts(), &mut events);
            out.take(events.drain(..));
            out.tick();
        }
        notify.step(|| out.status());
        heartbeat.step();
        if stop.is_now() {
            break;
        }
    }
    notify.stopping();
    live.finish(&mut events);
    out.take(events.drain(..));
    out.last_tick();
    out.finish();
    Ok(())
}

/// The credentials to write to Kubernetes with, if that is asked for.
///
/// # Errors
/// There is nothing to ask the API server with, or that cannot be read.
fn kube_credentials(config: &Config) -> anyhow::Result<Option<Credentials>> {
    let option = match (config.kube_events, config.node_condition) {
        (Some(_), _) => "--kube-events",
        (None, true) => "--node-condition",
        (None, false) => return Ok(None),
    };
    let found = pods::find_credentials(config).with_context(|| {
        format!("{option} needs the API server, whose credentials cannot be read")
    })?;
    let found = found.with_context(|| format!("{option} needs the API server"))?;
    Ok(Some(found))
}

/// Who tells Kubernetes of findings, if that is asked for.
///
/// # Errors
/// There can be no thread.
fn kube_events(
    config: &Config,
    credentials: Option<&Credentials>,
) -> anyhow::Result<Option<KubeEvents>> {
    let (Some(floor), Some(credentials)) = (config.kube_events, credentials) else {
        return Ok(None);
    };
    let events = KubeEvents::start(credentials.clone(), &config.node.name, floor);
    Ok(Some(events.context("cannot start a thread")?))
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
