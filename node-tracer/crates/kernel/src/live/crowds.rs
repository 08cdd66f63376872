//! Stalls of many tasks of one owner: which are told one by one, and how many
//! more there are.
//!
//! A user or a container can have thousands of tasks in state D, whether a disk
//! hangs or they want to be many; and it can have new ones for ever. Who the
//! first few are says what there is to be said; of the others their number is.
//! How many are told one by one is limited by time, for each owner and for all
//! ([`Shared`]); so is how often numbers are told. The kernel's threads and the
//! host's own programs are in no crowd and always told one by one.

use std::collections::{BTreeSet, HashMap};

use node_tracer_ebpf::record::{Owner, Task as KernelTask, owner};

use super::{
    Live, SECOND,
    allowance::Allowance,
    budget::{Budget, HOUR, MAX_OWNERS, MINUTE, SINGLY_OF_ALL, Shared},
    tasks,
};
use event::{Event, Task, What};

/// Tasks that are followed of all owners.
const MAX_MEMBERS: usize = 16_384;
/// Tasks of one owner that are followed; that there are more is all that is
/// known of these.
const MAX_OF_ONE: usize = 1_024;
/// Of each owner so many are followed, however many others have.
const FEW: usize = 16;
/// Tasks of a crowd that are named.
const NAMED: usize = 3;
/// The number of a crowd is told no more often.
const PAUSE: u64 = 10 * SECOND;

/// Whether another task of one owner is followed, of whom and of all so many
/// are.
pub(super) const fn has_room(own: usize, all: usize) -> bool {
    own < FEW || own < MAX_OF_ONE && all < MAX_MEMBERS
}

#[derive(Debug)]
pub(super) struct Crowds {
    by_owner: HashMap<Owner, Crowd>,
    members: HashMap<u32, Member>,
    singly: Shared,
    ends: Shared,
    /// Numbers of all owners.
    numbers: Allowance,
}

#[derive(Debug)]
struct Member {
    owner: Owner,
    singly: bool,
    since: u64,
    task: KernelTask,
}

#[derive(Debug, Default)]
struct Crowd {
    /// Stalls that are told one by one.
    singly: Budget,
    /// Ends of those whose beginning was not told. Who has many of them takes
    /// nothing from stalls that begin.
    ends: Budget,
    /// Tasks that are followed.
    members: usize,
    /// Those of them that are not told one by one, since when and by thread ID.
    more: BTreeSet<(u64, u32)>,
    /// There were some that are not followed.
    uncounted: bool,
    /// Stalls that ended and were not told, since the last number.
    ended: u64,
    /// The last number, and when it was told.
    told: Option<(u64, u64)>,
    /// The pod of the first one.
    pod: Option<Option<String>>,
}

