//! A thousand reservations, most of them leaked, while containers start and
//! stop and the real host-local gives addresses out and takes them back: no
//! live container may ever lose its reservation, and every leak must go.

use node_tracer_tests::test;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::bare::HostLocal;
use node_tracer_tests::cgroup::Cgroup;
use node_tracer_tests::netns::Netns;
use node_tracer_tests::scratch::{container_id, pod_uid};
use node_tracer_tests::scripted_cri::ScriptedCri;

use super::changes::SlowPlugin;
use super::{GRACE, Reserved, Stage, planned, summary, with};

/// Reservations at the beginning.
const ALL: usize = 1_000;
/// Of these, of containers that CRI lists; that have an address only; that have
/// a cgroup only; that a plugin runs for. The others are leaked.
const LISTED: usize = 120;
const ADDRESSED: usize = 60;
const GROUPED: usize = 10;
const STARTING: usize = 10;
/// Threads that start and stop containers.
const THREADS: usize = 4;
/// Leaks whose address is taken over between plan and apply, and leaks whose
/// container comes back with the same ID and address.
const TAKEN_OVER: usize = 30;
const COME_BACK: usize = 10;

/// What is true, whatever the tracer thinks.
#[derive(Default)]
struct Truth {
    /// Containers that have their reservation: from the end of ADD to the
    /// beginning of DEL.
    live: Mutex<HashMap<IpAddr, String>>,
    /// Containers that lost theirs.
    robbed: Mutex<Vec<String>>,
    /// Leaks of the storm itself.
    leaked: Mutex<Vec<Reserved>>,
    started: AtomicUsize,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Truth {
    fn begin(&self, reserved: &Reserved) {
        self.started.fetch_add(1, SeqCst);
        let before = lock(&self.live).insert(reserved.address, reserved.id.clone());
        if let Some(before) = before {
            lock(&self.robbed).push(format!(
                "{} of {before} was given to {}",
                reserved.address, reserved.id
            ));
        }
    }

    /// Its end begins. The reservation must be there until now.
    fn end(&self, reserved: &Reserved, store: &Path) {
        self.check(reserved, store);
        lock(&self.live).remove(&reserved.address);
    }

    fn check(&self, reserved: &Reserved, store: &Path) {
        let file = store.join(reserved.address.to_string());
        let content = fs::read_to_string(file).unwrap_or_else(|error| error.to_string());
        if content != format!("{}\r\neth0", reserved.id) {
            let text = format!("{} of {}: {content:?}", reserved.address, reserved.id);
            lock(&self.robbed).push(text);
        }
    }

    fn expect_no_robbery(&self, store: &Path) -> anyhow::Result<()> {
        let live: Vec<Reserved> = lock(&self.live)
            .iter()
            .map(|(address, id)| Reserved {
                id: id.clone(),
                address: *address,
            })
            .collect();
        // One whose DEL is under way meanwhile is none that lives.
        for reserved in live {
            let still = || lock(&self.live).get(&reserved.address) == Some(&reserved.id);
            let file = store.join(reserved.address.to_string());
            let content = fs::read_to_string(file).unwrap_or_default();
            if content != format!("{}\r\neth0", reserved.id) && still() {
                self.check(&reserved, store);
            }
        }
        let robbed = lock(&self.robbed);
        ensure!(
            robbed.is_empty(),
            "live addresses were released: {robbed:#?}"
        );
        Ok(())
    }
}

/// Numbers that look random, and are the same in each run of a thread.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn pause(&mut self, from: u64, to: u64, stop: &AtomicBool) {
        let mut left = from + self.below(to - from);
        while left > 0 && !stop.load(SeqCst) {
            let step = left.min(50);
            std::thread::sleep(Duration::from_millis(step));
            left -= step;
        }
    }
}

