//! The answer in one sentence.

use std::{cmp::Reverse, collections::BTreeSet, net::IpAddr};

use super::phrases::{self, holder_name, keeper, list, stuck_holder};
use event::explanation::{CallPart, Explanation, Kind, NetnsPart, PodPart, PodState, SandboxPart};
use event::{
    CniCommand,
    clock::Timestamp,
    finding::{Holder, Rule, Severity},
    order::Order as _,
    wording::subjects::{pod_word, short_id},
};

/// Users of an address that are named.
const USERS: usize = 4;
/// Said of a namespace that was not visited.
const UNVISITED: &str = "its addresses were not read";

/// What an answer rests on, besides what is told of the subject: what was not
/// read must not become a "no".
#[derive(Clone, Copy, Debug)]
pub(super) struct Basis<'a> {
    /// The subject's own namespaces, by inode; others only share an address with
    /// them.
    pub(super) own: &'a [u32],
    /// The subject's own pods; others, too, have to do with its addresses.
    pub(super) uids: &'a BTreeSet<String>,
    /// The one that takes packets to the address, which no device has.
    pub(super) taker: Option<u32>,
    /// Those of all whose devices and addresses were not read.
    pub(super) unvisited: &'a [u32],
    /// All that was not read, of the whole node.
    pub(super) not_read: &'a [String],
    /// There can be a namespace among that.
    pub(super) blind: bool,
    pub(super) now: Timestamp,
}

impl Basis<'_> {
    /// That a namespace shows no address does not mean that it has none.
    fn is_unvisited(&self, part: &NetnsPart) -> bool {
        self.unvisited.contains(&part.id.inode)
    }

    /// Nothing leads from the subject to a namespace: whose a namespace is, is
    /// told by runtimes, CNI and the kernel together.
    fn no_namespace(&self) -> &'static str {
        match self.not_read.is_empty() {
            true => "it has no netns here",
            false => "no netns of it found; incomplete",
        }
    }
}

/// What an explanation comes to.
pub(super) fn answer(all: &Explanation, basis: &Basis<'_>) -> String {
    let subject = &all.subject;
    if !subject.found {
        return nothing(subject.kind, &subject.value, basis.not_read);
    }
    let mine = own(all, basis);
    match subject.kind {
        Kind::Address => address(all, basis),
        Kind::Pod | Kind::PodUid => pods(all, &[], basis).join("; "),
        Kind::Container => container(all, &mine, basis),
        Kind::Netns | Kind::NetnsPath => namespace(all, &mine, basis),
        Kind::Pid => task(all, &mine, basis.now),
    }
}

/// The subject's own namespaces.
fn own<'e>(all: &'e Explanation, basis: &Basis<'_>) -> Vec<&'e NetnsPart> {
    let is_own = |part: &&NetnsPart| basis.own.contains(&part.id.inode);
    all.netns.iter().filter(is_own).collect()
}

/// The answer where somebody has an address that another has as well, or that
/// a deleted pod still has: what is wrong comes first.
pub(super) fn shared(all: &Explanation, basis: &Basis<'_>) -> Option<String> {
    let (said, told) = wrong(all, basis)?;
    let others = match all.subject.kind {
        Kind::Pod | Kind::PodUid => pods(all, &told, basis),
        _ => Vec::new(),
    };
    let clauses: Vec<String> = std::iter::once(said).chain(others).collect();
    Some(clauses.join("; "))
}

