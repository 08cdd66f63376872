//! The blocks that matter on this node, without a list of the whole cluster's.
//!
//! Calico enters a blackhole route for each block that it keeps on the node (Felix,
//! BIRD), so the route tells a block from its first address to its size. A pod with
//! an address of another node's block has it in a block of the default size, unless
//! somebody has set another. A block is named by its network
//! (libcalico-go/lib/names, `CIDRToName`).

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::super::{Own, network::Network};

/// Blocks that are asked for by name; a node with more lists them.
const MAX_BLOCKS: usize = 64;
/// `blockSize` of an IPPool: its default, and the largest block that it allows.
const V4: (u32, u32) = (26, 20);
const V6: (u32, u32) = (122, 116);
/// include/uapi/linux/route.h
const RTF_REJECT: u32 = 0x0200;

/// Whether a route names a block of this node.
pub(crate) fn has_routes() -> bool {
    of_node(&Own::default()).is_none_or(|blocks| !blocks.is_empty())
}

/// Networks that may be blocks with addresses of this node, as far as a route or an
/// address shows them; `None` if they are too many to ask for each.
pub(super) fn of_node(own: &Own) -> Option<BTreeSet<Network>> {
    // The namespace that the tracer runs in, which is the host's.
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    of_routes(
        &read("/proc/self/net/route"),
        &read("/proc/self/net/ipv6_route"),
        own,
    )
}

fn of_routes(v4: &str, v6: &str, own: &Own) -> Option<BTreeSet<Network>> {
    let is_block = |network: &Network| {
        let (_, largest) = sizes(network.address);
        network.length >= largest
    };
    let routes = v4.lines().filter_map(v4_reject);
    let routes = routes.chain(v6.lines().filter_map(v6_reject));
    let mut blocks: BTreeSet<Network> = routes.filter(is_block).collect();
    for address in own.urgent.iter().chain(&own.living) {
        if !blocks.iter().any(|block| block.contains(*address)) {
            blocks.insert(Network::around(*address, sizes(*address).0));
        }
    }
    (blocks.len() <= MAX_BLOCKS).then_some(blocks)
}

pub(super) fn name(block: &Network) -> String {
    block.to_string().replace(['.', ':', '/'], "-")
}

fn sizes(address: IpAddr) -> (u32, u32) {
    if address.is_ipv4() { V4 } else { V6 }
}

/// A line of `/proc/net/route`: device, destination, gateway, flags, three numbers,
/// mask; addresses as the processor has them (net/ipv4/fib_trie.c). A blackhole has no
/// device, and is not flagged as one, unlike what is unreachable.
fn v4_reject(line: &str) -> Option<Network> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok();
    let (to, mask) = (number(1)?, number(7)?);
    let address = Ipv4Addr::from(to.to_ne_bytes()).into();
    (words.first() == Some(&"*")).then(|| Network::around(address, mask.count_ones()))
}

/// A line of `/proc/net/ipv6_route`: destination, its length, source, its length,
/// gateway, three numbers, flags, device (net/ipv6/route.c).
fn v6_reject(line: &str) -> Option<Network> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok();
    let to = u128::from_str_radix(words.first()?, 16).ok()?;
    let (length, flags) = (number(1)?, number(8)?);
    let address = Ipv6Addr::from_bits(to).into();
    (flags & RTF_REJECT != 0).then(|| Network::around(address, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
*\t0001F40A\t00000000\t0001\t0\t0\t0\tC0FFFFFF\t0\t0\t0
*\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0
cali1\t0501F40A\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0";
    const V6: &str = "\
fd000000000000000000000000000040 7a 00000000000000000000000000000000 00 \
00000000000000000000000000000000 00000400 00000001 00000000 00200200       lo
00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo";

    fn names(own: &Own) -> Vec<String> {
        let blocks = of_routes(V4, V6, own).unwrap_or_default();
        blocks.iter().map(name).collect()
    }

    fn own(addresses: &[&str]) -> Own {
        let living = addresses.iter().map(|it| it.parse().unwrap()).collect();
        Own {
            living,
            ..Own::default()
        }
    }

    #[test]
    fn a_nodes_blocks_are_its_blackhole_routes_and_those_of_other_addresses() {
        let routes = ["10-244-1-0-26", "fd00--40-122"];
        assert_eq!(names(&own(&["10.244.1.5", "fd00::41"])), routes);
        assert_eq!(
            names(&own(&["10.244.9.70"])),
            ["10-244-1-0-26", "10-244-9-64-26", "fd00--40-122"]
        );
    }

    #[test]
    fn very_many_are_not_asked_for_by_name() {
        assert_eq!(names(&Own::default()).len(), 2);
        let many = (0..=MAX_BLOCKS as u8).map(|it| format!("10.1.{it}.1"));
        let many: Vec<String> = many.collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(of_routes("", "", &own(&many)), None);
    }
}
