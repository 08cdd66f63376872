//! Since when a task has been in uninterruptible sleep, from one look.
//!
//! The scheduler notes when a task last ran, by the clock of the CPU that it
//! ran on (`se.exec_start` in `/proc/TID/sched`). That clock stands still while
//! the CPU serves interrupts or is taken away by a hypervisor, so it lags behind
//! all others, by a different amount on each CPU: it can only be compared with
//! itself. A thread that has just been moved to the CPU finds the present in its
//! own `se.exec_start`. The age is right to a few milliseconds, less what the
//! clock stood still meanwhile: the sleep is never shorter than told.
//!
//! Where that does not work (a kernel without `/proc/TID/sched`, a CPU that the
//! tracer may not run on), a task is watched: it sleeps for as long as it has
//! not been switched to. It counts if the threshold is over by the end of
//! [`WATCH`]; with a longer one it is told apart, as a task of which it is not
//! known whether it is stuck. An ordinary wait for a disk is over by then.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use ::procfs::ProcError;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::{Missed, Procfs, ProcfsError, read_file, read_stat};

/// How long a task is watched whose sleep's age cannot be read.
const WATCH: Duration = Duration::from_secs(1);

/// How long the clocks of all CPUs may take together. A CPU that is busy lets
/// the thread wait for its turn.
const CLOCKS: Duration = Duration::from_millis(500);

/// A task in uninterruptible sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    pub tid: u32,
    /// When it slept for at least as long as `age`.
    pub seen: Instant,
    pub age: Duration,
    /// This is when it went to sleep; if not, it was seen to sleep then.
    pub dated: bool,
}

/// The tasks in uninterruptible sleep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Those that have been for the threshold.
    pub stuck: Vec<Stall>,
    /// Those of which it cannot be told whether they have.
    pub undated: Vec<Stall>,
    /// Those that could not be looked at.
    pub missed: Missed,
}

/// One look at a task that sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SleepSample {
    tid: u32,
    /// With the thread ID it names the task for good.
    start: u64,
    /// The CPU that it last ran on.
    cpu: Option<usize>,
    /// When that was, ns by the CPU's clock.
    last_ran: Option<u64>,
}

