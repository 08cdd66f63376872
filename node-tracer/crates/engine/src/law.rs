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
//! | [`mod@traced`] | the same in the order of time, as a tracer sees it |
//! | [`oracle`] | what is wrong with it, by the rules' definitions |

mod oracle;
mod sources;
#[cfg(test)]
mod speech;
#[cfg(test)]
mod tests;
mod traced;
mod truth;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    net::IpAddr,
    time::Duration,
};

use self::{
    oracle::Oracle,
    sources::{Absence, Missing, OLD_LIST, Source, SourceView},
    traced::START,
    truth::{LOOK, TruePod, TrueSandbox, Truth},
};
use crate::{Engine, Settings, confirm::Confirmation};
use event::{
    Event, What,
    clock::Timestamp,
    finding::{Finding, Phase, Rule, Severity},
    testing::{generator::Dice, s},
};

/// When a scan that goes on looks again: every grace is over.
const LATE: i64 = LOOK + 80;

/// One node and what the bytes take away of it.
pub fn check(bytes: &[u8]) {
    check_one(&mut Dice::Bytes(bytes));
}

/// Makes a node up, takes sources away, and panics with the smallest such node
/// where the law is broken.
fn check_one(dice: &mut Dice<'_>) {
    let truth = Truth::any(dice);
    check_node(&truth, scanned, dice);
    check_node(&truth, traced, dice);
}

/// How a node is looked at.
type VerdictsOf = fn(&Truth, &Missing) -> Vec<Verdicts>;

fn check_node(truth: &Truth, seen: VerdictsOf, dice: &mut Dice<'_>) {
    let whole = seen(truth, &Missing::new());
    if let Some(why) = disagreement(truth, &whole) {
        let disagrees = |truth: &Truth| disagreement(truth, &seen(truth, &Missing::new()));
        let (truth, why) = smallest(truth.clone(), why, disagrees);
        panic!("{why}\n{truth}");
    }
    for mut missing in subsets(dice).into_iter().flat_map(with_accused) {
        if whole.len() == 1 {
            // The kernel's namespaces and addresses are what a tracer cannot do
            // without.
            missing.retain(|source, _| !matches!(source, Source::Visits | Source::Host));
        }
        if let Some(why) = broken(truth, &whole, &seen(truth, &missing), &missing) {
            let breaks = |truth: &Truth| {
                let whole = seen(truth, &Missing::new());
                broken(truth, &whole, &seen(truth, &missing), &missing)
            };
            let (truth, why) = smallest(truth.clone(), why, breaks);
            panic!("without {missing:?}: {why}\n{truth}");
        }
    }
}

/// Some sources by themselves, and some at once.
fn subsets(dice: &mut Dice<'_>) -> Vec<Missing> {
    let one = |dice: &mut Dice<'_>| {
        let source = dice.one(&Source::ALL);
        (source, dice.one(source.absences()))
    };
    let alone = (0..4).map(|_| Missing::from([one(dice)]));
    let mut subsets: Vec<_> = alone.collect();
    let number = 2 + dice.roll(4);
    subsets.push((0..number).map(|_| one(dice)).collect());
    subsets
}

/// What is missing, and the same of it that has to be named where a ghost or a
/// duplicate cannot be found.
fn with_accused(missing: Missing) -> Vec<Missing> {
    let of = |rule: Rule| {
        let mut accused = missing.clone();
        accused.retain(|source, _| is_accused(rule, *source));
        accused
    };
    let mut all = vec![
        of(Rule::GhostSandbox),
        of(Rule::DuplicateAddress),
        missing.clone(),
    ];
    all.dedup();
    all.retain(|missing| !missing.is_empty());
    all
}

