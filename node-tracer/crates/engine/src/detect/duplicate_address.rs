//! duplicate-address: two network namespaces on the node have the same address
//! in the same network. That is one finding, however many addresses they share.
//!
//! Which network an address is on is told by what its device is plugged into
//! ([`links`](super::facts::links)): gateways, service addresses, VPN clients, docker
//! in docker and the nodes of a lab on one machine share addresses and never
//! meet. The addresses by which pods are reached meet always: Kubernetes has
//! each once. Where that is not known, the finding says so and no more.
//!
//! Anybody may make a user namespace, network namespaces in it, and any address
//! in these. One that neither CNI nor a runtime knows competes with none: that it
//! has addresses of others is told as information, once for each user. If root
//! has made it and it is plugged into the host, it is a pod's or a container's,
//! and another owner.
//!
//! An address that the kernel itself has found in use by another host of its link
//! ([`refused`]) needs no second namespace.
//!
//! Left out are addresses on the loopback device (anycast, direct server
//! return), unless they are a pod's own, and namespaces that a pod made for
//! itself. A sandbox whose CNI DEL runs is given a moment: some plugins release
//! the address before they remove it.

use crate::{
    detect::{
        Command, View, cordon, evidence,
        facts::{
            common::{label, user_kind, users},
            conflicts::{AllShared, Conflict, MAX_STRANGERS, Owner},
            ghosts, own,
            reservations::Judge,
        },
        fd_label, fitting, holders_of, joined, kubectl_words, netns_of, pod_of, pod_word, short_id,
        sleeps_in, stuck_in, task_label, uncordon, unknown_holder,
    },
    model::{
        netns::{NetnsEntry, Serial},
        pods::PodPresence,
        sandbox::PodEvidence,
    },
};
use std::{
    collections::{BTreeMap, HashSet},
    net::IpAddr,
};

use event::order::Order as _;
use event::{
    PodRef, UserNs,
    finding::{Detail, Evidence, Finding, Rule, Severity, finding_id},
    wording::advice::commented,
};

/// Addresses besides the first that a finding makes claims of.
const MAX_CLAIMED: usize = 8;

/// One finding for namespaces that share addresses in one network.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let mut groups: BTreeMap<_, Vec<(IpAddr, &Conflict<'_>)>> = BTreeMap::new();
    for (address, shared) in &view.shared().each {
        for conflict in &shared.conflicts {
            let owners = conflict.owners.iter();
            let mut owners: Vec<Serial> = owners.map(|owner| owner.entry.serial).collect();
            owners.sort_unstable();
            let group = groups.entry((owners, conflict.is_certain)).or_default();
            group.push((*address, conflict));
        }
    }
    // Each counts once, with those that it was found with.
    let mut more = view.shared().more.clone();
    let found = groups.into_values().filter_map(|mut group| {
        // What was first stays first: the finding has its ID from it.
        group.order_by_key(|(address, conflict)| (conflict.since(), *address));
        let netns = &view.model.netns;
        let more = group
            .iter()
            .filter_map(|(address, _)| more.remove(&netns.owners(*address)));
        let more = more.sum();
        finding(view, &group, more)
    });
    let found = found.chain(strangers_findings(view));
    found.chain(refused::findings(view)).collect()
}

/// What was not looked at, and who has most of it.
pub fn gap(view: &View<'_>) -> Option<String> {
    let AllShared {
        unjudged,
        unjudged_of,
        ..
    } = view.shared();
    if *unjudged == 0 {
        return None;
    }
    let of = |entry: &NetnsEntry| unjudged_of.get(&entry.serial).copied();
    let most = view.model.netns.live().max_by_key(|entry| of(entry));
    let most = most.map(|entry| format!(", most in {}", label(view.model, entry)));
    Some(format!(
        "duplicate-address: {unjudged} addresses that are in several netns and are no pod's IPs: \
         too many to check{}",
        most.unwrap_or_default()
    ))
}

