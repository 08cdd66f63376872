//! Any event, about few enough things that events meet.

use std::path::PathBuf;

use super::*;
use crate::{
    CniEffect, Endpoint, FullFilesystem, Neighbour, OomKill, StartFailure, Trace, TraceKind,
};

/// What decides: a generator's numbers, or bytes of a fuzzer's.
#[derive(Debug)]
pub enum Dice<'a> {
    Seed(u64),
    /// One byte a roll; zeros after the last.
    Bytes(&'a [u8]),
}

impl Dice<'_> {
    /// A number below `sides`.
    pub fn roll(&mut self, sides: u32) -> u32 {
        match self {
            Self::Seed(state) => {
                *state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (*state >> 33) as u32 % sides
            }
            Self::Bytes(bytes) => {
                let (first, rest) = bytes.split_first().unwrap_or((&0, &[]));
                *bytes = rest;
                u32::from(*first) % sides
            }
        }
    }

    pub fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len() as u32) as usize].clone()
    }

    /// The first so many of some.
    fn some<'a, T>(&mut self, of: &'a [T]) -> &'a [T] {
        &of[..self.roll(of.len() as u32 + 1) as usize]
    }

    /// Whether there are bytes left.
    pub fn goes_on(&self) -> bool {
        match self {
            Self::Seed(_) => true,
            Self::Bytes(bytes) => !bytes.is_empty(),
        }
    }
}

/// The things that events are about. What is of one world is in no other.
#[derive(Clone, Copy, Debug, Default)]
pub struct World(pub u8);

impl World {
    fn inode(self, dice: &mut Dice<'_>) -> u32 {
        100 + 50 * u32::from(self.0) + dice.roll(6)
    }

    fn last(self, dice: &mut Dice<'_>) -> u8 {
        5 + 20 * self.0 + dice.roll(3) as u8
    }

    fn pid(self, dice: &mut Dice<'_>) -> u32 {
        10 + 50 * u32::from(self.0) + dice.roll(5)
    }

    fn sandbox(self, dice: &mut Dice<'_>) -> String {
        format!("sandbox-{}", u32::from(self.0) * 10 + dice.roll(4))
    }

    fn uid(self, dice: &mut Dice<'_>) -> String {
        let uid = dice.one(&[OLD, NEW, OTHER]);
        uid.replacen("4000", &format!("400{}", self.0), 1)
    }

    fn pod(self, dice: &mut Dice<'_>) -> String {
        format!("{}-{}", dice.one(&["a", "b"]), self.0)
    }

    fn call(self, dice: &mut Dice<'_>) -> CniCall {
        let command = dice.one(&["ADD", "DEL", "CHECK"]);
        let (inode, uid) = (self.inode(dice), self.uid(dice));
        let netns = Some(ns(inode)).filter(|_| dice.roll(4) > 0);
        CniCall {
            netns,
            netns_path: netns
                .map(|_| format!("{MOUNT}-{inode}"))
                .unwrap_or_default(),
            pid: self.pid(dice),
            ..call(command, &self.sandbox(dice), inode, &uid, &self.pod(dice))
        }
    }

    /// Any event about one thing of this world, or two.
    pub fn event(self, dice: &mut Dice<'_>, seconds: i64) -> Event {
        let inode = self.inode(dice);
        let last = self.last(dice);
        let pid = self.pid(dice);
        let mut event = match dice.roll(22) {
            0 | 1 => created(seconds, inode),
            2 => found(seconds, inode),
            3 => dying(seconds, inode),
            4 => destroyed(seconds, inode),
            5 => {
                let (uid, sandbox) = (self.uid(dice), self.sandbox(dice));
                let tasks = [pod_task(pid, "x", &uid, &sandbox), task(pid + 1, "y")];
                let mount = format!("{MOUNT}-{inode}");
                holders(
                    seconds,
                    inode,
                    dice.some(&tasks),
                    dice.some(&[mount.as_str()]),
                )
            }
            6..=8 => added(seconds, inode, last),
            9 => removed(seconds, inode, last),
            10 => stuck(seconds, pid, inode),
            11 => unstuck(seconds, pid),
            12 => calls(seconds, self.call(dice)),
            13 => ended(seconds, self.call(dice)),
            14 => held_by_fds(seconds, inode, dice.some(&[leaked_fd(3)])),
            15 => failed(
                seconds,
                self.call(dice),
                dice.one(&[
                    "no IP addresses available in range set: 10.0.0.2-10.0.0.6",
                    "context deadline exceeded",
                    "no space left on device",
                ]),
            ),
            16 => answered(seconds, self.call(dice), last),
            17 => self.wiring(dice, seconds, inode, last),
            18 => self.effect(dice, seconds, inode, last),
            19 => at(
                seconds,
                What::SandboxFailed {
                    failure: self.failure(dice, seconds),
                },
            ),
            20 => self.endpoint(dice, seconds, last),
            _ => self.sandbox_change(dice, seconds, inode),
        };
        if dice.roll(3) == 0 {
            forget_cookies(&mut event.what);
        }
        event
    }

