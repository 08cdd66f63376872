//! The few attributes of rtnetlink's answers that are used. What is not known
//! is passed over, and so is a message that ends early.

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use netlink_packet_core::{
    NLA_HEADER_SIZE, NetlinkDeserializable, NetlinkHeader, NlasIterator, parse_ip,
};

use event::{
    Dad, Device, Neighbour,
    forwarding::{FrameRoute, PolicyRule, RouteKind, RuleAction, TableRoute},
};

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
/// Size of `struct fib_rule_hdr`.
pub(super) const FIB_RULE_HDR: usize = 12;

/// `NDA_MASTER` of linux/neighbour.h, which libc does not have.
const NDA_MASTER: u16 = 9;
/// Flags of linux/fib_rules.h, which libc does not have.
const FIB_RULE_INVERT: u32 = 2;
const FIB_RULE_DETACHED: u32 = 8 | 16;

/// Attributes of linux/fib_rules.h, which libc does not have.
mod fra {
    pub(super) const DST: u16 = 1;
    pub(super) const SRC: u16 = 2;
    pub(super) const IIFNAME: u16 = 3;
    pub(super) const GOTO: u16 = 4;
    pub(super) const PRIORITY: u16 = 6;
    pub(super) const FWMARK: u16 = 10;
    pub(super) const FLOW: u16 = 11;
    pub(super) const SUPPRESS_IFGROUP: u16 = 13;
    pub(super) const SUPPRESS_PREFIXLEN: u16 = 14;
    pub(super) const TABLE: u16 = 15;
    pub(super) const FWMASK: u16 = 16;
    pub(super) const OIFNAME: u16 = 17;
    pub(super) const PAD: u16 = 18;
    pub(super) const PROTOCOL: u16 = 21;
}

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
    /// A route: one for each next hop.
    Routes(Vec<TableRoute>),
    Neighbour {
        neighbour: Neighbour,
        /// How long ago it was last sure, in hundredths of a second.
        confirmed: Option<u32>,
    },
    /// What a bridge has learnt.
    Frame(FrameRoute),
    Rule(PolicyRule),
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
            libc::RTM_NEWRULE => rule(payload),
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

/// Whether the last 64 bits are zero, as in the address of a network's routers
/// (RFC 4291, 2.6.1).
fn is_network(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_bits() as u64 == 0)
}

/// `struct rtmsg` and what follows it.
pub(super) fn route(payload: &[u8]) -> Option<Attributes> {
    let (head, rest) = payload.split_at_checked(RTMSG)?;
    let (family, length, protocol) = (head[0], head[1], head[5]);
    let flags = number(&head[8..12])?;
    // Not the copies that IPv6 makes of a route for one destination.
    if flags & libc::RTM_F_CLONED != 0 {
        return None;
    }
    let kind = match head[7] {
        libc::RTN_UNICAST => RouteKind::Unicast,
        libc::RTN_LOCAL | libc::RTN_ANYCAST => RouteKind::Local,
        libc::RTN_BLACKHOLE => RouteKind::Blackhole,
        libc::RTN_UNREACHABLE => RouteKind::Unreachable,
        libc::RTN_PROHIBIT => RouteKind::Prohibit,
        libc::RTN_THROW => RouteKind::Throw,
        _ => return None,
    };
    let (zero, whole) = of_family(family)?;
    if length > whole {
        return None;
    }
    let mut table = u32::from(head[4]);
    let (mut to, mut hop, mut hops) = (None, Hop::default(), Vec::new());
    hop.dead = is_dead(flags);
    let mut priority = None;
    for (kind, value) in attributes(rest) {
        match kind {
            libc::RTA_DST => to = parse_ip(value).ok(),
            libc::RTA_MULTIPATH => hops = next_hops(value),
            libc::RTA_PRIORITY => priority = number(value),
            libc::RTA_TABLE => table = number(value).unwrap_or(table),
            _ => hop.take(kind, value),
        }
    }
    let to = match length {
        0 => zero,
        _ => to?,
    };
    if hops.is_empty() {
        hops.push(hop);
    }
    let is_anycast = head[7] == libc::RTN_ANYCAST;
    let by_kernel = match protocol {
        // A router's for each of its networks; others are joined by a program.
        _ if is_anycast => is_network(to),
        libc::RTPROT_REDIRECT | RTPROT_RA => true,
        // Agents enter theirs under the same name. For IPv4 no neighbour can have
        // one made.
        libc::RTPROT_KERNEL => whole == 128 && priority == Some(PRIORITY_OF_ADDRESSES),
        _ => false,
    };
    let routes: Vec<TableRoute> = hops
        .into_iter()
        .filter(|hop| hop.device.is_some() || kind != RouteKind::Unicast)
        .map(|hop| TableRoute {
            table,
            to: (to, length),
            kind,
            gateway: hop.gateway,
            device: hop.device,
            metric: priority.unwrap_or_default(),
            protocol: protocol.into(),
            dead: hop.dead,
            by_kernel,
        })
        .collect();
    (!routes.is_empty()).then_some(Attributes::Routes(routes))
}

