//! Lists that the kernel gives in answer to one request: the socket, and the
//! reading of one namespace through it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    os::fd::AsRawFd,
    time::Duration,
};

use netlink_packet_core::{
    DecodeError, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::{
    DatedAddress,
    decode::{Attributes, FIB_RULE_HDR, IFADDRMSG, NDMSG, PERMANENT, RTMSG},
    nsid,
};
use event::{
    Address, Device, MAX_ADDRESSES, Neighbour, Route,
    forwarding::{DatedNeighbour, Forwarding, RouteKind, TableRoute, single},
};
use sys::{clock::KernelClock, syscall};

/// Larger than any message that the kernel makes of a dump (32 KiB).
const BUFFER: usize = 64 << 10;

/// Times that a dump is repeated because the configuration changed meanwhile.
const ATTEMPTS: u32 = 5;

/// Devices or addresses of one namespace that are kept.
const MAX_ANSWERS: usize = MAX_ADDRESSES;

/// Addresses of one device that the kernel makes of router advertisements
/// (`max_addresses`); there can be leased ones beside them.
const MAX_ADVERTISED: usize = 64;

/// Routes, and neighbours, of one namespace that are kept.
const MAX_ROUTES: usize = MAX_FORWARDING;

/// Of each kind that decides where a namespace sends packets so many are kept.
const MAX_FORWARDING: usize = 16_384;

/// A kind of list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Links,
    /// Addresses of every family.
    Addresses,
    /// Routes of every family and table.
    Routes,
    /// Neighbours of every family.
    Neighbours,
    /// Policy rules of every family.
    Rules,
    /// What bridges and VXLAN devices have learnt.
    Frames,
}

#[derive(Debug)]
pub(super) enum DumpError {
    /// The kernel did not give it.
    Io(List, io::Error),
    /// Its answer is not understood.
    Format(DecodeError),
}

/// All of a namespace that is of use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) addresses: Vec<DatedAddress>,
    pub(super) devices: Vec<Device>,
    pub(super) routes: Vec<Route>,
    pub(super) neighbours: Vec<Neighbour>,
    pub(super) forwarding: Forwarding,
    pub(super) addresses_cut: bool,
    pub(super) cut: bool,
}

/// A socket in the namespace that the thread was in when it was opened.
pub(super) struct Lists {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
    cut: bool,
    /// There are more routes to networks than are kept.
    networks_cut: bool,
    /// Addresses of the devices, sorted.
    assigned: Vec<IpAddr>,
}

