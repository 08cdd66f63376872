//! Tables as ip(8) prints them, healthy ones of many CNIs, and stale entries among
//! them.

mod others;
mod traced;

use std::collections::BTreeMap;

use super::*;
use crate::testing::Node;
use event::{
    Event, Neighbour,
    forwarding::{DEFAULT_TABLE, Forwarding, FrameRoute, LOCAL_TABLE, MAIN_TABLE},
    testing::*,
};

const NOW: i64 = 1_000;
const HEALTHY: &str = include_str!("healthy.txt");
/// A pod of a node of AWS's kind, whose address an earlier pod had by ENI 3.
const AWS: &str = "device eth0
device eth1
device eth2
pod 10.0.0.5 eni1a2b3c4d5e6 5e:00:00:00:00:05
rule 512: from all to 10.0.0.5 lookup main
rule 1536: from 10.0.0.5 lookup 2
route default via 10.0.0.1 dev eth0
route 10.0.0.5 dev eni1a2b3c4d5e6
route default via 10.0.0.1 dev eth1 table 2
route default via 10.0.0.1 dev eth2 table 3
neigh 10.0.0.5 dev eni1a2b3c4d5e6 lladdr 5e:00:00:00:00:05 reachable
";

/// A node that is being described.
#[derive(Default)]
struct Story {
    devices: Vec<Device>,
    forwarding: Forwarding,
    rules: Vec<PolicyRule>,
    pods: Vec<Event>,
    listed: Vec<Pod>,
    sandboxes: Vec<event::RuntimeSandbox>,
    gone: Vec<Attachment>,
    indexes: BTreeMap<String, u32>,
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap_or_else(|_| panic!("{text}"))
}

fn prefix(text: &str) -> Option<(IpAddr, u8)> {
    match text.split_once('/') {
        Some((net, length)) => Some((address(net), length.parse().unwrap())),
        None if text == "all" => None,
        None => Some((address(text), if text.contains(':') { 128 } else { 32 })),
    }
}

fn table(text: &str) -> u32 {
    match text {
        "local" => LOCAL_TABLE,
        "main" => MAIN_TABLE,
        "default" => DEFAULT_TABLE,
        number => number.parse().unwrap(),
    }
}

