//! CNI calls that were seen, by attachment: what was asked, how it ended, what
//! came of it. Only trusted calls are here.
//!
//! One CNI operation is a chain of plugins, each of which may delegate to
//! others: so an attachment has several plugins, each with its last ADD and
//! DEL. What is older than the tracer is not here; libcni's cache has it
//! ([`attachment`](super::attachment)).

mod expiry;
mod pods;
mod record;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

#[cfg(test)]
pub(super) use self::expiry::KEPT;
pub use self::pods::{Failing, PodCalls};

use self::pods::PodTable;
use diagnosis::PluginFailure;
use event::{CniEffect, CniError, CniResult, Netns, PodRef, clock::Timestamp};

/// Attachments at most; the one that was called for longest ago makes room.
pub const MAX_ATTACHMENTS: usize = 4_096;
/// Plugins of one attachment.
const MAX_PLUGINS: usize = 16;

/// Names an attachment: container ID and interface name.
type Key = (String, String);

#[derive(Debug, Default)]
pub struct Calls {
    attachments: BTreeMap<Key, AttachmentCalls>,
    /// By when they were last called for.
    by_age: BTreeSet<(Timestamp, Key)>,
    /// By `namespace/name` of the pod.
    by_pod: HashMap<String, BTreeSet<Key>>,
    /// Names of pods under which a log tells of a DEL, and of another
    /// attachment.
    namesakes: BTreeSet<String>,
    by_inode: HashMap<u32, BTreeSet<Key>>,
    /// Those with [`AttachmentCalls::is_forsaken`].
    forsaken: BTreeSet<Key>,
    /// Those of which a DEL has failed, and none succeeded since; or it was
    /// called again, by a log.
    failed_dels: BTreeSet<Key>,
    /// Those with [`AttachmentCalls::has_del`].
    with_del: BTreeSet<Key>,
    /// When the last namespace of an inode number went, of those that went
    /// since the tracer looks.
    went: HashMap<u32, Timestamp>,
    pods: PodTable,
    /// When [`forget_past`](Self::forget_past) last looked.
    looked: Option<Timestamp>,
    dropped: u64,
}

/// What was called for one attachment. There are thousands, so what few of them
/// have is kept apart.
#[derive(Clone, Debug)]
pub struct AttachmentCalls {
    /// `CNI_CONTAINERID`
    pub container_id: String,
    /// `CNI_IFNAME`
    pub ifname: String,
    /// The pod, if any call named one.
    pub pod: Option<PodRef>,
    /// The sandbox's namespace, as the ADD found it.
    pub netns: Option<Netns>,
    /// When that namespace was destroyed, or lost its last reference.
    pub netns_gone: Option<Timestamp>,
    /// Addresses that it had when it went.
    pub held: Vec<IpAddr>,
    /// When the first call was seen.
    pub first: Timestamp,
    /// When the last one was, or its end.
    pub last: Timestamp,
    /// Its plugins, in the order in which they were first called.
    pub plugins: Vec<PluginCalls>,
    /// What came of the last ADD that succeeded, as it was looked at.
    pub add_effect: Option<Box<(Timestamp, CniEffect)>>,
    /// The same of the last DEL.
    pub del_effect: Option<Box<(Timestamp, CniEffect)>>,
}

#[derive(Clone, Debug)]
pub struct PluginCalls {
    pub plugin: String,
    pub network: Option<String>,
    pub ipam: Option<String>,
    /// Another plugin called it.
    pub delegated: bool,
    pub add: Option<Call>,
    pub del: Option<Call>,
    pub adds: u64,
    pub failed_adds: u64,
    pub dels: u64,
    /// DELs that failed since the last that succeeded.
    pub failed_dels: u64,
    /// When the first of these ended.
    pub failing_since: Option<Timestamp>,
    /// How the last of these ended: one that runs now says nothing yet.
    pub failed_del: Option<Box<CallResult>>,
    /// When a DEL first succeeded since the last ADD.
    pub released: Option<Timestamp>,
    /// A DEL that had failed, and when it was then called again; the first,
    /// whatever came of it.
    pub retried: Option<Box<(CallResult, Timestamp)>>,
}

#[derive(Clone, Debug)]
pub struct Call {
    /// When the plugin started.
    pub started: Timestamp,
    /// How it ended; `None` while it runs.
    pub end: Option<Box<CallResult>>,
    pub pid: u32,
    /// `CNI_NETNS` was given.
    pub with_netns: bool,
    /// A log tells of it.
    pub log: bool,
}

/// How a call ended.
#[derive(Clone, Debug)]
pub struct CallResult {
    pub at: Timestamp,
    /// Its exit status; `None` if a signal ended it, or that was not seen.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// From exec to exit, ms.
    pub duration_ms: f64,
    pub result: Option<CniResult>,
    /// The error that it answered with.
    pub error: Option<CniError>,
    /// A log tells of it.
    pub log: bool,
}

impl CallResult {
    pub fn is_ok(&self) -> bool {
        self.exit_code == Some(0)
    }