impl Stall {
    /// For how long it has slept by now, ns.
    pub fn so_far(&self) -> u64 {
        let so_far = self.age.saturating_add(self.seen.elapsed());
        u64::try_from(so_far.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Procfs {
    /// Those of the tasks that are in uninterruptible sleep, by whether they
    /// have been for the threshold; see the module's documentation.
    pub fn stalls(&self, tids: Vec<u32>, threshold: Duration) -> Stalls {
        let (looks, missed) = self.looks(tids);
        let (dated, unknown) = self.date(looks);
        let mut stalls = Stalls {
            stuck: dated,
            missed,
            ..Stalls::default()
        };
        stalls.stuck.retain(|stall| stall.age >= threshold);
        let (watched, missed) = self.watch(unknown, WATCH.min(threshold));
        stalls.missed = stalls.missed.and(missed);
        for stall in watched {
            if stall.age >= threshold {
                stalls.stuck.push(stall);
            } else {
                stalls.undated.push(stall);
            }
        }
        stalls
    }

    /// Those of the tasks that are in uninterruptible sleep and of which the
    /// kernel tells since when. Nobody is watched.
    pub fn dated(&self, tids: Vec<u32>) -> Vec<Stall> {
        self.date(self.looks(tids).0).0
    }

    /// Since when these sleep, and those of which that is not known.
    fn date(&self, looks: Vec<SleepSample>) -> (Vec<Stall>, Vec<SleepSample>) {
        let start = Instant::now();
        let cpus: BTreeSet<usize> = looks
            .iter()
            .filter_map(|look| look.last_ran.and(look.cpu))
            .collect();
        let mut clocks = BTreeMap::new();
        for cpu in cpus {
            if start.elapsed() > CLOCKS {
                break;
            }
            clocks.extend(self.cpu_clock(cpu).map(|now| (cpu, (Instant::now(), now))));
        }
        let (mut dated, mut unknown) = (Vec::new(), Vec::new());
        for look in looks {
            let clock = look.cpu.and_then(|cpu| clocks.get(&cpu));
            match (look.last_ran, clock) {
                (Some(last_ran), Some((seen, now))) => dated.push(Stall {
                    tid: look.tid,
                    seen: *seen,
                    age: Duration::from_nanos(now.saturating_sub(last_ran)),
                    dated: true,
                }),
                _ => unknown.push(look),
            }
        }
        (dated, unknown)
    }

    /// The tasks that sleep through `time`.
    fn watch(&self, before: Vec<SleepSample>, time: Duration) -> (Vec<Stall>, Missed) {
        let starts: BTreeMap<u32, u64> = before.iter().map(|look| (look.tid, look.start)).collect();
        let (counted, mut missed) = self.switches(starts.keys().copied().collect());
        let start = Instant::now();
        if counted.is_empty() {
            return (Vec::new(), missed);
        }
        thread::sleep(time);
        let counted: BTreeMap<u32, String> = counted.into_iter().collect();
        let (looks, more) = self.looks(counted.keys().copied().collect());
        missed = missed.and(more);
        let (again, more) = self.switches(looks.iter().map(|look| look.tid).collect());
        missed = missed.and(more);
        let again: BTreeMap<u32, String> = again.into_iter().collect();
        let (seen, age) = (Instant::now(), start.elapsed());
        let same = |look: &&SleepSample| {
            let (before, after) = (counted.get(&look.tid), again.get(&look.tid));
            before.is_some() && before == after && starts.get(&look.tid) == Some(&look.start)
        };
        let same = looks.iter().filter(same);
        let stalls = same.map(|look| Stall {
            tid: look.tid,
            seen,
            age,
            dated: false,
        });
        (stalls.collect(), missed)
    }

    /// Looks at all of these that are in uninterruptible sleep.
    fn looks(&self, tids: Vec<u32>) -> (Vec<SleepSample>, Missed) {
        self.many(tids, |proc, tid| look(&proc.join(tid.to_string()), tid))
    }

    /// How often each of these was switched away from.
    fn switches(&self, tids: Vec<u32>) -> (Vec<(u32, String)>, Missed) {
        self.many(tids, |proc, tid| {
            let path = proc.join(tid.to_string()).join("status");
            let Some(status) = read_file(&path)? else {
                return Ok(None);
            };
            let status = String::from_utf8_lossy(&status);
            let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
            let counts: String = counts.collect();
            if counts.is_empty() {
                let source = ProcError::Incomplete(None);
                return Err(ProcfsError::Format { path, source });
            }
            Ok(Some((tid, counts)))
        })
    }

    /// The present by a CPU's own clock, ns; `None` if the tracer cannot run
    /// there.
    fn cpu_clock(&self, cpu: usize) -> Option<u64> {
        if cpu >= CpuSet::MAX_CPU {
            return None;
        }
        // The thread's move ends with the thread. In a container this is its
        // own proc file system, not the host's.
        let own = Path::new("/proc/thread-self/sched");
        let now = self.bounded(self.patience, own.to_owned(), move |own| {
            let mut only = CpuSet::new();
            only.set(cpu);
            if sched_setaffinity(None, &only).is_err() {
                return Ok(None);
            }
            // Had it been there before, the note would be from the last tick.
            thread::yield_now();
            last_ran(own)
        });
        now.ok().flatten()
    }
}

/// `None` if the task does not sleep so, or is gone.
fn look(folder: &Path, tid: u32) -> Result<Option<SleepSample>, ProcfsError> {
    let stat = read_stat(&folder.join("stat"))?;
    let look = stat
        .filter(|stat| stat.state == 'D')
        .map(|stat| SleepSample {
            tid,
            start: stat.starttime,
            cpu: stat.processor.and_then(|cpu| usize::try_from(cpu).ok()),
            last_ran: last_ran(&folder.join("sched")).ok().flatten(),
        });
    Ok(look)
}

/// When a task last ran, ns by its CPU's clock; `None` if the kernel does not
/// tell.
fn last_ran(sched: &Path) -> Result<Option<u64>, ProcfsError> {
    let text = read_file(sched)?.unwrap_or_default();
    Ok(exec_start(&String::from_utf8_lossy(&text)))
}

/// `se.exec_start : 801678.547514`, milliseconds; `None` also for one that has
/// been moved since and has no time.
fn exec_start(sched: &str) -> Option<u64> {
    let line = sched
        .lines()
        .find(|line| line.starts_with("se.exec_start"))?;
    let (_, value) = line.split_once(':')?;
    let (millis, nanos) = value.trim().split_once('.')?;
    let nanos: u64 = (nanos.len() == 6).then(|| nanos.parse().ok())??;
    let time = millis
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000)?
        .checked_add(nanos)?;
    (time != 0).then_some(time)
}

#[cfg(feature = "testing")]
pub(super) fn fuzz(text: &str) {
    exec_start(text);
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        sync::atomic::{AtomicBool, Ordering::SeqCst},
    };

    use super::*;
    use crate::procfs::Bounded;

    #[test]
    fn the_time_that_a_task_last_ran_is_read_to_the_nanosecond() {
        let text = "cat (11490, #threads: 1)\n-----\n\
            se.exec_start                                :        717074.076273\n\
            se.vruntime                                  :           190.285355\n";
        assert_eq!(exec_start(text), Some(717_074_076_273));
        assert_eq!(exec_start("se.exec_start : 0.000000\n"), None);
        assert_eq!(exec_start("se.exec_start : 12.5\n"), None, "not its form");
        assert_eq!(exec_start("se.sum_exec_runtime : 1.000000\n"), None);
    }

    fn task(root: &Path, tid: u32, state: char, cpu: usize, sched: Option<u64>) {
        let folder = root.join(format!("proc/{tid}"));
        fs::create_dir_all(&folder).unwrap();
        let zeros = " 0".repeat(16);
        let stat = format!(
            "{tid} (a) {state} 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711{zeros} {cpu}{zeros}\n"
        );
        fs::write(folder.join("stat"), stat).unwrap();
        if let Some(nanos) = sched {
            let (millis, rest) = (nanos / 1_000_000, nanos % 1_000_000);
            let sched = format!("a\nse.exec_start : {millis}.{rest:06}\n");
            fs::write(folder.join("sched"), sched).unwrap();
        }
    }

    fn switches(root: &Path, tid: u32, count: u32) {
        let status = format!(
            "Name:\ta\nvoluntary_ctxt_switches:\t{count}\nnonvoluntary_ctxt_switches:\t0\n"
        );
        fs::write(root.join(format!("proc/{tid}/status")), status).unwrap();
    }

    fn procfs(root: &Path) -> Procfs {
        Procfs::new(root, Bounded::default())
    }

    #[test]
    fn the_age_of_a_sleep_is_told_by_the_cpus_own_clock() {
        let root = tempfile::tempdir().unwrap();
        let procfs = procfs(root.path());
        let Some(now) = procfs.cpu_clock(0) else {
            // A kernel without this file: the next test is of that.
            assert!(!Path::new("/proc/self/sched").exists());
            return;
        };
        let second = 1_000_000_000;
        task(root.path(), 7, 'D', 0, Some(now - 20 * second));
        task(root.path(), 8, 'D', 0, Some(now));
        task(root.path(), 9, 'S', 0, Some(now - 20 * second));
        let stalls = procfs.stalls(vec![7, 8, 9, 10], Duration::from_secs(10));
        assert_eq!((stalls.stuck.len(), stalls.undated.len()), (1, 0));
        assert_eq!((stalls.stuck[0].tid, stalls.stuck[0].dated), (7, true));
        let age = stalls.stuck[0].age.as_secs_f64();
        assert!((20.0..29.0).contains(&age), "{age}");
    }

    #[test]
    fn a_task_whose_sleep_has_no_known_age_is_watched() {
        let root = tempfile::tempdir().unwrap();
        task(root.path(), 7, 'D', 0, None);
        task(root.path(), 8, 'D', 0, None);
        // A CPU that there is none of.
        task(root.path(), 9, 'D', CpuSet::MAX_CPU, Some(5));
        switches(root.path(), 7, 1);
        switches(root.path(), 9, 1);
        let stop = AtomicBool::new(false);
        let threshold = Duration::from_millis(200);
        let stalls = thread::scope(|scope| {
            scope.spawn(|| {
                let mut count = 1;
                while !stop.load(SeqCst) {
                    switches(root.path(), 8, count);
                    count += 1;
                }
            });
            let stalls = procfs(root.path()).stalls(vec![7, 8, 9], threshold);
            stop.store(true, SeqCst);
            stalls
        });
        let tids: Vec<u32> = stalls.stuck.iter().map(|stall| stall.tid).collect();
        assert_eq!((tids, stalls.undated.len()), (vec![7, 9], 0));
        let right = |stall: &Stall| stall.age >= threshold && !stall.dated;
        assert!(stalls.stuck.iter().all(right));
    }

    #[test]
    fn a_sleep_that_was_seen_for_less_than_the_threshold_is_not_told_as_longer() {
        let root = tempfile::tempdir().unwrap();
        task(root.path(), 7, 'D', 0, None);
        switches(root.path(), 7, 1);
        let stalls = procfs(root.path()).stalls(vec![7], Duration::from_secs(5));
        assert_eq!((stalls.stuck.len(), stalls.undated.len()), (0, 1));
        assert!(stalls.undated[0].age >= WATCH && stalls.missed.count == 0);
    }

    #[test]
    fn a_task_that_cannot_be_looked_at_hides_no_other_and_is_counted() {
        let root = tempfile::tempdir().unwrap();
        let hangs = root.path().join("proc/6/stat");
        fs::create_dir_all(hangs.parent().unwrap()).unwrap();
        // Opening it waits for a writer.
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &hangs, kind, mode, 0).unwrap();
        task(root.path(), 7, 'D', 0, None);
        switches(root.path(), 7, 1);
        task(root.path(), 8, 'D', 0, None);
        fs::create_dir(root.path().join("proc/8/status")).unwrap();
        let mut procfs = procfs(root.path());
        procfs.patience = Duration::from_millis(300);
        let stalls = procfs.stalls(vec![6, 7, 8], Duration::from_millis(20));
        let tids: Vec<u32> = stalls.stuck.iter().map(|stall| stall.tid).collect();
        assert_eq!((tids, stalls.missed.count), (vec![7], 2));
        fs::write(hangs, "").unwrap();
    }
}
