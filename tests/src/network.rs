//! The pod network of the stage: by the CNI plugins, or by hand without them.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::cni::{self, Attachment, Cni};
use crate::netns::Netns;

/// How pods get their interface and address.
#[derive(Debug)]
pub enum Network {
    /// The real bridge and host-local plugins.
    Cni(Cni),
    /// veth pairs made with `ip`, because the plugins are not installed.
    Plain(Plain),
}

/// The pool of the network without plugins.
#[derive(Debug)]
pub struct Plain {
    net: [u8; 3],
    /// Last octet of the next address.
    next: u8,
    attached: u32,
}

/// The stage's network number. 198.18.0.0/15 is for testing (RFC 2544): no
/// real pod has such an address, so none can be mistaken for a duplicate.
fn subnet() -> [u8; 3] {
    [198, 18, (std::process::id() % 255) as u8]
}

impl Network {
    /// Makes the node's side in `node`, by CNI where the plugins are
    /// installed; files go below `scratch`.
    pub fn start(node: &Netns, scratch: &Path) -> anyhow::Result<Self> {
        if cni::folder().is_none() {
            return Self::plain(node);
        }
        node.ip("link set lo up")?;
        let [a, b, c] = subnet();
        Ok(Self::Cni(Cni::start(
            node,
            scratch,
            &format!("{a}.{b}.{c}.0/24"),
        )?))
    }

    /// Makes the node's side in `node` without CNI.
    pub fn plain(node: &Netns) -> anyhow::Result<Self> {
        node.ip("link set lo up")?;
        let net @ [a, b, c] = subnet();
        node.ip(&format!("link add {} type bridge", cni::BRIDGE))?;
        node.ip(&format!("addr add {a}.{b}.{c}.1/24 dev {}", cni::BRIDGE))?;
        node.ip(&format!("link set {} up", cni::BRIDGE))?;
        Ok(Self::Plain(Plain {
            net,
            next: 2,
            attached: 0,
        }))
    }

    /// One line for people: what this network is.
    pub fn describe(&self) -> String {
        match self {
            Self::Cni(_) => String::from(
                "the real CNI plugins bridge and host-local, run by a stand-in for containerd",
            ),
            Self::Plain(_) => String::from(
                "veth pairs made by hand: the CNI plugins are not installed (Debian: containernetworking-plugins)",
            ),
        }
    }

    /// Whether CNI calls are made.
    pub fn is_cni(&self) -> bool {
        matches!(self, Self::Cni(_))
    }

    /// Gives a sandbox its interface and address.
    pub(crate) fn attach(
        &mut self,
        node: &Netns,
        attachment: Attachment<'_>,
    ) -> anyhow::Result<Ipv4Addr> {
        match self {
            Self::Cni(cni) => Ok(cni.add(attachment)?.0),
            Self::Plain(plain) => plain.attach(node, attachment.netns),
        }
    }

    /// Takes them away, as the runtime does when it removes a sandbox.
    pub(crate) fn detach(&mut self, attachment: Attachment<'_>) -> anyhow::Result<()> {
        match self {
            Self::Cni(cni) => cni.del(attachment),
            // The interface goes with the namespace.
            Self::Plain(_) => Ok(()),
        }
    }

    /// Gives the address back to the pool, whoever uses it. Returns the
    /// reservation that was removed.
    pub(crate) fn collect(&mut self, address: Ipv4Addr) -> anyhow::Result<Option<PathBuf>> {
        match self {
            Self::Cni(cni) => cni.collect(address).map(Some),
            Self::Plain(plain) => {
                plain.next = address.octets()[3];
                Ok(None)
            }
        }
    }
}

impl Plain {
    fn attach(&mut self, node: &Netns, pod: &Netns) -> anyhow::Result<Ipv4Addr> {
        let [a, b, c] = self.net;
        let address = Ipv4Addr::new(a, b, c, self.next);
        self.next += 1;
        self.attached += 1;
        let veth = format!("veth{}", self.attached);
        node.ip(&format!(
            "link add {veth} type veth peer name eth0 netns {}",
            pod.name()
        ))?;
        node.ip(&format!("link set {veth} master {} up", cni::BRIDGE))?;
        pod.ip("link set lo up")?;
        pod.ip(&format!("addr add {address}/24 dev eth0"))?;
        pod.ip("link set eth0 up")?;
        pod.ip(&format!("route add default via {a}.{b}.{c}.1"))?;
        Ok(address)
    }
}
