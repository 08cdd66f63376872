//! From a word to what it names on this node.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::Path,
};

use super::{
    Hints,
    index::Index,
    subject::{Asked, Candidate, Form, SubjectError, pid_of_path, same_path},
};
use crate::{
    detect::{
        View,
        facts::{functions, reservations},
    },
    model::netns::NetnsEntry,
};
use event::explanation::Kind;
use event::{Device, FdHolder, Netns, Task, order::Order as _};

/// Candidates of an ambiguous prefix that are named.
const CANDIDATES: usize = 10;

/// Namespaces with an address that are explained: every one has 127.0.0.1.
const NAMESPACES: usize = 64;

/// What a word names.
#[derive(Debug)]
pub(super) struct Resolved {
    /// As what it was taken.
    pub(super) kind: Kind,
    pub(super) value: String,
    /// What is known by it.
    pub(super) seeds: Seeds,
    /// What else it could have meant.
    pub(super) also: Vec<String>,
}

/// Where an explanation begins.
#[derive(Clone, Debug, Default)]
pub(super) struct Seeds {
    /// Something is known of it.
    pub(super) found: bool,
    pub(super) address: Option<IpAddr>,
    /// `namespace`, `name`
    pub(super) name: Option<(String, String)>,
    pub(super) netns: BTreeSet<Netns>,
    pub(super) containers: BTreeSet<String>,
    pub(super) uids: BTreeSet<String>,
    pub(super) task: Option<Task>,
    /// The namespace that takes packets to the address by a local route, if no
    /// device has it.
    pub(super) taker: Option<Netns>,
    /// Namespaces that have the address and are left out.
    pub(super) cut: usize,
}

/// Takes the first meaning of which something is known; if nothing is known of
/// any, the likeliest one.
pub(super) fn resolve(
    asked: &Asked,
    view: &View<'_>,
    index: &Index<'_>,
    hints: &Hints,
) -> Result<Resolved, SubjectError> {
    let mut taken: Option<Resolved> = None;
    let mut otherwise: Option<Resolved> = None;
    let mut also = Vec::new();
    for form in &asked.forms {
        let resolved = match meaning(form, view, index, hints) {
            Ok(resolved) => resolved,
            Err(ambiguous) if taken.is_none() => return Err(ambiguous),
            Err(_) => {
                also.push(format!("{} of several: {}", noun(form), explicitly(form)));
                continue;
            }
        };
        if taken.is_some() && resolved.seeds.found {
            also.push(format!("{}: {}", noun(form), explicitly(form)));
        } else if resolved.seeds.found {
            taken = Some(resolved);
        } else {
            otherwise.get_or_insert(resolved);
        }
    }
    let resolved = taken.or(otherwise);
    // There is at least one form; an empty answer needs no panic.
    let mut resolved = resolved.unwrap_or(Resolved {
        kind: Kind::Container,
        value: asked.text.clone(),
        seeds: Seeds::default(),
        also: Vec::new(),
    });
    resolved.also = also;
    Ok(resolved)
}

/// How to ask for one meaning alone.
fn explicitly(form: &Form) -> String {
    match form {
        Form::Address(address) => format!("ip:{address}"),
        Form::Pod(namespace, name) => format!("pod:{namespace}/{name}"),
        Form::Uid(uid) => format!("uid:{uid}"),
        Form::Container(prefix) => format!("container:{prefix}"),
        Form::Inode(inode) => format!("netns:{inode}"),
        Form::Path(path) => format!("path:{}", path.display()),
        Form::Pid(pid) => format!("pid:{pid}"),
        Form::Name(name) => format!("pod:{name}"),
        Form::Device(name) => format!("dev:{name}"),
        Form::Mac(mac) => format!("mac:{mac}"),
        Form::Pci(address) => format!("pci:{address}"),
    }
}

fn noun(form: &Form) -> &'static str {
    match form {
        Form::Address(_) => "an address",
        Form::Pod(..) => "a pod",
        Form::Uid(_) => "a pod's UID",
        Form::Container(_) => "a sandbox's or container's ID",
        Form::Inode(_) => "a network namespace",
        Form::Path(_) => "a path",
        Form::Pid(_) => "a process",
        Form::Name(_) => "a pod's name",
        Form::Device(_) => "an interface",
        Form::Mac(_) => "a MAC address",
        Form::Pci(_) => "a PCI address",
    }
}

