//! What the tracers of many nodes ask one API server, for `cargo xtask bench fleet`:
//! each node's watch of its pods and its questions for Calico's blocks are `trace`'s
//! own; who judges is left out. The root has the CNI configuration of every node.
//!
//! ```text
//! fleet KUBECONFIG ROOT
//! ```
//!
//! It is told on stdin, one a line: `run N` (the nodes `node-0` to `node-(N-1)` have a
//! tracer from now on), `renew FROM TO` (those of these nodes end and start again).
//! Ten times a second it says on stdout, as JSON, how many requests it has made, how
//! many bytes it was answered, and how often each node has begun to follow its pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    io::{Write as _, stdin, stdout},
    net::IpAddr,
    path::{Path, PathBuf},
    process,
    sync::mpsc::{self, TryRecvError},
    thread,
    time::Duration,
};

use event::Pod;
use ipam::{Api, Watcher};
use kube::{Credentials, Watch, WatchUpdate, traffic};
use node::root::Root;
use node_tracer_ipam as ipam;
use serde_json::json;

const PAUSE: Duration = Duration::from_millis(100);

type Outcome<T> = Result<T, Box<dyn Error>>;

/// One node's tracer, as the API server has it.
struct Node {
    watch: Watch,
    stores: Watcher,
    /// By UID.
    addresses: BTreeMap<String, Vec<IpAddr>>,
    /// How often it has begun to follow its pods.
    followed: u64,
}

impl Node {
    fn start(
        credentials: &Credentials,
        root: &Path,
        kubeconfig: &Path,
        name: &str,
    ) -> Outcome<Self> {
        let api = Api {
            refused: None,
            kubeconfig: Some(kubeconfig.to_owned()),
            node: name.to_owned(),
        };
        Ok(Self {
            watch: Watch::start(credentials.clone(), name)?,
            stores: Watcher::start(Root::open(root)?, root, api)?,
            addresses: BTreeMap::new(),
            followed: 0,
        })
    }

    /// Takes what is told. A pod that is gone is the worst case: each time a proof is
    /// wanted, as of a pod that was deleted by force.
    fn poll(&mut self) {
        let mut news = false;
        while let Some(update) = self.watch.poll() {
            news = true;
            match update {
                WatchUpdate::Listed(listing) => {
                    self.addresses = listing.pods.iter().filter_map(address).collect();
                }
                WatchUpdate::Changed(pod) => self.addresses.extend(address(&pod)),
                WatchUpdate::Deleted { pod, .. } => {
                    self.addresses.retain(|uid, _| !pod.uids.contains(uid));
                    self.watch.prove();
                    self.stores.soon();
                }
                WatchUpdate::Following => self.followed += 1,
                WatchUpdate::Failed(_) => {}
            }
        }
        if news {
            let living: BTreeSet<IpAddr> = self.addresses.values().flatten().copied().collect();
            self.stores.want(&BTreeSet::new(), &living);
        }
        self.stores.poll(&mut Vec::new());
    }
}

fn address(pod: &Pod) -> Option<(String, Vec<IpAddr>)> {
    Some((pod.uids.first()?.clone(), pod.ips.clone()))
}

fn main() -> Outcome<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [kubeconfig, root] = arguments.as_slice() else {
        return Err("usage: fleet KUBECONFIG ROOT".into());
    };
    let credentials = Credentials::find(root, Some(kubeconfig))?;
    let start =
        |number: usize| Node::start(&credentials, root, kubeconfig, &format!("node-{number}"));
    let (send, told) = mpsc::channel();
    thread::spawn(move || {
        stdin()
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| send.send(line))
    });
    let mut nodes: Vec<Node> = Vec::new();
    loop {
        match told.try_recv() {
            Ok(line) => match line.split(' ').collect::<Vec<_>>().as_slice() {
                ["run", number] => {
                    for number in nodes.len()..number.parse()? {
                        nodes.push(start(number)?);
                    }
                }
                ["renew", from, to] => {
                    let (from, to) = (from.parse()?, to.parse()?);
                    for (number, node) in nodes.iter_mut().enumerate().take(to).skip(from) {
                        let followed = node.followed;
                        *node = start(number)?;
                        node.followed = followed;
                    }
                }
                _ => return Err(format!("what is {line:?}?").into()),
            },
            Err(TryRecvError::Empty) => {}
            // Threads that wait for the server are not waited for.
            Err(TryRecvError::Disconnected) => process::exit(0),
        }
        nodes.iter_mut().for_each(Node::poll);
        let followed: Vec<u64> = nodes.iter().map(|node| node.followed).collect();
        let said = json!({
            "requests": traffic::requests().get(),
            "bytes": traffic::received().get(),
            "followed": followed,
        });
        writeln!(stdout(), "{said}")?;
        thread::sleep(PAUSE);
    }
}