/// `more`: addresses of the same namespaces that were not looked at.
fn finding<'a>(
    view: &View<'a>,
    conflicts: &[(IpAddr, &Conflict<'a>)],
    more: usize,
) -> Option<Finding> {
    let [(address, conflict), others @ ..] = conflicts else {
        return None;
    };
    let address = *address;
    let Conflict {
        owners,
        is_certain,
        doubtful,
    } = conflict;
    let (mut owners, is_certain) = (owners.clone(), *is_certain);
    let since = owners.get(1)?.since;
    let is_since_known = owners.get(1)?.is_dated;
    // What is left of a pod is older than what suffers from it, also where the
    // kernel does not tell.
    let is_ghost = |owner: &Owner<'a>| ghosts::verdict(view, owner.entry).is_some();
    let is_left = |owner: &Owner<'a>| ghosts::gone(view, owner.entry).is_some() || is_ghost(owner);
    owners.order_by_key(|owner| !is_left(owner));
    let newest = owners.last()?;
    let pods = owners.iter().filter(|owner| is_pods(owner)).count();
    let named = owners.iter().filter(|owner| !owner.entry.is_strangers());
    let named = named.count();
    let with_host = owners.iter().any(|owner| owner.entry.host);
    let ghosts = owners.iter().any(is_left);
    let mut inodes: Vec<u32> = owners.iter().map(|owner| owner.entry.id.inode).collect();
    inodes.sort_unstable();

    let mut said = FindingParts::default();
    for owner in &owners {
        claim_address(view, address, owner, &mut said);
        claim_owner(view, owner, &mut said);
    }
    for (address, conflict) in others.iter().take(MAX_CLAIMED) {
        for owner in &conflict.owners {
            claim_address(view, *address, owner, &mut said);
        }
    }
    let count = conflicts.len() + more;
    if count > 1 {
        let labels = joined(owners.iter().map(|owner| label(view.model, owner.entry)));
        let claim = format!("{labels} have other addresses in common");
        said.claims.push(evidence(claim, "kernel", since));
    }
    let FindingParts {
        claims,
        mut unknown,
        mut advice,
    } = said;
    for owner in owners.iter().filter(|owner| owner.entry.is_strangers()) {
        unknown.push(format!(
            "whose {} is: it is in a user namespace and connected to the host; neither CNI nor a \
             runtime names it",
            label(view.model, owner.entry)
        ));
    }
    for owner in doubtful {
        let label = label(view.model, owner.entry);
        unknown.push(format!(
            "whether {label}, which also has {address}, is in the same network"
        ));
    }
    if !is_certain {
        unknown.push(format!(
            "whether they share a network: what leads to {} is not known",
            joined(owners.iter().map(|owner| label(view.model, owner.entry)))
        ));
    }
    let is_cordoned = pods > 0 && is_certain;
    if is_cordoned {
        advice.insert(0, cordon(view));
    }
    let explain = Command::new("node-tracer explain").word(address.to_string());
    match (is_certain, ghosts) {
        // Once the ghost is released, the other one has the address to itself.
        (true, true) => advice.push(commented(explain, "only one netns must be left")),
        (true, false) => {
            let is_sure = unknown.is_empty() && are_all(view, address, &owners);
            advice.extend(closing_advice(view, address, &owners, is_sure));
            advice.push(commented(explain, "only one netns must be left"));
        }
        (false, _) => {
            advice.push(String::from(
                "see what each is connected to: in different networks both can keep the IP",
            ));
            advice.push(commented(explain, "their devices"));
        }
    }
    if is_cordoned {
        advice.push(uncordon(view, "only one netns has the IP"));
    }
    Some(Finding {
        rule: Rule::DuplicateAddress,
        severity: match (is_certain, pods) {
            (false, _) => Severity::Info,
            _ if named < 2 => Severity::Warning,
            (true, 2..) => Severity::Critical,
            (true, 1) if with_host || ghosts => Severity::Critical,
            (true, _) => Severity::Warning,
        },
        id: finding_id(
            &view.settings.boot_id,
            Rule::DuplicateAddress,
            &format!("{address} {}", joined(inodes)),
        ),
        since,
        title: title(view, address, count, &owners, is_certain),
        pod: pod_of(view.model, newest.entry),
        sandbox_id: newest.entry.sandbox.id.clone(),
        netns: Some(netns_of(newest.entry)),
        addresses: conflicts
            .iter()
            .map(|(address, _)| *address)
            .take(own::MAX_LISTED)
            .collect(),
        holders: owners
            .iter()
            .flat_map(|owner| holders_of(view.model, owner.entry))
            .collect(),
        evidence: claims,
        unknown,
        advice,
        detail: Detail {
            first_seen: !is_since_known,
            address_count: (count > 1).then_some(count as u64),
            ..Detail::default()
        },
    })
}

/// What is wrong in one line.
fn title(
    view: &View<'_>,
    address: IpAddr,
    count: usize,
    owners: &[Owner<'_>],
    is_certain: bool,
) -> String {
    let used = match count - 1 {
        0 => format!("{address} is used by"),
        more => format!("{address} and {more} more are used by"),
    };
    let kinds: Vec<&str> = owners
        .iter()
        .map(|owner| user_kind(view, owner.entry))
        .collect();
    let users = users(&kinds);
    let perhaps = match is_certain {
        true => "",
        false => "; networks may differ",
    };
    fitting(format!("{used} {users}{perhaps}"), || {
        format!("{used} {} netns{perhaps}", owners.len())
    })
}

/// An address of a user's own namespace that another namespace has.
struct Imitated<'a, 'b> {
    address: IpAddr,
    owner: &'b Owner<'a>,
    stranger: &'b Owner<'a>,
}

/// That users have made network namespaces with others' addresses: one finding
/// for each user, however many addresses these are, and one for all users if
/// they are many.
fn strangers_findings(view: &View<'_>) -> Vec<Finding> {
    let mut by_user: BTreeMap<u32, Vec<Imitated<'_, '_>>> = BTreeMap::new();
    for (address, shared) in &view.shared().each {
        let Some(owner) = shared.owners.first() else {
            continue;
        };
        for stranger in &shared.strangers {
            let uid = stranger.entry.user_ns.map_or(0, |its| its.uid);
            by_user.entry(uid).or_default().push(Imitated {
                address: *address,
                owner,
                stranger,
            });
        }
    }
    if by_user.len() > MAX_STRANGERS {
        let users: Vec<u32> = by_user.keys().copied().collect();
        let all = by_user.into_values().flatten().collect();
        return strangers_finding(view, &users, all).into_iter().collect();
    }
    let each = by_user.into_iter();
    each.filter_map(|(user, all)| strangers_finding(view, &[user], all))
        .collect()
}

fn strangers_finding(
    view: &View<'_>,
    users: &[u32],
    mut all: Vec<Imitated<'_, '_>>,
) -> Option<Finding> {
    all.order_by_key(|it| (it.stranger.since, it.address, it.stranger.entry.serial));
    let Imitated {
        address,
        owner,
        stranger: first,
    } = all.first()?;
    let mut seen = HashSet::new();
    let addresses: Vec<IpAddr> = all.iter().map(|it| it.address).collect();
    let addresses: Vec<IpAddr> = addresses
        .into_iter()
        .filter(|it| seen.insert(*it))
        .collect();
    let netns = &view.model.netns;
    let owners: HashSet<Vec<Serial>> = addresses.iter().map(|it| netns.owners(*it)).collect();
    let more = owners.iter().filter_map(|it| view.shared().more.get(it));
    let count = addresses.len() + more.sum::<usize>();
    let mut known = HashSet::new();
    let mut strangers: Vec<&Owner<'_>> = all.iter().map(|it| it.stranger).collect();
    strangers.retain(|stranger| known.insert(stranger.entry.serial));

    let mut claims = Vec::new();
    for stranger in strangers.iter().take(MAX_STRANGERS) {
        let entry = stranger.entry;
        let label = label(view.model, entry);
        if let Some(held) = stranger.held {
            let (held, ifname) = (&held.address, &held.address.ifname);
            let claim = format!("{label} has {held} on {ifname}");
            claims.push(evidence(claim, "kernel", stranger.since));
        }
        if let Some(UserNs { inode, uid }) = entry.user_ns {
            let claim = format!("{label} belongs to user namespace {inode}, which user {uid} made");
            claims.push(evidence(claim, "kernel", entry.seen));
        }
    }
    let mut unknown = Vec::new();
    let is_asked = view.model.runtime.lists().next().is_some()
        || view.model.cni.attachments().next().is_some();
    if !is_asked {
        unknown.push(format!(
            "whether {} is the sandbox of a pod with a user namespace: neither CRI nor libcni's \
             cache was read",
            label(view.model, first.entry)
        ));
    }
    if strangers
        .iter()
        .any(|stranger| stranger.entry.wiring.is_none())
    {
        unknown.push(String::from(
            "whether it is connected to the pod network: its devices were not read",
        ));
    }
    let whose = match (users, strangers.len()) {
        ([user], 1) => format!("a netns that user {user} made"),
        ([user], _) => format!("several netns that user {user} made"),
        _ => format!("netns of more than {MAX_STRANGERS} users"),
    };
    let user = user_kind(view, owner.entry);
    let title = match count - 1 {
        0 => format!("{address} of {user} is also in {whose}"),
        more => format!("{address} and {more} more are also in {whose}"),
    };
    let users: Vec<u32> = users.iter().copied().take(MAX_STRANGERS).collect();
    let subject = match users.as_slice() {
        [user] => format!("user {user}"),
        _ => String::from("users"),
    };
    let mut may_be_pods = strangers.iter();
    let may_be_pods = may_be_pods.find(|stranger| view.may_be_pods(stranger.entry));
    Some(Finding {
        rule: Rule::DuplicateAddress,
        severity: Severity::Info,
        id: finding_id(&view.settings.boot_id, Rule::DuplicateAddress, &subject),
        since: first.since,
        title,
        pod: pod_of(view.model, owner.entry),
        sandbox_id: owner.entry.sandbox.id.clone(),
        netns: Some(netns_of(first.entry)),
        addresses: addresses.into_iter().take(own::MAX_LISTED).collect(),
        holders: holders_of(view.model, first.entry),
        evidence: claims,
        unknown,
        advice: vec![match may_be_pods {
            Some(stranger) => format!(
                "find out whose {} is before you touch it: root made it, as a runtime does for a \
                 pod with a user namespace",
                label(view.model, stranger.entry)
            ),
            None => String::from(
                "nothing to do for the pod: no device of a user's netns here leads to the host",
            ),
        }],
        detail: Detail {
            address_count: (count > 1).then_some(count as u64),
            users,
            ..Detail::default()
        },
    })
}

/// Whether nobody besides these can have an address: every source has told all
/// that it knows, and whoever has it anywhere is one of them.
fn are_all(view: &View<'_>, address: IpAddr, owners: &[Owner<'_>]) -> bool {
    let model = view.model;
    let is_owner = |entry: &NetnsEntry| {
        let mut owners = owners.iter();
        owners.any(|owner| owner.entry.serial == entry.serial)
    };
    let mut with = model.netns.with_address(address);
    with.all(|entry| entry.dying.is_some() || is_owner(entry))
        && view.judge().is_some_and(Judge::is_certain)
        && model.failures().next().is_none()
        && model.losses.last.is_none()
}

fn is_pods(owner: &Owner<'_>) -> bool {
    owner.entry.sandbox.pod.is_some()
}

/// What ends a conflict of which no owner is a ghost, and everything else is
/// known. A pod is named for deletion only if the IPAM has the address for the
/// other one, who is its rightful holder then: who came later proves nothing.
fn closing_advice(
    view: &View<'_>,
    address: IpAddr,
    owners: &[Owner<'_>],
    is_sure: bool,
) -> Vec<String> {
    let is_rightful = |owner: &&Owner<'_>| own::is_reserved(view.model, owner.entry, address);
    let (rightful, others): (Vec<&Owner<'_>>, Vec<&Owner<'_>>) =
        owners.iter().partition(is_rightful);
    let lives = |owner: &Owner<'_>| owner.entry.sandbox.presence == PodPresence::Listed;
    // A file can be of yesterday.
    let is_of_now = view.model.pods.list().is_some_and(|list| list.vouched);
    let is_sure = is_sure && is_of_now && owners.iter().all(lives);
    let wrong = match (rightful.as_slice(), others.as_slice()) {
        // A pod that has both would lose both.
        ([right], [wrong]) if is_sure && right.entry.sandbox.uid() != wrong.entry.sandbox.uid() => {
            pod_of(view.model, wrong.entry)
        }
        _ => None,
    };
    match wrong.as_ref().and_then(kubectl_words) {
        Some(words) => vec![
            format!("{address} is reserved for the other pod: recreate this one, once cordoned"),
            commented(
                format!("kubectl delete pod {words}"),
                "a pod without an owner is lost, one with a local volume stays Pending",
            ),
        ],
        None => vec![
            format!("find out which of them owns {address} before you touch one of them"),
            commented(
                Command::new("kubectl get pods -A -o wide | grep -wF").word(address.to_string()),
                "who has it in the API",
            ),
        ],
    }
}

/// What a finding says besides its title.
#[derive(Default)]
struct FindingParts {
    claims: Vec<Evidence>,
    unknown: Vec<String>,
    advice: Vec<String>,
}

fn claim_address<'a>(view: &View<'a>, address: IpAddr, owner: &Owner<'a>, said: &mut FindingParts) {
    let label = label(view.model, owner.entry);
    match owner.held {
        Some(held) => {
            let found = match owner.is_dated {
                true => "",
                false => "; present at first look",
            };
            let ifname = &held.address.ifname;
            let claim = format!("{label} has {} on {ifname}{found}", held.address);
            said.claims.push(evidence(claim, "kernel", owner.since));
            said.claims.extend(refused::claim(view, owner));
        }
        None => {
            let claim = format!("{address} is the address of {label}");
            said.claims.push(evidence(claim, "cni", owner.since));
            said.unknown.push(format!(
                "whether {label} still uses {address}: no device there has it, as with gVisor or \
                 after a removal"
            ));
        }
    }
}

/// What is known of one owner, what is not, and what follows.
fn claim_owner<'a>(view: &View<'a>, owner: &Owner<'a>, said: &mut FindingParts) {
    let FindingParts {
        claims,
        unknown,
        advice,
    } = said;
    let entry = owner.entry;
    let label = label(view.model, entry);
    match entry.sandbox.known {
        Some(
            known @ (PodEvidence::Cni { at }
            | PodEvidence::Cache { at }
            | PodEvidence::Runtime { at, .. }),
        ) => {
            let id = short_id(entry.sandbox.id.as_deref().unwrap_or_default());
            let source = known.source();
            claims.push(evidence(format!("{label} is sandbox {id}"), source, at));
        }
        Some(PodEvidence::Cgroup { pid, at }) => {
            let claim = format!("{label} is a pod's: process {pid} in it is in a pod's cgroup");
            claims.push(evidence(claim, "kernel", at));
        }
        None => {}
    }
    let whose = whose(view, entry);
    let stuck = stuck_in(view.model, entry);
    for blocked in &stuck {
        let claim = format!(
            "{}, in state D{}, holds {whose} open",
            task_label(&blocked.task),
            sleeps_in(blocked),
        );
        claims.push(evidence(claim, "kernel", blocked.since));
    }
    if let Some(at) = entry.held_at.filter(|_| stuck.is_empty()) {
        let task = entry.tasks.iter().min_by_key(|task| (task.pid, task.tid));
        let mount = entry.mounts.first();
        let holder = task.map(task_label);
        let holder = holder.or_else(|| mount.map(|path| format!("the mount {}", path.display())));
        if let Some(holder) = holder {
            claims.push(evidence(
                format!("{holder} holds {whose} open"),
                "kernel",
                at,
            ));
        }
    }
    if let (Some(first), Some(at)) = (entry.fds.first(), entry.held_at) {
        let fd = fd_label(first);
        let claim = format!("no task is in {label}, no mount; {fd} holds it open");
        claims.push(evidence(claim, "kernel", at));
    }
    if let Some(since) = ghosts::verdict(view, entry).map(|ghost| ghost.since) {
        let fate = match entry.sandbox.presence {
            PodPresence::Terminating(_) => "is past its deletion time",
            PodPresence::Finished(_) => "has run to its end",
            _ => "is not in the API",
        };
        claims.push(evidence(
            format!("{label} is a ghost: its pod {fate}"),
            "tracer",
            since,
        ));
        advice.push(format!(
            "{label} is a ghost: its ghost-sandbox finding says how to release it"
        ));
    }
    if entry.held_at.is_none() && !entry.host {
        unknown.push(format!(
            "what holds {label} open: not everything was looked through so far"
        ));
    } else if entry.is_held_by_nothing_found() && !entry.host {
        unknown.push(unknown_holder(&format!("{label} open")));
    }
    if !is_pods(owner) && !entry.host {
        unknown.push(format!("whose {label} is"));
    } else if is_pods(owner) && ghosts::is_untold(view, entry) {
        let why = view.model.pods.silence();
        unknown.push(format!("whether the pod of {label} still exists: {why}"));
    }
}

/// A namespace as its pod's: `netns 4026532200 of the deleted pod
/// shop/checkout`.
fn whose(view: &View<'_>, entry: &NetnsEntry) -> String {
    let inode = entry.id.inode;
    match pod_of(view.model, entry).filter(|_| !entry.host) {
        Some(pod) => format!("netns {inode} of {}", pod_words(view, entry, &pod)),
        None => label(view.model, entry),
    }
}

fn pod_words(view: &View<'_>, entry: &NetnsEntry, pod: &PodRef) -> String {
    match ghosts::gone(view, entry) {
        Some(_) => format!("the deleted pod {}", pod_word(pod)),
        None => pod.label(),
    }
}

mod refused;

#[cfg(test)]
mod tests;
