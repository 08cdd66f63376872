use super::*;
use event::testing::s;

fn pod(namespace: &str, name: &str, uid: &str) -> PodRef {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    PodRef {
        namespace: some(namespace),
        name: some(name),
        uid: some(uid),
    }
}

fn failure(source: &str, pod: PodRef, message: &str) -> StartFailure {
    StartFailure {
        source: source.to_owned(),
        pod,
        message: message.to_owned(),
        ..StartFailure::default()
    }
}

fn only(starts: &Starts) -> &Starting {
    let all: Vec<_> = starts.pods().collect();
    assert_eq!(all.len(), 1, "{all:#?}");
    all[0]
}

#[test]
fn reporters_that_name_a_pod_differently_speak_of_one() {
    let mut starts = Starts::default();
    let of_sandbox = StartFailure {
        sandbox_id: Some("aa".repeat(32)),
        ..failure("containerd", PodRef::default(), "desc = no")
    };
    starts.failed(&of_sandbox, s(1));
    let named = StartFailure {
        pod: pod("", "web", ""),
        ..of_sandbox.clone()
    };
    starts.failed(&named, s(2));
    starts.failed(
        &failure("kubelet", pod("shop", "web", "u-1"), "desc = no"),
        s(3),
    );
    starts.failed(&failure("kubelet", pod("", "", "u-1"), "desc = nor"), s(4));
    starts.failed(&of_sandbox, s(5));
    let pod = only(&starts);
    assert_eq!(pod.pod.label(), "shop/web");
    assert_eq!(pod.failures.len(), 2);
    assert_eq!(pod.failures[0].times(), 3, "as containerd counts");
    let reporters: Vec<_> = pod.failures[0].reporters().collect();
    assert_eq!(reporters, ["containerd", "kubelet"]);
}

#[test]
fn pods_of_one_name_are_two_if_namespace_or_uid_differ() {
    let mut starts = Starts::default();
    for of in [
        pod("shop", "web", "u-1"),
        pod("shop", "web", "u-2"),
        pod("bank", "web", ""),
        pod("shop", "db", ""),
    ] {
        starts.failed(&failure("kubelet", of, "no"), s(1));
    }
    assert_eq!(starts.pods().count(), 4);
    starts.failed(&failure("events", pod("bank", "web", "u-3"), "no"), s(2));
    assert_eq!(starts.pods().count(), 4);
}

#[test]
fn of_the_nameless_what_was_said_tells_them_apart() {
    let mut starts = Starts::default();
    for (text, at) in [("no way", 1), ("no space", 2), ("no way", 3)] {
        starts.failed(&failure("kubelet", PodRef::default(), text), s(at));
    }
    let times: Vec<_> = starts.pods().map(|pod| pod.failures[0].times()).collect();
    assert_eq!(times, [2, 1]);
}

#[test]
fn a_line_that_names_nobody_is_of_who_was_told_of_in_its_words() {
    let nobody = |text: &str| failure("kubelet", PodRef::default(), text);
    let named = |text: &str| failure("kubelet", pod("shop", "web", "u-1"), text);
    for order in [[0, 1], [1, 0]] {
        let mut starts = Starts::default();
        for attempt in 0..3 {
            for which in order {
                let told = [nobody("desc = no"), named("desc = no")];
                starts.failed(&told[which], s(60 * attempt));
            }
        }
        assert_eq!(only(&starts).pod.label(), "shop/web");
    }
    let mut starts = Starts::default();
    starts.failed(&named("no"), s(0));
    starts.failed(&nobody("no"), s(601));
    starts.failed(&nobody("no way"), s(601));
    assert_eq!(starts.pods().count(), 3, "long ago, or in other words");
}

#[test]
fn a_count_is_from_the_beginning_on() {
    let mut starts = Starts::default();
    let told = |count, first| StartFailure {
        count: Some(count),
        first: Some(s(first)),
        ..failure("events", pod("a", "b", ""), "no")
    };
    starts.failed(&told(7, -100), s(10));
    starts.failed(&told(9, -100), s(20));
    let failed = &only(&starts).failures[0];
    assert_eq!(
        (failed.times(), failed.first, failed.last),
        (9, s(-100), s(20))
    );
}

#[test]
fn the_table_is_bounded_and_forgets_whole() {
    let mut starts = Starts::default();
    for number in 0..MAX_PODS + 10 {
        let at = s(number.try_into().unwrap());
        let name = format!("web-{number}");
        let mut told = failure("kubelet", pod("shop", &name, &name), "no");
        told.sandbox_id = Some(name);
        starts.failed(&told, at);
        let nameless = format!("{} way", "x".repeat(number % 50));
        starts.failed(&failure("kubelet", PodRef::default(), &nameless), at);
    }
    assert_eq!(starts.pods().count(), MAX_PODS);
    assert!(starts.take_dropped() > 10);
    let sizes = [
        starts.by_uid.len(),
        starts.by_name.len(),
        starts.by_sandbox.len(),
    ];
    assert!(sizes.iter().all(|size| *size <= MAX_PODS), "{sizes:?}");
    assert!(starts.by_words.len() <= MAX_PODS);

    let mut starts = Starts::default();
    for number in 0..100_u8 {
        let text = char::from(b'a' + number % 26)
            .to_string()
            .repeat(usize::from(number) + 1);
        let mut told = failure("kubelet", pod("shop", "web", ""), &text);
        told.sandbox_id = Some(number.to_string());
        starts.failed(&told, s(i64::from(number)));
    }
    assert!(only(&starts).failures.len() <= MAX_FAILURES);
    assert!(starts.by_sandbox.len() <= MAX_SANDBOXES);
}

#[test]
fn what_is_held_of_a_pods_messages_is_bounded() {
    let mut starts = Starts::default();
    for again in [1, 2] {
        for letter in 'a'..='z' {
            let text = format!("{0} {0}", letter.to_string().repeat(8 << 10));
            let text = &text[..again * (4 << 10)];
            starts.failed(&failure("kubelet", pod("shop", "web", ""), text), s(1));
        }
    }
    let web = only(&starts);
    assert!(web.bytes() <= MAX_BYTES, "{}", web.bytes());
    assert!(web.failures.len() >= 8);
}

#[test]
fn a_sandbox_that_was_made_ends_what_was_said_before_it() {
    const NET: &str = "failed to setup network for sandbox \"a\": plugin failed (add): no";
    const IMAGE: &str = "Failed to pull image \"x\": not found";
    let of = |name: &str, message: &str| StartFailure {
        pod: pod("shop", name, &format!("uid-{name}")),
        message: message.to_owned(),
        ..StartFailure::default()
    };
    let mut starts = Starts::default();
    for (name, message) in [("a", NET), ("a", IMAGE), ("b", NET)] {
        starts.failed(&of(name, message), s(1));
    }
    let pod = of("a", "").pod;
    assert!(!starts.made(&pod, s(0)), "it was made before");
    assert!(starts.made(&pod, s(2)));
    let left: Vec<_> = starts.pods().flat_map(|pod| &pod.failures).collect();
    let left: Vec<&str> = left
        .iter()
        .map(|each| each.failure.message.as_str())
        .collect();
    assert_eq!(left, [IMAGE, NET]);
}
