//! From what is known to what is wrong: one rule a file, each a pure function
//! from a [`View`] to findings.
//!
//! A rule learns the time only through [`View::passed`], which notes when the
//! answer will change: nothing has to be evaluated before that, or before the
//! model changes.

use crate::{
    detect::facts::{conflicts, own},
    model::{
        Model, OWNERS,
        netns::{NETNS, NetnsEntry, Serial, Wiring},
        runtime::{CRI, SandboxList},
    },
};
pub mod add_failed;
pub mod blocked_task;
pub mod del_retry;
pub mod duplicate_address;
pub mod events_lost;
pub mod facts;
pub mod ghost_sandbox;
pub mod leaked_reservation;
pub mod missing_del;
pub mod missing_gateway_neighbour;
pub mod netns_teardown_stall;
pub mod orphan_veth;
pub mod pinned_netns;
pub mod range_exhausted;
pub mod sandbox_churn;
pub mod sandbox_create_failed;
pub mod stale_del;
pub mod stale_path;
pub mod trapped_device;
pub mod unreserved_address;

use self::facts::command::{
    Command, cordon, crictl, inside, logged_of, of_its_pods, remove_sandbox, repair, uncordon,
};
use self::facts::common::{
    evidence, fd_label, few, fitting, has, held_since, is, is_dated, joined, kubectl_words, named,
    netns_of, release_advice, sleeps_in, socket_label, unknown_holder,
};
pub use self::facts::common::{
    holders_of, is_routable, pod_of, stuck_holder, stuck_in, task_holder,
};
use event::order::Order as _;
use event::{
    ADDRESSES, Device, FdHolder,
    clock::Timestamp,
    finding::{Finding, Rule},
    forwarding::{RouteKind, TableRoute},
    mount::{self, Place},
    wording::{
        advice::{commented, shell_word},
        plural::counted,
        subjects::{pod_word, short_id, task_label},
    },
};

use std::{
    cell::{Cell, OnceCell, RefCell},
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::IpAddr,
    path::PathBuf,
    time::Duration,
};

use self::{
    facts::{
        conflicts::AllShared, living, reservations::Judge, unused::Unresolved,
        veth_pairs::VethPairs,
    },
    orphan_veth::Orphans,
    unreserved_address::Given,
};

/// What the rules are told besides the model.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `/proc/sys/kernel/random/boot_id`: findings' IDs hold for one boot.
    pub boot_id: String,
    /// The node's name in Kubernetes, or else its host's name.
    pub node: String,
    /// Somebody has said that this is its name in Kubernetes.
    pub node_is_named: bool,
    /// How long a task sleeps uninterruptibly before it counts as stuck.
    pub stall_threshold: Duration,
    /// All network namespaces were to be visited, as by a scan: one without
    /// devices is one that could not be. A trace looks at single ones.
    pub surveyed: bool,
}

/// The model at one moment.
#[derive(Debug)]
pub struct View<'a> {
    pub model: &'a Model,
    /// See [`Settings`].
    pub settings: &'a Settings,
    now: Timestamp,
    /// A failure that may be over by the next try is told after that time.
    patience: Duration,
    next: Cell<Option<Timestamp>>,
    // What several rules need, made when the first one asks.
    list_is_of_node: OnceCell<bool>,
    unseen: OnceCell<BTreeMap<IpAddr, Vec<&'a NetnsEntry>>>,
    of_pods: OnceCell<HashMap<&'a str, Vec<&'a NetnsEntry>>>,
    containers: OnceCell<HashSet<&'a str>>,
    given: OnceCell<Vec<Given<'a>>>,
    shared: OnceCell<AllShared<'a>>,
    inner: RefCell<HashMap<Serial, bool>>,
    judge: OnceCell<Option<Judge<'a>>>,
    veth_pairs: OnceCell<VethPairs<'a>>,
    host_routes: OnceCell<HashMap<(Serial, u32), Vec<&'a TableRoute>>>,
    orphans: OnceCell<Orphans<'a>>,
    paths: OnceCell<stale_path::Judged>,
    unresolved: OnceCell<Unresolved<'a>>,
    crowded: OnceCell<add_failed::Crowded>,
    /// Findings that there are besides those that are told.
    left_out: Cell<usize>,
    /// See [`Self::lacks_proof`].
    lacks_proof: Cell<bool>,
}

