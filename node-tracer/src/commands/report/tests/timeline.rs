use super::{incident, sheet};
use event::{Event, testing::*};
use report::{incident::incidents, timeline::*};

fn drawn(events: &[Event], end: i64) -> Timeline {
    let sheet = sheet(events, end);
    timeline(&sheet, &incidents(&sheet))
}

#[test]
fn a_conflict_is_a_band_across_both_lanes() {
    let timeline = drawn(&incident(), 120);
    let [group] = timeline.groups.as_slice() else {
        panic!("{:#?}", timeline.groups)
    };
    let [one, other] = group.lanes.as_slice() else {
        panic!("{:#?}", group.lanes)
    };
    let names = (one.name.to_string(), other.name.to_string());
    assert_eq!(
        names,
        ("shop/checkout-x8k2p".into(), "shop/checkout-q4w7z".into())
    );
    let [band] = group.bands.as_slice() else {
        panic!("{:#?}", group.bands)
    };
    assert!(band.y < one.y + one.height && band.y + band.height > other.y);
    let address = other
        .bars
        .iter()
        .find(|bar| bar.class == "address")
        .unwrap();
    assert!(
        (band.x.0 - address.x.0).abs() < 0.01,
        "it begins with the second's"
    );
    assert_eq!(
        band.title.to_string(),
        "conflict: both have 10.0.0.5 from 04:41:32.000 until 04:41:52.000 (20.0 s)"
    );
    let classes: Vec<_> = one.bars.iter().map(|bar| bar.class).collect();
    assert_eq!(classes, ["netns", "address", "stall", "no-del"]);
    assert!(other.bars.iter().all(|bar| bar.open_right));
    assert!(one.bars.iter().all(|bar| !bar.open_right));
}

#[test]
fn what_was_there_before_and_after_is_drawn_to_the_ends() {
    let mut events = vec![host(0), found(0, 100), stuck(3, 9, 100)];
    events.push(holders(3, 100, &[pod_task(9, "dd", OLD, "app")], &[]));
    let timeline = drawn(&events, 30);
    let bar = &timeline.groups[0].lanes[0].bars[0];
    assert_eq!((bar.class, bar.x.0, bar.end.0), ("netns", 0.0, 100.0));
    assert!(bar.open_left && bar.open_right);
}

#[test]
fn signs_of_one_row_keep_their_distance_and_the_rest_is_put_together() {
    let mut events = incident();
    for number in 0..40 {
        let mut del = call("DEL", "sandbox-old", 100, OLD, "checkout-x8k2p");
        del.pid = 500 + number;
        events.push(failed(100, del, &format!("error {number}")));
    }
    let timeline = drawn(&events, 120);
    let lane = &timeline.groups[0].lanes[0];
    for sign in &lane.marks {
        let others = lane
            .marks
            .iter()
            .filter(|it| it.y == sign.y && it.x != sign.x);
        for other in others {
            assert!((other.x.0 - sign.x.0).abs() > 3.0);
        }
    }
    let joined = lane
        .marks
        .iter()
        .find(|sign| sign.letter.starts_with('+'))
        .unwrap();
    assert!(joined.title.to_string().contains("error 30"));
}

#[test]
fn lanes_of_a_group_do_not_overlap_and_groups_are_of_a_page() {
    let mut events = vec![host(0), listed(0, &[])];
    for number in 0..30_u32 {
        let uid = format!("uid-{number}");
        events.push(created(1, 1_000 + number));
        let add = call(
            "ADD",
            &format!("sandbox-{number}"),
            1_000 + number,
            &uid,
            "same",
        );
        events.push(failed(2, add, "no"));
        events.push(stuck(3, 9 + number, 1_000 + number));
    }
    let timeline = drawn(&events, 30);
    assert!(timeline.groups.len() > 1);
    for group in &timeline.groups {
        let mut below = group.top;
        for lane in &group.lanes {
            assert_eq!(lane.y, below);
            below += lane.height;
        }
        assert_eq!(group.height, below);
    }
    let lanes: usize = timeline.groups.iter().map(|group| group.lanes.len()).sum();
    assert!(lanes <= MAX_LANES + 1);
}

#[test]
fn a_run_without_findings_shows_what_happened_all_the_same() {
    let add = call("ADD", "sandbox-old", 100, OLD, "checkout-x8k2p");
    let events = [host(0), created(1, 100), answered(2, add, 5)];
    let timeline = drawn(&events, 10);
    assert!(timeline.quiet);
    assert_eq!(timeline.groups[0].lanes[0].marks[0].letter, "A");
    let meanings: Vec<_> = timeline.legend.iter().map(|it| it.meaning).collect();
    assert_eq!(meanings, ["CNI ADD"]);
}
