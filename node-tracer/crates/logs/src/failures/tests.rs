use std::borrow::Cow;

use super::*;
use diagnosis::{Cause, PluginFailure};
use event::CniError;
use event::PodRef;

/// The rule's own lines.
const LINES: &str = include_str!("../../../diagnosis/src/lines.txt");
/// What healthy nodes say, and what is no matter of a pod's start.
const NOTHING: &str = include_str!("nothing.txt");
const ID: &str = "5f3c9a1be07d4c2288aa01f6b3d9e4470c1a2b3c4d5e6f708192a3b4c5d6e7f8";
const UID: &str = "0a1b2c3d-0000-4000-8000-000000000001";

fn entry(message: &str) -> Entry<'_> {
    Entry {
        time: None,
        host: None,
        ident: None,
        pid: None,
        level: None,
        own_level: None,
        message: Cow::Borrowed(message),
        fields: Vec::new(),
        line: 1,
    }
}

fn with<'a>(message: &'a str, fields: &[(&'a str, &'a str)]) -> Entry<'a> {
    let fields = fields
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()));
    Entry {
        fields: fields.collect(),
        ..entry(message)
    }
}

fn failure(entry: &Entry<'_>) -> Option<StartFailure> {
    let event = events(entry, None).pop()?;
    match event.what {
        What::SandboxFailed { failure } => Some(failure),
        _ => None,
    }
}

fn of(message: &str) -> StartFailure {
    failure(&entry(message)).unwrap_or_else(|| panic!("nothing told by {message}"))
}

fn pod(namespace: &str, name: &str, uid: &str) -> PodRef {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    PodRef {
        namespace: some(namespace),
        name: some(name),
        uid: some(uid),
    }
}

#[test]
fn every_line_of_a_cause_is_told_and_has_a_needle() {
    let mut missed = Vec::new();
    for line in LINES.lines().filter(|line| !line.starts_with("== ")) {
        let has_needle = gate::NEEDLES.iter().any(|needle| line.contains(needle));
        let mut kubectl = crate::kubectl::Kubectl::new(Timestamp::EPOCH);
        let told = [kubectl.line(line), kubectl.end()].concat();
        if told.is_empty() && failure(&entry(line)).is_none() {
            missed.push(format!("not told: {line}"));
        }
        if !has_needle && !kubectl.took() {
            missed.push(format!("no needle: {line}"));
        }
    }
    assert!(missed.is_empty(), "{}\n{}", missed.len(), missed.join("\n"));
}