/// The address of zeros, and how long an address is.
fn of_family(family: u8) -> Option<(IpAddr, u8)> {
    match i32::from(family) {
        libc::AF_INET => Some((Ipv4Addr::UNSPECIFIED.into(), 32)),
        libc::AF_INET6 => Some((Ipv6Addr::UNSPECIFIED.into(), 128)),
        _ => None,
    }
}

/// `RTNH_F_DEAD` and `RTNH_F_LINKDOWN` of linux/rtnetlink.h: the kernel passes
/// over the first; over the second only if a sysctl says so.
fn is_dead(flags: u32) -> bool {
    flags & 1 != 0
}

/// `struct fib_rule_hdr` and what follows it.
pub(super) fn rule(payload: &[u8]) -> Option<Attributes> {
    let (head, rest) = payload.split_at_checked(FIB_RULE_HDR)?;
    let (zero, _) = of_family(head[0])?;
    let (to_length, from_length, tos) = (head[1], head[2], head[3]);
    let flags = number(&head[8..12])?;
    let action = match head[7] {
        1 => RuleAction::Lookup,
        2 => RuleAction::Goto,
        3 => RuleAction::Nop,
        6 => RuleAction::Blackhole,
        7 => RuleAction::Unreachable,
        8 => RuleAction::Prohibit,
        _ => return None,
    };
    let mut rule = PolicyRule {
        ipv6: zero.is_ipv6(),
        table: head[4].into(),
        action,
        not: flags & FIB_RULE_INVERT != 0,
        detached: flags & FIB_RULE_DETACHED != 0,
        narrower: tos != 0,
        ..PolicyRule::default()
    };
    let (mut mark, mut mask) = (None, None);
    let (mut from, mut to) = (None, None);
    for (kind, value) in attributes(rest) {
        match kind {
            fra::DST => to = parse_ip(value).ok(),
            fra::SRC => from = parse_ip(value).ok(),
            fra::IIFNAME => rule.iif = Some(text(value)),
            fra::OIFNAME => rule.oif = Some(text(value)),
            fra::GOTO => rule.goto = number(value)?,
            fra::PRIORITY => rule.priority = number(value)?,
            fra::FWMARK => mark = number(value),
            fra::FWMASK => mask = number(value),
            fra::TABLE => rule.table = number(value)?,
            fra::PROTOCOL => rule.protocol = value.first().copied().unwrap_or_default().into(),
            fra::SUPPRESS_PREFIXLEN => {
                rule.suppress = number(value).filter(|length| *length != u32::MAX);
            }
            fra::SUPPRESS_IFGROUP => rule.narrower |= number(value) != Some(u32::MAX),
            fra::FLOW | fra::PAD => {}
            // Whatever else there is narrows the selector.
            _ => rule.narrower = true,
        }
    }
    let prefix = |address: Option<IpAddr>, length| match length {
        0 => Some(None),
        length => Some(Some((address?, length))),
    };
    rule.from = prefix(from, from_length)?;
    rule.to = prefix(to, to_length)?;
    rule.mark = mark
        .or(mask.map(|_| 0))
        .map(|mark| (mark, mask.unwrap_or(u32::MAX)));
    Some(Attributes::Rule(rule))
}

/// Where a route leads next.
#[derive(Debug, Default)]
struct Hop {
    device: Option<u32>,
    gateway: Option<IpAddr>,
    dead: bool,
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
            dead: is_dead(head[2].into()),
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
    let (mut confirmed, mut master) = (None, None);
    for (kind, value) in attributes(rest) {
        match kind {
            libc::NDA_DST => address = parse_ip(value).ok(),
            libc::NDA_LLADDR => hardware = mac(value),
            // `struct nda_cacheinfo`: confirmed, used, updated, references.
            libc::NDA_CACHEINFO => confirmed = value.get(..4).and_then(number),
            NDA_MASTER => master = number(value),
            _ => {}
        }
    }
    if i32::from(head[0]) == libc::AF_BRIDGE {
        // Permanent entries of a bridge are its ports' own addresses.
        let learnt = address.is_some() || (master.is_some() && state != libc::NUD_PERMANENT);
        return learnt.then_some(Attributes::Frame(FrameRoute {
            mac: hardware?,
            device,
            remote: address,
        }));
    }
    let neighbour = Neighbour {
        address: address?,
        device,
        mac: hardware,
        state: state_name(state).to_owned(),
    };
    Some(Attributes::Neighbour {
        neighbour,
        confirmed,
    })
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
    rule(data);
}

#[cfg(test)]
mod tests;
