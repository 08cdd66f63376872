//! The same node as a tracer sees it that was started before the end: first
//! what is there, then what happens, in the order of time.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    sources::{Absence, Source, SourceView, inner, mount, pod_ref},
    truth::{Attached, Held, LOOK, Life, TruePod, TrueSandbox, Truth},
};
use event::{CniCall, Event, Netns, What, testing as story, testing::at};

/// When the tracer is started.
pub(super) const START: i64 = LOOK - 7_000;

/// When a pod that is to go is told to.
const TOLD_TO_GO: i64 = LOOK - 330;
/// When what is stuck in a living pod gets stuck.
const STUCK: i64 = LOOK - 100;

impl Truth {
    pub(super) fn then(&self, time: i64) -> Self {
        let mut truth = self.clone();
        truth.pods.retain(|pod| pod.made() <= time);
        for pod in &mut truth.pods {
            let all = pod.clone();
            pod.life = match pod.life {
                Life::Deleted(gone) if time < gone => Life::Running,
                Life::Finished(_, since) if time < since => Life::Running,
                Life::Terminating(_) if time < TOLD_TO_GO => Life::Running,
                life => life,
            };
            let mut place = 0;
            pod.sandboxes.retain_mut(|sandbox| {
                let runs = all.end(place).is_none_or(|end| time < end);
                place += 1;
                if runs {
                    sandbox.runs();
                }
                sandbox.made <= time
            });
        }
        truth.give_back();
        truth
    }
}

impl TruePod {
    /// When it came into the API.
    pub(super) fn made(&self) -> i64 {
        let first = self.sandboxes.first();
        first.map_or(0, |first| first.made - 5)
    }

    /// When one of its sandboxes has stopped to run as it should.
    pub(super) fn end(&self, place: usize) -> Option<i64> {
        let next = self.sandboxes.get(place + 1);
        let replaced = next.map(|next| next.made - 1);
        let own = match self.life {
            Life::Deleted(gone) => Some(gone + 1),
            Life::Finished(_, since) => Some(since),
            Life::Running | Life::Static(_) | Life::Terminating(_) => {
                let stuck = matches!(self.sandboxes[place].held, Some(Held::Stuck(_)));
                stuck.then_some(STUCK)
            }
        };
        replaced.or(own)
    }
}

impl TrueSandbox {
    fn runs(&mut self) {
        self.held = Some(Held::Running);
        self.cri = Some(true);
        (self.remains, self.cached, self.reserved) = (true, true, true);
    }
}

