//! One read of each of many tasks, of which one that hangs costs itself alone.
//!
//! A thread goes from task to task for half of the time that is waited for it,
//! then ends; so one that is not back by then has been stuck in one task for
//! half of that time at least. It is abandoned as [`Bounded`](super::Bounded) says, what it has
//! read is kept, and a new thread goes on: with everybody else's tasks first,
//! and then, for a while, with those of the same owner ([`hung`](super::hung)).

use std::{
    any::type_name,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use super::{
    NoAnswer, Procfs, ProcfsError,
    hung::{Party, Reader, Turn, UNTOLD},
};
use event::fault;

/// Reads that may fail inside before the rest is given up: that is a bug.
const MAX_PANICS: usize = 2;

/// Of whom a task hangs, others are waited for this many times less long.
const HASTE: u32 = 4;

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
    /// With their places among the answers.
    tasks: Vec<(usize, u32)>,
    read: Arc<F>,
    end: Option<Instant>,
    /// The first that nobody has begun with.
    next: AtomicUsize,
    answers: Mutex<Vec<(usize, T)>>,
}

impl<T, F: Fn(&Path, u32) -> T> Walk<T, F> {
    fn is_over(&self) -> bool {
        self.next.load(SeqCst) >= self.tasks.len()
            || self.end.is_some_and(|end| Instant::now() >= end)
    }

    fn go(&self, proc: &Path, time: Duration) {
        let start = Instant::now();
        while !self.is_over() && start.elapsed() < time {
            let Some((place, task)) = self.tasks.get(self.next.fetch_add(1, SeqCst)) else {
                return;
            };
            let answer = (self.read)(proc, *task);
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.push((*place, answer));
        }
    }

    /// What nobody has begun with.
    fn left(&self) -> &[(usize, u32)] {
        let next = self.next.load(SeqCst);
        self.tasks.get(next..).unwrap_or_default()
    }
}

/// Why a walk has stopped, and at which task.
struct Stopped {
    task: Option<(usize, u32)>,
    source: NoAnswer,
    reader: Reader,
}

/// Who is read when.
struct Order<'a> {
    procfs: &'a Procfs,
    /// What is read of each.
    what: &'static str,
    tasks: Vec<u32>,
    first: Vec<(usize, u32)>,
    last: Vec<(usize, u32)>,
    /// Whose they are, once something hangs.
    parties: Option<Vec<Option<Party>>>,
    /// Of whom something has hung, and how many of nobody knows whom.
    of: Vec<Party>,
    untold: usize,
    panics: usize,
}

impl<'a> Order<'a> {
    fn new<F>(procfs: &'a Procfs, tasks: Vec<u32>) -> Self {
        Self {
            procfs,
            what: type_name::<F>(),
            first: tasks.iter().copied().enumerate().collect(),
            tasks,
            last: Vec::new(),
            parties: None,
            of: Vec::new(),
            untold: 0,
            panics: 0,
        }
    }

    /// What is read next, and whether it is what comes last.
    fn next(&mut self, hung: &mut Option<ProcfsError>) -> (Vec<(usize, u32)>, bool) {
        let left = [
            std::mem::take(&mut self.first),
            std::mem::take(&mut self.last),
        ]
        .concat();
        if self.of.is_empty() && self.untold == 0 && self.procfs.hung.is_quiet() {
            return (left, false);
        }
        let parties = self
            .parties
            .get_or_insert_with(|| self.procfs.parties(&self.tasks));
        for (place, task) in left {
            let party = parties.get(place).and_then(Option::as_ref);
            match self.procfs.hung.turn(task, self.what, party, &self.of) {
                Turn::First => self.first.push((place, task)),
                Turn::Last => self.last.push((place, task)),
                Turn::Never => {
                    let path = self.procfs.proc.join(task.to_string());
                    hung.get_or_insert(ProcfsError::NotTried { path });
                }
            }
        }
        match self.first.is_empty() {
            false => (std::mem::take(&mut self.first), false),
            true => (std::mem::take(&mut self.last), true),
        }
    }

