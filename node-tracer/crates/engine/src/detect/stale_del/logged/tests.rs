use crate::testing::Node;
use event::{
    CniCall, CniError, Endpoint, Event, What,
    finding::{Effect, Rule, Severity, State},
    testing::*,
};

const RULE: Rule = Rule::StaleDel;

/// A call as a log tells it: no namespace is known.
fn logged(command: &str, id: &str) -> CniCall {
    CniCall {
        plugin: String::from("calico"),
        netns: None,
        netns_path: String::new(),
        pid: 0,
        log: true,
        ..call(command, id, 1, OLD, "db-0")
    }
}

fn began(seconds: i64, command: &str, id: &str) -> Event {
    let call = logged(command, id);
    at(seconds, What::CniStarted { call })
}

fn over(seconds: i64, command: &str, id: &str, exit_code: Option<i32>) -> Event {
    let what = What::CniCall {
        call: logged(command, id),
        exit_code,
        signal: None,
        duration_ms: 0.0,
        result: None,
        error: None,
        unread: None,
    };
    at(seconds, what)
}

fn failed(seconds: i64, command: &str, id: &str) -> Event {
    let mut event = over(seconds, command, id, None);
    if let What::CniCall { error, .. } = &mut event.what {
        let msg = String::from("it does not exist");
        *error = Some(CniError {
            msg,
            ..CniError::default()
        });
    }
    event
}

fn endpoint() -> Endpoint {
    Endpoint {
        store: String::from("calico"),
        key: String::from("/calico/v1/host/n/workload/k8s/x"),
        pod: logged("ADD", "new").pod.unwrap(),
        ifname: Some(String::from("eth0")),
        ..Endpoint::default()
    }
}

fn deleted(seconds: i64) -> Event {
    let endpoint = endpoint();
    at(seconds, What::EndpointDeleted { endpoint })
}

fn written(seconds: i64) -> Event {
    let endpoint = endpoint();
    at(seconds, What::EndpointWritten { endpoint })
}

/// The newer sandbox is set up, and then comes the old one's DEL.
fn stale() -> Vec<Event> {
    vec![
        began(10, "ADD", "new"),
        written(11),
        over(11, "ADD", "new", Some(0)),
        began(30, "DEL", "old"),
    ]
}

fn found(story: &[Event], seconds: i64) -> Option<(Effect, Severity)> {
    let mut node = Node::of(story);
    let told = node.of_rule(seconds, RULE);
    let finding = told.first().map(|(finding, _)| finding)?;
    Some((finding.detail.effect.unwrap(), finding.severity))
}

const HARMFUL: Option<(Effect, Severity)> = Some((Effect::Harmful, Severity::Critical));
const HARMLESS: Option<(Effect, Severity)> = Some((Effect::Harmless, Severity::Info));
const UNKNOWN: Option<(Effect, Severity)> = Some((Effect::Unknown, Severity::Info));

#[test]
fn an_endpoint_that_goes_with_an_old_sandboxs_del_is_harm() {
    let story = [stale(), vec![deleted(30), over(30, "DEL", "old", None)]].concat();
    assert_eq!(found(&story, 30), HARMFUL);
    let mut node = Node::of(&story);
    let (open, _) = node.only(30, RULE, State::Open);
    assert_eq!(open.detail.old_container_id.as_deref(), Some("old"));
    assert_eq!(open.detail.new_container_id.as_deref(), Some("new"));
    let claim = &open.evidence.last().unwrap().claim;
    assert!(claim.contains("20 s after"), "{claim}");
    assert!(open.evidence.iter().all(|it| it.source == "log"));
    assert!(
        open.unknown
            .iter()
            .any(|it| it.contains("when the old sandbox was made"))
    );
    // It stays, whatever is called for the old one; until it is written again.
    assert_eq!(node.of_rule(5_000, RULE), []);
    node.tell_all(&[
        began(5_001, "DEL", "old"),
        over(5_001, "DEL", "old", Some(0)),
    ]);
    node.tell(written(5_010));
    let (last, _) = node.only(5_020, RULE, State::Updated);
    assert_ne!(last.detail.effect, Some(Effect::Harmful));
}

#[test]
fn an_endpoint_that_went_long_before_the_del_went_without_it() {
    let story = |seconds| {
        let mut story = stale();
        story.insert(3, deleted(seconds));
        [story, vec![over(31, "DEL", "old", Some(0))]].concat()
    };
    assert_eq!(found(&story(15), 40), UNKNOWN);
    assert_eq!(found(&story(25), 40), HARMFUL, "a line can be missing");
}