/// Starts and stops containers in the order in which a runtime does: ADD, then
/// CRI lists it; DEL, then CRI lists it no more.
fn churn(seed: u64, stage: &Stage, truth: &Truth, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut dice = Dice(seed);
    let store = stage.node.store();
    while !stop.load(SeqCst) {
        let id = container_id()?;
        // Every fifth has a chain of plugins that takes longer than the grace:
        // the runtime does not list it until that is over.
        let slow = (dice.below(5) == 0)
            .then(|| SlowPlugin::start(stage, &id))
            .transpose()?;
        let address = stage.host_local.add(&id)?[0];
        let reserved = Reserved { id, address };
        truth.begin(&reserved);
        match slow {
            Some(plugin) => {
                dice.pause(500, 4_000, stop);
                stage.cri.add(&reserved.id, Some(address));
                drop(plugin);
            }
            None => {
                dice.pause(0, 400, stop);
                stage.cri.add(&reserved.id, Some(address));
            }
        }
        dice.pause(0, 4_000, stop);
        if dice.below(10) == 0 {
            // The runtime forgets it, and no DEL ever comes.
            truth.end(&reserved, &store);
            stage.cri.remove(&reserved.id);
            lock(&truth.leaked).push(reserved);
            continue;
        }
        truth.end(&reserved, &store);
        stage.host_local.del(&reserved.id)?;
        dice.pause(0, 200, stop);
        stage.cri.remove(&reserved.id);
    }
    Ok(())
}

/// Fills the store by the real plugin, as fast as it goes.
fn fill(host_local: &HostLocal, number: usize) -> anyhow::Result<Vec<Reserved>> {
    let all = Mutex::new(Vec::new());
    let left = AtomicUsize::new(number);
    let take = || {
        left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
            .is_ok()
    };
    let work = || -> anyhow::Result<()> {
        while take() {
            let id = container_id()?;
            let address = host_local.add(&id)?[0];
            lock(&all).push(Reserved { id, address });
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(panicked)?)
    })?;
    let all = std::mem::take(&mut *lock(&all));
    ensure!(all.len() == number, "{} reservations", all.len());
    Ok(all)
}

fn panicked(_: Box<dyn std::any::Any + Send>) -> anyhow::Error {
    anyhow::anyhow!("a thread has panicked")
}

/// What keeps containers alive that CRI does not know.
struct Alive {
    _ghost: Netns,
    _cgroups: Vec<Cgroup>,
    _plugins: Vec<SlowPlugin>,
}

fn enliven(stage: &Stage, live: &[Reserved], truth: &Truth) -> anyhow::Result<Alive> {
    let mut live = live.iter().inspect(|each| truth.begin(each));
    let mut cgroups = Vec::new();
    for (place, each) in live.by_ref().take(LISTED).enumerate() {
        stage.cri.add(&each.id, Some(each.address));
        if place < 3 {
            cgroups.push(Cgroup::create(&pod_uid()?, &each.id)?);
        }
    }
    let addressed: Vec<&Reserved> = live.by_ref().take(ADDRESSED).collect();
    let ghost = super::ghost(&addressed)?;
    for each in live.by_ref().take(GROUPED) {
        cgroups.push(Cgroup::create(&pod_uid()?, &each.id)?);
    }
    let mut plugins = Vec::new();
    for each in live.by_ref().take(STARTING) {
        plugins.push(SlowPlugin::start(stage, &each.id)?);
    }
    Ok(Alive {
        _ghost: ghost,
        _cgroups: cgroups,
        _plugins: plugins,
    })
}

/// What happens between the plan and its being carried out.
fn meanwhile(
    stage: &Stage,
    leaked: &mut BTreeMap<IpAddr, Reserved>,
    truth: &Truth,
) -> anyhow::Result<Vec<Reserved>> {
    let mut begun = Vec::new();
    let chosen: Vec<Reserved> = leaked
        .values()
        .take(TAKEN_OVER + COME_BACK)
        .cloned()
        .collect();
    let (taken_over, come_back) = chosen.split_at(TAKEN_OVER);
    for each in taken_over {
        stage.host_local.del(&each.id)?;
        leaked.remove(&each.address);
        let id = container_id()?;
        // Unless the storm has been quicker, which is as good.
        if stage.host_local.add_at(&id, Some(each.address)).is_ok() {
            let address = each.address;
            begun.push(Reserved { id, address });
        }
    }
    for each in come_back {
        stage.host_local.del(&each.id)?;
        leaked.remove(&each.address);
        if stage
            .host_local
            .add_at(&each.id, Some(each.address))
            .is_ok()
        {
            begun.push(each.clone());
        }
    }
    begun.iter().for_each(|each| truth.begin(each));
    Ok(begun)
}

