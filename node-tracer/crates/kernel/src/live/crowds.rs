//! Stalls of many tasks of one owner: which are told one by one, and how many
//! more there are.
//!
//! A user or a container can have thousands of tasks in state D, whether a disk
//! hangs or they want to be many. Who the first few are says what there is to
//! be said; of the others their number is. The kernel's threads and the host's
//! own programs are in no crowd and always told one by one.

use std::collections::{BTreeSet, HashMap};

use node_tracer_ebpf::record::Task as KernelTask;

use super::{
    Live, SECOND,
    budget::{Budget, MINUTE, SINGLY},
    tasks,
};
use event::{Event, Task, What};

/// Tasks that are followed; beyond, crowds only get larger than is told.
const MAX_MEMBERS: usize = 16_384;
/// Tasks of a crowd that are named.
const NAMED: usize = 3;
/// The number of a crowd is told no more often.
const PAUSE: u64 = 10 * SECOND;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Crowds {
    by_number: HashMap<u32, Crowd>,
    members: HashMap<u32, Member>,
}

#[derive(Debug)]
struct Member {
    crowd: u32,
    singly: bool,
    since: u64,
    task: KernelTask,
}

#[derive(Debug, Default)]
struct Crowd {
    /// Stalls that are told one by one, at the same time.
    singly: u32,
    /// Those beyond, since when and by thread ID.
    more: BTreeSet<(u64, u32)>,
    /// Stalls that ended and were not told, since the last number.
    ended: u64,
    /// The last number, and when it was told.
    told: Option<(u64, u64)>,
    /// Ends of stalls that were over before they were looked at.
    ends: Budget,
    /// Whose it is: the first one's pod and user.
    owner: Option<(Option<String>, u32)>,
}

/// How a stall that is over was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// By itself, or not at all.
    Alone,
    /// As one of a number.
    Counted,
}

impl Crowds {
    /// A stall is to be told. Returns whether it is one of a number and not
    /// told by itself.
    pub(super) fn joins(&mut self, crowd: u32, since: u64, task: &KernelTask) -> bool {
        if crowd == 0 {
            return false;
        }
        if let Some(known) = self.members.get(&task.tid) {
            if known.since == since {
                return !known.singly;
            }
            self.leaves(task.tid);
        }
        let its = self.by_number.entry(crowd).or_default();
        let singly = its.singly < SINGLY;
        if self.members.len() >= MAX_MEMBERS {
            return true;
        }
        match singly {
            true => its.singly += 1,
            false => drop(its.more.insert((since, task.tid))),
        }
        let member = Member {
            crowd,
            singly,
            since,
            task: *task,
        };
        self.members.insert(task.tid, member);
        !singly
    }

    /// A stall is over.
    pub(super) fn leaves(&mut self, tid: u32) -> Left {
        let Some(member) = self.members.remove(&tid) else {
            return Left::Alone;
        };
        let Some(crowd) = self.by_number.get_mut(&member.crowd) else {
            return Left::Alone;
        };
        if member.singly {
            crowd.singly = crowd.singly.saturating_sub(1);
            return Left::Alone;
        }
        crowd.more.remove(&(member.since, tid));
        crowd.ended += 1;
        Left::Counted
    }

    /// Whether the end of a stall that was never told is. If not, it is counted.
    pub(super) fn tells_end(&mut self, crowd: u32, time: u64) -> bool {
        if crowd == 0 {
            return true;
        }
        let crowd = self.by_number.entry(crowd).or_default();
        let tells = crowd.ends.has_room(time, SINGLY);
        match tells {
            true => crowd.ends.spend(),
            false => crowd.ended += 1,
        }
        tells
    }

    /// The crowds of which a number is due, or all of which one is untold.
    fn due(&mut self, now: u64, all: bool) -> Vec<u32> {
        self.by_number.retain(|_, crowd| {
            let told = crowd.told.is_some_and(|(count, _)| count > 0);
            let quiet = crowd.singly == 0 && crowd.more.is_empty() && crowd.ended == 0;
            !quiet || told || crowd.ends.was_asked(now, MINUTE)
        });
        let crowds = self.by_number.iter().filter(|(_, crowd)| {
            let (last, at) = crowd.told.unwrap_or((0, 0));
            let changed = last != crowd.more.len() as u64 || crowd.ended > 0;
            changed && (all || at == 0 || now.saturating_sub(at) >= PAUSE)
        });
        crowds.map(|(number, _)| *number).collect()
    }
}