impl SourceView<'_> {
    /// All that is told, in groups of one moment.
    pub(super) fn trace(&self) -> Vec<(i64, Vec<Event>)> {
        let then = self.truth.then(START);
        let mut told = vec![(START, self.at(&then).look(START))];
        for time in self.changes() {
            told.push((time, self.change(time)));
        }
        told.push((LOOK, self.at(self.truth).store(LOOK)));
        for event in told.iter_mut().flat_map(|(_, events)| events) {
            if let What::NetnsForwarding { followed, .. } = &mut event.what {
                *followed = true;
            }
        }
        told
    }

    /// What namespaces are plugged into, with the host's devices.
    pub(super) fn devices(&self, of: &BTreeSet<Netns>, time: i64) -> Vec<Event> {
        let inodes: BTreeSet<u32> = of.iter().map(|netns| netns.inode).collect();
        if inodes.is_empty() {
            return Vec::new();
        }
        let mut told = self.kernel(time);
        told.retain(|event| match &event.what {
            What::NetnsDevices { netns, .. } => netns.inode == 1 || inodes.contains(&netns.inode),
            _ => false,
        });
        told
    }

    /// The same view of another time.
    fn at<'t>(&'t self, truth: &'t Truth) -> SourceView<'t> {
        SourceView {
            truth,
            missing: self.missing,
        }
    }

    fn changes(&self) -> BTreeSet<i64> {
        let mut times = BTreeSet::from([TOLD_TO_GO]);
        for pod in &self.truth.pods {
            for (place, sandbox) in pod.sandboxes.iter().enumerate() {
                times.insert(sandbox.made);
                times.extend(pod.end(place));
            }
            if let Life::Deleted(gone) = pod.life {
                times.insert(gone);
            }
        }
        times.retain(|time| *time > START && *time < LOOK);
        times
    }

    fn change(&self, time: i64) -> Vec<Event> {
        let then = self.truth.then(time);
        let now = self.at(&then);
        let mut told = Vec::new();
        for (pod, true_pod) in then.pods.iter().filter_map(|pod| {
            let mut all = self.truth.pods.iter();
            Some((pod, all.find(|all| all.uid == pod.uid)?))
        }) {
            for (place, sandbox) in pod.sandboxes.iter().enumerate() {
                if sandbox.made == time {
                    now.begin(pod, sandbox, time, &mut told);
                } else if true_pod.end(place) == Some(time) {
                    now.over(pod, sandbox, time, &mut told);
                }
            }
        }
        if !self.missing.contains_key(&Source::Host) {
            // The devices are read with the tables.
            told.extend(now.devices(&BTreeSet::from([story::ns(1)]), time));
            told.push(story::forwards(time, 1, &now.tables()));
        }
        told.extend(now.cri(time));
        if self.missing.contains_key(&Source::Calls) {
            let what = What::EventsLost {
                cause: String::from("ring-full"),
                count: 1,
            };
            told.push(at(time, what));
        }
        match self.missing.get(&Source::Pods) {
            // The API server goes away.
            Some(Absence::Old) if time > LOOK - 5_000 => {
                let what = What::SourceFailed {
                    source: String::from("pods"),
                    error: String::from("no answer"),
                };
                told.push(at(time, what));
            }
            Some(Absence::Old) => {
                let pods: Vec<_> = now.listed_pods(time).collect();
                told.push(story::listed(time, &pods));
            }
            _ => told.extend(now.pods(time)),
        }
        told
    }

    /// A sandbox is made.
    fn begin(&self, pod: &TruePod, sandbox: &TrueSandbox, time: i64, told: &mut Vec<Event>) {
        told.push(story::created(time, sandbox.inode));
        let second = sandbox.second.map(|second| (second, "net1"));
        for (attached, ifname) in std::iter::once((sandbox.primary, "eth0")).chain(second) {
            if self.tells(Source::Calls, sandbox.inode) {
                told.extend(self.add(pod, sandbox, attached, ifname, time));
            }
        }
        let place = told.len();
        self.namespace(pod, sandbox, time, told, &mut Vec::new());
        // What it has is no find.
        told.remove(place);
        for event in &mut told[place..] {
            if let What::AddressAdded { found, .. } = &mut event.what {
                *found = false;
            }
        }
    }

    fn add(
        &self,
        pod: &TruePod,
        sandbox: &TrueSandbox,
        attached: Attached,
        ifname: &str,
        time: i64,
    ) -> [Event; 2] {
        let call = CniCall {
            ifname: ifname.to_owned(),
            ..self.call("ADD", pod, sandbox)
        };
        let mut answered = story::answered(time, call.clone(), 0);
        if let What::CniCall {
            result: Some(result),
            ..
        } = &mut answered.what
        {
            result.ips = vec![IpAddr::from(attached.address)];
        }
        [story::calls(time, call), answered]
    }

    fn call(&self, command: &str, pod: &TruePod, sandbox: &TrueSandbox) -> CniCall {
        let network = self.network();
        CniCall {
            netns_path: mount(sandbox.inode),
            pod: Some(pod_ref(pod)),
            plugin: network.plugin,
            ipam: network.ipam,
            ..story::call(command, &sandbox.id, sandbox.inode, &pod.uid, &pod.name)
        }
    }

    /// A sandbox has stopped: it is gone, or what is left of it is left.
    fn over(&self, pod: &TruePod, sandbox: &TrueSandbox, time: i64, told: &mut Vec<Event>) {
        if !sandbox.cached && self.tells(Source::Calls, sandbox.inode) {
            let call = self.call("DEL", pod, sandbox);
            told.extend([story::calls(time, call.clone()), story::ended(time, call)]);
        }
        if sandbox.lives() {
            let mut stuck = Vec::new();
            let mut all = Vec::new();
            self.namespace(pod, sandbox, time, &mut all, &mut stuck);
            let holders = all.into_iter().filter(|event| {
                matches!(&event.what, What::NetnsHolders { netns, .. } if netns.inode == sandbox.inode)
            });
            told.extend(holders);
            told.extend(stuck);
        } else {
            told.push(story::dying(time, sandbox.inode));
            told.push(story::destroyed(time, sandbox.inode));
        }
        if pod.inner && !sandbox.has_tasks() {
            told.push(story::dying(time, inner(sandbox.inode)));
            told.push(story::destroyed(time, inner(sandbox.inode)));
        }
    }
}
