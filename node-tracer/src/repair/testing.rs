//! What the unit tests of a repair are made of.

use std::path::PathBuf;

use super::judge::Free;
use event::repair::plan::{Plan, Release, RootFolder, VERSION};
use event::{Reservation, ReservationHolder, clock::Timestamp};
use node::hostlocal::locked_store::Exact;

pub(crate) const ID: &str = "5b3c0d7de2f1a4968870b6c5d4e3f2a1908172635445362718293a4b5c6d7e8f";

/// A time of the tests, s.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_parts(1_800_000_000 + seconds, 0)
}

pub(crate) fn release(address: &str) -> Release {
    let store = PathBuf::from("/var/lib/cni/networks/pods");
    let content = format!("{ID}\r\neth0").into_bytes();
    Release {
        path: store.join(address),
        store,
        address: address.parse().unwrap(),
        container_id: ID.to_owned(),
        ifname: Some(String::from("eth0")),
        network: Some(String::from("pods")),
        size: content.len() as u64,
        content,
        device: 1,
        inode: 77,
        modified: at(-1_000),
        changed: at(-1_000),
        evidence: Vec::new(),
    }
}

/// The file that it is about.
pub(crate) fn exact(release: &Release) -> Exact {
    Exact {
        device: release.device,
        inode: release.inode,
        modified: release.modified,
        changed: release.changed,
        links: 1,
        mode: 0o644,
        uid: 0,
        gid: 0,
        fixed: false,
        content: release.content.clone(),
    }
}

/// The reservation that it is about.
pub(crate) fn free(release: &Release) -> Free {
    Free {
        store: release.store.clone(),
        network: release.network.clone(),
        reservation: Reservation {
            address: release.address,
            holder: ReservationHolder {
                path: release.path.clone(),
                container_id: release.container_id.clone(),
                ifname: release.ifname.clone(),
                pod: None,
            },
            modified: release.modified,
        },
    }
}

/// A plan that releases these, made at `at(0)`.
pub(crate) fn plan(releases: Vec<Release>) -> Plan {
    Plan {
        version: VERSION,
        tool: String::from("0"),
        boot_id: String::from("boot"),
        root: RootFolder {
            path: String::from("/"),
            device: 1,
            inode: 2,
        },
        observed: [at(-61), at(0)],
        uptime_ms: 5_000_000,
        grace_ms: 60_000,
        valid_for_ms: 600_000,
        expires: at(600),
        releases,
        withheld: Vec::new(),
        stores: Vec::new(),
        refused: Vec::new(),
        by_hand: Vec::new(),
        unknown: Vec::new(),
    }
}
