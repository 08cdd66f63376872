//! What stands above and below the findings of a look: one line that says what
//! was looked at, and one that says what came of it.

use std::{collections::BTreeMap, time::Duration};

use super::{
    style::{self, Painter, Style},
    wrap,
};
use event::{
    StoreKind,
    clock::Timestamp,
    finding::{Rule, Severity},
    not_checked,
    record::{CoverageItem, NO_RUNTIME, NOT_READ, Summary},
    wording::{escape::Printable, plural},
};

/// Gaps that are told; all of them are with -v.
const GAPS: usize = 4;

/// How well something was seen, from worst to best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SourceView {
    Failed,
    Partly,
    Well,
    /// There is nothing of the kind on this node.
    Absent,
    /// The command line says not to ask.
    Off,
}

impl SourceView {
    fn of(item: &CoverageItem) -> Self {
        let reason = item.reason.as_deref().unwrap_or_default();
        match &item.mechanism {
            Some(_) if item.unknown.is_empty() => Self::Well,
            Some(_) => Self::Partly,
            None if reason.starts_with("--") => Self::Off,
            None if item.unknown.is_empty() || reason.starts_with(NO_RUNTIME) => Self::Absent,
            None => Self::Failed,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Failed => "FAILED",
            Self::Partly => "PARTIAL (check)",
            Self::Well => "ok",
            Self::Absent => "none",
            Self::Off => "off",
        }
    }
}

/// The parts that a line has room for, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Pods,
    Cri,
    Cni,
    Ipam,
    Kernel,
}

impl Part {
    fn of(signal: &str) -> Option<Self> {
        match signal {
            "pods" => Some(Self::Pods),
            "cri" => Some(Self::Cri),
            "networks" | "libcni" => Some(Self::Cni),
            "recording" => None,
            _ if StoreKind::ALL.iter().any(|kind| kind.as_str() == signal) => Some(Self::Ipam),
            _ => Some(Self::Kernel),
        }
    }
}

/// Whether this is the coverage of a look, and not of a stream or of logs.
pub(super) fn is_of_look(items: &[CoverageItem]) -> bool {
    items.iter().any(|item| item.signal == "kernel")
}

/// `node n1  2026-11-23 06:38:25 UTC  pods:API ok  CRI ok  CNI ok  IPAM ok  kernel ok`
pub(super) fn header(
    paint: Painter,
    node: &str,
    time: Timestamp,
    items: &[CoverageItem],
) -> String {
    let mut parts: BTreeMap<Part, SourceView> = BTreeMap::new();
    for item in items {
        if let Some(part) = Part::of(&item.signal) {
            let seen = SourceView::of(item);
            let worst = parts.entry(part).or_insert(seen);
            *worst = seen.min(*worst);
        }
    }
    let pods = items.iter().find(|item| item.signal == "pods");
    let pods = pods.and_then(|item| item.mechanism.as_deref());
    let is_file = pods.is_some_and(|how| !how.starts_with("API"));
    let clock = time.time_of_day();
    let clock = clock.get(..8).unwrap_or(&clock);
    let mut fields = vec![
        (format!("node {}", Printable(node)), Style::Title),
        (format!("{} {clock} UTC", style::date(time)), Style::Plain),
    ];
    fields.extend(parts.into_iter().map(|(part, seen)| {
        let name = match part {
            Part::Pods if seen == SourceView::Off => "pods",
            Part::Pods if is_file => "pods:FILE",
            Part::Pods => "pods:API",
            Part::Cri => "CRI",
            Part::Cni => "CNI",
            Part::Ipam => "IPAM",
            Part::Kernel => "kernel",
        };
        let style = match seen {
            SourceView::Failed | SourceView::Partly => Style::Warning,
            SourceView::Well | SourceView::Absent | SourceView::Off => Style::Plain,
        };
        (format!("{name} {}", seen.word()), style)
    }));
    wrap::fields(&fields, paint, 2)
}

