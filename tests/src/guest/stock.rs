//! What is there before the tracer starts.

use std::time::Duration;

use serde_json::Value;

use super::matrix::Stage;
use crate::keeper::{By, Keeper};
use crate::netns::Netns;
use crate::tracer::{is_event, names_address, netns_of};
use crate::wait;

/// What is there before the tracer starts.
pub(super) struct Stock {
    pub(super) named: Netns,
    keeper: Keeper,
    /// Held by the keeper's socket alone.
    hidden: u64,
}

const STOCKED: &str = "198.18.6.5";

impl Stock {
    pub(super) fn new() -> anyhow::Result<Self> {
        let named = Netns::create()?;
        named.ip("link add eth0 type dummy")?;
        named.ip(&format!("addr add {STOCKED}/24 dev eth0"))?;
        let mut hidden = Netns::create()?;
        let keeper = Keeper::start(By::Socket, hidden.path())?;
        let inode = hidden.inode();
        hidden.delete()?;
        Ok(Self {
            named,
            keeper,
            hidden: inode,
        })
    }

    pub(super) fn observe(&self, stage: &mut Stage<'_>, all: bool) -> anyhow::Result<()> {
        let found = |inode: u64| {
            move |record: &Value| is_event(record, "netns-found") && netns_of(record) == Some(inode)
        };
        stage.after(0, "netns-found of a named one", found(self.named.inode()))?;
        stage.after(0, "its address", |record| {
            is_event(record, "address-added")
                && names_address(record, STOCKED)
                && netns_of(record) == Some(self.named.inode())
        })?;
        if all {
            let what = format!(
                "netns-found of one that a socket of {} holds",
                self.keeper.pid()
            );
            stage.after(0, &what, found(self.hidden))?;
        }
        wait::pause(Duration::ZERO)
    }
}
