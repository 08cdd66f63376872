//! Which of the things in a sandbox its CNI attachments gave it.
//!
//! A pod makes devices and addresses of its own (a VPN's tunnel, the veths of
//! containers in it, a virtual IP of keepalived) and takes them away again: no
//! CNI DEL has anything to do with that.

use std::{collections::BTreeSet, net::IpAddr};

use crate::model::{attachment::Cni, calls::Calls, netns::NetnsEntry};
use event::Address;

/// The interface of a pod, where nothing tells of its attachments.
const USUAL: &str = "eth0";
/// containerd has it set up by a plugin; it is every sandbox's.
const LOOPBACK: &str = "lo";

/// What a sandbox's attachments gave it, as their calls and libcni's cache say.
#[derive(Debug, Default)]
pub(super) struct Given<'a> {
    devices: BTreeSet<&'a str>,
    /// Those of them whose addresses are known.
    told: BTreeSet<&'a str>,
    addresses: BTreeSet<IpAddr>,
}

impl<'a> Given<'a> {
    pub(super) fn of(entry: &'a NetnsEntry, calls: &'a Calls, cni: &'a Cni) -> Self {
        let mut given = Self::default();
        if let Some(id) = entry.sandbox.id.as_deref() {
            for attachment in calls.of_container(id) {
                // Those of delegates too: Multus answers with the first
                // network's addresses only.
                let adds = attachment.plugins.iter().filter_map(|it| it.add.as_ref());
                let ends = adds.filter_map(|add| add.success());
                let results = ends.filter_map(|end| end.result.as_ref());
                let ips = results.flat_map(|result| &result.ips);
                given.note(&attachment.ifname, ips);
            }
            for cached in cni.of_container(id) {
                given.note(&cached.ifname, &cached.ips);
            }
        }
        if given.devices.is_empty() {
            given.devices.insert(USUAL);
        }
        given
    }

    fn note<'i>(&mut self, ifname: &'a str, ips: impl IntoIterator<Item = &'i IpAddr>) {
        if ifname == LOOPBACK {
            return;
        }
        self.devices.insert(ifname);
        for ip in ips {
            self.told.insert(ifname);
            self.addresses.insert(*ip);
        }
    }

    /// Whether a device in the sandbox is an attachment's interface.
    pub(super) fn has_device(&self, name: &str) -> bool {
        self.devices.contains(name)
    }

    /// Whether an address in the sandbox was given to it: any on an interface
    /// of which no more is known.
    pub(super) fn has_address(&self, address: &Address) -> bool {
        let device = address.ifname.as_str();
        let open = self.has_device(device) && !self.told.contains(device);
        open || self.addresses.contains(&address.address)
    }
}
