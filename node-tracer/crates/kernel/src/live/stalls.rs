//! Tasks in uninterruptible sleep: found asleep, past the threshold, awake
//! again.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use node_tracer_ebpf::record::{
    MAX_OF_CROWD, MAX_OF_CROWDS, Owner, Task as KernelTask, TaskRow, all_crowds,
};

use super::{
    Live, MILLISECOND, SECOND,
    crowds::{Joined, Left, has_room},
    inventory::{self, Awake, Polled},
    tasks,
};
use crate::ebpf::{Probes, inventory::TaskEntry};
use event::{Event, NotStuck, What, sleep};
use node::procfs::{Procfs, Stall};
use sys::clock::monotonic_now as now;

/// A stall that was told.
#[derive(Debug)]
pub(super) struct ReportedStall {
    task: KernelTask,
    since: u64,
    /// Looks in a row in which it did not sleep.
    awake: u32,
}

/// The host's own stalls whose end is checked; beyond, only their records end
/// them. Of others so many are as their crowds follow.
pub(super) const MAX_TOLD: usize = 8192;
/// Tasks that give no answer before no more are asked for: they wait for the
/// same lock.
const MAX_UNREAD: usize = 2;

/// Tasks that a list lacks, asked for one by one.
#[derive(Debug, Default)]
struct Asked {
    found: Vec<TaskEntry>,
    /// Nothing is known of these. What is in neither has ended.
    unread: BTreeSet<u32>,
}

impl Asked {
    /// Asks for those of these threads that are not listed.
    fn for_unlisted(
        procfs: &Procfs,
        list: &[TaskEntry],
        threads: impl Iterator<Item = u32>,
    ) -> Self {
        let listed: HashSet<u32> = list.iter().map(|entry| entry.row.task.tid).collect();
        let mut asked = Self::default();
        let mut found = Vec::new();
        for tid in threads.filter(|tid| !listed.contains(tid)) {
            if asked.unread.len() >= MAX_UNREAD {
                asked.unread.insert(tid);
                continue;
            }
            match procfs.task(tid) {
                Some(task) => found.push(task),
                None if procfs.folder().join(tid.to_string()).exists() => {
                    asked.unread.insert(tid);
                }
                None => {}
            }
        }
        asked.found = inventory::entries(procfs, &found);
        asked
    }
}

/// What the kernel's table has room for, of those that sleep at the start: as
/// much as its own programs give them later.
#[derive(Debug, Default)]
struct Room {
    of_crowd: HashMap<u32, i64>,
}

impl Room {
    fn takes(&mut self, crowd: u32) -> bool {
        if crowd == 0 {
            return true;
        }
        // At the beginning of each half there is no crowd.
        let both = [(crowd, MAX_OF_CROWD), (all_crowds(crowd), MAX_OF_CROWDS)];
        let entries = |number: &u32| self.of_crowd.get(number).copied().unwrap_or(0);
        let room = both.iter().all(|(number, most)| entries(number) < *most);
        for (number, _) in both.iter().filter(|_| room) {
            *self.of_crowd.entry(*number).or_default() += 1;
        }
        room
    }
}

/// Room for those that the kernel's table has none for, by owner.
#[derive(Debug, Default)]
struct Shares {
    of_owner: HashMap<Owner, usize>,
    of_all: usize,
}

impl Shares {
    fn takes(&mut self, owner: Owner) -> bool {
        let own = self.of_owner.entry(owner).or_default();
        let room = has_room(*own, self.of_all);
        *own += usize::from(room);
        self.of_all += usize::from(room);
        room
    }
}

/// Whether who answers for a task is the host itself.
fn is_hosts(owner: Owner) -> bool {
    owner == Owner::HOST
}

