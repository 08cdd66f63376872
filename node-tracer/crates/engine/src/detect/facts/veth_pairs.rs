//! Pairs of devices (veth, netkit): which end belongs to which.
//!
//! Each end names the other's index. Indexes are a namespace's own, so that
//! several pairs can look alike, and whoever makes a pair chooses both. Whether a
//! device leads to the host the kernel says, by the ID that its namespace has for
//! the host's.

use std::collections::HashMap;

use crate::model::{
    Model,
    netns::{NetnsEntry, Wiring},
};
use event::Device;

/// One end of a veth pair.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// The namespace that it is in.
    pub entry: &'a NetnsEntry,
    pub wiring: &'a Wiring,
    pub device: &'a Device,
}

impl VethEnd<'_> {
    /// Whether this is the other end of a device, as far as the kernel says which
    /// of them leads to the host; `None` if it does not.
    fn is_of(&self, entry: &NetnsEntry, device: &Device) -> Option<bool> {
        let leads = |entry: &NetnsEntry, wiring: Option<&Wiring>, device| {
            let wiring = wiring.filter(|_| !entry.host)?;
            wiring.leads_to_host(device)
        };
        let there = leads(entry, entry.wiring.as_ref(), device);
        let back = leads(self.entry, Some(self.wiring), self.device);
        match (entry.host, self.entry.host) {
            (true, false) => back,
            (false, true) => there,
            (false, false) => (there == Some(true) || back == Some(true)).then_some(false),
            (true, true) => None,
        }
    }
}

/// All ends that were found, in namespaces that live and in those that are
/// dying, by their own index and that of the other end.
#[derive(Debug)]
pub struct VethPairs<'a> {
    ends: HashMap<(u32, u32), Vec<VethEnd<'a>>>,
}

impl<'a> VethPairs<'a> {
    /// Of all that is known.
    pub(in crate::detect) fn new(model: &'a Model) -> Self {
        let mut ends: HashMap<_, Vec<_>> = HashMap::new();
        let dying = model.netns.all_dying().map(|(entry, _)| entry);
        for entry in model.netns.live().chain(dying) {
            let Some(wiring) = &entry.wiring else {
                continue;
            };
            for device in wiring.devices.iter().filter(|device| device.is_pair_end()) {
                if let Some(peer) = device.link {
                    ends.entry((device.index, peer)).or_default().push(VethEnd {
                        entry,
                        wiring,
                        device,
                    });
                }
            }
        }
        // Users number devices in their own namespaces as they like: theirs is
        // the end only where nobody else's can be.
        for alike in ends.values_mut() {
            if alike.iter().any(|end| !end.entry.is_strangers()) {
                alike.retain(|end| !end.entry.is_strangers());
            }
        }
        Self { ends }
    }

    /// Whether a device leads to another namespace than the host's, although it is
    /// not known to which: by another ID than the devices that do. What CNI stacks
    /// on others it stacks on the host's.
    pub(in crate::detect) fn leads_past_host(&self, entry: &NetnsEntry, device: &Device) -> bool {
        let stacked = || {
            let wiring = entry.wiring.as_ref()?;
            let mut devices = wiring.devices.iter();
            devices.find(|it| !it.can_be_parent())?.link_nsid
        };
        let hosts_id = self.hosts_id(entry, device).or_else(stacked);
        hosts_id.is_some_and(|id| device.link_nsid != Some(id))
    }

    /// The host's ID in a namespace: as the kernel says, or as far as another
    /// device than this one, of which only an end on the host can be the other,
    /// shows it.
    fn hosts_id(&self, entry: &NetnsEntry, device: &Device) -> Option<i32> {
        let wiring = entry.wiring.as_ref().filter(|_| !entry.host)?;
        if wiring.host_nsid.is_some() {
            return wiring.host_nsid;
        }
        let leads_to_host = |other: &&Device| {
            let ends = self.others(other);
            other.index != device.index && !ends.is_empty() && ends.iter().all(|it| it.entry.host)
        };
        let mut devices = wiring.devices.iter().filter(leads_to_host);
        devices.find_map(|other| other.link_nsid)
    }