    fn wiring(self, dice: &mut Dice<'_>, seconds: i64, inode: u32, last: u8) -> Event {
        let pod_end = veth(2 + dice.roll(3), "eth0", 7 + u32::from(self.0) * 10);
        let all = [pod_end, physical(9, "eth1")];
        let routes = [default_route(GATEWAY, 2), route_to(last, 7)];
        let state = dice.one(&["permanent", "failed", "reachable"]);
        let neighbours: [Neighbour; 1] = [neighbour(2, state)];
        let (all, routes) = (dice.some(&all), dice.some(&routes));
        devices(seconds, inode, all, routes, dice.some(&neighbours))
    }

    fn effect(self, dice: &mut Dice<'_>, seconds: i64, inode: u32, last: u8) -> Event {
        let kinds = [
            TraceKind::Address,
            TraceKind::Veth,
            TraceKind::Route,
            TraceKind::Reservation,
        ];
        let trace = Trace {
            kind: dice.one(&kinds),
            name: ip(last).to_string(),
            there: dice.one(&[None, Some(true), Some(false)]),
        };
        let effect = CniEffect {
            command: dice.one(&["ADD", "DEL"]).into(),
            container_id: self.sandbox(dice),
            ifname: String::from("eth0"),
            pod: Some(a_pod(&self.uid(dice), &self.pod(dice))),
            netns: Some(ns(inode)).filter(|_| dice.roll(2) == 0),
            traces: vec![trace],
        };
        at(seconds, What::CniEffect { effect })
    }

    fn failure(self, dice: &mut Dice<'_>, seconds: i64) -> StartFailure {
        StartFailure {
            source: dice.one(&["kubelet", "containerd", "events"]).to_owned(),
            pod: a_pod(&self.uid(dice), &self.pod(dice)),
            sandbox_id: Some(self.sandbox(dice)).filter(|_| dice.roll(2) == 0),
            attempt: dice.one(&[None, Some(0), Some(3)]),
            message: dice
                .one(&[
                    "failed to reserve sandbox name \"a_shop_1\": name is reserved",
                    "plugin type=\"bridge\" failed (add): no IP addresses available in range set",
                    "context deadline exceeded",
                    "?",
                ])
                .to_owned(),
            count: dice.one(&[None, Some(7)]),
            first: dice.one(&[None, Some(s(seconds - 30)), Some(s(seconds + 30))]),
            ..StartFailure::default()
        }
    }

    fn endpoint(self, dice: &mut Dice<'_>, seconds: i64, last: u8) -> Event {
        let pod = a_pod(&self.uid(dice), &self.pod(dice));
        let endpoint = Endpoint {
            store: String::from("calico"),
            key: format!(
                "node-1-k8s-{}-eth0",
                pod.name.as_deref().unwrap_or_default()
            ),
            pod,
            ifname: None,
            container_id: Some(self.sandbox(dice)).filter(|_| dice.roll(3) > 0),
            ips: vec![ip(last)],
        };
        let what = match dice.roll(3) {
            0 => What::EndpointWritten { endpoint },
            1 => What::EndpointDeleted { endpoint },
            _ => What::EndpointKept {
                del: self.sandbox(dice),
                endpoint,
            },
        };
        at(seconds, what)
    }

    fn sandbox_change(self, dice: &mut Dice<'_>, seconds: i64, inode: u32) -> Event {
        let source = String::from("cri");
        let id = self.sandbox(dice);
        let what = match dice.roll(2) {
            0 => What::SandboxAdded {
                source,
                sandbox: sandbox(&id, inode, &self.uid(dice)),
            },
            _ => What::SandboxRemoved { source, id },
        };
        at(seconds, what)
    }
}

