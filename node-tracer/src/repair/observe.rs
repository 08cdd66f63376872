//! One look at the node, as a release needs it: every source, and none of them
//! silent.
//!
//! [`Scan`] looks and the engine judges, as in `scan`. What is added: cgroups of
//! any kind that bear a reservation's container, CNI plugins that run, and the
//! files themselves to the last byte. What stands in the way of releasing
//! anything at all is [hindrances](Observation::hindrances).

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::judge::{self, LookContent, Verdicts, withheld};
use crate::{
    config::Config,
    scan::Scan,
    snapshot::{NodeReader, UNLISTED},
};
use engine::{
    detect::View,
    model::{
        Model, TABLE_FULL,
        netns::{NETNS, NetnsEntry, NetnsTable},
        runtime::CRI,
    },
};
use event::repair::plan::Reason;
use event::{
    StoreKind, clock::Timestamp, fault, finding::Finding, record::CoverageItem,
    wording::plural::counted,
};
use kernel::live::{AllNets, ListedNetns};
use node::{
    cni::running::{self, Running},
    containers,
    hostlocal::locked_store::{Exact, LockedStore},
    procfs::Bounded,
    root::Root,
};

/// The kernel's list of network namespaces as a source.
const LIST: &str = "kernel's namespaces";

/// How long reading reservations may take.
const FILES_PATIENCE: Duration = Duration::from_secs(5);
/// How often a look is taken that has not seen everything: a process may have
/// ended while its files were read.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_millis(200);

/// How long the container runtime may take to answer: in part is no answer.
const CRI_PATIENCE: Duration = Duration::from_secs(10);
/// The same while pods wait for host-local's lock.
const CRI_PATIENCE_LOCKED: Duration = Duration::from_secs(4);

/// How thorough a look is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Twice in a moment, with findings that such a look confirms.
    Whole,
    Once,
    /// Once, and quickly: host-local's lock is held, and pods wait for it.
    Locked,
}

/// What a look has brought.
pub(crate) struct Observation {
    pub(crate) at: Timestamp,
    /// What was looked at, and what was not to be had.
    pub(crate) items: Vec<CoverageItem>,
    /// Why nothing at all may be released; empty if that is not so.
    pub(crate) hindrances: Vec<String>,
    scan: Scan,
    /// Network namespaces that the kernel has and the look has not found; `None` if
    /// that is not known.
    unseen: Option<Vec<ListedNetns>>,
    plugins: Running,
    cgroups: BTreeSet<String>,
}

/// Files by path, each as it was read.
pub(crate) type Files = BTreeMap<PathBuf, Result<Option<Exact>, String>>;

/// Looks at a node.
pub(crate) struct Observer {
    /// The kernel's own list of network namespaces, or why there is none.
    nets: Result<AllNets, String>,
}

impl Observer {
    /// Prepares. This takes rights that looking does not.
    pub(crate) fn new() -> Self {
        let nets = AllNets::load(Path::new("/proc"));
        Self {
            nets: nets.map_err(|error| fault::chain(&error)),
        }
    }

    /// Looks, again if not everything could be seen.
    ///
    /// # Errors
    /// The node cannot be looked at.
    pub(crate) fn look(&mut self, config: &Config, depth: Depth) -> anyhow::Result<Observation> {
        let (tries, patience) = match depth {
            Depth::Whole | Depth::Once => (TRIES, CRI_PATIENCE),
            Depth::Locked => (1, CRI_PATIENCE_LOCKED),
        };
        let mut looker = NodeReader::new(config)?.patient(patience);
        let mut observation = self.once(config, &mut looker, depth)?;
        for _ in 1..tries {
            // A runtime that has not answered was waited for long enough.
            if observation.hindrances.is_empty() || !observation.is_cri_complete() {
                break;
            }
            std::thread::sleep(PAUSE);
            observation = self.once(config, &mut looker, depth)?;
        }
        Ok(observation)
    }

