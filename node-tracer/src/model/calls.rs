//! CNI calls that were seen, by attachment: what was asked, how it ended, what
//! came of it. Only trusted calls are here.
//!
//! One CNI operation is a chain of plugins, each of which may delegate to
//! others: so an attachment has several plugins, each with its last ADD and
//! DEL. What is older than the tracer is not here; libcni's cache has it
//! ([`attachment`](super::attachment)).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use crate::{
    clock::Timestamp,
    event::{CniCall, CniEffect, CniError, CniInterface, CniResult, Netns, PodRef},
};

/// Attachments at most; the one that was called for longest ago makes room.
pub(crate) const MAX_ATTACHMENTS: usize = 16_384;
/// Plugins of one attachment.
const MAX_PLUGINS: usize = 16;

/// Names an attachment: container ID and interface name.
type Key = (String, String);

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    attachments: BTreeMap<Key, AttachmentCalls>,
    /// By when they were last called for.
    by_age: BTreeSet<(Timestamp, Key)>,
    /// By `namespace/name` of the pod.
    by_pod: HashMap<String, BTreeSet<Key>>,
    by_inode: HashMap<u32, BTreeSet<Key>>,
    dropped: u64,
}

/// What was called for one attachment.
#[derive(Clone, Debug)]
pub(crate) struct AttachmentCalls {
    /// `CNI_CONTAINERID`
    pub(crate) container_id: String,
    /// `CNI_IFNAME`
    pub(crate) ifname: String,
    /// The pod, if any call named one.
    pub(crate) pod: Option<PodRef>,
    /// The sandbox's namespace, as the ADD found it.
    pub(crate) netns: Option<Netns>,
    /// When that namespace was destroyed, or lost its last reference.
    pub(crate) netns_gone: Option<Timestamp>,
    /// When the first call was seen.
    pub(crate) first: Timestamp,
    /// When the last one was, or its end.
    pub(crate) last: Timestamp,
    /// Its plugins, in the order in which they were first called.
    pub(crate) plugins: Vec<PluginCalls>,
    /// What came of the last ADD that succeeded, as it was looked at.
    pub(crate) add_effect: Option<(Timestamp, CniEffect)>,
    /// The same of the last DEL.
    pub(crate) del_effect: Option<(Timestamp, CniEffect)>,
}

/// What was called of one plugin for one attachment.
#[derive(Clone, Debug)]
pub(crate) struct PluginCalls {
    /// Its name.
    pub(crate) plugin: String,
    /// The network it was called for.
    pub(crate) network: Option<String>,
    /// Its IPAM.
    pub(crate) ipam: Option<String>,
    /// Another plugin called it.
    pub(crate) delegated: bool,
    /// Its last ADD.
    pub(crate) add: Option<Call>,
    /// Its last DEL.
    pub(crate) del: Option<Call>,
    /// ADDs.
    pub(crate) adds: u64,
    /// ADDs that failed.
    pub(crate) failed_adds: u64,
    /// DELs.
    pub(crate) dels: u64,
    /// DELs that failed since the last that succeeded.
    pub(crate) failed_dels: u64,
    /// When the first of these ended.
    pub(crate) failing_since: Option<Timestamp>,
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// When the plugin started.
    pub(crate) started: Timestamp,
    /// How it ended; `None` while it runs.
    pub(crate) end: Option<End>,
    /// Its process.
    pub(crate) pid: u32,
    /// `CNI_NETNS` was given.
    pub(crate) with_netns: bool,
}

/// How a call ended.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// When.
    pub(crate) at: Timestamp,
    /// Its exit status; `None` if a signal ended it.
    pub(crate) exit_code: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    /// From exec to exit, ms.
    pub(crate) duration_ms: f64,
    /// What it answered.
    pub(crate) result: Option<CniResult>,
    /// The error that it answered with.
    pub(crate) error: Option<CniError>,
}

impl End {
    /// Whether it succeeded.
    pub(crate) fn is_ok(&self) -> bool {
        self.exit_code == Some(0)
    }
}

impl Call {
    /// How it ended, if well.
    pub(crate) fn success(&self) -> Option<&End> {
        self.end.as_ref().filter(|end| end.is_ok())
    }

    /// How it ended, if badly.
    pub(crate) fn failure(&self) -> Option<&End> {
        self.end.as_ref().filter(|end| !end.is_ok())
    }
}

