//! Putting back what a repair has released, as far as that is still free.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    apply::{Tell, release},
    backup::{self, Saved},
    load::{Refusal, same_root},
};
use crate::{
    config::{Config, Undoing},
    scan::Scan,
    snapshot::NodeReader,
};
use engine::model::Model;
use event::repair::outcome::{Action, Outcome, Result as Became, Totals};
use event::{
    What, fault,
    wording::{
        plural::counted,
        subjects::{pod_word, short_id},
    },
};
use node::{
    cni::Configuration,
    hostlocal::{self, locked_store::LockedStore, parse},
    root::Root,
};
use sys::privileges::Starter;

/// Puts back.
///
/// # Errors
/// It is no backup, or of another node or root: nothing was changed.
pub(crate) fn run(
    config: &Config,
    undoing: &Undoing,
    writer: &Starter,
    tell: Tell<'_>,
) -> anyhow::Result<Totals> {
    if !rustix::process::geteuid().is_root() {
        return Err(Refusal::NotRoot.into());
    }
    let node = &config.node;
    let folder = undoing.backup.clone();
    let found = writer.run(move || backup::read(&folder))??;
    if found.header.node != node.name {
        return Err(Refusal::OtherNode {
            planned: found.header.node,
            this: node.name.clone(),
        }
        .into());
    }
    same_root(&found.header.root, node)?;
    let folder = undoing.backup.to_string_lossy().into_owned();
    let mut totals = Totals::new(Action::Undo, &node.root, folder);
    if found.header.boot_id != node.boot_id {
        totals.notes.push(String::from(
            "the node was started again since: no container that had these addresses runs any more",
        ));
    }
    if found.ignored > 0 {
        totals.notes.push(format!(
            "{} of the manifest cannot be understood and was left out, as after a run that was \
             killed; whatever had been removed by then has a whole line",
            counted(found.ignored, "line")
        ));
    }
    let known = stores(config)?;
    let mut by_store: BTreeMap<PathBuf, Vec<Saved>> = BTreeMap::new();
    for saved in found.released {
        by_store.entry(saved.store.clone()).or_default().push(saved);
    }
    let mut all = Vec::new();
    for (store, saved) in by_store {
        match known.contains(&store) {
            true => all.extend(put_back(config, writer, &store, saved)?),
            false => all.extend(failed(
                saved,
                "there is no such store on this node any more",
            )),
        }
    }
    name_owners(config, &mut all);
    for (outcome, _) in all {
        totals.count(&outcome);
        tell(&outcome)?;
    }
    Ok(totals)
}

/// So many are put back while host-local's lock is held: each waits for the disk,
/// and pods that start wait for all.
const AT_ONCE: usize = 32;

/// What became of one, and who has its address.
type Done = (Outcome, Option<String>);

/// Paths of host-local's stores, as they are now.
fn stores(config: &Config) -> anyhow::Result<Vec<PathBuf>> {
    let root = Root::open(&config.node.root)?;
    let networks = Configuration::read(&root).networks;
    let events = hostlocal::look(&root, &networks, sys::clock::now());
    let paths = events.into_iter().filter_map(|event| match event.what {
        What::StoreListed { store } => Some(store.path),
        _ => None,
    });
    // One that has no reservation is no store of the default folder's yet.
    let configured = networks.iter().filter_map(|network| network.store.clone());
    Ok(paths.chain(configured).collect())
}

fn put_back(
    config: &Config,
    writer: &Starter,
    store: &Path,
    all: Vec<Saved>,
) -> anyhow::Result<Vec<Done>> {
    let opened = match release::open(writer, &config.node.root, store) {
        Ok(opened) => opened,
        Err(error) => return Ok(failed(all, &fault::chain(error.as_ref()))),
    };
    let mut done = Vec::new();
    let mut all = all.into_iter().peekable();
    while all.peek().is_some() {
        let some: Vec<Saved> = all.by_ref().take(AT_ONCE).collect();
        let lock = match release::lock(writer, &opened)? {
            Ok(lock) => lock,
            Err(error) => {
                done.extend(failed(some, &fault::chain(&error)));
                continue;
            }
        };
        let opened = Arc::clone(&opened);
        done.extend(writer.run(move || -> Vec<Done> {
            let put = |saved: &Saved| put_one(&opened, &lock, saved);
            some.iter().map(put).collect()
        })?);
    }
    Ok(done)
}