impl Lists {
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        // The kernel answers within send and recv, so there is nothing to wait
        // for; a socket that waited would hold the namespace.
        socket.set_non_blocking(true)?;
        Ok(Self {
            socket,
            sequence: 0,
            buffer: Vec::with_capacity(BUFFER),
            cut: false,
            networks_cut: false,
            assigned: Vec::new(),
        })
    }

    /// The namespace's `net_cookie`, where the kernel tells it.
    pub(super) fn cookie(&self) -> Option<u64> {
        syscall::netns_cookie(&self.socket)
    }

    /// The ID that the namespace has for another one, negative if it has none.
    pub(super) fn nsid_of(&self, netns: &impl AsRawFd) -> Option<i32> {
        nsid::of(netns, &self.socket)
    }

    /// The devices and the addresses.
    pub(super) fn addresses(&mut self) -> Result<Contents, DumpError> {
        let mut links = BTreeMap::new();
        for answer in self.list(List::Links)? {
            if let Attributes::Link { device, loopback } = answer {
                links.insert(device.index, (device, loopback));
            }
        }
        let mut contents = Contents::default();
        let clock = KernelClock::now();
        contents.cut = std::mem::take(&mut self.cut);
        for answer in self.list(List::Addresses)? {
            let Attributes::Address {
                index,
                address,
                prefix,
                made,
                advertised,
                dad,
            } = answer
            else {
                continue;
            };
            let link = links.get_mut(&index);
            if !link.as_ref().is_some_and(|(_, loopback)| *loopback) {
                let mut device = link.map(|(device, _)| device);
                if advertised
                    && let Some(bridge) = device.as_mut().filter(|it| it.is_bridge())
                    && bridge.advertised.len() < MAX_ADVERTISED
                {
                    bridge.advertised.push(address);
                }
                let address = Address {
                    address,
                    prefix,
                    // A device made after the first list has no name yet.
                    ifname: device
                        .as_ref()
                        .map_or_else(|| format!("if{index}"), |device| device.name.clone()),
                    link_kind: device.and_then(|device| device.kind.clone()),
                    dad,
                };
                let made = made.map(|made| clock.of_jiffies(made));
                contents.addresses.push(DatedAddress { address, made });
            }
        }
        contents.addresses.sort();
        let assigned = contents.addresses.iter();
        self.assigned = assigned.map(|dated| dated.address.address).collect();
        let devices = links.into_values().filter(|(_, loopback)| !loopback);
        contents.devices = devices.map(|(device, _)| device).collect();
        contents.addresses_cut = std::mem::take(&mut self.cut);
        Ok(contents)
    }

    pub(super) fn everything(&mut self) -> Result<Contents, DumpError> {
        let mut contents = self.addresses()?;
        let Contents {
            routes,
            neighbours,
            forwarding,
            ..
        } = &mut contents;
        for answer in self.list(List::Rules)? {
            if let Attributes::Rule(rule) = answer {
                keep(rule, &mut forwarding.rules, &mut forwarding.cut);
            }
        }
        let mut local = Vec::new();
        for answer in self.list(List::Routes)? {
            if let Attributes::Routes(hops) = answer {
                routes.extend(hops.iter().filter_map(TableRoute::plain));
                for hop in hops {
                    match hop.is_any_ip() {
                        true => keep(hop, &mut local, &mut forwarding.local_cut),
                        false => keep(hop, &mut forwarding.routes, &mut forwarding.cut),
                    }
                }
            }
        }
        forwarding.local_cut |= self.cut;
        // First: what is left out later is another.
        forwarding.routes.splice(0..0, local);
        let mut cut = routes.len() > MAX_ROUTES;
        routes.truncate(MAX_ROUTES);
        let gateways: BTreeSet<(IpAddr, u32)> = routes
            .iter()
            .filter_map(|route| Some((route.gateway?, route.device)))
            .collect();
        let of_gateway = |each: &Neighbour| gateways.contains(&(each.address, each.device));
        let now = sys::clock::now();
        for answer in self.list(List::Neighbours)? {
            let Attributes::Neighbour {
                neighbour,
                confirmed,
            } = answer
            else {
                continue;
            };
            if neighbour.state == PERMANENT || of_gateway(&neighbour) {
                neighbours.push(neighbour.clone());
            }
            let ago = confirmed.map(|hundredths| Duration::from_millis(10 * u64::from(hundredths)));
            let dated = DatedNeighbour {
                confirmed: ago.map(|ago| now.minus(ago)),
                neighbour,
            };
            keep(dated, &mut forwarding.neighbours, &mut forwarding.cut);
        }
        // A host can have one for each node of its cluster: gateways first.
        neighbours.sort_by_key(|each| (!of_gateway(each), each.device, each.address));
        cut |= neighbours.len() > MAX_ROUTES;
        neighbours.truncate(MAX_ROUTES);
        if contents.devices.iter().any(learns) {
            for answer in self.list(List::Frames)? {
                if let Attributes::Frame(frame) = answer {
                    let Forwarding { frames, cut, .. } = &mut contents.forwarding;
                    keep(frame, frames, cut);
                }
            }
        }
        contents.cut |= cut | self.cut;
        // A gateway's neighbour is among those that are kept.
        contents.forwarding.cut |= self.cut | self.networks_cut;
        Ok(contents)
    }

    /// Whoever enters a local route can name the kernel as its maker: that makes
    /// them for the addresses of devices alone, and for the loopback network.
    fn find_maker(&self, route: &mut TableRoute) {
        let is_assigned = |address| self.assigned.binary_search(&address).is_ok();
        route.by_kernel |= route.kind == RouteKind::Local
            && (route.to.0.is_loopback() || single(route.to).is_some_and(is_assigned));
    }

    /// A whole list; read again if it changed while it was read.
    fn list(&mut self, list: List) -> Result<Vec<Attributes>, DumpError> {
        let mut tries = 1;
        loop {
            let (answers, interrupted) = self.dump(list)?;
            // A list that keeps changing is still nearly right.
            if !interrupted || tries == ATTEMPTS {
                return Ok(answers);
            }
            tries += 1;
        }
    }

    /// The answers, and whether the list changed while the kernel made it.
    fn dump(&mut self, list: List) -> Result<(Vec<Attributes>, bool), DumpError> {
        let failed = |source: io::Error| DumpError::Io(list, source);
        let kernel = SocketAddr::new(0, 0);
        self.sequence += 1;
        let header = NetlinkHeader::default();
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(Request(list)));
        request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send_to(&bytes, &kernel, 0).map_err(failed)?;

        let (mut answers, mut interrupted) = (Vec::new(), false);
        let mut networks = 0;
        loop {
            self.buffer.clear();
            let received = self.socket.recv_from(&mut self.buffer, libc::MSG_TRUNC);
            let (length, sender) = received.map_err(failed)?;
            if sender != kernel {
                // Somebody in the namespace talks to the socket.
                continue;
            }
            if length > self.buffer.len() {
                return Err(failed(io::Error::from(io::ErrorKind::FileTooLarge)));
            }
            let mut rest = self.buffer.as_slice();
            while !rest.is_empty() {
                let message =
                    NetlinkMessage::<Attributes>::deserialize(rest).map_err(DumpError::Format)?;
                interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
                let length = (message.header.length as usize).next_multiple_of(4);
                rest = rest.get(length..).unwrap_or_default();
                let mut payload = message.payload;
                if let NetlinkPayload::InnerMessage(Attributes::Routes(hops)) = &mut payload {
                    hops.iter_mut().for_each(|hop| self.find_maker(hop));
                }
                match payload {
                    NetlinkPayload::InnerMessage(Attributes::Other) => {}
                    // A node may have all routes of the Internet.
                    NetlinkPayload::InnerMessage(answer)
                        if networks >= MAX_FORWARDING && is_network(&answer) =>
                    {
                        self.networks_cut = true;
                    }
                    NetlinkPayload::InnerMessage(_) if answers.len() >= MAX_ANSWERS => {
                        self.cut = true;
                    }
                    NetlinkPayload::InnerMessage(answer) => {
                        networks += usize::from(is_network(&answer));
                        answers.push(answer);
                    }
                    NetlinkPayload::Done(done) if done.code < 0 => {
                        return Err(failed(io::Error::from_raw_os_error(-done.code)));
                    }
                    NetlinkPayload::Done(_) => return Ok((answers, interrupted)),
                    NetlinkPayload::Error(error) => return Err(failed(error.to_io())),
                    _ => {}
                }
            }
        }
    }
}