    fn once(
        &mut self,
        config: &Config,
        looker: &mut NodeReader<'_>,
        depth: Depth,
    ) -> anyhow::Result<Observation> {
        let at = sys::clock::now();
        let mut scan = Scan::new(config, looker, None)?;
        let procfs = looker.procfs().clone();
        let root = Root::open(&config.node.root)?;
        // First: what one of these is about may be over when the rest is read,
        // and then the rest shows it.
        let mut plugins = running::running(&root, &procfs, &[])?;
        let mut items = match depth {
            Depth::Whole => scan.look(looker)?,
            Depth::Once | Depth::Locked => scan.look_once(looker)?,
        };
        let unseen = self.unseen(&scan.read);
        if let Err(why) = &unseen {
            items.push(CoverageItem {
                signal: LIST.to_owned(),
                mechanism: None,
                reason: Some(why.clone()),
                unknown: vec![String::from(UNLISTED)],
            });
        }
        let networks = scan.looks.engine().model().cni.networks();
        let after = running::running(&root, &procfs, networks.unwrap_or_default())?;
        plugins.containers.extend(after.containers);
        plugins.unread.extend(after.unread);
        let mut observation = Observation {
            at,
            items,
            hindrances: Vec::new(),
            scan,
            unseen: unseen.ok(),
            plugins,
            cgroups: BTreeSet::new(),
        };
        let ids = observation.container_ids();
        let named = match containers::named_in_cgroups(&config.node.root, &procfs, ids) {
            Ok(existing) => {
                observation.cgroups = existing.ids;
                existing.partial
            }
            Err(error) => Some(fault::chain(&error)),
        };
        let missing = named.map(|why| format!("not all cgroups could be looked at: {why}"));
        observation.hindrances = observation.find_hindrances();
        observation.hindrances.extend(missing);
        Ok(observation)
    }

    /// Namespaces on the kernel's list that the look has not read whole.
    fn unseen(&mut self, read: &BTreeSet<u32>) -> Result<Vec<ListedNetns>, String> {
        let nets = self.nets.as_mut().map_err(|why| why.clone())?;
        nets.others(read).map_err(|error| fault::chain(&error))
    }
}

impl Observation {
    fn model(&self) -> &Model {
        self.scan.looks.engine().model()
    }

    /// Findings, worst first.
    pub(crate) fn findings(&self) -> Vec<&Finding> {
        self.scan.looks.engine().open()
    }

    /// Paths of host-local's stores, each with its network and how many
    /// reservations it has.
    pub(crate) fn stores(&self) -> impl Iterator<Item = (&Path, Option<&str>, usize)> {
        let cni = &self.model().cni;
        let own = cni.stores().map(|listed| &listed.store);
        let own = own.filter(|store| store.kind == StoreKind::HostLocal);
        own.map(|store| {
            let network = cni.network_of(&store.path);
            (
                store.path.as_path(),
                network.map(|network| network.name.as_str()),
                store.reservations.len(),
            )
        })
    }

    fn container_ids(&self) -> BTreeSet<String> {
        let stores = self.model().cni.stores();
        let all = stores.flat_map(|listed| &listed.store.reservations);
        let ids = all.map(|each| each.holder.container_id.clone());
        ids.filter(|id| !id.is_empty()).collect()
    }

    /// What could not be read or asked, in words.
    pub(crate) fn unknown(&self) -> Vec<String> {
        let items = self.items.iter();
        items.flat_map(|item| item.unknown.clone()).collect()
    }

    /// The verdicts on all reservations, by this look alone.
    pub(crate) fn verdicts(&self, grace: Duration) -> Verdicts {
        let engine = self.scan.looks.engine();
        // Nothing that depends on the time is asked for but what is old.
        let view = View::new(engine.model(), engine.settings(), sys::clock::now());
        let unknown = self.unknown();
        judge::judge(LookContent {
            view: &view,
            at: self.at,
            grace,
            plugins: &self.plugins,
            cgroups: &self.cgroups,
            unknown: &unknown,
            unseen: self.unseen.as_deref().unwrap_or_default(),
        })
    }

    fn item(&self, signal: &str) -> Option<&CoverageItem> {
        self.items.iter().find(|item| item.signal == signal)
    }

    /// Whether all runtimes that were found have listed all that they have.
    fn is_cri_complete(&self) -> bool {
        let item = self.item(CRI);
        item.is_some_and(|item| complete(item) && item.reason.is_none())
    }

