//! A node that is made up, as it really is: pods, their sandboxes, and
//! everything else that has a network namespace.
//!
//! What is made is consistent: a living pod's sandbox runs, is mounted, listed
//! and reserved; a pod that is gone has left nothing, or some of it.

use std::{fmt, net::IpAddr};

use event::{StoreKind, testing::generator::Dice};

/// When the node is looked at, seconds after the beginning.
pub(super) const LOOK: i64 = 10_000;

#[derive(Clone, Debug)]
pub(super) struct Truth {
    pub(super) ipam: Ipam,
    pub(super) pods: Vec<TruePod>,
    pub(super) others: Vec<OtherNetns>,
    /// Reserved for containers that do not exist: `10.0.0.LAST`.
    pub(super) leaks: Vec<u8>,
    /// Host ends of veth pairs that lead nowhere.
    pub(super) orphans: u32,
}

/// What gives the pods' own addresses out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ipam {
    /// One whose store can be read.
    Kept(StoreKind),
    /// Another: its `type`.
    Other(&'static str),
}

#[derive(Clone, Debug)]
pub(super) struct TruePod {
    pub(super) uid: String,
    pub(super) namespace: &'static str,
    pub(super) name: String,
    pub(super) life: Life,
    pub(super) host_network: bool,
    /// `spec.terminationGracePeriodSeconds`
    pub(super) grace: i64,
    /// Oldest first.
    pub(super) sandboxes: Vec<TrueSandbox>,
    /// The pod has a namespace of its own making, as docker in docker has.
    pub(super) inner: bool,
}

/// What has become of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Running,
    /// A static pod that runs; whether the API has its mirror.
    Static(bool),
    /// Its phase, and since when.
    Finished(&'static str, i64),
    /// It should be gone by then.
    Terminating(i64),
    /// When it was removed from the API.
    Deleted(i64),
}

#[derive(Clone, Debug)]
pub(super) struct TrueSandbox {
    pub(super) id: String,
    pub(super) attempt: u32,
    pub(super) inode: u32,
    pub(super) made: i64,
    /// What keeps its namespace; nothing if the namespace is gone.
    pub(super) held: Option<Held>,
    /// Where the pod's own address is.
    pub(super) place: Place,
    pub(super) primary: Attached,
    /// Another network's interface, `net1`.
    pub(super) second: Option<Attached>,
    /// A thread of an agent is in it.
    pub(super) guest: bool,
    /// The CRI has it: whether it is ready.
    pub(super) cri: Option<bool>,
    /// The runtime's folder, a cgroup and a shim of it are there.
    pub(super) remains: bool,
    /// libcni remembers its ADD.
    pub(super) cached: bool,
    /// The store has its address reserved for it.
    pub(super) reserved: bool,
    /// Its gateway's permanent neighbour entry, if its CNI writes one, is there.
    pub(super) neighbour: bool,
}

/// An interface with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attached {
    pub(super) address: [u8; 4],
    pub(super) link: Link,
}

/// What an interface is connected to, by the index of the host's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// A veth, and the host-side end is a port of this bridge.
    Bridge(u32),
    /// A veth, and the host routes to its end of it.
    Routed,
    /// The same, and the host-side end is of this VRF.
    Vrf(u32),
    /// A veth, and the host routes to its end of it by this table, for what comes in by
    /// that end alone.
    Tenant(u32),
    /// A veth, and no route of the host's leads to it.
    Loose,
    /// It is stacked on this device.
    Macvlan(u32),
    Ipvlan(u32),
    /// It is hardware of its own.
    Physical(u32),
}

/// Where the kernel has a pod's own address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On the device that CNI made.
    Eth0,
    /// KubeVirt: on a dummy of that name, while the device is a bridge's port.
    Dummy,
    /// On a bridge, whose port the device is.
    Bridge,
    /// On the device, which the pod has given the name `lo`.
    Lo,
    /// gVisor: nowhere.
    Nowhere,
}

/// What keeps a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// Its tasks run, and it is mounted.
    Running,
    /// A task in uninterruptible sleep; whether it is mounted, too.
    Stuck(bool),
    Mount,
    Descriptor,
    Socket,
}