impl<'a> View<'a> {
    pub fn new(model: &'a Model, settings: &'a Settings, now: Timestamp) -> Self {
        Self {
            model,
            settings,
            now,
            patience: Duration::ZERO,
            next: Cell::new(None),
            list_is_of_node: OnceCell::new(),
            unseen: OnceCell::new(),
            of_pods: OnceCell::new(),
            containers: OnceCell::new(),
            given: OnceCell::new(),
            shared: OnceCell::new(),
            inner: RefCell::default(),
            judge: OnceCell::new(),
            veth_pairs: OnceCell::new(),
            host_routes: OnceCell::new(),
            orphans: OnceCell::new(),
            paths: OnceCell::new(),
            unresolved: OnceCell::new(),
            crowded: OnceCell::new(),
            left_out: Cell::new(0),
            lacks_proof: Cell::new(false),
        }
    }

    /// The same, in no hurry to tell of what the next try may end.
    pub fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The same, with what the node's tables have shown a moment ago: they are to be
    /// judged again then.
    pub fn with_paths(self, judged: stale_path::Judged, again: Timestamp) -> Self {
        if !self.passed(again) {
            let _ = self.paths.set(judged);
        }
        self
    }

    /// What the node's tables show.
    pub fn paths(&self) -> &stale_path::Judged {
        self.paths.get_or_init(|| stale_path::judge(self))
    }

    /// Whether it is too early to tell of what began then: the next try may
    /// succeed.
    pub fn is_early(&self, began: Timestamp) -> bool {
        !self.patience.is_zero() && !self.passed(began.plus(self.patience))
    }

    /// Whether the next try may still be told of: what is read has not ended.
    pub fn more_may_come(&self) -> bool {
        !self.patience.is_zero()
    }

    /// Whether it is that late. If not, the rules are to be asked again then.
    pub fn passed(&self, time: Timestamp) -> bool {
        let passed = self.now >= time;
        if !passed {
            self.next
                .set(Some(self.next.get().map_or(time, |next| next.min(time))));
        }
        passed
    }

    /// Whether the pod list can show that a pod is gone: it has the pods of this
    /// node, and of the pod's Kubernetes namespace. Nobody has to vouch for
    /// that if the list has some of them.
    pub fn list_covers(&self, namespace: Option<&str>) -> bool {
        let Some(list) = self.model.pods.list() else {
            return false;
        };
        list.covers(namespace)
            && *self.list_is_of_node.get_or_init(|| {
                let is_listed = |entry: &NetnsEntry| {
                    let pod = entry.sandbox.uid();
                    pod.is_some_and(|uid| self.model.pods.listed_pod(uid).is_some())
                };
                list.is_of_node(&self.settings.node) || self.model.netns.live().any(is_listed)
            })
    }

    /// Whether a rule has asked about a pod that is not on the list, which may be
    /// older than the pod.
    pub fn lacks_proof(&self) -> bool {
        self.lacks_proof.get()
    }

