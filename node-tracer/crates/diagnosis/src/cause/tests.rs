use std::collections::BTreeMap;

use super::*;
use event::wording::advice::{command, is_harmless};

/// What components of nodes have said, with other names, by the cause.
const LINES: &str = include_str!("../lines.txt");

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
        let sentence = cause.advice().first().unwrap();
        assert!(sentence.len() > 40 && command(sentence).is_none());
    }
}

#[test]
fn a_step_of_advice_is_a_sentence_or_a_command_alone() {
    let own = Cause::ALL.iter().flat_map(|cause| cause.advice());
    let rows = crate::remedy::all().flat_map(|remedy| remedy.advice);
    for step in own.chain(rows) {
        match command(step) {
            Some(it) => assert!(it.comment.is_none_or(is_harmless), "{step}"),
            None => assert!(!step.contains("    # ") && !step.contains('`'), "{step}"),
        }
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
        (
            "failed to recover state: failed to reserve sandbox name \"a_b_c_0\": name is reserved",
            "containerd does not start",
        ),
    ] {
        let cause = Cause::of_text(None, text);
        let hint = cause
            .remedy(text)
            .unwrap_or_else(|| panic!("{cause:?}: {text}"));
        assert!(hint.clause.contains(clause), "{text}: {}", hint.clause);
    }
    assert!(
        Cause::NodeMemory
            .remedy("fork: cannot allocate memory")
            .is_none()
    );
}

