//! Ties a network namespace to the sandbox that a runtime or libcni's cache
//! knows, in order of certainty: the namespace itself, a container with a task
//! in it, and last the same pod with the same address, or the device that CNI
//! made. What is in a namespace is written by whoever is root there, so that
//! device is known by its end on the host.

use std::collections::HashMap;

use super::{attachment::Cni, netns::NetnsEntry, pods::Pods, runtime::Runtime};
use event::{Attachment, Device, RuntimeSandbox, Task, clock::Timestamp};

/// The host-side ends of veth pairs, by index, as last listed.
#[derive(Debug, Default)]
pub(super) struct HostEnds(HashMap<u32, Device>);

impl HostEnds {
    /// Takes the veth pairs among all devices of the host. Returns whether any has
    /// changed.
    pub(super) fn set(&mut self, devices: &[Device]) -> bool {
        let veth_pairs = || {
            let veth_pairs = devices.iter().filter(|device| device.is_pair_end());
            veth_pairs.filter(|device| device.link.is_some() && device.link_nsid.is_some())
        };
        let is_known = |device: &Device| {
            let known = self.0.get(&device.index);
            known.is_some_and(|known| known.is_plugged_as(device))
        };
        if veth_pairs().count() == self.0.len() && veth_pairs().all(is_known) {
            return false;
        }
        self.0 = veth_pairs().map(|it| (it.index, it.clone())).collect();
        true
    }

    /// The name of the device on the host that certainly is the other end.
    fn of(&self, entry: &NetnsEntry, device: &Device) -> Option<&str> {
        let end = self.0.get(&device.link?)?;
        let is_its = end.link == Some(device.index) && leads_to_host(entry, device);
        (is_its && device.is_pair_end()).then_some(end.name.as_str())
    }
}

fn leads_to_host(entry: &NetnsEntry, device: &Device) -> bool {
    let wiring = entry.wiring.as_ref();
    wiring.and_then(|wiring| wiring.leads_to_host(device)) == Some(true)
}

/// Fills in what is known of a namespace's sandbox. Returns whether anything
/// is new.
pub(super) fn resolve(
    entry: &mut NetnsEntry,
    runtime: &Runtime,
    cni: &Cni,
    host_ends: &HostEnds,
    pods: &Pods,
    time: Timestamp,
) -> bool {
    if entry.host || entry.dying.is_some() {
        return false;
    }
    let mut changed = note_late(entry, runtime, cni, pods, time);
    let found = runtime
        .lists()
        .find_map(|list| Some((list, sandbox(entry, list)?)));
    if let Some((list, sandbox)) = found {
        let source = if list.source == super::runtime::CRI {
            super::runtime::CRI
        } else {
            "bundles"
        };
        changed |= entry
            .sandbox
            .note_runtime(sandbox, source, list.at.min(time));
        // One without a namespace may be known by a task's container alone.
        if sandbox.netns.is_some() || has_any(entry, &sandbox.ips) {
            changed |= entry.sandbox.note_named();
        }
    }
    if let Some(attachment) = attachment(entry, cni, host_ends) {
        changed |= entry.sandbox.note_attachment(attachment);
        let netns = attachment.netns;
        let there = netns.is_some_and(|netns| netns.inode == entry.id.inode);
        if attachment.pod.is_some() && (there || has_any(entry, &attachment.ips)) {
            changed |= entry.sandbox.note_named();
        }
    }
    changed | entry.sandbox.stand(pods, entry.seen)
}

/// Whether a task is of the pod that its cgroup is named by: kubelet has made that
/// one, or somebody who knows the pod can be asked.
pub(super) fn is_vouched(task: &Task, runtime: &Runtime, cni: &Cni, pods: &Pods) -> bool {
    if !task.by_name_alone {
        return true;
    }
    let by_uid = task.pod_uid.as_deref().is_some_and(|uid| {
        let mut lists = runtime.lists();
        pods.pod(uid).is_some()
            || lists.any(|list| list.of_pod(uid).next().is_some())
            || cni.of_pod(uid).next().is_some()
    });
    let by_container =
        |id: &String| runtime.of_container(id).is_some() || cni.of_container(id).next().is_some();
    by_uid || task.container_id.as_ref().is_some_and(by_container)
}

