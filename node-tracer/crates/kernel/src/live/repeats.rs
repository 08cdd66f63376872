//! What somebody does without end, such as CNI calls that nobody believes, and
//! tasks that are killed as memory is short: which are told one by one, and how
//! many more there were.
//!
//! That somebody does it is worth a record. So the first few of each owner are
//! told as they are, and the others as a number, once in a while; both the more
//! rarely the longer it goes on ([`Budget`]).

use std::collections::HashMap;

use node_tracer_ebpf::record::{Owner, Task as KernelTask, owner};

use super::{
    Live, SECOND,
    budget::{Budget, HOUR, MAX_OWNERS, MINUTE, SINGLY_OF_ALL, Shared},
    tasks,
};
use crate::ebpf::Probes;
use crate::ebpf::callers::Withheld;
use event::{Event, Task, What};

/// A number is told so much later than the first that it counts.
const FIRST: u64 = 5 * SECOND;

#[derive(Debug)]
pub(super) struct Repeats {
    by_owner: HashMap<Owner, Repeat>,
    singly: Shared,
    /// Numbers of all owners.
    numbers: Budget,
    /// When the kernel's numbers were last looked at.
    looked: u64,
}

#[derive(Debug, Default)]
struct Repeat {
    singly: Budget,
    /// Calls that were not told yet.
    untold: u64,
    /// When the first and the last of these were.
    first: u64,
    last: u64,
    /// Calls that were told as a number before.
    before: u64,
    /// No number before that.
    due: u64,
    /// Numbers: one each time.
    numbers: Budget,
    /// Who made the last of them.
    task: KernelTask,
}

/// What one owner did that was not told one by one.
#[derive(Debug, PartialEq, Eq)]
struct Number {
    owner: Owner,
    task: KernelTask,
    count: u64,
    total: u64,
    first: u64,
    last: u64,
}

impl Repeats {
    /// Nobody has done anything yet.
    pub(super) fn new(singly: Shared) -> Self {
        Self {
            by_owner: HashMap::new(),
            singly,
            numbers: Budget::default(),
            looked: 0,
        }
    }

    /// Whether this one is told by itself. If not, it is counted.
    pub(super) fn admits(&mut self, owner: Owner, task: &KernelTask, time: u64) -> bool {
        self.make_room(owner, time);
        let its = self.by_owner.entry(owner).or_default();
        let admits = self.singly.admits(&mut its.singly, time);
        match admits {
            true => its.last = time,
            false => its.count(1, (time, time), task),
        }
        admits
    }

    /// So many were not told, of whom it is not known whose they were.
    pub(super) fn nobodys(&mut self, count: u64, time: u64) {
        if count > 0 {
            let its = self.by_owner.entry(Owner::default()).or_default();
            its.count(count, (time, time), &KernelTask::default());
        }
    }

    /// Calls that the kernel has only counted.
    fn withheld(&mut self, withheld: &Withheld) {
        let Withheld {
            owner,
            count,
            calls,
        } = withheld;
        // The first of all is at most the first of these.
        let first = calls.first.max(self.looked).min(calls.last);
        self.make_room(*owner, calls.last);
        let its = self.by_owner.entry(*owner).or_default();
        its.count(*count, (first, calls.last), &calls.task);
    }

    /// Room for one more owner. Of whom nothing was heard for longest makes it:
    /// what was not told of that one is counted with the others'.
    fn make_room(&mut self, owner: Owner, time: u64) {
        let is_full = |all: &HashMap<Owner, Repeat>| all.len() >= MAX_OWNERS;
        if self.by_owner.contains_key(&owner) || !is_full(&self.by_owner) {
            return;
        }
        self.forget_quiet(time, MINUTE);
        if !is_full(&self.by_owner) {
            return;
        }
        let known = self.by_owner.iter();
        let known = known.filter(|(owner, _)| **owner != Owner::default());
        let oldest = known.min_by_key(|(_, its)| its.last);
        let oldest = oldest.map(|(owner, _)| *owner);
        let gone = oldest.and_then(|oldest| self.by_owner.remove(&oldest));
        if let Some(gone) = gone.filter(|gone| gone.untold > 0) {
            let others = self.by_owner.entry(Owner::default()).or_default();
            others.count(gone.untold, (gone.first, gone.last), &gone.task);
        }
    }

    fn forget_quiet(&mut self, now: u64, time: u64) {
        self.by_owner
            .retain(|_, its| its.untold > 0 || its.last + time > now);
    }

    /// What is to be told now: what is due, or all.
    fn numbers(&mut self, now: u64, all: bool) -> Vec<Number> {
        let mut numbers = Vec::new();
        for (owner, its) in &mut self.by_owner {
            let mut has_room =
                || self.numbers.has_room(now, SINGLY_OF_ALL) && its.numbers.has_room(now, 1);
            if its.untold == 0 || !(all || (now >= its.due && has_room())) {
                continue;
            }
            let count = std::mem::take(&mut its.untold);
            its.before += count;
            its.numbers.spend();
            self.numbers.spend();
            numbers.push(Number {
                owner: *owner,
                task: its.task,
                count,
                total: its.before,
                first: its.first,
                last: its.last,
            });
        }
        self.forget_quiet(now, HOUR);
        numbers
    }
}

