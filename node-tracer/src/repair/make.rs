//! Making a plan: two looks that agree.

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::{Path, PathBuf},
    time::Instant,
};

use super::{
    advice,
    judge::{Free, Verdicts, withheld},
    observe::{Depth, Observation, Observer},
};
use crate::{
    config::{Config, Making},
    log, progress, terminal,
};
use event::repair::plan::{Plan, Reason, Release, RootFolder, StoreSeen, VERSION, Withheld};
use event::{
    clock::Timestamp,
    finding::{Evidence, Finding, Rule},
    order::Order as _,
    wording::plural::counted,
};
use node::{hostlocal::locked_store::Exact, root::Root};
use sys::clock::uptime;

/// What of one look the next one is compared with.
type Before = (Verdicts, BTreeMap<PathBuf, Exact>);

/// Looks twice, unless the first look leaves nothing to be confirmed.
///
/// # Errors
/// The node cannot be looked at.
pub(crate) fn plan(
    config: &Config,
    observer: &mut Observer,
    making: &Making,
) -> anyhow::Result<Plan> {
    let first = observer.look(config, Depth::Whole)?;
    let before = read(config, making, &first);
    let look_again = first.hindrances.is_empty() && !before.0.free.is_empty();
    if !look_again {
        // Nothing is released by one look: what it would have is not known.
        return finish(config, making, &first, first.at, before, None);
    }
    wait(making, before.0.free.len());
    let second = observer.look(config, Depth::Whole)?;
    let now = read(config, making, &second);
    finish(config, making, &second, first.at, now, Some(before))
}

fn read(config: &Config, making: &Making, seen: &Observation) -> Before {
    let mut verdicts = seen.verdicts(making.grace);
    let exacts = seen.read(&mut verdicts, &config.node.root, making.grace);
    (verdicts, exacts)
}

/// Until the grace has passed since the end of the first look.
fn wait(making: &Making, leaked: usize) {
    let end = Instant::now() + making.grace;
    let at = sys::clock::now().plus(making.grace);
    // Nobody has to know; whoever waits wants to.
    if !terminal::is_quiet() {
        let _ = writeln!(
            log::Stderr,
            "node-tracer: {} may be leaked; looking again at {} UTC, {} from now (--grace)",
            counted(leaked, "reservation"),
            at.time_of_day().get(..8).unwrap_or_default(),
            humantime::format_duration(making.grace),
        );
    }
    let _shown = progress::show(move |_| {
        let left = end.saturating_duration_since(Instant::now());
        format!("looking again in {} s…", left.as_secs() + 1)
    });
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
}

/// Puts together what both looks say; `before` is what the first one said, if
/// there were two.
fn finish(
    config: &Config,
    making: &Making,
    seen: &Observation,
    first: Timestamp,
    (verdicts, exacts): Before,
    before: Option<Before>,
) -> anyhow::Result<Plan> {
    let (device, inode) = Root::open(&config.node.root)?.identity()?;
    let mut withheld_by_path = verdicts.withheld;
    let mut releases = Vec::new();
    for (path, free) in verdicts.free {
        let exact = exacts.get(&path);
        match agreed(&path, &free, exact, before.as_ref(), &seen.hindrances) {
            Ok(exact) => releases.push(release(free, exact, first, seen)),
            Err(withheld) => drop(withheld_by_path.insert(path, withheld)),
        }
    }
    releases.order_by_key(|each| (each.modified, each.address));
    let findings = seen.findings();
    let stores = seen.stores().map(|(path, network, reservations)| {
        let path = path.to_string_lossy().into_owned();
        StoreSeen {
            network: network.map(str::to_owned),
            reservations,
            evidence: evidence_of(&findings, &path),
            path,
        }
    });
    Ok(Plan {
        version: VERSION,
        tool: String::from(env!("CARGO_PKG_VERSION")),
        boot_id: config.node.boot_id.clone(),
        root: RootFolder {
            path: config.node.root.to_string_lossy().into_owned(),
            device,
            inode,
        },
        observed: [first, seen.at],
        uptime_ms: millis(uptime()),
        grace_ms: millis(making.grace),
        valid_for_ms: millis(making.valid_for),
        expires: seen.at.plus(making.valid_for),
        releases,
        withheld: withheld_by_path.into_values().collect(),
        stores: stores.collect(),
        refused: seen.hindrances.clone(),
        by_hand: advice::by_hand(&findings, seen),
        unknown: seen.unknown(),
    })
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The file, if both looks say the same of it.
fn agreed<'a>(
    path: &Path,
    free: &Free,
    exact: Option<&'a Exact>,
    before: Option<&Before>,
    hindrances: &[String],
) -> Result<&'a Exact, Withheld> {
    let each = &free.reservation;
    let not = |reason, why: &str| Err(withheld(each, reason, why));
    if !hindrances.is_empty() {
        return not(
            Reason::Unknown,
            "no container is seen, but not everything could be asked (see refused)",
        );
    }
    let Some((verdicts, exacts)) = before else {
        return not(Reason::Unknown, "it was seen by one look alone");
    };
    if let Some(withheld) = verdicts.why(path) {
        return Err(Withheld {
            why: format!("at the first look: {}", withheld.why),
            ..withheld.clone()
        });
    }
    match (exacts.get(path), exact) {
        (Some(before), Some(now)) if before == now => Ok(now),
        (Some(_), Some(_)) => not(Reason::Changed, "it was changed between the two looks"),
        _ => not(Reason::Changed, "it was not there at both looks"),
    }
}

