//! Many pods that get no network for one reason: those that are told together.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use crate::{
    detect::{View, add_failed::Failed, commented, evidence, fitting, kubectl_words},
    model::{Model, calls::PodCalls},
};
use diagnosis::Cause;
use event::order::Order as _;
use event::{
    clock::Timestamp,
    finding::{Detail, Finding, Rule, finding_id},
    wording::plural::round,
};

/// Pods of one namespace and cause that begin to fail in this time and have a
/// finding each.
const SINGLY: usize = 16;
const TOGETHER: Duration = Duration::from_secs(60);
/// Pods that are named of those that have none.
const NAMED: usize = 3;

/// Kubernetes namespace, plugin and cause.
pub(in crate::detect) type Key = (String, String, Cause);

/// Pods that are told together, by what names them. A pod that is gone counts
/// as well: otherwise each that comes after it would have a finding of its own.
#[derive(Debug, Default)]
pub(in crate::detect) struct Crowded(HashMap<String, Key>);

impl Crowded {
    pub(in crate::detect) fn new(model: &Model) -> Self {
        let mut all: BTreeMap<Key, Vec<(Timestamp, String)>> = BTreeMap::new();
        for pod in model.calls.restless_pods() {
            let last = pod.failing.values().max_by_key(|failing| failing.end.at);
            if let Some(failing) = last {
                let namespace = pod.pod.namespace.clone().unwrap_or_default();
                let cause = Cause::of_plugin(failing.end.plugin_failure());
                let key = (namespace, failing.plugin.clone(), cause);
                let since = failing.since;
                all.entry(key).or_default().push((since, pod.id()));
            }
        }
        let mut crowded = HashMap::new();
        for (key, mut pods) in all {
            pods.sort();
            let earlier = pods.iter().map(|(since, _)| *since);
            let late = pods.iter().skip(SINGLY).zip(earlier);
            let late = late.filter(|((since, _), earlier)| since.since(*earlier) < TOGETHER);
            crowded.extend(late.map(|((_, id), _)| (id.clone(), key.clone())));
        }
        Self(crowded)
    }

    /// What a pod is told together with; `None` if it is told singly.
    pub(in crate::detect) fn key(&self, pod: &PodCalls) -> Option<&Key> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&pod.id())
    }
}

/// Those of one key that fail now.
#[derive(Default)]
pub(super) struct Crowd<'a>(Vec<Failed<'a>>);

impl<'a> Crowd<'a> {
    pub(super) fn add(&mut self, failed: Failed<'a>) {
        self.0.push(failed);
    }

    /// `None` if nobody is in it.
    pub(super) fn finding(mut self, view: &View<'_>, key: &Key) -> Option<Finding> {
        let (namespace, plugin, cause) = key;
        self.0
            .order_by_key(|each| (each.failing.since, each.calls.id()));
        let first = self.0.first()?;
        let since = first.failing.since;
        let count = round(self.0.len() as u64);
        let whose = match namespace.as_str() {
            "" => "an unknown namespace",
            namespace => namespace,
        };
        let key = format!("crowd/{namespace}/{plugin}/{}", cause.as_str());
        let mut claims = first.finding(view).evidence;
        claims.truncate(2);
        let named = self.0.iter().take(NAMED).map(|each| each.pod.label());
        let named = named.collect::<Vec<_>>().join(", ");
        let claim =
            format!("{count} more pods of {whose} fail like this; the first of them: {named}");
        claims.push(evidence(claim, "node-tracer", since));
        let mut advice = first.advice(view);
        let words = kubectl_words(&first.pod);
        let describe = words.map(|words| format!("kubectl describe pod {words}"));
        advice.extend(describe.map(|command| commented(command, "its Events")));
        Some(Finding {
            rule: Rule::AddFailed,
            severity: self.0.iter().map(|each| each.severity()).max()?,
            id: finding_id(&view.settings.boot_id, Rule::AddFailed, &key),
            since,
            title: fitting(
                format!(
                    "{count} more pods of {whose} get no network: {}",
                    cause.clause()
                ),
                || format!("{count} more pods get no network: {}", cause.clause()),
            ),
            pod: None,
            sandbox_id: None,
            netns: None,
            addresses: Vec::new(),
            holders: Vec::new(),
            evidence: claims,
            unknown: Vec::new(),
            advice,
            detail: Detail {
                cause: Some(cause.as_str().to_owned()),
                ..Detail::default()
            },
        })
    }
}
