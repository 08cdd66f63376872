//! Pods' entries in a CNI's own data, as they were written and deleted.

use std::collections::BTreeMap;

use event::{Endpoint, PodRef, clock::Timestamp};

/// Entries at most; the one that was told of longest ago makes room.
pub const MAX_ENDPOINTS: usize = 4_096;

/// All of them, by key.
#[derive(Debug, Default)]
pub struct Endpoints {
    by_key: BTreeMap<String, Entry>,
    dropped: u64,
}

#[derive(Clone, Debug)]
pub struct Entry {
    /// As it was written last, or as its deletion names it.
    pub endpoint: Endpoint,
    /// When it was last written.
    pub written: Option<Timestamp>,
    /// When it was deleted, if it was since.
    pub deleted: Option<Timestamp>,
    /// When a DEL last left it where it is, and the sandbox that the DEL was
    /// for.
    pub kept: Option<(Timestamp, String)>,
}

impl Endpoints {
    pub fn of_pod_name<'a>(&'a self, pod: &PodRef) -> impl Iterator<Item = &'a Entry> {
        let its = |entry: &&Entry| {
            let own = &entry.endpoint.pod;
            own.name == pod.name && own.namespace == pod.namespace
        };
        self.by_key.values().filter(its)
    }

    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    pub(super) fn written(&mut self, endpoint: &Endpoint, time: Timestamp) -> bool {
        let entry = self.entry(endpoint);
        entry.endpoint = endpoint.clone();
        entry.written = Some(time);
        entry.deleted = None;
        true
    }

    pub(super) fn deleted(&mut self, endpoint: &Endpoint, time: Timestamp) -> bool {
        self.entry(endpoint).deleted = Some(time);
        true
    }

    pub(super) fn kept(&mut self, endpoint: &Endpoint, del: &str, time: Timestamp) -> bool {
        self.entry(endpoint).kept = Some((time, del.to_owned()));
        true
    }

    fn entry(&mut self, endpoint: &Endpoint) -> &mut Entry {
        if !self.by_key.contains_key(&endpoint.key) && self.by_key.len() >= MAX_ENDPOINTS {
            self.dropped += 1;
            let last = |entry: &Entry| entry.written.max(entry.deleted);
            let oldest = self.by_key.iter().min_by_key(|(_, entry)| last(entry));
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.by_key.remove(&oldest);
            }
        }
        let new = || Entry {
            endpoint: endpoint.clone(),
            written: None,
            deleted: None,
            kept: None,
        };
        self.by_key.entry(endpoint.key.clone()).or_insert_with(new)
    }
}