/// Whether what a rule cannot find without a source makes an exit code, and has to
/// be said as such. What another one cannot tell is in its own line of the coverage.
fn is_accused(rule: Rule, source: Source) -> bool {
    use Source::{Cgroups, Descriptors, Mounts, Pods, Visits};
    match rule {
        Rule::GhostSandbox => matches!(source, Pods | Visits | Mounts | Descriptors | Cgroups),
        Rule::DuplicateAddress => matches!(source, Visits | Mounts | Descriptors | Cgroups),
        _ => false,
    }
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
    for place in 0..truth.others.len() {
        let mut less = truth.clone();
        less.others.remove(place);
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
        // That records were lost says that something is unknown.
        let open = engine.open().into_iter();
        for finding in open.filter(|finding| finding.rule != Rule::EventsLost) {
            for subject in subjects(finding) {
                let verdict = Verdict::of(finding);
                // An address can be used twice in several networks.
                let worst = found.entry((finding.rule, subject));
                let worst = worst.or_insert_with(|| verdict.clone());
                if verdict.severity > worst.severity {
                    *worst = verdict;
                }
            }
        }
        Self {
            found,
            gaps: engine.gaps().to_vec(),
        }
    }

    fn yes(&self, rule: Rule, subject: &Subject) -> Option<&Verdict> {
        let verdict = self.found.get(&(rule, subject.clone()))?;
        (verdict.severity >= Severity::Warning).then_some(verdict)
    }

    /// A ghost, or one that shows by and by.
    fn may_be_ghost(&self, subject: &Subject) -> bool {
        let undecided = || {
            let Subject::Netns(inode) = subject else {
                return false;
            };
            let about = format!("ghost-sandbox: netns {inode} ");
            self.gaps.iter().any(|gap| gap.starts_with(&about))
        };
        self.yes(Rule::GhostSandbox, subject).is_some() || undecided()
    }

    /// Whether anything says that a verdict is not known, if something has to.
    fn says_unknown(&self, rule: Rule, subject: &Subject, missing: &Missing) -> bool {
        let by_gap = self.gaps.iter().any(|gap| {
            let rules = gap.split_once(':').map_or("", |(rules, _)| rules);
            rules.split(", ").any(|name| name == rule.as_str())
        });
        let pinned = (Rule::PinnedNetns, subject.clone());
        let mut sources = missing.iter();
        // That a file is old its owner knows alone.
        let matters =
            sources.all(|(source, absence)| is_accused(rule, *source) && *absence != Absence::Old);
        match self.found.get(&(rule, subject.clone())) {
            Some(verdict) => {
                verdict.severity >= Severity::Warning || by_gap || !verdict.unknown.is_empty()
            }
            None => by_gap || !matters || self.found.contains_key(&pinned),
        }
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
        Rule::GhostSandbox
        | Rule::PinnedNetns
        | Rule::TrappedDevice
        | Rule::UnreservedAddress
        | Rule::MissingGatewayNeighbour => {
            let all = netns.map(|netns| Subject::Netns(netns.id.inode));
            all.into_iter().collect()
        }
        _ => vec![Subject::Other(finding.id.clone())],
    }
}

/// What a scan says that looks twice, 80 s apart: after the first look and
/// after the second.
fn scanned(truth: &Truth, missing: &Missing) -> Vec<Verdicts> {
    let view = SourceView { truth, missing };
    let mut looks = Confirmation::new(settings());
    let looked = [LOOK, LATE].map(|time| {
        take(&mut looks, &view, &view.look(time), time);
        if looks.is_doubtful() {
            take(&mut looks, &view, &view.look_again(time + 1), time + 1);
        }
        looks.judged();
        Verdicts::of(looks.engine())
    });
    looked.into()
}

/// What a tracer says in the end that was started before most of it.
fn traced(truth: &Truth, missing: &Missing) -> Vec<Verdicts> {
    let mut engine = Engine::of_trace(Settings {
        surveyed: false,
        ..settings()
    });
    let view = SourceView { truth, missing };
    let quiet = [LOOK + 40, LATE].map(|time| (time, Vec::new()));
    for (time, events) in view.trace().into_iter().chain(quiet) {
        for event in &events {
            engine.apply(event);
        }
        let tick = |engine: &mut Engine| {
            let not_before = engine.not_before();
            let time = not_before.map_or(s(time), |pause| pause.max(s(time)));
            let what = What::Tick;
            engine.apply(&Event { time, what });
        };
        tick(&mut engine);
        let then = truth.then(time);
        let view = SourceView {
            truth: &then,
            missing,
        };
        let watched = engine.watched().clone();
        for address in &watched.addresses | &watched.living {
            engine.apply(&view.answer(address, time));
        }
        for event in view.devices(&watched.unplaced, time) {
            engine.apply(&event);
        }
        tick(&mut engine);
    }
    vec![Verdicts::of(&engine)]
}