    /// Why nothing can be told from a leak.
    fn find_hindrances(&self) -> Vec<String> {
        let model = self.model();
        let mut found = Vec::new();
        let item = |signal: &str| self.item(signal);
        match item(CRI) {
            _ if self.is_cri_complete() => {}
            Some(item) => found.push(format!(
                "CRI does not answer, or not for all sandboxes: {}. Only the container runtime \
                 knows every sandbox, stopped ones included: see that it runs (crictl info), or \
                 name its socket with --cri",
                said(item)
            )),
            None => found.push(String::from("CRI was not asked")),
        }
        for signal in [containers::CGROUP, containers::SHIM] {
            match item(signal) {
                Some(item) if complete(item) => {}
                Some(item) => found.push(format!(
                    "which containers exist by {signal} is not known: {}",
                    said(item)
                )),
                None => found.push(format!("{signal} was not looked at")),
            }
        }
        found.extend(self.unknown_to_cri());
        let view = View::new(model, self.scan.looks.engine().settings(), self.at);
        // Whatever the rules make of it.
        let listed = self.unseen.is_some();
        let found_all =
            self.scan.nets_whole && model.failure(NETNS).is_none() && are_all_read(&model.netns);
        match view.judge() {
            Some(_) if listed => {}
            Some(judge) if !judge.is_blind() && found_all => {}
            Some(_) => {
                let kernel = item("kernel").map(said).unwrap_or_default();
                let list = item(LIST).map(said).unwrap_or_default();
                found.push(format!(
                    "not every network namespace could be looked at, and one that was not may \
                     have any address: {kernel}; the kernel's own list: {list}"
                ));
            }
            None => found.push(String::from(
                "neither CRI nor cgroups tell which containers exist",
            )),
        }
        let unfound = view.end_of_unfound().filter(|_| !listed);
        if let Some(name) = unfound {
            found.push(format!(
                "the other end of {name} is in a network namespace that was not found, and that \
                 one may have any address: it is being taken down, or something keeps it out of \
                 sight (see its orphan-veth finding)"
            ));
        }
        found.extend(
            self.plugins
                .unread
                .iter()
                .map(|each| format!("not known: {each}")),
        );
        if let Some(left_out) = model.losses.by_cause.get(TABLE_FULL) {
            found.push(format!(
                "the node has more than the tool keeps: {left_out} entries were left out"
            ));
        }
        found
    }

    /// A runtime that has just been started lists nothing for a moment, and one
    /// that is not the kubelet's never lists its pods.
    fn unknown_to_cri(&self) -> Option<String> {
        let runtime = &self.model().runtime;
        let cri = runtime.cri()?;
        let mut existing: BTreeSet<&str> = BTreeSet::new();
        for (_, ids) in runtime.container_sources() {
            existing.extend(ids.iter().map(String::as_str));
        }
        let others = runtime.lists().filter(|list| list.source != CRI);
        for list in others {
            existing.extend(list.sandboxes().map(|sandbox| sandbox.id.as_str()));
        }
        let known = existing.iter().any(|id| cri.of_container(id).is_some());
        (!existing.is_empty() && !known).then(|| {
            format!(
                "CRI ({}) lists {}, and none of the {} that have a cgroup, a shim or a folder on \
                 this node: it has just been started, or another runtime's socket is missing \
                 (--cri)",
                cri.endpoint,
                counted(cri.sandboxes().count(), "sandbox"),
                counted(existing.len(), "container"),
            )
        })
    }

