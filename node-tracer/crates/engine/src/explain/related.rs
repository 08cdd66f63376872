//! From what a word names to all that belongs to it.
//!
//! What tells of identity is followed to its end: a namespace is a sandbox's, a
//! sandbox a pod's, a container a sandbox's. What tells of use is followed once:
//! an address that two namespaces have leads from one to the other and no
//! further. The host's own namespace leads nowhere: every pod on the host's
//! network is in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::Path,
};

use super::{
    index::{Index, containers},
    resolve::Seeds,
};
use crate::model::{
    attachment::ListedStore,
    netns::{NetnsEntry, Serial},
    runtime::SandboxList,
};
use event::{Attachment, Netns, Reservation, RuntimeSandbox};

/// Others with one of its addresses that are told of.
const RIVALS: usize = 8;

/// All that belongs to a subject.
#[derive(Default)]
pub(super) struct Related<'a> {
    /// Its namespaces: the host's own last, else oldest first.
    pub(super) netns: BTreeMap<(bool, Serial), &'a NetnsEntry>,
    /// Those that only share an address with one of its own.
    pub(super) other_owners: BTreeSet<Serial>,
    /// Sandboxes and containers, by ID.
    pub(super) containers: BTreeSet<String>,
    pub(super) uids: BTreeSet<String>,
    /// Addresses: the one that was asked about, or those of its namespaces.
    pub(super) addresses: BTreeSet<IpAddr>,
    /// Sandboxes, by ID and by the list's rank.
    pub(super) sandboxes: BTreeMap<(String, usize), (&'a SandboxList, &'a RuntimeSandbox)>,
    pub(super) attachments: BTreeMap<&'a Path, &'a Attachment>,
    /// Reservations, by file and address: some stores have one file for all.
    pub(super) reservations: BTreeMap<(&'a Path, IpAddr), (&'a ListedStore, &'a Reservation)>,
}

/// What is to be followed.
enum Step<'a> {
    Netns(&'a NetnsEntry),
    Container(String),
    Pod(String),
}

pub(super) fn related<'a>(seeds: &Seeds, index: &Index<'a>) -> Related<'a> {
    let mut related = identity(seeds, index);
    related.use_of_addresses(seeds.address, index);
    related
}

/// What belongs to a subject by what it is.
fn identity<'a>(seeds: &Seeds, index: &Index<'a>) -> Related<'a> {
    let mut related = Related::default();
    let mut steps = Vec::new();
    for netns in &seeds.netns {
        related.add_netns(*netns, index, &mut steps);
    }
    for id in &seeds.containers {
        related.add_container(id, &mut steps);
    }
    for uid in &seeds.uids {
        related.add_pod(uid, &mut steps);
    }
    while let Some(step) = steps.pop() {
        match step {
            Step::Netns(entry) => related.follow_netns(entry, index, &mut steps),
            Step::Container(id) => related.follow_container(&id, index, &mut steps),
            Step::Pod(uid) => related.follow_pod(&uid, index, &mut steps),
        }
    }
    related
}

impl<'a> Related<'a> {
    fn add_netns(&mut self, netns: Netns, index: &Index<'a>, steps: &mut Vec<Step<'a>>) {
        if let Some(entry) = index.model.netns.get(netns) {
            let key = (entry.host, entry.serial);
            if self.netns.insert(key, entry).is_none() && !entry.host {
                steps.push(Step::Netns(entry));
            }
        }
    }

    fn add_container(&mut self, id: &str, steps: &mut Vec<Step<'a>>) {
        if !id.is_empty() && self.containers.insert(id.to_owned()) {
            steps.push(Step::Container(id.to_owned()));
        }
    }

    fn add_pod(&mut self, uid: &str, steps: &mut Vec<Step<'a>>) {
        if self.uids.insert(uid.to_owned()) {
            steps.push(Step::Pod(uid.to_owned()));
        }
    }

    fn add_sandbox(
        &mut self,
        list: &'a SandboxList,
        sandbox: &'a RuntimeSandbox,
        index: &Index<'a>,
        steps: &mut Vec<Step<'a>>,
    ) {
        let mut lists = index.model.runtime.lists();
        let rank = lists.position(|other| other.source == list.source);
        let key = (sandbox.id.clone(), rank.unwrap_or(usize::MAX));
        if self.sandboxes.insert(key, (list, sandbox)).is_some() {
            return;
        }
        for id in sandbox.ids() {
            self.add_container(id, steps);
        }
        if let Some(uid) = &sandbox.pod.uid {
            self.add_pod(uid, steps);
        }
        if let Some(netns) = sandbox.netns {
            self.add_netns(netns, index, steps);
        }
    }