/// Any event about the node as a whole: lists, stores, sources, the clock.
pub fn of_the_node(dice: &mut Dice<'_>, seconds: i64) -> Event {
    let world = World(dice.roll(2) as u8);
    let (inode, last, id) = (world.inode(dice), world.last(dice), world.sandbox(dice));
    match dice.roll(17) {
        0 | 1 => {
            let pods = [
                pod("a", OLD, &[]),
                pod("b", NEW, &[ip(5)]),
                pod("c", OTHER, &[]),
            ];
            listed(seconds, dice.some(&pods))
        }
        2 => reserved(seconds, dice.one(&[None, Some("sandbox-1")])),
        3 => {
            let all = [sandbox(&id, inode, OLD), sandbox("sandbox-2", 101, NEW)];
            match dice.roll(2) {
                0 => cri(seconds, dice.some(&all)),
                _ => half_of_cri(seconds, dice.some(&all)),
            }
        }
        4 => cri_fails(seconds),
        5 => containers(
            seconds,
            dice.one(&["cgroup", "shim"]),
            dice.some(&[id.as_str()]),
        ),
        6 => {
            let attached_in = dice.one(&[None, Some(inode)]);
            let one = attachment(&id, attached_in, last, seconds - i64::from(dice.roll(90)));
            attached(seconds, dice.some(&[one]))
        }
        7 => {
            let last = dice.one(&[3, 200]);
            networks(seconds, dice.some(&[network("bridge", &[range(2, last)])]))
        }
        8 | 9 => {
            let some = [
                (2, "", seconds - 90),
                (last, id.as_str(), seconds - 90),
                (9, "x", seconds),
            ];
            stored(seconds, dice.some(&some))
        }
        10 => {
            let kill = OomKill {
                task: pod_task(world.pid(dice), "pause", OLD, &id),
                memcg: dice.one(&[None, Some(String::from("/kubepods"))]),
                limited: dice.one(&[None, Some(true)]),
            };
            at(seconds, What::OomKilled { kill })
        }
        11 => {
            let full = FullFilesystem {
                path: PathBuf::from("/var/lib"),
                bytes: 1_000,
                bytes_free: u64::from(dice.roll(2)),
                inodes: 10,
                inodes_free: u64::from(dice.roll(2)),
            };
            at(seconds, What::FilesystemFull { full })
        }
        12 => at(
            seconds,
            What::DeviceWaiting {
                device: dice.one(&["eth0", "lo"]).to_owned(),
                references: dice.one(&[None, Some(1), Some(-1)]),
            },
        ),
        13 => {
            let source = dice.one(&["cri", "pods", "host-local"]).to_owned();
            let error = String::from("no answer");
            match dice.roll(2) {
                0 => at(seconds, What::SourceFailed { source, error }),
                _ => at(seconds, What::SourceRecovered { source }),
            }
        }
        14 => at(
            seconds,
            What::EventsLost {
                cause: dice.one(&["ring-full", "x"]).to_owned(),
                count: dice.one(&[0, 1, u64::MAX]),
            },
        ),
        15 => {
            let by_ms = dice.one(&[-3_600_000, 1_500, i64::MAX]);
            let suspended = dice.roll(2) == 0;
            at(seconds, What::ClockStepped { by_ms, suspended })
        }
        _ => {
            let (uid, name) = (world.uid(dice), world.pod(dice));
            let what = match dice.roll(2) {
                0 => What::PodDeleted {
                    pod: a_pod(&uid, &name),
                },
                _ => What::PodChanged {
                    pod: Box::new(pod(&name, &uid, &[])),
                },
            };
            at(seconds, what)
        }
    }
}

fn forget_cookies(what: &mut What) {
    match what {
        What::NetnsCreated { netns, .. }
        | What::NetnsFound { netns, .. }
        | What::NetnsDying { netns, .. }
        | What::NetnsDestroyed { netns }
        | What::NetnsHolders { netns, .. }
        | What::NetnsDevices { netns, .. }
        | What::AddressAdded { netns, .. }
        | What::AddressRemoved { netns, .. } => netns.cookie = None,
        _ => {}
    }
}