fn meaning(
    form: &Form,
    view: &View<'_>,
    index: &Index<'_>,
    hints: &Hints,
) -> Result<Resolved, SubjectError> {
    let (kind, value, seeds) = match form {
        Form::Address(ip) => (Kind::Address, ip.to_string(), address(*ip, view, index)),
        Form::Pod(namespace, name) => {
            let seeds = pod(namespace, name, index);
            (Kind::Pod, format!("{namespace}/{name}"), seeds)
        }
        Form::Uid(text) => (Kind::PodUid, text.clone(), uid(text, index)),
        Form::Container(prefix) => {
            let id = container(prefix, index)?;
            let seeds = Seeds {
                found: id.is_some(),
                containers: id.iter().cloned().collect(),
                ..Seeds::default()
            };
            (Kind::Container, id.unwrap_or_else(|| prefix.clone()), seeds)
        }
        Form::Inode(inode) => (Kind::Netns, inode.to_string(), netns(*inode, index)),
        Form::Name(name) => match pod_of_name(name, index)? {
            Some((namespace, name)) => {
                let seeds = pod(&namespace, &name, index);
                (Kind::Pod, format!("{namespace}/{name}"), seeds)
            }
            None => (Kind::Pod, name.clone(), Seeds::default()),
        },
        Form::Device(name) => {
            let is_it = |device: &Device| device.name == *name;
            match netns_of_device(name, is_it, view, index)? {
                Some(inode) => (Kind::Netns, inode.to_string(), netns(inode, index)),
                None => (
                    Kind::Netns,
                    format!("with an interface {name}"),
                    Seeds::default(),
                ),
            }
        }
        Form::Mac(mac) => {
            let is_it = |device: &Device| {
                let own = device.mac.as_deref();
                own.is_some_and(|own| own.eq_ignore_ascii_case(mac))
            };
            match netns_of_device(mac, is_it, view, index)? {
                Some(inode) => (Kind::Netns, inode.to_string(), netns(inode, index)),
                None => (
                    Kind::Netns,
                    format!("with the MAC address {mac}"),
                    Seeds::default(),
                ),
            }
        }
        Form::Pci(address) => {
            let is_it = |device: &Device| {
                functions::address_of(view, device).is_some_and(|own| own == *address)
            };
            let found = netns_of_device(address, is_it, view, index)?;
            let is_known = functions::all(view).any(|it| it.address == *address);
            let seeds = match found {
                Some(inode) => netns(inode, index),
                None => Seeds {
                    found: is_known,
                    ..Seeds::default()
                },
            };
            let value = match found {
                Some(inode) => inode.to_string(),
                None => format!("with the PCI address {address}"),
            };
            (Kind::Netns, value, seeds)
        }
        Form::Path(text) if let Some(ip) = reserved_at(text, index) => {
            (Kind::Address, ip.to_string(), address(ip, view, index))
        }
        Form::Path(text) => {
            let value = text.display().to_string();
            (Kind::NetnsPath, value, path(text, index, hints))
        }
        Form::Pid(number) => (Kind::Pid, number.to_string(), pid(*number, index, hints)),
    };
    Ok(Resolved {
        kind,
        value,
        seeds,
        also: Vec::new(),
    })
}

