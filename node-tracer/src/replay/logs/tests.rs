use super::*;

#[test]
fn recordings_are_told_by_their_first_bytes() {
    let header = br#"{"schema":"node-tracer/1","type":"recording","time":"x"}"#;
    let event = br#"{"time":"2025-01-01T00:00:00Z","event":"tick"}"#;
    for recording in [&header[..], event, b"\n  ", b""] {
        assert!(is_recording(recording), "{recording:?}");
    }
    let docker = br#"{"log":"x\n","stream":"stderr","time":"2025-01-01T00:00:00Z"}"#;
    let json = br#"{"time":"2025-01-01T00:00:00Z","msg":"a \"event\""}"#;
    for log in [
        &docker[..],
        json,
        b"Nov 21 05:41:02 node kubelet[812]: x",
        b"{\"ts\":1}",
    ] {
        assert!(!is_recording(log), "{log:?}");
    }
}

#[test]
fn no_needle_is_there_twice_or_too_short_to_be_selective() {
    let all = needles();
    assert!(all.iter().all(|needle| needle.len() >= 3), "{all:?}");
    for needle in &all {
        let holding = all.iter().filter(|other| other.contains(needle));
        assert_eq!(holding.count(), 1, "{needle}");
    }
}
