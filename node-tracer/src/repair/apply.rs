//! Carrying out a plan: exactly what is in it, and of that only what is still
//! as it was seen.
//!
//! For each store, in this order:
//!
//! 1. without the lock: look at the node, compare each file with the plan to the
//!    last byte, copy what remains to the backup, and wait until that is on disk;
//! 2. note what may be removed, and wait until the note is on disk;
//! 3. take host-local's lock: from here on no CNI ADD or DEL changes the store;
//! 4. look at the node once more, everything but what is above, and compare
//!    again: what anything knows is left alone;
//! 5. remove the rest, let go of the lock, and note what became of each.
//!
//! While the lock is held nothing waits for the backup's disk: should that hang,
//! no pod could start or end.
//!
//! A reservation whose file is untouched since the plan was made belongs to a
//! container that had it then. None is made with that ID later, as a runtime
//! gives an ID once; should one be, host-local writes the file anew, and the
//! comparison sees that. So what the last look has to show is that the
//! container has not come back to life, not that nobody is about to have it.

pub(super) mod release;

use crate::repair::release::OnDisk as _;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use self::release::{Removed, release};
use super::{
    backup::{Backup, Header, Line, Saved},
    judge::{self, Verdicts},
    load::{Refusal, load},
    observe::{Depth, Observer},
};
use crate::config::{Applying, Config};
use event::repair::outcome::{Action, Outcome, Result as Became, Totals};
use event::repair::plan::{Plan, Release};
use event::{Reservation, ReservationHolder, clock::Timestamp, fault};
use node::hostlocal::locked_store::{Exact, Lock, LockedStore};
use sys::privileges::Starter;

/// How long the lock may be held for looking: pods that start wait for it.
const MAX_HELD: Duration = Duration::from_secs(10);

/// Where backups are unless told otherwise, on the host.
const BACKUPS: &str = "/var/lib/node-tracer/backup";

/// Takes what became of each.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(&Outcome) -> anyhow::Result<()>;

/// One plan being carried out.
struct Apply<'a> {
    config: &'a Config,
    observer: &'a mut Observer,
    plan: &'a Plan,
    /// The thread that may write.
    writer: &'a Starter,
    totals: Totals,
    tell: Tell<'a>,
}

/// A store with what is to be done in it.
struct Job<'a> {
    opened: Arc<LockedStore>,
    todo: Vec<&'a Release>,
}

/// Carries a plan out. `writer` is the thread that may write.
///
/// # Errors
/// It is refused (see [`Refusal`]): nothing was changed. Or a backup cannot be
/// written: nothing was changed that is not in it.
pub(crate) fn run(
    config: &Config,
    observer: &mut Observer,
    applying: &Applying,
    writer: &Starter,
    tell: Tell<'_>,
) -> anyhow::Result<Totals> {
    if !rustix::process::geteuid().is_root() {
        return Err(Refusal::NotRoot.into());
    }
    let plan = load(&config.node, applying)?;
    let mut totals = Totals::new(Action::Apply, &config.node.root, String::new());
    if plan.releases.is_empty() {
        totals.notes.push(String::from("the plan releases nothing"));
        return Ok(totals);
    }
    let seen = observer.look(config, Depth::Once)?;
    if !seen.hindrances.is_empty() {
        return Err(Refusal::Hindered(seen.hindrances).into());
    }
    for release in &plan.releases {
        if !seen.stores().any(|(path, ..)| path == release.store) {
            return Err(Refusal::Impossible(format!(
                "{} is in no store of host-local's on this node",
                release.path.display()
            ))
            .into());
        }
    }
    let verdicts = seen.verdicts(plan.grace());
    let mut apply = Apply {
        config,
        observer,
        plan: &plan,
        writer,
        totals,
        tell,
    };
    let jobs = apply.open()?;
    let (jobs, saved) = apply.compare(jobs, &verdicts, seen.at)?;
    if saved.is_empty() {
        return Ok(apply.totals);
    }
    let mut backup = apply.back_up(applying.backup.as_deref(), &jobs, saved)?;
    for job in jobs.into_values() {
        apply.store(job, &mut backup)?;
    }
    Ok(apply.totals)
}

