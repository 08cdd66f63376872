//! Findings, CNI calls and coverage, as the template shows them.

use super::{
    super::{
        history::History,
        incident::Incident,
        lanes::{Call, Lane},
        narrative::Narrator,
        prose::{Calendar, Prose},
        sheet::Sheet,
        shown::Shown,
    },
    command::step,
    times,
};
use event::{
    finding::{Evidence, Finding, Holder, Phase},
    order::Order as _,
    wording::{duration::length, stack::folded, subjects::short_id},
};

/// CNI calls in the table, and those of one sandbox.
const MAX_CALLS: usize = 400;
const MAX_OF_LANE: usize = 40;
/// Holders of one finding.
const MAX_HOLDERS: usize = 24;
/// Claims of one finding.
const MAX_CLAIMS: usize = 60;

#[derive(Debug)]
pub(super) struct FindingView {
    /// The worst that it was.
    pub severity: &'static str,
    /// Where, on a page of several nodes.
    pub node: Shown,
    /// Which rule found it.
    pub rule: &'static str,
    /// The verdict, at its worst.
    pub title: Shown,
    /// Since when, and whether it is over.
    pub lasted: String,
    /// What it is about: a label and a value each.
    pub about: Vec<(&'static str, Shown)>,
    /// How it came to that.
    pub steps: Vec<StepView>,
    /// The evidence, in its order.
    pub claims: Vec<ClaimView>,
    /// Claims of other times than its worst.
    pub others: Vec<ClaimView>,
    /// What holds the namespace.
    pub holders: Vec<HolderView>,
    /// What could not be found out.
    pub unknown: Vec<Shown>,
    /// What to do, in order.
    pub advice: Vec<Prose>,
    /// What there is no room for.
    pub left_out: u64,
}

/// A change of severity or phase.
#[derive(Debug)]
pub(super) struct StepView {
    pub at: String,
    pub severity: &'static str,
    /// The phase from then on; empty where the rule has none.
    pub phase: &'static str,
    /// The verdict from then on.
    pub title: Shown,
}

#[derive(Debug)]
pub(super) struct ClaimView {
    pub at: String,
    pub source: Shown,
    pub claim: Shown,
}

/// What holds a namespace.
#[derive(Debug)]
pub(super) struct HolderView {
    /// What kind of thing it is.
    pub kind: &'static str,
    pub name: Shown,
    /// State, since when, container.
    pub state: Shown,
    /// The stack in one line.
    pub folded: Shown,
    /// The stack, innermost first.
    pub stack: Vec<Shown>,
}

#[derive(Debug)]
pub(super) struct CallView {
    pub began: String,
    /// `CNI_COMMAND`
    pub command: Shown,
    pub plugin: Shown,
    /// Another plugin called it.
    pub delegated: bool,
    /// The container ID, in short.
    pub sandbox: Shown,
    pub pod: Shown,
    /// The interface, and the network where it is known.
    pub on: Shown,
    /// From exec to exit.
    pub took: String,
    /// It did not end well.
    pub failed: bool,
    pub result: Shown,
    /// Why it is not believed; empty if it is.
    pub distrust: Shown,
}

/// A signal or source.
#[derive(Debug)]
pub(super) struct CoverageView {
    /// Whose recording, on a page of several.
    pub node: Shown,
    pub signal: Shown,
    /// Empty if it was not seen.
    pub mechanism: Shown,
    /// Why it was not seen, or not better.
    pub reason: Shown,
    /// What is not known for that.
    pub unknown: Vec<Shown>,
}

/// One of several recordings.
#[derive(Debug)]
pub(super) struct PartView {
    pub node: Shown,
    pub source: Shown,
    pub times: Shown,
    pub events: Shown,
    /// What is known of its clock.
    pub clock: Shown,
}

/// The recordings, if there are several.
pub(super) fn parts(sheet: &Sheet) -> Vec<PartView> {
    let first = sheet.parts.first().map(|part| part.node.as_str());
    let first = first.unwrap_or_default();
    let parts = sheet.parts.iter().map(|part| PartView {
        node: Shown::new(&part.node),
        source: Shown::new(&part.source),
        times: Shown::new(times(part.began, part.ended)),
        events: Shown::new(match &part.summary {
            Some(summary) => summary.events_seen.to_string(),
            None => String::from("counted with the first of this file"),
        }),
        clock: Shown::new(part.clock.words(first)),
    });
    parts.collect()
}

pub(super) fn finding(sheet: &Sheet, history: &History, calendar: &Calendar) -> FindingView {
    let finding = &history.worst;
    let since = calendar.moment(finding.since);
    let word = match finding.detail.first_seen {
        true => "first seen at",
        false => "since",
    };
    let lasted = match history.resolved {
        Some(at) => format!(
            "{word} {since}, over at {} ({})",
            calendar.moment(at),
            length(at.since(finding.since))
        ),
        None => format!("{word} {since}, not over at the end"),
    };
    let steps = history.steps.iter().map(|step| StepView {
        at: calendar.moment(step.at),
        severity: step.severity.as_str(),
        phase: step.phase.map(|phase| phase.as_str()).unwrap_or_default(),
        title: Shown::new(&step.title),
    });
    let claim = |evidence: &Evidence| ClaimView {
        at: calendar.moment(evidence.at),
        // Of a list of pods the file's name is enough; the whole is below.
        source: Shown::new(evidence.source.rsplit('/').next().unwrap_or_default()),
        claim: Shown::new(&evidence.claim),
    };
    let more_claims = finding.evidence.len().saturating_sub(MAX_CLAIMS);
    let more_holders = finding.holders.len().saturating_sub(MAX_HOLDERS);
    let holders = finding.holders.iter().take(MAX_HOLDERS);
    FindingView {
        severity: finding.severity.as_str(),
        rule: finding.rule.as_str(),
        title: Shown::new(&finding.title),
        lasted,
        about: {
            let node = Shown::new(sheet.node_of(history.part));
            let node = sheet.has_nodes().then_some(("node", node));
            node.into_iter().chain(about(finding, calendar)).collect()
        },
        node: Shown::new(match sheet.has_nodes() {
            true => sheet.node_of(history.part),
            false => "",
        }),
        steps: steps.collect(),
        claims: finding
            .evidence
            .iter()
            .take(MAX_CLAIMS)
            .map(claim)
            .collect(),
        others: history.others.iter().map(claim).collect(),
        holders: holders.map(|it| holder(it, calendar)).collect(),
        unknown: finding.unknown.iter().map(Shown::new).collect(),
        advice: finding.advice.iter().map(|text| step(text)).collect(),
        left_out: history.left_out + (more_claims + more_holders) as u64,
    }
}

fn about(finding: &Finding, calendar: &Calendar) -> Vec<(&'static str, Shown)> {
    let mut about = Vec::new();
    if let Some(pod) = finding
        .pod
        .as_ref()
        .filter(|pod| **pod != Default::default())
    {
        let uid = pod.uid.as_ref().filter(|_| pod.name.is_some());
        let uid = uid.map(|uid| format!(", uid {uid}")).unwrap_or_default();
        about.push(("pod", Shown::new(format!("{}{uid}", pod.label()))));
    }
    if let Some(id) = &finding.sandbox_id {
        about.push(("sandbox", Shown::new(id)));
    }
    if let Some(netns) = &finding.netns {
        let mut text = netns.id.inode.to_string();
        for path in netns.paths.iter().take(4) {
            text.push_str(&format!("  {}", path.display()));
        }
        about.push(("netns", Shown::new(text)));
    }
    if !finding.addresses.is_empty() {
        let all: Vec<String> = finding
            .addresses
            .iter()
            .take(32)
            .map(ToString::to_string)
            .collect();
        let more = match finding.addresses.len() - all.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        about.push(("address", Shown::new(format!("{}{more}", all.join(", ")))));
    }
    let detail = &finding.detail;
    // Once the address can be handed out, the time by which says nothing.
    let due = detail
        .due
        .filter(|_| detail.phase <= Some(Phase::Suspected));
    let text = |text: &Option<String>| text.as_ref().map(Shown::new);
    let parts = [
        ("cause", text(&detail.cause)),
        ("due", due.map(|due| Shown::new(calendar.moment(due)))),
        ("attempts", detail.attempts.map(Shown::new)),
        ("old sandbox", text(&detail.old_container_id)),
        ("new sandbox", text(&detail.new_container_id)),
        (
            "error",
            detail.error.as_ref().map(|error| Shown::new(&error.msg)),
        ),
        ("used", detail.used.map(Shown::new)),
        ("leaked", detail.leaked.map(Shown::new)),
        ("size", detail.size.map(Shown::new)),
    ];
    about.extend(
        parts
            .into_iter()
            .filter_map(|(label, text)| Some((label, text?))),
    );
    about.push(("id", Shown::new(&finding.id)));
    about
}

fn holder(holder: &Holder, calendar: &Calendar) -> HolderView {
    let nothing = Shown::default;
    let of = |kind, pid: &u32, fd: &u32, comm: &Option<String>| HolderView {
        kind,
        name: Shown::new(format!("{} ({pid})", comm.as_deref().unwrap_or("process"))),
        state: Shown::new(format!("descriptor {fd}")),
        folded: nothing(),
        stack: Vec::new(),
    };
    match holder {
        Holder::Task {
            pid,
            tid,
            comm,
            state,
            since,
            wchan,
            stack,
            container_id,
            not_stuck,
            first_seen,
        } => {
            let thread = match pid == tid {
                true => String::new(),
                false => format!(", thread {tid}"),
            };
            let mut how: Vec<String> = Vec::new();
            how.extend(state.map(|state| match (state, not_stuck) {
                (state, Some(why)) => format!("state {state} ({})", why.as_str()),
                ('D', None) => String::from("state D (uninterruptible)"),
                (other, None) => format!("state {other}"),
            }));
            let word = if *first_seen { "first seen" } else { "since" };
            how.extend(since.map(|since| format!("{word} {}", calendar.moment(since))));
            how.extend(wchan.as_ref().map(|wchan| format!("in {wchan}")));
            let container = container_id.as_deref().map(short_id);
            how.extend(container.map(|id| format!("container {id}")));
            HolderView {
                kind: "task",
                name: Shown::new(format!("{comm} ({pid}{thread})")),
                state: Shown::new(how.join(", ")),
                folded: Shown::new(match stack.is_empty() {
                    true => String::new(),
                    false => folded(stack),
                }),
                stack: stack.iter().map(Shown::new).collect(),
            }
        }
        Holder::Mount { path } => HolderView {
            kind: "mount",
            name: Shown::new(path.display()),
            state: nothing(),
            folded: nothing(),
            stack: Vec::new(),
        },
        Holder::Fd { pid, fd, comm } => of("descriptor", pid, fd, comm),
        Holder::Socket { pid, fd, comm } => of("socket", pid, fd, comm),
    }
}

/// CNI calls of the sandboxes concerned, in order, and how many more there are.
pub(super) fn calls(
    sheet: &Sheet,
    incidents: &[Incident<'_>],
    calendar: &Calendar,
) -> (Vec<CallView>, usize) {
    let narrator = Narrator::new(sheet);
    let lanes = incidents.iter().flat_map(|incident| &incident.lanes);
    let lanes = lanes.filter_map(|serial| sheet.lanes.get(*serial));
    let mut all: Vec<(&Lane, &Call)> = Vec::new();
    let mut more = 0;
    for lane in lanes {
        all.extend(lane.calls.iter().take(MAX_OF_LANE).map(|call| (lane, call)));
        more += lane.calls.len().saturating_sub(MAX_OF_LANE);
    }
    all.order_by_key(|(_, call)| call.began);
    more += all.len().saturating_sub(MAX_CALLS);
    let all = all.into_iter().take(MAX_CALLS);
    let all = all.map(|(lane, call)| CallView {
        began: calendar.moment(call.began),
        command: Shown::new(call.command.as_str()),
        plugin: Shown::new(&call.plugin),
        delegated: call.delegated,
        sandbox: Shown::new(short_id(&call.container_id)),
        pod: Shown::new(narrator.whose(lane)),
        on: Shown::new(match &call.network {
            Some(network) => format!("{} of {network}", call.ifname),
            None => call.ifname.clone(),
        }),
        took: match &call.ended {
            Some(end) => format!("{:.0} ms", end.took_ms),
            None => String::new(),
        },
        failed: call.ended.as_ref().is_some_and(|end| !end.is_success()),
        result: Shown::new(match &call.ended {
            Some(end) if end.is_success() => {
                let ips: Vec<String> = end.ips.iter().map(ToString::to_string).collect();
                format!("ok  {}", ips.join("  "))
            }
            Some(end) => end.failure(),
            None => String::from("its end was not seen"),
        }),
        distrust: match call.trusted {
            true => Shown::default(),
            false => Shown::new(
                call.distrust
                    .as_deref()
                    .unwrap_or("it is not known who called"),
            ),
        },
    });
    (all.collect(), more)
}

/// What was seen, by what, and what was not.
pub(super) fn coverage(sheet: &Sheet) -> Vec<CoverageView> {
    let parts = 0..sheet.parts.len().max(1);
    let items = parts.flat_map(|part| sheet.coverage_of(part).iter().map(move |it| (part, it)));
    let items = items.map(|(part, item)| CoverageView {
        node: Shown::new(match sheet.has_nodes() {
            true => sheet.node_of(part),
            false => "",
        }),
        signal: Shown::new(&item.signal),
        mechanism: Shown::new(item.mechanism.as_deref().unwrap_or_default()),
        reason: Shown::new(item.reason.as_deref().unwrap_or_default()),
        unknown: item.unknown.iter().map(Shown::new).collect(),
    });
    items.collect()
}
