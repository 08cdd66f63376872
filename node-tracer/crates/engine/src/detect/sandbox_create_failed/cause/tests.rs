use std::collections::BTreeMap;

use super::*;

/// What components of nodes have said, with other names, by the cause.
const LINES: &str = include_str!("lines.txt");

fn sections() -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut sections: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut cause = "";
    for line in LINES.lines() {
        match line.strip_prefix("== ") {
            Some(name) => cause = name,
            None => sections.entry(cause).or_default().push(line),
        }
    }
    sections
}

#[test]
fn the_words_of_every_cause_are_understood() {
    let mut wrong = Vec::new();
    for (cause, lines) in sections() {
        for line in lines {
            let found = Cause::of_text(None, line).as_str();
            if found != cause {
                wrong.push(format!("{found} instead of {cause}: {line}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn every_cause_has_ten_wordings() {
    let sections = sections();
    for cause in Cause::ALL {
        let lines = sections.get(cause.as_str()).map_or(0, Vec::len);
        assert!(lines >= 10, "{} has {lines}", cause.as_str());
    }
    assert_eq!(sections.len(), Cause::ALL.len());
}

#[test]
fn a_reason_decides_where_nothing_else_does() {
    for (reason, text, cause) in [
        ("FailedMount", "it did not work", "volume-mount"),
        ("FailedAttachVolume", "it did not work", "volume-attach"),
        ("InspectFailed", "it did not work", "image-pull"),
        ("NetworkNotReady", "it did not work", "cni-not-ready"),
        ("FailedCreatePodSandBox", "it did not work", "unknown"),
        ("FailedMount", "configmap \"a\" not found", "config-missing"),
        (
            "FailedMount",
            "write x: no space left on device",
            "no-space",
        ),
    ] {
        assert_eq!(
            Cause::of_text(Some(reason), text).as_str(),
            cause,
            "{reason}: {text}"
        );
    }
}

#[test]
fn what_comes_first_decides() {
    const ADD: &str = "failed to setup network for sandbox \"a\": plugin type=\"x\" failed (add): ";
    for (text, cause) in [
        ("context deadline exceeded", "cni-timeout"),
        ("open /run/x: no space left on device", "no-space"),
        (
            "dial tcp 10.96.0.1:443: connect: connection refused",
            "cni-plugin-error",
        ),
        (
            "dial unix /var/run/x.sock: connect: connection refused",
            "cni-not-ready",
        ),
        (
            "dial tcp 127.0.0.1:50051: connect: connection refused: i/o timeout",
            "cni-not-ready",
        ),
        (
            "could not add IP address to \"cni0\": file exists",
            "cni-plugin-error",
        ),
        (
            "fork/exec /opt/cni/bin/x: resource temporarily unavailable",
            "node-memory",
        ),
        (
            "listen tcp4 :80: bind: address already in use",
            "cni-plugin-error",
        ),
        ("no address for it", "cni-plugin-error"),
    ] {
        assert_eq!(
            Cause::of_text(None, &format!("{ADD}{text}")).as_str(),
            cause,
            "{text}"
        );
    }
}

#[test]
fn names_that_users_choose_decide_nothing() {
    for name in ["cni-timeout", "no-space-left", "calico-node", "image-pull"] {
        let text = format!(
            "failed to start sandbox container for pod \"{name}\": operation timeout: context \
             deadline exceeded"
        );
        assert_eq!(
            Cause::of_text(None, &text).as_str(),
            "runtime-timeout",
            "{name}"
        );
    }
}

#[test]
fn any_text_has_a_cause() {
    let words: Vec<&str> = LINES.split_whitespace().collect();
    let mut state = 88_172_645_463_325_252_u64;
    for _ in 0..300 {
        let mut text = String::new();
        for _ in 0..24 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = usize::try_from(state % words.len() as u64).unwrap();
            text.push_str(words[at]);
            text.push(char::from_u32((state % 0x2_ffff) as u32).unwrap_or('\\'));
        }
        let _ = Cause::of_text(Some(&text), &text);
        let _ = Cause::before(&text);
    }
}

#[test]
fn every_cause_is_told_and_has_advice() {
    for cause in Cause::ALL {
        assert!(cause.clause().len() > 15);
        assert!(cause.advice().len() > 60);
    }
}

#[test]
fn what_is_said_more_exactly_has_its_own_advice() {
    for (text, clause) in [
        (
            "OCI runtime create failed: expected cgroupsPath to be of format \"slice:prefix:name\"",
            "cgroup drivers",
        ),
        (
            "mounting \"cgroup\" to rootfs at \"/sys/fs/cgroup\": no subsystem for mount",
            "mount a cgroup",
        ),
        (
            "failed to mount /x/tmpmounts/containerd-mount1: no such device",
            "overlay",
        ),
        (
            "unable to retrieve OCI runtime error: runsc did not terminate successfully",
            "low-level runtime",
        ),
        (
            "failed to start shim: fork/exec /x: resource temporarily unavailable",
            "process or thread",
        ),
        (
            "failed (add): open /run/flannel/subnet.env: no such file or directory",
            "flannel",
        ),
        (
            "failed (add): dial unix /run/x.sock: connect: connection refused",
            "daemon on the node",
        ),
    ] {
        let cause = Cause::of_text(None, text);
        let hint = cause
            .hint(text)
            .unwrap_or_else(|| panic!("{cause:?}: {text}"));
        assert!(hint.clause.contains(clause), "{text}: {}", hint.clause);
    }
    assert!(
        Cause::NodeMemory
            .hint("fork: cannot allocate memory")
            .is_none()
    );
}