/// Who can vouch for tasks may be heard of after the tasks.
pub(super) fn note_late(
    entry: &mut NetnsEntry,
    runtime: &Runtime,
    cni: &Cni,
    pods: &Pods,
    time: Timestamp,
) -> bool {
    let mut tasks = entry.tasks.iter();
    if entry.host || tasks.all(|task| !task.by_name_alone) {
        return false;
    }
    let tasks = entry.tasks.iter();
    let tasks = tasks.filter(|task| is_vouched(task, runtime, cni, pods));
    entry.sandbox.note_tasks(tasks, pods, time)
}

fn sandbox<'a>(
    entry: &NetnsEntry,
    list: &'a super::runtime::SandboxList,
) -> Option<&'a RuntimeSandbox> {
    let pods = |sandbox: &&RuntimeSandbox| !sandbox.host_network;
    let in_netns = list.in_netns(entry.id).filter(pods);
    // The number may have been another namespace's when the sandbox was told:
    // what the list has come to say of others since does not confirm it.
    let there = in_netns
        .filter(|sandbox| !is_younger(entry, list.told_at(&sandbox.id)))
        .max_by_key(newest);
    let inside = || {
        let ids = entry.sandbox.containers.iter().map(String::as_str);
        let ids = ids.chain(entry.tasks.iter().filter_map(|t| t.container_id.as_deref()));
        let mut own = entry.sandbox.id.as_deref().into_iter().chain(ids);
        // One that is known to be in another namespace is not in this one.
        own.find_map(|id| {
            list.of_container(id).filter(pods).filter(|sandbox| {
                sandbox
                    .netns
                    .is_none_or(|netns| netns.inode == entry.id.inode)
            })
        })
    };
    let same = || {
        let of_pod = list.of_pod(entry.sandbox.uid()?).filter(pods);
        // An address can be another attempt's, too.
        let own = entry.sandbox.id.as_deref();
        let mut of_pod = of_pod.filter(|sandbox| {
            let can_be = own.is_none_or(|id| id == sandbox.id);
            can_be && sandbox.netns.is_none() && has_any(entry, &sandbox.ips)
        });
        let only = of_pod.next()?;
        of_pod.next().is_none().then_some(only)
    };
    there.or_else(inside).or_else(same)
}

/// Whether a namespace was made after a list. What has the same time may have
/// come in either order.
fn is_younger(entry: &NetnsEntry, list: Option<Timestamp>) -> bool {
    entry.created && list.is_none_or(|list| list <= entry.seen)
}

fn newest(sandbox: &&RuntimeSandbox) -> (Option<Timestamp>, u32) {
    (sandbox.created, sandbox.attempt)
}

fn attachment<'a>(
    entry: &NetnsEntry,
    cni: &'a Cni,
    host_ends: &HostEnds,
) -> Option<&'a Attachment> {
    let inode = entry.id.inode;
    let elsewhere =
        |attachment: &&Attachment| attachment.netns.is_some_and(|netns| netns.inode != inode);
    let known = || {
        let containers = entry.sandbox.containers.iter().map(String::as_str);
        let ids = entry.sandbox.id.as_deref().into_iter().chain(containers);
        let mut its = ids.flat_map(|id| cni.of_container(id));
        // A namespace that a container has made for itself has none of them.
        its.find(|attachment| {
            let there = attachment.netns.is_some_and(|netns| netns.inode == inode);
            let plain = attachment.ips.is_empty() && attachment.netns.is_none();
            there || plain || (!elsewhere(attachment) && has_any(entry, &attachment.ips))
        })
    };
    if let Some(known) = known() {
        return Some(known);
    }
    let there = cni
        .in_netns(inode)
        // A process's path leads elsewhere once its number is another's.
        .filter(|attachment| !attachment.netns_path.starts_with("/proc/"))
        .filter(|_| !is_younger(entry, cni.attachments_at()));
    let uid = entry.sandbox.uid();
    let of_pod = uid.into_iter().flat_map(|uid| cni.of_pod(uid));
    let same = of_pod.filter(|attachment| has_any(entry, &attachment.ips));
    // The device that CNI made is in it, with the address that CNI gave it: that
    // needs neither a task nor a mount.
    let devices = entry.wiring.iter().flat_map(|wiring| &wiring.devices);
    let made = devices.filter_map(|device| Some((device.mac.as_deref()?, device)));
    let made = made.flat_map(|(mac, device)| {
        let with_mac = cni.with_mac(mac);
        with_mac.filter(|attachment| is_made_by_cni(entry, device, attachment, host_ends))
    });
    let is_anothers = |attachment: &Attachment| {
        let id = entry.sandbox.id.as_ref();
        let of = attachment.pod.as_ref().and_then(|pod| pod.uid.as_deref());
        let uid = entry.sandbox.uid();
        id.is_some_and(|id| *id != attachment.container_id)
            || uid.is_some_and(|uid| of.is_some_and(|of| of != uid))
    };
    let made = made.filter(|attachment| {
        !entry.is_users() && !is_anothers(attachment) && has_any(entry, &attachment.ips)
    });
    // The latest: an address is given out again and again.
    there
        .chain(same)
        .chain(made)
        .filter(|attachment| attachment.pod.is_some() && !elsewhere(attachment))
        .max_by_key(|attachment| attachment.written)
}

