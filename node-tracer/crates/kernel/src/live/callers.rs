//! Untrusted callers of CNI plugins: whose calls are told one by one, and how
//! many more there were.
//!
//! Nobody believes what they say, but that somebody says it is worth a record.
//! Everybody can say it without end. So the first few calls of a caller are
//! told as they are, and the others as a number, once in a while; both the more
//! rarely the longer it goes on ([`Budget`]).

use std::collections::HashMap;

use node_tracer_ebpf::record::{Owner, Task as KernelTask, owner};

use super::{
    Live, SECOND,
    budget::{Budget, HOUR, MINUTE, SINGLY},
    tasks,
};
use crate::ebpf::callers::Withheld;
use event::{Event, What};

/// Calls of all callers that are told one by one, where [`SINGLY`] are of one.
const SINGLY_OF_ALL: u32 = 64;
/// Callers that are told apart.
const MAX_CALLERS: usize = 64;
/// A number is told so much later than the first call that it counts.
const FIRST: u64 = 5 * SECOND;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Callers {
    by_owner: HashMap<Owner, Caller>,
    all: Budget,
    /// Numbers of all callers.
    numbers: Budget,
    /// When the kernel's numbers were last looked at.
    looked: u64,
}

#[derive(Debug, Default)]
struct Caller {
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

/// Calls of one caller that were not told one by one.
#[derive(Debug, PartialEq, Eq)]
struct Number {
    owner: Owner,
    task: KernelTask,
    count: u64,
    total: u64,
    first: u64,
    last: u64,
}

impl Callers {
    /// Whether this call is told by itself. If not, it is counted.
    pub(super) fn admits(&mut self, owner: Owner, task: &KernelTask, time: u64) -> bool {
        let room = self.all.has_room(time, SINGLY_OF_ALL);
        let caller = self.caller(owner, time);
        if room && caller.singly.has_room(time, SINGLY) {
            caller.last = time;
            caller.singly.spend();
            self.all.spend();
            return true;
        }
        caller.count(1, (time, time), task);
        false
    }

    /// Calls that the kernel has only counted.
    fn withheld(&mut self, withheld: &[Withheld], now: u64) {
        let looked = std::mem::replace(&mut self.looked, now);
        for withheld in withheld {
            self.withheld_of_one(withheld, looked);
        }
    }

    fn withheld_of_one(&mut self, withheld: &Withheld, looked: u64) {
        let Withheld {
            owner,
            count,
            calls,
        } = withheld;
        // The first of all is at most the first of these.
        let first = calls.first.max(looked).min(calls.last);
        let caller = self.caller(*owner, calls.last);
        caller.count(*count, (first, calls.last), &calls.task);
    }

    fn caller(&mut self, owner: Owner, time: u64) -> &mut Caller {
        let others = Owner {
            kind: owner::OTHERS,
            id: 0,
        };
        if !self.by_owner.contains_key(&owner) && self.by_owner.len() >= MAX_CALLERS {
            // Who has been quiet for a while makes room.
            self.forget_quiet(time, MINUTE);
        }
        let known = self.by_owner.contains_key(&owner) || self.by_owner.len() < MAX_CALLERS;
        let owner = if known { owner } else { others };
        self.by_owner.entry(owner).or_default()
    }

    fn forget_quiet(&mut self, now: u64, time: u64) {
        self.by_owner
            .retain(|_, caller| caller.untold > 0 || caller.last + time > now);
    }

    /// What is to be told now: what is due, or all.
    fn numbers(&mut self, now: u64, all: bool) -> Vec<Number> {
        let mut numbers = Vec::new();
        for (owner, caller) in &mut self.by_owner {
            let mut has_room =
                || self.numbers.has_room(now, SINGLY_OF_ALL) && caller.numbers.has_room(now, 1);
            if caller.untold == 0 || !(all || (now >= caller.due && has_room())) {
                continue;
            }
            let count = std::mem::take(&mut caller.untold);
            caller.before += count;
            caller.numbers.spend();
            self.numbers.spend();
            numbers.push(Number {
                owner: *owner,
                task: caller.task,
                count,
                total: caller.before,
                first: caller.first,
                last: caller.last,
            });
        }
        self.forget_quiet(now, HOUR);
        numbers
    }
}

impl Caller {
    fn count(&mut self, count: u64, (first, last): (u64, u64), task: &KernelTask) {
        if self.untold == 0 {
            (self.first, self.due) = (first, last + FIRST);
        }
        self.untold += count;
        (self.last, self.task) = (last, *task);
    }
}

impl Live {
    /// Tells what untrusted callers did that was not told one by one.
    pub(super) fn tell_callers(&mut self, now: u64, all: bool, out: &mut Vec<Event>) {
        if let Some(probes) = &mut self.probes {
            self.callers.withheld(&probes.withheld(now), now);
        }
        for number in self.callers.numbers(now, all) {
            let Number {
                owner,
                task,
                count,
                total,
                first,
                last,
            } = number;
            let uid = match owner.kind {
                owner::OTHERS => None,
                owner::USER => Some(owner.id),
                _ => Some(task.euid),
            };
            let task = (owner.kind != owner::OTHERS).then(|| {
                let pod = self.owners.of(&task);
                tasks::task(&task, pod, self.clock)
            });
            out.push(Event {
                time: self.time(last),
                what: What::UntrustedCalls {
                    uid,
                    task,
                    count,
                    total,
                    since: self.time(first),
                },
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use node_tracer_ebpf::record::Calls;

    use super::*;

    fn user(id: u32) -> Owner {
        Owner {
            kind: owner::USER,
            id,
        }
    }

    fn admitted(callers: &mut Callers, owner: Owner, calls: u64, from: u64) -> usize {
        let task = KernelTask::default();
        let times = (0..calls).map(|call| from + call);
        times
            .filter(|time| callers.admits(owner, &task, *time))
            .count()
    }

    #[test]
    fn a_flood_is_told_as_a_number_and_each_call_once() {
        let mut callers = Callers::default();
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
        callers.withheld(&[withheld], start + SECOND);
        assert_eq!(callers.numbers(start + SECOND, false), [], "not at once");
        let numbers = callers.numbers(start + 6 * SECOND, false);
        assert_eq!(numbers.len(), 1);
        assert_eq!(numbers[0].count, 20_005 - u64::from(SINGLY));
        assert_eq!(callers.numbers(start + MINUTE, true), [], "told already");
    }

    #[test]
    fn numbers_of_one_caller_are_ever_further_apart() {
        let mut callers = Callers::default();
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
        let mut callers = Callers::default();
        admitted(&mut callers, user(1000), 20_000, SECOND);
        assert_eq!(admitted(&mut callers, user(1001), 1, 2 * SECOND), 1);
    }

    #[test]
    fn many_users_are_others() {
        let mut callers = Callers::default();
        let singly: usize = (0..10_000)
            .map(|id| admitted(&mut callers, user(id), 2, SECOND))
            .sum();
        assert_eq!(singly, SINGLY_OF_ALL as usize);
        let numbers = callers.numbers(2 * SECOND, true);
        assert!(numbers.len() <= MAX_CALLERS + 1, "{}", numbers.len());
        let told: u64 = numbers.iter().map(|number| number.count).sum();
        assert_eq!(told, 20_000 - u64::from(SINGLY_OF_ALL));
    }

    /// Calls that are told singly and numbers that are told, of one caller that
    /// calls at these seconds of a day.
    fn told_in_a_day(calls: impl Fn(u64) -> bool) -> (usize, usize) {
        let mut callers = Callers::default();
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
        let mut callers = Callers::default();
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
