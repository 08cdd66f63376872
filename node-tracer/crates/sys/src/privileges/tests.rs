use std::fs;

use super::*;

/// What the kernel says of the calling thread.
fn status(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
}

const SETS: [&str; 5] = ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"];

/// Privileges are a thread's own, so nothing here touches the other tests.
fn in_a_thread<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(test).join()).unwrap()
}

fn with(held: CapabilitySet) -> Privileges {
    Privileges { held, root: true }
}

#[test]
fn what_is_given_up_is_gone_in_this_thread_and_in_those_that_it_starts() {
    in_a_thread(|| {
        let before = status("CapPrm:");
        let bounded = before & CapabilitySet::SETPCAP.bits() != 0;
        try_keep(LOOK).unwrap();
        let look = || SETS.map(status);
        let [inheritable, permitted, effective, bounding, ambient] = look();
        assert_eq!((inheritable, ambient), (0, 0));
        assert_eq!(permitted, before & LOOK.bits());
        assert_eq!(effective, permitted);
        if bounded {
            assert_eq!(bounding & !LOOK.bits(), 0);
        }
        assert_eq!(status("NoNewPrivs:"), 1);
        assert_eq!(in_a_thread(look), look());
        // Again, with less, when the bounding set can no longer be changed.
        try_keep(CapabilitySet::empty()).unwrap();
        assert_eq!(status("CapPrm:"), 0);
    });
}

#[test]
fn the_starter_keeps_what_its_caller_gives_up() {
    in_a_thread(|| {
        let before = status("CapPrm:");
        let starter = Starter::start(ATTACH).unwrap();
        keep(CapabilitySet::empty());
        assert_eq!(status("CapPrm:"), 0);
        let its = starter.run(|| status("CapPrm:")).unwrap();
        assert_eq!(its, before & ATTACH.bits());
    });
}

#[test]
fn a_starter_that_panics_is_an_error_and_not_a_hang() {
    let starter = Starter::start(CapabilitySet::empty()).unwrap();
    let failed = starter.run(|| -> u32 { std::panic::resume_unwind(Box::new(())) });
    assert!(matches!(failed, Err(StarterError::Ended)));
    assert!(matches!(starter.run(|| 1), Err(StarterError::Ended)));
}

#[test]
fn what_is_missing_is_named_with_what_it_costs() {
    let all = with(CapabilitySet::all()).coverage(ATTACH | LOOK);
    assert_eq!(all.mechanism.as_deref(), Some("all that are needed"));
    assert!(all.reason.is_none() && all.unknown.is_empty());
    for need in &NEEDS {
        let held = with(CapabilitySet::all() - need.capability - need.or);
        let item = held.missing(ATTACH | LOOK).unwrap();
        assert!(item.reason.unwrap().contains(need.name), "{}", need.name);
        assert!(item.unknown.contains(&need.lost.to_owned()));
    }
}

#[test]
fn what_another_capability_does_as_well_is_not_missing() {
    let held = with(CapabilitySet::all() - CapabilitySet::BPF - CapabilitySet::PERFMON);
    assert_eq!(held.missing(ATTACH | LOOK), None);
    let held = with(CapabilitySet::all() - CapabilitySet::DAC_READ_SEARCH);
    assert_eq!(held.missing(LOOK), None);
}

#[test]
fn a_look_does_not_miss_what_only_attaching_takes() {
    assert_eq!(with(LOOK).missing(LOOK), None);
    let item = with(LOOK).missing(ATTACH | LOOK).unwrap();
    assert_eq!(item.reason.as_deref(), Some("no CAP_SYSLOG"));
}

#[test]
fn nothing_suffices_but_what_shows_others() {
    assert!(!with(CapabilitySet::empty()).suffice());
    assert!(!with(CapabilitySet::BPF | CapabilitySet::NET_ADMIN).suffice());
    assert!(with(CapabilitySet::BPF | CapabilitySet::PERFMON).suffice());
    assert!(with(CapabilitySet::SYS_PTRACE).suffice());
    assert!(with(CapabilitySet::SYS_ADMIN).suffice());
}

#[test]
fn a_trace_keeps_the_right_to_read_maps_only_where_it_is_asked_for() {
    let without_admin = with(ATTACH | (LOOK - CapabilitySet::SYS_ADMIN));
    assert!(without_admin.trace(|| true).contains(CapabilitySet::BPF));
    assert_eq!(without_admin.trace(|| false), LOOK);
    let unasked = || -> bool { panic!("it does not matter") };
    assert_eq!(with(ATTACH | LOOK).trace(unasked), LOOK);
}

#[test]
fn a_bare_thread_waits_no_longer_for_a_file_that_hangs_and_reads_the_next() {
    let bare = start_bare("test", || {
        let (release, wait) = mpsc::channel::<()>();
        let soon = Duration::from_millis(20);
        let hangs = read_within(soon, move || wait.recv().is_ok());
        let next = read_within(Duration::from_secs(20), || 7);
        drop(release);
        (hangs, next)
    });
    // Who has nothing to give up reads itself, and may hang.
    if READER.get().is_none() {
        return;
    }
    let (hangs, next) = bare.unwrap().join().unwrap();
    assert_eq!(hangs.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(next.unwrap(), 7);
}