#[test]
fn harm_is_of_the_del_and_not_of_another_time() {
    let end = || over(30, "DEL", "old", None);
    // Before the newer one's was written, and long after the DEL.
    let before = [vec![deleted(9)], stale(), vec![end()]].concat();
    assert_eq!(found(&before, 40), UNKNOWN);
    let after = [stale(), vec![end(), deleted(60)]].concat();
    assert_eq!(found(&after, 61), UNKNOWN);
    let again = [stale(), vec![deleted(30), end(), written(31)]].concat();
    assert_eq!(found(&again, 40), UNKNOWN);
}

#[test]
fn a_plugin_that_leaves_the_endpoint_does_no_harm() {
    let kept = |del: &str| {
        let (del, endpoint) = (del.to_owned(), endpoint());
        at(30, What::EndpointKept { del, endpoint })
    };
    let story = |del| [stale(), vec![kept(del), over(30, "DEL", "old", Some(0))]].concat();
    assert_eq!(found(&story("old"), 31), HARMLESS);
    assert_eq!(found(&story("another"), 31), UNKNOWN);
    let mut node = Node::of(&story("old"));
    node.only(31, RULE, State::Open);
    node.only(331, RULE, State::Resolved);
}

#[test]
fn what_is_ordinary_is_no_finding() {
    let end = || vec![over(30, "DEL", "old", Some(0))];
    // The old one was taken back before.
    let taken = vec![began(1, "DEL", "old"), over(2, "DEL", "old", Some(0))];
    assert_eq!(found(&[taken.clone(), stale(), end()].concat(), 40), None);
    // Its DEL came before the newer one's ADD, and that is all.
    let mut early = taken;
    early.extend(stale().into_iter().take(3));
    assert_eq!(found(&early, 40), None);
    // What is newer is gone again, or was never set up.
    let gone = vec![began(40, "DEL", "new"), over(41, "DEL", "new", Some(0))];
    assert_eq!(found(&[stale(), end(), gone].concat(), 50), None);
    let mut never = stale();
    never[2] = failed(11, "ADD", "new");
    assert_eq!(found(&[never, end()].concat(), 40), None);
    // The DEL is of the one that is newer.
    let newer = vec![began(20, "ADD", "old"), over(21, "ADD", "old", Some(0))];
    assert_eq!(
        found(
            &[stale()[..3].to_vec(), newer, stale()[3..].to_vec()].concat(),
            40
        ),
        None
    );
}

#[test]
fn a_del_that_failed_and_is_called_again_is_a_retry_in_a_log_only() {
    let story = vec![
        began(1, "DEL", "old"),
        failed(2, "DEL", "old"),
        began(600, "DEL", "old"),
    ];
    let mut node = Node::default();
    node.0.wait_for_tries(std::time::Duration::from_secs(60));
    node.tell_all(&story[..2]);
    assert_eq!(node.of_rule(3, Rule::DelRetry), [], "the log goes on");
    node.tell(story[2].clone());
    let (open, _) = node.only(600, Rule::DelRetry, State::Open);
    assert!(
        open.title.contains("failed and runs again"),
        "{}",
        open.title
    );
    assert_eq!((open.since, open.detail.attempts), (s(2), Some(2)));
    assert_eq!(open.detail.error.unwrap().msg, "it does not exist");
    node.tell(over(601, "DEL", "old", Some(0)));
    let (told, _) = node.only(602, Rule::DelRetry, State::Updated);
    assert!(told.title.contains("then succeeded"), "{}", told.title);
    // The same, traced.
    let live = story.into_iter().map(|mut event| {
        if let What::CniStarted { call } | What::CniCall { call, .. } = &mut event.what {
            call.log = false;
        }
        event
    });
    let mut node = Node::of(&live.collect::<Vec<_>>());
    assert_eq!(node.of_rule(601, Rule::DelRetry), []);
}

#[test]
fn a_log_that_tells_of_no_del_does_not_say_that_none_came() {
    let mut story = stale();
    story.truncate(3);
    let pod = logged("ADD", "new").pod.unwrap();
    story.push(at(20, What::PodDeleted { pod }));
    let mut node = Node::of(&story);
    for seconds in [30, 1_000, 10_000] {
        assert_eq!(node.of_rule(seconds, Rule::MissingDel), []);
        assert_eq!(node.of_rule(seconds, Rule::GhostSandbox), []);
    }
}
