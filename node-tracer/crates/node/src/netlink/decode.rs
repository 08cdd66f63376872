//! The few attributes of rtnetlink's answers that are used. What is not known
//! is passed over, and so is a message that ends early.

use std::{convert::Infallible, net::IpAddr};

use netlink_packet_core::{
    NLA_HEADER_SIZE, NetlinkDeserializable, NetlinkHeader, NlasIterator, parse_ip,
};

use event::{Dad, Device, Neighbour, Route};

/// `ARPHRD_ETHER`
const ETHERNET: u16 = 1;
/// `RTA_VIA` of linux/rtnetlink.h, which libc has for glibc alone.
const RTA_VIA: u16 = 18;

/// `IFLA_BR_VLAN_FILTERING` of linux/if_link.h, which libc does not have.
const IFLA_BR_VLAN_FILTERING: u16 = 7;

/// `IFA_PROTO` of linux/if_addr.h (since Linux 5.18), and its value for what was
/// made of a router advertisement, which libc does not have.
const IFA_PROTO: u16 = 11;
const IFAPROT_KERNEL_RA: u8 = 2;

/// `RTPROT_RA` of linux/rtnetlink.h, which libc does not have.
const RTPROT_RA: u8 = 9;

/// `IP6_RT_PRIO_ADDRCONF`: the metric that the kernel gives to routes which it
/// makes for an address or a prefix. Whoever enters one has another by default.
const PRIORITY_OF_ADDRESSES: u32 = 256;

/// Size of `struct ifaddrmsg`.
pub(super) const IFADDRMSG: usize = 8;
/// Size of `struct rtmsg`.
pub(super) const RTMSG: usize = 12;
/// Size of `struct ndmsg`.
pub(super) const NDMSG: usize = 12;

/// What of an answer is of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Attributes {
    Link {
        device: Device,
        loopback: bool,
    },
    /// An address, and the index of its device.
    Address {
        index: u32,
        address: IpAddr,
        prefix: u8,
        /// When it was added, in hundredths of a second since boot, suspended
        /// time left out.
        made: Option<u32>,
        /// The kernel may have made it itself, of a router advertisement.
        advertised: bool,
        dad: Option<Dad>,
    },
    /// A default route, or one to a single address: one for each next hop.
    Routes(Vec<Route>),
    Neighbour(Neighbour),
    Other,
}

impl NetlinkDeserializable for Attributes {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Infallible> {
        let answer = match header.message_type {
            libc::RTM_NEWLINK => link(payload),
            libc::RTM_NEWADDR => address(payload),
            libc::RTM_NEWROUTE => route(payload),
            libc::RTM_NEWNEIGH => neighbour(payload),
            _ => None,
        };
        Ok(answer.unwrap_or(Self::Other))
    }
}

/// The attributes of a message, as (kind, value).
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    // The iterator has checked that each lies within the bytes.
    NlasIterator::new(bytes)
        .map_while(Result::ok)
        .map(|attribute| {
            let (kind, length) = (attribute.kind(), attribute.value_length());
            (kind, &attribute.into_inner()[NLA_HEADER_SIZE..][..length])
        })
}