    /// What may be the other end of a device, as far as the indexes tell.
    pub(in crate::detect) fn others(&self, device: &Device) -> &[VethEnd<'a>] {
        let peer = device.link.filter(|_| device.is_pair_end());
        let ends = peer.and_then(|peer| self.ends.get(&(peer, device.index)));
        ends.map_or(&[], Vec::as_slice)
    }

    /// Whether the other end of a device can be in another namespace than its
    /// own.
    pub(in crate::detect) fn can_be_elsewhere(&self, entry: &NetnsEntry, device: &Device) -> bool {
        let mut others = self.others(device).iter();
        others.any(|end| {
            let is_elsewhere = end.entry.serial != entry.serial;
            is_elsewhere && end.is_of(entry, device) != Some(false)
        })
    }

    /// The other end of a device. If several look like it, the one on the host
    /// is meant, where CNI puts it, or none. Any other one must look like nobody
    /// else's: what was seen of a namespace may be older than a veth pair that is
    /// plugged in elsewhere.
    pub fn other_end(&self, entry: &NetnsEntry, device: &Device) -> Option<VethEnd<'a>> {
        let end = self.likely_end(entry, device)?;
        let back = self.others(end.device).iter();
        let mut back = back.filter(|back| back.is_of(end.entry, end.device) != Some(false));
        // With equal indexes it looks like its own other end, too.
        let leads_away = end.device.link_nsid.is_some();
        let is_its = |back: &VethEnd<'_>| {
            let is_itself = back.entry.serial == end.entry.serial;
            back.entry.serial == entry.serial || (is_itself && leads_away)
        };
        let is_certain = end.is_of(entry, device) == Some(true);
        (end.entry.host || is_certain || back.all(is_its)).then_some(end)
    }

    /// Whether a veth pair certainly leads from a namespace to the host: the kernel
    /// says so, and a device of the host's leads back.
    pub(in crate::detect) fn is_on_host(&self, entry: &NetnsEntry) -> bool {
        let mut devices = entry.wiring.iter().flat_map(|wiring| &wiring.devices);
        devices.any(|device| {
            let mut ends = self.others(device).iter();
            ends.any(|end| end.entry.host && end.is_of(entry, device) == Some(true))
        })
    }

    /// What looks most like the other end of a device. A namespace has one ID for
    /// each other one: where another device is known to lead to the host, this
    /// one leads there by the same ID, and elsewhere by any other.
    fn likely_end(&self, entry: &NetnsEntry, device: &Device) -> Option<VethEnd<'a>> {
        let is_elsewhere = device.link_nsid.is_some();
        let hosts_id = self.hosts_id(entry, device);
        let fits = |end: &VethEnd<'_>| {
            let is_there = (end.entry.serial != entry.serial) == is_elsewhere;
            let by_id = hosts_id.is_none_or(|id| (device.link_nsid == Some(id)) == end.entry.host);
            is_there && by_id && end.is_of(entry, device) != Some(false)
        };
        let certain = |end: &&VethEnd<'_>| end.is_of(entry, device) == Some(true);
        let others = self.others(device).iter();
        if let Some(certain) = others.clone().find(certain) {
            return Some(*certain);
        }
        let mut others = others.copied().filter(fits);
        let first = others.next()?;
        if first.entry.host {
            return Some(first);
        }
        let mut is_only = true;
        for end in others {
            if end.entry.host {
                return Some(end);
            }
            is_only = false;
        }
        is_only.then_some(first)
    }
}