impl AttachmentCalls {
    /// The plugins that the runtime itself called.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &PluginCalls> {
        self.plugins.iter().filter(|plugin| !plugin.delegated)
    }

    /// When ADD had succeeded in all plugins that were called, if it did.
    pub(crate) fn added(&self) -> Option<Timestamp> {
        let mut last = None;
        for plugin in self.chain() {
            let end = plugin.add.as_ref()?.success()?;
            last = last.max(Some(end.at));
        }
        last
    }

    /// The plugin whose last ADD failed, and how. The runtime stops at the
    /// first.
    pub(crate) fn add_failure(&self) -> Option<(&PluginCalls, &End)> {
        let failed = self
            .chain()
            .filter_map(|plugin| Some((plugin, plugin.add.as_ref()?.failure()?)));
        failed.max_by_key(|(_, end)| end.at)
    }

    /// When DEL had succeeded in all plugins whose ADD or DEL was seen, if it
    /// did, and no ADD came after it.
    pub(crate) fn deleted(&self) -> Option<Timestamp> {
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
    pub(crate) fn has_del(&self) -> bool {
        self.chain().any(|plugin| plugin.del.is_some())
    }

    /// The plugin whose DEL has failed most often since the last success.
    pub(crate) fn del_failure(&self) -> Option<(&PluginCalls, &End)> {
        let failing = self.chain().filter(|plugin| plugin.failed_dels > 0);
        let failed = failing.filter_map(|plugin| {
            // One that runs now says nothing yet; the last end is kept below.
            let end = plugin.del.as_ref()?.failure()?;
            Some((plugin, end))
        });
        failed.max_by_key(|(plugin, _)| plugin.failed_dels)
    }

    /// What the runtime's own plugins answered to the last ADD: addresses.
    pub(crate) fn ips(&self) -> Vec<IpAddr> {
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

    /// The same: interfaces.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = &CniInterface> {
        self.results().flat_map(|result| &result.interfaces)
    }

    fn results(&self) -> impl Iterator<Item = &CniResult> {
        self.chain()
            .filter_map(|plugin| plugin.add.as_ref()?.success()?.result.as_ref())
    }
}

impl Calls {
    /// All attachments, by container ID.
    pub(crate) fn attachments(&self) -> impl Iterator<Item = &AttachmentCalls> {
        self.attachments.values()
    }

    /// The attachments of a container.
    pub(crate) fn of_container<'a>(
        &'a self,
        id: &'a str,
    ) -> impl Iterator<Item = &'a AttachmentCalls> {
        let from = (id.to_owned(), String::new());
        let all = self.attachments.range(from..);
        all.take_while(move |((container, _), _)| container == id)
            .map(|(_, calls)| calls)
    }

    /// The attachments of all pods of a name, that of the same name before
    /// and after among them.
    pub(crate) fn of_pod_name(&self, pod: &PodRef) -> impl Iterator<Item = &AttachmentCalls> {
        let keys = pod_key(pod).and_then(|key| self.by_pod.get(&key));
        let keys = keys.into_iter().flatten();
        keys.filter_map(|key| self.attachments.get(key))
    }

    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// A trusted call, started (`end` is none) or ended.
    pub(super) fn note(&mut self, call: &CniCall, time: Timestamp, end: Option<&End>) -> bool {
        if !matches!(call.command.as_str(), "ADD" | "DEL") || call.container_id.is_empty() {
            return false;
        }
        let key = (call.container_id.clone(), call.ifname.clone());
        self.make_room(&key);
        let known = self.attachments.entry(key.clone());
        let attachment = known.or_insert_with(|| AttachmentCalls {
            container_id: call.container_id.clone(),
            ifname: call.ifname.clone(),
            pod: None,
            netns: None,
            netns_gone: None,
            first: time,
            last: time,
            plugins: Vec::new(),
            add_effect: None,
            del_effect: None,
        });
        self.by_age.remove(&(attachment.last, key.clone()));
        attachment.last = attachment.last.max(time);
        self.by_age.insert((attachment.last, key.clone()));
        if attachment.pod.is_none() && call.pod.is_some() {
            attachment.pod.clone_from(&call.pod);
            if let Some(name) = call.pod.as_ref().and_then(pod_key) {
                self.by_pod.entry(name).or_default().insert(key.clone());
            }
        }
        if call.command == "ADD" && attachment.netns.is_none() {
            attachment.netns = call.netns;
            if let Some(netns) = call.netns {
                let there = self.by_inode.entry(netns.inode).or_default();
                there.insert(key);
            }
        }
        attachment.note(call, time, end)
    }

    /// What came of an attachment's last call.
    pub(super) fn effect(&mut self, effect: &CniEffect, time: Timestamp) -> bool {
        let key = (effect.container_id.clone(), effect.ifname.clone());
        let Some(attachment) = self.attachments.get_mut(&key) else {
            return false;
        };
        let told = Some((time, effect.clone()));
        match effect.command.as_str() {
            "ADD" => attachment.add_effect = told,
            "DEL" => attachment.del_effect = told,
            _ => return false,
        }
        true
    }

    /// A namespace is gone, or about to go.
    pub(super) fn netns_gone(&mut self, netns: Netns, time: Timestamp) -> bool {
        let Some(keys) = self.by_inode.get(&netns.inode) else {
            return false;
        };
        let mut changed = false;
        for key in keys.clone() {
            let Some(attachment) = self.attachments.get_mut(&key) else {
                continue;
            };
            let cookies = (attachment.netns.and_then(|own| own.cookie), netns.cookie);
            let differs = matches!(cookies, (Some(a), Some(b)) if a != b);
            if !differs && attachment.netns_gone.is_none() && time >= attachment.first {
                attachment.netns_gone = Some(time);
                changed = true;
            }
        }
        changed
    }

    fn make_room(&mut self, key: &Key) {
        if self.attachments.contains_key(key) || self.attachments.len() < MAX_ATTACHMENTS {
            return;
        }
        let Some((_, oldest)) = self.by_age.pop_first() else {
            return;
        };
        let Some(old) = self.attachments.remove(&oldest) else {
            return;
        };
        // What has been taken back is no loss.
        self.dropped += u64::from(old.deleted().is_none());
        if let Some(name) = old.pod.as_ref().and_then(pod_key) {
            forget(&mut self.by_pod, &name, &oldest);
        }
        if let Some(netns) = old.netns {
            forget(&mut self.by_inode, &netns.inode, &oldest);
        }
    }
}

