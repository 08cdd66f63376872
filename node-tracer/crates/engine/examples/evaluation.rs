//! What one evaluation takes after one small change on a large node, for
//! `cargo xtask bench evaluation`. On stdout, as JSON, one a line: the node, and the
//! microseconds of each evaluation.
//!
//! ```text
//! evaluation [NODE...]
//! ```

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it measures, and says what"
)]

use std::{env, net::IpAddr, path::PathBuf, time::Instant};

use event::{
    Address, Event, Pod, Reservation, ReservationHolder, StartFailure, Store, What,
    clock::Timestamp, forwarding::Forwarding, testing::*,
};
use node_tracer_engine::{Engine, testing::Node};
use serde_json::json;

const MEASURED: usize = 41;
/// Inodes of pods' namespaces begin here.
const FIRST: u32 = 1_000;

type Story = Vec<Event>;
/// What a node is called, and how it came to be.
type Sample = (&'static str, fn() -> Story);

fn main() {
    let wanted: Vec<String> = env::args().skip(1).collect();
    let nodes: [Sample; 8] = [
        ("250 healthy pods", || healthy(250)),
        ("1000 healthy pods", || healthy(1_000)),
        ("5000 healthy pods", || healthy(5_000)),
        ("500 pods, 4000 ADDs without DEL", without_del),
        ("2048 failing pods", failing),
        ("1000 stuck tasks", stalls),
        ("200 duplicates of 2000 pods, without runtime", duplicates),
        ("5000 pods' rules of a CNI", rules),
    ];
    for (name, story) in nodes {
        if !wanted.is_empty() && !wanted.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        let mut engine = Node::default().0;
        for event in story() {
            engine.apply(&event);
        }
        let mut taken = measure(&mut engine);
        taken.sort_unstable();
        println!(
            "{}",
            json!({ "node": name, "us": taken, "findings": engine.open_count() })
        );
    }
}

/// Each after an address that came or went in one namespace.
fn measure(engine: &mut Engine) -> Vec<u64> {
    let mut taken = Vec::new();
    for i in 0..=MEASURED as i64 {
        // Past what is young and early.
        let seconds = 3_600 + 2 * i;
        let address = Address {
            address: IpAddr::from([192, 168, 7, 7]),
            ..address(7)
        };
        let netns = ns(FIRST + 3);
        let what = match i % 2 {
            0 => What::AddressAdded {
                netns,
                address,
                found: false,
                made: None,
            },
            _ => What::AddressRemoved { netns, address },
        };
        engine.apply(&at(seconds, what));
        let begin = Instant::now();
        engine.apply(&at(seconds + 1, What::Tick));
        taken.push(begin.elapsed().as_micros() as u64);
    }
    // The first one tells what is new.
    taken.split_off(1)
}

fn uid(i: usize) -> String {
    format!("{}-0000-4000-8000-{i:012}", &id(i)[..8])
}

/// As random as a runtime's, so that two differ early.
fn id(i: usize) -> String {
    let words =
        (1..=4).map(|part: u64| (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ part << 40));
    words
        .map(|word| format!("{:016x}", word.reverse_bits()))
        .collect()
}

fn ip_of(i: usize) -> IpAddr {
    IpAddr::from([10, 1 + (i >> 16) as u8, (i >> 8) as u8, i as u8])
}

fn address_of(i: usize) -> Address {
    Address {
        address: ip_of(i),
        ..address(0)
    }
}

/// What brings pod I to life.
fn starts(i: usize, address: Address) -> Story {
    let inode = FIRST + i as u32;
    let app = id(i + (1 << 40));
    let (uid, id, name) = (uid(i), id(i), format!("web-{i}"));
    let mut add = call("ADD", &id, inode, &uid, &name);
    add.netns_path = format!("/run/netns/cni-{i}");
    let tasks = [
        pod_task(100_000 + 2 * i as u32, "pause", &uid, &id),
        pod_task(100_001 + 2 * i as u32, "web", &uid, &app),
    ];
    vec![
        created(1, inode),
        calls(1, add.clone()),
        at(
            2,
            What::AddressAdded {
                netns: ns(inode),
                address,
                found: false,
                made: None,
            },
        ),
        ended(2, add),
        holders(2, inode, &tasks, &[&format!("/run/netns/cni-{i}")]),
        devices(2, inode, &[veth(2, "eth0", 100 + i as u32)], &[], &[]),
    ]
}

fn listing(pods: usize) -> Story {
    let ends: Vec<_> = (0..pods)
        .map(|i| veth(100 + i as u32, &format!("veth{i:08x}"), 2))
        .collect();
    let all: Vec<Pod> = (0..pods)
        .map(|i| pod(&format!("web-{i}"), &uid(i), &[ip_of(i)]))
        .collect();
    let sandboxes: Vec<_> = (0..pods)
        .map(|i| {
            let mut sandbox = sandbox(&id(i), FIRST + i as u32, &uid(i));
            sandbox.pod.name = Some(format!("web-{i}"));
            sandbox
        })
        .collect();
    let attachments: Vec<_> = (0..pods)
        .map(|i| {
            let mut attachment = attachment(&id(i), Some(FIRST + i as u32), 0, 2);
            attachment.ips = vec![ip_of(i)];
            attachment.pod = Some(a_pod(&uid(i), &format!("web-{i}")));
            attachment
        })
        .collect();
    vec![
        devices(3, 1, &ends, &[], &[]),
        cri(4, &sandboxes),
        attached(4, &attachments),
        listed(5, &all),
        at(
            5,
            What::StoreListed {
                store: store(0..pods),
            },
        ),
    ]
}

fn store(holders: impl Iterator<Item = usize>) -> Store {
    let reservations = holders.map(|i| Reservation {
        address: ip_of(i),
        holder: ReservationHolder {
            path: PathBuf::from(format!("{STORE}/{}", ip_of(i))),
            container_id: id(i),
            ifname: Some(String::from("eth0")),
            pod: None,
        },
        modified: Timestamp::from_nanos(0),
    });
    Store {
        path: PathBuf::from(STORE),
        reservations: reservations.collect(),
        ..Store::default()
    }
}

fn healthy(pods: usize) -> Story {
    let mut story = vec![host(0)];
    story.extend((0..pods).flat_map(|i| starts(i, address_of(i))));
    story.extend(listing(pods));
    story
}

fn without_del() -> Story {
    const PODS: usize = 500;
    let mut story = healthy(PODS);
    for i in PODS..PODS + 4_000 {
        story.extend(starts(i, address_of(i)));
        story.push(destroyed(6, FIRST + i as u32));
    }
    story
}

fn failing() -> Story {
    let mut story = healthy(250);
    for i in 0..2_048 {
        let pod = a_pod(&format!("uid-{i}"), &format!("late-{i}"));
        let message = format!(
            "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network \
             for sandbox \"{}\": plugin type=\"aws-cni\" name=\"aws-cni\" failed (add): add cmd: \
             failed to assign an IP address to container",
            id(1_000_000 + i)
        );
        for seconds in [3_400, 3_500, 3_590] {
            let failure = StartFailure {
                source: String::from("kubelet"),
                pod: pod.clone(),
                message: message.clone(),
                ..StartFailure::default()
            };
            story.push(at(seconds, What::SandboxFailed { failure }));
        }
    }
    story
}

fn stalls() -> Story {
    let mut story = healthy(250);
    for i in 0..1_000 {
        story.push(stuck(3_000, 500_000 + i, FIRST + i % 250));
    }
    story
}

fn duplicates() -> Story {
    const PODS: usize = 2_000;
    let mut story = vec![host(0)];
    for i in 0..PODS {
        let shared = if i < 400 { i / 2 } else { i };
        story.extend(starts(i, address_of(shared)));
    }
    story
}

/// Each pod with a rule, a route and a neighbour on the host.
fn rules() -> Story {
    let mut story = healthy(5_000);
    let routes = (0..5_000).map(|i| table_route(254, &format!("{}/32", ip_of(i)), 100 + i as u32));
    let forwarding = Forwarding {
        rules: kernels_rules(),
        routes: routes.collect(),
        ..Forwarding::default()
    };
    story.push(follows(6, 1, &forwarding));
    story
}
