//! Calls taken in, and what each changes.

use event::{CniCall, CniCommand, CniEffect, Netns, clock::Timestamp};
use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    time::Duration,
};

use super::{
    AttachmentCalls, Call, CallResult, Calls, Key, MAX_ATTACHMENTS, MAX_PLUGINS, PluginCalls,
    pod_key,
};

/// What a log told of a call before that is past.
const PAST: Duration = Duration::from_secs(3_600);

impl Calls {
    pub(in crate::model) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// A trusted call, started (`end` is none) or ended.
    pub(in crate::model) fn note(
        &mut self,
        call: &CniCall,
        time: Timestamp,
        end: Option<&CallResult>,
    ) -> bool {
        if !matches!(call.command, CniCommand::Add | CniCommand::Del)
            || call.container_id.is_empty()
        {
            return false;
        }
        self.pods.note(call, time, end);
        let key = (call.container_id.clone(), call.ifname.clone());
        self.make_room(&key, time);
        let known = self.attachments.entry(key.clone());
        let attachment = known.or_insert_with(|| AttachmentCalls {
            container_id: call.container_id.clone(),
            ifname: call.ifname.clone(),
            pod: None,
            netns: None,
            netns_gone: None,
            held: Vec::new(),
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
        if call.command == CniCommand::Add && attachment.netns.is_none() {
            attachment.netns = call.netns;
            if let Some(netns) = call.netns {
                let there = self.by_inode.entry(netns.inode).or_default();
                there.insert(key.clone());
            }
        }
        let changed = attachment.note(call, time, end);
        let name = attachment.pod.as_ref().and_then(pod_key);
        self.sort(&key);
        if let Some(name) = name.filter(|_| call.log) {
            self.sort_name(name);
        }
        changed
    }

    /// What came of an attachment's last call.
    pub(in crate::model) fn effect(&mut self, effect: &CniEffect, time: Timestamp) -> bool {
        let key = (effect.container_id.clone(), effect.ifname.clone());
        let Some(attachment) = self.attachments.get_mut(&key) else {
            return false;
        };
        let told = Some(Box::new((time, effect.clone())));
        match effect.command {
            CniCommand::Add => attachment.add_effect = told,
            CniCommand::Del => attachment.del_effect = told,
            _ => return false,
        }
        true
    }

    /// A namespace is gone, or about to go, with these addresses.
    pub(in crate::model) fn netns_gone(
        &mut self,
        netns: Netns,
        time: Timestamp,
        held: Vec<IpAddr>,
    ) -> bool {
        if self.went.len() < MAX_ATTACHMENTS || self.went.contains_key(&netns.inode) {
            self.went.insert(netns.inode, time);
        }
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
                attachment.held.clone_from(&held);
                changed = true;
                self.sort(&key);
            }
        }
        changed
    }

    /// Puts an attachment among those that rules look for, or takes it out.
    fn sort(&mut self, key: &Key) {
        let attachment = self.attachments.get(key);
        let put = |set: &mut BTreeSet<Key>, is: bool| match is {
            true => set.insert(key.clone()),
            false => set.remove(key),
        };
        let forsaken = attachment.is_some_and(AttachmentCalls::is_forsaken);
        put(&mut self.forsaken, forsaken);
        let failed = attachment.is_some_and(|attachment| {
            attachment.del_failure().is_some() || attachment.retried().is_some()
        });
        put(&mut self.failed_dels, failed);
        let has_del = attachment.is_some_and(AttachmentCalls::has_del);
        put(&mut self.with_del, has_del);
    }

    /// The same for a pod's name.
    fn sort_name(&mut self, name: String) {
        let keys = self.by_pod.get(&name).into_iter().flatten();
        let mut all = keys.filter_map(|key| self.attachments.get(key));
        let many = all.clone().nth(1).is_some();
        match many && all.any(AttachmentCalls::has_del) {
            true => self.namesakes.insert(name),
            false => self.namesakes.remove(&name),
        };
    }

    fn make_room(&mut self, key: &Key, now: Timestamp) {
        if self.attachments.contains_key(key) || self.attachments.len() < MAX_ATTACHMENTS {
            return;
        }
        let Some((_, oldest)) = self.by_age.first().cloned() else {
            return;
        };
        let Some(old) = self.remove(&oldest) else {
            return;
        };
        // What has been taken back is no loss; nor is what a log of days has
        // told of long before, as no rule would tell of it any more.
        let past = old.is_logged() && now.since(old.last) > PAST;
        self.dropped += u64::from(old.deleted().is_none() && !past);
    }

    /// Takes an attachment out of all tables.
    pub(super) fn remove(&mut self, key: &Key) -> Option<AttachmentCalls> {
        let old = self.attachments.remove(key)?;
        self.by_age.remove(&(old.last, key.clone()));
        self.sort(key);
        if let Some(name) = old.pod.as_ref().and_then(pod_key) {
            forget(&mut self.by_pod, &name, key);
            if self.namesakes.contains(&name) {
                self.sort_name(name);
            }
        }
        if let Some(netns) = old.netns {
            forget(&mut self.by_inode, &netns.inode, key);
        }
        Some(old)
    }
}

impl AttachmentCalls {
    fn note(&mut self, call: &CniCall, time: Timestamp, end: Option<&CallResult>) -> bool {
        let known = self
            .plugins
            .iter_mut()
            .position(|known| known.plugin == call.plugin && known.delegated == call.delegated);
        let place = match known {
            Some(place) => place,
            None if self.plugins.len() >= MAX_PLUGINS => return false,
            None => {
                self.plugins.reserve_exact(1);
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
                    failed_del: None,
                    released: None,
                    retried: None,
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
        if call.command == CniCommand::Add {
            self.netns_gone = None;
        }
        plugin.note(call, time, end)
    }
}

impl PluginCalls {
    fn note(&mut self, call: &CniCall, time: Timestamp, end: Option<&CallResult>) -> bool {
        let is_add = call.command == CniCommand::Add;
        let slot = match is_add {
            true => &mut self.add,
            false => &mut self.del,
        };
        let runs = slot
            .as_ref()
            .is_some_and(|known| known.pid == call.pid && known.end.is_none());
        if is_add {
            self.released = None;
        }
        if !runs {
            // The start may have been lost.
            *slot = Some(Call {
                started: time,
                end: None,
                pid: call.pid,
                with_netns: !call.netns_path.is_empty(),
                log: call.log,
            });
            match is_add {
                true => self.adds += 1,
                false => {
                    self.dels += 1;
                    if let (None, Some(failed)) = (&self.retried, &self.failed_del) {
                        self.retried = Some(Box::new((failed.as_ref().clone(), time)));
                    }
                }
            }
        }
        let Some(end) = end else {
            return !runs;
        };
        if let Some(known) = slot {
            known.end = Some(Box::new(end.clone()));
        }
        match (is_add, end.is_ok()) {
            (_, false) if !end.is_failed() => {}
            (true, true) => {}
            (true, false) => self.failed_adds += 1,
            (false, true) => {
                self.failed_dels = 0;
                self.failing_since = None;
                self.failed_del = None;
                self.released.get_or_insert(end.at);
            }
            (false, false) => {
                self.failed_dels += 1;
                self.failing_since.get_or_insert(end.at);
                self.failed_del = Some(Box::new(end.clone()));
            }
        }
        true
    }
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