test!(super::NEEDS, repair_never_frees_a_live_address_in_a_storm);
fn repair_never_frees_a_live_address_in_a_storm() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let truth = Truth::default();
    let all = fill(&stage.host_local, ALL)?;
    let live = LISTED + ADDRESSED + GROUPED + STARTING;
    let (live, leaked) = all.split_at(live);
    let mut leaked: BTreeMap<IpAddr, Reserved> = leaked
        .iter()
        .map(|each| (each.address, each.clone()))
        .collect();
    let alive = enliven(&stage, live, &truth)?;
    stage.grow_old()?;

    let stop = AtomicBool::new(false);
    let store = stage.node.store();
    // The plan's own count is the stage's only part that is written to.
    let mut rounds = stage.another()?;
    let outcome = std::thread::scope(|scope| {
        let (stage, truth, stop) = (&stage, &truth, &stop);
        let threads: Vec<_> = (1..=THREADS as u64)
            .map(|seed| scope.spawn(move || churn(seed * 0x9e37_79b9, stage, truth, stop)))
            .collect();
        let outcome = rounds.run(stage, &mut leaked, truth);
        stop.store(true, SeqCst);
        let churned = threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(panicked)?);
        outcome.and(churned)
    });
    outcome?;
    truth.expect_no_robbery(&store)?;
    drop(alive);

    // And once more when it is calm: what the storm itself has leaked.
    stage.grow_old()?;
    let (plan, file) = stage.plan(&[])?;
    let left: Vec<Reserved> = std::mem::take(&mut *lock(&truth.leaked));
    let left: Vec<Reserved> = left.into_iter().filter(|each| stage.has(each)).collect();
    for each in &left {
        ensure!(
            planned(&plan).contains(&each.address),
            "{each:?} is not planned: {plan:#}"
        );
    }
    stage.apply(&file, &[])?;
    for each in &left {
        ensure!(!stage.has(each), "{each:?} is still there");
    }
    println!(
        "        {} containers were started, {} of the storm's own leaks were left for the calm",
        truth.started.load(SeqCst),
        left.len()
    );
    Ok(())
}

/// Plans and their being carried out, while it storms.
struct Rounds {
    folder: node_tracer_tests::scratch::Scratch,
}

impl Stage {
    fn another(&self) -> anyhow::Result<Rounds> {
        Ok(Rounds {
            folder: node_tracer_tests::scratch::Scratch::create()?,
        })
    }
}

impl Rounds {
    fn run(
        &mut self,
        stage: &Stage,
        leaked: &mut BTreeMap<IpAddr, Reserved>,
        truth: &Truth,
    ) -> anyhow::Result<()> {
        let grace = format!("{}ms", GRACE.as_millis());
        let store = stage.node.store();
        let mut begun: Vec<Reserved> = Vec::new();
        for round in 0..3 {
            let file = self.folder.path().join(format!("{round}.json"));
            let written = file.display().to_string();
            let look = stage.repair(&["--grace", &grace, "--plan", &written])?;
            ensure!(
                matches!(look.ended.code, Some(0 | 1)),
                "{}",
                look.ended.stderr
            );
            let plan = look.ended.records.first().context("no plan")?;
            if round == 0 {
                let releases = planned(plan);
                let missing = leaked.keys().filter(|address| !releases.contains(address));
                ensure!(
                    missing.count() == 0,
                    "not all leaks are planned: {plan:.5000}"
                );
                begun = meanwhile(stage, leaked, truth)?;
            }
            let applied = stage.apply(&file, &[])?;
            // Only now does the runtime list what has begun since the plan.
            for each in begun.drain(..) {
                stage.cri.add(&each.id, Some(each.address));
            }
            ensure!(
                matches!(applied.ended.code, Some(0 | 1)),
                "{}",
                applied.brief()
            );
            truth.expect_no_robbery(&store)?;
            println!(
                "        round {round}: {} planned, {} released, {} kept; the lock was held for {} ms",
                planned(plan).len(),
                with(&applied, "released").len(),
                with(&applied, "kept").len(),
                summary(&applied)?["locked_ms"]
            );
            let left: Vec<&Reserved> = leaked.values().filter(|each| stage.has(each)).collect();
            ensure!(
                left.is_empty(),
                "{} leaks are still there: {left:?}",
                left.len()
            );
        }
        Ok(())
    }
}

/// The runtime by script is asked by several threads.
const _: fn() = || {
    fn is_shared<T: Sync>() {}
    is_shared::<ScriptedCri>();
};
