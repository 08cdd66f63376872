//! What was looked at, and what could not be read: the difference between
//! "nobody has it" and "it was not found".

use std::net::IpAddr;

use super::Hints;
use crate::{
    Engine,
    detect::is_routable,
    model::{Model, netns::NETNS, runtime::CRI},
};
use event::{Network, wording::plural::counted};

/// Of each kind of things that could not be read, so many are named.
const NAMED: usize = 8;

#[derive(Debug, Default)]
pub(super) struct ReadReport {
    pub(super) at: Vec<String>,
    /// What could not be read.
    pub(super) not_read: Vec<String>,
    /// There can be a network namespace among that, or the addresses of one.
    pub(super) blind: bool,
}

/// What the model was filled from.
pub(super) fn look(engine: &Engine, hints: &Hints, asked: Option<IpAddr>) -> ReadReport {
    let mut look = ReadReport::default();
    let model = engine.model();
    look.kernel(model);
    look.runtime(model);
    look.pods(model);
    look.cni(model);
    let failed = model.failures();
    let failed = failed.map(|(source, failure)| format!("{source}: {}", failure.error));
    look.missing(failed);
    // Why there may be more namespaces is told with the failure that it is.
    let told = look.not_read.clone();
    let unread = hints.unread.iter();
    let unread = unread.filter(|why| !told.iter().any(|line| gives(line, why)));
    look.missing(unread.cloned());
    // What is unread in part can be the kernel's, and so can what was lost.
    look.blind |= model.failure(NETNS).is_some()
        || !hints.unread.is_empty()
        || !model.losses.by_cause.is_empty();
    if asked.is_some_and(|address| !is_routable(address)) {
        look.not_read.push(String::from(
            "addresses of this kind (loopback, link-local, multicast): every namespace \
             has some, and sources may leave them out",
        ));
        look.blind = true;
    }
    for (cause, count) in &model.losses.by_cause {
        look.not_read
            .push(format!("{count} records were lost: {cause}"));
    }
    look
}

/// Whether a line gives a reason, alone or among others.
fn gives(line: &str, why: &str) -> bool {
    let mut places = line.match_indices(why);
    places.any(|(place, _)| {
        let (before, rest) = line.split_at(place);
        let after = rest.strip_prefix(why).unwrap_or(rest);
        let begins = before.is_empty() || before.ends_with(": ") || before.ends_with("; ");
        begins && (after.is_empty() || after.starts_with("; "))
    })
}

impl ReadReport {
    fn missing(&mut self, all: impl Iterator<Item = String>) {
        let mut all = all;
        self.not_read.extend(all.by_ref().take(NAMED));
        let more = all.count();
        if more > 0 {
            self.not_read.push(format!("{more} more of this kind"));
        }
    }

    fn kernel(&mut self, model: &Model) {
        let living = model.netns.live().count();
        let dying = model.netns.all_dying().count();
        let addresses: usize = model.netns.live().map(|entry| entry.addresses.len()).sum();
        let dying = match dying {
            0 => String::new(),
            dying => format!(", {dying} more being taken down"),
        };
        let living = counted(living, "network namespace");
        let addresses = counted(addresses, "address");
        self.at.push(format!("{living} with {addresses}{dying}"));
        let stuck = model.blocked.iter().count();
        self.at.push(counted(stuck, "stuck task"));
        if model.netns.live().next().is_none() {
            self.not_read
                .push(String::from("network namespaces: none was listed"));
            self.blind = true;
        }
        // Without a list of devices even an empty namespace was not looked at.
        let unread = model.netns.live();
        let unread = unread.filter(|entry| entry.wiring.is_none() && entry.addresses.is_empty());
        let unread: Vec<u32> = unread.map(|entry| entry.id.inode).collect();
        self.blind |= !unread.is_empty();
        self.missing(
            unread
                .into_iter()
                .map(|inode| format!("the addresses in netns {inode}")),
        );
    }

    fn runtime(&mut self, model: &Model) {
        for list in model.runtime.lists() {
            let runtime = list.runtime.as_deref();
            let runtime = runtime.map(|name| format!(" ({name})")).unwrap_or_default();
            self.at.push(format!(
                "{} at {}{runtime}: {}",
                list.source,
                list.endpoint,
                counted(list.sandboxes().count(), "sandbox"),
            ));
        }
        for (source, ids) in model.runtime.container_sources() {
            self.at
                .push(format!("{source}: {}", counted(ids.len(), "container")));
        }
        if model.runtime.cri().is_none() && model.failure(CRI).is_none() {
            self.not_read.push(String::from("cri: not asked"));
        }
    }

    fn pods(&mut self, model: &Model) {
        match model.pods.list() {
            Some(list) => {
                let pods = counted(list.pods().len(), "pod");
                self.at
                    .push(format!("pods: {pods} on the list of {}", list.source));
            }
            None if model.pods_failure().is_none() => {
                self.not_read.push(String::from("pods: there is no list"));
            }
            None => {}
        }
    }

    fn cni(&mut self, model: &Model) {
        let cni = &model.cni;
        for listed in cni.stores() {
            let reservations = counted(listed.store.reservations.len(), "reservation");
            let path = listed.store.path.display();
            let kind = listed.store.kind.as_str();
            self.at.push(format!("{kind} store {path}: {reservations}"));
        }
        let folders: Vec<String> = cni
            .folders()
            .map(|path| path.display().to_string())
            .collect();
        match folders.is_empty() {
            true => self
                .not_read
                .push(String::from("libcni's cache: not looked at")),
            false => self.at.push(format!(
                "libcni's cache ({}): {}",
                folders.join(", "),
                counted(cni.attachments().count(), "attachment"),
            )),
        }
        match cni.networks() {
            None => self
                .not_read
                .push(String::from("the CNI configuration: not looked at")),
            Some(networks) => {
                self.at.push(counted(networks.len(), "pod network"));
                let kinds: Vec<_> = cni.stores().map(|listed| listed.store.kind).collect();
                let was_read = |network: &&Network| kinds.iter().any(|kind| kind.serves(network));
                let foreign = networks.iter().filter(|network| network.store.is_none());
                let foreign = foreign.filter(|network| !was_read(network));
                let foreign: Vec<String> = foreign
                    .filter_map(|network| Some((network, network.ipam.as_deref()?)))
                    .map(|(network, ipam)| {
                        let name = &network.name;
                        format!("what {ipam} has given out (network {name}): it keeps no store that is read")
                    })
                    .collect();
                self.missing(foreign.into_iter());
            }
        }
        self.missing(cni.unread().map(str::to_owned));
        let unread = cni.stores().flat_map(|listed| {
            let store = listed.store.path.display();
            let unread = listed.store.unread.iter();
            unread.map(move |why| format!("{store}: {why}"))
        });
        self.missing(unread);
    }
}
