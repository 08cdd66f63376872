//! The law of missing sources: a source that is taken away turns no verdict
//! from no to yes and none from yes to no. It may only become unknown, and then
//! something says so.
//!
//! A node is made up ([`truth`]), each source tells its part of it
//! ([`sources`]), and the engine judges it with all of them and without some.
//! With all of them it must agree with an [`oracle`] that knows the truth.
//!
//! | file | what |
//! |---|---|
//! | [`truth`] | the node as it is |
//! | [`sources`] | what each source tells of it |
//! | [`oracle`] | what is wrong with it, by the rules' definitions |

mod oracle;
mod sources;
#[cfg(test)]
mod tests;
mod truth;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    net::IpAddr,
    time::Duration,
};

use self::{
    sources::{Absence, Missing, Source, Teller},
    truth::{LOOK, Truth},
};
use crate::{
    clock::Timestamp,
    engine::{Engine, Settings},
    event::{Event, What},
    finding::{Finding, Phase, Rule, Severity},
    looks::Looks,
    model::story::{any::Dice, s},
};

/// When a scan that goes on looks again: every grace is over.
const LATE: i64 = LOOK + 80;

/// One node and what the bytes take away of it.
#[cfg(fuzzing)]
pub(crate) fn check(bytes: &[u8]) {
    check_one(&mut Dice::Bytes(bytes));
}

/// Makes a node up, takes sources away, and panics with the smallest such node
/// where the law is broken.
fn check_one(dice: &mut Dice<'_>) {
    let truth = Truth::any(dice);
    if let Some(why) = disagreement(&truth) {
        let (truth, why) = smallest(truth, why, disagreement);
        panic!("{why}\n{truth:#?}");
    }
    for missing in subsets(dice) {
        let broken = |truth: &Truth| broken(truth, &missing);
        if let Some(why) = broken(&truth) {
            let (truth, why) = smallest(truth, why, broken);
            panic!("without {missing:?}: {why}\n{truth:#?}");
        }
    }
}

/// Each source by itself, in each way it can be missing, and some at once.
fn subsets(dice: &mut Dice<'_>) -> Vec<Missing> {
    let mut subsets = Vec::new();
    for source in Source::ALL {
        for absence in Absence::ALL {
            if absence != Absence::Old || source == Source::Pods {
                subsets.push(Missing::from([(source, absence)]));
            }
        }
    }
    for _ in 0..3 {
        let some = (0..2 + dice.roll(4)).map(|_| {
            let absences = [Absence::Failed, Absence::NotAsked, Absence::Half];
            (dice.one(&Source::ALL), dice.one(&absences))
        });
        subsets.push(some.collect());
    }
    subsets
}

/// The same with as few pods and other things as show it, too.
fn smallest(
    mut truth: Truth,
    mut why: String,
    shows: impl Fn(&Truth) -> Option<String>,
) -> (Truth, String) {
    loop {
        let found = smaller(&truth).into_iter().find_map(|smaller| {
            let why = shows(&smaller)?;
            Some((smaller, why))
        });
        match found {
            Some(found) => (truth, why) = found,
            None => return (truth, why),
        }
    }
}

fn smaller(truth: &Truth) -> Vec<Truth> {
    let mut all = Vec::new();
    for place in 0..truth.pods.len() {
        let mut less = truth.clone();
        less.pods.remove(place);
        all.push(less);
        for sandbox in 0..truth.pods[place].sandboxes.len().saturating_sub(1) {
            let mut less = truth.clone();
            less.pods[place].sandboxes.remove(sandbox);
            all.push(less);
        }
        if truth.pods[place].inner {
            let mut less = truth.clone();
            less.pods[place].inner = false;
            all.push(less);
        }
        for sandbox in 0..truth.pods[place].sandboxes.len() {
            let its = &truth.pods[place].sandboxes[sandbox];
            if its.second.is_some() || its.guest {
                let mut less = truth.clone();
                less.pods[place].sandboxes[sandbox].second = None;
                less.pods[place].sandboxes[sandbox].guest = false;
                all.push(less);
            }
        }
    }
    for place in 0..truth.strangers.len() {
        let mut less = truth.clone();
        less.strangers.remove(place);
        all.push(less);
    }
    if !truth.leaks.is_empty() || truth.orphans > 0 {
        let mut less = truth.clone();
        less.leaks.pop();
        less.orphans = 0;
        all.push(less);
    }
    all
}