/// Everything that has or names an address.
fn address(ip: IpAddr, view: &View<'_>, index: &Index<'_>) -> Seeds {
    let model = index.model;
    let mut seeds = Seeds {
        address: Some(ip),
        ..Seeds::default()
    };
    let with: Vec<_> = model.netns.with_address(ip).collect();
    seeds.cut = with.len().saturating_sub(NAMESPACES);
    let with = with.into_iter().take(NAMESPACES);
    seeds.netns.extend(with.map(|entry| entry.id));
    if seeds.netns.is_empty() {
        seeds.taker = reservations::taker(view, ip).map(|entry| entry.id);
        seeds.netns.extend(seeds.taker);
    }
    let reserved = model.cni.reservations(ip);
    let ids = reserved.map(|(_, reservation)| &reservation.holder);
    let asked = model.allocations.get(ip);
    let asked = asked.and_then(|known| known.answer.as_ref()?.holder.as_ref());
    let ids: Vec<_> = ids
        .chain(asked)
        .map(|holder| holder.container_id.clone())
        .collect();
    let is_reserved = !ids.is_empty();
    seeds.containers.extend(ids);
    for (_, sandbox) in index.sandboxes() {
        if sandbox.ips.contains(&ip) {
            seeds.containers.insert(sandbox.id.clone());
        }
    }
    for attachment in model.cni.attachments() {
        if attachment.ips.contains(&ip) {
            seeds.containers.insert(attachment.container_id.clone());
        }
    }
    let listed = model.pods.list().into_iter().flat_map(|list| list.pods());
    let pods = listed.chain(model.pods.departed().map(|(pod, _)| pod));
    for pod in pods.filter(|pod| pod.ips.contains(&ip)) {
        seeds.uids.extend(pod.uids.iter().cloned());
    }
    // A file that names nobody is a reservation all the same.
    seeds.containers.remove("");
    seeds.found = is_reserved
        || !(seeds.netns.is_empty() && seeds.containers.is_empty() && seeds.uids.is_empty());
    seeds
}

/// Every pod of a name, whatever its UID.
fn pod(namespace: &str, name: &str, index: &Index<'_>) -> Seeds {
    let model = index.model;
    let mut seeds = Seeds {
        name: Some((namespace.to_owned(), name.to_owned())),
        ..Seeds::default()
    };
    let listed = model.pods.list().into_iter().flat_map(|list| list.pods());
    let pods = listed.chain(model.pods.departed().map(|(pod, _)| pod));
    for pod in pods.filter(|pod| pod.name == name && pod.namespace == namespace) {
        seeds.uids.extend(pod.uids.iter().cloned());
    }
    let is_it = |pod: &event::PodRef| {
        pod.name.as_deref() == Some(name) && pod.namespace.as_deref() == Some(namespace)
    };
    let mut note = |pod: &event::PodRef, id: Option<&str>, netns: Option<Netns>| {
        if !is_it(pod) {
            return;
        }
        seeds.uids.extend(pod.uid.clone());
        seeds.containers.extend(id.map(str::to_owned));
        seeds.netns.extend(netns);
    };
    for entry in &index.entries {
        if let Some(pod) = &entry.sandbox.pod {
            note(pod, entry.sandbox.id.as_deref(), Some(entry.id));
        }
    }
    for (_, sandbox) in index.sandboxes() {
        note(&sandbox.pod, Some(&sandbox.id), None);
    }
    for attachment in model.cni.attachments() {
        if let Some(pod) = &attachment.pod {
            note(pod, Some(&attachment.container_id), None);
        }
    }
    seeds.found = !(seeds.netns.is_empty() && seeds.containers.is_empty() && seeds.uids.is_empty());
    seeds
}

fn uid(uid: &str, index: &Index<'_>) -> Seeds {
    let model = index.model;
    let mut lists = model.runtime.lists();
    let known = model.pods.pod(uid);
    let found = known.is_some()
        || !index.of_uid(uid).is_empty()
        || model.cni.of_pod(uid).next().is_some()
        || lists.any(|list| list.of_pod(uid).next().is_some())
        || index
            .tasks()
            .any(|(task, _)| task.pod_uid.as_deref() == Some(uid));
    // Others of its name matter: what is called for one can hit the other.
    let name = known.map(|pod| (pod.namespace.clone(), pod.name.clone()));
    let mut seeds = match name {
        Some((namespace, name)) => pod(&namespace, &name, index),
        None => Seeds::default(),
    };
    seeds.found = found;
    seeds.uids.extend(found.then(|| uid.to_owned()));
    seeds
}