impl Live {
    /// Tasks that slept already. When a task last ran is known by the
    /// scheduler's clock.
    pub(super) fn stock_of_stalls(&mut self, all: &[TaskEntry], start: u64, out: &mut Vec<Event>) {
        let blocked: Vec<&TaskEntry> = all.iter().filter(|e| tasks::is_blocked(e)).collect();
        let tids = blocked.iter().map(|entry| entry.row.task.tid).collect();
        let dated = self.procfs.apart().dated(tids);
        let dated: HashMap<u32, Stall> = dated.into_iter().map(|it| (it.tid, it)).collect();
        // Where the CPU's own clock cannot be read, a task is compared with
        // whatever ran last on its CPU; if that is long ago the stall seems
        // shorter.
        let mut newest: HashMap<u32, u64> = HashMap::new();
        for TaskEntry { row, .. } in all.iter().filter(|entry| entry.row.cpu != u32::MAX) {
            let newest = newest.entry(row.cpu).or_default();
            *newest = row.exec_start.max(*newest);
        }
        let threshold = nanos(self.config.stall_threshold);
        let mut room = Room::default();
        let mut shares = Shares::default();
        for entry in blocked {
            let tid = entry.row.task.tid;
            let dated = dated.get(&tid);
            let since = match (dated, entry.row.exec_start) {
                (Some(stall), _) => now().saturating_sub(stall.so_far()),
                (None, 0) => start,
                (None, last_ran) => {
                    let newest = newest.get(&entry.row.cpu);
                    start
                        - newest
                            .map_or(0, |now| now.saturating_sub(last_ran))
                            .min(start)
                }
            };
            if dated.is_none() {
                self.undated.insert(tid, since);
            }
            let reported = now().saturating_sub(since) >= threshold;
            let probes = self.probes.as_ref();
            let crowd = probes.map_or(0, |probes| probes.crowd(entry.row.owner));
            match &mut self.polled {
                Some(polled) => polled.seed(&entry.row, since, reported),
                None if room.takes(crowd) => {
                    self.note(|probes| probes.add_blocked(&entry.row, since));
                }
                None if !shares.takes(entry.row.owner) => {}
                None => {
                    let start = entry.row.task.start_boottime;
                    self.unfollowed.insert(tid, (start, since));
                }
            }
            if reported {
                if self.polled.is_none() {
                    self.note(|probes| probes.mark_reported(tid, since));
                }
                out.extend(self.blocked(entry, since));
            }
        }
    }

    /// Has it looked for tasks that the kernel's table has no entry of, if there
    /// are such: some sleep for long, and most have gone on by then.
    pub(super) fn look_for_unfollowed(&mut self, time: u64) {
        let new = self.probes.as_mut().map_or(0, Probes::unfollowed);
        let uncounted = self.crowds.both().map(|crowds| crowds.has_uncounted());
        let some = new > 0 || !self.unfollowed.is_empty() || uncounted.contains(&true);
        if some && self.polled.is_none() && self.due.unfollowed.is_none() {
            let pause = nanos(self.config.stall_threshold).max(SECOND);
            self.due.unfollowed = Some(time + pause);
        }
    }

    /// Who is found asleep twice may have run in between: see [`Self::date`].
    pub(super) fn look_at_unfollowed(&mut self, time: u64, out: &mut Vec<Event>) {
        self.due.unfollowed = None;
        let Some(followed) = self.probes.as_ref().map(Probes::followed) else {
            return;
        };
        let outside = match self.list_tasks(true) {
            Ok(outside) => outside,
            Err(error) => return self.failed(&error),
        };
        let threshold = nanos(self.config.stall_threshold);
        let before = std::mem::take(&mut self.unfollowed);
        let mut left = HashSet::new();
        for crowds in self.crowds.both() {
            left.extend(crowds.uncounted());
            crowds.look();
        }
        let mut due = HashMap::new();
        let mut shares = Shares::default();
        for entry in outside.iter().filter(|entry| tasks::is_blocked(entry)) {
            let TaskRow { task, owner, .. } = entry.row;
            let (tid, start_boottime) = (task.tid, task.start_boottime);
            let crowds = self.crowds.of(owner);
            // Of who was not counted, what the kernel's table has is looked at, too:
            // it was due once, and is not due again.
            let is_left = left.contains(&owner) && !crowds.has(tid);
            let is_followed = followed.contains(&tid) && !is_left;
            if is_followed || self.told.contains_key(&tid) || crowds.has(tid) {
                continue;
            }
            let crowds = self.crowds.of(owner);
            if !is_hosts(owner) && !crowds.follows(owner) {
                crowds.found_more(owner);
                continue;
            }
            if !shares.takes(owner) {
                continue;
            }
            let known = before
                .get(&tid)
                .filter(|(start, _)| *start == start_boottime);
            let since = known.map_or(time, |(_, since)| *since);
            if time.saturating_sub(since) >= threshold {
                due.insert(tid, since);
            }
            self.unfollowed.insert(tid, (start_boottime, since));
        }
        if !due.is_empty() {
            self.date(&mut due, threshold);
            self.tell_stalls(&outside, due, out);
        }
    }