    /// Reads what would be released to the last byte, and leaves out what the
    /// files themselves speak against.
    pub(crate) fn read(
        &self,
        verdicts: &mut Verdicts,
        root: &Path,
        grace: Duration,
    ) -> BTreeMap<PathBuf, Exact> {
        let wanted: Vec<(PathBuf, PathBuf, String)> = verdicts
            .free
            .iter()
            .map(|(path, free)| {
                let name = node::hostlocal::file_name(free.reservation.address);
                (path.clone(), free.store.clone(), name)
            })
            .collect();
        let (root, wanted) = (root.to_owned(), Arc::new(wanted));
        let read = {
            let wanted = Arc::clone(&wanted);
            move || read_all(&root, &wanted)
        };
        let bounded = Bounded::default();
        let files = bounded.read(FILES_PATIENCE, read).unwrap_or_else(|error| {
            let why = format!("the store does not answer: {}", fault::chain(&error));
            wanted
                .iter()
                .map(|(path, ..)| (path.clone(), Err(why.clone())))
                .collect()
        });
        let mut exacts = BTreeMap::new();
        for (path, file) in files {
            let Some(free) = verdicts.free.get(&path) else {
                continue;
            };
            let each = &free.reservation;
            let why = match file {
                Ok(Some(exact)) => match judge::of_file(&exact, each, self.at, grace) {
                    None => {
                        exacts.insert(path, exact);
                        continue;
                    }
                    some => some,
                },
                Ok(None) => Some((Reason::Changed, String::from("it has just been released"))),
                Err(error) => Some((Reason::Unreadable, error)),
            };
            if let Some((reason, why)) = why {
                let withheld = withheld(each, reason, why);
                verdicts.free.remove(&path);
                verdicts.withheld.insert(path, withheld);
            }
        }
        exacts
    }
}

/// Whether every namespace that lives was visited, and the host's own is one of
/// them: of one that was not, it is not known which addresses it has.
fn are_all_read(all: &NetnsTable) -> bool {
    let is_read = |entry: &NetnsEntry| entry.wiring.is_some();
    all.live().any(|entry| entry.host) && all.live().all(is_read)
}

/// Whether a source has told all.
fn complete(item: &CoverageItem) -> bool {
    item.mechanism.is_some() && item.unknown.is_empty()
}

/// What an item says is missing.
fn said(item: &CoverageItem) -> String {
    let mut texts: Vec<&str> = item.reason.as_deref().into_iter().collect();
    texts.extend(item.unknown.iter().map(String::as_str));
    texts.join("; ")
}

fn read_all(root: &Path, wanted: &[(PathBuf, PathBuf, String)]) -> Files {
    let mut opened_stores: BTreeMap<&Path, Result<LockedStore, String>> = BTreeMap::new();
    let root = Root::open(root).map_err(|error| fault::chain(&error));
    let open = |store: &Path| {
        let root = root.as_ref().map_err(Clone::clone)?;
        match LockedStore::open(root, store) {
            Ok(Some(opened)) => Ok(opened),
            Ok(None) => Err(String::from("the store is gone")),
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => Err(String::from(
                "the path of the store leads through a symbolic link, and this tool changes \
                 nothing by one; release it by hand (see scan)",
            )),
            Err(error) => Err(format!("the store cannot be opened: {error}")),
        }
    };
    let mut files = Files::new();
    for (path, store, name) in wanted {
        let opened = opened_stores.entry(store).or_insert_with(|| open(store));
        let file = match opened {
            Ok(opened) => opened.read(name).map_err(|error| error.to_string()),
            Err(why) => Err(why.clone()),
        };
        files.insert(path.clone(), file);
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::testing::Node;
    use event::{Event, testing::*};

    fn are_all_read_of(story: &[Event]) -> bool {
        are_all_read(&Node::of(story).0.model().netns)
    }

    #[test]
    fn a_namespace_that_was_not_read_stands_in_the_way_and_so_does_the_hosts() {
        let (hosts, pods) = (devices(3, 1, &[], &[], &[]), devices(3, 100, &[], &[], &[]));
        let both = [host(0), found(1, 100)];
        let after = |more: &[&Event]| -> Vec<Event> {
            let all = both.iter().chain(more.iter().copied());
            all.cloned().collect()
        };
        assert!(are_all_read_of(&after(&[&hosts, &pods])));
        // rtnetlink's lock was held from the first visit on, or there are no
        // rights to enter any.
        assert!(!are_all_read_of(&after(&[])));
        assert!(!are_all_read_of(&after(&[&pods])), "the host's");
        assert!(!are_all_read_of(&after(&[&hosts])), "the pod's");
        let goes = dying(4, 100);
        assert!(are_all_read_of(&after(&[&hosts, &goes])), "it has none");
        assert!(!are_all_read_of(&[found(1, 100), pods]), "no host");
        assert!(!are_all_read_of(&[]), "nothing was found");
    }
}
