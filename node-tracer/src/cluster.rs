//! Who in the whole cluster has the addresses that matter: asked of the API server,
//! and rarely. Each address is asked about when it comes to matter, when a ghost
//! with it has come further, and once a minute while that goes on.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::mpsc::{Receiver, TryRecvError},
    time::{Duration, Instant},
};

use engine::detect::ghost_sandbox::PODS_BY_IP;
use event::order::Order as _;
use event::{Event, What, finding::Phase};
use kube::{AT_ONCE, ByAddress, Credentials, find_by_address};

/// Between two questions about an address, and after a refusal.
const PAUSE: Duration = Duration::from_secs(60);
/// Between two requests of a few addresses.
const BETWEEN: Duration = Duration::from_secs(1);
/// How long the server may take.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// Without them nobody is asked.
    credentials: Option<Credentials>,
    /// How far each had come when it was asked about, and when.
    asked: BTreeMap<IpAddr, (Phase, Instant)>,
    running: Option<Receiver<ByAddress>>,
    not_before: Option<Instant>,
    failing: Option<String>,
}

impl Cluster {
    pub(crate) fn new(credentials: Option<Credentials>) -> Self {
        Self {
            credentials,
            ..Self::default()
        }
    }

    /// Whether there is anybody to ask.
    pub(crate) fn can_ask(&self) -> bool {
        self.credentials.is_some()
    }

    /// Takes what was answered, and asks about what is due. Never waits.
    pub(crate) fn step(&mut self, wanted: &BTreeMap<IpAddr, Phase>, out: &mut Vec<Event>) {
        let now = Instant::now();
        if let Some(running) = &self.running {
            match running.try_recv() {
                Ok(answer) => self.take(answer, now, out),
                Err(TryRecvError::Disconnected) => self.running = None,
                Err(TryRecvError::Empty) => {}
            }
        }
        self.asked.retain(|address, _| wanted.contains_key(address));
        let is_early = self.not_before.is_some_and(|time| now < time);
        if self.running.is_some() || is_early {
            return;
        }
        let due = self.due(wanted, now);
        self.ask(due, PATIENCE);
    }

    /// Asks about all of these now, and waits for the answer for so long.
    pub(crate) fn ask_now(
        &mut self,
        wanted: &BTreeMap<IpAddr, Phase>,
        patience: Duration,
        out: &mut Vec<Event>,
    ) {
        let now = Instant::now();
        let due = self.due(wanted, now);
        self.ask(due, patience);
        if let Some(running) = &self.running {
            let late = Duration::from_millis(20);
            match running.recv_timeout(patience + late) {
                Ok(answer) => self.take(answer, now, out),
                Err(_) => {
                    let after = patience.as_millis();
                    let error = format!("no answer from the API server within {after} ms");
                    self.running = None;
                    self.failed(Some(error), out);
                }
            }
        }
    }

    fn due(&self, wanted: &BTreeMap<IpAddr, Phase>, now: Instant) -> Vec<(IpAddr, Phase)> {
        let is_due = |(address, phase): &(&IpAddr, &Phase)| {
            let asked = self.asked.get(*address);
            asked.is_none_or(|(before, at)| before != *phase || now >= *at + PAUSE)
        };
        let due = wanted.iter().filter(is_due);
        let mut due: Vec<_> = due.map(|(address, phase)| (*address, *phase)).collect();
        // Who was never asked about comes first, then whose turn is longest ago.
        due.order_by_key(|(address, _)| self.asked.get(address).map(|(_, at)| *at));
        due.truncate(AT_ONCE);
        due
    }

    fn ask(&mut self, due: Vec<(IpAddr, Phase)>, patience: Duration) {
        let Some(credentials) = self.credentials.as_ref().filter(|_| !due.is_empty()) else {
            return;
        };
        let addresses = due.iter().map(|(address, _)| *address);
        let now = Instant::now();
        match find_by_address(credentials, addresses, patience) {
            Ok(running) => self.running = Some(running),
            Err(error) => tracing::warn!("cannot ask who has an address: {error}"),
        }
        self.not_before = Some(now + BETWEEN);
        for (address, phase) in due {
            self.asked.insert(address, (phase, now));
        }
    }

    fn take(&mut self, answer: ByAddress, now: Instant, out: &mut Vec<Event>) {
        self.running = None;
        let ByAddress { at, found, failure } = answer;
        let found = found.into_iter().map(|(address, pods)| Event {
            time: sys::clock::now(),
            what: What::PodsWithAddress { address, at, pods },
        });
        out.extend(found);
        if failure.is_some() {
            self.not_before = Some(now + PAUSE);
        }
        self.failed(failure, out);
    }

    /// Told once, and again for another reason.
    fn failed(&mut self, failure: Option<String>, out: &mut Vec<Event>) {
        if failure == self.failing {
            return;
        }
        let source = PODS_BY_IP.to_owned();
        let what = match &failure {
            Some(error) => What::SourceFailed {
                source,
                error: error.clone(),
            },
            None => What::SourceRecovered { source },
        };
        let time = sys::clock::now();
        out.push(Event { time, what });
        self.failing = failure;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::testing::ip;

    fn wanted(all: &[(u8, Phase)]) -> BTreeMap<IpAddr, Phase> {
        all.iter()
            .map(|(last, phase)| (ip(*last), *phase))
            .collect()
    }

    #[test]
    fn an_address_is_asked_about_once_a_phase_and_once_a_minute() {
        let mut cluster = Cluster::default();
        let now = Instant::now();
        let suspected = wanted(&[(5, Phase::Suspected)]);
        assert_eq!(cluster.due(&suspected, now).len(), 1);
        cluster.asked.insert(ip(5), (Phase::Suspected, now));
        assert_eq!(cluster.due(&suspected, now + PAUSE / 2), []);
        let armed = wanted(&[(5, Phase::Armed)]);
        assert_eq!(cluster.due(&armed, now + PAUSE / 2).len(), 1);
        assert_eq!(cluster.due(&suspected, now + PAUSE).len(), 1);
    }

    #[test]
    fn of_many_addresses_a_few_are_asked_about_at_once_and_the_new_ones_first() {
        let mut cluster = Cluster::default();
        let now = Instant::now();
        let many: Vec<_> = (1..100).map(|last| (last, Phase::Suspected)).collect();
        for last in 1..50 {
            cluster.asked.insert(ip(last), (Phase::Suspected, now));
        }
        let due = cluster.due(&wanted(&many), now + PAUSE);
        assert_eq!(due.len(), AT_ONCE);
        assert!(due.iter().all(|(address, _)| *address >= ip(50)));
    }

    #[test]
    fn without_credentials_nobody_is_asked_and_nothing_is_told() {
        let mut out = Vec::new();
        Cluster::default().step(&wanted(&[(5, Phase::Armed)]), &mut out);
        assert_eq!(out, []);
    }
}
