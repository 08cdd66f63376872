//! What must be so in whatever order events come: properties, checked with
//! events of chance by tests, and with a fuzzer's by it.

use crate::testing::Node;
use std::collections::BTreeSet;

use super::*;
use event::{
    CniCall,
    testing::{
        generator::{Dice, World, of_the_node},
        *,
    },
};

/// One of the properties, with what the bytes decide.
pub fn check(bytes: &[u8]) {
    let mut dice = Dice::Bytes(bytes);
    match dice.roll(2) {
        0 => check_any(&mut dice, 400),
        _ => check_independence(&mut dice, 200),
    }
}

/// Tells any events and panics where what is told, or what is remembered, is
/// not as it must be.
pub fn check_any(dice: &mut Dice<'_>, steps: i64) {
    let mut node = Node::default();
    // The same, from what is written down of it.
    let mut replayed = Node::default();
    let mut open = BTreeSet::new();
    let mut tell = |event: &Event, at: i64| {
        let line = serde_json::to_string(event).expect("an event is written");
        let read: Event = serde_json::from_str(&line).expect("an event is read");
        assert_eq!(read, *event, "{line}");
        assert_eq!(node.0.apply(event), []);
        assert_eq!(replayed.0.apply(&read), []);
        let told = node.tick(at);
        assert_eq!(told, replayed.tick(at));
        for (finding, state) in told {
            let known = match state {
                State::Open => open.insert(finding.id.clone()),
                State::Updated => open.contains(&finding.id),
                State::Resolved => open.remove(&finding.id),
            };
            assert!(known, "step {at}: {state:?} {finding:#?}");
            if state != State::Resolved {
                check_finding(&node.0, &finding);
            }
        }
        check_engine(&node.0, &open);
    };
    tell(&host(0), 0);
    let mut last = 0;
    for step in 0..steps {
        // Some come late, and now and then hardly anything happens.
        let late = i64::from(dice.roll(4));
        last += i64::from(dice.one(&[1, 1, 1, 1, 1, 1, 1, 40]));
        let event = match dice.roll(3) {
            0 => of_the_node(dice, last - late),
            _ => World(dice.roll(2) as u8).event(dice, last - late),
        };
        tell(&event, last);
        if step > 0 && !dice.goes_on() {
            break;
        }
    }
    for event in all_ends(last + 1) {
        tell(&event, last + 1);
    }
    tell(&listed(last + 7_200, &[]), last + 7_200);
    check_nothing_is_left(&node.0);
}

/// Tells the events of two worlds that have nothing to do with each other, one
/// moment's events in one order and in another: what is found must be the same,
/// but for the one thing that they share, the kernel's queue of namespaces to be
/// taken down, and which of them is its first.
pub fn check_independence(dice: &mut Dice<'_>, moments: i64) {
    let mut nodes = [Node::default(), Node::default()];
    for node in &mut nodes {
        node.tell_all(&[host(0), listed(0, &[pod("c", OTHER, &[])])]);
    }
    for moment in 1..=moments {
        let mut worlds = [0, 1].map(|world| -> Vec<Event> {
            let number = dice.roll(3);
            let events = (0..number).map(|_| World(world).event(dice, moment));
            events.collect()
        });
        nodes[0].tell_all(&worlds.concat());
        let mut shuffled = Vec::new();
        loop {
            let next = dice.roll(2) as usize;
            let world = match worlds.each_ref().map(Vec::is_empty) {
                [true, true] => break,
                [true, false] => 1,
                [false, true] => 0,
                [false, false] => next,
            };
            shuffled.push(worlds[world].remove(0));
        }
        nodes[1].tell_all(&shuffled);
        let [told, other] = nodes.each_mut().map(|node| {
            let told = node.tick(moment).into_iter();
            let told = told.filter(|(finding, _)| finding.rule != Rule::NetnsTeardownStall);
            told.map(|(finding, state)| (finding.id, (finding.rule, finding.severity, state)))
                .collect::<BTreeMap<_, _>>()
        });
        assert_eq!(told, other, "moment {moment}");
        if !dice.goes_on() {
            break;
        }
    }
}

/// What a finding is about is there.
fn check_finding(engine: &Engine, finding: &Finding) {
    let is_alive = |id| {
        engine
            .model
            .netns
            .get(id)
            .is_some_and(|it| it.dying.is_none())
    };
    let of_live = matches!(
        finding.rule,
        Rule::GhostSandbox | Rule::DuplicateAddress | Rule::PinnedNetns
    );
    if of_live {
        let about = finding.netns.as_ref().expect("a namespace").id;
        assert!(is_alive(about), "{finding:#?}");
    }
    assert!(!finding.id.is_empty() && !finding.title.is_empty());
}

fn check_engine(engine: &Engine, open: &BTreeSet<String>) {
    engine.model.netns.check();
    assert!(engine.open.keys().eq(open));
    let found: u64 = engine
        .summary
        .findings
        .values()
        .flat_map(|it| it.values())
        .sum();
    assert!(found >= open.len() as u64);
    // What is watched is as of the last evaluation.
    let gone = |netns: &&Netns| engine.model.netns.get(**netns).is_none();
    let gone = engine.watch.netns.iter().find(gone);
    assert!(engine.stale || gone.is_none(), "{gone:?}");
}

/// Everything that any event can be about is over.
fn all_ends(seconds: i64) -> Vec<Event> {
    let mut events = Vec::new();
    for world in [0, 1] {
        events.extend((100..107).map(|inode| destroyed(seconds, inode + 50 * world)));
        events.extend((10..17).map(|pid| unstuck(seconds, pid + 50 * world)));
    }
    for sandbox in (0..4).chain(10..14) {
        let del = call("DEL", &format!("sandbox-{sandbox}"), 0, OTHER, "c");
        let del = CniCall { netns: None, ..del };
        events.extend([calls(seconds, del.clone()), ended(seconds, del)]);
    }
    events.extend([
        cri(seconds, &[]),
        containers(seconds, "cgroup", &[]),
        containers(seconds, "shim", &[]),
        attached(seconds, &[]),
        stored(seconds, &[]),
        networks(seconds, &[]),
        listed(seconds, &[]),
        reserved(seconds, None),
    ]);
    events.extend(["cri", "pods", "host-local"].map(|source| {
        let source = source.to_owned();
        at(seconds, What::SourceRecovered { source })
    }));
    events
}

/// What is over has left the tables, and what was found about it is over, too.
fn check_nothing_is_left(engine: &Engine) {
    let guests: Vec<_> = engine.model.netns.live().filter(|it| !it.host).collect();
    assert!(guests.is_empty(), "{guests:#?}");
    assert_eq!(engine.model.netns.all_dying().count(), 0);
    assert_eq!(engine.model.blocked.iter().count(), 0);
    for finding in engine.open() {
        let told = matches!(
            finding.rule,
            // What was said stays said until another word is.
            Rule::EventsLost | Rule::SandboxCreateFailed | Rule::AddFailed | Rule::DelRetry
        );
        assert!(told, "{finding:#?}");
    }
}
