//! Addresses of both families, added and removed.

use crate::netns::Netns;
use crate::tracer::{is_event, names_address, netns_of};

use super::matrix::{SignalResult, Stage};

const ADDRESSES: [(&str, u64, &str); 2] = [("198.18.9.7", 24, ""), ("fd00:198:18::9", 64, "nodad")];

pub(super) fn observe(stage: &mut Stage<'_>) -> Vec<SignalResult> {
    vec![("address", come_and_go(stage))]
}

fn come_and_go(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    let netns = Netns::create()?;
    netns.ip("link add eth0 type dummy")?;
    netns.ip("link set eth0 up")?;
    for (address, length, options) in ADDRESSES {
        for (does, event) in [("add", "address-added"), ("del", "address-removed")] {
            let options = if does == "add" { options } else { "" };
            let mark = stage.mark();
            netns.ip(&format!(
                "addr {does} {address}/{length} dev eth0 {options}"
            ))?;
            let what = format!("{event} {address} in {}", netns.inode());
            let record = stage.after(mark, &what, |record| {
                is_event(record, event)
                    && names_address(record, address)
                    && netns_of(record) == Some(netns.inode())
            })?;
            anyhow::ensure!(
                record["ifname"] == "eth0" && record["link_kind"] == "dummy",
                "its device: {record}"
            );
            anyhow::ensure!(record["prefix"] == length, "its prefix: {record}");
        }
    }
    Ok(())
}