impl AttachmentCalls {
    fn note(&mut self, call: &CniCall, time: Timestamp, end: Option<&End>) -> bool {
        let known = self
            .plugins
            .iter_mut()
            .position(|known| known.plugin == call.plugin && known.delegated == call.delegated);
        let place = match known {
            Some(place) => place,
            None if self.plugins.len() >= MAX_PLUGINS => return false,
            None => {
                self.plugins.push(PluginCalls {
                    plugin: call.plugin.clone(),
                    network: None,
                    ipam: None,
                    delegated: call.delegated,
                    add: None,
                    del: None,
                    adds: 0,
                    failed_adds: 0,
                    dels: 0,
                    failed_dels: 0,
                    failing_since: None,
                });
                self.plugins.len() - 1
            }
        };
        let Some(plugin) = self.plugins.get_mut(place) else {
            return false;
        };
        if call.network.is_some() {
            plugin.network.clone_from(&call.network);
        }
        if call.ipam.is_some() {
            plugin.ipam.clone_from(&call.ipam);
        }
        if call.command == "ADD" {
            self.netns_gone = None;
        }
        plugin.note(call, time, end)
    }
}

impl PluginCalls {
    fn note(&mut self, call: &CniCall, time: Timestamp, end: Option<&End>) -> bool {
        let is_add = call.command == "ADD";
        let slot = match is_add {
            true => &mut self.add,
            false => &mut self.del,
        };
        let runs = slot
            .as_ref()
            .is_some_and(|known| known.pid == call.pid && known.end.is_none());
        if !runs {
            // The start may have been lost.
            *slot = Some(Call {
                started: time,
                end: None,
                pid: call.pid,
                with_netns: !call.netns_path.is_empty(),
            });
            match is_add {
                true => self.adds += 1,
                false => self.dels += 1,
            }
        }
        let Some(end) = end else {
            return !runs;
        };
        if let Some(known) = slot {
            known.end = Some(end.clone());
        }
        match (is_add, end.is_ok()) {
            (true, true) => {}
            (true, false) => self.failed_adds += 1,
            (false, true) => {
                self.failed_dels = 0;
                self.failing_since = None;
            }
            (false, false) => {
                self.failed_dels += 1;
                self.failing_since.get_or_insert(end.at);
            }
        }
        true
    }
}

/// `namespace/name`
fn pod_key(pod: &PodRef) -> Option<String> {
    let (namespace, name) = (pod.namespace.as_ref()?, pod.name.as_ref()?);
    Some(format!("{namespace}/{name}"))
}

/// Takes a key out of an index; what is empty goes.
fn forget<K: Eq + std::hash::Hash>(index: &mut HashMap<K, BTreeSet<Key>>, at: &K, key: &Key) {
    if let Some(there) = index.get_mut(at) {
        there.remove(key);
        if there.is_empty() {
            index.remove(at);
        }
    }
}

#[cfg(test)]
mod tests;
