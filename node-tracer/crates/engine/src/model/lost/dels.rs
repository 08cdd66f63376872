//! DELs that run or ended shortly before, and what was lost by them.

use event::{CniCall, CniCommand, clock::Timestamp};
use std::time::Duration;

use super::{AFTERMATH, Del, LONGEST, Lost, name_of};

/// How late a DEL can be told.
const LATE: Duration = Duration::from_secs(30);
/// DELs that are remembered; the oldest are forgotten.
pub(super) const MAX_DELS: usize = 1_024;

/// A DEL that runs or may still take effect.
#[derive(Debug)]
pub(super) struct RecentDel {
    /// `namespace/name` of the pod.
    pub(super) pod: (String, String),
    del: Del,
    pid: u32,
    /// Its end was told.
    told: bool,
}

impl RecentDel {
    /// How long it can take effect. Its end may have been lost.
    fn until(&self) -> Timestamp {
        match self.del.ended {
            Some(end) => end.plus(AFTERMATH),
            None => self.del.started.plus(LONGEST),
        }
    }

    /// Whether what happened then can have come of it.
    fn covers(&self, time: Timestamp) -> bool {
        time >= self.del.started && time <= self.until()
    }
}

impl Lost {
    /// A DEL that the runtime has called, started or ended.
    pub(super) fn del(&mut self, call: &CniCall, time: Timestamp, end: Option<Timestamp>) -> bool {
        let pod = call.pod.as_ref().and_then(name_of);
        let Some(pod) =
            pod.filter(|_| call.trusted && !call.delegated && call.command == CniCommand::Del)
        else {
            return false;
        };
        self.dels.retain(|it| time <= it.until());
        let same = |known: &RecentDel| known.del.container_id == call.container_id;
        let known = self.dels.iter_mut().rev();
        let mut known = known.filter(|known| same(known) && !known.told);
        match known.find(|known| known.pid == call.pid) {
            Some(known) => {
                known.del.ended = end.or(known.del.ended);
                known.del.netns = known.del.netns.or(call.netns);
                known.told = end.is_some();
            }
            None => {
                // A runtime makes one after the other.
                for known in self.dels.iter_mut().filter(|known| same(known)) {
                    known.del.ended.get_or_insert(time);
                }
                if self.dels.len() >= MAX_DELS {
                    self.dels.pop_front();
                }
                let container_id = call.container_id.clone();
                // Without its start, as the record of it was lost.
                let started = time;
                self.dels.push_back(RecentDel {
                    pod,
                    del: Del {
                        container_id,
                        started,
                        ended: end,
                        netns: call.netns,
                    },
                    pid: call.pid,
                    told: end.is_some(),
                });
            }
        }
        // What is told of a call can come later than what it did.
        let pod = call.pod.as_ref().and_then(name_of);
        let of_pod = |inode: &u32| self.sandboxes.get(inode).is_none_or(|it| it.pod == pod);
        let unexplained = self.unexplained.iter().copied();
        let unexplained: Vec<u32> = unexplained.filter(of_pod).collect();
        let mut changed = false;
        for inode in unexplained {
            changed |= self.explain(inode, time);
        }
        changed
    }

    /// Looks for a DEL that a sandbox's losses of the last time came with, and
    /// for the ends of those that were found before.
    pub(super) fn explain(&mut self, inode: u32, now: Timestamp) -> bool {
        let Some(had) = self.sandboxes.get_mut(&inode) else {
            self.unexplained.remove(&inode);
            self.blamed.remove(&inode);
            return false;
        };
        let (mut changed, mut open, mut blamed) = (false, false, false);
        for loss in had.items.values_mut().filter_map(|it| it.loss.as_mut()) {
            let mut dels = self.dels.iter().rev().map(|it| (it, &it.del));
            match &mut loss.del {
                // Its end may have been told since.
                Some(known) => {
                    let same = |del: &Del| {
                        del.container_id == known.container_id && del.started == known.started
                    };
                    if let Some((_, del)) = dels.find(|(_, del)| same(del)) {
                        changed |= known.ended != del.ended;
                        *known = del.clone();
                        open |= known.ended.is_none();
                    }
                }
                None if now <= loss.at.plus(LATE) => {
                    let found = dels.find(|(it, del)| {
                        let theirs = had.container_id.as_ref() != Some(&del.container_id);
                        theirs && had.pod.as_ref() == Some(&it.pod) && it.covers(loss.at)
                    });
                    loss.del = found.map(|(_, del)| del.clone());
                    changed |= loss.del.is_some();
                    open |= loss.del.as_ref().is_none_or(|del| del.ended.is_none());
                }
                None => {}
            }
            blamed |= loss.del.is_some();
        }
        match blamed {
            true => self.blamed.insert(inode),
            false => self.blamed.remove(&inode),
        };
        match open {
            true => self.unexplained.insert(inode),
            false => self.unexplained.remove(&inode),
        };
        changed
    }
}
