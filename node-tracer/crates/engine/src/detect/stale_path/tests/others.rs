//! What a node has in its tables for pods of other nodes, and for addresses that no
//! pod has, is there on purpose.

use super::*;
use event::testing::generator::Dice;

/// Nodes that are made up for each CNI.
const NODES: u64 = 20;

/// Any rules, routes and neighbours for others' addresses, by the node's devices.
fn entries(dice: &mut Dice<'_>, node: &str) -> String {
    let named = node.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "device" | "bridge" | "cable" => Some(words[1]),
            "pod" | "port" => Some(words[2]),
            _ => None,
        }
    });
    let devices: Vec<&str> = named.collect();
    let mut text = String::from("gone 10.252.0.1\n");
    for far in 0..4 {
        text += &format!("elsewhere 10.250.0.{far}\nelsewhere fd00:250::{far}\n");
    }
    for _ in 0..dice.roll(40) {
        let network = dice.one(&["10.250.0.", "10.251.0.", "fd00:250::", "fd00:251::"]);
        let address = format!("{network}{}", dice.roll(4));
        let via = dice.one(&match address.contains(':') {
            true => ["via fd00:250::ff ", "", ""],
            false => ["via 10.250.0.255 ", "", ""],
        });
        let device = dice.one(&devices);
        let table = dice.one(&["main", "2", "1003", "11", "101", "254"]);
        let priority = dice.one(&[8, 20, 110, 111, 512, 1_536, 2_048, 5_000, 6_000, 32_765]);
        let side = dice.one(&["from", "from all to"]);
        let by_device = format!("iif {device} ");
        let iif = dice.one(&["", "", &by_device]);
        let kind = dice.one(&["", "", "blackhole ", "throw "]);
        let state = dice.one(&["permanent", "stale", "reachable", "noarp"]);
        let mac = dice.one(&[
            "02:00:00:00:00:02",
            "5e:00:00:00:00:05",
            "66:00:00:00:00:01",
        ]);
        text += &match dice.roll(3) {
            0 => format!("rule {priority}: {side} {address} {iif}lookup {table}\n"),
            1 => format!("route {kind}{address} {via}dev {device} table {table}\n"),
            _ => format!("neigh {address} dev {device} lladdr {mac} {state}\n"),
        };
    }
    text
}

#[test]
fn nothing_that_is_entered_for_others_is_stale() {
    for (name, node) in healthy() {
        for seed in 0..NODES {
            let text = format!("{node}\n{}", entries(&mut Dice::Seed(seed), node));
            for events in [Story::of(&text).events(), traced::traced(&text)] {
                assert!(said(&events).is_empty(), "{name}, {seed}\n{text}");
            }
        }
    }
}