/// Keeps one more, if there is room.
fn keep<T>(one: T, list: &mut Vec<T>, cut: &mut bool) {
    match list.len() < MAX_FORWARDING {
        true => list.push(one),
        false => *cut = true,
    }
}

/// Whether it is a route that is neither a default route nor to one address, nor a
/// local one that somebody has entered.
fn is_network(answer: &Attributes) -> bool {
    let is_other = |hop: &TableRoute| hop.plain().is_none() && !hop.is_any_ip();
    matches!(answer, Attributes::Routes(hops) if hops.iter().all(is_other))
}

/// Whether a device keeps a list of where it sends frames.
fn learns(device: &Device) -> bool {
    matches!(device.kind.as_deref(), Some("bridge" | "vxlan"))
}

impl List {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Links => "RTM_GETLINK",
            Self::Addresses => "RTM_GETADDR",
            Self::Routes => "RTM_GETROUTE",
            Self::Neighbours | Self::Frames => "RTM_GETNEIGH",
            Self::Rules => "RTM_GETRULE",
        }
    }

    /// What follows the message's header: zeros for every address family and
    /// no restriction, but for what bridges learn, and the statistics of devices, which some drivers
    /// have to ask their firmware for.
    fn body(self) -> Vec<u8> {
        match self {
            Self::Links => {
                let mut body = vec![0; size_of::<libc::ifinfomsg>()];
                body.extend(8_u16.to_ne_bytes());
                body.extend(libc::IFLA_EXT_MASK.to_ne_bytes());
                body.extend(libc::RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
                body
            }
            Self::Addresses => vec![0; IFADDRMSG],
            Self::Routes => vec![0; RTMSG],
            Self::Neighbours => vec![0; NDMSG],
            Self::Rules => vec![0; FIB_RULE_HDR],
            Self::Frames => {
                let mut body = vec![0; NDMSG];
                body[0] = libc::AF_BRIDGE as u8;
                body
            }
        }
    }
}

/// A request for a whole list.
#[derive(Debug)]
struct Request(List);

impl NetlinkSerializable for Request {
    fn message_type(&self) -> u16 {
        match self.0 {
            List::Links => libc::RTM_GETLINK,
            List::Addresses => libc::RTM_GETADDR,
            List::Routes => libc::RTM_GETROUTE,
            List::Neighbours | List::Frames => libc::RTM_GETNEIGH,
            List::Rules => libc::RTM_GETRULE,
        }
    }

    fn buffer_len(&self) -> usize {
        self.0.body().len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        for (to, from) in buffer.iter_mut().zip(self.0.body()) {
            *to = from;
        }
    }
}

impl From<Request> for NetlinkPayload<Request> {
    fn from(request: Request) -> Self {
        Self::InnerMessage(request)
    }
}