/// A namespace that is no pod's.
#[derive(Clone, Debug)]
pub(super) struct OtherNetns {
    pub(super) inode: u32,
    pub(super) kind: Kind,
    pub(super) attached: Option<Attached>,
}

/// Who made a namespace that is no pod's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// docker: a container's.
    Docker,
    /// systemd: `PrivateNetwork=`.
    Private,
    /// A person: `ip netns add`, with nothing in it.
    Named,
}

/// The host's devices that pods are connected to.
pub(super) const PARENTS: [u32; 3] = [3, 4, 5];
pub(super) const CNI0: u32 = 10;
pub(super) const DOCKER0: u32 = 11;
pub(super) const MULTUS: u32 = 12;
pub(super) const VRFS: [u32; 2] = [13, 14];

pub(super) const NAMESPACES: [&str; 2] = ["shop", "kube-system"];

impl fmt::Display for Truth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:?}, leaks {:?}, orphans {}",
            self.ipam, self.leaks, self.orphans
        )?;
        for pod in &self.pods {
            let mut bare = pod.clone();
            bare.sandboxes.clear();
            writeln!(f, "{bare:?}")?;
            for sandbox in &pod.sandboxes {
                writeln!(f, "    {sandbox:?}")?;
            }
        }
        let mut others = self.others.iter();
        others.try_for_each(|other| writeln!(f, "{other:?}"))
    }
}

impl Truth {
    pub(super) fn any(dice: &mut Dice<'_>) -> Self {
        let ipam = dice.one(&[
            Ipam::Kept(StoreKind::HostLocal),
            Ipam::Kept(StoreKind::HostLocal),
            Ipam::Kept(StoreKind::Calico),
            Ipam::Kept(StoreKind::Terway),
            Ipam::Kept(StoreKind::Aws),
            Ipam::Kept(StoreKind::Whereabouts),
            Ipam::Other("azure-vnet-ipam"),
            Ipam::Other("static"),
        ]);
        let mut truth = Self {
            ipam,
            pods: Vec::new(),
            others: Vec::new(),
            leaks: Vec::new(),
            orphans: 0,
        };
        for number in 0..dice.roll(13) {
            let pod = TruePod::any(dice, ipam, number, &truth.pods);
            truth.pods.push(pod);
        }
        for number in 0..dice.roll(4) {
            truth.others.push(OtherNetns::any(dice, number));
        }
        let leaks = dice.roll(3) as u8;
        truth.leaks = (0..leaks).map(|leak| 230 + leak).collect();
        truth.orphans = u32::from(dice.roll(4) == 0);
        truth.give_back();
        truth
    }

    /// Sandboxes that no pod that runs needs any more.
    pub(super) fn over(&self) -> impl Iterator<Item = &TrueSandbox> {
        self.pods.iter().flat_map(|pod| {
            let runs = matches!(pod.life, Life::Running | Life::Static(_));
            let newest = pod.sandboxes.len().saturating_sub(usize::from(runs));
            &pod.sandboxes[..newest]
        })
    }

    /// An address is reserved for one at a time: for the one who got it last, or,
    /// once that is given back, for nobody.
    pub(super) fn give_back(&mut self) {
        let mut given = std::collections::BTreeMap::new();
        for sandbox in self.pods.iter().flat_map(|pod| &pod.sandboxes) {
            let last: &mut (i64, u32) = given.entry(sandbox.primary.address).or_default();
            *last = (*last).max((sandbox.made, sandbox.inode));
        }
        for sandbox in self.pods.iter_mut().flat_map(|pod| &mut pod.sandboxes) {
            let last = given.get(&sandbox.primary.address);
            sandbox.reserved &= last.is_some_and(|(_, inode)| *inode == sandbox.inode);
        }
    }
}