/// The one pod that has a name, in whatever Kubernetes namespace.
fn pod_of_name(name: &str, index: &Index<'_>) -> Result<Option<(String, String)>, SubjectError> {
    let model = index.model;
    let listed = model.pods.list().into_iter().flat_map(|list| list.pods());
    let mut found: BTreeMap<&str, &str> = BTreeMap::new();
    for pod in listed.filter(|pod| pod.name == name) {
        found.insert(&pod.namespace, "in the API");
    }
    for (pod, _) in model.pods.departed().filter(|(pod, _)| pod.name == name) {
        found.entry(&pod.namespace).or_insert("deleted");
    }
    let sandboxes = index
        .entries
        .iter()
        .filter_map(|entry| entry.sandbox.pod.as_ref());
    let listed = index.sandboxes().map(|(_, sandbox)| &sandbox.pod);
    let attached = model.cni.attachments().filter_map(|it| it.pod.as_ref());
    for pod in sandboxes.chain(listed).chain(attached) {
        if let (Some(namespace), Some(own)) = (&pod.namespace, &pod.name)
            && own == name
        {
            found.entry(namespace).or_insert("a sandbox on this node");
        }
    }
    if found.len() < 2 {
        let namespace = found.into_keys().next();
        return Ok(namespace.map(|namespace| (namespace.to_owned(), name.to_owned())));
    }
    let all = found.iter().map(|(namespace, what)| Candidate {
        id: format!("{namespace}/{name}"),
        what: (*what).to_owned(),
    });
    let what = format!("name of {} pods", found.len());
    Err(ambiguous(name, what, all.collect()))
}

/// The one network namespace that a device belongs to. One of the host's that
/// leads to another namespace, or of nobody's that leads to a pod's, belongs to
/// that: so a pod's veth is named.
fn netns_of_device(
    asked: &str,
    is_it: impl Fn(&Device) -> bool,
    view: &View<'_>,
    index: &Index<'_>,
) -> Result<Option<u32>, SubjectError> {
    let mut found: BTreeMap<u32, String> = BTreeMap::new();
    for entry in &index.entries {
        let devices = entry.wiring.iter().flat_map(|wiring| &wiring.devices);
        for device in devices.filter(|device| is_it(device)) {
            let other = view.veth_pairs().other_end(entry, device);
            // A node's own namespace need not be this machine's.
            let is_pods = |entry: &NetnsEntry| entry.sandbox.pod.is_some();
            let inside = other.filter(|other| {
                !other.entry.host && (entry.host || (!is_pods(entry) && is_pods(other.entry)))
            });
            let place = inside.map_or(*entry, |other| other.entry);
            let whose = match &place.sandbox.pod {
                Some(pod) => pod.label(),
                None if place.host => String::from("the host"),
                None => String::from("no pod"),
            };
            let what = format!("{}, of {whose}", device.name);
            found.entry(place.id.inode).or_insert(what);
        }
    }
    if found.len() < 2 {
        return Ok(found.into_keys().next());
    }
    let what = format!("interface of {} network namespaces", found.len());
    let all = found.into_iter().map(|(inode, what)| Candidate {
        id: format!("netns:{inode}"),
        what,
    });
    Err(ambiguous(asked, what, all.collect()))
}

/// The address whose reservation a file is.
fn reserved_at(path: &Path, index: &Index<'_>) -> Option<IpAddr> {
    let stores = index.model.cni.stores();
    let mut all = stores.flat_map(|listed| &listed.store.reservations);
    // A store that is one file has all of them there.
    let its = all.find(|each| same_path(&each.holder.path, path))?;
    let is_only = all.all(|each| !same_path(&each.holder.path, path));
    is_only.then_some(its.address)
}

fn ambiguous(asked: &str, what: String, mut candidates: Vec<Candidate>) -> SubjectError {
    let more = candidates.len().saturating_sub(CANDIDATES);
    candidates.truncate(CANDIDATES);
    SubjectError::Ambiguous {
        asked: asked.to_owned(),
        what,
        candidates,
        more,
    }
}

/// The one ID that begins so.
fn container(prefix: &str, index: &Index<'_>) -> Result<Option<String>, SubjectError> {
    let mut known: BTreeMap<&str, String> = BTreeMap::new();
    for (id, what) in index.container_ids() {
        if id.starts_with(prefix) {
            known.entry(id).or_insert(what);
        }
    }
    if known.contains_key(prefix) || known.len() < 2 {
        let exact = known.contains_key(prefix).then_some(prefix);
        let id = exact.or_else(|| known.keys().next().copied());
        return Ok(id.map(str::to_owned));
    }
    let what = format!("beginning of {} IDs", known.len());
    let all = known.into_iter().map(|(id, what)| Candidate {
        id: id.to_owned(),
        what,
    });
    Err(ambiguous(prefix, what, all.collect()))
}