/// How a stall is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    Alone,
    /// As one of a number.
    Counted,
    /// As one of a number from now on: the task was told by itself, of a stall
    /// since then, and that is over.
    AloneNoMore(u64),
    /// Not at all: there are so many that it is not followed.
    Uncounted,
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
    /// Nobody is stuck yet.
    pub(super) fn new(singly: Shared) -> Self {
        Self {
            by_owner: HashMap::new(),
            members: HashMap::new(),
            ends: singly.anew(),
            singly,
            numbers: Allowance::new(SINGLY_OF_ALL, SINGLY_OF_ALL),
        }
    }

    /// A stall is to be told.
    pub(super) fn joins(
        &mut self,
        owner: Owner,
        since: u64,
        task: &KernelTask,
        time: u64,
    ) -> Joined {
        match self.members.get(&task.tid) {
            Some(known) if known.task.start_boottime == task.start_boottime => {
                return self.is_dated(task.tid, since, time);
            }
            Some(_) => drop(self.leaves(task.tid)),
            None => {}
        }
        let all = self.members.len();
        let (owner, its) = self.crowd(owner, time);
        let follows = has_room(its.members, all);
        let (its, shared) = match self.by_owner.get_mut(&owner) {
            Some(its) => (its, &mut self.singly),
            None => return Joined::Uncounted,
        };
        let singly = shared.admits(&mut its.singly, time);
        if !singly && !follows {
            its.uncounted = true;
            return Joined::Uncounted;
        }
        its.members += 1;
        if !singly {
            its.more.insert((since, task.tid));
        }
        let member = Member {
            owner,
            singly,
            since,
            task: *task,
        };
        self.members.insert(task.tid, member);
        match singly {
            true => Joined::Alone,
            false => Joined::Counted,
        }
    }

    /// Of one that is known it is known better since when it sleeps, which is
    /// longer then; or it has run unseen and sleeps again, which is one more to
    /// be told or counted.
    fn is_dated(&mut self, tid: u32, since: u64, time: u64) -> Joined {
        let Some(known) = self.members.get_mut(&tid) else {
            return Joined::Uncounted;
        };
        let before = std::mem::replace(&mut known.since, since);
        let Some(its) = self.by_owner.get_mut(&known.owner) else {
            return Joined::Uncounted;
        };
        if !known.singly {
            its.more.remove(&(before, tid));
            its.more.insert((since, tid));
            return Joined::Counted;
        }
        if since <= before || self.singly.admits(&mut its.singly, time) {
            return Joined::Alone;
        }
        known.singly = false;
        its.more.insert((since, tid));
        Joined::AloneNoMore(before)
    }

    /// The crowd of an owner, or that of all for whom there is no room.
    fn crowd(&mut self, owner: Owner, time: u64) -> (Owner, &mut Crowd) {
        if !self.by_owner.contains_key(&owner) && self.by_owner.len() >= MAX_OWNERS {
            // Who has been quiet for a while makes room.
            self.forget_quiet(time, MINUTE);
        }
        let room = self.by_owner.len() < MAX_OWNERS;
        let owner = match room || self.by_owner.contains_key(&owner) {
            true => owner,
            false => Owner::default(),
        };
        (owner, self.by_owner.entry(owner).or_default())
    }

    fn forget_quiet(&mut self, now: u64, within: u64) {
        self.by_owner.retain(|_, crowd| {
            let told = crowd.told.is_some_and(|(count, _)| count > 0);
            let quiet = crowd.members == 0 && crowd.ended == 0;
            let asked = [&crowd.singly, &crowd.ends].map(|budget| budget.was_asked(now, within));
            !quiet || told || asked.contains(&true)
        });
    }

    /// Whether one more task of an owner would be followed.
    pub(super) fn follows(&self, owner: Owner) -> bool {
        let its = self.by_owner.get(&owner).map_or(0, |crowd| crowd.members);
        has_room(its, self.members.len())
    }

    /// A look begins: it finds out again who has more than are followed.
    pub(super) fn look(&mut self) {
        for crowd in self.by_owner.values_mut() {
            crowd.uncounted = false;
        }
    }

    /// A look has found one more of an owner's than is followed.
    pub(super) fn found_more(&mut self, owner: Owner) {
        let owner = match self.by_owner.contains_key(&owner) {
            true => owner,
            false => Owner::default(),
        };
        if let Some(crowd) = self.by_owner.get_mut(&owner) {
            crowd.uncounted = true;
        }
    }

    /// Who has more than are followed.
    pub(super) fn uncounted(&self) -> impl Iterator<Item = Owner> {
        let all = self.by_owner.iter();
        all.filter(|(_, crowd)| crowd.uncounted)
            .map(|(owner, _)| *owner)
    }

    /// Whether somebody has more than are followed.
    pub(super) fn has_uncounted(&self) -> bool {
        self.by_owner.values().any(|crowd| crowd.uncounted)
    }

    /// Whether a task is followed.
    pub(super) fn has(&self, tid: u32) -> bool {
        self.members.contains_key(&tid)
    }

    /// How many tasks are followed.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// A stall is over.
    pub(super) fn leaves(&mut self, tid: u32) -> Left {
        let Some(member) = self.members.remove(&tid) else {
            return Left::Alone;
        };
        let Some(crowd) = self.by_owner.get_mut(&member.owner) else {
            return Left::Alone;
        };
        crowd.members = crowd.members.saturating_sub(1);
        if member.singly {
            return Left::Alone;
        }
        crowd.more.remove(&(member.since, tid));
        crowd.ended += 1;
        Left::Counted
    }

    /// Whether the end of a stall that was never told is. If not, it is counted.
    pub(super) fn tells_end(&mut self, owner: Owner, time: u64) -> bool {
        let (owner, _) = self.crowd(owner, time);
        let Some(crowd) = self.by_owner.get_mut(&owner) else {
            return false;
        };
        let tells = self.ends.admits(&mut crowd.ends, time);
        if !tells {
            crowd.ended += 1;
        }
        tells
    }

    /// The crowds of which a number is to be told now, longest untold first, or
    /// all of which one is untold.
    fn due(&mut self, now: u64, all: bool) -> Vec<Owner> {
        self.forget_quiet(now, HOUR);
        let crowds = self.by_owner.iter().filter_map(|(owner, crowd)| {
            let (last, at) = crowd.told.unwrap_or((0, 0));
            // Who is not counted may still be stuck: that there are none is told
            // after the next look.
            let is_known = !crowd.more.is_empty() || !crowd.uncounted;
            let changed = is_known && last != crowd.more.len() as u64 || crowd.ended > 0;
            let may = all || at == 0 || now.saturating_sub(at) >= PAUSE;
            (changed && may).then_some((at, *owner))
        });
        let mut due: Vec<(u64, Owner)> = crowds.collect();
        due.sort_unstable();
        let owners = due.into_iter().map(|(_, owner)| owner);
        let told = owners.take_while(|_| {
            let room = all || self.numbers.has_room(now);
            self.numbers.spend(usize::from(room));
            room
        });
        told.collect()
    }
}