    /// Addresses that pods are called by and the kernel does not show.
    fn unseen(&self) -> &BTreeMap<IpAddr, Vec<&'a NetnsEntry>> {
        self.unseen.get_or_init(|| own::all_unseen(self))
    }

    /// The namespaces of a pod, sandboxes and what it has made for itself.
    pub fn of_pod(&self, uid: &str) -> &[&'a NetnsEntry] {
        let of_pods = self.of_pods.get_or_init(|| {
            let mut of_pods: HashMap<_, Vec<_>> = HashMap::new();
            for entry in self.model.netns.live() {
                if let Some(uid) = entry.sandbox.uid() {
                    of_pods.entry(uid).or_default().push(entry);
                }
            }
            of_pods
        });
        of_pods.get(uid).map_or(&[], Vec::as_slice)
    }

    /// The containers of the namespaces that exist.
    fn containers(&self) -> &HashSet<&'a str> {
        self.containers
            .get_or_init(|| living::containers(self.model))
    }

    /// Addresses that CNI gave to pods that live.
    fn given(&self) -> &[Given<'a>] {
        self.given.get_or_init(|| unreserved_address::given(self))
    }

    /// Addresses that more than one namespace has, or is called by.
    pub fn shared(&self) -> &AllShared<'a> {
        self.shared.get_or_init(|| conflicts::all_shared(self))
    }

    /// What tells reservations from leaks; `None` if too little is known.
    pub fn judge(&self) -> Option<&Judge<'a>> {
        self.judge.get_or_init(|| Judge::new(self)).as_ref()
    }

    /// Which end of a veth belongs to which.
    pub fn veth_pairs(&self) -> &VethPairs<'a> {
        self.veth_pairs.get_or_init(|| VethPairs::new(self.model))
    }

    /// Routes over a device of the host's, whatever table they are in.
    fn routes_over(&self, host: Serial, device: u32) -> &[&'a TableRoute] {
        let routes = self.host_routes.get_or_init(|| {
            let mut routes: HashMap<_, Vec<_>> = HashMap::new();
            for host in self.model.netns.live().filter(|entry| entry.host) {
                let known = host.forwarding.iter();
                let all = known.flat_map(|known| &known.forwarding.routes);
                let all = all.filter(|route| route.kind == RouteKind::Unicast && !route.dead);
                for (route, device) in all.filter_map(|route| Some((route, route.device?))) {
                    let over = routes.entry((host.serial, device)).or_default();
                    over.push(route);
                }
            }
            routes
        });
        routes.get(&(host, device)).map_or(&[], Vec::as_slice)
    }

    /// Whether what a namespace has proves nothing: nobody names it, it belongs to a
    /// user namespace, and it is not plugged in. Users, and root in a pod, can make
    /// such with any address; it takes rights on the host to plug one in, as a runtime
    /// does for a pod with a user namespace of its own, which is that pod's also when
    /// all have forgotten it.
    pub fn is_bystander(&self, entry: &NetnsEntry) -> bool {
        entry.is_strangers() && !self.is_plugged_in(entry)
    }

    /// Whether a device certainly leads from a namespace to the host, as the kernel
    /// says: an end of a veth pair, or what is stacked on a device of the host's. Root
    /// in a pod can give its own to whomever it likes.
    pub(in crate::detect) fn is_plugged_in(&self, entry: &NetnsEntry) -> bool {
        let is_stacked = |wiring: &Wiring, device: &Device| {
            !device.is_pair_end() && wiring.leads_to_host(device) == Some(true)
        };
        let mut wiring = entry.wiring.iter();
        self.veth_pairs().is_on_host(entry)
            || wiring.any(|it| it.devices.iter().any(|device| is_stacked(it, device)))
    }

    /// Whether such a namespace may be a pod's all the same: root has made it,
    /// and for all that is known something leads out of it.
    pub fn may_be_pods(&self, entry: &NetnsEntry) -> bool {
        let leads_out = || {
            let leads = |wiring: &Wiring, device: &Device| {
                let to_host = wiring.leads_to_host(device);
                to_host.unwrap_or(device.link_nsid.is_some())
            };
            let wiring = entry.wiring.as_ref();
            wiring.is_none_or(|it| it.devices.iter().any(|device| leads(it, device)))
        };
        entry.is_strangers() && !entry.is_users() && leads_out()
    }

    /// Host ends that lead nowhere; see [`orphan_veth`].
    fn orphans(&self) -> &Orphans<'a> {
        self.orphans.get_or_init(|| orphan_veth::orphans(self))
    }

    /// An end of a veth pair whose other end is in a namespace that was not found,
    /// by its name: it may be dying, or be kept out of sight.
    pub fn end_of_unfound(&self) -> Option<&'a str> {
        self.orphans().of_unfound()
    }

    /// Pods that fail in a crowd; see [`add_failed`].
    fn crowded(&self) -> &add_failed::Crowded {
        self.crowded
            .get_or_init(|| add_failed::Crowded::new(self.model))
    }

    /// Sandboxes that are known by the path of their namespace alone.
    fn unresolved(&self) -> &Unresolved<'a> {
        self.unresolved.get_or_init(|| Unresolved::new(self.model))
    }

    /// When a rule's answer changes although nothing happens.
    pub fn next(&self) -> Option<Timestamp> {
        self.next.get()
    }
}