fn put_one(opened: &LockedStore, lock: &hostlocal::locked_store::Lock, saved: &Saved) -> Done {
    let name = hostlocal::file_name(saved.address);
    let put = opened.put(lock, &name, &saved.exact());
    let error = match put {
        Ok(()) => return (outcome(saved, Became::Restored, None), None),
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            let why = format!("it cannot be made: {error}");
            return (outcome(saved, Became::Failed, Some(why)), None);
        }
        Err(error) => error,
    };
    match opened.read(&name) {
        Ok(Some(exact)) if exact.content == saved.content => {
            let why = String::from("it is there, as it was");
            (outcome(saved, Became::Unchanged, Some(why)), None)
        }
        Ok(Some(exact)) => {
            let owner = parse(&exact.content)
                .map(|(id, _)| id)
                .filter(|id| !id.is_empty());
            let who = match &owner {
                Some(id) => format!("container {}", short_id(id)),
                None => String::from("something that is no reservation"),
            };
            let why = format!("the address has a new owner: {who}");
            (outcome(saved, Became::Taken, Some(why)), owner)
        }
        Ok(None) | Err(_) => {
            let why = format!("it cannot be made: {error}");
            (outcome(saved, Became::Failed, Some(why)), None)
        }
    }
}

fn failed(all: Vec<Saved>, why: &str) -> Vec<Done> {
    let one = |saved: &Saved| (outcome(saved, Became::Failed, Some(why.to_owned())), None);
    all.iter().map(one).collect()
}

fn outcome(saved: &Saved, result: Became, why: Option<String>) -> Outcome {
    Outcome {
        action: Action::Undo,
        path: saved.path.to_string_lossy().into_owned(),
        address: saved.address,
        container_id: saved.container_id.clone(),
        ifname: saved.ifname.clone(),
        result,
        why,
    }
}

/// Says whose containers have taken addresses, as far as a look at the node
/// tells.
fn name_owners(config: &Config, all: &mut [Done]) {
    if all.iter().all(|(_, owner)| owner.is_none()) {
        return;
    }
    let look = || -> anyhow::Result<Scan> {
        let mut looker = NodeReader::new(config)?;
        let mut scan = Scan::new(config, &looker, None)?;
        scan.look_once(&mut looker)?;
        Ok(scan)
    };
    let scan = match look() {
        Ok(scan) => scan,
        Err(error) => {
            tracing::warn!(
                "whose containers these are: {}",
                fault::chain(error.as_ref())
            );
            return;
        }
    };
    let model = scan.looks.engine().model();
    for (outcome, owner) in all {
        let pod = owner
            .as_deref()
            .and_then(|id| pod_of(model, id, outcome.address));
        if let (Some(pod), Some(why)) = (pod, &mut outcome.why) {
            *why = format!("{why} of pod {pod}");
        }
    }
}

fn pod_of(model: &Model, id: &str, address: IpAddr) -> Option<String> {
    let listed = model
        .runtime
        .of_container(id)
        .map(|(_, sandbox)| &sandbox.pod);
    let mut attached = model.cni.of_container(id);
    let attached = || attached.find_map(|each| each.pod.as_ref());
    if let Some(pod) = listed.or_else(attached) {
        return Some(pod_word(pod));
    }
    let mut pods = model.pods.list()?.pods().iter();
    let pod = pods.find(|pod| pod.ips.contains(&address))?;
    Some(format!("{}/{}", pod.namespace, pod.name))
}
