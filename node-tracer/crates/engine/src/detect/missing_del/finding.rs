//! An attachment that nobody has taken back, in words.

use std::collections::BTreeSet;

use crate::{
    detect::{
        View, evidence,
        facts::stays::Stays,
        few, heard, joined,
        missing_del::{Case, Gone, Missing, advice},
        netns_of, silence, unfound, unlisted, unread,
    },
    model::runtime::CRI,
};
use event::order::Order as _;
use event::{
    Network,
    finding::{
        Detail, Evidence, Finding, FindingNetns, LeakedReservation, Rule, Severity, finding_id,
    },
    wording::{
        plural::counted,
        subjects::{pod_word, short_id},
    },
};

/// Attachments of a network that are claimed one by one.
const TOLD: usize = 3;
/// What has become of a network that is not configured as it was.
const CHANGED: &str = "renamed, changed or removed";

impl Missing<'_> {
    pub(super) fn finding(&self, view: &View<'_>) -> Finding {
        let Case {
            id, ifname, pod, ..
        } = &self.case;
        let subject = format!("{id} {ifname}");
        Finding {
            rule: Rule::MissingDel,
            severity: self.severity,
            id: finding_id(&view.settings.boot_id, Rule::MissingDel, &subject),
            since: match self.case.gone {
                Gone::Netns(at) | Gone::Pod(at, _) | Gone::Found(at) => at,
            },
            title: self.title(),
            pod: Some(pod.clone()),
            sandbox_id: Some((*id).to_owned()),
            netns: self.netns(),
            addresses: self.case.ips.clone(),
            holders: Vec::new(),
            evidence: self.evidence(view),
            unknown: self.unknown(view),
            advice: advice::of(view, &[self]),
            detail: Detail {
                first_seen: matches!(self.case.gone, Gone::Found(_)),
                reservations: self.reservation().into_iter().collect(),
                ..Detail::default()
            },
        }
    }

    fn title(&self) -> String {
        let Case { ips, .. } = &self.case;
        let gone = "no CNI DEL for a sandbox that is gone";
        match self.stays {
            Stays::Reserved { address, .. } if self.left_over => {
                format!(
                    "{address} stays reserved in an unused store: no CNI DEL for a gone sandbox"
                )
            }
            Stays::Reserved { address, .. } if self.successor.is_some() => {
                format!("{address} stays reserved: its network was {CHANGED}")
            }
            Stays::Reserved { address, .. } => format!("{address} stays reserved: {gone}"),
            _ if ips.is_empty() => format!("{gone}; its IPs are unknown"),
            _ => format!("{} may stay reserved: {gone}", few(ips)),
        }
    }

    fn netns(&self) -> Option<FindingNetns> {
        if let Gone::Pod(_, Some(entry)) = self.case.gone {
            return Some(netns_of(entry));
        }
        let called = self.case.called.and_then(|calls| calls.netns);
        let cached = self.case.cached;
        let netns = called.or_else(|| match self.case.gone {
            Gone::Netns(_) => cached?.netns,
            _ => None,
        });
        let path = cached.map(|each| each.netns_path.as_str());
        let paths = path.filter(|path| !path.is_empty()).map(Into::into);
        Some(FindingNetns {
            id: netns?,
            paths: paths.into_iter().collect(),
        })
    }

    pub(super) fn reservation(&self) -> Option<LeakedReservation> {
        let Stays::Reserved {
            address, holder, ..
        } = self.stays
        else {
            return None;
        };
        Some(LeakedReservation {
            path: holder.path.clone(),
            address,
            container_id: holder.container_id.clone(),
            ifname: holder.ifname.clone(),
            reserved: None,
        })
    }

    fn evidence(&self, view: &View<'_>) -> Vec<Evidence> {
        let case = &self.case;
        let mut claims: Vec<Evidence> = self.renamed().into_iter().collect();
        claims.push(self.add());
        match case.gone {
            Gone::Netns(at) => {
                let netns = self.netns().map(|netns| format!(" {}", netns.id.inode));
                let netns = netns.unwrap_or_default();
                let claim = format!("its netns{netns} is gone");
                claims.push(evidence(claim, "kernel", at));
            }
            Gone::Found(at) => {
                let path = case.cached.map_or("", |each| each.netns_path.as_str());
                let claim = format!("its netns is no longer at {path}");
                claims.push(evidence(claim, "kernel", at));
            }
            Gone::Pod(at, entry) => {
                let list = view.model.pods.list();
                let source = list.map_or("pods", |list| list.source.as_str());
                let claim = format!("{} disappeared from the API", case.pod.label());
                claims.push(evidence(claim, source, at));
                if let Some(entry) = entry {
                    let claim = format!("its netns {} lives and has no IP", entry.id.inode);
                    let at = entry.wiring.as_ref().map_or(at, |wiring| wiring.at);
                    claims.push(evidence(claim, "kernel", at));
                }
            }
        }
        claims.push(match (case.called, case.cached) {
            (None, Some(cached)) if self.successor.is_some() => evidence(
                format!(
                    "libcni's cache still has the ADD to network {}",
                    cached.network
                ),
                "libcni",
                cached.written,
            ),
            (None, Some(cached)) => evidence(
                "CNI DEL not completed (libcni's cache has the ADD)",
                "libcni",
                cached.written,
            ),
            _ => evidence(
                "no CNI DEL for it was seen since its ADD",
                "cni",
                case.added,
            ),
        });
        claims.extend(self.stays.claim(case.id));
        claims.extend(self.no_longer_in_use());
        if let Some(list) = heard(view.model) {
            let claim = match list.of_container(case.id).map(|sandbox| sandbox.ready) {
                Some(Some(true)) => Some("CRI: sandbox Ready"),
                Some(_) => Some("CRI: sandbox NotReady"),
                None if list.partial.is_none() => Some("CRI: no such sandbox"),
                None => None,
            };
            claims.extend(claim.map(|claim| evidence(claim, CRI, list.at)));
        }
        claims
    }

    /// That its store is left over, with the time for which that is so.
    fn no_longer_in_use(&self) -> Option<Evidence> {
        let Stays::Reserved { at, .. } = self.stays else {
            return None;
        };
        self.left_over.then(|| {
            let claim = "the store is unused: no configured network has it, and none of its containers \
                         exists";
            evidence(claim, "cni", at)
        })
    }

    /// That a DEL does not look into its store any more.
    fn renamed(&self) -> Option<Evidence> {
        let Network { name, file, .. } = self.successor?;
        let Stays::Reserved {
            address,
            holder,
            at,
            ..
        } = self.stays
        else {
            return None;
        };
        let store = holder.path.parent()?.display();
        let claim = format!(
            "no configured network uses {store}, and {name} ({}) has {address} in its ranges: DEL \
             runs with the configuration of now",
            file.display()
        );
        Some(evidence(claim, "cni", at))
    }

    fn add(&self) -> Evidence {
        let Case {
            id,
            ifname,
            pod,
            ips,
            network,
            added,
            called,
            ..
        } = &self.case;
        let gave = match ips.as_slice() {
            [] => String::new(),
            ips => format!(" and gave it {}", joined(ips)),
        };
        let network = network.map(|name| format!(" to network {name}"));
        let network = network.unwrap_or_default();
        let (id, of) = (short_id(id), pod_word(pod));
        match called {
            Some(calls) if calls.added().is_none() => evidence(
                format!("CNI ADD of {ifname} of sandbox {id} of {of} failed"),
                "cni",
                *added,
            ),
            Some(_) => evidence(
                format!("CNI ADD attached {ifname} of sandbox {id} of {of}{network}{gave}"),
                "cni",
                *added,
            ),
            None => evidence(
                format!(
                    "libcni's cache: CNI ADD attached {ifname} of sandbox {id} of {of}{network}{gave}"
                ),
                "libcni",
                *added,
            ),
        }
    }

    fn unknown(&self, view: &View<'_>) -> Vec<String> {
        let model = view.model;
        let mut unknown = Vec::new();
        if matches!(self.case.gone, Gone::Found(_)) {
            unknown.push(String::from(
                "when the netns went: already gone at the first look",
            ));
        }
        match self.stays {
            Stays::Reserved { .. } => {}
            _ => unknown.push(String::from(
                "whether its IP is still reserved: no store that was read would know",
            )),
        }
        if self.successor.is_some() {
            unknown.push(String::from(
                "whether DEL ran: with another network's configuration it succeeds and frees nothing",
            ));
        }
        match heard(model) {
            Some(list) if list.of_container(self.case.id).is_some() => unknown.push(String::from(
                "whether DEL will still run: the runtime calls it when it stops or removes the \
                 sandbox",
            )),
            Some(list) if list.partial.is_none() => {}
            _ => unknown.push(format!(
                "whether the runtime still has the sandbox and will call DEL: {}",
                silence(model)
            )),
        }
        if self.case.called.is_none() {
            let lives = "whether its netns still lives";
            let unread = match unread(view) {
                0 => None,
                unread => Some(counted(unread, "netns")),
            };
            unknown.extend(unread.map(|unread| format!("{lives}: {unread} could not be read")));
            unknown.extend(unfound(model).map(|why| format!("{lives}: {why}")));
        }
        if self.case.gone.is_inferred() {
            let why = unlisted(view);
            unknown.extend(why.map(|why| format!("whether a task of it still runs: {why}")));
        }
        if self.case.may_have_been_lost(model) {
            unknown.push(String::from(
                "whether a DEL was among the records that were lost",
            ));
        }
        unknown
    }
}

