//! leaked-reservation: addresses that a store of reservations keeps for
//! containers that do not exist. Nobody will call CNI DEL for them; who else gives
//! them back depends on the store.
//!
//! A namespace that could not be visited, or not even be found, can have any
//! address, a ghost's among them: then nothing is certain, and no file is to be
//! moved.
//!
//! What counts as a container that exists is [`reservations`](crate::detect::facts::reservations)'s. That a DEL was missed
//! is another rule's; this one looks at what is left.

mod advice;
mod others;

use crate::detect::{View, evidence, facts::leaks::Leak, is, short_id, silence};
use event::{
    Reservation, StoreKind,
    finding::{Detail, Evidence, Finding, LeakedReservation, Rule, Severity, finding_id},
    wording::plural::counted,
};

/// Reservations that are listed one by one.
const LISTED: usize = 4_096;
/// Those of them that are claimed one by one.
const TOLD: usize = 3;
/// One finding a store.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let Some(judge) = view.judge() else {
        return Vec::new();
    };
    let stores = view.model.cni.stores();
    stores
        .filter_map(|listed| Leak::of(view, judge, listed))
        .map(|leak| leak.finding())
        .collect()
}

/// Why stores that were listed could not be judged.
pub fn gap(view: &View<'_>) -> Option<String> {
    let mut stores = view.model.cni.stores();
    let any = stores.any(|listed| !listed.store.reservations.is_empty());
    let Some(judge) = view.judge() else {
        return any.then(|| {
            format!(
                "leaked-reservation: which reservations are leaked: {}, and no list of containers \
                 by cgroup",
                silence(view.model)
            )
        });
    };
    let mut stores = view.model.cni.stores();
    let stale = stores.find(|listed| {
        let reservations = &listed.store.reservations;
        !reservations.is_empty() && !judge.can_judge(listed)
    })?;
    let path = stale.store.path.display();
    let why = match stale.store.kind {
        StoreKind::HostLocal => "was listed before the containers",
        _ => "can no longer be read",
    };
    Some(format!(
        "leaked-reservation: which reservations of {path} are leaked: it {why}"
    ))
}

impl Leak<'_, '_> {
    fn finding(&self) -> Finding {
        let path = &self.store().path;
        let subject = path.to_string_lossy();
        let told = self.leaked.iter().take(LISTED);
        Finding {
            rule: Rule::LeakedReservation,
            severity: match self.is_left_over() || !self.judge.is_certain() {
                true => Severity::Info,
                false => Severity::Warning,
            },
            id: finding_id(
                &self.view.settings.boot_id,
                Rule::LeakedReservation,
                &subject,
            ),
            since: self.listed.at,
            title: self.title(),
            pod: None,
            sandbox_id: None,
            netns: None,
            addresses: told.clone().map(|each| each.address).collect(),
            holders: Vec::new(),
            evidence: self.evidence(),
            unknown: self.unknown(),
            advice: self.advice(),
            detail: Detail {
                first_seen: true,
                reservations: told.map(|each| record(each)).collect(),
                ..Detail::default()
            },
        }
    }

