//! Addresses, and two namespaces with the same one.

use anyhow::{Context as _, ensure};
use node_tracer_tests::netns::{Netns, connect};
use node_tracer_tests::snapshot_run::on_host;
use node_tracer_tests::stage::{IP, Need};
use node_tracer_tests::test;
use node_tracer_tests::tracer::{SOON, Tracer, is_event, is_finding, names_address, netns_of};

const NEEDS: &[Need] = &[Need::Root, Need::Tracer, IP];

/// Two connected namespaces with these addresses.
fn pair(a: &str, b: &str) -> anyhow::Result<(Netns, Netns)> {
    let (one, other) = (Netns::create()?, Netns::create()?);
    connect(
        (&one, "eth0", &format!("{a}/24")),
        (&other, "eth0", &format!("{b}/24")),
    )?;
    Ok((one, other))
}

test!(NEEDS, address_added_names_its_netns);
fn address_added_names_its_netns() -> anyhow::Result<()> {
    let mut tracer = Tracer::trace(&[])?;
    let (one, other) = pair("198.18.254.2", "198.18.254.3")?;
    for (netns, address) in [(&one, "198.18.254.2"), (&other, "198.18.254.3")] {
        tracer.wait_for(&format!("address-added of {address}"), SOON, |record| {
            is_event(record, "address-added")
                && names_address(record, address)
                && netns_of(record) == Some(netns.inode())
        })?;
    }
    one.ip("addr add fd00:198:18::2/64 dev eth0")?;
    tracer.wait_for("address-added of an IPv6 address", SOON, |record| {
        is_event(record, "address-added")
            && names_address(record, "fd00:198:18::2")
            && netns_of(record) == Some(one.inode())
    })?;
    Ok(())
}

test!(NEEDS, address_removed_names_its_netns);
fn address_removed_names_its_netns() -> anyhow::Result<()> {
    let mut tracer = Tracer::trace(&[])?;
    let (one, _other) = pair("198.18.254.4", "198.18.254.5")?;
    tracer.wait_for("address-added", SOON, |record| {
        is_event(record, "address-added") && names_address(record, "198.18.254.4")
    })?;
    one.ip("addr del 198.18.254.4/24 dev eth0")?;
    tracer.wait_for("address-removed", SOON, |record| {
        is_event(record, "address-removed")
            && names_address(record, "198.18.254.4")
            && netns_of(record) == Some(one.inode())
    })?;
    Ok(())
}

fn is_duplicate(record: &serde_json::Value, address: &str, open: bool) -> bool {
    is_finding(record, "duplicate-address")
        && names_address(record, address)
        && (record["state"] != "resolved") == open
}

test!(NEEDS, duplicate_address_opens_and_resolves);
fn duplicate_address_opens_and_resolves() -> anyhow::Result<()> {
    const ADDRESS: &str = "198.18.253.7";
    let mut tracer = Tracer::trace(&[])?;
    let (one, other) = (Netns::create()?, Netns::create()?);
    for netns in [&one, &other] {
        netns.ip("link add eth0 type veth peer name eth1")?;
        netns.ip(&format!("addr add {ADDRESS}/24 dev eth0"))?;
    }
    let open = tracer.wait_for("a duplicate-address finding", SOON, |record| {
        is_duplicate(record, ADDRESS, true)
    })?;
    let text = open.to_string();
    ensure!(
        [&one, &other]
            .iter()
            .any(|netns| text.contains(&netns.inode().to_string())),
        "it names neither namespace: {text}"
    );
    let mut one = one;
    one.delete()?;
    let resolved = tracer.wait_for("it to be resolved", SOON, |record| {
        is_duplicate(record, ADDRESS, false)
    })?;
    ensure!(resolved["id"] == open["id"], "another finding: {resolved}");
    Ok(())
}