impl<'a> Apply<'a> {
    /// Tells what became of one.
    fn became(
        &mut self,
        release: &Release,
        result: Became,
        why: Option<String>,
    ) -> anyhow::Result<()> {
        let outcome = Outcome {
            action: Action::Apply,
            path: release.path.to_string_lossy().into_owned(),
            address: release.address,
            container_id: release.container_id.clone(),
            ifname: release.ifname.clone(),
            result,
            why,
        };
        self.totals.count(&outcome);
        (self.tell)(&outcome)
    }

    fn open(&self) -> anyhow::Result<BTreeMap<PathBuf, Job<'a>>> {
        let mut jobs = BTreeMap::new();
        for release in &self.plan.releases {
            if !jobs.contains_key(&release.store) {
                let opened = release::open(self.writer, &self.config.node.root, &release.store)?;
                let todo = Vec::new();
                jobs.insert(release.store.clone(), Job { opened, todo });
            }
            if let Some(job) = jobs.get_mut(&release.store) {
                job.todo.push(release);
            }
        }
        Ok(jobs)
    }

    /// Leaves out what is not as it was planned, before anybody is kept
    /// waiting. Returns what remains, and copies of it.
    fn compare(
        &mut self,
        jobs: BTreeMap<PathBuf, Job<'a>>,
        verdicts: &Verdicts,
        at: Timestamp,
    ) -> anyhow::Result<(BTreeMap<PathBuf, Job<'a>>, Vec<Saved>)> {
        let mut saved = Vec::new();
        let mut remaining = BTreeMap::new();
        for (store, job) in jobs {
            let opened = Arc::clone(&job.opened);
            let mut todo = Vec::new();
            for (release, found) in self.read(&opened, job.todo)? {
                match self.why_not(release, &found, verdicts, at) {
                    Ok(exact) => {
                        saved.push(Saved::of(release, exact));
                        todo.push(release);
                    }
                    Err(why) => self.became(release, Became::Kept, Some(why))?,
                }
            }
            if !todo.is_empty() {
                remaining.insert(store, Job { opened, todo });
            }
        }
        Ok((remaining, saved))
    }

    /// Reads the files of a store, by the thread that may.
    fn read(
        &self,
        opened: &Arc<LockedStore>,
        todo: Vec<&'a Release>,
    ) -> anyhow::Result<Vec<(&'a Release, Found)>> {
        let names: Vec<String> = todo.iter().map(|release| release.name()).collect();
        let opened = Arc::clone(opened);
        let found = self.writer.run(move || -> Vec<Found> {
            let read = |name: &String| opened.read(name).map_err(|error| error.to_string());
            names.iter().map(read).collect()
        })?;
        Ok(todo.into_iter().zip(found).collect())
    }

    /// The file, or why it is left alone.
    fn why_not<'f>(
        &self,
        release: &Release,
        found: &'f Found,
        verdicts: &Verdicts,
        at: Timestamp,
    ) -> Result<&'f Exact, String> {
        let exact = match found {
            Ok(Some(exact)) => exact,
            Ok(None) => {
                return Err(String::from("it is gone: somebody else has released it"));
            }
            Err(error) => return Err(format!("it cannot be read: {error}")),
        };
        if !release.is(exact) {
            return Err(release.difference(exact).to_owned());
        }
        if let Some(withheld) = verdicts.why(&release.path) {
            return Err(withheld.why.clone());
        }
        if !verdicts.free.contains_key(&release.path) {
            return Err(String::from("this look at the store did not show it"));
        }
        let reservation = reservation(release);
        match judge::of_file(exact, &reservation, at, self.plan.grace()) {
            Some((_, why)) => Err(why),
            None => Ok(exact),
        }
    }

    /// Copies what may be removed.
    fn back_up(
        &mut self,
        folder: Option<&Path>,
        jobs: &BTreeMap<PathBuf, Job<'_>>,
        saved: Vec<Saved>,
    ) -> anyhow::Result<Backup> {
        let node = &self.config.node;
        let folder = match folder {
            Some(folder) => folder.to_owned(),
            None => node.path(BACKUPS).join(stamp(sys::clock::now())),
        };
        let header = Header::new(node, self.plan.root.clone());
        let mut stores = Vec::new();
        for (path, job) in jobs {
            stores.push((path.clone(), job.opened.identity()?));
        }
        let made = self.writer.run(move || {
            let mut backup = Backup::create(&folder, header, &stores)?;
            backup.save(saved).map(|()| backup)
        })?;
        let backup = made?;
        self.totals.backup = backup.folder().to_string_lossy().into_owned();
        Ok(backup)
    }

    fn store(&mut self, job: Job<'a>, backup: &mut Backup) -> anyhow::Result<()> {
        let releasing = job.todo.iter().map(|release| Line::Releasing {
            path: release.path.clone(),
        });
        let noted = backup.write(&releasing.collect::<Vec<_>>());
        if let Err(error) = noted {
            for (release, became, why) in failed(job.todo, &fault::chain(&error)) {
                self.became(release, became, why)?;
            }
            return Ok(());
        }
        let done = match release::lock(self.writer, &job.opened)? {
            Ok(lock) => {
                let held = Instant::now();
                let done = self.locked(job, lock, held);
                let held = u64::try_from(held.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.totals.locked_ms = self.totals.locked_ms.max(held);
                done?
            }
            Err(error) => failed(job.todo, &fault::chain(&error)),
        };
        let lines = done.iter().map(|(release, became, why)| match became {
            Became::Released => Line::Released {
                path: release.path.clone(),
            },
            _ => Line::Kept {
                path: release.path.clone(),
                why: why.clone().unwrap_or_default(),
            },
        });
        if let Err(error) = backup.write(&lines.collect::<Vec<_>>()) {
            let error = fault::chain(&error);
            let note =
                format!("the backup does not say what became of each, but can be undone: {error}");
            self.totals.notes.push(note);
        }
        for (release, became, why) in done {
            self.became(release, became, why)?;
        }
        Ok(())
    }

    /// Does one store, with its lock held.
    fn locked(&mut self, job: Job<'a>, lock: Lock, held: Instant) -> anyhow::Result<Vec<Done<'a>>> {
        let seen = self.observer.look(self.config, Depth::Locked)?;
        if !seen.hindrances.is_empty() {
            return Ok(failed(job.todo, &seen.hindrances.join("; ")));
        }
        if held.elapsed() > MAX_HELD {
            let why = "looking at the node took too long for pods to wait for";
            return Ok(failed(job.todo, why));
        }
        let verdicts = seen.verdicts(self.plan.grace());
        let mut done = Vec::new();
        let mut remove = Vec::new();
        for (release, found) in self.read(&job.opened, job.todo)? {
            match self.why_not(release, &found, &verdicts, seen.at) {
                Ok(_) => remove.push(release),
                Err(why) => done.push((release, Became::Kept, Some(why))),
            }
        }
        let planned: Vec<Release> = remove.iter().map(|release| (*release).clone()).collect();
        let opened = Arc::clone(&job.opened);
        let removed = self.writer.run(move || {
            let removed: Vec<_> = planned
                .iter()
                .map(|each| release(&opened, &lock, each))
                .collect();
            drop(lock);
            // Should this fail, a crash of the node can undo it, and no more.
            if let Err(error) = opened.sync() {
                tracing::warn!("cannot sync the store: {error}");
            }
            removed
        })?;
        for (release, removed) in remove.into_iter().zip(removed) {
            done.push(match removed {
                Removed::Yes => (release, Became::Released, None),
                Removed::Changed(why) => (release, Became::Kept, Some(why)),
                Removed::Failed(why) => (release, Became::Failed, Some(why)),
            });
        }
        Ok(done)
    }
}

/// None of them was removed.
fn failed<'a>(todo: Vec<&'a Release>, why: &str) -> Vec<Done<'a>> {
    let done = todo.into_iter();
    done.map(|release| (release, Became::Failed, Some(why.to_owned())))
        .collect()
}

/// A file as it was read.
type Found = Result<Option<Exact>, String>;

type Done<'a> = (&'a Release, Became, Option<String>);

/// A time as a folder's name: `20261122T031510.123456Z`.
fn stamp(time: Timestamp) -> String {
    let text = time.to_string();
    text.chars().filter(|c| !matches!(c, '-' | ':')).collect()
}

fn reservation(release: &Release) -> Reservation {
    Reservation {
        address: release.address,
        holder: ReservationHolder {
            path: release.path.clone(),
            container_id: release.container_id.clone(),
            ifname: release.ifname.clone(),
            pod: None,
        },
        modified: release.modified,
    }
}
