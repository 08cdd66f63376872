//! Decoding is tested on made messages.

use std::net::Ipv6Addr;

use super::*;
use event::Route;

/// One attribute, padded.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = (value.len() as u16 + 4).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn link_message(index: u32, flags: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend(index.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(attributes.concat());
    bytes
}

fn address_message(prefix: u8, index: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0, prefix, 0, 0];
    bytes.extend(index.to_ne_bytes());
    bytes.extend(attributes.concat());
    bytes
}

#[test]
fn attributes_that_are_not_known_do_not_hide_those_that_are() {
    let info = attribute(libc::IFLA_INFO_KIND, b"veth\0");
    let message = link_message(
        7,
        0,
        &[
            attribute(4095, &[1, 2, 3]),
            attribute(libc::IFLA_STATS64, &[0; 3]),
            attribute(libc::IFLA_IFNAME, b"eth0\0"),
            attribute(libc::IFLA_LINKINFO | 0x8000, &info),
        ],
    );
    let device = Device {
        index: 7,
        name: String::from("eth0"),
        kind: Some(String::from("veth")),
        ..Device::default()
    };
    let loopback = false;
    assert_eq!(link(&message), Some(Attributes::Link { device, loopback }));
}

fn device(message: &[u8]) -> Device {
    match link(message) {
        Some(Attributes::Link { device, .. }) => device,
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_a_device_its_place_among_others_is_read() {
    let up = libc::IFF_UP as u32;
    let message = link_message(
        7,
        up,
        &[
            attribute(libc::IFLA_IFNAME, b"a\xff\0"),
            attribute(libc::IFLA_ADDRESS, &[0x0a, 0, 0, 0xff, 1, 2]),
            attribute(libc::IFLA_LINK, &4_u32.to_ne_bytes()),
            attribute(libc::IFLA_LINK_NETNSID, &0_u32.to_ne_bytes()),
            attribute(libc::IFLA_MASTER, &3_u32.to_ne_bytes()),
        ],
    );
    let expected = Device {
        index: 7,
        name: String::from("a\u{fffd}"),
        mac: Some(String::from("0a:00:00:ff:01:02")),
        up: true,
        link: Some(4),
        link_nsid: Some(0),
        master: Some(3),
        ..Device::default()
    };
    assert_eq!(device(&message), expected);
    let tunnel = [
        attribute(libc::IFLA_LINK, &[0; 4]),
        attribute(libc::IFLA_ADDRESS, &[198, 18, 0, 1]),
    ];
    let tunnel = device(&link_message(8, 0, &tunnel));
    assert_eq!((tunnel.link, tunnel.mac), (None, None));
}

#[test]
fn hardware_is_named_by_the_kernel_or_told_by_an_address_of_its_own() {
    let parent = [
        attribute(libc::IFLA_PARENT_DEV_BUS_NAME, b"pci\0"),
        attribute(libc::IFLA_PARENT_DEV_NAME, b"0000:00:06.0\0"),
    ];
    let named = device(&link_message(2, 0, &parent));
    assert_eq!(named.hardware.as_deref(), Some("pci 0000:00:06.0"));

    let of = |flags, attributes: &[Vec<u8>]| {
        let mut message = link_message(2, flags, attributes);
        message[2..4].copy_from_slice(&1_u16.to_ne_bytes());
        device(&message).hardware
    };
    let burnt_in = attribute(libc::IFLA_PERM_ADDRESS, &[2, 0, 0, 0, 0, 1]);
    let zero = attribute(libc::IFLA_PERM_ADDRESS, &[0; 6]);
    let kind = attribute(
        libc::IFLA_LINKINFO,
        &attribute(libc::IFLA_INFO_KIND, b"bond\0"),
    );
    let burnt = std::slice::from_ref(&burnt_in);
    assert_eq!(of(0, burnt).as_deref(), Some("unknown"));
    assert_eq!(of(libc::IFF_LOOPBACK as u32, burnt), None);
    assert_eq!(of(0, &[zero]), None);
    assert_eq!(of(0, &[kind, burnt_in]), None, "a bond has its port's");
}

fn route_message(family: i32, prefix: u8, kind: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![family as u8, prefix, 0, 0, 254, 3, 0, kind, 0, 0, 0, 0];
    bytes.extend(attributes.concat());
    bytes
}

#[test]
fn routes_of_every_kind_and_table_are_read() {
    let on = |index: u32| attribute(libc::RTA_OIF, &index.to_ne_bytes());
    let gateway = attribute(libc::RTA_GATEWAY, &[169, 254, 1, 1]);
    let to = attribute(libc::RTA_DST, &[169, 254, 1, 1]);
    let hop = IpAddr::from([169, 254, 1, 1]);
    let zero = IpAddr::from([0, 0, 0, 0]);
    let plain = |message: &[u8]| match route(message) {
        Some(Attributes::Routes(routes)) => routes[0].plain(),
        other => panic!("{other:?}"),
    };
    let route_of = |to, gateway, device| {
        Some(Route {
            to,
            gateway,
            device,
            by_kernel: false,
        })
    };
    let unicast = libc::RTN_UNICAST;
    let default = route_message(2, 0, unicast, &[gateway.clone(), on(3)]);
    assert_eq!(plain(&default), route_of(None, Some(hop), 3));
    let one = route_message(2, 32, unicast, &[to.clone(), on(3)]);
    assert_eq!(plain(&one), route_of(Some((hop, 32)), None, 3));
    // struct rtvia: an IPv4 route by a gateway that has IPv6.
    let far: Ipv6Addr = "fe80::1".parse().unwrap();
    let via = attribute(libc::RTA_VIA, &[&[10, 0][..], &far.octets()].concat());
    let by_other = route_message(2, 0, unicast, &[via, on(3)]);
    assert_eq!(plain(&by_other), route_of(None, Some(far.into()), 3));

    let table = attribute(libc::RTA_TABLE, &1_007_u32.to_ne_bytes());
    let metric = attribute(libc::RTA_PRIORITY, &512_u32.to_ne_bytes());
    let network = route_message(2, 24, unicast, &[to.clone(), on(3), table, metric]);
    let expected = TableRoute {
        table: 1_007,
        to: (hop, 24),
        kind: RouteKind::Unicast,
        gateway: None,
        device: Some(3),
        metric: 512,
        protocol: 3,
        dead: false,
        by_kernel: false,
    };
    assert_eq!(expected.plain(), None, "a network");
    assert_eq!(route(&network), Some(Attributes::Routes(vec![expected])));
    match route(&route_message(2, 0, libc::RTN_THROW, &[])) {
        Some(Attributes::Routes(routes)) => {
            assert_eq!(
                (routes[0].kind, routes[0].to),
                (RouteKind::Throw, (zero, 0))
            );
            assert_eq!(routes[0].plain(), None);
        }
        other => panic!("{other:?}"),
    }
    for (what, message) in [
        ("one without a device", route_message(2, 0, unicast, &[])),
        (
            "too long a prefix",
            route_message(2, 64, unicast, &[to, on(3)]),
        ),
        ("multicast", route_message(128, 0, unicast, &[on(3)])),
        (
            "a broadcast",
            route_message(2, 0, libc::RTN_BROADCAST, &[on(3)]),
        ),
    ] {
        assert_eq!(route(&message), None, "{what}");
    }
    let mut cloned = default;
    cloned[8..12].copy_from_slice(&libc::RTM_F_CLONED.to_ne_bytes());
    assert_eq!(route(&cloned), None);
}

fn rule_message(head: [u8; 8], flags: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = head.to_vec();
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(attributes.concat());
    bytes
}

#[test]
fn a_policy_rule_has_what_selects_and_what_follows() {
    let number = |kind, value: u32| attribute(kind, &value.to_ne_bytes());
    let from = attribute(fra::SRC, &[10, 0, 0, 5]);
    let iif = attribute(fra::IIFNAME, b"cali1\0");
    let message = |action, flags, more: &[Vec<u8>]| {
        let common = [
            from.clone(),
            iif.clone(),
            number(fra::PRIORITY, 2_048),
            number(fra::TABLE, 1_002),
            number(fra::SUPPRESS_PREFIXLEN, u32::MAX),
            attribute(fra::PROTOCOL, &[3]),
        ];
        rule_message(
            [2, 0, 32, 0, 252, 0, 0, action],
            flags,
            &[&common[..], more].concat(),
        )
    };
    let of = |message: &[u8]| match rule(message) {
        Some(Attributes::Rule(rule)) => rule,
        other => panic!("{other:?}"),
    };
    let expected = PolicyRule {
        priority: 2_048,
        from: Some((IpAddr::from([10, 0, 0, 5]), 32)),
        iif: Some(String::from("cali1")),
        table: 1_002,
        protocol: 3,
        ..PolicyRule::default()
    };
    assert_eq!(of(&message(1, 0, &[])), expected);
    let marked = of(&message(
        1,
        0,
        &[number(fra::FWMARK, 0x80), number(fra::FWMASK, 0xff)],
    ));
    assert_eq!(marked.mark, Some((0x80, 0xff)));
    assert!(of(&message(1, 8, &[])).detached && of(&message(1, 2, &[])).not);
    assert!(
        of(&message(1, 0, &[attribute(22, &[6])])).narrower,
        "a protocol"
    );
    assert_eq!(of(&message(8, 0, &[])).action, RuleAction::Prohibit);
    let whole = message(1, 0, &[]);
    assert_eq!(rule(&whole[..11]), None);
    assert_eq!(rule(&whole[..12]), None, "an address that is not there");
    let multicast = rule_message([128, 0, 0, 0, 253, 0, 0, 1], 0, &[]);
    assert_eq!(rule(&multicast), None);
}

#[test]
fn of_a_bridges_entries_those_that_it_has_learnt_are_kept() {
    let message = |state: u16, attributes: &[Vec<u8>]| {
        let mut bytes = vec![libc::AF_BRIDGE as u8, 0, 0, 0];
        bytes.extend(7_u32.to_ne_bytes());
        bytes.extend(state.to_ne_bytes());
        bytes.extend([0, 0]);
        bytes.extend(attributes.concat());
        bytes
    };
    let hardware = attribute(libc::NDA_LLADDR, &[0xee; 6]);
    let master = attribute(NDA_MASTER, &4_u32.to_ne_bytes());
    let remote = attribute(libc::NDA_DST, &[192, 0, 2, 7]);
    let frame = |remote| {
        Some(Attributes::Frame(FrameRoute {
            mac: String::from("ee:ee:ee:ee:ee:ee"),
            device: 7,
            remote,
        }))
    };
    let learnt = message(libc::NUD_REACHABLE, &[hardware.clone(), master.clone()]);
    assert_eq!(neighbour(&learnt), frame(None));
    let own = message(libc::NUD_PERMANENT, &[hardware.clone(), master]);
    assert_eq!(neighbour(&own), None);
    let tunnel = message(libc::NUD_PERMANENT, &[hardware, remote]);
    assert_eq!(
        neighbour(&tunnel),
        frame(Some(IpAddr::from([192, 0, 2, 7])))
    );
}

#[test]
fn routes_that_the_kernel_makes_of_what_neighbours_say_are_known() {
    let by_kernel = |family: i32, protocol: u8, priority: u32| {
        let whole = if family == libc::AF_INET { 4 } else { 16 };
        let attributes = [
            attribute(libc::RTA_DST, &vec![0x20; whole]),
            attribute(libc::RTA_OIF, &3_u32.to_ne_bytes()),
            attribute(libc::RTA_PRIORITY, &priority.to_ne_bytes()),
        ];
        let mut message = route_message(family, whole as u8 * 8, libc::RTN_UNICAST, &attributes);
        message[5] = protocol;
        match route(&message) {
            Some(Attributes::Routes(routes)) => routes[0].by_kernel,
            other => panic!("{other:?}"),
        }
    };
    let (v4, v6) = (libc::AF_INET, libc::AF_INET6);
    assert!(by_kernel(v6, RTPROT_RA, 1024), "route information");
    assert!(by_kernel(v6, libc::RTPROT_REDIRECT, 0));
    assert!(by_kernel(v6, libc::RTPROT_KERNEL, 256), "prefix on link");
    assert!(!by_kernel(v6, libc::RTPROT_KERNEL, 1024), "an agent's");
    assert!(!by_kernel(v6, libc::RTPROT_BOOT, 1024));
    assert!(!by_kernel(v4, libc::RTPROT_KERNEL, 0), "a peer's address");
}

#[test]
fn addresses_that_the_kernel_makes_of_router_advertisements_are_known() {
    let advertised = |bytes: &[u8], flags: u32, more: &[Vec<u8>]| {
        let mut message = address_message(64, 7, &[attribute(libc::IFA_ADDRESS, bytes)]);
        message[2] = flags as u8;
        message.extend(more.concat());
        match address(&message) {
            Some(Attributes::Address { advertised, .. }) => advertised,
            other => panic!("{other:?}"),
        }
    };
    let flags = |flags: u32| [attribute(libc::IFA_FLAGS, &flags.to_ne_bytes())];
    let permanent = libc::IFA_F_PERMANENT;
    assert!(advertised(&[0x20; 16], 0, &[]));
    assert!(advertised(&[0x20; 16], permanent, &flags(0x100)));
    assert!(!advertised(&[0x20; 16], permanent, &[]));
    assert!(!advertised(&[0x20; 16], 0, &flags(permanent)));
    assert!(advertised(
        &[0x20; 16],
        permanent,
        &[attribute(IFA_PROTO, &[2])]
    ));
    assert!(!advertised(&[10, 0, 0, 1], 0, &[]), "a lease of DHCP");
}

#[test]
fn a_route_with_several_next_hops_is_one_for_each() {
    let hop = |index: u32, last: u8| {
        let gateway = attribute(libc::RTA_GATEWAY, &[198, 18, 0, last]);
        let mut bytes = (gateway.len() as u16 + 8).to_ne_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(index.to_ne_bytes());
        bytes.extend(gateway);
        bytes
    };
    let hops = [hop(3, 1), hop(4, 2)].concat();
    let of = |hops: &[u8]| {
        let several = attribute(libc::RTA_MULTIPATH, hops);
        match route(&route_message(2, 0, libc::RTN_UNICAST, &[several])) {
            Some(Attributes::Routes(routes)) => routes
                .iter()
                .map(|r| (r.device.unwrap(), r.gateway))
                .collect(),
            _ => Vec::new(),
        }
    };
    let gateway = |last| Some(IpAddr::from([198, 18, 0, last]));
    assert_eq!(of(&hops), [(3, gateway(1)), (4, gateway(2))]);
    assert_eq!(of(&hops[..20]), [(3, gateway(1))], "cut short");
    assert_eq!(of(&[0; 8]), [], "a length of nothing");
}

#[test]
fn a_neighbour_has_the_name_of_its_state() {
    let message = |state: u16, attributes: &[Vec<u8>]| {
        let mut bytes = vec![2, 0, 0, 0, 3, 0, 0, 0];
        bytes.extend(state.to_ne_bytes());
        bytes.extend([0, 1]);
        bytes.extend(attributes.concat());
        bytes
    };
    let address = attribute(libc::NDA_DST, &[169, 254, 1, 1]);
    let hardware = attribute(libc::NDA_LLADDR, &[0xee; 6]);
    let expected = Neighbour {
        address: IpAddr::from([169, 254, 1, 1]),
        device: u32::from_ne_bytes([3, 0, 0, 0]),
        mac: Some(String::from("ee:ee:ee:ee:ee:ee")),
        state: String::from("permanent"),
    };
    let whole = message(0x80, &[address.clone(), hardware.clone()]);
    let expected = |confirmed| {
        Some(Attributes::Neighbour {
            neighbour: expected.clone(),
            confirmed,
        })
    };
    assert_eq!(neighbour(&whole), expected(None));
    let times = attribute(
        libc::NDA_CACHEINFO,
        &[[7, 0, 0, 0], [1; 4], [2; 4], [3; 4]].concat(),
    );
    let dated = message(0x80, &[address.clone(), hardware.clone(), times]);
    assert_eq!(neighbour(&dated), expected(Some(7)));
    for (bits, name) in [
        (0, "none"),
        (1, "incomplete"),
        (4, "stale"),
        (0x20, "failed"),
    ] {
        match neighbour(&message(bits, std::slice::from_ref(&address))) {
            Some(Attributes::Neighbour {
                neighbour: found, ..
            }) => {
                assert_eq!((found.state.as_str(), found.mac), (name, None));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(neighbour(&message(4, &[hardware])), None, "of no address");
    for length in 0..20 {
        assert_eq!(neighbour(&whole[..length]), None, "{length} bytes");
    }
}

#[test]
fn a_bridge_tells_whether_it_keeps_vlans_apart() {
    for (value, expected) in [(1, true), (0, false)] {
        let data = attribute(IFLA_BR_VLAN_FILTERING, &[value]);
        let info = [
            attribute(libc::IFLA_INFO_KIND, b"bridge\0"),
            attribute(libc::IFLA_INFO_DATA, &data),
        ];
        let message = link_message(7, 0, &[attribute(libc::IFLA_LINKINFO, &info.concat())]);
        let filters = match link(&message) {
            Some(Attributes::Link { device, .. }) => device.vlan_filtering,
            other => panic!("{other:?}"),
        };
        assert_eq!(filters, expected);
    }
}

#[test]
fn on_a_point_to_point_link_the_own_address_counts() {
    let message = address_message(
        32,
        7,
        &[
            attribute(libc::IFA_ADDRESS, &[198, 18, 0, 1]),
            attribute(libc::IFA_LOCAL, &[198, 18, 0, 2]),
        ],
    );
    let expected = Attributes::Address {
        index: 7,
        address: IpAddr::from([198, 18, 0, 2]),
        prefix: 32,
        made: None,
        advertised: false,
        dad: None,
    };
    assert_eq!(address(&message), Some(expected));
}

#[test]
fn an_address_is_as_old_as_the_kernel_says() {
    let times = [u32::MAX, u32::MAX, 184_683, 190_000].map(u32::to_ne_bytes);
    let message = address_message(
        24,
        7,
        &[
            attribute(libc::IFA_LOCAL, &[198, 18, 0, 2]),
            attribute(libc::IFA_CACHEINFO, times.as_flattened()),
        ],
    );
    let made = match address(&message) {
        Some(Attributes::Address { made, .. }) => made,
        other => panic!("{other:?}"),
    };
    assert_eq!(made, Some(184_683));
}

#[test]
fn messages_that_end_early_are_passed_over() {
    let message = address_message(24, 7, &[attribute(libc::IFA_LOCAL, &[198, 18, 0, 2])]);
    for length in 0..message.len() {
        assert_eq!(address(&message[..length]), None, "{length} bytes");
    }
    assert_eq!(link(&[0; 15]), None);
}

#[test]
fn a_tentative_address_is_told_from_one_that_another_host_has() {
    let dad = |flags: u32| {
        let more = attribute(libc::IFA_FLAGS, &flags.to_ne_bytes());
        let mut message = address_message(64, 7, &[attribute(libc::IFA_ADDRESS, &[0x20; 16])]);
        message.extend(more);
        match address(&message) {
            Some(Attributes::Address { dad, .. }) => dad,
            other => panic!("{other:?}"),
        }
    };
    let (tentative, failed) = (libc::IFA_F_TENTATIVE, libc::IFA_F_DADFAILED);
    assert_eq!(dad(libc::IFA_F_PERMANENT), None);
    assert_eq!(dad(tentative), Some(Dad::Tentative));
    assert_eq!(dad(tentative | failed), Some(Dad::Failed));
}