#[test]
fn a_failed_add_has_the_cause_in_a_log_that_it_has_live() {
    let mut wrong = Vec::new();
    for phrase in diagnosis::phrases() {
        let error = CniError {
            code: Some(999),
            msg: phrase.clone(),
            details: None,
        };
        let live = Cause::of_plugin(PluginFailure {
            error: Some(&error),
            signal: None,
            duration_ms: 5.0,
        });
        let add = format!(
            "failed to setup network for sandbox \"{ID}\": plugin type=\"x\" failed (add): {phrase}"
        );
        let containerd = with("RunPodSandbox failed, error", &[("error", &add)]);
        let kubelet =
            format!("Failed to create pod sandbox: rpc error: code = Unknown desc = {add}");
        for entry in [containerd, entry(&kubelet)] {
            let cause = failure(&entry).map(|failure| Cause::of(&failure));
            if cause != Some(live) {
                wrong.push(format!("{cause:?} instead of {live:?}: {}", entry.message));
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_warning_that_names_another_way_tells_nothing() {
    let message = "Unable to assign additional IPs to interface, will create new interface: \
                   PrivateIpAddressLimitExceeded";
    let at = |own_level| {
        let level = Some(own_level);
        failure(&Entry {
            level,
            own_level: level,
            ..entry(message)
        })
    };
    assert_eq!(at(Level::Warning), None);
    assert!(at(Level::Error).is_some());
}

#[test]
fn what_is_no_matter_of_a_start_tells_nothing() {
    let mut wrong = Vec::new();
    for line in NOTHING.lines() {
        let mut kubectl = crate::kubectl::Kubectl::new(Timestamp::EPOCH);
        let told = [kubectl.line(line), kubectl.end()].concat();
        let fails = |event: &Event| matches!(event.what, What::SandboxFailed { .. });
        if told.iter().any(fails) {
            wrong.push(format!("a row: {line}"));
        }
        let mut entry = entry(line);
        if line.starts_with("app[12]") {
            entry.ident = Some("app");
        }
        // What kubectl prints is read by that alone.
        if !kubectl.took() && failure(&entry).is_some() {
            wrong.push(format!("told: {line}"));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn an_answer_with_an_error_is_told_although_it_is_information() {
    let inform = |message: &'static str| Entry {
        own_level: Some(Level::Info),
        ..entry(message)
    };
    let refused = "Send AddNetworkReply: IPv4Addr , err: datastore: no available IP addresses";
    assert!(failure(&inform(refused)).is_some());
    for message in [
        "Send AddNetworkReply: IPv4Addr 10.0.0.4, err: <nil>",
        "Send AddNetworkReply: IPv4Addr 10.0.0.4",
        "DelNetwork failed, err: no available IP addresses",
    ] {
        assert_eq!(failure(&inform(message)), None, "{message}");
    }
}

#[test]
fn pods_are_named_in_many_forms() {
    let all = pod("shop", "web-0", UID);
    let named = pod("shop", "web-0", "");
    for (message, expected) in [
        (
            format!(
                "Error syncing pod {UID} (\"web-0_shop({UID})\"), skipping: failed to \"CreatePodSandbox\" for \"web-0_shop({UID})\""
            ),
            &all,
        ),
        (
            format!(
                "RunPodSandbox for &PodSandboxMetadata{{Name:web-0,Uid:{UID},Namespace:shop,Attempt:3,}} failed, error"
            ),
            &all,
        ),
        (
            format!(
                "RunPodSandbox for name:\"web-0\" uid:\"{UID}\" namespace:\"shop\" attempt:3 failed"
            ),
            &all,
        ),
        (
            format!("failed to reserve sandbox name \"web-0_shop_{UID}_3\": name is reserved"),
            &all,
        ),
        (
            format!(
                "Conflict. The container name \"/k8s_POD_web-0_shop_{UID}_3\" is already in use"
            ),
            &all,
        ),
        (
            format!(
                "error reserving pod name k8s_web-0_shop_{UID}_3 for id {ID}: name is reserved"
            ),
            &all,
        ),
        (
            format!("failed to reserve container name \"app_web-0_shop_{UID}_0\": is reserved for"),
            &all,
        ),
        (
            format!(
                "multus: [shop/web-0/{UID}:net1]: error adding container to network, failed (add)"
            ),
            &all,
        ),
        (
            format!(
                "MountVolume.SetUp failed for volume \"a\" pod \"web-0\" (UID: \"{UID}\") : no"
            ),
            &pod("", "web-0", UID),
        ),
        (
            format!("MountVolume.SetUp failed: open /var/lib/kubelet/pods/{UID}/volumes/x: no"),
            &pod("", "", UID),
        ),
        (
            String::from("networkPlugin cni failed to set up pod \"web-0_shop\" network: no"),
            &named,
        ),
        (
            String::from("error adding pod shop_web-0 to CNI network \"crio\": failed"),
            &named,
        ),
        (
            String::from("Running pod sandbox: shop/web-0/POD: failed"),
            &named,
        ),
        (
            String::from("failed to start sandbox container for pod \"web-0\": no"),
            &pod("", "web-0", ""),
        ),
        (
            format!(
                "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID={ID} failed (add)"
            ),
            &named,
        ),
        (
            String::from("Failed to create pod sandbox: no"),
            &PodRef::default(),
        ),
        (
            String::from("create pod sandbox changed with error"),
            &PodRef::default(),
        ),
    ] {
        assert_eq!(&of(&message).pod, expected, "{message}");
    }
}

#[test]
fn fields_beside_a_message_are_read() {
    let error = format!(
        "failed to \"CreatePodSandbox\" for \"web-0_shop({UID})\" with CreatePodSandboxError: \
         \"Failed to create sandbox for pod \\\"web-0_shop({UID})\\\": rpc error: code = Unknown \
         desc = failed to setup network for sandbox \\\"{ID}\\\": plugin type=\\\"calico\\\" failed \
         (add): no\""
    );
    let fields = [
        ("err", error.as_str()),
        ("pod", "shop/web-0"),
        ("podUID", UID),
    ];
    let told = failure(&with("Error syncing pod, skipping", &fields)).unwrap();
    assert_eq!(told.pod, pod("shop", "web-0", UID));
    assert_eq!(told.sandbox_id.as_deref(), Some(ID));
    assert_eq!(told.source, "kubelet");
    assert!(
        told.message.ends_with("failed (add): no\""),
        "{}",
        told.message
    );

    let fields = [(
        "networkReady",
        "NetworkReady=false reason:NetworkPluginNotReady",
    )];
    assert!(failure(&with("Container runtime network not ready", &fields)).is_some());

    let fields = [
        ("object", "shop/web-0"),
        ("kind", "Pod"),
        ("type", "Warning"),
        ("reason", "FailedMount"),
        ("message", "MountVolume.SetUp failed for volume \"a\" : no"),
    ];
    let told = failure(&with("Event occurred", &fields)).unwrap();
    assert_eq!(told.pod, pod("shop", "web-0", ""));
    assert_eq!(
        (told.source.as_str(), told.reason.as_deref()),
        ("events", Some("FailedMount"))
    );
}

#[test]
fn an_event_that_the_kubelet_has_logged_is_one() {
    let told = of(&format!(
        "Event(v1.ObjectReference{{Kind:\"Pod\", Namespace:\"shop\", Name:\"web-0\", UID:\"{UID}\", \
         APIVersion:\"v1\", ResourceVersion:\"103127\", FieldPath:\"\"}}): type: 'Warning' reason: \
         'FailedCreatePodSandBox' Failed create pod sandbox: no"
    ));
    assert_eq!(told.pod, pod("shop", "web-0", UID));
    assert_eq!(told.reason.as_deref(), Some("FailedCreatePodSandBox"));
    assert_eq!(told.message, "Failed create pod sandbox: no");
}

#[test]
fn the_sandbox_is_told_from_what_has_its_name() {
    let other = ID.replace("5f3c", "77aa");
    let told = of(&format!(
        "failed to reserve sandbox name \"web-0_shop_{UID}_2\": name \"web-0_shop_{UID}_2\" is \
         reserved for \"{other}\""
    ));
    assert_eq!((told.sandbox_id, told.attempt), (None, Some(2)));
    let told = of(&format!(
        "failed to create pod network sandbox k8s_web-0_shop_{UID}_4({ID}): no"
    ));
    assert_eq!(
        (told.sandbox_id.as_deref(), told.attempt),
        (Some(ID), Some(4))
    );
    let told = of(&format!(
        "failed to set up sandbox container \"{ID}\" network for pod \"a\": no"
    ));
    assert_eq!(told.sandbox_id.as_deref(), Some(ID));
}

#[test]
fn what_stands_where_a_reason_should_is_no_way_out_for_a_secret() {
    let token = "eyJhbGciOiJSUzI1NiIsImtpZCI6Ijc4In0.eyJpc3MiOiJrdWJl.c2ln";
    let told = failure(&with(
        "Event occurred",
        &[
            ("object", "shop/web"),
            ("type", "Warning"),
            ("reason", token),
            ("message", "failed to set up pod \"a_b\" network: no"),
        ],
    ));
    assert_eq!(told.unwrap().reason.as_deref(), Some("[redacted]"));
}

#[test]
fn secrets_do_not_come_out_again() {
    let told = of(
        "failed to set up pod \"a_b\" network: K8S_API_TOKEN=eyJhbGciOiJSUzI1NiIsImtpZCI6Ijc4In0 \
         refused",
    );
    assert!(!told.message.contains("eyJ"), "{}", told.message);
}

#[test]
fn only_those_who_make_up_a_node_are_believed_in_words_of_everybody() {
    let mut entry = entry("container storage: write /data: no space left on device");
    for (ident, told) in [(None, true), (Some("k3s"), true), (Some("shop-web"), false)] {
        entry.ident = ident;
        assert_eq!(failure(&entry).is_some(), told, "{ident:?}");
    }
}

#[test]
fn any_text_is_taken() {
    let words: Vec<&str> = LINES.split_inclusive([' ', '"', '(', '_', '=']).collect();
    let mut state = 88_172_645_463_325_252_u64;
    for _ in 0..2_000 {
        let mut text = String::new();
        for _ in 0..16 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = usize::try_from(state % words.len() as u64).unwrap();
            text.push_str(words[at]);
            if state.is_multiple_of(5) {
                text.push(char::from_u32((state >> 32) as u32 % 0x2_ffff).unwrap_or('\\'));
            }
        }
        let fields = [
            ("err", text.as_str()),
            ("pod", text.as_str()),
            ("reason", text.as_str()),
        ];
        let _ = events(&with(&text, &fields), None);
        let mut kubectl = crate::kubectl::Kubectl::new(Timestamp::EPOCH);
        for line in text.split('(') {
            let _ = kubectl.line(line);
        }
        let _ = kubectl.end();
    }
}

#[test]
fn a_service_that_fails_is_no_pod() {
    let mut entry = entry("Failed to start Container Runtime Monitor.");
    entry.ident = Some("systemd");
    assert_eq!(failure(&entry), None);
}

#[test]
fn what_its_writer_calls_information_is_no_failure() {
    let mut entry = entry("Failed to create pod sandbox: plugin failed (add): no");
    for (level, told) in [
        (None, true),
        (Some(Level::Error), true),
        (Some(Level::Warning), true),
        (Some(Level::Info), false),
        (Some(Level::Debug), false),
    ] {
        entry.own_level = level;
        // journald takes all that a service prints for information.
        entry.level = Some(Level::Info);
        assert_eq!(failure(&entry).is_some(), told, "{level:?}");
    }
}

#[test]
fn what_a_daemon_says_while_it_serves_a_pod_is_of_that_pod() {
    let served = pod("shop", "web-0", "");
    let said = entry("DataStore has no available IP/Prefix addresses: error");
    let told = events(&said, Some(&served)).pop().unwrap();
    let What::SandboxFailed { failure } = told.what else {
        panic!("{told:?}");
    };
    assert_eq!(failure.pod, served);
    let other = entry("failed to set up pod \"web-1_shop\" network: no");
    let told = events(&other, Some(&served)).pop().unwrap();
    let What::SandboxFailed { failure } = told.what else {
        panic!("{told:?}");
    };
    assert_eq!(failure.pod.name.as_deref(), Some("web-1"));
}

/// Whether a line alone tells of a pod that does not start.
fn is_told(text: &str) -> bool {
    use diagnosis::phrase::SearchText;
    let said = SearchText::new(text);
    gate::answers_with_an_error(text) || gate::of(&said, None, None) == gate::Verdict::Failure
}

#[test]
fn an_answer_or_an_object_that_is_only_an_error_is_a_failure() {
    let failures = [
        r#"Send AddNetworkReply: failed to get an ENI"#,
        r#"{ "code": 100, "msg": "failed to move the link: device or resource busy" }"#,
        r#"{\n \"code\": 7,\n \"msg\": \"invalid network\"\n}"#,
        r#"{ "cniVersion": "0.4.0", "code": 300, "msg": "failed to reach the store" }"#,
        r#"failed to set "eth0" up: device or resource busy"#,
    ];
    for text in failures {
        assert!(is_told(text), "{text}");
    }
    let others = [
        r#"Send AddNetworkReply: IPv4Addr: 10.0.0.7, DeviceNumber: 0"#,
        r#"{ "code": 0, "msg": "no error" }"#,
        r#"{ "code": 500, "msg": "failed to load the basket" }"#,
        r#"{ "code": 100, "msg": "failed to load the basket", "data": null }"#,
    ];
    for text in others {
        assert!(!is_told(text), "{text}");
    }
}

#[test]
fn what_is_kept_of_a_message_is_bounded_in_bytes() {
    let text = "\u{1f980}".repeat(MAX_MESSAGE);
    let kept = kept(&format!("x{text}"));
    assert!(kept.len() <= MAX_MESSAGE && kept.len() > MAX_MESSAGE - 4);
}
