//! Tasks in uninterruptible sleep: found asleep, past the threshold, awake
//! again.

use std::collections::HashMap;

use node_tracer_ebpf::record::Task as KernelTask;

use super::{Live, MILLISECOND, SECOND, tasks};
use crate::{
    clock::monotonic_now as now,
    event::{Event, What},
    source::ebpf::inventory::TaskEntry,
};

/// A stall that was told.
#[derive(Debug)]
pub(super) struct Told {
    task: KernelTask,
    since: u64,
    /// Looks in a row in which it did not sleep.
    awake: u32,
}

/// Stalls whose end is checked; beyond, only their records end them.
const MAX_TOLD: usize = 8192;

impl Live {
    /// Tasks that slept already. When a task last ran is known by the
    /// scheduler's clock.
    pub(super) fn stock_of_stalls(&mut self, all: &[TaskEntry], start: u64, out: &mut Vec<Event>) {
        // Each CPU counts for itself, so a task is compared with whatever ran
        // last on its CPU; where that is long ago the stall seems shorter.
        let mut newest: HashMap<u32, u64> = HashMap::new();
        for TaskEntry { row, .. } in all.iter().filter(|entry| entry.row.cpu != u32::MAX) {
            let newest = newest.entry(row.cpu).or_default();
            *newest = row.exec_start.max(*newest);
        }
        let threshold = u64::try_from(self.config.stall_threshold.as_nanos()).unwrap_or(u64::MAX);
        for entry in all.iter().filter(|entry| tasks::is_blocked(&entry.row)) {
            let asleep = match entry.row.exec_start {
                0 => 0,
                last_ran => newest
                    .get(&entry.row.cpu)
                    .map_or(0, |now| now.saturating_sub(last_ran)),
            };
            let since = start.saturating_sub(asleep);
            let tid = entry.row.task.tid;
            let reported = asleep >= threshold;
            match &mut self.polled {
                Some(polled) => polled.seed(entry.row.task, since, reported),
                None => self.note(|probes| probes.add_blocked(tid, since)),
            }
            if reported {
                if self.polled.is_none() {
                    self.note(|probes| probes.mark_reported(tid, since));
                }
                out.push(self.blocked(entry, since, true));
            }
        }
    }

    pub(super) fn look_at_stalls(&mut self, time: u64, out: &mut Vec<Event>) {
        let threshold = self.config.stall_threshold;
        if let (None, Some(probes)) = (&self.polled, &self.probes) {
            let look = probes.blocked(time, threshold);
            self.due.stalls = look.next;
            if look.due.is_empty() {
                return;
            }
            match self.list_tasks(true) {
                Ok(outside) => self.tell_stalls(&outside, look.due, out),
                Err(error) => self.failed(&error),
            }
            return;
        }
        let threshold = u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX);
        self.due.stalls = time + (threshold / 4).clamp(50 * MILLISECOND, SECOND);
        let outside = match self.list_tasks(true) {
            Ok(outside) => outside,
            Err(error) => return self.failed(&error),
        };
        let look = self
            .polled
            .as_mut()
            .map(|polled| polled.look(&outside, time, threshold));
        let look = look.unwrap_or_default();
        for (task, since) in look.awake {
            let event = self.unblocked(&task, since, time);
            out.push(event);
        }
        if !look.due.is_empty() {
            self.tell_stalls(&outside, look.due, out);
        }
    }

    fn tell_stalls(&mut self, outside: &[TaskEntry], due: HashMap<u32, u64>, out: &mut Vec<Event>) {
        let rows: HashMap<u32, &TaskEntry> = outside
            .iter()
            .map(|entry| (entry.row.task.tid, entry))
            .collect();
        // All in one go: of a thousand that hang on one disk, one by one takes
        // so long that what happens meanwhile may find no room.
        let processes = due
            .keys()
            .filter_map(|tid| rows.get(tid))
            .filter(|entry| !tasks::is_kernel_thread(&entry.row));
        let keys: Vec<(u32, u64)> = processes.map(|entry| tasks::key(&entry.row.task)).collect();
        self.owners.look_up(&keys);
        for (tid, since) in due {
            match rows.get(&tid) {
                Some(entry) if tasks::is_blocked(&entry.row) => {
                    if self.polled.is_none() {
                        self.note(|probes| probes.mark_reported(tid, since));
                    }
                    out.push(self.blocked(entry, since, false));
                }
                _ => self.forget_blocked(tid, since),
            }
        }
        if self.holders.may_look(now()) {
            self.look_at_holders(outside, false, out);
        } else {
            self.due.holders_at(self.holders.not_before());
        }
    }

    fn forget_blocked(&mut self, tid: u32, since: u64) {
        if let Some(probes) = &mut self.probes {
            probes.forget_blocked(tid, since);
        }
    }

    /// Ends stalls that were told and are over without a record of it: one
    /// can get lost, and a thaw wakes nobody.
    pub(super) fn check_told(&mut self, outside: &[TaskEntry], out: &mut Vec<Event>) {
        if self.polled.is_some() || self.told.is_empty() {
            return;
        }
        let blocked: HashMap<u32, u64> = outside
            .iter()
            .filter(|entry| tasks::is_blocked(&entry.row))
            .map(|entry| tasks::key(&entry.row.task))
            .collect();
        let mut over = Vec::new();
        for (tid, told) in &mut self.told {
            if blocked.get(tid) == Some(&told.task.start_boottime) {
                told.awake = 0;
            } else {
                // Twice: the record may be on its way.
                told.awake += 1;
                if told.awake > 1 {
                    over.push(*tid);
                }
            }
        }
        for tid in over {
            if let Some(told) = self.told.remove(&tid) {
                self.forget_blocked(tid, told.since);
                let event = self.unblocked(&told.task, told.since, now());
                out.push(event);
            }
        }
    }

    pub(super) fn unblocked(&mut self, task: &KernelTask, since: u64, time: u64) -> Event {
        let owner = self.owners.of(task);
        Event {
            time: self.time(time),
            what: What::TaskUnblocked {
                task: tasks::task(task, owner, self.clock),
                since: self.time(since),
                duration_ms: time.saturating_sub(since) / MILLISECOND,
            },
        }
    }

    fn blocked(&mut self, entry: &TaskEntry, since: u64, found: bool) -> Event {
        let row = &entry.row;
        let tid = row.task.tid;
        // Polling finds the end of a stall by itself.
        if self.polled.is_none() && self.told.len() < MAX_TOLD {
            self.told.insert(
                tid,
                Told {
                    task: row.task,
                    since,
                    awake: 0,
                },
            );
        }
        let netns = self.netns_of_row(row);
        let owner = match tasks::is_kernel_thread(row) {
            true => None,
            false => self.owners.of(&row.task),
        };
        let mut stack = tasks::stack(entry, self.symbols.as_ref());
        if stack.is_empty() {
            stack = self.procfs.kernel_stack(tid).unwrap_or_default();
        }
        let wchan = self
            .procfs
            .wchan(tid)
            .ok()
            .flatten()
            .or_else(|| tasks::wchan(&stack));
        Event {
            time: self.time(now()),
            what: What::TaskBlocked {
                task: tasks::task_of_row(row, owner, self.clock),
                since: self.time(since),
                found,
                netns,
                wchan,
                stack,
            },
        }
    }
}