/// What a rule is asked.
struct RuleFns {
    detect: fn(&View<'_>) -> Vec<Finding>,
    /// What it could not judge, and why.
    gap: fn(&View<'_>) -> Option<String>,
    /// Addresses whose reservations it wants to know, and since when.
    addresses: fn(&View<'_>) -> Vec<(Timestamp, IpAddr)>,
}

impl RuleFns {
    const fn new(detect: fn(&View<'_>) -> Vec<Finding>) -> Self {
        Self {
            detect,
            gap: |_| None,
            addresses: |_| Vec::new(),
        }
    }
}

fn functions(rule: Rule) -> RuleFns {
    match rule {
        Rule::DuplicateAddress => RuleFns {
            gap: duplicate_address::gap,
            ..RuleFns::new(duplicate_address::detect)
        },
        Rule::GhostSandbox => RuleFns::new(ghost_sandbox::detect),
        Rule::StaleDel => RuleFns::new(stale_del::detect),
        Rule::RangeExhausted => RuleFns::new(range_exhausted::detect),
        Rule::UnreservedAddress => RuleFns::new(unreserved_address::detect),
        Rule::NetnsTeardownStall => RuleFns::new(netns_teardown_stall::detect),
        Rule::TrappedDevice => RuleFns::new(trapped_device::detect),
        Rule::MissingGatewayNeighbour => RuleFns::new(missing_gateway_neighbour::detect),
        Rule::AddFailed => RuleFns {
            addresses: add_failed::addresses,
            ..RuleFns::new(add_failed::detect)
        },
        Rule::SandboxCreateFailed => RuleFns::new(sandbox_create_failed::detect),
        Rule::SandboxChurn => RuleFns::new(sandbox_churn::detect),
        Rule::MissingDel => RuleFns {
            addresses: missing_del::addresses,
            ..RuleFns::new(missing_del::detect)
        },
        Rule::DelRetry => RuleFns {
            addresses: del_retry::addresses,
            ..RuleFns::new(del_retry::detect)
        },
        Rule::LeakedReservation => RuleFns {
            gap: leaked_reservation::gap,
            ..RuleFns::new(leaked_reservation::detect)
        },
        Rule::PinnedNetns => RuleFns::new(pinned_netns::detect),
        Rule::BlockedTask => RuleFns::new(blocked_task::detect),
        Rule::OrphanVeth => RuleFns {
            gap: orphan_veth::gap,
            ..RuleFns::new(orphan_veth::detect)
        },
        Rule::StalePath => RuleFns {
            gap: stale_path::gap,
            ..RuleFns::new(stale_path::detect)
        },
        Rule::EventsLost => RuleFns::new(events_lost::detect),
    }
}

fn rules() -> impl Iterator<Item = RuleFns> {
    Rule::ALL.iter().copied().map(functions)
}

/// Everything that is wrong, in no particular order.
pub fn detect(view: &View<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for rule in rules() {
        all.append(&mut (rule.detect)(view));
        if all.len() > MAX_FINDINGS {
            // Always the same ones, so that none comes and goes.
            all.order_by(|a: &Finding, b| rank(a).cmp(&rank(b)));
            let left_out = all.len() - MAX_FINDINGS;
            view.left_out.set(view.left_out.get() + left_out);
            all.truncate(MAX_FINDINGS);
            all.shrink_to_fit();
        }
    }
    all
}

/// Findings at a time, at most: the worst and the oldest. Each takes some KiB,
/// twice, and nobody reads more.
const MAX_FINDINGS: usize = 4_096;

fn rank(finding: &Finding) -> impl Ord {
    (Reverse(finding.severity), finding.since, &finding.id)
}

/// Addresses at most whose reservations are asked for because of CNI calls:
/// each of them is looked for several times a second.
const MAX_CALLED_FOR: usize = 64;

/// Addresses that CNI calls were about and whose reservations matter: those of
/// which nothing was said yet, so that each has its turn, and then the latest.
pub fn called_for(view: &View<'_>) -> BTreeSet<IpAddr> {
    let mut latest: BTreeMap<IpAddr, Timestamp> = BTreeMap::new();
    for (since, address) in rules().flat_map(|rule| (rule.addresses)(view)) {
        let known = latest.entry(address).or_insert(since);
        *known = since.max(*known);
    }
    let is_answered = |address| {
        let known = view.model.allocations.get(address);
        known.is_some_and(|known| known.answer.is_some())
    };
    let mut all: Vec<_> = latest.into_iter().collect();
    if all.len() > MAX_CALLED_FOR {
        all.order_by_key(|(address, since)| (is_answered(*address), Reverse(*since), *address));
        all.truncate(MAX_CALLED_FOR);
    }
    all.into_iter().map(|(address, _)| address).collect()
}

/// What the rules could not judge, and why.
pub fn gaps(view: &View<'_>) -> Vec<String> {
    let left_out = Some(view.left_out.get()).filter(|count| *count > 0);
    let left_out = left_out
        .map(|count| format!("{count} more findings: only the {MAX_FINDINGS} worst are shown"));
    let gaps = rules().filter_map(|rule| (rule.gap)(view));
    gaps.chain(left_out).collect()
}

/// What the runtime itself says, if it answers.
fn heard(model: &Model) -> Option<&SandboxList> {
    model.runtime.cri().filter(|_| model.failure(CRI).is_none())
}

/// The same if it is all: what is not on the list is not there.
fn answering(model: &Model) -> Option<&SandboxList> {
    heard(model).filter(|list| list.partial.is_none())
}

/// Whether the runtime was asked and has not told all: it may have any sandbox
/// of which it has not told.
fn is_half_heard(model: &Model) -> bool {
    let asked = model.runtime.cri().is_some() || model.failure(CRI).is_some();
    asked && answering(model).is_none()
}

/// Why the runtime itself says nothing, nothing new, or not all.
fn silence(model: &Model) -> String {
    let partial = || model.runtime.cri()?.partial.as_deref();
    match (model.failure(CRI), partial()) {
        (Some(failure), _) => format!("CRI does not answer: {}", failure.error),
        (None, Some(why)) => format!("CRI does not list all: {why}"),
        (None, None) => String::from("CRI was not asked"),
    }
}

/// Namespaces that were found and could not be visited, the host's own
/// included: what is in them is not known. Where nobody was to go through all of
/// them, nothing is said of this. Nothing that was read tells the one from the
/// other: a lock in the kernel can keep all of them from being visited.
fn unread(view: &View<'_>) -> usize {
    let unread = view.model.netns.live();
    let unread = unread.filter(|entry| entry.wiring.is_none());
    if view.settings.surveyed {
        unread.count()
    } else {
        0
    }
}

/// Why there may be namespaces besides those that were found, or addresses in
/// them.
fn unfound(model: &Model) -> Option<&str> {
    let failure = model.failure(NETNS).or_else(|| model.failure(ADDRESSES))?;
    Some(failure.error.as_str())
}

/// The source of [`ContainersListed`](event::What::ContainersListed) that
/// goes by cgroups.
const CGROUP: &str = "cgroup";

/// Why a container may live that only its cgroup shows. A trace makes no list:
/// there each process's cgroup tells.
fn unlisted(view: &View<'_>) -> Option<String> {
    let model = view.model;
    if let Some(failure) = model.failure(CGROUP) {
        return Some(format!("the cgroups cannot be listed: {}", failure.error));
    }
    if let Some(why) = model.runtime.containers_partial(CGROUP) {
        return Some(format!("not all cgroups were looked at: {why}"));
    }
    if let Some(failure) = model.failure(OWNERS) {
        return Some(failure.error.clone());
    }
    let mut sources = model.runtime.container_sources();
    let listed = sources.any(|(source, _)| source == CGROUP);
    let missing = view.settings.surveyed && !listed;
    missing.then(|| String::from("the cgroups were not listed"))
}

/// Why there may be addresses, and holders of them, that are not known: a
/// namespace could not be visited, or not even be found.
pub fn blindness(view: &View<'_>) -> Option<String> {
    let unread = match unread(view) {
        0 => None,
        number => Some(format!(
            "{} could not be read",
            counted(number, "network namespace")
        )),
    };
    let unfound = unfound(view.model).map(str::to_owned);
    let why: Vec<String> = unread.into_iter().chain(unfound).collect();
    (!why.is_empty()).then(|| why.join("; "))
}

/// Why a rule that reads namespaces has not seen all of the node, in short.
pub fn hidden(view: &View<'_>) -> Option<String> {
    let is_read = |entry: &NetnsEntry| entry.wiring.is_some();
    match unread(view) {
        _ if view.settings.surveyed && !view.model.netns.live().any(is_read) => {
            Some(String::from("no network namespace could be read"))
        }
        0 => unfound(view.model).map(|_| String::from("not all network namespaces could be found")),
        number => Some(format!(
            "{} could not be read",
            counted(number, "network namespace")
        )),
    }
}

/// What nsenter(1) is to be given to enter a namespace. What a container has
/// mounted comes last: a path in its root can lead elsewhere when it is opened.
fn way_in(entry: &NetnsEntry) -> Option<String> {
    let task = || entry.tasks.iter().min_by_key(|task| (task.pid, task.tid));
    let is_nodes = |path: &&PathBuf| matches!(mount::place(path), Place::Node(_));
    let mount = entry.mounts.iter().find(is_nodes);
    let mount = mount.map(|path| shell_word(path));
    mount
        .or_else(|| Some(format!("/proc/{}/ns/net", task()?.tid)))
        .or_else(|| {
            let FdHolder { pid, fd, .. } = entry.fds.first()?;
            Some(format!("/proc/{pid}/fd/{fd}"))
        })
        .or_else(|| Some(shell_word(entry.roots_mounts().next()?)))
        .map(|path| format!("--net={path}"))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
    };

    use event::finding::Rule;

    /// What two rules need is a fact: `facts`.
    #[test]
    fn no_rule_asks_another_one() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/detect");
        let rules: Vec<String> = Rule::ALL
            .iter()
            .map(|rule| rule.as_str().replace('-', "_"))
            .collect();
        let mut folders = vec![root.clone()];
        let mut files: Vec<PathBuf> = Vec::new();
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().path());
            let (more, code): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
            folders.extend(more);
            files.extend(code);
        }
        assert!(files.len() > rules.len());
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let code = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            let code: String = code.flat_map(|line| [line, "\n"]).collect();
            let own = file.strip_prefix(&root).unwrap();
            for rule in rules.iter().filter(|rule| !own.starts_with(rule)) {
                let is_own = own.with_extension("") == Path::new(rule);
                let asked = is_own || !code.contains(&format!("{rule}::"));
                assert!(asked, "{} asks {rule}", own.display());
            }
        }
    }
}