/// Whether a device is what CNI made for an attachment, of which it has the MAC.
/// Root in a pod gives any device any MAC and address, but puts no end on the
/// host, and makes nothing of the host's own devices. What CNI has made of those
/// is as good as its MAC only while nobody is there who could change that.
fn is_made_by_cni(
    entry: &NetnsEntry,
    device: &Device,
    attachment: &Attachment,
    host_ends: &HostEnds,
) -> bool {
    if device.is_pair_end() {
        let end = host_ends.of(entry, device);
        return end.is_some_and(|end| attachment.host_devices.iter().any(|name| name == end));
    }
    let nobodys = entry.user_ns.is_none() && entry.held_at.is_some() && entry.task_count == 0;
    nobodys && (device.hardware.is_some() || leads_to_host(entry, device))
}

fn has_any(entry: &NetnsEntry, ips: &[std::net::IpAddr]) -> bool {
    let held = entry.addresses.iter().map(|held| held.address.address);
    held.into_iter().any(|address| ips.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::super::Model;
    use event::testing::*;
    use event::{Attachment, Device, Event, RuntimeSandbox, Task, What};

    const MAC: &str = "aa:00:00:00:00:02";

    fn cached(netns: Option<u32>, mac: Option<&str>) -> Event {
        let attachment = Attachment {
            mac: mac.map(str::to_owned),
            host_devices: vec![String::from("cni0"), String::from("veth1")],
            ..attachment("sandbox-old", netns, 5, 4)
        };
        attached(60, &[attachment])
    }

    fn with_mac(device: Device) -> Device {
        Device {
            mac: Some(MAC.to_owned()),
            ..device
        }
    }

    /// A device of that MAC, in a namespace that has 0 for the host's, if any.
    fn wired(inode: u32, device: &Device, host_nsid: i32) -> Event {
        let device = with_mac(device.clone());
        host_called(host_nsid, devices(50, inode, &[device], &[], &[]))
    }

    /// The host, with a veth pair to device 2 of another namespace.
    fn plugged(name: &str) -> [Event; 2] {
        [host(30), devices(49, 1, &[veth(8, name, 2)], &[], &[])]
    }

    fn sandbox(events: &[Event], inode: u32) -> Option<String> {
        let mut model = Model::default();
        for event in events {
            model.apply(event);
        }
        model.netns.get(ns(inode))?.sandbox.id.clone()
    }

    #[test]
    fn a_namespace_without_task_and_mount_is_known_by_the_cable_that_cni_made() {
        let eth0 = veth(2, "eth0", 8);
        let story = |last, mac| {
            let inside = [found(40, 100), added(40, 100, last), wired(100, &eth0, 0)];
            [&plugged("veth1"), &inside[..], &[cached(None, mac)]].concat()
        };
        let known = story(5, Some(MAC));
        assert_eq!(sandbox(&known, 100).as_deref(), Some("sandbox-old"));
        // In whatever order they come.
        for first in 1..known.len() {
            let mut late = known[1..].to_vec();
            late.rotate_left(first);
            late.insert(0, known[0].clone());
            assert_eq!(sandbox(&late, 100).as_deref(), Some("sandbox-old"));
        }
        assert_eq!(sandbox(&story(5, None), 100), None);
        assert_eq!(sandbox(&story(5, Some("aa:00:00:00:00:03")), 100), None);
        assert_eq!(sandbox(&story(6, Some(MAC)), 100), None, "by now");
    }

    #[test]
    fn a_device_that_root_in_a_pod_has_made_is_not_the_one_that_cni_made() {
        let with = |host_end: &str, device: &Device, host_nsid| {
            let inside = [found(40, 100), added(40, 100, 5)];
            let its = [wired(100, device, host_nsid), cached(None, Some(MAC))];
            sandbox(&[&plugged(host_end), &inside[..], &its].concat(), 100)
        };
        let eth0 = veth(2, "eth0", 8);
        assert!(with("veth1", &eth0, 0).is_some());
        // A veth pair of its own, with the numbers of that to the host.
        assert_eq!(with("veth1", &eth0, -1), None);
        assert_eq!(with("veth1", &eth0, 7), None);
        // A pod's own veth pair, with another MAC than it was made with.
        assert_eq!(with("veth2", &eth0, 0), None);
        let dummy = Device {
            kind: Some(String::from("dummy")),
            link: None,
            link_nsid: None,
            ..eth0.clone()
        };
        assert_eq!(with("veth1", &dummy, 0), None);
        // What the kernel was not asked for is not known.
        let unasked = devices(50, 100, &[with_mac(eth0)], &[], &[]);
        let inside = [found(40, 100), added(40, 100, 5), unasked];
        let story = [&plugged("veth1"), &inside[..], &[cached(None, Some(MAC))]].concat();
        assert_eq!(sandbox(&story, 100), None);
    }

    #[test]
    fn what_cni_made_of_a_device_of_the_hosts_is_known_while_nobody_can_change_its_mac() {
        let macvlan = Device {
            kind: Some(String::from("macvlan")),
            ..veth(2, "net1", 3)
        };
        let with = |found: Event, held: &[Event], host_nsid| {
            let its = [
                wired(100, &macvlan, host_nsid),
                cached(None, Some(MAC)),
                added(61, 100, 5),
            ];
            sandbox(&[&[found], held, &its].concat(), 100)
        };
        let empty = [holders(41, 100, &[], &[])];
        assert!(with(found(40, 100), &empty, 0).is_some());
        assert_eq!(with(found(40, 100), &empty, 7), None, "on another's device");
        assert_eq!(with(found(40, 100), &[], 0), None, "not looked into");
        let task = Task {
            pod_uid: None,
            container_id: None,
            ..pod_task(9, "app", OLD, "app-old")
        };
        let inhabited = [holders(41, 100, &[task], &[])];
        assert_eq!(with(found(40, 100), &inhabited, 0), None);
        let own = of_user(found(40, 100), 0);
        assert_eq!(with(own, &empty, 0), None, "root of a pod is root there");
    }

    #[test]
    fn a_cable_in_a_users_namespace_or_another_pods_is_not_the_sandboxs() {
        let eth0 = veth(2, "eth0", 8);
        let with = |found: Event, tasks: &[Task]| {
            let inside = [found, holders(41, 100, tasks, &[]), added(42, 100, 5)];
            let its = [wired(100, &eth0, 0), cached(None, Some(MAC))];
            sandbox(&[&plugged("veth1"), &inside[..], &its].concat(), 100)
        };
        assert_eq!(with(of_user(found(40, 100), 65_534), &[]), None);
        let own = with(of_user(found(40, 100), 0), &[]);
        assert_eq!(own.as_deref(), Some("sandbox-old"), "a runtime is root");
        let others = [pod_task(9, "app", OTHER, "app-other")];
        assert_ne!(
            with(found(40, 100), &others).as_deref(),
            Some("sandbox-old")
        );
    }

    #[test]
    fn a_pod_that_only_the_name_of_a_cgroup_names_is_none() {
        let named = Task {
            by_name_alone: true,
            ..pod_task(9, "app", OLD, "app-old")
        };
        let story = [found(40, 100), holders(41, 100, &[named], &[])];
        let pod_of = |more: &[Event]| {
            let mut model = Model::default();
            for event in story.iter().chain(more) {
                model.apply(event);
            }
            let sandbox = &model.netns.get(ns(100)).unwrap().sandbox;
            sandbox.uid().map(str::to_owned)
        };
        assert_eq!(pod_of(&[]), None);
        assert_eq!(pod_of(&[listed(42, &[pod("b", NEW, &[])])]), None);
        // Whoever knows it can be heard of later.
        for more in [
            listed(42, &[pod("a", OLD, &[])]),
            cri(42, &[event::testing::sandbox("sandbox-old", 200, OLD)]),
            cached(None, None),
        ] {
            assert_eq!(pod_of(&[more]).as_deref(), Some(OLD));
        }
    }

    #[test]
    fn what_libcni_remembers_is_as_old_as_its_file() {
        let mut model = Model::default();
        let others = [pod("other", OTHER, &[])];
        for event in [
            listed(30, &others),
            found(40, 100),
            added(40, 100, 5),
            cached(Some(100), None),
        ] {
            model.apply(&event);
        }
        let entry = model.netns.get(ns(100)).unwrap();
        assert_eq!(
            entry.sandbox.presence,
            crate::model::pods::PodPresence::Unlisted(s(30)),
            "the pod is older than the list, though the namespace was seen later"
        );
    }

    #[test]
    fn a_namespace_whose_sandbox_is_known_is_not_another_sandboxs_of_the_same_address() {
        let other = RuntimeSandbox {
            netns: None,
            ips: vec![ip(5)],
            ..event::testing::sandbox("sandbox-other", 100, OLD)
        };
        let seen = [found(40, 100), added(40, 100, 5)];
        let known = [
            &seen[..],
            &[
                cached(Some(100), None),
                cri(61, std::slice::from_ref(&other)),
            ],
        ]
        .concat();
        assert_eq!(sandbox(&known, 100).as_deref(), Some("sandbox-old"));
        // Of one of which only the pod is known, it is the best guess.
        let tasks = [pod_task(9, "app", OLD, "app-old")];
        let guessed = [
            &seen[..],
            &[holders(41, 100, &tasks, &[]), cri(61, &[other])],
        ]
        .concat();
        assert_eq!(sandbox(&guessed, 100).as_deref(), Some("sandbox-other"));
    }

    #[test]
    fn a_number_that_is_another_namespaces_by_now_ties_nothing() {
        let old = [cached(Some(100), None), created(70, 100), added(71, 100, 6)];
        assert_eq!(sandbox(&old, 100), None);
        let there = [created(50, 100), added(51, 100, 5), cached(Some(100), None)];
        assert_eq!(sandbox(&there, 100).as_deref(), Some("sandbox-old"));
    }

    #[test]
    fn what_a_list_says_of_others_does_not_confirm_a_number() {
        let told = |seconds, id: &str, inode| {
            let what = What::SandboxAdded {
                source: String::from("cri"),
                sandbox: RuntimeSandbox {
                    id: id.to_owned(),
                    netns: Some(ns(inode)),
                    ..RuntimeSandbox::default()
                },
            };
            at(seconds, what)
        };
        let gone = |seconds| {
            let what = What::SandboxRemoved {
                source: String::from("cri"),
                id: String::from("sandbox-gone"),
            };
            at(seconds, what)
        };
        let made = [created(60, 100), added(61, 100, 5)];
        let early = [&[told(50, "sandbox-old", 100)], &made[..]].concat();
        assert_eq!(sandbox(&early, 100), None);
        let others = [gone(70), told(70, "sandbox-new", 200), added(71, 100, 6)];
        assert_eq!(sandbox(&[&early[..], &others].concat(), 100), None);
        // The same again, of this one.
        let again = [told(70, "sandbox-old", 100)];
        let again = sandbox(&[&early[..], &again].concat(), 100);
        assert_eq!(again.as_deref(), Some("sandbox-old"));
        // In one moment, either may have been first.
        let same = [&[told(60, "sandbox-old", 100)], &made[..]].concat();
        assert_eq!(sandbox(&same, 100), None);
    }

    #[test]
    fn a_namespace_that_a_container_made_for_itself_is_not_the_sandbox() {
        let inside = [pod_task(9, "dockerd", OLD, "sandbox-old")];
        let story = [
            found(40, 300),
            added(40, 300, 77),
            holders(41, 300, &inside, &[]),
            cached(None, None),
        ];
        assert_eq!(sandbox(&story, 300), None);
    }
}
