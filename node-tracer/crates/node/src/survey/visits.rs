//! Going to the namespaces, and what is told of those that cannot be read.

use std::time::Duration;

use super::chain;
use crate::{
    netlink::{self, NetlinkError, Target, Visit},
    procfs::Bounded,
};

/// How long rtnetlink may take in one namespace.
const VISIT: Duration = Duration::from_millis(500);
/// How long it may take in all of them.
const VISITS: Duration = Duration::from_secs(10);
/// Namespaces that are named of those that cannot be read.
const MAX_NAMED: usize = 8;

/// The outcome of each target's visit, by its inode.
pub(super) type Visits = Vec<(u32, Result<Option<Visit>, NetlinkError>)>;

/// Visits all of these. `bounded` is the visits' own: all of them wait for one
/// lock, which a stuck task can hold.
pub(super) fn visit(targets: Vec<Target>, bounded: &Bounded) -> Visits {
    let inodes: Vec<u32> = targets.iter().map(|target| target.inode).collect();
    let outcomes = netlink::visit_all(targets, bounded, VISIT, VISITS);
    inodes.into_iter().zip(outcomes).collect()
}

/// The namespaces that could not be read.
#[derive(Debug, Default)]
pub(super) struct Failures {
    named: Vec<String>,
    more: usize,
    /// Those from which no answer came, and why the first did not.
    silent: usize,
    why: Option<String>,
}

impl Failures {
    pub(super) fn add(&mut self, inode: u32, error: &NetlinkError) {
        match error {
            NetlinkError::NoAnswer { .. } | NetlinkError::NotTried { .. } => {
                self.silent += 1;
                if matches!(error, NetlinkError::NoAnswer { .. }) || self.why.is_none() {
                    self.why = Some(chain(error));
                }
            }
            _ if self.named.len() < MAX_NAMED => {
                let error = chain(error);
                self.named.push(format!("netns {inode}: {error}"));
            }
            _ => self.more += 1,
        }
    }

    pub(super) fn problems(self) -> Vec<String> {
        let mut told = Vec::new();
        if let Some(why) = self.why {
            let count = self.silent;
            let text = format!("rtnetlink does not answer in {count} network namespaces ({why})");
            told.push(text);
        }
        told.extend(self.named);
        if self.more > 0 {
            told.push(format!("{} more network namespaces", self.more));
        }
        told
    }
}