impl Story {
    fn of(text: &str) -> Self {
        let mut story = Self::default();
        for line in text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let words: Vec<&str> = line.split_whitespace().collect();
            story.line(words[0], &words[1..]);
        }
        story
    }

    fn device(&mut self, name: &str, kind: Option<&str>) -> &mut Device {
        let index = self.devices.len() as u32 + 2;
        self.indexes.insert(name.to_owned(), index);
        self.devices.push(Device {
            index,
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
            mac: Some(format!("02:00:00:00:00:{index:02x}")),
            up: true,
            ..Device::default()
        });
        self.devices.last_mut().unwrap()
    }

    fn line(&mut self, what: &str, words: &[&str]) {
        let after = |word: &str| {
            let at = words.iter().position(|each| *each == word)?;
            words.get(at + 1).copied()
        };
        match what {
            "device" => drop(self.device(words[0], words.get(1).copied())),
            "bridge" => drop(self.device(words[0], Some("bridge"))),
            "pod" | "port" => self.veth(words),
            "orphan" => {
                let end = self.device(words[0], Some("veth"));
                (end.link, end.link_nsid) = (Some(99), Some(99));
            }
            "ghost" => {
                self.veth(words);
                self.listed.pop();
            }
            "ipvlan" | "macvlan" => self.stacked(what, words),
            "second" => self.second(words[0], words[1], words[2]),
            "nic" => self.second(words[0], "", words[1]),
            "cable" => self.cable(words),
            "takes" => self.takes(words[0], "eth0"),
            "elsewhere" => {
                let name = format!("far-{}", words[0]);
                self.listed.push(Pod {
                    node: Some(String::from("node-2")),
                    phase: Some(String::from("Running")),
                    ..pod(&name, &name, &[address(words[0])])
                });
            }
            "gone" => {
                let mut cached = attachment("dead", None, 0, 10);
                cached.ips = vec![address(words[0])];
                cached.written = s(1);
                cached.mac = words.get(1).map(|mac| (*mac).to_owned());
                cached.netns_path = String::from("/run/netns/cni-gone");
                self.gone.push(cached);
            }
            "rule" => self.rules.push(PolicyRule {
                priority: words[0].trim_end_matches(':').parse().unwrap(),
                ipv6: words
                    .iter()
                    .any(|word| *word == "inet6" || word.matches(':').count() > 1),
                narrower: after("ipproto").or(after("sport")).is_some(),
                from: after("from").and_then(prefix),
                to: after("to").and_then(prefix),
                iif: after("iif").map(str::to_owned),
                mark: after("fwmark").map(|mark| {
                    let (mark, mask) = mark.split_once('/').unwrap_or((mark, "0xffffffff"));
                    let number = |text: &str| u32::from_str_radix(&text[2..], 16).unwrap();
                    (number(mark), number(mask))
                }),
                not: words.contains(&"not"),
                detached: words.contains(&"[detached]"),
                table: table(after("lookup").unwrap()),
                suppress: after("suppress_prefixlength").map(|it| it.parse().unwrap()),
                ..PolicyRule::default()
            }),
            "route" => {
                let kinds = ["local", "blackhole", "throw"];
                let kind = kinds.iter().position(|kind| *kind == words[0]);
                let to = words[usize::from(kind.is_some())];
                let kinds = [RouteKind::Local, RouteKind::Blackhole, RouteKind::Throw];
                let device = after("dev").map(|name| self.indexes.get(name).copied().unwrap_or(1));
                self.forwarding.routes.push(TableRoute {
                    to: match to {
                        "default" if words.iter().any(|word| word.matches(':').count() > 1) => {
                            (address("::"), 0)
                        }
                        "default" => (address("0.0.0.0"), 0),
                        to => prefix(to).unwrap(),
                    },
                    kind: kind.map_or(RouteKind::Unicast, |at| kinds[at]),
                    gateway: after("via").map(address),
                    device,
                    ..table_route(after("table").map_or(MAIN_TABLE, table), "0.0.0.0/0", 0)
                });
            }
            "neigh" => self.forwarding.neighbours.push(DatedNeighbour {
                neighbour: Neighbour {
                    address: address(words[0]),
                    device: self.indexes[after("dev").unwrap()],
                    mac: after("lladdr").map(str::to_owned),
                    state: words.last().unwrap().to_string(),
                },
                confirmed: None,
            }),
            "fdb" => self.forwarding.frames.push(FrameRoute {
                mac: words[0].to_owned(),
                device: self.indexes[words[1]],
                remote: None,
            }),
            other => panic!("{other}"),
        }
    }

    /// A namespace with one device; its number tells which pod it is of.
    fn netns(&mut self, held: &str, device: Device) {
        let inode = 100 + self.pods.len() as u32;
        let (uid, id) = (format!("uid-{inode}"), format!("sandbox-{inode}"));
        let held = address(held);
        let mut its = added(2, inode, 0);
        if let event::What::AddressAdded { address, .. } = &mut its.what {
            address.address = held;
            address.ifname.clone_from(&device.name);
        }
        self.pods.extend([
            found(1, inode),
            its,
            holders(2, inode, &[pod_task(inode, "pause", &uid, &id)], &[]),
            host_called(0, devices(5, inode, &[device], &[], &[])),
        ]);
        self.listed.push(Pod {
            node: Some(String::from("node-1")),
            phase: Some(String::from("Running")),
            ..pod(&format!("pod-{inode}"), &uid, &[held])
        });
        self.sandboxes.push(event::RuntimeSandbox {
            ips: vec![held],
            ..sandbox(&id, inode, &uid)
        });
    }

    fn veth(&mut self, words: &[&str]) {
        let (held, name, mac) = (words[0], words[1], words[2]);
        let master = words.get(3).map(|bridge| self.indexes[*bridge]);
        let end = self.device(name, Some("veth"));
        let index = end.index;
        (end.link, end.link_nsid, end.master) = (Some(3), Some(index as i32), master);
        self.netns(
            held,
            Device {
                mac: Some(mac.to_owned()),
                ..veth(3, "eth0", index)
            },
        );
    }

    fn stacked(&mut self, kind: &str, words: &[&str]) {
        let link = self.indexes[words[1]];
        self.netns(
            words[0],
            Device {
                kind: Some(kind.to_owned()),
                mac: Some(words[2].to_owned()),
                ..veth(3, "eth0", link)
            },
        );
    }

    /// Gives the last pod another device; its index and its name.
    fn add_device(&mut self, device: impl FnOnce(u32) -> Device) -> (u32, String) {
        let its = self.pods.iter_mut().rev();
        let mut lists = its.filter_map(|event| match &mut event.what {
            event::What::NetnsDevices { devices, .. } => Some(devices),
            _ => None,
        });
        let devices = lists.next().unwrap();
        let index = devices.len() as u32 + 3;
        let name = format!("net{}", devices.len());
        devices.push(Device {
            index,
            name: name.clone(),
            ..device(index)
        });
        (index, name)
    }

    /// Another device of the last pod, with an address; one without a kind is
    /// hardware.
    fn second(&mut self, address: &str, kind: &str, mac: &str) {
        let (_, name) = self.add_device(|index| Device {
            mac: Some(mac.to_owned()),
            ..match kind {
                "" => physical(index, ""),
                kind => Device {
                    kind: Some(kind.to_owned()),
                    ..veth(index, "", 2)
                },
            }
        });
        self.takes(address, &name);
    }

    /// Another veth of the last pod.
    fn cable(&mut self, words: &[&str]) {
        let nsid = self.devices.iter().rev().find_map(|it| it.link_nsid);
        let here = self.device(words[0], Some("veth")).index;
        let (there, name) = self.add_device(|index| Device {
            mac: Some(words[1].to_owned()),
            ..veth(index, "", here)
        });
        let end = self.devices.last_mut().unwrap();
        (end.link, end.link_nsid) = (Some(there), nsid.or(Some(here as i32)));
        if let Some(address) = words.get(2) {
            self.takes(address, &name);
        }
    }

    /// The last pod has an address on a device that nobody has given it.
    fn takes(&mut self, held: &str, ifname: &str) {
        let mut its = added(2, 96 + self.pods.len() as u32, 0);
        if let event::What::AddressAdded {
            address: held_by, ..
        } = &mut its.what
        {
            held_by.address = address(held);
            held_by.ifname = ifname.to_owned();
        }
        self.pods.push(its);
    }

    fn events(mut self) -> Vec<Event> {
        let mut rules = kernels_rules();
        if self.rules.iter().any(|rule| rule.table == LOCAL_TABLE) {
            rules.retain(|rule| rule.table != LOCAL_TABLE || rule.ipv6);
        }
        rules.extend(self.rules);
        rules.sort_by_key(|rule| (rule.ipv6, rule.priority));
        self.forwarding.rules = rules;
        let mut events = vec![host(0)];
        events.extend(self.pods);
        events.extend([
            devices(5, 1, &self.devices, &[], &[]),
            forwards(5, 1, &self.forwarding),
            cri(20, &self.sandboxes),
            attached(20, &self.gone),
            listed(30, &self.listed),
        ]);
        events
    }

    fn findings(self) -> Vec<Finding> {
        let told = Node::of_looks(&self.events()).of_rule(NOW, Rule::StalePath);
        told.into_iter().map(|(finding, _)| finding).collect()
    }
}

