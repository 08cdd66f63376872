//! What was not seen is told as not known.

use super::*;
use event::CniCommand;

#[test]
fn without_looks_it_is_not_known_and_that_is_said() {
    let mut node = Node::of(&stale());
    node.only(21, RULE, State::Open);
    assert_eq!(node.of_rule(33, RULE), []);
    let (finding, _) = node.only(34, RULE, State::Updated);
    assert_eq!(finding.detail.effect, Some(Effect::Unknown));
    assert_eq!(finding.severity, Severity::Info);
    assert!(finding.unknown[0].contains("could not be read afterwards"));
    // A look that comes after all decides.
    node.tell_all(&looked(40));
    node.tell(effect_of_nothing(40));
    let (finding, _) = node.only(41, RULE, State::Updated);
    assert_eq!(finding.detail.effect, Some(Effect::Harmless));

    // Nobody knows what it had before.
    let before = |event: &Event| event.time < s(13);
    let mut story: Vec<Event> = stale();
    story.retain(|event| before(event) || event.time > s(13));
    story.extend(looked(32));
    let (finding, _) = Node::of(&story).only(33, RULE, State::Open);
    assert_eq!(finding.detail.effect, Some(Effect::Unknown));
    assert!(finding.unknown[0].contains("were not read before the DEL"));
    assert_eq!(finding.severity, Severity::Info);
}

/// Something that makes rules be asked again.
fn effect_of_nothing(seconds: i64) -> Event {
    created(seconds, 900)
}

#[test]
fn a_loss_that_may_be_older_is_told_with_that_doubt() {
    let end = [veth(8, "cali1", 3)];
    let mut story = two();
    story.extend([calls(500, old_del()), ended(501, old_del())]);
    story.push(outside(502, &end, &[]));
    let (finding, _) = Node::of(&story).only(510, RULE, State::Open);
    assert_eq!(finding.detail.effect, Some(Effect::Harmful));
    assert!(finding.unknown[0].starts_with("whether the host's route to 10.0.0.5 was still there"));
}

#[test]
fn an_add_that_is_older_than_the_tracer_is_known_by_libcnis_cache() {
    let cached = |id: &str, inode, uid: &str, last, written| event::Attachment {
        pod: Some(a_pod(uid, "db-0")),
        ..attachment(id, inode, last, written)
    };
    let base = |written_old| {
        let mut story = vec![host(0), found(0, 200), added(0, 200, 5)];
        let new = cached("new", Some(200), NEW, 5, -50);
        let old = cached("old", None, OLD, 4, written_old);
        story.push(attached(1, &[new, old]));
        story.extend(looked(2));
        story.extend([calls(20, old_del()), ended(21, old_del())]);
        story.extend(looked(31));
        story
    };
    let (finding, _) = Node::of(&base(-900)).only(32, RULE, State::Open);
    assert_eq!(finding.detail.effect, Some(Effect::Harmless));
    let sources: Vec<&str> = finding
        .evidence
        .iter()
        .map(|it| it.source.as_str())
        .collect();
    assert_eq!(sources, ["libcni", "libcni", "cni", "kernel"]);
    assert_eq!(
        Node::of(&base(-10)).of_rule(32, RULE),
        [],
        "it is the newer one"
    );
}

#[test]
fn an_old_sandbox_of_which_only_the_del_is_seen_is_old() {
    let story: Vec<Event> = stale().into_iter().filter(|it| it.time >= s(10)).collect();
    let story = [vec![host(0)], story, vec![removed(21, 200, 5)]].concat();
    let (finding, _) = Node::of(&story).only(26, RULE, State::Open);
    assert_eq!(finding.detail.effect, Some(Effect::Harmful));
    assert!(finding.unknown[0].starts_with("when the old sandbox was made"));
}

/// What the newer sandbox was found to have of what its ADD gave it.
fn effect(seconds: i64, there: Option<bool>) -> Event {
    let effect = CniEffect {
        command: CniCommand::Add,
        container_id: String::from("new"),
        ifname: String::from("eth0"),
        pod: None,
        netns: Some(ns(200)),
        traces: vec![Trace {
            kind: TraceKind::Address,
            name: String::from("10.0.0.5"),
            there,
        }],
    };
    at(seconds, event::What::CniEffect { effect })
}

#[test]
fn where_the_add_ended_after_the_del_what_it_gave_tells() {
    // The DEL is under way when the newer sandbox is made.
    let story = || {
        let mut story: Vec<Event> = two();
        story.retain(|event| event.time < s(12));
        story.extend([
            calls(11, old_del()),
            ended(12, old_del()),
            answered(12, new_call("ADD"), 5),
        ]);
        story.extend(looked(13));
        story
    };
    let judged = |after: &[Event]| {
        let mut node = Node::of(&[story(), after.to_vec()].concat());
        let (finding, _) = node.only(26, RULE, State::Open);
        (finding.detail.effect.unwrap(), finding.severity)
    };
    let unknown = (Effect::Unknown, Severity::Info);
    let harmless = (Effect::Harmless, Severity::Info);
    assert_eq!(judged(&looked(23)), unknown, "nobody knows of the address");
    assert_eq!(judged(&[effect(22, Some(true))]), harmless);
    let with = |seconds, there| [looked(23), vec![effect(seconds, there)]].concat();
    assert_eq!(
        judged(&with(13, Some(true))),
        harmless,
        "and looked at later"
    );
    assert_eq!(judged(&[effect(21, Some(true))]), unknown, "too early");
    assert_eq!(judged(&[effect(22, None)]), unknown, "it was not seen");
    assert_eq!(judged(&with(22, None)), unknown);
}

#[test]
fn a_del_whose_end_was_lost_is_not_waited_for_for_ever() {
    let mut story = two();
    story.push(calls(20, old_del()));
    let mut node = Node::of(&story);
    let (finding, _) = node.only(21, RULE, State::Open);
    assert!(
        finding
            .evidence
            .iter()
            .any(|it| it.claim.ends_with("it still runs"))
    );
    assert_eq!(node.of_rule(619, RULE), []);
    let (finding, _) = node.only(620, RULE, State::Updated);
    assert_eq!(finding.detail.effect, Some(Effect::Unknown));
    assert_eq!(finding.severity, Severity::Info);
    assert!(finding.unknown[0].contains("the end of the DEL was not seen"));
    let claims = finding.evidence.iter();
    assert!(
        claims
            .clone()
            .any(|it| it.claim.ends_with("its end was not seen"))
    );
    node.only(620 + 15 * 60, RULE, State::Resolved);
}
