//! The story in words: what the evidence says, one sentence an event, and what
//! is not known.
//!
//! Nothing is told here that no event and no finding says. A cause is named
//! only where a finding names it.

mod item;
mod naming;
mod narrator;

pub use self::narrator::Narrator;
use super::{history::History, incident::Incident, prose::Prose, sheet::Sheet, shown::Shown};
use event::{
    finding::{Phase, Rule, Severity},
    wording::{duration::length, plural::counted},
};

/// Incidents that are told in words.
pub const MAX_CHAPTERS: usize = 8;
/// Findings that a chapter names, and things that it says are not known.
const MAX_NAMED: usize = 6;

/// One incident in words.
#[derive(Debug)]
pub struct Chapter {
    /// What it is about.
    pub heading: Shown,
    pub paragraphs: Vec<Vec<Prose>>,
    pub found: Vec<Prose>,
    /// What is not known.
    pub unknown: Vec<Shown>,
}

/// All incidents in words, as far as there is room.
pub fn chapters(sheet: &Sheet, incidents: &[Incident<'_>]) -> Vec<Chapter> {
    let told = incidents.iter().take(MAX_CHAPTERS);
    told.map(|incident| chapter(sheet, incident)).collect()
}

fn chapter(sheet: &Sheet, incident: &Incident<'_>) -> Chapter {
    let mut narrator = Narrator::new(sheet);
    let paragraphs = narrator.paragraphs(incident);
    let found = incident.findings.iter().take(MAX_NAMED);
    let mut found: Vec<Prose> = found.map(|history| narrator.finding(history)).collect();
    let more = incident.findings.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        found.push(Prose::default().say(format!("{} more are below.", counted(more, "finding"))));
    }
    let mut unknown: Vec<Shown> = Vec::new();
    for text in incident.findings.iter().flat_map(|it| &it.worst.unknown) {
        let text = Shown::new(text);
        if unknown.len() < MAX_NAMED && !unknown.contains(&text) {
            unknown.push(text);
        }
    }
    Chapter {
        heading: heading(incident),
        paragraphs,
        found,
        unknown,
    }
}

/// What an incident is about: an address and a pod, or else what was found.
fn heading(incident: &Incident<'_>) -> Shown {
    let Some(History { worst, .. }) = incident.worst() else {
        return Shown::default();
    };
    let pod = worst.pod.as_ref().map(|pod| pod.label());
    let mut parts: Vec<String> = worst
        .addresses
        .iter()
        .take(2)
        .map(ToString::to_string)
        .collect();
    parts.extend(pod);
    match parts.is_empty() {
        true => Shown::new(worst.rule.as_str()),
        false => Shown::new(format!("{}: {}", worst.rule.as_str(), parts.join(", "))),
    }
}

/// The whole in one sentence.
pub fn verdict(sheet: &Sheet, incidents: &[Incident<'_>]) -> Shown {
    let worst = incidents.iter().find(|incident| {
        let worst = incident.worst();
        worst.is_some_and(|history| history.worst.severity > Severity::Info)
    });
    let Some(incident) = worst else {
        let parts = 0..sheet.parts.len().max(1);
        let items = parts.flat_map(|part| sheet.coverage_of(part));
        let blind = items.filter(|item| item.mechanism.is_none());
        let blind = match blind.count() {
            0 => String::new(),
            number => format!("; incomplete: {} could not", counted(number, "source")),
        };
        return Shown::new(format!(
            "Nothing of severity warning or above was found{blind}."
        ));
    };
    let sentence = twice(sheet, incident).or_else(|| match incident.shared.first() {
        Some(one) => one.sentence(sheet),
        None => kept(sheet, incident),
    });
    let others = incidents.iter().filter(|it| {
        let worst = it.worst();
        worst.is_some_and(|history| history.worst.severity > Severity::Info)
    });
    let others = match others.count() - 1 {
        0 => String::new(),
        number => format!(" There is more: {}.", counted(number, "other incident")),
    };
    let sentence = sentence.unwrap_or_else(|| {
        let Some(history) = incident.worst() else {
            return String::new();
        };
        let narrator = Narrator::new(sheet);
        let until = match history.resolved {
            Some(at) => format!("It was over at {}.", narrator.moment(at)),
            None => String::from("It was still so at the end of the recording."),
        };
        let node = match sheet.has_nodes() {
            true => format!("{}: ", sheet.node_of(history.part)),
            false => String::new(),
        };
        format!("{node}{}. {until}", history.worst.title)
    });
    Shown::new(format!("{sentence}{others}"))
}

/// Of an address that two had.
fn twice(sheet: &Sheet, incident: &Incident<'_>) -> Option<String> {
    let conflicts = incident.conflicts(sheet);
    let conflict = conflicts.iter().find(|conflict| conflict.certain)?;
    let narrator = Narrator::new(sheet);
    let mut names: Vec<String> = Vec::new();
    for lane in conflict.lanes.iter().filter_map(|it| sheet.lanes.get(*it)) {
        let whose = narrator.whose(lane);
        let gone = lane.pod_gone();
        match gone.is_some_and(|at| conflict.to.is_none_or(|to| at <= to)) {
            true if whose.starts_with("pod ") => names.insert(0, format!("the deleted {whose}")),
            true => names.insert(0, format!("the deleted pod {whose}")),
            false => names.push(whose),
        }
    }
    let [one, other] = names.as_slice() else {
        return None;
    };
    let lasted = match conflict.to {
        Some(to) => format!("was in use twice for {}", length(to.since(conflict.from))),
        None => String::from("was in use twice, and still was at the end of the recording"),
    };
    let address = conflict.address;
    Some(format!("{address} {lasted}: by {one} and by {other}."))
}

/// Of an address that a deleted pod kept.
fn kept(sheet: &Sheet, incident: &Incident<'_>) -> Option<String> {
    let ghost = incident.worst()?;
    let finding = &ghost.worst;
    let (Rule::GhostSandbox, Some(pod)) = (finding.rule, &finding.pod) else {
        return None;
    };
    let address = finding.addresses.first()?;
    let narrator = Narrator::new(sheet);
    let pod = pod.label();
    let until = match ghost.resolved {
        Some(at) => format!("until {}", narrator.moment(at)),
        None => String::from("to the end of the recording"),
    };
    let armed = ghost
        .steps
        .iter()
        .find(|step| step.phase == Some(Phase::Armed));
    let armed = match armed {
        Some(step) => format!(
            "; it could be given to another pod since {}",
            narrator.moment(step.at)
        ),
        None => String::new(),
    };
    let node = match sheet.has_nodes() {
        true => format!(" on {}", sheet.node_of(ghost.part)),
        false => String::new(),
    };
    Some(format!(
        "The deleted pod {pod} kept {address}{node} {until}{armed}."
    ))
}