    /// The network's name; else what the store's folder or file is called.
    fn network(&self) -> String {
        let path = &self.store().path;
        if let Some(network) = self.view.model.cni.network_of(path) {
            return network.name.clone();
        }
        let name = path.file_name().unwrap_or(path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    fn title(&self) -> String {
        let name = self.network();
        let leaked = self.leaked.len();
        let of = format!(
            "{leaked} of {}",
            counted(self.store().reservations.len(), "IP")
        );
        if self.is_left_over() {
            return format!(
                "{name}: {of} {} left over; no network uses them",
                is(leaked)
            );
        }
        if self.judge.is_blind() {
            return format!("{name}: {of} may be leaked; not every netns was read");
        }
        if self.judge.is_half_seen() {
            return format!("{name}: {of} may be leaked; not every source was read");
        }
        let whom = match (leaked, self.judge.is_vouched()) {
            (1, true) => "a container that is gone",
            (_, true) => "containers that are gone",
            (1, false) => "a container without a cgroup",
            (_, false) => "containers without a cgroup",
        };
        format!("{name}: {of} {} reserved for {whom}", is(leaked))
    }

    fn evidence(&self) -> Vec<Evidence> {
        let store = self.store().kind.as_str();
        let at = self.listed.at;
        let all = counted(self.store().reservations.len(), "reservation");
        let path = self.store().path.display();
        let mut claims = vec![evidence(format!("{path} has {all}"), store, at)];
        for (proof, number) in &self.live {
            let (what, source, at) = self.judge.words(*proof, at);
            claims.push(evidence(format!("{number} of them: {what}"), source, at));
        }
        if self.young > 0 {
            let claim = format!(
                "{} of them: no container yet, but younger than a minute",
                self.young
            );
            claims.push(evidence(claim, store, at));
        }
        for (doubt, number) in &self.untold {
            let claim = format!(
                "{number} of them: no container of that ID, but {}",
                doubt.words()
            );
            claims.push(evidence(claim, store, at));
        }
        let leaked = self.leaked.len();
        let known = self.judge.basis();
        let claim = format!("{leaked} of them: no container of that ID in any of: {known}");
        claims.push(evidence(claim, "tracer", at));
        let is_empty = |each: &&&Reservation| each.holder.container_id.is_empty();
        let empty = self.leaked.iter().filter(is_empty).count();
        if empty > 0 {
            let claim =
                format!("{empty} of these: the file is empty, so no CNI DEL can free the IP");
            claims.push(evidence(claim, store, at));
        }
        // The oldest ones and the newest.
        let newest = self.leaked.iter().skip(TOLD - 1).next_back();
        for each in self.leaked.iter().take(TOLD - 1).chain(newest) {
            claims.push(evidence(reserved(each), store, each.modified));
        }
        if self.is_left_over() {
            let claim =
                "the store is unused: no configured network has it, and none of its containers \
                 exists"
                    .to_owned();
            claims.push(evidence(claim, "cni", at));
        }
        claims
    }

    fn unknown(&self) -> Vec<String> {
        let mut unknown = self.judge.doubts();
        if let [first, more @ ..] = self.store().unread.as_slice() {
            let more = match more.len() {
                0 => String::new(),
                n => format!(", and {n} more"),
            };
            unknown.push(format!(
                "what could not be read in the store: {first}{more}"
            ));
        }
        if self.leaked.len() > LISTED {
            let more = self.leaked.len() - LISTED;
            unknown.push(format!(
                "which the other {more} are: only {LISTED} are listed"
            ));
        }
        let source = match self.store().kind {
            StoreKind::HostLocal => "the file",
            _ => "the store",
        };
        unknown.push(format!(
            "when the containers went: {source} has only the time of the reservation"
        ));
        unknown
    }
}

fn reserved(each: &Reservation) -> String {
    let address = each.address;
    let holder = &each.holder;
    let ifname = holder.ifname.as_deref().unwrap_or_default();
    let pod = holder
        .pod
        .as_ref()
        .map(|pod| format!(" of {}", pod.label()));
    let pod = pod.unwrap_or_default();
    match (holder.container_id.as_str(), ifname) {
        ("", _) => format!("{address} was reserved; the file is empty and names no container"),
        (id, "") => format!("{address} was reserved for {}{pod}", short_id(id)),
        (id, ifname) => format!(
            "{address} was reserved for {} ({ifname}){pod}",
            short_id(id)
        ),
    }
}

fn record(each: &Reservation) -> LeakedReservation {
    LeakedReservation {
        path: each.holder.path.clone(),
        address: each.address,
        container_id: each.holder.container_id.clone(),
        ifname: each.holder.ifname.clone(),
        reserved: Some(each.modified),
    }
}

#[cfg(test)]
mod tests;