/// What a verdict is about: the same with and without a source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Netns(u32),
    Address(IpAddr),
    Other(String),
}

/// A verdict, as far as the law speaks of it.
#[derive(Clone, Debug)]
struct Verdict {
    severity: Severity,
    phase: Option<Phase>,
    due: Option<Timestamp>,
    unknown: Vec<String>,
    /// Pods that the advice has deleted.
    deletes: BTreeSet<String>,
    title: String,
}

/// All that is found, and what could not be judged.
#[derive(Clone, Debug, Default)]
struct Verdicts {
    found: BTreeMap<(Rule, Subject), Verdict>,
    gaps: Vec<String>,
}

impl Verdicts {
    fn of(engine: &Engine) -> Self {
        let mut found = BTreeMap::new();
        for finding in engine.open() {
            for subject in subjects(finding) {
                found.insert((finding.rule, subject), Verdict::of(finding));
            }
        }
        Self {
            found,
            gaps: engine.gaps().to_vec(),
        }
    }

    /// A yes.
    fn yes(&self, rule: Rule, subject: &Subject) -> Option<&Verdict> {
        let verdict = self.found.get(&(rule, subject.clone()))?;
        (verdict.severity >= Severity::Warning).then_some(verdict)
    }

    /// Whether anything says that a verdict is not known.
    fn says_unknown(&self, rule: Rule, subject: &Subject) -> bool {
        let told = self.found.get(&(rule, subject.clone()));
        told.is_some_and(|verdict| !verdict.unknown.is_empty())
            || self.gaps.iter().any(|gap| gap.starts_with(rule.as_str()))
    }
}

impl Verdict {
    fn of(finding: &Finding) -> Self {
        let advice = finding.advice.iter();
        let deletes = advice.filter_map(|step| {
            let (_, rest) = step.split_once("kubectl delete pod ")?;
            Some(rest.to_owned())
        });
        Self {
            severity: finding.severity,
            phase: finding.detail.phase,
            due: finding.detail.due,
            unknown: finding.unknown.clone(),
            deletes: deletes.collect(),
            title: finding.title.clone(),
        }
    }
}

fn subjects(finding: &Finding) -> Vec<Subject> {
    let netns = finding.netns.as_ref();
    match finding.rule {
        Rule::DuplicateAddress => {
            let all = finding.addresses.iter();
            all.map(|address| Subject::Address(*address)).collect()
        }
        Rule::LeakedReservation => {
            let all = finding.detail.reservations.iter();
            all.map(|each| Subject::Address(each.address)).collect()
        }
        Rule::GhostSandbox | Rule::PinnedNetns | Rule::MissingGatewayNeighbour => {
            let all = netns.map(|netns| Subject::Netns(netns.id.inode));
            all.into_iter().collect()
        }
        _ => vec![Subject::Other(finding.id.clone())],
    }
}

/// What a scan says that looks twice, 80 s apart: after the first look and
/// after the second.
fn scanned(truth: &Truth, missing: &Missing) -> [Verdicts; 2] {
    let teller = Teller { truth, missing };
    let mut looks = Looks::new(Settings {
        boot_id: String::from("boot"),
        node: String::from("node-1"),
        stall_threshold: Duration::from_secs(5),
        surveyed: true,
    });
    [LOOK, LATE].map(|time| {
        take(&mut looks, &teller, &teller.look(time), time);
        if looks.is_doubtful() {
            take(&mut looks, &teller, &teller.look_again(time + 1), time + 1);
        }
        looks.judged();
        Verdicts::of(looks.engine())
    })
}

fn take(looks: &mut Looks, teller: &Teller<'_>, events: &[Event], time: i64) {
    for event in events {
        looks.apply(event);
    }
    tick(looks, time);
    for address in looks.engine().watched().addresses.clone() {
        looks.apply(&teller.answer(address, time));
    }
    tick(looks, time);
    looks.looked();
}

