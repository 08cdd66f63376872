use super::{incident, sheet};
use event::CniCommand;
use event::{Event, PodRef, What, testing::*};
use report::{incident::incidents, narrative::*, prose::Prose, sheet::Sheet};

/// What is told of the worst incident.
fn told(sheet: &Sheet) -> Vec<String> {
    let incidents = incidents(sheet);
    let chapters = chapters(sheet, &incidents);
    let paragraphs = chapters[0].paragraphs.iter();
    let plain = |paragraph: &Vec<Prose>| {
        let sentences = paragraph.iter().map(Prose::plain);
        sentences.collect::<Vec<_>>().join(" ")
    };
    paragraphs.map(plain).collect()
}

fn verdict_of(sheet: &Sheet) -> String {
    verdict(sheet, &incidents(sheet)).to_string()
}

/// The story with the end of its pod told by the API server.
fn deleted(mut events: Vec<Event>) -> Vec<Event> {
    let pod = PodRef {
        namespace: Some(String::from("shop")),
        name: Some(String::from("checkout-x8k2p")),
        uid: Some(OLD.to_owned()),
    };
    let before = events.iter().position(|event| event.time == s(60)).unwrap();
    events.insert(before, at(60, What::PodDeleted { pod }));
    // host-local answers with the address, which the story's ADDs do not.
    for event in &mut events {
        if let What::CniCall { call, result, .. } = &mut event.what
            && call.command == CniCommand::Add
        {
            *result = Some(event::CniResult {
                ips: vec![ip(5)],
                ..Default::default()
            });
        }
    }
    events
}

#[test]
fn the_incident_is_told_from_its_beginning_to_its_end() {
    let sheet = sheet(&deleted(incident()), 120);
    assert_eq!(
        told(&sheet),
        [
            "At 04:40:04.000 sandbox sandbox-old of pod shop/checkout-x8k2p (network namespace 100) \
             was given 10.0.0.5 (CNI ADD, bridge).",
            "At 04:41:00.000 the pod of sandbox sandbox-old was not listed any more (pods), and had \
             not been seen Terminating before: it was deleted by force, or quickly. No CNI DEL came \
             for it before 04:41:51.000, 51.0 s later. At 04:41:02.000 its process checkout-api (9) \
             went into uninterruptible sleep in request_wait_answer. At 04:41:30.000 the \
             reservation of 10.0.0.5 was gone: from then on the address could be handed out.",
            "2.0 s later, at 04:41:32.000, sandbox sandbox-new of pod shop/checkout-q4w7z (network \
             namespace 200) was given 10.0.0.5 (CNI ADD, bridge), which sandbox sandbox-old still \
             had.",
            "At 04:41:50.000 checkout-api (9) woke, after 48.0 s. At 04:41:52.000 sandbox \
             sandbox-old lost 10.0.0.5: from then on sandbox sandbox-new had it alone, after 20.0 s \
             in which both had it. At 04:41:53.000 CNI DEL for sandbox sandbox-old ended well. At \
             04:41:54.000 nothing held network namespace 100 any more, and 1.0 s later the kernel \
             had taken it down.",
        ]
    );
    assert_eq!(
        verdict_of(&sheet),
        "10.0.0.5 was in use twice for 20.0 s: by the deleted pod shop/checkout-x8k2p and by \
         shop/checkout-q4w7z."
    );
}

#[test]
fn what_is_not_over_is_not_told_as_if_it_were() {
    let sheet = sheet(&deleted(ghost_story()), 80);
    let told = told(&sheet).join("\n");
    assert!(
        told.contains("No CNI DEL came for it in the whole recording."),
        "{told}"
    );
    assert!(
        told.contains("checkout-api (9) still slept when the recording ended."),
        "{told}"
    );
    assert!(
        !told.contains("woke") && !told.contains("handed out"),
        "{told}"
    );
    assert_eq!(
        verdict_of(&sheet),
        "The deleted pod shop/checkout-x8k2p kept 10.0.0.5 to the end of the recording."
    );
}

#[test]
fn where_no_calls_are_seen_none_is_missed() {
    let mut events = deleted(ghost_story());
    events.retain(|event| !matches!(event.what, What::CniCall { .. } | What::CniStarted { .. }));
    let mut sheet = sheet(&events, 80);
    sheet.coverage.retain(|item| item.signal != "cni-call");
    assert!(!told(&sheet).join("\n").contains("CNI DEL"));
}

#[test]
fn a_pod_that_was_terminating_was_not_deleted_by_force() {
    let mut terminating = pod("checkout-x8k2p", OLD, &[ip(5)]);
    terminating.deletion = Some(s(70));
    let mut events = deleted(ghost_story());
    events.push(listed(40, &[terminating]));
    let told = told(&sheet(&events, 80)).join("\n");
    assert!(
        told.contains("after it had been Terminating since 04:40:40.000"),
        "{told}"
    );
    assert!(!told.contains("by force"), "{told}");
}

#[test]
fn failures_of_one_pod_are_told_once() {
    let mut events = vec![host(0), listed(0, &[pod("checkout-x8k2p", OLD, &[])])];
    for number in 0..20_u32 {
        let seconds = i64::from(number) * 4 + 1;
        let add = call(
            "ADD",
            &format!("sandbox-{number}"),
            100 + number,
            OLD,
            "checkout-x8k2p",
        );
        events.push(created(seconds, 100 + number));
        events.push(failed(
            seconds + 1,
            add,
            "no IP addresses available in range set: a-b",
        ));
        events.push(dying(seconds + 2, 100 + number));
        events.push(destroyed(seconds + 2, 100 + number));
    }
    let told = told(&sheet(&events, 100)).join("\n");
    assert_eq!(
        told.matches("failed: no IP addresses available").count(),
        1,
        "{told}"
    );
    assert!(
        told.contains("and 19 more times until 04:41:18.000."),
        "{told}"
    );
    assert!(
        told.contains("19 more sandboxes of pod shop/checkout-x8k2p came and went"),
        "{told}"
    );
}