impl Repeat {
    fn count(&mut self, count: u64, (first, last): (u64, u64), task: &KernelTask) {
        if self.untold == 0 {
            (self.first, self.due) = (first, last + FIRST);
        }
        self.untold += count;
        self.first = self.first.min(first);
        (self.last, self.task) = (self.last.max(last), *task);
    }
}

impl Live {
    /// Tells what untrusted callers did that was not told one by one.
    pub(super) fn tell_callers(&mut self, now: u64, all: bool, out: &mut Vec<Event>) {
        if let Some(probes) = &mut self.probes {
            for withheld in probes.withheld(now) {
                self.callers.of(withheld.owner).withheld(&withheld);
            }
            for callers in self.callers.both() {
                callers.looked = now;
            }
        }
        let numbers = self.callers.both().map(|callers| callers.numbers(now, all));
        for number in numbers.into_iter().flatten() {
            let Number { count, total, .. } = number;
            let (uid, task) = self.who(&number);
            out.push(Event {
                time: self.time(number.last),
                what: What::UntrustedCalls {
                    uid,
                    task,
                    count,
                    total,
                    since: self.time(number.first),
                },
            });
        }
    }

    /// Tells how many tasks were killed that were not told one by one.
    pub(super) fn tell_kills(&mut self, now: u64, all: bool, out: &mut Vec<Event>) {
        let withheld = self.probes.as_mut().map_or(0, Probes::withheld_victims);
        self.kills.of(Owner::default()).nobodys(withheld, now);
        let numbers = self.kills.both().map(|kills| kills.numbers(now, all));
        for number in numbers.into_iter().flatten() {
            let Number { count, total, .. } = number;
            let (uid, task) = self.who(&number);
            out.push(Event {
                time: self.time(number.last),
                what: What::TasksOomKilled {
                    uid,
                    task,
                    count,
                    total,
                    since: self.time(number.first),
                },
            });
        }
    }

    /// The user who answers for what is told as a number, and the last task that
    /// did it.
    fn who(&mut self, Number { owner, task, .. }: &Number) -> (Option<u32>, Option<Task>) {
        let uid = match owner.kind {
            owner::OTHERS => return (None, None),
            owner::USER => owner.id,
            // The kernel has told its ID alone.
            _ if task.tgid == 0 => return (None, None),
            _ => task.euid,
        };
        let pod = self.owners.of(task);
        (Some(uid), Some(tasks::task(task, pod, self.clock)))
    }
}

#[cfg(test)]
mod tests {
    use node_tracer_ebpf::record::Calls;

    use super::*;
    use crate::live::budget::{Apart, SINGLY};

    fn callers() -> Repeats {
        Repeats::new(Shared::new(0))
    }

    fn user(id: u32) -> Owner {
        Owner {
            kind: owner::USER,
            id,
        }
    }

    fn admitted(callers: &mut Repeats, owner: Owner, calls: u64, from: u64) -> usize {
        let task = KernelTask::default();
        let times = (0..calls).map(|call| from + call);
        times
            .filter(|time| callers.admits(owner, &task, *time))
            .count()
    }

    #[test]
    fn a_flood_is_told_as_a_number_and_each_call_once() {
        let mut callers = callers();
        let start = 1_000 * SECOND;
        let singly = admitted(&mut callers, user(1000), 20_000, start);
        assert_eq!(singly, SINGLY as usize);
        let withheld = Withheld {
            owner: user(1000),
            count: 5,
            calls: Calls {
                last: start + SECOND,
                ..Calls::NONE
            },
        };
        callers.withheld(&withheld);
        assert_eq!(callers.numbers(start + SECOND, false), [], "not at once");
        let numbers = callers.numbers(start + 6 * SECOND, false);
        assert_eq!(numbers.len(), 1);
        assert_eq!(numbers[0].count, 20_005 - u64::from(SINGLY));
        assert_eq!(callers.numbers(start + MINUTE, true), [], "told already");
    }

    #[test]
    fn numbers_of_one_caller_are_ever_further_apart() {
        let mut callers = callers();
        let numbers: usize = (1_000..1_600)
            .map(|second| {
                admitted(&mut callers, user(1000), 100, second * SECOND);
                callers.numbers(second * SECOND + 1_000, false).len()
            })
            .sum();
        assert_eq!(numbers, 4, "after 5 s, 1, 2 and 4 minutes");
    }

    #[test]
    fn one_caller_does_not_silence_another() {
        let mut callers = callers();
        admitted(&mut callers, user(1000), 20_000, SECOND);
        assert_eq!(admitted(&mut callers, user(1001), 1, 2 * SECOND), 1);
    }