test!(NEEDS, duplicate_address_from_before_the_start_is_found);
fn duplicate_address_from_before_the_start_is_found() -> anyhow::Result<()> {
    const ADDRESS: &str = "198.18.253.8";
    let (one, other) = (Netns::create()?, Netns::create()?);
    for netns in [&one, &other] {
        netns.ip("link add eth0 type veth peer name eth1")?;
        netns.ip(&format!("addr add {ADDRESS}/24 dev eth0"))?;
    }
    let mut tracer = Tracer::trace(&[])?;
    let open = tracer.wait_for("a duplicate-address finding", SOON, |record| {
        is_duplicate(record, ADDRESS, true)
    })?;
    other.ip(&format!("addr del {ADDRESS}/24 dev eth0"))?;
    let resolved = tracer.wait_for("it to be resolved", SOON, |record| {
        is_duplicate(record, ADDRESS, false)
    })?;
    ensure!(resolved["id"] == open["id"], "another finding: {resolved}");
    Ok(())
}

test!(NEEDS, address_that_the_kernel_refuses_is_a_duplicate);
/// The kernel has found an address in use on the link, and the other one has gone
/// since, as one on another node is for all that this node shows.
fn address_that_the_kernel_refuses_is_a_duplicate() -> anyhow::Result<()> {
    const ADDRESS: &str = "fd00:198:19::2";
    let is_refused = |record: &serde_json::Value| {
        let text = record["evidence"].to_string();
        is_duplicate(record, ADDRESS, true) && text.contains("DAD failed")
    };
    let (one, other) = pair("198.18.251.2", "198.18.251.3")?;
    let mut tracer = Tracer::trace(&[])?;
    one.ip(&format!("addr add {ADDRESS}/64 dev eth0 nodad"))?;
    other.ip(&format!("addr add {ADDRESS}/64 dev eth0"))?;
    tracer.wait_for("the kernel's refusal", SOON, |record| {
        let named = is_event(record, "address-added") && names_address(record, ADDRESS);
        named && record["dad"] == "failed" && netns_of(record) == Some(other.inode())
    })?;
    one.ip(&format!("addr del {ADDRESS}/64 dev eth0"))?;
    let of_kernel = "a duplicate-address finding of the kernel's word";
    let open = tracer.wait_for(of_kernel, SOON, |record| {
        // Until it is gone there, it is a conflict of the two: another finding.
        let names_one = record["evidence"]
            .to_string()
            .contains(&one.inode().to_string());
        is_refused(record) && !names_one && netns_of(record) == Some(other.inode())
    })?;
    let look = on_host("scan", &["--pods", "none", "--cri", "none"])?;
    let found = look.findings_on(&[other.inode()]);
    ensure!(
        found.iter().any(|finding| finding["id"] == open["id"]),
        "scan finds it, too: {}",
        look.brief()
    );
    other.ip(&format!("addr del {ADDRESS}/64 dev eth0"))?;
    tracer.wait_for("it to be resolved", SOON, |record| {
        record["id"] == open["id"] && record["state"] == "resolved"
    })?;
    Ok(())
}

test!(NEEDS, different_addresses_are_no_duplicate);
fn different_addresses_are_no_duplicate() -> anyhow::Result<()> {
    let mut tracer = Tracer::trace(&[])?;
    let (one, other) = pair("198.18.252.2", "198.18.252.3")?;
    for (netns, address) in [(&one, "198.18.252.2"), (&other, "198.18.252.3")] {
        // The loopback address, which every namespace has, is none either.
        netns.ip("link set lo up")?;
        tracer.wait_for("both addresses", SOON, |record| {
            is_event(record, "address-added") && names_address(record, address)
        })?;
    }
    drop((one, other));
    let ended = tracer.stop()?;
    let wrong = ended.records.iter().find(|record| {
        is_finding(record, "duplicate-address")
            && ["198.18.252.2", "198.18.252.3", "127.0.0.1", "::1"]
                .iter()
                .any(|address| names_address(record, address))
    });
    ensure!(wrong.is_none(), "a false alarm: {}", wrong.context("none")?);
    Ok(())
}