    fn add_attachment(
        &mut self,
        attachment: &'a Attachment,
        index: &Index<'a>,
        steps: &mut Vec<Step<'a>>,
    ) {
        if self
            .attachments
            .insert(&attachment.path, attachment)
            .is_some()
        {
            return;
        }
        self.add_container(&attachment.container_id, steps);
        if let Some(uid) = attachment.pod.as_ref().and_then(|pod| pod.uid.as_ref()) {
            self.add_pod(uid, steps);
        }
        if let Some(netns) = attachment.netns {
            self.add_netns(netns, index, steps);
        }
    }

    fn follow_netns(
        &mut self,
        entry: &'a NetnsEntry,
        index: &Index<'a>,
        steps: &mut Vec<Step<'a>>,
    ) {
        if let Some(uid) = entry.sandbox.uid() {
            self.add_pod(uid, steps);
        }
        for id in containers(entry) {
            self.add_container(id, steps);
        }
        for list in index.model.runtime.lists() {
            for sandbox in list.in_netns(entry.id).filter(|each| !each.host_network) {
                self.add_sandbox(list, sandbox, index, steps);
            }
        }
        for attachment in index.model.cni.in_netns(entry.id.inode) {
            self.add_attachment(attachment, index, steps);
        }
    }

    fn follow_container(&mut self, id: &str, index: &Index<'a>, steps: &mut Vec<Step<'a>>) {
        for list in index.model.runtime.lists() {
            if let Some(sandbox) = list.of_container(id) {
                self.add_sandbox(list, sandbox, index, steps);
            }
        }
        for entry in index.of_container(id) {
            self.add_netns(entry.id, index, steps);
        }
        for attachment in index.model.cni.of_container(id) {
            self.add_attachment(attachment, index, steps);
        }
        for (listed, reservation) in index.reservations_for(id) {
            let path = reservation.holder.path.as_path();
            self.reservations
                .insert((path, reservation.address), (listed, reservation));
        }
    }

    fn follow_pod(&mut self, uid: &str, index: &Index<'a>, steps: &mut Vec<Step<'a>>) {
        for entry in index.of_uid(uid) {
            self.add_netns(entry.id, index, steps);
        }
        for list in index.model.runtime.lists() {
            for sandbox in list.of_pod(uid) {
                self.add_sandbox(list, sandbox, index, steps);
            }
        }
        for attachment in index.model.cni.of_pod(uid) {
            self.add_attachment(attachment, index, steps);
        }
    }

    /// Who else has, or has reserved, the same addresses.
    fn use_of_addresses(&mut self, asked: Option<IpAddr>, index: &Index<'a>) {
        match asked {
            Some(address) => self.addresses.extend([address]),
            None => self.addresses = self.own_addresses(),
        }
        for address in self.addresses.clone() {
            for (listed, reservation) in index.model.cni.reservations(address) {
                let path = reservation.holder.path.as_path();
                self.reservations
                    .insert((path, reservation.address), (listed, reservation));
            }
            for entry in index.model.netns.with_address(address) {
                let key = (entry.host, entry.serial);
                if self.netns.insert(key, entry).is_none() {
                    self.other_owners.insert(entry.serial);
                }
            }
        }
    }

    /// The addresses of its namespaces; if there is none left, those that CNI
    /// and the runtime gave it.
    fn own_addresses(&self) -> BTreeSet<IpAddr> {
        let entries = self.netns.values().filter(|entry| !entry.host);
        let held: BTreeSet<IpAddr> = entries
            .flat_map(|entry| entry.addresses.iter())
            .map(|held| held.address.address)
            .collect();
        if !held.is_empty() {
            return held;
        }
        let given = self.attachments.values().flat_map(|each| &each.ips);
        let sandboxes = self.sandboxes.values().map(|(_, sandbox)| sandbox);
        let listed = sandboxes
            .filter(|sandbox| !sandbox.host_network)
            .flat_map(|sandbox| &sandbox.ips);
        given.chain(listed).copied().collect()
    }

    /// Each other that has one of its addresses, as what it is.
    pub(super) fn other_owners(&self, index: &Index<'a>) -> Vec<Related<'a>> {
        let all = self.netns.values();
        let all = all.filter(|entry| !entry.host && self.other_owners.contains(&entry.serial));
        all.take(RIVALS)
            .map(|entry| {
                let seeds = Seeds {
                    netns: BTreeSet::from([entry.id]),
                    ..Seeds::default()
                };
                identity(&seeds, index)
            })
            .collect()
    }

    /// Namespaces of the subject itself.
    pub(super) fn own(&self) -> impl Iterator<Item = &'a NetnsEntry> {
        let all = self.netns.values().copied();
        all.filter(|entry| !self.other_owners.contains(&entry.serial))
    }
}