impl Live {
    /// Tells how many stalls there are beyond those that are told one by one.
    pub(super) fn tell_crowds(&mut self, now: u64, all: bool, out: &mut Vec<Event>) {
        for number in self.crowds.due(now, all) {
            let Some(crowd) = self.crowds.by_number.get_mut(&number) else {
                continue;
            };
            let members = &self.crowds.members;
            let oldest = crowd.more.iter().take(NAMED);
            let oldest: Vec<&Member> = oldest.filter_map(|(_, tid)| members.get(tid)).collect();
            let any = oldest.first().copied();
            let any = any.or_else(|| members.values().find(|member| member.crowd == number));
            if let (None, Some(member)) = (&crowd.owner, any) {
                let pod = self.owners.of(&member.task).map(|pod| pod.pod_uid);
                crowd.owner = Some((pod, member.task.euid));
            }
            let (pod_uid, uid) = crowd.owner.clone().unzip();
            let pod_uid = pod_uid.flatten();
            let examples: Vec<Task> = oldest
                .iter()
                .map(|member| Task {
                    state: Some('D'),
                    ..tasks::task(&member.task, self.owners.of(&member.task), self.clock)
                })
                .collect();
            let since = crowd.more.first().map_or(now, |(since, _)| *since);
            let count = crowd.more.len() as u64;
            let ended = std::mem::take(&mut crowd.ended);
            crowd.told = Some((count, now));
            out.push(Event {
                time: self.clock.timestamp(now),
                what: What::TasksBlocked {
                    crowd: number,
                    pod_uid,
                    uid,
                    count,
                    ended,
                    since: self.clock.timestamp(since),
                    examples,
                },
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(tid: u32) -> KernelTask {
        KernelTask {
            tid,
            ..KernelTask::default()
        }
    }

    fn told(crowds: &mut Crowds, crowd: u32, tids: std::ops::Range<u32>) -> usize {
        tids.filter(|tid| !crowds.joins(crowd, 1, &task(*tid)))
            .count()
    }

    #[test]
    fn the_first_few_of_a_crowd_are_told_and_all_of_the_hosts_own() {
        let mut crowds = Crowds::default();
        assert_eq!(told(&mut crowds, 7, 0..3_000), SINGLY as usize);
        assert_eq!(told(&mut crowds, 8, 3_000..3_001), 1);
        assert_eq!(told(&mut crowds, 0, 4_000..5_000), 1_000);
        assert_eq!(crowds.due(SECOND, false), [7]);
        assert_eq!(crowds.by_number[&7].more.len(), 3_000 - SINGLY as usize);
    }

    #[test]
    fn what_was_counted_ends_as_a_number() {
        let mut crowds = Crowds::default();
        told(&mut crowds, 7, 0..100);
        let ends: Vec<Left> = (0..100).map(|tid| crowds.leaves(tid)).collect();
        let counted = ends.iter().filter(|left| **left == Left::Counted).count();
        assert_eq!(counted, 100 - SINGLY as usize);
        assert_eq!(crowds.leaves(0), Left::Alone);
        assert_eq!(crowds.members.len(), 0);
        assert_eq!(crowds.by_number[&7].ended, counted as u64);
    }

    #[test]
    fn a_stall_that_is_told_twice_is_one() {
        let mut crowds = Crowds::default();
        told(&mut crowds, 7, 0..20);
        assert_eq!(told(&mut crowds, 7, 0..20), SINGLY as usize);
        assert_eq!(crowds.by_number[&7].more.len(), 20 - SINGLY as usize);
    }

    #[test]
    fn ends_that_nobody_has_seen_begin_are_few() {
        let mut crowds = Crowds::default();
        let ends = (0..1_000).filter(|time| crowds.tells_end(7, MINUTE + time));
        assert_eq!(ends.count(), SINGLY as usize);
        assert!(crowds.tells_end(0, MINUTE) && crowds.tells_end(7, 3 * MINUTE));
    }
}