fn findings(text: &str) -> Vec<Finding> {
    Story::of(text).findings()
}

fn only(text: &str) -> Finding {
    let mut all = findings(text);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

fn entry(finding: &Finding) -> &str {
    &finding.detail.path.as_ref().unwrap().entry
}

/// The command that removes the entry.
fn remove(finding: &Finding) -> &str {
    let last = finding.advice.last().unwrap();
    last.split("  ").next().unwrap()
}

fn healthy() -> impl Iterator<Item = (&'static str, &'static str)> {
    let nodes = HEALTHY.split("\n== ").skip(1);
    nodes.map(|text| text.split_once('\n').unwrap())
}

#[test]
fn what_cnis_keep_on_purpose_is_no_finding() {
    assert_eq!(healthy().count(), 35);
    for (name, text) in healthy() {
        assert_eq!(findings(text), [], "{name}");
    }
    assert_eq!(findings(AWS), []);
}

#[test]
fn a_stale_rule_is_found_on_a_node_of_every_cni() {
    for (name, text) in healthy() {
        let stale = "gone 10.77.0.9\nrule 1536: from 10.77.0.9 lookup 1099\n";
        let found = only(&format!("{text}\n{stale}"));
        assert_eq!(entry(&found), "1536: from 10.77.0.9 lookup 1099", "{name}");
        assert_eq!(found.severity, Severity::Warning);
    }
}

#[test]
fn of_two_rules_of_one_selector_the_older_is_stale() {
    let older = AWS.replace("rule 1536", "rule 1536: from 10.0.0.5 lookup 3\nrule 1536");
    let found = only(&older);
    assert_eq!(found.severity, Severity::Critical);
    assert_eq!(entry(&found), "1536: from 10.0.0.5 lookup 3");
    assert_eq!(
        remove(&found),
        "ip rule del pref 1536 from 10.0.0.5 lookup 3"
    );
    assert_eq!(
        found.title,
        "a stale rule leads 10.0.0.5 of shop/checkout-x8k2p astray"
    );
    let ways = &found.evidence.last().unwrap().claim;
    assert!(
        ways.contains("dev eth2 (table 3); without it by default via 10.0.0.1 dev eth1"),
        "{ways}"
    );
}

#[test]
fn two_rules_that_lead_the_same_way_harm_nobody() {
    let older = AWS.replace("rule 1536", "rule 1536: from 10.0.0.5 lookup 3\nrule 1536");
    assert_eq!(
        findings(&older.replace("dev eth2 table 3", "dev eth1 table 3")),
        []
    );
    for other in [
        "rule 1535: from 10.0.0.5 lookup 3",
        "rule 1536: from 10.0.0.5 to 10.9.0.0/16 lookup 3",
        "rule 1536: from 10.0.0.5 iif eth9 lookup 3",
        "rule 1536: from 10.0.0.0/24 lookup 3",
    ] {
        let text = AWS.replace("rule 1536", &format!("{other}\nrule 1536"));
        assert_eq!(findings(&text), [], "{other}");
    }
}

#[test]
fn where_cnis_enter_several_rules_for_a_pod_the_older_one_is_stale_if_its_owner_is_gone() {
    let two = AWS.replace("rule 1536", "rule 1536: from 10.0.0.5 lookup 3\nrule 1536");
    for priority in [8, 1_000, 5_000, 6_000] {
        let two = two.replace("1536", &priority.to_string());
        assert_eq!(findings(&two), [], "{priority}");
        let found = only(&format!("{two}gone 10.0.0.5"));
        assert_eq!(entry(&found), format!("{priority}: from 10.0.0.5 lookup 3"));
    }
}

#[test]
fn where_a_ghost_got_the_address_later_the_older_rule_is_the_pods_own() {
    let two = AWS.replace("rule 1536", "rule 1536: from 10.0.0.5 lookup 3\nrule 1536");
    assert_eq!(findings(&two).len(), 1);
    let ghost = "ghost 10.0.0.5 eni9a2b3c4d5e6 5e:00:00:00:00:09";
    assert_eq!(findings(&format!("{two}{ghost}")), []);
    // So is it where a later pod is gone altogether.
    let mut story = Story::of(&format!("{two}gone 10.0.0.5"));
    story.gone[0].written = s(10);
    assert_eq!(story.findings(), []);
}

#[test]
fn a_rule_of_a_sandbox_that_is_gone_waits_for_the_next_pod() {
    let rule = "rule 1536: from 10.0.0.9 lookup 3\n";
    assert_eq!(
        findings(&format!("{AWS}{rule}")),
        [],
        "nobody knows whose it is"
    );
    let found = only(&format!("{AWS}{rule}gone 10.0.0.9"));
    assert_eq!(found.severity, Severity::Warning);
    assert_eq!(found.sandbox_id.as_deref(), Some("dead"));
    let held = format!("{AWS}{rule}gone 10.0.0.9\npod 10.0.0.9 eni9a2b3c4d5e6 5e:00:00:00:00:09");
    assert_eq!(
        findings(&held),
        [],
        "a pod has it, and this may be its rule"
    );
}

#[test]
fn what_nobody_can_know_is_no_finding() {
    let text = format!("{AWS}rule 1536: from 10.0.0.9 lookup 3\ngone 10.0.0.9");
    let of = |change: fn(&mut Vec<Event>)| {
        let mut events = Story::of(&text).events();
        change(&mut events);
        Node::of_looks(&events).of_rule(NOW, Rule::StalePath).len()
    };
    assert_eq!(of(|_| {}), 1);
    assert_eq!(
        of(|events| events.push(cri_fails(40))),
        0,
        "CRI may have it"
    );
    assert_eq!(
        of(|events| events.push(found(40, 900))),
        0,
        "it may be there"
    );
    assert_eq!(
        of(|events| events.retain(|it| !matches!(it.what, event::What::NetnsForwarding { .. }))),
        0
    );
}

#[test]
fn a_rule_whose_device_is_gone_is_stale_if_cni_named_it() {
    let rule = "rule 2048: from 10.0.0.9 iif cali9a2b3c4d5e6 [detached] lookup 1003";
    let found = only(&format!("{AWS}{rule}"));
    assert_eq!(
        remove(&found),
        "ip rule del pref 2048 from 10.0.0.9 iif cali9a2b3c4d5e6 lookup 1003"
    );
    assert_eq!(
        findings(&format!("{AWS}{}", rule.replace("cali9a2b3c4d5e6", "tun7"))),
        []
    );
}

#[test]
fn a_route_to_a_ghosts_veth_hides_the_pod_that_has_the_address_now() {
    let ghost = "ghost 10.0.0.9 eni9a2b3c4d5e6 5e:00:00:00:00:09
route 10.0.0.9 dev eni9a2b3c4d5e6
";
    assert_eq!(
        findings(&format!("{AWS}{ghost}")),
        [],
        "the ghost's own finding tells"
    );
    let found = only(&format!("{AWS}{ghost}elsewhere 10.0.0.9"));
    assert_eq!(found.severity, Severity::Critical);
    assert_eq!(
        found.title,
        "a stale route keeps 10.0.0.9 of node-2 from this node"
    );
    assert_eq!(
        remove(&found),
        "ip route del 10.0.0.9/32 dev eni9a2b3c4d5e6 table 254"
    );
}

#[test]
fn a_neighbour_with_the_mac_of_nobody_in_the_pod_is_stale() {
    let with = |mac: &str, state: &str| {
        AWS.replace("5e:00:00:00:00:05 reachable", &format!("{mac} {state}"))
    };
    let found = only(&with("5e:00:00:00:00:99", "stale"));
    assert_eq!(found.severity, Severity::Warning);
    assert_eq!(
        remove(&found),
        "ip neigh show 10.0.0.5 dev eni1a2b3c4d5e6 | grep -qwF 5e:00:00:00:00:99 && ip neigh del \
         10.0.0.5 dev eni1a2b3c4d5e6"
    );
    let lasting = only(&with("5e:00:00:00:00:99", "permanent"));
    assert_eq!(lasting.severity, Severity::Critical);
    assert_eq!(findings(&with("5e:00:00:00:00:99", "failed")), []);
}

#[test]
fn a_neighbour_with_another_mac_names_the_pod_that_its_bridge_sends_frames_to() {
    let node = "bridge cni0
port 10.0.0.5 veth5 5e:00:00:00:00:05 cni0
port 10.0.0.6 veth6 5e:00:00:00:00:06 cni0
port 10.0.0.7 veth7 5e:00:00:00:00:07 cni0
route 10.0.0.0/24 dev cni0
neigh 10.0.0.5 dev cni0 lladdr 5e:00:00:00:00:06 reachable
";
    let named = |learnt: &[&str]| {
        let learnt = learnt.iter();
        let learnt = learnt.map(|port| format!("fdb 5e:00:00:00:00:06 {port}\n"));
        let found = only(&format!("{node}{}", learnt.collect::<String>()));
        assert_eq!(found.addresses, [address("10.0.0.5")]);
        let doubt = |text: &String| text.contains("who has answered for 10.0.0.5");
        assert!(found.unknown.iter().any(doubt), "{:?}", found.unknown);
        let claims = found.evidence.iter().map(|it| it.claim.as_str());
        let said = claims.chain([found.title.as_str()]).collect::<String>();
        let others = ["netns 104", "netns 108"].into_iter();
        others
            .filter(|other| said.contains(other))
            .collect::<Vec<_>>()
    };
    assert_eq!(named(&["veth6"]), ["netns 104"]);
    assert_eq!(named(&["veth7"]), ["netns 108"], "whoever has the MAC");
    assert_eq!(named(&[]), [""; 0], "any pod can answer with it");
    assert_eq!(named(&["veth5"]), [""; 0], "the pod itself");
    assert_eq!(named(&["veth6", "veth7"]), [""; 0], "two VLANs");
}

#[test]
fn a_neighbour_on_a_pods_own_veth_leads_to_no_other_pod() {
    let other = "pod 10.0.0.6 eni6a2b3c4d5e6 5e:00:00:00:00:06\n";
    let node = AWS.replace("5e:00:00:00:00:05 reachable", "5e:00:00:00:00:06 reachable");
    let found = only(&format!("{node}{other}"));
    assert!(found.title.ends_with(" astray"), "{}", found.title);
}

#[test]
fn a_permanent_neighbour_of_a_sandbox_that_is_gone_waits_for_the_next_pod() {
    let entry = "neigh 10.0.0.9 dev eth0 lladdr 5e:00:00:00:00:09 permanent\n";
    let gone = "gone 10.0.0.9 5E:00:00:00:00:09\n";
    let found = only(&format!("{AWS}{entry}{gone}"));
    assert_eq!(found.severity, Severity::Warning);
    assert_eq!(
        found.title,
        "a stale neighbour for 10.0.0.9 waits for the next pod"
    );
    for (why, text) in [
        ("whose it is", String::from(entry)),
        (
            "another MAC",
            format!("{entry}gone 10.0.0.9 5e:00:00:00:00:08"),
        ),
        (
            "asked again",
            format!("{gone}{}", entry.replace("permanent", "stale")),
        ),
        ("another node's", format!("{entry}{gone}elsewhere 10.0.0.9")),
    ] {
        assert_eq!(findings(&format!("{AWS}{text}")), [], "{why}");
    }
}

#[test]
fn a_route_into_a_shared_slave_hides_the_pod_that_has_the_address_now() {
    let (_, terway) = healthy()
        .find(|(name, _)| *name == "terway-ipvlan")
        .unwrap();
    let route = "route 10.0.0.9 dev ipvl_3\nelsewhere 10.0.0.9\n";
    assert_eq!(findings(&format!("{terway}\n{route}")), [], "nobody's");
    let found = only(&format!("{terway}\n{route}gone 10.0.0.9"));
    assert_eq!(
        found.title,
        "a stale route keeps 10.0.0.9 of node-2 from this node"
    );
    assert_eq!(
        remove(&found),
        "ip route del 10.0.0.9/32 dev ipvl_3 table 254"
    );
}

#[test]
fn an_address_that_a_pod_has_given_itself_makes_no_entry_stale() {
    let (_, flannel) = healthy().find(|(name, _)| *name == "flannel").unwrap();
    // A machine that is no pod, with an entry of root's.
    let entry = "neigh 10.244.1.9 dev cni0 lladdr 5e:00:00:00:00:66 permanent";
    assert_eq!(
        findings(&format!("{flannel}\ntakes 10.244.1.9\n{entry}")),
        []
    );
    let rules = "rule 1536: from 10.0.0.9 lookup 2\nrule 1536: from 10.0.0.9 lookup 3";
    assert_eq!(findings(&format!("{AWS}takes 10.0.0.9\n{rules}")), []);
}

#[test]
fn on_a_bridge_only_the_entry_of_a_pod_behind_it_counts() {
    let (_, flannel) = healthy().find(|(name, _)| *name == "flannel").unwrap();
    let stale = flannel.replace("lladdr 5e:00:00:00:00:05", "lladdr 5e:00:00:00:00:99");
    assert_eq!(only(&stale).addresses, [address("10.244.1.5")]);
    let elsewhere = stale.replace("neigh 10.244.1.5 dev cni0", "neigh 10.244.1.5 dev eth0");
    assert_eq!(findings(&elsewhere), []);
}

#[test]
fn no_command_is_given_that_would_remove_another_entry() {
    let stale = "gone 10.0.0.9\nrule 1536: from 10.0.0.9 lookup 3\n";
    let older = "rule 1536: from 10.0.0.9 iif eth0 lookup 3\n";
    let all = findings(&format!("{AWS}{older}{stale}"));
    let command = |text: &str| {
        let found = all.iter().find(|found| entry(found) == text);
        remove(found.unwrap_or_else(|| panic!("{all:#?}"))).to_owned()
    };
    assert_eq!(
        command("1536: from 10.0.0.9 iif eth0 lookup 3"),
        "ip rule del pref 1536 from 10.0.0.9 iif eth0 lookup 3"
    );
    assert!(command("1536: from 10.0.0.9 lookup 3").starts_with("remove the rule by hand"));
}

#[test]
fn a_storm_of_entries_is_bounded() {
    let mut text = format!("{AWS}gone 10.0.0.9\n");
    for number in 0..5_000 {
        text += &format!("rule 1536: from 10.0.0.9 lookup {}\n", 1_000 + number);
        let (a, b) = (number / 250, number % 250);
        text += &format!("route 10.9.{a}.{b} dev eth1\n");
        text += &format!("neigh 10.9.{a}.{b} dev eth1 lladdr 02:00:00:00:00:01 stale\n");
    }
    assert_eq!(findings(&text).len(), MAX_FOUND);
}

#[test]
fn ipv6_is_judged_as_ipv4_is() {
    let node = |text: &str| {
        text.replace("10.0.0.", "fd00:10::")
            .replace("192.0.2.", "fd00:2::")
    };
    let aws = node(AWS);
    assert_eq!(findings(&aws), []);
    let older = aws.replace(
        "rule 1536",
        "rule 1536: from fd00:10::5 lookup 3\nrule 1536",
    );
    let found = only(&older);
    assert_eq!(entry(&found), "1536: from fd00:10::5 lookup 3");
    assert_eq!(
        remove(&found),
        "ip -6 rule del pref 1536 from fd00:10::5 lookup 3"
    );
    let ghost = "ghost fd00:10::9 eni9a2b3c4d5e6 5e:00:00:00:00:09
route fd00:10::9 dev eni9a2b3c4d5e6
elsewhere fd00:10::9
";
    assert_eq!(
        remove(&only(&format!("{aws}{ghost}"))),
        "ip -6 route del fd00:10::9/128 dev eni9a2b3c4d5e6 table 254"
    );
    let other = aws.replace(
        "lladdr 5e:00:00:00:00:05 reachable",
        "lladdr 5e:00:00:00:00:99 permanent",
    );
    let found = only(&other);
    assert_eq!(found.severity, Severity::Critical);
    assert!(remove(&found).starts_with("ip neigh show fd00:10::5 dev eni1a2b3c4d5e6"));
}

#[test]
fn a_veth_that_leads_to_no_pod_hides_the_pod_of_another_node() {
    let orphan = "orphan eni9a2b3c4d5e6\nroute 10.0.0.9 dev eni9a2b3c4d5e6\n";
    assert_eq!(findings(&format!("{AWS}{orphan}")), [], "orphan-veth tells");
    let found = only(&format!("{AWS}{orphan}elsewhere 10.0.0.9"));
    assert_eq!(found.severity, Severity::Critical);
    assert_eq!(
        found.title,
        "a stale route keeps 10.0.0.9 of node-2 from this node"
    );
    assert!(
        found.evidence[1].claim.contains("leads to no pod"),
        "{:?}",
        found.evidence
    );
    assert_eq!(
        remove(&found),
        "ip route del 10.0.0.9/32 dev eni9a2b3c4d5e6 table 254"
    );
}

#[test]
fn tables_that_were_not_read_in_whole_do_not_show_where_packets_go() {
    let older = AWS.replace("rule 1536", "rule 1536: from 10.0.0.5 lookup 3\nrule 1536");
    let mut story = Story::of(&older);
    story.forwarding.cut = true;
    assert_eq!(story.findings(), []);
}

/// Nodes with something stale, one of each kind.
fn sick() -> Vec<String> {
    let older = AWS.replace("rule 1536", "rule 1536: from 10.0.0.5 lookup 3\nrule 1536");
    let mac = AWS.replace("5e:00:00:00:00:05 reachable", "5e:00:00:00:00:99 permanent");
    let ghost = "ghost 10.0.0.9 eni9a2b3c4d5e6 5e:00:00:00:00:09
route 10.0.0.9 dev eni9a2b3c4d5e6
elsewhere 10.0.0.9
";
    let gone = "gone 10.0.0.9\nrule 1536: from 10.0.0.9 lookup 3\n";
    let detached = "rule 2048: from 10.0.0.9 iif cali9a2b3c4d5e6 [detached] lookup 1003\n";
    let mut sick = vec![older, mac];
    sick.extend([ghost, gone, detached].map(|more| format!("{AWS}{more}")));
    sick
}

/// What is said of events, in a scan or in a trace.
fn said(events: &[Event]) -> Vec<String> {
    let surveyed = !events.iter().any(|event| {
        matches!(
            event.what,
            event::What::NetnsForwarding { followed: true, .. }
        )
    });
    let mut node = match surveyed {
        true => Node::of_looks(events),
        false => Node::of(events),
    };
    node.tick(NOW);
    let open = node.0.open().into_iter();
    let its = open.filter(|finding| finding.rule == Rule::StalePath);
    its.map(|finding| finding.id.clone()).collect()
}

#[test]
fn a_source_that_is_missing_adds_nothing() {
    let sources = [
        "sandboxes-listed",
        "attachments-listed",
        "pods-listed",
        "netns-devices",
        "netns-forwarding",
        "netns-holders",
    ];
    let healthy = healthy().map(|(_, text)| text.to_owned());
    let mut found = 0;
    for text in healthy.chain(sick()) {
        for events in [Story::of(&text).events(), traced::traced(&text)] {
            let whole = said(&events);
            found += whole.len();
            for source in sources {
                let less = events.iter().filter(|event| event.what.name() != source);
                let less = said(&less.cloned().collect::<Vec<_>>());
                assert!(less.iter().all(|id| whole.contains(id)), "{text}\n{source}");
            }
        }
    }
    // A trace has the pods' devices read again before it tells of a neighbour.
    assert_eq!(found, 2 * sick().len() - 1);
}
