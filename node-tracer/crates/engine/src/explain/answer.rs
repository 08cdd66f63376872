//! The answer in one sentence.

use super::words::{self, holder_name, keeper, list, stuck_holder};
use event::explanation::{CallPart, Explanation, Kind, NetnsPart, PodPart, PodState};
use event::{clock::Timestamp, finding::Holder, wording::subjects::short_id};

/// Users of an address that are named.
const USERS: usize = 4;
/// What could not be read, of which so much is named.
const NOT_READ: usize = 3;
/// Said of a namespace that was not visited.
const UNVISITED: &str = "its addresses were not read";

/// What an answer rests on, besides what is told of the subject: what was not
/// read must not become a "no".
#[derive(Clone, Copy, Debug)]
pub(super) struct Basis<'a> {
    /// The subject's own namespaces, by inode; others only share an address with
    /// them.
    pub(super) own: &'a [u32],
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
    let mine = |part: &&NetnsPart| basis.own.contains(&part.id.inode);
    let mine: Vec<&NetnsPart> = all.netns.iter().filter(mine).collect();
    match subject.kind {
        Kind::Address => address(all, basis),
        Kind::Pod | Kind::PodUid => pod(all, &mine, basis),
        Kind::Container => container(all, &mine, basis),
        Kind::Netns | Kind::NetnsPath => namespace(all, &mine, basis),
        Kind::Pid => task(all, &mine, basis.now),
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
        let (first, rest) = not_read.split_at(not_read.len().min(NOT_READ));
        let more = match rest.len() {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let first = first.join("; ");
        return format!("no holder of {what} found; incomplete: {first}{more}");
    }
    match kind {
        Kind::Address => format!(
            "nobody holds {value}: no netns has it on any device but lo, and no reservation, CNI \
             attachment, sandbox or pod names it"
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
    let netns = words::netns(part);
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

fn pod(all: &Explanation, mine: &[&NetnsPart], basis: &Basis<'_>) -> String {
    let value = match all.pods.first() {
        Some(pod) if pod.name.is_some() => pod.reference().label(),
        _ => all.subject.value.clone(),
    };
    let listed = all.pods.iter().find(|pod| pod.listed == Some(true));
    let missing = all.pods.iter().find(|pod| pod.listed == Some(false));
    let state = match (listed, missing) {
        (Some(pod), _) => {
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
        (None, Some(pod)) => match (&pod.doubt, pod.missing_since) {
            (Some(doubt), _) => format!("pod {value} is not in the API, but {doubt}"),
            (None, Some(at)) => {
                // The first list without it, which may be a file.
                let at = words::clock(at, basis.now);
                let source = source_of(pod);
                format!("pod {value} was not in the API ({source}) at {at}")
            }
            (None, None) => format!("pod {value} is not in the API"),
        },
        (None, None) => format!("pod {value}: whether it exists is unknown, no API access"),
    };
    let places: Vec<String> = mine
        .iter()
        .filter(|part| !part.host)
        .map(|part| place(part, mine.len() > 1, basis))
        .collect();
    let on_host = listed.is_some_and(|pod| pod.host_network) || is_on_host(all);
    match places.is_empty() {
        true if on_host => state,
        true if all.sandboxes.is_empty() => format!("{state}; {}", basis.no_namespace()),
        true => format!("{state}; no netns of its sandboxes found"),
        false => format!("{state}; {}", places.join("; ")),
    }
}

/// Whether all of its sandboxes use the host's network.
fn is_on_host(all: &Explanation) -> bool {
    let mut sandboxes = all.sandboxes.iter();
    !all.sandboxes.is_empty() && sandboxes.all(|each| each.sandbox.host_network)
}

/// `it has 10.0.3.7 in netns 4026532246, kept by ...`
fn place(part: &NetnsPart, several: bool, basis: &Basis<'_>) -> String {
    let inode = part.id.inode;
    let addresses = addresses(part);
    let who = match (several, part.pod_state) {
        (true, Some(PodState::Gone)) => "the deleted one",
        _ => "it",
    };
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
fn addresses(part: &NetnsPart) -> Vec<std::net::IpAddr> {
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
    let reserved = all
        .reservations
        .iter()
        .filter(|each| each.container_id == id);
    let reserved: Vec<_> = reserved.map(|each| each.address).collect();
    match (mine.is_empty(), reserved.is_empty()) {
        (false, _) => {
            let places = mine.iter().filter(|part| !part.host);
            let places: Vec<String> = places.map(|part| place(part, false, basis)).collect();
            match places.is_empty() {
                true => format!("{what}, on the host's network"),
                false => format!("{what}; {}", places.join("; ")),
            }
        }
        (true, _) if is_on_host(all) => format!("{what}, on the host's network"),
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
    let netns = words::netns(part);
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
            false => words::netns(part),
        };
        clauses.push(format!("is in {netns}{addresses}"));
    }
    for part in held {
        clauses.push(format!(
            "holds {} open by a descriptor or socket",
            words::netns(part)
        ));
    }
    let comma = if who.contains(", stuck") { "," } else { "" };
    match clauses.is_empty() {
        true => format!("{who}{comma} is in a network namespace of which nothing is known"),
        false => format!("{who}{comma} {}", clauses.join(" and ")),
    }
}