/// `1 incident: 1 critical (3 findings, -v)  0.13 s`.
/// `incidents` are those that were told, by severity.
pub(super) fn footer(
    paint: Painter,
    summary: &Summary,
    incidents: &BTreeMap<Severity, u64>,
) -> String {
    let mut text = String::new();
    let lost = plural::total(summary.events_lost.values());
    if lost > 0 {
        let lost = format!("LOST {}", super::events::losses(&summary.events_lost));
        let lost = paint.paint(Style::Warning, lost);
        text += &format!("{lost}: there may be more\n");
    }
    let findings = summary.severities.values().map(|count| count.open).sum();
    let all: u64 = incidents.values().sum();
    let is_whole = summary.not_checked.is_empty();
    let told = match all {
        0 => String::from("No findings"),
        _ => {
            let each = incidents.iter().rev().filter(|(_, number)| **number > 0);
            let each: Vec<String> = each
                .map(|(severity, number)| {
                    format!("{} {}", style::grouped(*number), severity.as_str())
                })
                .collect();
            let more = match findings == all {
                true => String::new(),
                false => format!(" ({}, -v)", style::count(findings, "finding")),
            };
            format!(
                "{}: {}{more}",
                style::count(all, "incident"),
                each.join(", ")
            )
        }
    };
    let colour = match (summary.worst_open, is_whole) {
        (Some(worst), _) => worst.into(),
        (None, true) => Style::Good,
        (None, false) => Style::Warning,
    };
    let took = Duration::from_millis(summary.duration_ms).as_secs_f64();
    let took = format!("  {took:.2} s");
    let (told, took) = match (is_whole, all) {
        (true, 0) => (format!("{told}."), took),
        (true, _) => (told, took),
        (false, 0) => (format!("{told}, INCOMPLETE."), String::new()),
        (false, _) => (format!("{told}, INCOMPLETE"), took),
    };
    text + &paint.paint(colour, told) + &took + "\n"
}

/// Rules that were switched off, one line a reason.
pub(super) fn not_checked(paint: Painter, summary: &Summary) -> String {
    let lines = not_checked::lines(&summary.not_checked).into_iter();
    lines
        .map(|line| {
            let line = Printable(line).to_string();
            paint.paint(Style::Warning, paint.hanging(&line, 0, 2)) + "\n"
        })
        .collect()
}

/// What the rules could not judge besides what was switched off, and what was left out of
/// the input, a line each. What single sources
/// could not read is what `check` is for.
pub(super) fn gaps(paint: Painter, summary: &Summary) -> String {
    let is_rules = |text: &&String| {
        let mut rules = Rule::ALL.iter();
        text.starts_with(NOT_READ) || rules.any(|rule| text.starts_with(rule.as_str()))
    };
    let is_said = |text: &&String| {
        summary
            .not_checked
            .iter()
            .any(|it| text.ends_with(&it.reason))
    };
    let gaps: Vec<&String> = { summary.unknown.iter() }
        .filter(is_rules)
        .filter(|text| !is_said(text))
        .collect();
    let mut text = String::new();
    for gap in gaps.iter().take(GAPS) {
        let gap = Printable(gap).to_string();
        let line = wrap::first_line(&gap, paint.width, "unknown  ".len(), " ... (-v)");
        text += &format!("unknown  {line}\n");
    }
    if gaps.len() > GAPS {
        text += &format!("unknown  {} more (-v)\n", gaps.len() - GAPS);
    }
    text
}

#[cfg(test)]
mod tests {
    use event::{not_checked::NotChecked, record::Count};

    use super::*;

    const WIDE: Painter = Painter {
        colour: false,
        width: 100,
    };

    #[test]
    fn what_was_left_out_of_the_input_is_said_and_what_a_source_could_not_read_is_not() {
        let summary = Summary {
            unknown: vec![format!("{NOT_READ}x: entries: 3"), String::from("pods: y")],
            ..Summary::default()
        };
        assert_eq!(gaps(WIDE, &summary), "unknown  not read: x: entries: 3\n");
    }

    fn item(signal: &str, mechanism: Option<&str>, reason: &str, unknown: &[&str]) -> CoverageItem {
        CoverageItem {
            signal: signal.to_owned(),
            mechanism: mechanism.map(str::to_owned),
            reason: (!reason.is_empty()).then(|| reason.to_owned()),
            unknown: unknown.iter().map(|&text| text.to_owned()).collect(),
        }
    }

    fn node() -> Vec<CoverageItem> {
        vec![
            item("kernel", Some("/proc"), "", &["descriptors of process 1"]),
            item("cgroup", Some("3 containers"), "", &[]),
            item(
                "bundles",
                None,
                "no container runtime has a folder below /run",
                &[],
            ),
            item("cri", Some("containerd"), "", &[]),
            item("networks", Some("podnet"), "", &[]),
            item("libcni", None, "it has no cache", &[]),
            item("host-local", Some("2 reservations in 1 store"), "", &[]),
            item("pods", Some("API server by kubelet.conf (3 pods)"), "", &[]),
        ]
    }

