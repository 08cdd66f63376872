//! One read of each of many tasks, of which one that hangs costs itself alone.
//!
//! A thread goes from task to task for half of the time that is waited for it,
//! then ends; so one that is not back by then has been stuck in one task for
//! half of that time at least. It is abandoned as [`Bounded`](super::Bounded) says, what it has
//! read is kept, and a new thread goes on with the next task. After a few such
//! tasks the rest is given up: they wait for the same lock, and every wait is
//! one less that others may leave behind.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use super::{NoAnswer, Procfs, ProcfsError};
use event::fault;

/// Tasks of one walk that may hang before the rest is given up.
pub(super) const MAX_HUNG: usize = 2;

/// What a walk has brought.
pub(super) struct Answers<T> {
    /// In the order asked for; `None` for one that did not answer, or was not
    /// asked.
    pub(super) each: Vec<Option<T>>,
    /// Why there was no answer, of the first that gave none.
    pub(super) hung: Option<ProcfsError>,
}

/// What could not be read, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    pub count: usize,
    /// Why, of the first.
    why: Option<String>,
}

impl Missed {
    pub(super) fn add(&mut self, error: &ProcfsError) {
        self.add_all(1, Some(error));
    }

    pub(super) fn add_all(&mut self, count: usize, error: Option<&ProcfsError>) {
        self.count += count;
        if count > 0 && self.why.is_none() {
            self.why = error.map(|error| fault::chain(error));
        }
    }

    /// The sum of two.
    pub fn and(mut self, other: Self) -> Self {
        self.count += other.count;
        self.why = self.why.or(other.why);
        self
    }

    /// In words, if there is anything; `what` says what the number is of.
    pub fn say(&self, what: impl FnOnce(usize) -> String) -> Option<String> {
        let text = (self.count > 0).then(|| what(self.count))?;
        Some(match &self.why {
            Some(why) => format!("{text} ({why})"),
            None => text,
        })
    }
}

/// What the threads of one walk share; one that is abandoned keeps it.
struct Walk<T, F> {
    tasks: Vec<u32>,
    read: F,
    end: Option<Instant>,
    /// The first that nobody has begun with.
    next: AtomicUsize,
    answers: Mutex<Vec<Option<T>>>,
}

impl<T, F: Fn(&Path, u32) -> T> Walk<T, F> {
    fn is_over(&self) -> bool {
        self.next.load(SeqCst) >= self.tasks.len()
            || self.end.is_some_and(|end| Instant::now() >= end)
    }

    fn go(&self, proc: &Path, time: Duration) {
        let start = Instant::now();
        while !self.is_over() && start.elapsed() < time {
            let index = self.next.fetch_add(1, SeqCst);
            let Some(task) = self.tasks.get(index) else {
                return;
            };
            let answer = (self.read)(proc, *task);
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(place) = answers.get_mut(index) {
                *place = Some(answer);
            }
        }
    }
}

impl Procfs {
    /// Reads something of each of these. `patience` is for one that hangs,
    /// `end` for all.
    pub(super) fn each<T, F>(
        &self,
        tasks: Vec<u32>,
        patience: Duration,
        end: Option<Instant>,
        read: F,
    ) -> Answers<T>
    where
        T: Send + 'static,
        F: Fn(&Path, u32) -> T + Send + Sync + 'static,
    {
        let walk = Arc::new(Walk {
            answers: Mutex::new(tasks.iter().map(|_| None).collect()),
            next: AtomicUsize::new(0),
            tasks,
            read,
            end,
        });
        let (mut hung, mut count) = (None, 0);
        while !walk.is_over() && count < MAX_HUNG {
            let (shared, proc) = (Arc::clone(&walk), self.proc.clone());
            let run = self
                .bounded
                .read(patience, move || shared.go(&proc, patience / 2));
            let Err(source) = run else { continue };
            count += 1;
            let goes_on = matches!(source, NoAnswer::TimedOut { .. } | NoAnswer::Panicked);
            let under_way = walk.next.load(SeqCst).saturating_sub(usize::from(goes_on));
            let path = match walk.tasks.get(under_way) {
                Some(task) => self.proc.join(task.to_string()),
                None => self.proc.clone(),
            };
            hung.get_or_insert(ProcfsError::NoAnswer { path, source });
            if !goes_on {
                break;
            }
        }
        let mut answers = walk.answers.lock().unwrap_or_else(PoisonError::into_inner);
        Answers {
            each: std::mem::take(&mut *answers),
            hung,
        }
    }