impl TruePod {
    fn any(dice: &mut Dice<'_>, ipam: Ipam, number: u32, others: &[Self]) -> Self {
        let at = |dice: &mut Dice<'_>| dice.one(&[LOOK - 4_000, LOOK - 600, LOOK - 90, LOOK - 2]);
        let life = match dice.roll(12) {
            0..=4 => Life::Running,
            5 => Life::Static(dice.roll(3) > 0),
            6 => Life::Finished(dice.one(&["Succeeded", "Failed"]), LOOK - 600),
            7 => Life::Terminating(dice.one(&[LOOK - 300, LOOK + 300])),
            _ => Life::Deleted(at(dice)),
        };
        let host_network = dice.roll(12) == 0;
        let uid = match life {
            Life::Static(_) => format!("0a1b2c3d00004000800000000000{number:04x}"),
            _ => format!("0a1b2c3d-0000-4000-8000-00000000{number:04x}"),
        };
        // A StatefulSet's pod has the name of one that is gone, and may keep
        // its address.
        let before = others.iter().rev().find(|other| {
            matches!(other.life, Life::Deleted(gone) if gone <= LOOK - 600)
                && !(other.host_network || host_network)
        });
        let before = before.filter(|_| life == Life::Running && dice.roll(3) == 0);
        let mut pod = Self {
            uid,
            namespace: before.map_or_else(|| dice.one(&NAMESPACES), |before| before.namespace),
            name: before.map_or_else(|| format!("pod-{number}"), |before| before.name.clone()),
            life,
            host_network,
            grace: dice.one(&[30, 30, 600]),
            sandboxes: Vec::new(),
            inner: !host_network && dice.roll(8) == 0,
        };
        if host_network {
            return pod;
        }
        let attempts = dice.one(&[1, 1, 1, 2, 3]);
        let sticky = dice.roll(3) == 0;
        for attempt in 0..attempts {
            let newest = attempt + 1 == attempts;
            let born = match before.map(|before| before.life) {
                Some(Life::Deleted(gone)) => gone + 5,
                _ => 1_000 + i64::from(number) * 300,
            };
            let mut sandbox = TrueSandbox::any(dice, ipam, life, number, attempt, newest);
            sandbox.made = born + i64::from(attempt) * 40;
            let last = pod.sandboxes.last();
            if let Some(last) = last.filter(|_| sticky) {
                sandbox.primary = last.primary;
            }
            // The pool gives an address out that an older sandbox still has.
            let from = match before {
                Some(before) => before.sandboxes.last(),
                None => others.last().and_then(|other| other.sandboxes.last()),
            };
            let again = from.filter(|from| newest && from.made < sandbox.made);
            if let Some(from) = again.filter(|_| dice.roll(4) == 0) {
                sandbox.primary.address = from.primary.address;
            }
            if let (Some(from), Some(own)) = (again.and_then(|it| it.second), &mut sandbox.second)
                && dice.roll(2) == 0
            {
                own.address = from.address;
            }
            pod.sandboxes.push(sandbox);
        }
        pod
    }

    /// Whether the API server has it.
    pub(super) fn is_listed(&self, at: i64) -> bool {
        match self.life {
            Life::Deleted(gone) => at < gone,
            Life::Static(mirrored) => mirrored,
            Life::Running | Life::Finished(..) | Life::Terminating(_) => true,
        }
    }
}