/// The CNI that gives such a name, if nobody else does.
pub(in crate::detect) fn cni_of_name(name: &str) -> Option<&'static str> {
    const PREFIXES: [(&str, usize, &str); 6] = [
        ("cali", 8, "Calico or Terway"),
        ("eni", 8, "the AWS VPC CNI"),
        ("lxc", 8, "Cilium"),
        ("azv", 7, "Azure CNI"),
        ("gke", 8, "GKE"),
        ("vethwepl", 7, "Weave Net"),
    ];
    let mut prefixes = PREFIXES.iter();
    let by = prefixes.find_map(|(prefix, digits, cni)| {
        let rest = name.strip_prefix(prefix)?;
        (rest.len() >= *digits && is_hex(rest)).then_some(*cni)
    });
    by.or_else(|| {
        let rest = name.strip_suffix("_h")?;
        (rest.len() == 12 && is_hex(rest)).then_some("Kube-OVN")
    })
    .or_else(|| (name.len() == 15 && is_hex(name)).then_some("OVN-Kubernetes"))
}

pub(in crate::detect) fn is_hex(text: &str) -> bool {
    let digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    text.bytes().all(digit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Node;
    use event::{Event, testing::*};

    /// Where the other end of a device of namespace 100 is.
    fn other_end(story: &[Event], index: u32) -> Option<u32> {
        let node = Node::of(story);
        let model = node.0.model();
        let entry = model.netns.get(ns(100)).unwrap();
        let device = entry.wiring.as_ref().unwrap().device(index).unwrap();
        let end = VethPairs::new(model).other_end(entry, device)?;
        assert_eq!(end.device.link, Some(index));
        Some(end.entry.id.inode)
    }

    #[test]
    fn of_several_that_look_alike_the_hosts_is_the_other_end() {
        let pod = |inode| devices(5, inode, &[veth(3, "eth0", 8)], &[], &[]);
        let end = |inode| devices(5, inode, &[veth(8, "cali1", 3)], &[], &[]);
        let mut story = vec![
            host(0),
            found(1, 100),
            found(1, 200),
            found(1, 300),
            pod(100),
        ];
        assert_eq!(other_end(&story, 3), None);
        story.push(end(200));
        assert_eq!(other_end(&story, 3), Some(200));
        story.push(end(300));
        assert_eq!(other_end(&story, 3), None, "either");
        story.push(end(1));
        assert_eq!(other_end(&story, 3), Some(1));
    }

    #[test]
    fn an_end_that_may_be_of_several_cables_is_of_none() {
        let port = |inode| devices(5, inode, &[veth(31, "veth1", 2)], &[], &[]);
        let inner = devices(5, 300, &[veth(2, "eth0", 31)], &[], &[]);
        let mut story = [100, 200, 300].map(|inode| found(1, inode)).to_vec();
        story.extend([port(100), inner]);
        assert_eq!(other_end(&story, 31), Some(300));
        story.push(port(200));
        assert_eq!(other_end(&story, 31), None);
    }

    #[test]
    fn an_end_that_a_user_imitates_is_still_the_pods() {
        let port = devices(5, 100, &[veth(31, "veth1", 2)], &[], &[]);
        let end = |inode| devices(5, inode, &[veth(2, "eth0", 31)], &[], &[]);
        let mut story = vec![found(1, 100), found(1, 200), port, end(200)];
        story.extend([of_user(found(1, 300), 1_000), end(300)]);
        assert_eq!(other_end(&story, 31), Some(200));
        // The only one is meant, whoever has made it.
        story.push(devices(6, 200, &[], &[], &[]));
        assert_eq!(other_end(&story, 31), Some(300));
    }

    #[test]
    fn ends_of_one_index_in_two_namespaces_are_each_others() {
        let end = |inode| devices(5, inode, &[veth(2, "eth0", 2)], &[], &[]);
        let story = [host(0), found(1, 100), found(1, 200), end(100), end(200)];
        assert_eq!(other_end(&story, 2), Some(200));
    }

    #[test]
    fn a_device_with_another_id_than_the_hosts_does_not_lead_to_the_host() {
        let port = |id| Device {
            link_nsid: Some(id),
            ..veth(4, "veth1", 2)
        };
        let pod = |id| devices(5, 100, &[veth(3, "eth0", 8), port(id)], &[], &[]);
        let hosts = [veth(8, "cali1", 3), veth(2, "cali2", 4)];
        let inner = devices(5, 200, &[veth(2, "eth0", 4)], &[], &[]);
        let mut story = vec![host(0), found(1, 100), found(1, 200), inner, pod(1)];
        story.push(devices(5, 1, &hosts, &[], &[]));
        assert_eq!(other_end(&story, 4), Some(200));
        story.push(pod(0));
        assert_eq!(other_end(&story, 4), Some(1));
    }

    #[test]
    fn a_device_whose_other_end_is_not_known_leads_past_the_host_by_its_id() {
        let port = Device {
            link_nsid: Some(1),
            ..veth(31, "veth1", 2)
        };
        let stacked = Device {
            kind: Some(String::from("macvlan")),
            ..veth(3, "eth0", 2)
        };
        let past_host = |devices_of_pod: &[Device]| {
            let pod = devices(5, 100, devices_of_pod, &[], &[]);
            let hosts = devices(5, 1, &[veth(8, "cali1", 3)], &[], &[]);
            let node = Node::of(&[host(0), found(1, 100), pod, hosts]);
            let model = node.0.model();
            let entry = model.netns.get(ns(100)).unwrap();
            let device = entry.wiring.as_ref().unwrap().device(31).unwrap();
            VethPairs::new(model).leads_past_host(entry, device)
        };
        assert!(past_host(&[veth(3, "eth0", 8), port.clone()]));
        assert!(past_host(&[stacked, port.clone()]));
        assert!(!past_host(std::slice::from_ref(&port)), "it may lead there");
        assert!(!past_host(&[veth(3, "eth0", 8), veth(31, "veth1", 2)]));
    }

    #[test]
    fn a_device_with_the_numbers_of_a_cable_to_the_host_leads_there_only_if_the_kernel_says_so() {
        let numbered = |inode, host_nsid| {
            let devices = devices(5, inode, &[veth(3, "eth0", 8)], &[], &[]);
            host_called(host_nsid, devices)
        };
        let hosts = devices(5, 1, &[veth(8, "cali1", 3)], &[], &[]);
        let far = devices(5, 300, &[veth(8, "far", 3)], &[], &[]);
        let mut story = [100, 200, 300].map(|inode| found(1, inode)).to_vec();
        story.extend([host(0), hosts, far, numbered(200, 0), numbered(100, -1)]);
        assert_eq!(other_end(&story, 3), Some(300));
        let node = Node::of(&story);
        let model = node.0.model();
        let veth_pairs = VethPairs::new(model);
        let entry = |inode| model.netns.get(ns(inode)).unwrap();
        assert!(veth_pairs.is_on_host(entry(200)));
        assert!(!veth_pairs.is_on_host(entry(100)));
        // From the host it leads to that of which the kernel says so.
        let device = entry(1).wiring.as_ref().unwrap().device(8).unwrap();
        let end = veth_pairs.other_end(entry(1), device).unwrap();
        assert_eq!(end.entry.id, ns(200));
    }

    #[test]
    fn an_end_in_the_same_namespace_is_told_by_the_lack_of_an_id() {
        let here = |device: Device| Device {
            link_nsid: None,
            ..device
        };
        let both = [here(veth(3, "a", 4)), here(veth(4, "b", 3))];
        let mut story = vec![host(0), found(1, 100), devices(5, 100, &both, &[], &[])];
        story.push(devices(5, 1, &[veth(4, "blue", 3)], &[], &[]));
        assert_eq!(other_end(&story, 3), Some(100));
        story.push(devices(
            6,
            100,
            &[veth(3, "a", 4), both[1].clone()],
            &[],
            &[],
        ));
        assert_eq!(other_end(&story, 3), Some(1));
    }
}