    /// A walk has stopped, with these left; whether it goes on.
    fn stopped(&mut self, stopped: &Stopped, left: &[(usize, u32)]) -> bool {
        self.first.extend_from_slice(left);
        match (&stopped.source, stopped.task) {
            (NoAnswer::TimedOut { after }, Some((place, task))) => {
                let parties = self
                    .parties
                    .get_or_insert_with(|| self.procfs.parties(&self.tasks));
                let party = parties.get(place).cloned().flatten();
                let (hung, reader) = (&self.procfs.hung, stopped.reader.clone());
                hung.add(task, self.what, party.clone(), (reader, *after));
                match party {
                    Some(party) => self.of.push(party),
                    None => self.untold += 1,
                }
                self.untold < UNTOLD
            }
            (NoAnswer::TimedOut { .. } | NoAnswer::Panicked, _) => {
                self.panics += 1;
                self.panics < MAX_PANICS
            }
            _ => false,
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
        let mut each: Vec<Option<T>> = tasks.iter().map(|_| None).collect();
        let (read, mut hung) = (Arc::new(read), None);
        let mut order = Order::new::<F>(self, tasks);
        // Where time is shared out, nobody's becomes less.
        let hasty = if end.is_some() { 1 } else { HASTE };
        loop {
            let (tasks, is_last) = order.next(&mut hung);
            if tasks.is_empty() {
                return Answers { each, hung };
            }
            let patience = if is_last { patience / hasty } else { patience };
            let walk = Arc::new(Walk {
                answers: Mutex::new(Vec::with_capacity(tasks.len())),
                next: AtomicUsize::new(0),
                tasks,
                read: Arc::clone(&read),
                end,
            });
            let stopped = self.walk(&walk, patience);
            let mut answers = walk.answers.lock().unwrap_or_else(PoisonError::into_inner);
            for (place, answer) in answers.drain(..) {
                each[place] = Some(answer);
            }
            drop(answers);
            let Some(stopped) = stopped else { continue };
            let goes_on = order.stopped(&stopped, walk.left());
            let path = match stopped.task {
                Some((_, task)) => self.proc.join(task.to_string()),
                None => self.proc.clone(),
            };
            let source = stopped.source;
            hung.get_or_insert(ProcfsError::NoAnswer { path, source });
            if !goes_on {
                return Answers { each, hung };
            }
        }
    }

    /// Goes on with a walk until it is over, or a task hangs.
    fn walk<T, F>(&self, walk: &Arc<Walk<T, F>>, patience: Duration) -> Option<Stopped>
    where
        T: Send + 'static,
        F: Fn(&Path, u32) -> T + Send + Sync + 'static,
    {
        while !walk.is_over() {
            let (shared, proc) = (Arc::clone(walk), self.proc.clone());
            let reader = Reader::default();
            let ending = reader.ending();
            let run = self.bounded.read(patience, move || {
                let _ending = ending;
                shared.go(&proc, patience / 2);
            });
            let Err(source) = run else { continue };
            let begun = matches!(source, NoAnswer::TimedOut { .. } | NoAnswer::Panicked);
            let at = walk.next.load(SeqCst).saturating_sub(usize::from(begun));
            return Some(Stopped {
                task: walk.tasks.get(at).copied(),
                source,
                reader,
            });
        }
        None
    }

    /// The same for reads that can fail or find nothing: what was found, and
    /// what was not read.
    pub(crate) fn many<T, F>(&self, tasks: Vec<u32>, read: F) -> (Vec<T>, Missed)
    where
        T: Send + 'static,
        F: Fn(&Path, u32) -> Result<Option<T>, ProcfsError> + Send + Sync + 'static,
    {
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
        fs,
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
        assert_eq!(procfs.bounded.abandoned(), 3);
        gate.open();
    }

    #[test]
    fn what_hangs_of_one_owner_costs_no_other_and_soon_nothing() {
        let root = tempfile::tempdir().unwrap();
        for task in 0..100 {
            let folder = root.path().join(format!("proc/{task}"));
            fs::create_dir_all(&folder).unwrap();
            let uid = if task < 50 { 1_000 } else { 0 };
            fs::write(folder.join("status"), format!("Uid:\t{uid}\t0\t0\t0\n")).unwrap();
            fs::write(folder.join("cgroup"), "0::/system.slice/cron.service\n").unwrap();
        }
        let (procfs, gate) = (
            Procfs::new(root.path(), Bounded::default()),
            Gate::default(),
        );
        for _ in 0..3 {
            let (wait, start) = (gate.clone(), Instant::now());
            let answers = procfs.each((0..100).collect(), SOON, None, move |_, task| {
                if task < 50 {
                    wait.wait();
                }
            });
            let read: Vec<usize> = (0..100).filter(|at| answers.each[*at].is_some()).collect();
            assert_eq!(read, (50..100).collect::<Vec<_>>());
            assert!(start.elapsed() < 3 * SOON, "{:?}", start.elapsed());
            assert_eq!(procfs.bounded.abandoned(), 3);
        }
        // What answers again is read again.
        gate.open();
        while procfs.bounded.abandoned() > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let answers = procfs.each((0..100).collect(), SOON, None, |_, task| task);
        assert!(answers.each.iter().all(Option::is_some));
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
