//! The same from the kernel's log: a device that it cannot remove, as
//! something still refers to it. The namespace that it goes down with is not
//! named, and no other is taken down in the meantime.

use std::time::Duration;

use super::{HOPELESS, advice, rtnl, waiting as stuck};
use crate::{
    detect::{View, evidence, sleeps_in, stuck_holder, task_label},
    finding::{Detail, Finding, Rule, Severity, finding_id},
    model::waiting::Waiting,
};

/// The kernel tells of it once in that time, and for the first time after it.
const EVERY: Duration = Duration::from_secs(10);
/// If it was not told for so long, it is over.
const OVER: Duration = Duration::from_secs(35);

/// One finding a device.
pub(super) fn detect(view: &View<'_>) -> Vec<Finding> {
    let all = view.model.waiting.all();
    let open = all.filter(|(_, waits)| !view.passed(waits.last.plus(OVER)));
    open.map(|(device, waits)| finding(view, device, waits))
        .collect()
}

fn finding(view: &View<'_>, device: &str, waits: &Waiting) -> Finding {
    let long = waits.last.since(waits.first);
    let references = match waits.references {
        Some(1) => String::from(": 1 reference to it is left"),
        Some(left) => format!(": {left} references to it are left"),
        None => String::new(),
    };
    let mut claims = vec![evidence(
        format!("the kernel waits for {device} to become free{references}"),
        "kernel",
        waits.first,
    )];
    if waits.times > 1 {
        let claim = "it says so about every ten seconds, this time for the last";
        claims.push(evidence(claim, "kernel", waits.last));
    }
    let (workers, _) = stuck(view);
    for blocked in &workers {
        let claim = format!(
            "{} takes namespaces down and is stuck{}",
            task_label(&blocked.task),
            sleeps_in(blocked)
        );
        claims.push(evidence(claim, "kernel", blocked.since));
    }
    Finding {
        rule: Rule::NetnsTeardownStall,
        severity: match long >= HOPELESS {
            true => Severity::Critical,
            false => Severity::Warning,
        },
        id: finding_id(
            &view.settings.boot_id,
            Rule::NetnsTeardownStall,
            &format!("device {device}"),
        ),
        since: waits.first.minus(EVERY),
        title: format!(
            "the kernel cannot remove the network device {device}, and takes no network namespace \
             down until it can{references}"
        ),
        pod: None,
        sandbox_id: None,
        netns: None,
        addresses: Vec::new(),
        holders: workers.into_iter().map(stuck_holder).collect(),
        evidence: claims,
        unknown: vec![
            format!(
                "which network namespace {device} is of: each has devices of these names, and the \
                 kernel's message does not say"
            ),
            String::from("what still refers to it: the kernel does not say"),
        ],
        advice: advice(view, &rtnl::holders(view.model)),
        detail: Detail::default(),
    }
}