/// What is wrong, and the subject's own namespaces that are told of with it.
fn wrong<'e>(all: &'e Explanation, basis: &Basis<'_>) -> Option<(String, Vec<&'e NetnsPart>)> {
    let subject = all.subject.kind;
    let is_own = |part: &&NetnsPart| basis.own.contains(&part.id.inode);
    let gone = |part: &&NetnsPart| part.pod_state == Some(PodState::Gone);
    let asked: Option<IpAddr> = match subject {
        Kind::Address => all.subject.value.parse().ok(),
        _ => None,
    };
    let matters = |ip: &&IpAddr| asked.is_none_or(|asked| asked == **ip);
    let findings = all.findings.iter().map(|part| &part.finding);
    let duplicate = findings.clone().find_map(|finding| {
        let is_duplicate =
            finding.rule == Rule::DuplicateAddress && finding.severity > Severity::Info;
        let mut addresses = finding.addresses.iter().filter(|_| is_duplicate);
        let ip = addresses.find(matters)?;
        let users: Vec<&NetnsPart> = all.netns.iter().filter(|part| has(part, *ip)).collect();
        (users.len() > 1).then_some((*ip, users))
    });
    if let Some((ip, users)) = duplicate {
        let (own, others): (Vec<&NetnsPart>, Vec<&NetnsPart>) =
            users.into_iter().partition(|part| is_own(part));
        let name = |parts: &[&NetnsPart]| {
            let mut named: Vec<String> = parts
                .iter()
                .take(USERS)
                .map(|part| who(part, all))
                .collect();
            if parts.len() > USERS {
                named.push(format!("{} more", parts.len() - USERS));
            }
            phrases::and(&named)
        };
        let said = match subject {
            Kind::Address => format!("{ip} CONFLICT: held by {}", name(&own)),
            // All are the subject's own: two sandboxes of one pod.
            _ if others.is_empty() => {
                format!(
                    "{} CONFLICT: {ip} held by {}",
                    itself(all, &own),
                    name(&own)
                )
            }
            _ => format!(
                "{} CONFLICT: {ip} also held by {}",
                itself(all, &own),
                name(&others)
            ),
        };
        return Some((said, own));
    }
    // In the order in which the findings say what to do.
    let mut ghosts: Vec<&NetnsPart> = findings
        .filter(|finding| finding.rule == Rule::GhostSandbox)
        .filter_map(|finding| {
            let inode = finding.netns.as_ref()?.id.inode;
            let mut own = all.netns.iter().filter(is_own).filter(gone);
            own.find(|part| part.id.inode == inode)
        })
        .collect();
    let ghost = *ghosts.first()?;
    let known: Vec<u32> = ghosts.iter().map(|part| part.id.inode).collect();
    let others = all.netns.iter().filter(is_own).filter(gone);
    ghosts.extend(others.filter(|part| !known.contains(&part.id.inode)));
    let mut addresses: Vec<IpAddr> = match asked {
        Some(asked) => vec![asked],
        None => ghosts.iter().flat_map(|part| addresses(part)).collect(),
    };
    let mut said = BTreeSet::new();
    addresses.retain(|ip| said.insert(*ip));
    let why = ghosts
        .iter()
        .flat_map(|part| &part.holders)
        .find_map(|holder| phrases::state(holder, basis.now));
    let why = why.map(|why| format!("; {why}")).unwrap_or_default();
    let said = match (subject, addresses.as_slice()) {
        (Kind::Address, [ip]) => format!("{ip} GHOST: held by {}{why}", who(ghost, all)),
        (_, []) => format!(
            "{} GHOST: its netns is still there{why}",
            itself(all, &[ghost])
        ),
        (_, some) => {
            let whose = match (subject, ghosts.len()) {
                (Kind::Pod | Kind::PodUid, _) | (_, 1) => "",
                _ => "its pod ",
            };
            format!(
                "{} GHOST: {whose}still holds {}{why}",
                itself(all, &[ghost]),
                list(some)
            )
        }
    };
    Some((said, ghosts))
}

fn has(part: &NetnsPart, ip: IpAddr) -> bool {
    part.addresses.iter().any(|each| each.address == ip)
}

/// `deleted default/stuck`, `running default/reborn`
fn who(part: &NetnsPart, all: &Explanation) -> String {
    if part.host {
        return phrases::netns(part);
    }
    let Some(pod) = &part.pod else {
        return format!("netns {} (no pod)", part.id.inode);
    };
    let listed = all
        .pods
        .iter()
        .find(|own| own.uid.is_some() && own.uid == pod.uid);
    let phase = listed.and_then(|own| own.phase.as_deref());
    let state = match part.pod_state {
        Some(PodState::Gone) => "deleted ",
        Some(PodState::Finished) => "finished ",
        Some(PodState::Terminating) => "terminating ",
        Some(PodState::Listed) if phase == Some("Running") => "running ",
        Some(PodState::Listed) if phase == Some("Pending") => "pending ",
        Some(PodState::Listed | PodState::Exempt) | None => "",
    };
    format!("{state}{}", pod_word(pod))
}