fn settings() -> Settings {
    Settings {
        boot_id: String::from("boot"),
        node: String::from("node-1"),
        node_is_named: true,
        stall_threshold: Duration::from_secs(5),
        surveyed: true,
    }
}

fn take(looks: &mut Confirmation, view: &SourceView<'_>, events: &[Event], time: i64) {
    for event in events {
        looks.apply(event);
    }
    tick(looks, time);
    let watched = looks.engine().watched();
    for address in &watched.addresses | &watched.living {
        looks.apply(&view.answer(address, time));
    }
    tick(looks, time);
    looks.looked();
}

fn tick(looks: &mut Confirmation, time: i64) {
    let not_before = looks.engine().not_before();
    let time = not_before.map_or(s(time), |pause| pause.max(s(time)));
    let what = What::Tick;
    looks.apply(&Event { time, what });
}

/// How the engine, told all, disagrees with the oracle.
fn disagreement(truth: &Truth, seen: &[Verdicts]) -> Option<String> {
    let verdicts = seen.last()?;
    let oracle = Oracle {
        truth,
        late: LATE,
        // One look is a tracer's, and two are a scan's.
        from: (seen.len() == 1).then_some(START),
    };
    for (inode, expected) in oracle.ghosts() {
        let found = verdicts.yes(Rule::GhostSandbox, &Subject::Netns(inode));
        match (expected, found) {
            (Some(true), None) => return Some(format!("netns {inode} is a ghost, and not found")),
            (Some(false), Some(found)) => return Some(format!("no ghost: {}", found.title)),
            _ => {}
        }
    }
    for ((rule, subject), found) in &verdicts.found {
        let sandboxes = truth.pods.iter().flat_map(|pod| &pod.sandboxes);
        let mut its = sandboxes.filter(|it| *subject == Subject::Netns(it.inode));
        let is_said = *rule == Rule::UnreservedAddress;
        if is_said && its.any(|sandbox| sandbox.reserved || !sandbox.lives()) {
            return Some(format!("it is reserved: {}", found.title));
        }
    }
    for ((rule, _), found) in &verdicts.found {
        let mut over = truth.over().map(|sandbox| sandbox.own().to_string());
        let is_about = |address: String| found.title.split(' ').any(|word| word == address);
        if *rule == Rule::StalePath && !over.any(is_about) {
            return Some(format!("nothing is left over: {}", found.title));
        }
    }
    let expected = oracle.duplicates();
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
fn broken(
    truth: &Truth,
    whole: &[Verdicts],
    less: &[Verdicts],
    missing: &Missing,
) -> Option<String> {
    let mut why = String::new();
    for (place, (whole, less)) in whole.iter().zip(less).enumerate() {
        compare(whole, less, missing, &mut |rule, subject, is_less, what| {
            let is_old = || is_less && is_on_old_list(truth, rule, subject, missing);
            if is_so_anyway(truth, rule, subject, missing) || is_old() {
                return;
            }
            let _ = writeln!(why, "look {place}: {} {subject:?}: {what}", rule.as_str());
        });
    }
    (!why.is_empty()).then_some(why)
}

/// What is so, and is not found with all sources: what a rule leaves out for a pod
/// that is gone, or going; and what only a list from before that pod went names,
/// its address.
fn is_so_anyway(truth: &Truth, rule: Rule, subject: &Subject, missing: &Missing) -> bool {
    let sandboxes = || truth.pods.iter().flat_map(|pod| &pod.sandboxes);
    let is_it = |sandbox: &TrueSandbox| match subject {
        Subject::Netns(inode) => *inode == sandbox.inode,
        Subject::Address(address) => *address == sandbox.own(),
        Subject::Other(_) => false,
    };
    let is_shared = |one: &TrueSandbox| {
        let mut others = sandboxes().filter(|other| other.lives() && other.inode != one.inode);
        others.any(|other| other.own() == one.own())
    };
    let is_old = missing.get(&Source::Pods) == Some(&Absence::Old);
    let mut its = sandboxes().filter(|sandbox| is_it(sandbox));
    match rule {
        Rule::MissingGatewayNeighbour => its.any(|sandbox| !sandbox.neighbour),
        Rule::DuplicateAddress | Rule::GhostSandbox => {
            is_old && its.any(|sandbox| sandbox.lives() && is_shared(sandbox))
        }
        // A call explains it, or another namespace that has the address: that these
        // could not be seen is said.
        Rule::UnreservedAddress => its.any(|sandbox| sandbox.lives() && !sandbox.reserved),
        // Whether a holder is the only one, lives, and got the address last: what is
        // missing of that is said with it.
        Rule::StalePath => {
            use Source::{Cri, Descriptors, Libcni, Mounts, Pods, Visits};
            let hiding = [Pods, Cri, Libcni, Visits, Mounts, Descriptors];
            hiding.iter().any(|source| missing.contains_key(source))
        }
        _ => false,
    }
}

/// Whether an old list has the pod whose sandbox is a ghost by a new one: that it
/// is old its owner knows alone.
fn is_on_old_list(truth: &Truth, rule: Rule, subject: &Subject, missing: &Missing) -> bool {
    let has = |pod: &TruePod| {
        let mut its = pod.sandboxes.iter();
        let is_its = its.any(|sandbox| *subject == Subject::Netns(sandbox.inode));
        is_its && pod.is_listed(OLD_LIST) && pod.made() <= OLD_LIST
    };
    rule == Rule::GhostSandbox
        && missing.get(&Source::Pods) == Some(&Absence::Old)
        && truth.pods.iter().any(has)
}

/// Tells each verdict that the law does not allow, and whether it says less.
fn compare(
    whole: &Verdicts,
    less: &Verdicts,
    missing: &Missing,
    tell: &mut dyn FnMut(Rule, &Subject, bool, String),
) {
    for ((rule, subject), found) in &less.found {
        let before = whole.found.get(&(*rule, subject.clone()));
        // What is a ghost is said to be one, and not what else is so of it.
        let is_ghosts = matches!(
            rule,
            Rule::PinnedNetns | Rule::TrappedDevice | Rule::MissingGatewayNeighbour
        );
        let as_ghost = is_ghosts && whole.may_be_ghost(subject);
        let was = before.map_or(Severity::Info, |before| before.severity);
        if found.severity > was && found.severity >= Severity::Warning && !as_ghost {
            let said = format!("{was:?} becomes {:?}: {}", found.severity, found.title);
            tell(*rule, subject, false, said);
        }
        let Some(before) = before else {
            continue;
        };
        if found.phase > before.phase {
            let said = format!("{:?} becomes {:?}", before.phase, found.phase);
            tell(*rule, subject, false, said);
        }
        if found.due.is_some() && before.due.is_none() {
            let said = format!("{:?} is due: {}", found.due, found.title);
            tell(*rule, subject, false, said);
        }
        // That a file of pods is old its owner knows alone.
        let is_old = missing.get(&Source::Pods) == Some(&Absence::Old);
        if !found.deletes.is_subset(&before.deletes) && !is_old {
            let said = format!("deletes {:?}: {}", found.deletes, found.title);
            tell(*rule, subject, false, said);
        }
    }
    for ((rule, subject), before) in &whole.found {
        if before.severity < Severity::Warning {
            continue;
        }
        let found = less.found.get(&(*rule, subject.clone()));
        let is_less = found
            .is_none_or(|found| found.severity < before.severity || found.phase < before.phase);
        if is_less && !less.says_unknown(*rule, subject, missing) {
            let said = match found {
                Some(found) => format!(
                    "becomes {:?} {:?} {:?}",
                    found.severity, found.phase, found.title
                ),
                None => String::from("is gone without a word"),
            };
            tell(*rule, subject, true, format!("{said}: {}", before.title));
        }
    }
}
