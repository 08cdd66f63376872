//! Laws of what findings say: what an engineer at night reads, and pastes.

use event::{
    Event, What,
    finding::{Finding, Rule},
    testing::{self as story, generator::Dice, s},
    wording::advice::{command, is_harmless},
};

use super::{Absence, LATE, LOOK, Missing, Source, SourceView, settings, truth::Truth};
use crate::{Engine, testing::Node};

/// How many nodes are made up.
const NODES: u64 = 40;
/// Characters of a title of usual names.
const TITLE: usize = 76;

/// What all rules say of many nodes that lack these sources.
fn told(missing: &Missing) -> Vec<Finding> {
    told_of(missing, Event::clone)
}

/// The same of nodes where each event is changed.
fn told_of(missing: &Missing, change: fn(&Event) -> Event) -> Vec<Finding> {
    let mut all = Vec::new();
    for seed in 0..NODES {
        let truth = Truth::any(&mut Dice::Seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let view = SourceView {
            truth: &truth,
            missing,
        };
        let mut engine = Engine::of_trace(settings());
        let quiet = [LOOK + 40, LATE].map(|time| (time, Vec::new()));
        for (time, events) in view.trace().into_iter().chain(quiet) {
            for event in &events {
                engine.apply(&change(event));
            }
            let (time, what) = (s(time), What::Tick);
            let time = engine.not_before().map_or(time, |pause| pause.max(time));
            let findings = engine.apply(&Event { time, what });
            all.extend(findings.into_iter().map(|(finding, _)| finding));
        }
    }
    let rules = all.iter().map(|finding| finding.rule.as_str());
    assert!(rules.collect::<std::collections::BTreeSet<_>>().len() > 5);
    all
}

/// The story of a ghost whose address another pod gets.
fn conflict() -> Vec<Event> {
    [story::ghost_story(), story::successor(70)].concat()
}

fn whole() -> Vec<Finding> {
    let mut all = told(&Missing::new());
    let ghost = Node::of(&conflict()).tick(80).into_iter();
    all.extend(ghost.map(|(finding, _)| finding));
    all
}

/// The beginnings of commands that no sentence holds.
const COMMANDS: [&str; 22] = [
    "`",
    "    #",
    "calicoctl ",
    "cat /",
    "crictl ",
    "dmesg",
    "echo ",
    "flock ",
    "fsfreeze ",
    "grep ",
    "iostat ",
    "ip link",
    "ip -d",
    "journalctl",
    "kill -",
    "kubectl ",
    "ls -",
    "mv /",
    "nsenter ",
    "ps -",
    "rm -",
    "umount ",
];

#[test]
fn a_step_is_a_sentence_or_a_command_that_stands_alone() {
    let mut commands = 0;
    for finding in whole() {
        for step in &finding.advice {
            match command(step) {
                Some(it) => {
                    commands += 1;
                    let comment = it.comment.unwrap_or_default();
                    assert!(is_harmless(comment) && comment.len() <= 90, "{step}");
                    assert_ne!(comment, "", "{step}");
                    assert!(!it.command.contains('#'), "{step}");
                }
                None => {
                    let inside = COMMANDS.iter().find(|it| step.contains(**it));
                    assert_eq!(inside, None, "{}: {step}", finding.rule.as_str());
                }
            }
        }
    }
    assert!(commands > 100, "{commands}");
}

/// What a process can call itself. A shell takes the rest of the line for a
/// comment.
const NAME: &str = "rm -rf / #";

/// The same event with all processes called so.
fn renamed(event: &Event) -> Event {
    fn rename(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(fields) => {
                for (key, value) in fields {
                    match value.is_string() && key == "comm" {
                        true => *value = NAME.into(),
                        false => rename(value),
                    }
                }
            }
            serde_json::Value::Array(values) => values.iter_mut().for_each(rename),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(event).unwrap();
    rename(&mut value);
    serde_json::from_value(value).unwrap()
}

#[test]
fn no_process_is_called_so_that_its_name_is_a_command_of_advice() {
    let mut all = told_of(&Missing::new(), renamed);
    let ghost: Vec<_> = conflict().iter().map(renamed).collect();
    let ghost = Node::of(&ghost).tick(80).into_iter();
    all.extend(ghost.map(|(finding, _)| finding));
    let mut named = 0;
    for step in all.iter().flat_map(|finding| &finding.advice) {
        named += usize::from(step.contains(NAME));
        let it = command(step).filter(|it| it.command.contains(NAME));
        assert_eq!(it, None, "{step}");
    }
    assert!(named > 10, "{named}");
}

/// CNI DEL needs the namespace.
#[test]
fn nothing_is_unmounted_before_the_runtime_has_removed_what_it_may_have() {
    let mut removed = 0;
    for finding in whole() {
        let first = |verb: &str| finding.advice.iter().position(|it| it.starts_with(verb));
        if let (Some(remove), Some(unmount)) = (first("crictl stopp "), first("umount ")) {
            removed += 1;
            assert!(remove < unmount, "{:#?}", finding.advice);
        }
    }
    assert!(removed > 10, "{removed}");
}

#[test]
fn what_keeps_pods_away_is_first_and_is_undone_last() {
    let mut cordoned = 0;
    for finding in whole() {
        let is = |step: &&String, verb: &str| step.starts_with(&format!("kubectl {verb} "));
        let advice = &finding.advice;
        let any = advice
            .iter()
            .any(|step| is(&step, "cordon") || is(&step, "uncordon"));
        if any {
            cordoned += 1;
            // What keeps one address alone comes before it.
            let is_of_one = |step: &&String| {
                let ways = [
                    "cp -n /dev/null ",
                    "IPReservation",
                    "NetworkAttachmentDefinition",
                ];
                ways.iter().any(|way| step.contains(way))
            };
            let mut rest = advice.iter().skip_while(is_of_one);
            let first = rest.next().filter(|step| is(step, "cordon"));
            let last = advice.last().filter(|step| is(step, "uncordon"));
            assert!(first.is_some() && last.is_some(), "{advice:#?}");
            assert!(
                first
                    .unwrap()
                    .contains("DaemonSet, static and already bound pods")
            );
        }
    }
    assert!(cordoned > 10, "{cordoned}");
}

#[test]
fn a_node_whose_name_is_not_known_is_not_named_in_a_command() {
    let advice = |named: bool| {
        let mut node = Node(Engine::of_trace(crate::Settings {
            node: String::from("the-hosts-name"),
            node_is_named: named,
            ..Node::default().0.settings().clone()
        }));
        node.tell_all(&conflict());
        let told = node.of_rule(80, Rule::GhostSandbox);
        told[0].0.advice.clone()
    };
    assert!(advice(true)[0].starts_with("kubectl cordon the-hosts-name "));
    let unnamed = advice(false);
    assert!(unnamed[0].starts_with("kubectl cordon NODE "));
    assert!(
        unnamed
            .last()
            .unwrap()
            .starts_with("kubectl uncordon NODE ")
    );
    let with = |word: &str| unnamed.iter().filter(|step| step.contains(word)).count();
    assert_eq!(with("NODE"), with("fill in the node name"), "{unnamed:#?}");
}

#[test]
fn a_title_fits_in_a_line() {
    for finding in whole() {
        let length = finding.title.chars().count();
        assert!(length <= TITLE, "{length}: {}", finding.title);
    }
}

#[test]
fn without_a_pod_source_nothing_is_said_of_a_pods_fate() {
    let absent = [(Source::Pods, Absence::NotAsked)];
    let mut all = told(&Missing::from(absent));
    let unlisted = conflict().into_iter();
    let unlisted: Vec<_> = unlisted
        .filter(|event| !matches!(event.what, What::PodsListed { .. }))
        .collect();
    let shared = Node::of(&unlisted).tick(80).into_iter();
    all.extend(shared.map(|(finding, _)| finding));
    for finding in all {
        let claims = finding.evidence.iter().map(|it| it.claim.as_str());
        for text in claims.chain([finding.title.as_str()]) {
            for fate in [
                "deleted pod",
                "not in the API",
                "disappeared",
                "its pod",
                "ghost",
            ] {
                assert!(!text.contains(fate), "{}: {text}", finding.rule.as_str());
            }
        }
    }
}

#[test]
fn a_holder_that_is_seen_is_not_only_what_was_seen_of_it() {
    let (open, _) = Node::of(&conflict())
        .of_rule(80, Rule::GhostSandbox)
        .remove(0);
    assert!(!open.detail.first_seen, "the pod was seen to go");
    let json = serde_json::to_string(&open).unwrap();
    assert!(
        !json.contains("first_seen"),
        "recordings of before have no such key"
    );
    let read: Finding = serde_json::from_str(&json).unwrap();
    assert_eq!(read, open);
}