fn release(free: Free, exact: &Exact, first: Timestamp, seen: &Observation) -> Release {
    let Free {
        store,
        network,
        reservation,
    } = free;
    let id = reservation.holder.container_id.as_str();
    let whose = match id {
        "" => String::from(
            "for nobody: the file is empty, and no CNI DEL can give it back (unless somebody has made \
             it to keep the address from being given out)",
        ),
        id => format!("for container {id}"),
    };
    let claim = |claim: String, source: &str, at| Evidence {
        claim,
        source: source.to_owned(),
        at,
    };
    let nobody = match id {
        "" => "no network namespace, sandbox or pod has the address",
        _ => {
            "neither the container runtime nor a cgroup, shim, folder, network namespace or CNI \
             plugin has the container, and nobody has the address"
        }
    };
    let evidence = vec![
        claim(format!("reserved {whose}"), "host-local", exact.modified),
        claim(nobody.to_owned(), "tracer", first),
        claim(
            String::from("the same again, and the file is the same"),
            "tracer",
            seen.at,
        ),
    ];
    Release {
        store,
        path: reservation.holder.path,
        address: reservation.address,
        container_id: reservation.holder.container_id,
        ifname: reservation.holder.ifname,
        network,
        size: exact.content.len() as u64,
        content: exact.content.clone(),
        device: exact.device,
        inode: exact.inode,
        modified: exact.modified,
        changed: exact.changed,
        evidence,
    }
}

/// What the finding on a store's leaks claims.
fn evidence_of(findings: &[&Finding], store: &str) -> Vec<Evidence> {
    let mut leaks = findings
        .iter()
        .filter(|finding| finding.rule == Rule::LeakedReservation);
    let its = leaks.find(|finding| {
        let mut reservations = finding.detail.reservations.iter();
        reservations.any(|each| each.path.parent().is_some_and(|it| it.as_os_str() == store))
    });
    its.map(|finding| finding.evidence.clone())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::repair::testing::{exact, release as planned};

    fn free() -> (PathBuf, Free, Exact) {
        let release = planned("10.0.0.5");
        let exact = exact(&release);
        let free = crate::repair::testing::free(&release);
        (release.path, free, exact)
    }

    fn seen(path: &Path, free: &Free, exact: &Exact) -> Before {
        let mut verdicts = Verdicts::default();
        verdicts.free.insert(path.to_owned(), free.clone());
        (verdicts, BTreeMap::from([(path.to_owned(), exact.clone())]))
    }

    #[test]
    fn two_looks_that_say_the_same_are_needed() {
        let (path, free, exact) = free();
        let before = seen(&path, &free, &exact);
        let found = agreed(&path, &free, Some(&exact), Some(&before), &[]);
        assert_eq!(found.unwrap(), &exact);
        let once = agreed(&path, &free, Some(&exact), None, &[]).unwrap_err();
        assert_eq!(once.reason, Reason::Unknown);
        let refused = [String::from("CRI does not answer")];
        let blind = agreed(&path, &free, Some(&exact), Some(&before), &refused).unwrap_err();
        assert_eq!(blind.reason, Reason::Unknown);
    }

    #[test]
    fn whatever_differs_between_the_looks_is_left_alone() {
        let (path, free, exact) = free();
        let other = Exact {
            modified: exact.modified.plus(Duration::from_nanos(1)),
            ..exact.clone()
        };
        let before = seen(&path, &free, &other);
        let changed = agreed(&path, &free, Some(&exact), Some(&before), &[]).unwrap_err();
        assert_eq!(changed.reason, Reason::Changed);
        let nothing = (Verdicts::default(), BTreeMap::new());
        let new = agreed(&path, &free, Some(&exact), Some(&nothing), &[]).unwrap_err();
        assert_eq!(new.reason, Reason::Changed);
    }

    #[test]
    fn what_was_in_use_at_the_first_look_is_left_alone_with_that_reason() {
        let (path, free, exact) = free();
        let mut before = (Verdicts::default(), BTreeMap::new());
        let live = withheld(&free.reservation, Reason::Live, "it has a cgroup");
        before.0.withheld.insert(path.clone(), live);
        let kept = agreed(&path, &free, Some(&exact), Some(&before), &[]).unwrap_err();
        assert_eq!(kept.reason, Reason::Live);
        assert_eq!(kept.why, "at the first look: it has a cgroup");
    }
}