/// Many attachments of one network, of which only libcni's cache knows.
pub(super) fn many(view: &View<'_>, network: &str, all: &[Missing<'_>]) -> Option<Finding> {
    let mut all: Vec<&Missing<'_>> = all.iter().collect();
    all.order_by_key(|missing| (missing.case.added, missing.case.id));
    let reservations: Vec<_> = all.iter().filter_map(|each| each.reservation()).collect();
    let addresses: BTreeSet<_> = all.iter().flat_map(|each| each.case.ips.clone()).collect();
    let renamed = all.iter().find_map(|each| each.renamed());
    let mut claims: Vec<Evidence> = renamed.into_iter().collect();
    let newest = all.iter().skip(TOLD - 1).next_back();
    for each in all.iter().take(TOLD - 1).chain(newest) {
        claims.push(each.add());
    }
    let at = view.model.cni.attachments_at();
    let at = at.or(newest.map(|each| each.case.added));
    let Some(at) = at else {
        return all.first().map(|each| each.finding(view));
    };
    let number = all.len();
    let claim = format!("the netns of {number} sandboxes of network {network} are gone");
    claims.push(evidence(claim, "kernel", at));
    let is_renamed = all.iter().all(|each| each.successor.is_some());
    let claim = match is_renamed {
        true => "libcni's cache still has the ADDs",
        false => "CNI DEL not completed (libcni's cache has the ADDs)",
    };
    claims.push(evidence(claim, "libcni", at));
    for each in all
        .iter()
        .filter(|each| each.reservation().is_some())
        .take(TOLD)
    {
        claims.extend(each.stays.claim(each.case.id));
    }
    let unused = all.iter().filter(|each| each.left_over);
    claims.extend(unused.clone().find_map(|each| each.no_longer_in_use()));
    let what = match reservations.len() {
        stay if stay > 0 && unused.count() == stay => {
            format!("{stay} of their IPs stay reserved in an unused store")
        }
        0 => String::from("their IPs may stay reserved"),
        stay => format!("{stay} of their IPs stay reserved"),
    };
    let unknown = all.iter().flat_map(|each| each.unknown(view));
    let unknown: BTreeSet<String> = unknown.collect();
    let subject = format!("network {network}");
    Some(Finding {
        rule: Rule::MissingDel,
        severity: all
            .iter()
            .map(|each| each.severity)
            .max()
            .unwrap_or(Severity::Info),
        id: finding_id(&view.settings.boot_id, Rule::MissingDel, &subject),
        since: at,
        title: match is_renamed {
            true => format!("{network} was {CHANGED}: {number} of its sandboxes are gone; {what}"),
            false => format!("{network}: {number} sandboxes are gone without CNI DEL; {what}"),
        },
        pod: None,
        sandbox_id: None,
        netns: None,
        addresses: addresses.into_iter().collect(),
        holders: Vec::new(),
        evidence: claims,
        unknown: unknown.into_iter().collect(),
        advice: advice::of(view, &all),
        detail: Detail {
            first_seen: true,
            reservations,
            ..Detail::default()
        },
    })
}