    #[test]
    fn no_number_of_users_silences_a_container_and_no_container_another() {
        let mut kills = Apart::new(Repeats::new);
        let task = KernelTask::default();
        let mut told = |kind, id, count: u64| {
            let owner = Owner { kind, id };
            let kills = kills.of(owner);
            let times = (0..count).map(|at| SECOND + at);
            times
                .filter(|time| kills.admits(owner, &task, *time))
                .count()
        };
        let users: usize = (1..100).map(|id| told(owner::USER, id, 100)).sum();
        assert_eq!(users, SINGLY_OF_ALL as usize);
        for id in 1..20 {
            told(owner::CONTAINER, id, 100);
        }
        assert_eq!(told(owner::CONTAINER, 77, 2), 2);
    }

    #[test]
    fn each_of_many_containers_is_told_once_and_never_more_than_there_is_room_for() {
        let mut kills = Apart::new(Repeats::new);
        let task = KernelTask::default();
        let mut told = |id, at| {
            let owner = Owner {
                kind: owner::CONTAINER,
                id,
            };
            kills.of(owner).admits(owner, &task, SECOND + at)
        };
        let first = (0..500).filter(|id| (0..3).any(|at| told(*id, at)));
        assert_eq!(first.count(), 500);
        // Somebody who makes ever new ones.
        let all = (1_000..100_000).filter(|id| told(*id, 3)).count();
        assert!(all <= SINGLY_OF_ALL as usize + 2 * MAX_OWNERS, "{all}");
    }

    #[test]
    fn who_was_quiet_for_longest_makes_room_and_what_it_did_is_counted() {
        let mut callers = callers();
        for id in 0..MAX_OWNERS as u32 {
            admitted(&mut callers, user(id), 20, SECOND + u64::from(id) * 100);
        }
        admitted(&mut callers, user(0), 1, 2 * SECOND);
        admitted(&mut callers, user(5_000), 1, 3 * SECOND);
        let numbers = callers.numbers(4 * SECOND, true);
        let of = |owner| numbers.iter().find(|number| number.owner == owner);
        assert_eq!(of(user(1)), None);
        assert_eq!(of(Owner::default()).unwrap().count, 4);
        assert_eq!(of(user(0)).unwrap().count, 5);
        assert_eq!(of(user(5_000)).unwrap().count, 1);
    }

    #[test]
    fn many_users_are_others() {
        let mut callers = callers();
        let singly: usize = (0..10_000)
            .map(|id| admitted(&mut callers, user(id), 2, SECOND))
            .sum();
        assert_eq!(singly, SINGLY_OF_ALL as usize);
        let numbers = callers.numbers(2 * SECOND, true);
        assert!(numbers.len() <= MAX_OWNERS + 1, "{}", numbers.len());
        let told: u64 = numbers.iter().map(|number| number.count).sum();
        assert_eq!(told, 20_000 - u64::from(SINGLY_OF_ALL));
    }

    /// Calls that are told singly and numbers that are told, of one caller that
    /// calls at these seconds of a day.
    fn told_in_a_day(calls: impl Fn(u64) -> bool) -> (usize, usize) {
        let mut callers = callers();
        let (mut singly, mut numbers) = (0, 0);
        for second in (1..86_400).filter(|second| second % 5 == 0) {
            let time = second * SECOND;
            if calls(second) {
                singly += admitted(&mut callers, user(1000), 20, time);
            }
            numbers += callers.numbers(time, false).len();
        }
        (singly, numbers)
    }

    #[test]
    fn who_never_stops_is_told_of_ever_more_rarely() {
        let (singly, numbers) = told_in_a_day(|_| true);
        assert!(singly <= 31 * SINGLY as usize, "{singly}");
        assert!((24..=32).contains(&numbers), "{numbers}");
    }

    #[test]
    fn who_pauses_for_minutes_is_remembered_and_who_was_quiet_for_an_hour_is_not() {
        let (singly, numbers) = told_in_a_day(|second| second % 300 < 5);
        assert!(singly <= 31 * SINGLY as usize, "{singly}");
        assert!(numbers <= 32, "{numbers}");
        let (singly, _) = told_in_a_day(|second| second % 7_200 < 5);
        assert_eq!(singly, 11 * SINGLY as usize);
    }

    #[test]
    fn a_user_with_many_ids_is_told_of_ever_more_rarely_too() {
        let mut callers = callers();
        let mut singly = 0;
        for minute in 1..1_440 {
            for id in 0..100 {
                let user = user(minute * 100 + id);
                singly += admitted(&mut callers, user, 2, u64::from(minute) * MINUTE);
            }
            callers.numbers(u64::from(minute) * MINUTE, false);
        }
        assert!(singly <= 31 * SINGLY_OF_ALL as usize, "{singly}");
    }
}