/// What names a crowd: an owner's own number, unlike that of another kind.
fn number_of(owner: Owner) -> u32 {
    match owner.kind {
        owner::OTHERS => 0,
        owner::USER => owner.id,
        kind => owner.id ^ kind << 30,
    }
}

impl Live {
    /// Tells how many stalls there are beyond those that are told one by one.
    pub(super) fn tell_crowds(&mut self, now: u64, all: bool, out: &mut Vec<Event>) {
        let clock = self.clock;
        for crowds in self.crowds.both() {
            for owner in crowds.due(now, all) {
                let Some(crowd) = crowds.by_owner.get_mut(&owner) else {
                    continue;
                };
                let members = &crowds.members;
                let oldest = crowd.more.iter().take(NAMED);
                let oldest: Vec<&Member> = oldest.filter_map(|(_, tid)| members.get(tid)).collect();
                let any = oldest.first().copied();
                let any = any.or_else(|| members.values().find(|member| member.owner == owner));
                // What many share that cannot be told apart is no pod's.
                let is_one = owner.kind != owner::OTHERS && owner.id != 0;
                if let (None, Some(member), true) = (&crowd.pod, any, is_one) {
                    crowd.pod = Some(self.owners.of(&member.task).map(|pod| pod.pod_uid));
                }
                let examples: Vec<Task> = oldest
                    .iter()
                    .map(|member| Task {
                        state: Some('D'),
                        uid: (member.task.euid != 0).then_some(member.task.euid),
                        ..tasks::task(&member.task, self.owners.of(&member.task), clock)
                    })
                    .collect();
                let since = crowd.more.first().map_or(now, |(since, _)| *since);
                let count = crowd.more.len() as u64;
                let ended = std::mem::take(&mut crowd.ended);
                crowd.told = Some((count, now));
                out.push(Event {
                    time: clock.timestamp(now),
                    what: What::TasksBlocked {
                        crowd: number_of(owner),
                        pod_uid: crowd.pod.clone().flatten(),
                        uid: (owner.kind == owner::USER).then_some(owner.id),
                        count,
                        at_least: crowd.uncounted,
                        ended,
                        since: clock.timestamp(since),
                        examples,
                    },
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::budget::{Apart, SINGLY};

    const START: u64 = 1_000 * SECOND;

    fn task(tid: u32) -> KernelTask {
        KernelTask {
            tid,
            ..KernelTask::default()
        }
    }

    const fn user(id: u32) -> Owner {
        Owner {
            kind: owner::USER,
            id,
        }
    }

    const fn container(id: u32) -> Owner {
        Owner {
            kind: owner::CONTAINER,
            id,
        }
    }

    fn crowds() -> Apart<Crowds> {
        Apart::new(Crowds::new)
    }

    fn told(
        crowds: &mut Apart<Crowds>,
        owner: Owner,
        tids: std::ops::Range<u32>,
        time: u64,
    ) -> usize {
        let crowds = crowds.of(owner);
        tids.filter(|tid| crowds.joins(owner, 1, &task(*tid), time) == Joined::Alone)
            .count()
    }

    #[test]
    fn the_first_few_of_a_crowd_are_told_and_the_others_are_a_number() {
        let mut crowds = crowds();
        assert_eq!(told(&mut crowds, user(7), 0..900, START), SINGLY as usize);
        assert_eq!(told(&mut crowds, user(8), 3_000..3_001, START), 1);
        assert_eq!(crowds.of(user(7)).due(START, false), [user(7)]);
        let more = crowds.of(user(7)).by_owner[&user(7)].more.len();
        assert_eq!(more, 900 - SINGLY as usize);
    }

    #[test]
    fn what_was_counted_ends_as_a_number() {
        let mut crowds = crowds();
        told(&mut crowds, user(7), 0..100, START);
        let crowds = crowds.of(user(7));
        let ends: Vec<Left> = (0..100).map(|tid| crowds.leaves(tid)).collect();
        let counted = ends.iter().filter(|left| **left == Left::Counted).count();
        assert_eq!(counted, 100 - SINGLY as usize);
        assert_eq!(crowds.leaves(0), Left::Alone);
        assert_eq!(crowds.len(), 0);
        assert_eq!(crowds.by_owner[&user(7)].ended, counted as u64);
    }

    #[test]
    fn a_stall_that_is_told_twice_is_one() {
        let mut crowds = crowds();
        told(&mut crowds, user(7), 0..20, START);
        assert_eq!(told(&mut crowds, user(7), 0..20, START), SINGLY as usize);
        let more = crowds.of(user(7)).by_owner[&user(7)].more.len();
        assert_eq!(more, 20 - SINGLY as usize);
    }

    #[test]
    fn a_sleep_that_is_dated_anew_has_not_ended() {
        let mut crowds = crowds();
        told(&mut crowds, user(7), 1..101, START);
        let crowds = crowds.of(user(7));
        for tid in 1..101 {
            crowds.joins(user(7), 0, &task(tid), START + SECOND);
        }
        let crowd = &crowds.by_owner[&user(7)];
        assert_eq!((crowd.ended, crowd.more.len()), (0, 100 - SINGLY as usize));
        assert!(crowd.more.iter().all(|(since, _)| *since == 0));
    }

    #[test]
    fn who_was_told_and_sleeps_again_is_told_or_counted() {
        let mut crowds = crowds();
        told(&mut crowds, user(7), 0..4, START);
        let crowds = crowds.of(user(7));
        let mut again = Vec::new();
        for since in 2..6 {
            let joins = |tid| crowds.joins(user(7), since, &task(tid), START + SECOND);
            again.extend((0..4).map(joins));
        }
        let count = |how| again.iter().filter(|joined| **joined == how).count();
        assert_eq!(count(Joined::Alone), SINGLY as usize - 4);
        assert_eq!(count(Joined::AloneNoMore(4)), 4);
        let more = &crowds.by_owner[&user(7)].more;
        assert_eq!(more.iter().map(|(since, _)| *since).min(), Some(5));
        assert_eq!(more.len(), 4);
        assert!((0..4).all(|tid| crowds.leaves(tid) == Left::Counted));
    }

    #[test]
    fn ends_take_nothing_from_what_begins() {
        let mut crowds = crowds();
        for id in 1..100 {
            for _ in 0..100 {
                crowds.of(user(id)).tells_end(user(id), START);
            }
        }
        let begin = told(&mut crowds, user(777), 0..100, START);
        assert_eq!(begin, SINGLY as usize);
    }

    #[test]
    fn stalls_that_come_and_go_without_end_are_told_ever_more_rarely() {
        let mut crowds = crowds();
        let (mut singly, mut numbers) = (0, 0);
        for second in 0..900 {
            let time = START + second * SECOND;
            for owner in 0..100 {
                let first = (second as u32 * 100 + owner) * 4;
                singly += told(&mut crowds, user(1 + owner), first..first + 4, time);
                for tid in first..first + 4 {
                    crowds.of(user(1)).leaves(tid);
                    crowds.of(user(1)).tells_end(user(1 + owner), time);
                }
            }
            numbers += crowds.of(user(1)).due(time, false).len();
        }
        // At once, and after 1, 3 and 7 minutes.
        assert!(singly <= 4 * SINGLY_OF_ALL as usize, "{singly}");
        assert!(numbers <= 16 * SINGLY_OF_ALL as usize, "{numbers}");
    }

    #[test]
    fn no_number_of_tasks_of_others_keeps_a_containers_from_being_told() {
        let mut crowds = crowds();
        for id in 1..70 {
            told(&mut crowds, user(id), id * 20_000..(id + 1) * 20_000, START);
        }
        // Of another container, too, and of many.
        for id in 1..500 {
            let first = 2_000_000 + id * 2_000;
            told(&mut crowds, container(id), first..first + 2_000, START);
        }
        assert_eq!(told(&mut crowds, container(777), 1..3, START), 2);
        let kept: usize = crowds.both().map(|crowds| crowds.len()).iter().sum();
        let few = 570 * (FEW + SINGLY as usize);
        assert!(kept <= 2 * MAX_MEMBERS + few, "{kept}");
        assert_eq!(told(&mut crowds, container(777), 10..100, START), 0);
        let its = &crowds.of(container(777)).by_owner[&container(777)];
        assert!(its.more.len() >= FEW - 2 && its.uncounted);
    }

    #[test]
    fn of_one_owner_no_more_are_followed_than_is_said() {
        let mut crowds = crowds();
        told(&mut crowds, user(7), 0..17_000, START);
        let crowds = crowds.of(user(7));
        assert!(crowds.by_owner[&user(7)].uncounted && !crowds.follows(user(7)));
        assert_eq!(crowds.len(), MAX_OF_ONE);
        for tid in 0..17_000 {
            crowds.leaves(tid);
        }
        let crowd = &crowds.by_owner[&user(7)];
        assert_eq!(crowd.ended as usize, MAX_OF_ONE - SINGLY as usize);
        assert!(crowd.uncounted, "until a look has found none");
    }

    #[test]
    fn ends_that_nobody_has_seen_begin_are_few() {
        let mut crowds = crowds();
        let crowds = crowds.of(user(7));
        let ends = (0..1_000).filter(|time| crowds.tells_end(user(7), MINUTE + time));
        assert_eq!(ends.count(), SINGLY as usize);
        assert!(crowds.tells_end(user(7), 3 * MINUTE));
    }
}
