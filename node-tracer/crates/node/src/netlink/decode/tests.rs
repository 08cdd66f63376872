//! Decoding is tested on made messages.

use std::net::Ipv6Addr;

use super::*;

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
fn default_routes_and_those_to_one_address_are_kept() {
    let on = |index: u32| attribute(libc::RTA_OIF, &index.to_ne_bytes());
    let gateway = attribute(libc::RTA_GATEWAY, &[169, 254, 1, 1]);
    let to = attribute(libc::RTA_DST, &[169, 254, 1, 1]);
    let hop = Some(IpAddr::from([169, 254, 1, 1]));
    let route_of = |to, gateway, device| Route {
        to,
        gateway,
        device,
        by_kernel: false,
    };
    let unicast = libc::RTN_UNICAST;
    assert_eq!(
        route(&route_message(2, 0, unicast, &[gateway.clone(), on(3)])),
        Some(Attributes::Routes(vec![route_of(None, hop, 3)]))
    );
    assert_eq!(
        route(&route_message(2, 32, unicast, &[to.clone(), on(3)])),
        Some(Attributes::Routes(vec![route_of(
            hop.map(|a| (a, 32)),
            None,
            3
        )]))
    );
    // struct rtvia: an IPv4 route by a gateway that has IPv6.
    let far: Ipv6Addr = "fe80::1".parse().unwrap();
    let via = [&[10, 0][..], &far.octets()].concat();
    assert_eq!(
        route(&route_message(
            2,
            0,
            unicast,
            &[attribute(libc::RTA_VIA, &via), on(3)]
        )),
        Some(Attributes::Routes(vec![route_of(
            None,
            Some(far.into()),
            3
        )]))
    );
    for (what, message) in [
        ("a network", route_message(2, 24, unicast, &[to, on(3)])),
        ("an unreachable", route_message(10, 0, 7, &[on(1)])),
        ("one without a device", route_message(2, 0, unicast, &[])),
        ("IPv6 to 32 bits", route_message(10, 32, unicast, &[on(3)])),
        ("multicast", route_message(128, 0, unicast, &[on(3)])),
    ] {
        assert_eq!(route(&message), None, "{what}");
    }
    let mut cloned = route_message(2, 0, unicast, &[gateway, on(3)]);
    cloned[8..12].copy_from_slice(&libc::RTM_F_CLONED.to_ne_bytes());
    assert_eq!(route(&cloned), None);
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
            Some(Attributes::Routes(routes)) => {
                routes.iter().map(|r| (r.device, r.gateway)).collect()
            }
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
    assert_eq!(neighbour(&whole), Some(Attributes::Neighbour(expected)));
    for (bits, name) in [
        (0, "none"),
        (1, "incomplete"),
        (4, "stale"),
        (0x20, "failed"),
    ] {
        match neighbour(&message(bits, std::slice::from_ref(&address))) {
            Some(Attributes::Neighbour(found)) => {
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