fn netns(inode: u32, index: &Index<'_>) -> Seeds {
    let id = Netns {
        inode,
        cookie: None,
    };
    let mut seeds = Seeds::default();
    let known = index.model.netns.get(id).map(|entry| entry.id);
    seeds.netns.extend(known);
    for attachment in index.model.cni.in_netns(inode) {
        seeds.containers.insert(attachment.container_id.clone());
    }
    for list in index.model.runtime.lists() {
        let there = list.in_netns(id).filter(|sandbox| !sandbox.host_network);
        seeds.containers.extend(there.map(|there| there.id.clone()));
    }
    seeds.found = known.is_some() || !seeds.containers.is_empty();
    seeds
}

/// What is mounted at a path, or is said to have been.
fn path(path: &Path, index: &Index<'_>, hints: &Hints) -> Seeds {
    if let Some(number) = pid_of_path(path) {
        let mut seeds = pid(number, index, hints);
        seeds.add_netns(hints.netns_of_path, index);
        return seeds;
    }
    let mut seeds = Seeds::default();
    match hints.netns_of_path {
        // What is there now is the answer, whatever was there before.
        Some(_) => seeds.add_netns(hints.netns_of_path, index),
        None => seeds
            .netns
            .extend(index.at_path(path).into_iter().map(|entry| entry.id)),
    }
    for (_, sandbox) in index.sandboxes() {
        let its = sandbox.netns_path.as_deref();
        if its.is_some_and(|its| same_path(Path::new(its), path)) && !sandbox.host_network {
            seeds.containers.insert(sandbox.id.clone());
        }
    }
    for attachment in index.model.cni.attachments() {
        if same_path(Path::new(&attachment.netns_path), path) {
            seeds.containers.insert(attachment.container_id.clone());
        }
    }
    seeds.found = !(seeds.netns.is_empty() && seeds.containers.is_empty());
    seeds
}

fn pid(pid: u32, index: &Index<'_>, hints: &Hints) -> Seeds {
    let mut seeds = Seeds::default();
    let is_it = |task: &Task| task.tid == pid || task.pid == pid;
    let known: Vec<(&Task, Option<&NetnsEntry>)> =
        index.tasks().filter(|(task, _)| is_it(task)).collect();
    // The thread itself before its siblings, and a stuck one before others; of
    // a process, a stuck thread first: its leader can be dead.
    let stuck = |task: &Task| index.model.blocked.get(task).is_some();
    let mut tasks: Vec<&Task> = known.iter().map(|(task, _)| *task).collect();
    tasks.extend(&hints.task);
    let whole = tasks.iter().all(|task| task.pid == pid);
    tasks.order_by_key(|task| match whole {
        true => (!stuck(task), task.tid != pid),
        false => (task.tid != pid, !stuck(task)),
    });
    seeds.task = tasks.first().map(|task| (*task).clone());
    let places = known.iter().filter_map(|(_, entry)| *entry);
    seeds.netns.extend(places.map(|entry| entry.id));
    seeds.add_netns(hints.netns_of_pid, index);
    let holds = |holder: &FdHolder| holder.pid == pid;
    for entry in &index.entries {
        if entry.fds.iter().chain(&entry.sockets).any(holds) {
            seeds.netns.insert(entry.id);
        }
    }
    for (_, sandbox) in index.sandboxes() {
        if sandbox.pid == Some(pid) {
            seeds.containers.insert(sandbox.id.clone());
        }
        let its = sandbox.containers.iter();
        let its = its.filter(|container| container.pid == Some(pid));
        seeds
            .containers
            .extend(its.map(|container| container.id.clone()));
    }
    if let Some(task) = &seeds.task {
        seeds.uids.extend(task.pod_uid.clone());
        seeds.containers.extend(task.container_id.clone());
    }
    seeds.found = seeds.task.is_some() || !seeds.netns.is_empty() || !seeds.containers.is_empty();
    seeds
}

impl Seeds {
    /// A namespace that was looked up outside the model; as the model has it,
    /// where it does.
    fn add_netns(&mut self, netns: Option<Netns>, index: &Index<'_>) {
        let Some(netns) = netns else { return };
        let known = index.model.netns.get(netns).map(|entry| entry.id);
        self.netns.insert(known.unwrap_or(netns));
        self.found = true;
    }
}