    /// Whether it failed. Of one whose end was not seen neither is known; a
    /// log tells the error and no exit status.
    pub fn is_failed(&self) -> bool {
        let told = self.exit_code.is_some() || self.signal.is_some() || self.error.is_some();
        !self.is_ok() && told
    }

    /// How it failed, for a diagnosis.
    pub fn plugin_failure(&self) -> PluginFailure<'_> {
        PluginFailure {
            error: self.error.as_ref(),
            signal: self.signal,
            duration_ms: self.duration_ms,
        }
    }
}

impl PluginCalls {
    /// Whether a log tells that a DEL which had failed was called again. A log
    /// is an excerpt, as a rule: one that was is one of many.
    fn is_retried(&self) -> bool {
        let log = self.del.as_ref().is_some_and(|del| del.log);
        log && self.retried.is_some()
    }
}

impl Call {
    /// How it ended, if well.
    pub fn success(&self) -> Option<&CallResult> {
        self.end.as_deref().filter(|end| end.is_ok())
    }

    /// How it ended, if badly.
    pub fn failure(&self) -> Option<&CallResult> {
        self.end.as_deref().filter(|end| end.is_failed())
    }
}

impl AttachmentCalls {
    /// The plugins that the runtime itself called. Of an interface that only
    /// another plugin asked for (Multus' `net1`), all that were called: who
    /// called them was called for another interface.
    pub fn chain(&self) -> impl Iterator<Item = &PluginCalls> {
        let own = self.plugins.iter().any(|plugin| !plugin.delegated);
        let plugins = self.plugins.iter();
        plugins.filter(move |plugin| !own || !plugin.delegated)
    }

    /// When ADD had succeeded in all plugins that were called, if it did.
    pub fn added(&self) -> Option<Timestamp> {
        let mut last = None;
        for plugin in self.chain() {
            let end = plugin.add.as_ref()?.success()?;
            last = last.max(Some(end.at));
        }
        last
    }

    /// The plugin whose last ADD failed, and how. The runtime stops at the
    /// first.
    pub fn add_failure(&self) -> Option<(&PluginCalls, &CallResult)> {
        let failed = self
            .chain()
            .filter_map(|plugin| Some((plugin, plugin.add.as_ref()?.failure()?)));
        failed.max_by_key(|(_, end)| end.at)
    }

    /// When DEL had succeeded in all plugins whose ADD or DEL was seen, if it
    /// did, and no ADD came after it.
    pub fn deleted(&self) -> Option<Timestamp> {
        let mut last = None;
        for plugin in self.chain() {
            let end = plugin.del.as_ref()?.success()?;
            let again = plugin.add.as_ref().is_some_and(|add| add.started > end.at);
            if again {
                return None;
            }
            last = last.max(Some(end.at));
        }
        last
    }

    /// Whether any DEL was seen, whatever came of it.
    pub fn has_del(&self) -> bool {
        self.chain().any(|plugin| plugin.del.is_some())
    }

    /// Whether an ADD was seen and no DEL after it, neither begun nor ended,
    /// although the namespace is gone or was never known. What a log does not
    /// tell of may have been called all the same.
    pub fn is_forsaken(&self) -> bool {
        let adds = self.chain().filter_map(|plugin| plugin.add.as_ref());
        let Some((first, log)) = adds.map(|add| (add.started, add.log)).min() else {
            return false;
        };
        let mut dels = self.chain().filter_map(|plugin| plugin.del.as_ref());
        let gone = self.netns.is_none() || self.netns_gone.is_some();
        gone && !log && !dels.any(|del| del.started >= first)
    }

    /// Whether a log tells of it.
    pub fn is_logged(&self) -> bool {
        let mut plugins = self.plugins.iter();
        plugins.any(|plugin| {
            let calls = plugin.add.iter().chain(&plugin.del);
            calls.into_iter().any(|call| call.log)
        })
    }

    /// Whether an ADD of it runs.
    pub fn is_adding(&self) -> bool {
        let mut adds = self.chain().filter_map(|plugin| plugin.add.as_ref());
        adds.any(|add| add.end.is_none())
    }

    /// Whether a DEL of it runs.
    pub fn is_deleting(&self) -> bool {
        let mut dels = self.chain().filter_map(|plugin| plugin.del.as_ref());
        dels.any(|del| del.end.is_none())
    }

    /// The plugin whose DEL was called again after it had failed, by a log.
    pub fn retried(&self) -> Option<(&PluginCalls, &CallResult)> {
        let plugins = self.chain().filter(|plugin| plugin.is_retried());
        let retried = plugins.filter_map(|plugin| Some((plugin, &plugin.retried.as_ref()?.0)));
        retried.max_by_key(|(plugin, _)| plugin.dels)
    }

