//! The stores of other IPAM plugins than host-local, in a look.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{API_PATIENCE, FILES_PATIENCE, NodeReader, Snapshot, credentials};
use crate::reservations::not_asked;
use event::{Event, Network, What, clock::Timestamp, fault};
use ipam::{self, StoreReading};
use kube::Credentials;

/// When a look is to be over, the API server answering or not; and what it is
/// given at least.
const OVER: Duration = Duration::from_millis(1_800);
const AT_LEAST: Duration = Duration::from_millis(300);
/// The device with the address of the cluster's network, as kubelet has it.
const DEFAULT: &str = "eth0";

impl NodeReader<'_> {
    /// Those that are files, each kind with a time of its own.
    pub(super) fn ipam_files(&self, networks: &[Network], looked: &mut Snapshot) {
        let expected = ipam::expected(networks);
        let time = sys::clock::now();
        let mut answers = Vec::new();
        for kind in ipam::FILES {
            let by = expected.get(&kind).cloned();
            let root = Arc::clone(&self.root);
            let read = move || ipam::files(&root, kind, by.as_deref());
            match self.procfs.bounded_reads().read(FILES_PATIENCE, read) {
                Ok(found) => answers.extend(found),
                // Not even whether there is one is known.
                Err(error) => {
                    let why = format!("its files: {}", fault::chain(&error));
                    answers.push(StoreReading::failed(kind, why));
                }
            }
        }
        tell(&answers, time, looked);
    }

    /// Those that are in the API, if the configuration names any. Asked only
    /// now: what the runtime has not listed by then is not to look left over.
    pub(super) fn ipam_api(&self, networks: &[Network], started: Instant, looked: &mut Snapshot) {
        let mut expected = ipam::expected(networks);
        expected.retain(|kind, _| ipam::IN_API.contains(kind));
        if expected.is_empty() {
            return;
        }
        let time = sys::clock::now();
        let credentials = self.api_credentials();
        let pods = of_pods(&looked.events);
        let answers: Vec<StoreReading> = expected
            .into_keys()
            .map(|kind| match &credentials {
                Ok(credentials) => {
                    let left = OVER.saturating_sub(started.elapsed());
                    let patience = left.clamp(AT_LEAST, API_PATIENCE);
                    let node = &self.config.node.name;
                    ipam::ask(kind, credentials, &self.root, node, patience, pods.clone())
                }
                Err(why) => StoreReading::failed(kind, why.clone()),
            })
            .collect();
        tell(&answers, time, looked);
    }

    fn api_credentials(&self) -> Result<Credentials, String> {
        match not_asked(&self.config.pods) {
            Some(why) => Err(why),
            None => match credentials(self.config, &self.procfs) {
                Ok(Ok(credentials)) => Ok(credentials),
                Ok(Err(error)) => Err(fault::chain(&error)),
                Err(error) => Err(fault::chain(&error)),
            },
        }
    }
}

/// Addresses that the cluster's network may have given out here.
fn of_pods(events: &[Event]) -> BTreeSet<IpAddr> {
    let hosts: BTreeSet<u32> = events
        .iter()
        .filter_map(|event| match event.what {
            What::NetnsFound {
                netns, host, node, ..
            } if host || node => Some(netns.inode),
            _ => None,
        })
        .collect();
    let found = events.iter().filter_map(|event| match &event.what {
        What::AddressAdded { netns, address, .. } => {
            let is_pods = address.ifname == DEFAULT && !hosts.contains(&netns.inode);
            is_pods.then_some(address.address)
        }
        _ => None,
    });
    // Each has a link-local one that nobody has given out.
    let given_out = |address: &IpAddr| match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    found.filter(given_out).collect()
}

fn tell(answers: &[StoreReading], time: Timestamp, looked: &mut Snapshot) {
    looked.items.extend(ipam::coverage(answers));
    looked.events.extend(ipam::events(answers, time));
}