    fn head(items: &[CoverageItem]) -> String {
        let time = Timestamp::parse("2026-11-23T06:38:25.5Z").unwrap();
        header(WIDE, "n1", time, items)
    }

    #[test]
    fn a_header_says_what_was_looked_at_and_what_is_absent_is_no_failure() {
        assert_eq!(
            head(&node()),
            "node n1  2026-11-23 06:38:25 UTC  pods:API ok  CRI ok  CNI ok  IPAM ok  kernel PARTIAL \
             (check)\n"
                .replace("             ", "")
        );
        let mut items = node();
        items.retain(|item| !matches!(&*item.signal, "cri" | "networks" | "host-local" | "pods"));
        items.push(item("cri", None, NO_RUNTIME, &["sandboxes"]));
        items.push(item("networks", None, "there is no CNI configuration", &[]));
        items.push(item("host-local", None, "there is no store", &[]));
        items.push(item(
            "pods",
            None,
            "--pods none",
            &["whether a pod still exists"],
        ));
        let head = head(&items);
        assert!(
            head.contains("  pods off  CRI none  CNI none  IPAM none  "),
            "{head}"
        );
        assert!(!head.contains("FAILED"), "{head}");
    }

    #[test]
    fn what_does_not_answer_has_failed_whatever_else_answers() {
        let mut items = node();
        items.push(item(
            "aws",
            None,
            "its file is no JSON",
            &["which addresses"],
        ));
        let pods = items.iter_mut().find(|item| item.signal == "pods").unwrap();
        *pods = item(
            "pods",
            None,
            "no credentials",
            &["whether a pod still exists"],
        );
        let head = head(&items);
        assert!(head.contains("pods:API FAILED"), "{head}");
        assert!(head.contains("IPAM FAILED"), "{head}");
    }

    #[test]
    fn a_header_is_broken_between_fields_alone() {
        for width in [72, 80, 100, 200] {
            let paint = Painter { width, ..WIDE };
            let text = header(paint, "cn-hangzhou.10.0.4.17", Timestamp::EPOCH, &node());
            assert!(
                text.lines().all(|line| line.chars().count() <= width),
                "{text}"
            );
            assert!(
                text.lines()
                    .any(|line| line.ends_with("kernel PARTIAL (check)")),
                "{text}"
            );
        }
    }

    fn found(open: &[(Severity, u64)]) -> Summary {
        let counts = open.iter().map(|(severity, open)| {
            let count = Count {
                open: *open,
                resolved: 0,
            };
            (*severity, count)
        });
        Summary {
            severities: counts.collect(),
            worst_open: open.iter().map(|(severity, _)| *severity).max(),
            duration_ms: 130,
            ..Summary::default()
        }
    }

    #[test]
    fn a_footer_counts_incidents_and_names_what_they_are_made_of() {
        let summary = found(&[(Severity::Critical, 2), (Severity::Warning, 1)]);
        let one = BTreeMap::from([(Severity::Critical, 1)]);
        assert_eq!(
            footer(WIDE, &summary, &one),
            "1 incident: 1 critical (3 findings, -v)  0.13 s\n"
        );
        let each = BTreeMap::from([(Severity::Warning, 1), (Severity::Critical, 2)]);
        assert_eq!(
            footer(WIDE, &summary, &each),
            "3 incidents: 2 critical, 1 warning  0.13 s\n"
        );
        assert_eq!(
            footer(WIDE, &found(&[]), &BTreeMap::new()),
            "No findings.  0.13 s\n"
        );
    }

    #[test]
    fn a_look_that_could_not_look_does_not_say_that_it_found_nothing() {
        let no_list = NotChecked {
            rule: Rule::GhostSandbox,
            reason: String::from("no pod list"),
            fix: String::from("--kubeconfig FILE"),
        };
        let summary = Summary {
            not_checked: vec![no_list],
            unknown: vec![
                String::from("ghost-sandbox: there is no pod list"),
                String::from("kernel: cannot read /proc/1/ns/mnt"),
            ],
            ..found(&[])
        };
        assert_eq!(
            footer(WIDE, &summary, &BTreeMap::new()),
            "No findings, INCOMPLETE.\n"
        );
        let late =
            "ghost-sandbox: netns 5 of shop/a: its pod is gone; ".to_owned() + &"x ".repeat(99);
        let summary = Summary {
            unknown: vec![late],
            ..found(&[])
        };
        let text = gaps(WIDE, &summary);
        assert!(
            text.starts_with("unknown  ghost-sandbox: netns 5"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        assert!(text.ends_with(" ... (-v)\n"), "{text}");
    }
}