#[test]
fn what_plugins_say_has_its_cause_and_its_remedy() {
    let mut wrong = Vec::new();
    for (cause, clause, msg) in [
        (
            Cause::RangeExhausted,
            "",
            "failed to allocate for range 0: no IP addresses available in range set: \
                 10.244.7.1-10.244.7.254",
        ),
        (
            Cause::RangeExhausted,
            "",
            "failed to request IPv4 addresses: Assigned 0 out of 1 requested IPv4 addresses; \
                 No more free affine blocks and strict affinity enabled",
        ),
        (
            Cause::RangeExhausted,
            "",
            "add cmd: failed to assign an IP address to container",
        ),
        (
            Cause::RangeExhausted,
            "",
            "error at storage engine: Could not allocate IP in range: ip: 10.10.0.1 / - \
                 10.10.0.254 / range: 10.10.0.0/24",
        ),
        (
            Cause::RangeExhausted,
            "",
            "unable to allocate IP via local cilium agent: [POST /ipam][502] postIpamFailure  \
                 range is full",
        ),
        (
            Cause::AddressInUse,
            "",
            "failed to allocate for range 0: requested IP address 10.0.0.9 is not available \
                 in range set 10.0.0.1-10.0.0.254",
        ),
        (
            Cause::AddressInUse,
            "",
            "failed to allocate for range 0: 10.1.0.5/24 has been allocated to d6fe7d733426b, \
                 duplicate allocation is not allowed",
        ),
        (
            Cause::AddressInUse,
            "",
            "FailedCreatePodSandbox; address already in use",
        ),
        (
            Cause::AddressInUse,
            "",
            "failed to add IP addr {Version:4 Interface:0xc000014 Address:{IP:10.0.4.61 \
                 Mask:ffffff00} Gateway:10.0.4.1} to \"eth0\": file exists",
        ),
        (
            Cause::AddressInUse,
            "",
            "route (Ifindex: 7, Dst: 192.168.8.34/32, Scope: link) already exists for an \
                 interface other than 'cali5d0ee4ce9b1'",
        ),
        (
            Cause::CniPluginError,
            "hostPort",
            "cannot open hostport 8080 for pod shop_a_: listen tcp4 :8080: bind: address \
                 already in use",
        ),
        (
            Cause::CniPluginError,
            "of that name",
            "container veth name provided (eth0) already exists",
        ),
        (
            Cause::CniPluginError,
            "own address",
            "failed to set bridge addr: \"cni0\" already has an IP address different from \
                 10.244.7.1/24",
        ),
        (
            Cause::CniNotReady,
            "binary",
            "failed to find plugin \"host-local\" in path [/opt/cni/bin]",
        ),
        (
            Cause::CniPluginError,
            "netns is not there",
            "failed to open netns \"/var/run/netns/cni-4f2a\": failed to Statfs \
                 \"/var/run/netns/cni-4f2a\": no such file or directory",
        ),
        (
            Cause::CniPluginError,
            "netns is not there",
            "CNI failed to retrieve network namespace path: Cannot find network namespace for \
                 the terminated container \"41857f70ed13\"",
        ),
        (
            Cause::CniNotReady,
            "flannel",
            "loadFlannelSubnetEnv failed: open /run/flannel/subnet.env: no such file or \
                 directory",
        ),
        (
            Cause::CniNotReady,
            "daemon on the node",
            "stat /var/lib/calico/nodename: no such file or directory: check that the \
                 calico/node container is running and has mounted /var/lib/calico/",
        ),
        (
            Cause::CniNotReady,
            "daemon on the node",
            "unable to connect to Cilium daemon: failed to create cilium agent client after \
                 30.000000 seconds timeout",
        ),
        (
            Cause::CniNotReady,
            "daemon on the node",
            "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error \
                 while dialing dial tcp 127.0.0.1:50051: connect: connection refused\"",
        ),
        (
            Cause::CniNotReady,
            "daemon on the node",
            "cmdAdd: error alloc ip, dial unix /var/run/eni/eni.socket: connect: connection \
                 refused",
        ),
        (
            Cause::CniPluginError,
            "credentials",
            "error getting ClusterInformation: connection is unauthorized: Unauthorized",
        ),
        (
            Cause::CniTimeout,
            "does not answer",
            "error getting ClusterInformation: Get \"https://10.96.0.1:443/apis/crd.projectcalico.org/v1\
                 /clusterinformations/default\": dial tcp 10.96.0.1:443: i/o timeout",
        ),
        (
            Cause::CniTimeout,
            "does not answer",
            "Get https://10.96.0.1:443/api: context deadline exceeded",
        ),
        (
            Cause::CniTimeout,
            "",
            "netplugin failed with no error message: context deadline exceeded",
        ),
        (
            Cause::CniTimeout,
            "",
            "operation timeout: context deadline exceeded",
        ),
        (
            Cause::NoSpace,
            "",
            "mkdir /var/lib/docker/aufs/mnt/1f09d6c1-init: no space left on device",
        ),
        (
            Cause::NoSpace,
            "",
            "open /var/lib/cni/networks/pods/10.0.0.5: No space left on device",
        ),
        (
            Cause::NodeMemory,
            "",
            "failed to fork: cannot allocate memory",
        ),
        (
            Cause::CniPluginError,
            "killed",
            "netplugin failed: signal: killed",
        ),
    ] {
        let error = error(999, msg);
        let failure = failed(&error);
        let found = Cause::of_plugin(failure);
        let said = found
            .remedy_of_plugin(failure)
            .map_or("", |remedy| remedy.clause);
        if found != cause || !said.contains(clause) || said.is_empty() != clause.is_empty() {
            wrong.push(format!("{found:?}, {said}: {msg}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_text_that_says_nothing_leaves_the_code() {
    for (code, cause, clause) in [
        (11, Cause::CniPluginError, "called again later"),
        (50, Cause::CniNotReady, ""),
        (1, Cause::CniPluginError, "refuses what it is given"),
        (7, Cause::CniPluginError, "refuses what it is given"),
        (3, Cause::CniPluginError, "netns is not there"),
        (5, Cause::CniPluginError, ""),
    ] {
        let error = error(code, "no");
        let failure = failed(&error);
        let found = Cause::of_plugin(failure);
        let said = found
            .remedy_of_plugin(failure)
            .map_or("", |remedy| remedy.clause);
        assert_eq!(
            (found, said.contains(clause)),
            (cause, true),
            "{code}: {said}"
        );
        assert_eq!(said.is_empty(), clause.is_empty(), "{code}: {said}");
    }
    let error = error(11, "no space left on device");
    assert_eq!(Cause::of_plugin(failed(&error)), Cause::NoSpace);
}

#[test]
fn details_count_and_are_not_read_for_ever() {
    let of = |details: String| {
        let error = CniError {
            details: Some(details),
            ..error(999, "failed")
        };
        Cause::of_plugin(failed(&error))
    };
    assert_eq!(of(String::from("i/o timeout")), Cause::CniTimeout);
    let long = "x".repeat(1 << 20);
    assert_eq!(of(long + "i/o timeout"), Cause::CniPluginError);
}

#[test]
fn a_signal_says_more_than_what_was_said_before_it() {
    let of = |signal, duration_ms| {
        Cause::of_plugin(PluginFailure {
            error: None,
            signal,
            duration_ms,
        })
    };
    assert_eq!(of(Some(9), 120_000.0), Cause::CniTimeout);
    assert_eq!(of(Some(9), 9.0), Cause::CniPluginError);
    assert_eq!(of(None, 120_000.0), Cause::CniPluginError);
}

fn error(code: u64, msg: &str) -> CniError {
    CniError {
        code: Some(code),
        msg: msg.to_owned(),
        details: None,
    }
}

fn failed(error: &CniError) -> PluginFailure<'_> {
    PluginFailure {
        error: Some(error),
        signal: None,
        duration_ms: 9.0,
    }
}