    pub(super) fn look_at_stalls(&mut self, time: u64, out: &mut Vec<Event>) {
        let threshold = self.config.stall_threshold;
        if let (None, Some(probes)) = (&self.polled, &self.probes) {
            let mut look = probes.blocked(time, threshold);
            self.due.stalls = look.next;
            if look.due.is_empty() {
                return;
            }
            match self.list_tasks(true) {
                Ok(mut outside) => {
                    let asked = self.ask_for(&outside, look.due.keys().copied());
                    outside.extend(asked.found);
                    // Those are still due at the next look.
                    look.due.retain(|tid, _| !asked.unread.contains(tid));
                    self.tell_stalls(&outside, look.due, out);
                }
                Err(error) => self.failed(&error),
            }
            return;
        }
        let threshold = nanos(threshold);
        self.due.stalls = time + (threshold / 4).clamp(50 * MILLISECOND, SECOND);
        let mut outside = match self.list_tasks(true) {
            Ok(outside) => outside,
            Err(error) => return self.failed(&error),
        };
        let asleep = self.polled.iter().flat_map(|polled| polled.asleep());
        let asked = self.ask_for(&outside, asleep);
        outside.extend(asked.found);
        let look = self
            .polled
            .as_mut()
            .map(|polled| polled.look(&outside, &asked.unread, time, threshold));
        let mut look = look.unwrap_or_default();
        self.find_uncounted(&mut look.due);
        for Awake { task, owner, since } in look.awake {
            if self.is_counted(task.tid) || self.tells_end(owner, time) {
                out.extend(self.unblocked(&task, since, time));
            }
        }
        if !look.due.is_empty() {
            self.date(&mut look.due, threshold);
            self.tell_stalls(&outside, look.due, out);
        }
    }

    /// Who was not counted when the stall was due is so again, once there is room.
    fn find_uncounted(&mut self, due: &mut HashMap<u32, u64>) {
        let uncounted = self.crowds.both().map(|crowds| crowds.has_uncounted());
        if !uncounted.contains(&true) {
            return;
        }
        for crowds in self.crowds.both() {
            crowds.look();
        }
        let mut shares = Shares::default();
        for (tid, owner, since) in self.polled.iter().flat_map(Polled::reported) {
            let crowds = self.crowds.of(owner);
            if is_hosts(owner) || crowds.has(tid) {
                continue;
            }
            if !crowds.follows(owner) {
                crowds.found_more(owner);
            } else if shares.takes(owner) {
                due.insert(tid, since);
            }
        }
    }

    /// What was found asleep look after look may have run in between, as a busy
    /// disk's user does: the kernel is asked since when they sleep. Who has run
    /// is not due. Of those of which the kernel does not say it, that they were
    /// seen to sleep is all that is known.
    fn date(&mut self, due: &mut HashMap<u32, u64>, threshold: u64) {
        self.undated.extend(due.iter());
        let asked = due.keys().copied().collect();
        for stall in self.procfs.apart().dated(asked) {
            let slept = stall.so_far();
            let since = now().saturating_sub(slept);
            self.undated.remove(&stall.tid);
            if slept >= threshold {
                due.insert(stall.tid, since);
            } else {
                due.remove(&stall.tid);
            }
            if let Some(polled) = &mut self.polled {
                polled.dated(stall.tid, since, slept >= threshold);
            }
        }
    }