impl TrueSandbox {
    fn any(
        dice: &mut Dice<'_>,
        ipam: Ipam,
        life: Life,
        number: u32,
        attempt: u32,
        newest: bool,
    ) -> Self {
        let inode = 1_000 + number * 21 + attempt;
        let own = u8::try_from(10 + number * 4 + attempt).unwrap_or(u8::MAX);
        let runs = matches!(life, Life::Running | Life::Static(_) | Life::Terminating(_));
        // What is left of a pod, or of a pod's older sandbox: nothing at all as
        // a rule.
        let left = dice.one(&[
            None,
            None,
            Some(Held::Running),
            Some(Held::Stuck(true)),
            Some(Held::Stuck(false)),
            Some(Held::Mount),
            Some(Held::Descriptor),
            Some(Held::Socket),
        ]);
        let lives = runs && newest;
        let stuck = lives && dice.roll(10) == 0;
        let held = match (lives, stuck) {
            (true, true) => Some(Held::Stuck(true)),
            (true, false) => Some(Held::Running),
            (false, _) => left,
        };
        let cri = match held {
            _ if lives => Some(true),
            // The kubelet is down, or not there yet.
            Some(Held::Running) => dice.one(&[Some(true), Some(false)]),
            Some(_) => dice.one(&[Some(false), None]),
            None => dice.one(&[Some(false), None, None]),
        };
        let link = match ipam {
            Ipam::Kept(StoreKind::HostLocal) => dice.one(&[Link::Bridge(CNI0), Link::Bridge(CNI0)]),
            Ipam::Kept(StoreKind::Aws | StoreKind::Terway) => {
                dice.one(&[Link::Routed, Link::Routed, Link::Physical(inode)])
            }
            Ipam::Kept(StoreKind::Whereabouts) | Ipam::Other("static") => {
                Link::Macvlan(dice.one(&PARENTS))
            }
            _ => Link::Routed,
        };
        let others = [
            Link::Macvlan(3),
            Link::Macvlan(4),
            Link::Ipvlan(5),
            Link::Bridge(MULTUS),
            Link::Vrf(13),
            Link::Vrf(14),
            Link::Tenant(201),
            Link::Tenant(202),
            Link::Loose,
        ];
        let second = (dice.roll(4) == 0).then(|| Attached {
            // Each network has its own few addresses, the same for all.
            address: [10, 1, 0, 5 + dice.roll(6) as u8],
            link: dice.one(&others),
        });
        let place = match dice.roll(12) {
            0 => Place::Dummy,
            1 => Place::Bridge,
            2 => Place::Lo,
            3 => Place::Nowhere,
            _ => Place::Eth0,
        };
        // Hardware is nobody's to be renamed or enslaved here.
        let place = match link {
            Link::Physical(_) => Place::Eth0,
            _ => place,
        };
        let remains = lives || (cri.is_some() && held.is_some());
        Self {
            id: format!("{inode:08x}").repeat(8),
            attempt,
            inode,
            made: 0,
            held,
            place,
            primary: Attached {
                address: [10, 0, 0, own],
                link,
            },
            second,
            guest: dice.roll(10) == 0,
            cri,
            remains,
            cached: lives || (held.is_some() && dice.roll(3) > 0) || dice.roll(6) == 0,
            reserved: lives || (held.is_some() && dice.roll(3) > 0) || dice.roll(6) == 0,
            neighbour: dice.roll(10) > 0,
        }
    }

    /// Whether its namespace is there.
    pub(super) fn lives(&self) -> bool {
        self.held.is_some()
    }

    /// The address that CNI gave the pod as its own.
    pub(super) fn own(&self) -> IpAddr {
        IpAddr::from(self.primary.address)
    }

    pub(super) fn is_mounted(&self) -> bool {
        matches!(
            self.held,
            Some(Held::Running | Held::Stuck(true) | Held::Mount)
        )
    }

    pub(super) fn has_tasks(&self) -> bool {
        matches!(self.held, Some(Held::Running | Held::Stuck(_)))
    }
}

impl OtherNetns {
    fn any(dice: &mut Dice<'_>, number: u32) -> Self {
        let kind = dice.one(&[Kind::Docker, Kind::Private, Kind::Named, Kind::Named]);
        let attached = match kind {
            Kind::Docker => Some(Attached {
                address: [172, 17, 0, 2 + number as u8],
                link: Link::Bridge(DOCKER0),
            }),
            Kind::Private => None,
            Kind::Named => dice.one(&[
                None,
                Some(Attached {
                    address: [10, 1, 0, 5],
                    link: Link::Bridge(MULTUS),
                }),
                Some(Attached {
                    address: [10, 1, 0, 5],
                    link: Link::Macvlan(3),
                }),
            ]),
        };
        Self {
            inode: 5_000 + number,
            kind,
            attached,
        }
    }
}

/// Whether two interfaces share a link; `None` where the kernel's picture of
/// this node alone does not say.
pub(super) fn meet(one: Link, other: Link) -> Option<bool> {
    use Link::{Bridge, Ipvlan, Macvlan, Physical, Routed, Tenant, Vrf};
    match (one, other) {
        (Bridge(a), Bridge(b)) | (Vrf(a), Vrf(b)) | (Tenant(a), Tenant(b)) => Some(a == b),
        (Macvlan(a) | Ipvlan(a), Macvlan(b) | Ipvlan(b)) => Some(a == b),
        (Routed, Routed) => Some(true),
        // What the fabric behind two pieces of hardware is, who knows.
        (Physical(_), _) | (_, Physical(_)) => None,
        // A bridge with an address of the host's is reached through its routes.
        (Bridge(_), Routed) | (Routed, Bridge(_)) => None,
        _ => Some(false),
    }
}