    /// The same for reads that can fail or find nothing: what was found, and
    /// what was not read.
    pub(super) fn many<T: Send + 'static>(
        &self,
        tasks: Vec<u32>,
        read: fn(&Path, u32) -> Result<Option<T>, ProcfsError>,
    ) -> (Vec<T>, Missed) {
        let Answers { each, hung } = self.each(tasks, self.patience, None, read);
        let (mut found, mut missed) = (Vec::with_capacity(each.len()), Missed::default());
        for answer in each {
            match answer {
                Some(Ok(answer)) => found.extend(answer),
                Some(Err(error)) => missed.add(&error),
                None => missed.add_all(1, hung.as_ref()),
            }
        }
        (found, missed)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Condvar, PoisonError},
        thread,
    };

    use super::{super::Bounded, *};

    /// Lets go of those that wait when it is dropped.
    #[derive(Clone, Default)]
    struct Gate(Arc<(Mutex<bool>, Condvar)>);

    impl Gate {
        fn wait(&self) {
            let (open, changed) = &*self.0;
            let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
            while !*open {
                open = changed.wait(open).unwrap();
            }
        }

        fn open(&self) {
            *self.0.0.lock().unwrap() = true;
            self.0.1.notify_all();
        }
    }

    fn procfs() -> Procfs {
        Procfs::new(Path::new("/none"), Bounded::default())
    }

    const SOON: Duration = Duration::from_millis(100);

    #[test]
    fn one_that_hangs_costs_itself_alone() {
        let (procfs, gate) = (procfs(), Gate::default());
        let wait = gate.clone();
        let answers = procfs.each((0..1000).collect(), SOON, None, move |_, task| {
            if task == 700 {
                wait.wait();
            }
            task
        });
        let missing: Vec<usize> = (0..1000).filter(|n| answers.each[*n].is_none()).collect();
        assert_eq!(missing, [700]);
        let hung = answers.hung.unwrap().to_string();
        assert_eq!(hung, "/none/proc/700 does not answer");
        assert_eq!(procfs.bounded.abandoned(), 1);
        gate.open();
    }

    #[test]
    fn where_all_hang_a_few_are_left_behind_and_the_rest_is_given_up() {
        let (procfs, gate) = (procfs(), Gate::default());
        let wait = gate.clone();
        let answers = procfs.each((0..1000).collect(), SOON, None, move |_, task| {
            if task >= 10 {
                wait.wait();
            }
        });
        assert_eq!(answers.each.iter().flatten().count(), 10);
        assert_eq!(procfs.bounded.abandoned(), MAX_HUNG);
        gate.open();
    }

    #[test]
    fn what_takes_long_as_a_whole_is_done_all_the_same_unless_there_is_an_end() {
        let slow = |_: &Path, _| thread::sleep(Duration::from_millis(2));
        let procfs = procfs();
        let answers = procfs.each((0..100).collect(), SOON, None, slow);
        assert!(answers.hung.is_none() && answers.each.iter().all(Option::is_some));
        let end = Some(Instant::now() + Duration::from_millis(50));
        let answers = procfs.each((0..100).collect(), SOON, end, slow);
        assert!(answers.hung.is_none() && answers.each.iter().any(Option::is_none));
        assert_eq!(procfs.bounded.abandoned(), 0);
    }
}