fn tick(looks: &mut Looks, time: i64) {
    let not_before = looks.engine().not_before();
    let time = not_before.map_or(s(time), |pause| pause.max(s(time)));
    let what = What::Tick;
    looks.apply(&Event { time, what });
}

/// How the engine, told all, disagrees with the oracle.
fn disagreement(truth: &Truth) -> Option<String> {
    let [_, verdicts] = scanned(truth, &Missing::new());
    for (inode, expected) in oracle::ghosts(truth, LATE) {
        let found = verdicts.yes(Rule::GhostSandbox, &Subject::Netns(inode));
        match (expected, found) {
            (Some(true), None) => return Some(format!("netns {inode} is a ghost, and not found")),
            (Some(false), Some(found)) => return Some(format!("no ghost: {}", found.title)),
            _ => {}
        }
    }
    let expected = oracle::duplicates(truth, LATE);
    for ((rule, subject), found) in &verdicts.found {
        let Subject::Address(address) = subject else {
            continue;
        };
        let is_said = *rule == Rule::DuplicateAddress && found.severity >= Severity::Warning;
        if is_said && !expected.contains_key(address) {
            return Some(format!("no duplicate: {}", found.title));
        }
    }
    for (address, expected) in expected {
        let found = verdicts.yes(Rule::DuplicateAddress, &Subject::Address(address));
        let found = found.map_or(Severity::Info, |found| found.severity);
        if expected.is_some_and(|expected| expected != found) {
            return Some(format!(
                "duplicate {address} is {expected:?}, and said to be {found:?}"
            ));
        }
    }
    None
}

/// How the engine breaks the law without some sources.
fn broken(truth: &Truth, missing: &Missing) -> Option<String> {
    let whole = scanned(truth, &Missing::new());
    let less = scanned(truth, missing);
    let mut why = String::new();
    for ((when, whole), less) in ["at once", "later"].iter().zip(whole).zip(less) {
        compare(&whole, &less, &mut |rule, subject, what| {
            let _ = writeln!(why, "{when}: {} {subject:?}: {what}", rule.as_str());
        });
    }
    (!why.is_empty()).then_some(why)
}

/// Tells each verdict that the law does not allow.
fn compare(whole: &Verdicts, less: &Verdicts, tell: &mut dyn FnMut(Rule, &Subject, String)) {
    for ((rule, subject), found) in &less.found {
        let before = whole.found.get(&(*rule, subject.clone()));
        // What is pinned, and a ghost besides, is said to be a ghost.
        let as_ghost = *rule == Rule::PinnedNetns
            && whole.yes(Rule::GhostSandbox, subject).is_some();
        let was = before.map_or(Severity::Info, |before| before.severity);
        if found.severity > was && found.severity >= Severity::Warning && !as_ghost {
            let said = format!("{was:?} becomes {:?}: {}", found.severity, found.title);
            tell(*rule, subject, said);
        }
        let Some(before) = before else {
            continue;
        };
        if found.phase > before.phase {
            let said = format!("{:?} becomes {:?}", before.phase, found.phase);
            tell(*rule, subject, said);
        }
        if found.due.is_some() && before.due.is_none() {
            tell(*rule, subject, format!("{:?} is due", found.due));
        }
        if !found.deletes.is_subset(&before.deletes) {
            tell(*rule, subject, format!("deletes {:?}", found.deletes));
        }
    }
    for ((rule, subject), before) in &whole.found {
        if before.severity < Severity::Warning {
            continue;
        }
        let found = less.found.get(&(*rule, subject.clone()));
        let is_less = found.is_none_or(|found| {
            found.severity < before.severity || found.phase < before.phase
        });
        if is_less && !less.says_unknown(*rule, subject) {
            let said = match found {
                Some(found) => format!("becomes {:?} {:?}", found.severity, found.phase),
                None => String::from("is gone without a word"),
            };
            tell(*rule, subject, format!("{said}: {}", before.title));
        }
    }
}