    /// The plugin whose DEL has failed most often since the last success.
    pub fn del_failure(&self) -> Option<(&PluginCalls, &CallResult)> {
        let failing = self.chain().filter(|plugin| plugin.failed_dels > 0);
        let failed = failing.filter_map(|plugin| Some((plugin, plugin.failed_del.as_deref()?)));
        failed.max_by_key(|(plugin, _)| plugin.failed_dels)
    }

    /// What the runtime's own plugins answered to the last ADD: addresses.
    pub fn ips(&self) -> Vec<IpAddr> {
        let mut ips = Vec::new();
        for result in self.results() {
            for ip in &result.ips {
                if !ips.contains(ip) {
                    ips.push(*ip);
                }
            }
        }
        ips
    }

    /// MAC addresses of the devices that its ADD has made in the sandbox.
    pub fn macs(&self) -> impl Iterator<Item = &str> {
        let made = self.results().flat_map(|result| &result.interfaces);
        let made = made.filter(|it| it.sandbox.is_some());
        made.filter_map(|it| it.mac.as_deref())
    }

    fn results(&self) -> impl Iterator<Item = &CniResult> {
        self.chain()
            .filter_map(|plugin| plugin.add.as_ref()?.success()?.result.as_ref())
    }
}

impl Calls {
    /// How many attachments there are.
    pub fn len(&self) -> usize {
        self.attachments.len()
    }

    /// All attachments, by container ID.
    pub fn attachments(&self) -> impl Iterator<Item = &AttachmentCalls> {
        self.attachments.values()
    }

    /// Attachments that nobody has taken back although their namespace is gone
    /// or was never known: see [`AttachmentCalls::is_forsaken`].
    pub fn forsaken(&self) -> impl Iterator<Item = &AttachmentCalls> {
        let keys = self.forsaken.iter();
        keys.filter_map(|key| self.attachments.get(key))
    }

    /// Names of pods that have had several attachments, by a log that tells of
    /// a DEL of one of them.
    pub fn namesakes(&self) -> impl Iterator<Item = Vec<&AttachmentCalls>> {
        let names = self.namesakes.iter();
        names.filter_map(|name| {
            let keys = self.by_pod.get(name)?.iter();
            Some(keys.filter_map(|key| self.attachments.get(key)).collect())
        })
    }

    /// Attachments of which a DEL has failed, and none succeeded since; or it
    /// was called again, by a log.
    pub fn with_failed_dels(&self) -> impl Iterator<Item = &AttachmentCalls> {
        let keys = self.failed_dels.iter();
        keys.filter_map(|key| self.attachments.get(key))
    }

    /// Attachments of which a DEL was seen, whatever came of it.
    pub fn with_del(&self) -> impl Iterator<Item = &AttachmentCalls> {
        let keys = self.with_del.iter();
        keys.filter_map(|key| self.attachments.get(key))
    }

    /// A pod's sandbox was made, by a log: what a log tells of ADDs that failed
    /// before is over, although none tells of the one that succeeded.
    pub(super) fn made(&mut self, pod: &PodRef, time: Timestamp) -> bool {
        self.pods.made_sandbox(pod, time)
    }

    /// Pods whose ADDs fail, or that have had more than two sandboxes.
    pub fn restless_pods(&self) -> impl Iterator<Item = &PodCalls> {
        self.pods.restless()
    }

    /// How many pods there are for which ADD was called.
    #[cfg(test)]
    pub fn pod_count(&self) -> usize {
        self.pods.iter().count()
    }

    /// Pods for which ADD was called.
    #[cfg(test)]
    pub fn pods(&self) -> impl Iterator<Item = &PodCalls> {
        self.pods.iter()
    }

    /// When the last namespace of an inode number went, if one was seen to go.
    pub fn went(&self, inode: u32) -> Option<Timestamp> {
        self.went.get(&inode).copied()
    }

    pub fn get(&self, container_id: &str, ifname: &str) -> Option<&AttachmentCalls> {
        let key = (container_id.to_owned(), ifname.to_owned());
        self.attachments.get(&key)
    }

    pub fn of_container<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a AttachmentCalls> {
        of_container(&self.attachments, id)
    }

    /// The attachments of all pods of a name, that of the same name before
    /// and after among them.
    pub fn of_pod_name(&self, pod: &PodRef) -> impl Iterator<Item = &AttachmentCalls> {
        let keys = pod_key(pod).and_then(|key| self.by_pod.get(&key));
        let keys = keys.into_iter().flatten();
        keys.filter_map(|key| self.attachments.get(key))
    }
}

/// See [`Calls::of_container`].
fn of_container<'a>(
    attachments: &'a BTreeMap<Key, AttachmentCalls>,
    id: &'a str,
) -> impl Iterator<Item = &'a AttachmentCalls> {
    let all = attachments.range((id.to_owned(), String::new())..);
    all.take_while(move |((container, _), _)| container == id)
        .map(|(_, calls)| calls)
}

/// `namespace/name`
fn pod_key(pod: &PodRef) -> Option<String> {
    let (namespace, name) = pod.full_name()?;
    Some(format!("{namespace}/{name}"))
}

#[cfg(test)]
mod tests;