/// The subject by name: `default/stuck (deleted)`, `dd (9) of default/stuck`. One line has room for it.
fn itself(all: &Explanation, own: &[&NetnsPart]) -> String {
    let subject = &all.subject;
    // The table says in which state its pod is.
    let of = own.first().map(|part| match &part.pod {
        Some(pod) => pod_word(pod),
        None => who(part, all),
    });
    let of = of.unwrap_or_default();
    let is_gone = own
        .iter()
        .all(|part| part.pod_state == Some(PodState::Gone));
    match subject.kind {
        Kind::Address => subject.value.clone(),
        Kind::Pod | Kind::PodUid => {
            let pod = own.first().and_then(|part| part.pod.as_ref());
            let name = pod.map_or_else(|| subject.value.clone(), pod_word);
            match is_gone {
                true => format!("{name} (deleted)"),
                false => name,
            }
        }
        Kind::Container => format!("{} of {of}", short_id(&subject.value)),
        Kind::Netns => format!("netns {} of {of}", subject.value),
        Kind::NetnsPath => match own.first() {
            Some(part) => format!("netns {} of {of}", part.id.inode),
            None => subject.value.clone(),
        },
        Kind::Pid => {
            let task = all.tasks.first().and_then(holder_name);
            let task = task.unwrap_or_else(|| format!("process {}", subject.value));
            format!("{task} of {of}")
        }
    }
}

fn nothing(kind: Kind, value: &str, not_read: &[String]) -> String {
    let what = match kind {
        Kind::Address => value.to_owned(),
        Kind::Pod => format!("the pod {value}"),
        Kind::PodUid => format!("the pod with the UID {value}"),
        Kind::Container => format!("a sandbox or container whose ID begins with {value}"),
        Kind::Netns => format!("netns {value}"),
        Kind::NetnsPath => format!("a network namespace at {value}"),
        Kind::Pid => format!("process {value}"),
    };
    if !not_read.is_empty() {
        return format!("no holder of {what} found; incomplete");
    }
    match kind {
        Kind::Address => format!(
            "nobody here holds {value}: no netns, reservation, CNI attachment, sandbox or pod has it"
        ),
        _ => format!("nothing on this node knows {what}"),
    }
}

fn address(all: &Explanation, basis: &Basis<'_>) -> String {
    let ip = &all.subject.value;
    let has = |part: &&NetnsPart| {
        let mut addresses = part.addresses.iter();
        addresses.any(|each| each.address.to_string() == *ip)
    };
    let users: Vec<&NetnsPart> = all.netns.iter().filter(has).collect();
    let mut takers = all.netns.iter();
    if let Some(taker) = takers.find(|part| basis.taker == Some(part.id.inode)) {
        let netns = kept(taker, basis.now);
        return format!("{ip} is on no device; a local route takes it in {netns}");
    }
    if users.is_empty() {
        let read = match basis.blind {
            true => "; incomplete",
            false => "",
        };
        let named = named_by(all);
        return format!("no netns has {ip}{named}{read}");
    }
    let named = users.iter().take(USERS);
    let mut named: Vec<String> = named.map(|part| kept(part, basis.now)).collect();
    if users.len() > USERS {
        let more = users.len() - USERS;
        named.push(format!("{more} more network namespaces"));
    }
    format!("{ip} is held by {}", named.join("; and by "))
}

/// A namespace and what keeps it.
fn kept(part: &NetnsPart, now: Timestamp) -> String {
    let netns = phrases::netns(part);
    match keeper(part, now) {
        Some(keeper) => format!("{netns}, held open by {keeper}"),
        None => netns,
    }
}

/// What still names an address that no namespace has.
fn named_by(all: &Explanation) -> String {
    let ip = &all.subject.value;
    if let Some(first) = all
        .reservations
        .iter()
        .find(|r| r.address.to_string() == *ip)
    {
        return format!("; it is reserved for {}", first.whose);
    }
    if let Some(part) = all
        .sandboxes
        .iter()
        .find(|part| part.sandbox.ips.iter().any(|i| i.to_string() == *ip))
    {
        let id = short_id(&part.sandbox.id);
        let pod = part.sandbox.pod.label();
        return format!("; {} lists it for sandbox {id} of {pod}", part.source);
    }
    let given = |call: &&CallPart| {
        let ips = call.result.iter().flat_map(|result| &result.ips);
        ips.into_iter().any(|given| given.to_string() == *ip)
    };
    if let Some(call) = all.cni_calls.iter().find(given) {
        return format!("; CNI gave it to {} once", super::cni::call_of(call));
    }
    match all
        .pods
        .iter()
        .find(|pod| pod.ips.iter().any(|i| i.to_string() == *ip))
    {
        Some(pod) => format!(
            "; the list of pods ({}) had it as that of {}",
            source_of(pod),
            pod.reference().label()
        ),
        None => String::new(),
    }
}

/// Who listed the pods.
fn source_of(pod: &PodPart) -> &str {
    pod.source.as_deref().unwrap_or("pods")
}