/// `struct ifinfomsg` and what follows it.
pub(super) fn link(payload: &[u8]) -> Option<Attributes> {
    let (head, rest) = payload.split_at_checked(size_of::<libc::ifinfomsg>())?;
    let hardware_type = u16::from_ne_bytes(head[2..4].try_into().ok()?);
    let flags = u32::from_ne_bytes(head[8..12].try_into().ok()?);
    let loopback = flags & libc::IFF_LOOPBACK as u32 != 0;
    let mut device = Device {
        index: number(&head[4..8])?,
        up: flags & libc::IFF_UP as u32 != 0,
        ..Device::default()
    };
    let (mut bus, mut parent, mut burnt_in, mut data) = (None, None, false, None);
    for (kind, value) in attributes(rest) {
        match kind {
            libc::IFLA_IFNAME => device.name = text(value),
            libc::IFLA_ADDRESS => device.mac = mac(value),
            // Tunnels without a device below have 0.
            libc::IFLA_LINK => device.link = number(value).filter(|index| *index != 0),
            libc::IFLA_LINK_NETNSID => device.link_nsid = number(value).map(u32::cast_signed),
            libc::IFLA_MASTER => device.master = number(value),
            libc::IFLA_LINKINFO => {
                for (kind, value) in attributes(value) {
                    match kind {
                        libc::IFLA_INFO_KIND => device.kind = Some(text(value)),
                        libc::IFLA_INFO_DATA => data = Some(value),
                        _ => {}
                    }
                }
            }
            libc::IFLA_PARENT_DEV_BUS_NAME => bus = Some(text(value)),
            libc::IFLA_PARENT_DEV_NAME => parent = Some(text(value)),
            libc::IFLA_PERM_ADDRESS => burnt_in = value.iter().any(|byte| *byte != 0),
            _ => {}
        }
    }
    if device.is_bridge() {
        let mut data = attributes(data.unwrap_or_default());
        device.vlan_filtering =
            data.any(|(kind, value)| kind == IFLA_BR_VLAN_FILTERING && value == [1]);
    }
    device.hardware = match (bus, parent) {
        (Some(bus), Some(parent)) => Some(format!("{bus} {parent}")),
        (None, Some(parent)) => Some(parent),
        // Before Linux 5.14 the kernel does not name the hardware. There must
        // be some behind an Ethernet device that no driver of virtual ones
        // made and that has an address of its own.
        _ => (device.kind.is_none() && !loopback && hardware_type == ETHERNET && burnt_in)
            .then(|| String::from("unknown")),
    };
    Some(Attributes::Link { device, loopback })
}

/// `struct ifaddrmsg` and what follows it.
pub(super) fn address(payload: &[u8]) -> Option<Attributes> {
    let (head, rest) = payload.split_at_checked(IFADDRMSG)?;
    let (prefix, mut flags) = (head[1], u32::from(head[2]));
    let index = number(&head[4..8])?;
    let (mut local, mut far, mut made, mut by) = (None, None, None, None);
    for (kind, value) in attributes(rest) {
        match kind {
            libc::IFA_LOCAL => local = parse_ip(value).ok(),
            libc::IFA_ADDRESS => far = parse_ip(value).ok(),
            // `struct ifa_cacheinfo`: preferred, valid, created, updated.
            libc::IFA_CACHEINFO => made = value.get(8..12).and_then(number),
            libc::IFA_FLAGS => flags = number(value).unwrap_or(flags),
            IFA_PROTO => by = value.first().copied(),
            _ => {}
        }
    }
    // On a point-to-point link IFA_ADDRESS is the other end's.
    let address = local.or(far)?;
    // What is configured is permanent, unless it is leased. What the kernel has
    // made of an advertisement never is, however long that is good for.
    let is_permanent = flags & libc::IFA_F_PERMANENT != 0;
    let advertised = by == Some(IFAPROT_KERNEL_RA) || (address.is_ipv6() && !is_permanent);
    Some(Attributes::Address {
        index,
        address,
        prefix,
        made: made.filter(|hundredths| *hundredths != 0),
        advertised,
        dad: dad(flags),
    })
}

/// What an IPv6 address's flags say of duplicate address detection. One that has
/// failed stays tentative.
pub fn dad(flags: u32) -> Option<Dad> {
    let has = |flag| flags & flag != 0;
    if has(libc::IFA_F_DADFAILED) {
        Some(Dad::Failed)
    } else {
        has(libc::IFA_F_TENTATIVE).then_some(Dad::Tentative)
    }
}

/// `struct rtmsg` and what follows it.
pub(super) fn route(payload: &[u8]) -> Option<Attributes> {
    let (head, rest) = payload.split_at_checked(RTMSG)?;
    let (family, length, protocol, kind) = (head[0], head[1], head[5], head[7]);
    let flags = number(&head[8..12])?;
    // Not the copies that IPv6 makes of a route for one destination.
    if kind != libc::RTN_UNICAST || flags & libc::RTM_F_CLONED != 0 {
        return None;
    }
    let whole = match i32::from(family) {
        libc::AF_INET => 32,
        libc::AF_INET6 => 128,
        _ => return None,
    };
    if length != 0 && length != whole {
        return None;
    }
    let (mut to, mut hop, mut hops) = (None, Hop::default(), Vec::new());
    let mut priority = None;
    for (kind, value) in attributes(rest) {
        match kind {
            libc::RTA_DST => to = parse_ip(value).ok(),
            libc::RTA_MULTIPATH => hops = next_hops(value),
            libc::RTA_PRIORITY => priority = number(value),
            _ => hop.take(kind, value),
        }
    }
    let to = match length {
        0 => None,
        length => Some((to?, length)),
    };
    if hops.is_empty() {
        hops.push(hop);
    }
    let by_kernel = match protocol {
        libc::RTPROT_REDIRECT | RTPROT_RA => true,
        // Agents enter theirs under the same name. For IPv4 no neighbour can have
        // one made.
        libc::RTPROT_KERNEL => whole == 128 && priority == Some(PRIORITY_OF_ADDRESSES),
        _ => false,
    };
    let routes: Vec<Route> = hops
        .into_iter()
        .filter_map(|Hop { device, gateway }| {
            device.map(|device| Route {
                to,
                gateway,
                device,
                by_kernel,
            })
        })
        .collect();
    (!routes.is_empty()).then_some(Attributes::Routes(routes))
}