    /// Those of these threads that are not on the last list of tasks, if it may
    /// lack some.
    fn ask_for(&self, list: &[TaskEntry], threads: impl Iterator<Item = u32>) -> Asked {
        match self.tasks_whole {
            true => Asked::default(),
            false => Asked::for_unlisted(&self.procfs, list, threads),
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
        let woken = std::mem::take(&mut self.woken);
        for (tid, since) in due {
            let entry = rows.get(&tid);
            match entry.map(|entry| (entry, entry.not_stuck)) {
                Some((entry, None)) if tasks::is_blocked(entry) => {
                    let event = self.blocked(entry, since);
                    if self.polled.is_none() {
                        self.note(|probes| probes.mark_reported(tid, since));
                    }
                    out.extend(event);
                }
                // It stays one for as long as it sleeps.
                Some((_, Some(NotStuck::Vfork | NotStuck::Reader))) if self.polled.is_none() => {
                    self.saw_not_stuck(tid, since);
                    self.note(|probes| probes.mark_reported(tid, since));
                }
                // It may be stuck once it is thawed: it is due again.
                Some((_, Some(NotStuck::Frozen))) => self.saw_not_stuck(tid, since),
                // It has been woken and waits for a CPU. Its end is recorded
                // when it runs; one that is seen awake twice has run unseen.
                Some(_) if woken.get(&tid) != Some(&since) => {
                    self.woken.insert(tid, since);
                }
                _ => self.forget_blocked(tid, since),
            }
        }
        let start = now();
        if self.holders.may_look(start) {
            self.look_at_holders(outside, false, out);
            self.holders.looked(start, now());
        } else {
            self.due.holders_at(self.holders.not_before());
        }
    }

    fn saw_not_stuck(&mut self, tid: u32, since: u64) {
        if self.not_stuck.len() < MAX_TOLD {
            self.not_stuck.insert(tid, since);
        }
    }

    fn forget_blocked(&mut self, tid: u32, since: u64) {
        if let Some(probes) = &mut self.probes {
            probes.forget_blocked(tid, since);
        }
    }

    /// Ends stalls that were told and are over without a record of it: one
    /// can get lost.
    pub(super) fn check_told(&mut self, outside: &[TaskEntry], out: &mut Vec<Event>) {
        if self.polled.is_some() || self.told.is_empty() {
            return;
        }
        let asked = self.ask_for(outside, self.told.keys().copied());
        // One that was stuck and is frozen now has not gone on.
        let sleeps = |entry: &&TaskEntry| {
            tasks::is_blocked(entry) || entry.not_stuck == Some(NotStuck::Frozen)
        };
        let blocked: HashMap<u32, u64> = outside
            .iter()
            .chain(&asked.found)
            .filter(sleeps)
            .map(|entry| tasks::key(&entry.row.task))
            .collect();
        let mut over = Vec::new();
        for (tid, told) in &mut self.told {
            if blocked.get(tid) == Some(&told.task.start_boottime) {
                told.awake = 0;
            } else if !asked.unread.contains(tid) {
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
                out.extend(self.unblocked(&told.task, told.since, now()));
            }
        }
    }

    /// The end of a stall, unless it was told as one of many.
    pub(super) fn unblocked(&mut self, task: &KernelTask, since: u64, time: u64) -> Option<Event> {
        self.undated.remove(&task.tid);
        let crowds = self.crowds.both();
        let left = crowds.map(|crowds| crowds.leaves(task.tid));
        if left.contains(&Left::Counted) {
            return None;
        }
        Some(self.over(task, since, time))
    }

    fn over(&mut self, task: &KernelTask, since: u64, time: u64) -> Event {
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

    /// Whether a task is one of those of a crowd that are followed.
    pub(super) fn is_counted(&mut self, tid: u32) -> bool {
        let mut crowds = self.crowds.both().into_iter();
        crowds.any(|crowds| crowds.has(tid))
    }

    /// Whether the end of a stall that was never told is. If not, it is counted.
    pub(super) fn tells_end(&mut self, owner: Owner, time: u64) -> bool {
        is_hosts(owner) || self.crowds.of(owner).tells_end(owner, time)
    }

    /// A stall, unless it is told as one of many.
    fn blocked(&mut self, entry: &TaskEntry, since: u64) -> Option<Event> {
        let row = &entry.row;
        let tid = row.task.tid;
        // Where only looks tell, the first one is when it was first seen.
        let found = self.undated.get(&tid) == Some(&since);
        let joined = match is_hosts(row.owner) {
            true => Joined::Alone,
            false => {
                let crowds = self.crowds.of(row.owner);
                crowds.joins(row.owner, since, &row.task, now())
            }
        };
        if joined == Joined::Uncounted {
            self.undated.remove(&tid);
            return None;
        }
        // Polling finds the end of a stall by itself.
        let of_crowds: usize = self.crowds.both().map(|crowds| crowds.len()).iter().sum();
        if self.polled.is_none() && self.told.len() < MAX_TOLD + of_crowds {
            self.told.insert(
                tid,
                ReportedStall {
                    task: row.task,
                    since,
                    awake: 0,
                },
            );
        }
        match joined {
            Joined::Counted => return None,
            Joined::AloneNoMore(before) => return Some(self.over(&row.task, before, since)),
            Joined::Alone | Joined::Uncounted => {}
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
            .or_else(|| sleep::function(&stack, None).map(str::to_owned));
        let fuse = self
            .fuse
            .waited_for(&self.procfs, tid, &stack, wchan.as_deref());
        let mut task = tasks::listed(entry, owner, self.clock);
        task.uid = tasks::user(row);
        Some(Event {
            time: self.time(now()),
            what: What::TaskBlocked {
                task,
                since: self.time(since),
                found,
                netns,
                wchan,
                stack,
                killable: tasks::is_killable(entry, self.iterators.tasks),
                sigkill_pending: self.procfs.sigkill_pending(tid),
                fuse,
            },
        })
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use node::procfs::Bounded;

    fn process(root: &Path, pid: u32, stat: &str) {
        let folder = root.join(format!("proc/{pid}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("status"), format!("Tgid:\t{pid}\n")).unwrap();
        fs::write(folder.join("stat"), stat).unwrap();
    }

    fn sleeper(root: &Path, pid: u32) {
        let zeros = " 0".repeat(30);
        let stat = format!("{pid} (app) D 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 4711{zeros}\n");
        process(root, pid, &stat);
    }

    fn unreadable(root: &Path, pid: u32) {
        process(root, pid, &format!("{pid} (app) ?\n"));
    }

    fn asked(root: &Path, list: &[TaskEntry], threads: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let procfs = Procfs::new(root, Bounded::default());
        let asked = Asked::for_unlisted(&procfs, list, threads.iter().copied());
        let found = asked.found.iter().map(|entry| entry.row.task.tid);
        (found.collect(), asked.unread.into_iter().collect())
    }

    #[test]
    fn who_sleeps_at_the_start_gets_no_more_room_than_later() {
        let mut room = Room::default();
        let taken = |room: &mut Room, crowd| (0..600).filter(|_| room.takes(crowd)).count();
        assert_eq!(taken(&mut room, 7), MAX_OF_CROWD as usize);
        assert_eq!(taken(&mut room, 0), 600);
        let others: usize = (8..1_000).map(|crowd| taken(&mut room, crowd)).sum();
        assert_eq!(others as i64, MAX_OF_CROWDS - MAX_OF_CROWD);
        let container = node_tracer_ebpf::record::CROWDS / 2 + 7;
        assert_eq!(taken(&mut room, container), MAX_OF_CROWD as usize);
    }

    #[test]
    fn who_has_few_beyond_the_kernels_table_finds_room_beside_who_has_many() {
        let mut shares = Shares::default();
        let owner = |id| Owner {
            kind: node_tracer_ebpf::record::owner::USER,
            id,
        };
        for id in 1..100 {
            let taken = (0..17_000).filter(|_| shares.takes(owner(id))).count();
            assert!((3..=1_024).contains(&taken), "{taken}");
        }
        assert!((0..3).all(|_| shares.takes(owner(100))));
    }

    #[test]
    fn a_list_that_lacks_a_task_does_not_say_that_it_has_woken() {
        let root = tempfile::tempdir().unwrap();
        sleeper(root.path(), 7);
        sleeper(root.path(), 8);
        unreadable(root.path(), 9);
        let procfs = Procfs::new(root.path(), Bounded::default());
        let listed = inventory::entries(&procfs, &[procfs.task(7).unwrap()]);
        let (found, unread) = asked(root.path(), &listed, &[7, 8, 9, 10]);
        assert_eq!((found, unread), (vec![8], vec![9]), "10 has ended");
    }

    #[test]
    fn a_sleeper_that_only_proc_tells_of_is_its_owners() {
        let root = tempfile::tempdir().unwrap();
        for (pid, mounts) in [(1, 10), (7, 11), (8, 11), (9, 12)] {
            sleeper(root.path(), pid);
            let folder = root.path().join(format!("proc/{pid}/ns"));
            fs::create_dir_all(&folder).unwrap();
            std::os::unix::fs::symlink(format!("mnt:[{mounts}]"), folder.join("mnt")).unwrap();
            std::os::unix::fs::symlink("user:[20]", folder.join("user")).unwrap();
        }
        let procfs = Procfs::new(root.path(), Bounded::default());
        let asked = Asked::for_unlisted(&procfs, &[], [7, 8, 9].into_iter());
        let owners = asked.found.iter().map(|entry| entry.row.owner);
        let container = |id| Owner {
            kind: node_tracer_ebpf::record::owner::CONTAINER,
            id,
        };
        let expected = [container(11), container(11), container(12)];
        assert_eq!(owners.collect::<Vec<_>>(), expected);
        let nobody = inventory::owners(&procfs, vec![77]).next();
        assert_eq!(nobody, Some(Owner::default()));
    }

    #[test]
    fn a_task_that_is_asked_for_is_as_on_the_list() {
        let root = tempfile::tempdir().unwrap();
        sleeper(root.path(), 8);
        let procfs = Procfs::new(root.path(), Bounded::default());
        let asked = Asked::for_unlisted(&procfs, &[], [8].into_iter());
        let row = &asked.found[0].row;
        assert!(tasks::is_blocked(&asked.found[0]));
        assert_eq!(tasks::key(&row.task), (8, 47_110_000_000));
    }

    #[test]
    fn where_some_give_no_answer_the_others_are_not_asked_for() {
        let root = tempfile::tempdir().unwrap();
        for pid in [7, 8] {
            unreadable(root.path(), pid);
        }
        sleeper(root.path(), 9);
        let (found, unread) = asked(root.path(), &[], &[7, 8, 9]);
        assert_eq!((found, unread), (vec![], vec![7, 8, 9]));
    }
}