/// A clause for each pod of the subject that has none of the namespaces that were
/// told of. What a pod that is gone still has is worse than what another one of
/// its name has: it comes first, as in the list.
fn pods(all: &Explanation, told: &[&NetnsPart], basis: &Basis<'_>) -> Vec<String> {
    let is_own = |pod: &&PodPart| {
        let uid = pod.uid.as_ref();
        uid.is_none_or(|uid| basis.uids.contains(uid))
    };
    let its: Vec<&PodPart> = all.pods.iter().filter(is_own).collect();
    // A mirror pod is listed with another UID than its sandbox has.
    let listed = its.iter().position(|pod| pod.listed == Some(true));
    let owner = |part: &NetnsPart| {
        let uid = part.pod.as_ref().and_then(|pod| pod.uid.as_ref());
        let by_uid = its
            .iter()
            .position(|pod| uid.is_some() && pod.uid.as_ref() == uid);
        by_uid.or(listed).unwrap_or(0)
    };
    let mine = own(all, basis);
    let several = its.len() > 1;
    let mut clauses: Vec<(String, Vec<String>)> = Vec::new();
    for number in 0..its.len().max(1) {
        let own = mine.iter().copied().filter(|part| owner(part) == number);
        let own: Vec<&NetnsPart> = own.collect();
        // Of one that is gone without a trace nothing is to be said but that.
        let is_left = !own.is_empty() || listed == Some(number);
        let is_last = number + 1 >= its.len() && clauses.is_empty() && told.is_empty();
        let is_told = told.iter().any(|part| owner(part) == number);
        if is_told || !(is_left || is_last) {
            continue;
        }
        let (state, places) = pod(all, its.get(number).copied(), &own, several, basis);
        match clauses.last_mut().filter(|(last, _)| *last == state) {
            Some((_, more)) => more.extend(places),
            None => clauses.push((state, places)),
        }
    }
    let clause = |(state, places): (String, Vec<String>)| {
        let parts = std::iter::once(state).chain(places);
        let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
        parts.join("; ")
    };
    clauses.into_iter().map(clause).collect()
}

/// One pod: its state, and what it has.
fn pod(
    all: &Explanation,
    pod: Option<&PodPart>,
    mine: &[&NetnsPart],
    several: bool,
    basis: &Basis<'_>,
) -> (String, Vec<String>) {
    let value = match pod {
        Some(pod) if pod.name.is_some() => pod.reference().label(),
        _ => all.subject.value.clone(),
    };
    let guests: Vec<&NetnsPart> = mine.iter().copied().filter(|part| !part.host).collect();
    let is_gone = |part: &&NetnsPart| part.pod_state == Some(PodState::Gone);
    if several && !guests.is_empty() && guests.iter().all(is_gone) {
        let who = format!("deleted {value} still");
        let places = guests.iter().map(|part| place(part, &who, basis));
        return (String::new(), places.collect());
    }
    let state = match pod.map(|pod| (pod, pod.listed)) {
        Some((pod, Some(true))) => {
            let phase = match (&pod.phase, pod.deletion) {
                (_, Some(_)) => "Terminating",
                (Some(phase), None) => phase,
                (None, None) => "listed",
            };
            let network = match pod.host_network {
                true => " on the host's network",
                false => "",
            };
            format!("pod {value} is {phase}{network}")
        }
        Some((pod, Some(false))) => match (&pod.doubt, pod.missing_since) {
            (Some(doubt), _) => format!("pod {value} is not in the API, but {doubt}"),
            (None, Some(at)) => {
                // The first list without it, which may be a file.
                let at = phrases::clock(at, basis.now);
                let source = source_of(pod);
                format!("pod {value} was not in the API ({source}) at {at}")
            }
            (None, None) => format!("pod {value} is not in the API"),
        },
        _ => format!("pod {value}: whether it exists is unknown, no API access"),
    };
    let its_own = |part: &&SandboxPart| {
        let uid = part.sandbox.pod.uid.as_ref();
        !several || pod.is_some_and(|pod| pod.uid.as_ref() == uid)
    };
    let sandboxes: Vec<&SandboxPart> = all.sandboxes.iter().filter(its_own).collect();
    let on_host = pod.is_some_and(|pod| pod.host_network) || is_on_host(&sandboxes);
    let places = match guests.is_empty() {
        true if on_host => Vec::new(),
        true if sandboxes.is_empty() => vec![basis.no_namespace().to_owned()],
        true => vec![String::from("no netns of its sandboxes found")],
        false => by_sandbox(guests, all)
            .iter()
            .map(|(who, part)| place(part, who, basis))
            .collect(),
    };
    (state, places)
}