/// Where a route leads next.
#[derive(Debug, Default)]
struct Hop {
    device: Option<u32>,
    gateway: Option<IpAddr>,
}

impl Hop {
    fn take(&mut self, kind: u16, value: &[u8]) {
        match kind {
            libc::RTA_OIF => self.device = number(value),
            libc::RTA_GATEWAY => self.gateway = parse_ip(value).ok(),
            // A gateway of the other family: `struct rtvia`.
            RTA_VIA => {
                self.gateway = value
                    .split_at_checked(2)
                    .and_then(|(_, address)| parse_ip(address).ok());
            }
            _ => {}
        }
    }
}

/// The next hops of a route with several: each a `struct rtnexthop` with its
/// attributes.
fn next_hops(mut bytes: &[u8]) -> Vec<Hop> {
    const HEAD: usize = 8;
    let mut hops = Vec::new();
    while let Some((head, _)) = bytes.split_at_checked(HEAD) {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let Some(rest) = bytes.get(HEAD..length) else {
            break;
        };
        let mut hop = Hop {
            device: number(&head[4..8]),
            gateway: None,
        };
        for (kind, value) in attributes(rest) {
            hop.take(kind, value);
        }
        hops.push(hop);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    hops
}

/// `struct ndmsg` and what follows it.
pub(super) fn neighbour(payload: &[u8]) -> Option<Attributes> {
    let (head, rest) = payload.split_at_checked(NDMSG)?;
    let device = number(&head[4..8])?;
    let state = u16::from_ne_bytes([head[8], head[9]]);
    let (mut address, mut hardware) = (None, None);
    for (kind, value) in attributes(rest) {
        match kind {
            libc::NDA_DST => address = parse_ip(value).ok(),
            libc::NDA_LLADDR => hardware = mac(value),
            _ => {}
        }
    }
    Some(Attributes::Neighbour(Neighbour {
        address: address?,
        device,
        mac: hardware,
        state: state_name(state).to_owned(),
    }))
}

/// As ip-neighbour(8) names it.
fn state_name(state: u16) -> &'static str {
    match state {
        libc::NUD_PERMANENT => PERMANENT,
        libc::NUD_REACHABLE => "reachable",
        libc::NUD_STALE => "stale",
        libc::NUD_DELAY => "delay",
        libc::NUD_PROBE => "probe",
        libc::NUD_INCOMPLETE => "incomplete",
        libc::NUD_FAILED => "failed",
        libc::NUD_NOARP => "noarp",
        _ => "none",
    }
}

/// The state of a neighbour that somebody has entered.
pub(super) const PERMANENT: &str = "permanent";

fn number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

/// A name. Those of devices may hold any bytes but `/`, space and colon.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&value[..end.unwrap_or(value.len())]).into_owned()
}

/// A link-layer address in text. `None` for none at all, and for the IP
/// addresses that tunnels have in its place.
fn mac(value: &[u8]) -> Option<String> {
    let tunnel = matches!(value.len(), 4 | 16);
    if tunnel || value.iter().all(|byte| *byte == 0) {
        return None;
    }
    let digits: Vec<String> = value.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(digits.join(":"))
}

/// What the kernel would not send.
#[cfg(feature = "testing")]
pub(super) fn fuzz(data: &[u8]) {
    link(data);
    address(data);
    route(data);
    neighbour(data);
}

#[cfg(test)]
mod tests;