/// A pod's namespaces, each with what of the pod has it. Of several sandboxes the
/// latest is the present one, and comes first; as long as it is not known when
/// each was made, none is called so.
fn by_sandbox<'e>(mine: Vec<&'e NetnsPart>, all: &Explanation) -> Vec<(String, &'e NetnsPart)> {
    let known = mine.iter().map(|part| Some((made(part, all)?, *part)));
    let mut known: Vec<(Timestamp, &NetnsPart)> = match known.collect() {
        Some(known) if mine.len() > 1 => known,
        _ => {
            return mine
                .into_iter()
                .map(|part| (String::from("it"), part))
                .collect();
        }
    };
    known.order_by_key(|(made, _)| Reverse(*made));
    let present = known.first().and_then(|(_, part)| part.sandbox_id.as_ref());
    let named = known.iter().map(|(_, part)| {
        let id = short_id(part.sandbox_id.as_deref().unwrap_or_default());
        let who = match present == part.sandbox_id.as_ref() {
            true => format!("its present sandbox {id}"),
            false => format!("its earlier sandbox {id} still"),
        };
        (who, *part)
    });
    named.collect()
}

/// When the sandbox of a namespace was made, or was given its network.
fn made(part: &NetnsPart, all: &Explanation) -> Option<Timestamp> {
    let id = part.sandbox_id.as_ref()?;
    let listed = all.sandboxes.iter().map(|listed| &listed.sandbox);
    let mut listed = listed.filter(|sandbox| sandbox.id == *id);
    let calls = all.cni_calls.iter();
    let mut added =
        calls.filter(|call| call.command == CniCommand::Add && call.container_id == *id);
    let created = listed.find_map(|sandbox| sandbox.created);
    created.or_else(|| added.find_map(|add| add.started.or(add.ended)))
}

/// Whether all of its sandboxes use the host's network.
fn is_on_host(sandboxes: &[&SandboxPart]) -> bool {
    let mut all = sandboxes.iter();
    !sandboxes.is_empty() && all.all(|each| each.sandbox.host_network)
}

/// `it has 10.0.3.7 in netns 4026532246, kept by ...`
fn place(part: &NetnsPart, who: &str, basis: &Basis<'_>) -> String {
    let inode = part.id.inode;
    let addresses = addresses(part);
    let has = match addresses.is_empty() {
        true if basis.is_unvisited(part) => format!("{who} has netns {inode} ({UNVISITED})"),
        true => format!("{who} has netns {inode} and no address"),
        false => format!("{who} has {} in netns {inode}", list(&addresses)),
    };
    match keeper(part, basis.now) {
        Some(keeper) => format!("{has}, held open by {keeper}"),
        None => has,
    }
}

/// The addresses that matter.
fn addresses(part: &NetnsPart) -> Vec<IpAddr> {
    let all = part.addresses.iter().map(|each| each.address);
    all.filter(|address| crate::detect::is_routable(*address))
        .collect()
}

fn container(all: &Explanation, mine: &[&NetnsPart], basis: &Basis<'_>) -> String {
    let id = all.subject.value.as_str();
    let short = short_id(id);
    let sandboxes = || all.sandboxes.iter().map(|part| &part.sandbox);
    let sandbox = sandboxes().find(|sandbox| sandbox.id == id);
    let container = sandboxes().find_map(|sandbox| {
        let container = sandbox.containers.iter().find(|each| each.id == id)?;
        Some((sandbox, container))
    });
    let is_sandbox = sandbox.is_some()
        || mine
            .iter()
            .any(|part| part.sandbox_id.as_deref() == Some(id))
        || all.cni_calls.iter().any(|call| call.container_id == id);
    let what = match (container, is_sandbox) {
        (Some((sandbox, container)), _) => {
            let of = sandbox.pod.label();
            format!("container {short} is {} of {of}", container.name)
        }
        (None, true) => {
            let listed = sandbox.map(|sandbox| &sandbox.pod);
            let called = all.cni_calls.iter().find(|call| call.container_id == id);
            let called = called.and_then(|call| call.pod.as_ref());
            let held = mine.iter().find_map(|part| part.pod.as_ref());
            match held.or(listed).or(called) {
                Some(pod) => format!("{short} is a sandbox of {}", pod.label()),
                None => format!("{short} is a sandbox of an unknown pod"),
            }
        }
        (None, false) => match mine.iter().find_map(|part| part.pod.as_ref()) {
            Some(pod) => format!("{short} is a container of {}", pod.label()),
            None => format!("{short} is a container of an unknown pod"),
        },
    };
    // Another sandbox of its pod has its own.
    let sandbox = container.map(|(sandbox, _)| sandbox.id.as_str());
    let sandbox = sandbox.or(is_sandbox.then_some(id));
    let is_its = |part: &&&NetnsPart| {
        let both = sandbox.zip(part.sandbox_id.as_deref());
        both.is_none_or(|(own, of)| own == of)
    };
    let mine: Vec<&NetnsPart> = mine.iter().filter(is_its).copied().collect();
    let reserved = all
        .reservations
        .iter()
        .filter(|each| each.container_id == id);
    let reserved: Vec<_> = reserved.map(|each| each.address).collect();
    match (mine.is_empty(), reserved.is_empty()) {
        (false, _) => {
            let places = mine.iter().filter(|part| !part.host);
            let places: Vec<String> = places.map(|part| place(part, "it", basis)).collect();
            match places.is_empty() {
                true => format!("{what}, on the host's network"),
                false => format!("{what}; {}", places.join("; ")),
            }
        }
        (true, _) if is_on_host(&all.sandboxes.iter().collect::<Vec<_>>()) => {
            format!("{what}, on the host's network")
        }
        (true, false) => format!(
            "{what}; {}, and {} is still reserved for it",
            basis.no_namespace(),
            list(&reserved)
        ),
        (true, true) => format!("{what}; {}", basis.no_namespace()),
    }
}

fn namespace(all: &Explanation, mine: &[&NetnsPart], basis: &Basis<'_>) -> String {
    let [part] = mine else {
        let many = mine.iter().map(|part| kept(part, basis.now));
        let many: Vec<String> = many.collect();
        let place = match basis.blind {
            true => "; incomplete",
            false => "",
        };
        return match many.is_empty() {
            true => format!(
                "{} is only remembered: no such netns found{place}",
                all.subject.value
            ),
            false => many.join("; and "),
        };
    };
    if part.host {
        return format!("netns {} is the host's own", part.id.inode);
    }
    let netns = phrases::netns(part);
    let addresses = addresses(part);
    let kept = keeper(part, basis.now);
    if addresses.is_empty() && basis.is_unvisited(part) {
        return match kept {
            Some(keeper) => format!("{netns} ({UNVISITED}) is held open by {keeper}"),
            None => format!("{netns} ({UNVISITED})"),
        };
    }
    let has = match addresses.is_empty() {
        true => String::from("no address of its own"),
        false => list(&addresses),
    };
    match kept {
        Some(keeper) => format!("{netns} has {has} and is held open by {keeper}"),
        None => format!("{netns} has {has}"),
    }
}

fn task(all: &Explanation, mine: &[&NetnsPart], now: Timestamp) -> String {
    let task = all.tasks.first();
    let who = match task {
        Some(task) => stuck_holder(task, now).or_else(|| holder_name(task)),
        None => None,
    };
    let who = who.unwrap_or_else(|| format!("process {}", all.subject.value));
    let holds = |part: &&&NetnsPart| {
        let mut holders = part.holders.iter();
        holders.any(|holder| match holder {
            Holder::Fd { pid, .. } | Holder::Socket { pid, .. } => {
                pid.to_string() == all.subject.value
            }
            Holder::Task { .. } | Holder::Mount { .. } => false,
        })
    };
    let (held, inside): (Vec<&NetnsPart>, Vec<&NetnsPart>) =
        mine.iter().partition(|part| holds(part));
    let mut clauses = Vec::new();
    for part in inside {
        let addresses = match addresses(part) {
            _ if part.host => String::new(),
            none if none.is_empty() => String::new(),
            some => format!(" with {}", list(&some)),
        };
        let netns = match part.host {
            true => String::from("the host's network namespace"),
            false => phrases::netns(part),
        };
        clauses.push(format!("is in {netns}{addresses}"));
    }
    for part in held {
        clauses.push(format!(
            "holds {} open by a descriptor or socket",
            phrases::netns(part)
        ));
    }
    let comma = if who.contains(", stuck") { "," } else { "" };
    match clauses.is_empty() {
        true => format!("{who}{comma} is in a network namespace of which nothing is known"),
        false => format!("{who}{comma} {}", clauses.join(" and ")),
    }
}
