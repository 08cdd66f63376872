//! Whether a message is about a pod that does not start.
//!
//! It is if it names a part of a pod's start and says that something is wrong
//! with it. Names of what makes up a pod (a sandbox, an IPAM) count only beside
//! words of making it, and words that occur everywhere (a full disk, a time-out)
//! only beside those of what makes up a node. What is about a container that
//! has started once, about its end, or about tearing a pod down, is not; nor is
//! what its writer ignores.

mod phrases;

use self::phrases::{
    ANSWERS, ANYWHERE, BEGINNING, ENDING, IGNORED, INSTEAD, MAKING, NAMES, OF_A_NODE, OF_A_POD,
    PARTS, PROBLEMS, RUNNING, SLOW,
};
use crate::{phrase::SearchText, speaker};

/// Words of which one is in every line that is of interest here. Lines without
/// any are not looked at.
pub const NEEDLES: &[&str] = &[
    // Nearly all that goes wrong; what follows does without these words. The
    // names of what is made (sandboxes, volumes, images) would select most
    // lines of a node on which all is well.
    "ailed",
    "rror",
    "nable to",
    "annot ",
    "ouldn't",
    // The sandbox, as the kubelet and runtimes call it.
    "is reserved",
    "already reserved",
    "already in use",
    "OCI runtime",
    "init-p",
    "final child",
    "OOM-killed",
    "OOMKilled",
    "stopped process",
    "Conflict. ",
    // The network.
    "etworkPlugin",
    "etwork plugin",
    "etworkReady=false",
    "etwork is not ready",
    "etwork not ready",
    "cni config",
    "CNI ADD",
    "(add)",
    "add cmd",
    "CmdAdd",
    "range set",
    "etworks found in",
    "/var/lib/calico/nodename",
    "/run/flannel/subnet.env",
    // Volumes, images, configuration.
    "no available ",
    "no address allocated",
    "nmounted volumes",
    "subPath",
    "olume-subpaths",
    "Multi-Attach",
    "not attached",
    "ack-off pulling",
    "ErrImage",
    "ImagePullBackOff",
    "InvalidImageName",
    "pull policy",
    "pull secrets",
    "non-existent",
    // What is used up, and who does not answer.
    "o space left",
    "ENOSPC",
    "quota exceeded",
    "too many open files",
    "Thin Pool",
    "llocate memory",
    "allocation failure",
    "not enough",
    "exhausted",
    "ttrpc:",
    "Docker daemon",
    "connection refused",
    "transport is closing",
    "deadline exceeded",
    "DeadlineExceeded",
    "operation timeout",
    "imed out",
    "refused",
    "nauthorized",
    "orbidden",
    "denied",
    "i/o timeout",
    "o such ",
    "not found",
    "not supported",
    "nvalid ",
    "not ready",
    "not initialized",
    "in use",
    "navailable",
    "OOM encountered",
    "signal: killed",
    "reset by peer",
    "shutting down",
];

/// How bad a message is, by its writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Debug,
    /// Information, notices.
    Info,
    Warning,
    Error,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It tells of a pod that does not start.
    Failure,
    /// It may; its words decide.
    Perhaps,
    Nothing,
}

/// By the reason of a Kubernetes event.
pub fn of_reason(reason: &str) -> Verdict {
    match reason {
        "FailedCreatePodSandBox"
        | "FailedCreatePodSandbox"
        | "FailedCreatePodContainer"
        | "FailedMount"
        | "FailedMapVolume"
        | "FailedAttachVolume"
        | "NetworkNotReady"
        | "InspectFailed"
        | "ErrImageNeverPull"
        | "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ImageInspectError"
        | "RegistryUnavailable"
        | "CreateContainerConfigError"
        | "FailedToRetrieveImagePullSecret"
        // Of the networks of OVN-Kubernetes, Kube-OVN and Terway.
        | "ErrorAddingLogicalPort"
        | "AcquireAddressFailed"
        | "CreateOVNPortFailed"
        | "AllocIPFailed" => Verdict::Failure,
        "Failed" | "FailedSync" | "BackOff" => Verdict::Perhaps,
        "Unhealthy"
        | "FailedScheduling"
        | "Killing"
        | "FailedKillPod"
        | "Evicted"
        | "Pulling"
        | "Pulled"
        | "Created"
        | "Started"
        | "Scheduled"
        | "SandboxChanged"
        | "Preempted"
        | "FailedPreStopHook"
        | "FailedPostStartHook"
        | "NodeNotReady"
        | "TaintManagerEviction"
        | "SuccessfulAttachVolume"
        | "SuccessfulMountVolume"
        | "CrashLoopBackOff"
        | "FailedBinding"
        | "ProvisioningFailed"
        | "FailedCreate"
        | "OOMKilling"
        | "ImageGCFailed"
        | "ContainerGCFailed"
        | "FreeDiskSpaceFailed" => Verdict::Nothing,
        _ => Verdict::Perhaps,
    }
}

/// Who writes such messages, as envelopes name them.
pub fn writer(ident: &str) -> Option<&'static str> {
    const WRITERS: [(&str, &str); 29] = [
        ("kubelet", "kubelet"),
        ("kubelite", "kubelet"),
        ("hyperkube", "kubelet"),
        ("k3s", "kubelet"),
        ("rke2", "kubelet"),
        ("k0s", "kubelet"),
        ("origin-node", "kubelet"),
        ("openshift-node", "kubelet"),
        ("cri-dockerd", "dockerd"),
        ("cri-docker", "dockerd"),
        ("dockerd", "dockerd"),
        ("docker", "dockerd"),
        ("containerd", "containerd"),
        ("crio", "cri-o"),
        ("cri-o", "cri-o"),
        ("kernel", "kernel"),
        ("multus", "cni"),
        ("calico", "cni"),
        ("aws-node", "cni"),
        ("ipamd", "cni"),
        ("antrea", "cni"),
        ("cilium", "cni"),
        ("flannel", "cni"),
        ("ovn", "cni"),
        ("spiderpool", "cni"),
        ("terway", "cni"),
        ("weave", "cni"),
        ("whereabouts", "cni"),
        ("azure-vnet", "cni"),
    ];
    let ident = ident.to_ascii_lowercase();
    let known = WRITERS.iter().find(|(name, _)| ident.contains(name));
    known.map(|(_, source)| *source)
}

/// Whether an envelope names somebody who writes nothing of the kind: what a
/// program like `sshd` writes, it may have been told by anybody.
pub fn is_another(ident: &str) -> bool {
    let lower = ident.to_ascii_lowercase();
    let of_kubernetes = ["kube", "k8s", "cni"];
    // Docker names a container that has no other name.
    let is_id = ident.len() >= 12 && ident.bytes().all(|b| b.is_ascii_hexdigit());
    writer(&lower).is_none()
        && lower != "kern"
        && !is_id
        && !of_kubernetes.iter().any(|name| lower.contains(name))
}

/// A quick look: most messages of a healthy node hold none of these.
pub fn may_be_a_problem(text: &str) -> bool {
    const PARTS_OF_WORDS: [&str; 44] = [
        "ail",
        "rror",
        "unable",
        "Unable",
        "annot",
        "an't",
        "an not",
        "ould",
        "not ",
        "o such",
        "o space",
        "o IP",
        "o ip",
        "efused",
        "enied",
        "nauthor",
        "orbidden",
        "imed out",
        "imeout",
        "xceeded",
        "nvalid",
        "in use",
        "eserved",
        "onflict",
        "issing",
        "xhausted",
        "OOM",
        "oom",
        "illed",
        "reset",
        "roken",
        "shutting",
        "clos",
        "vailable",
        "exist",
        "ack-",
        "ackOff",
        "ttach",
        "oes",
        "nitialized",
        "caused",
        "EOF",
        "o networks",
        "nknown",
    ];
    PARTS_OF_WORDS.iter().any(|part| text.contains(part))
}

/// Whether a message tells what an ADD was answered with, and that is an error.
/// Daemons of networks log their answers as information, whatever they are.
pub fn answers_with_an_error(text: &str) -> bool {
    let said = SearchText::new(speaker::of_sandbox(text));
    let text = said.as_str();
    ANSWERS.are_in(&said) && (has_an_error(text) || is_an_error(text))
}

/// Whether a field of an answer is an error.
fn has_an_error(text: &str) -> bool {
    [
        "err:", "error:", "err=", "error=", "err\":", "error\":", ", err ", "msg\":",
    ]
    .iter()
    .flat_map(|words| text.match_indices(words).map(|(at, _)| at + words.len()))
    .any(|at| {
        let value = text.get(at..).unwrap_or_default();
        let value = value.trim_start_matches([' ', '"', '\'']);
        let none = ["<nil>", "nil", "null", "none", "false", ",", "}", "]", ")"];
        !value.is_empty() && !none.iter().any(|none| value.starts_with(none))
    })
}

/// Whether an answer is nothing but an error: `AddNetworkReply: failed to ...`.
fn is_an_error(text: &str) -> bool {
    ["reply: ", "response: ", "result: "]
        .iter()
        .filter_map(|words| text.split_once(words))
        .any(|(_, value)| {
            let value = value.trim_start_matches([' ', '"', '\'']);
            [
                "failed ",
                "failure ",
                "error ",
                "unable ",
                "cannot ",
                "could not ",
                "couldn't ",
                "timed out",
                "rpc error",
            ]
            .iter()
            .any(|begin| value.starts_with(begin))
        })
}

/// Whether a text is the object with which a plugin fails, and nothing else:
/// `{"code": 100, "msg": "..."}`, quoted or not. Other programs answer with such
/// objects, too: without the version of CNI, only codes that it gives count.
fn is_plugins_error(said: &SearchText) -> bool {
    let text = said.as_str().replace("\\n", " ").replace('\n', " ");
    let text = text.trim_matches([' ', '"', '\'', '>', '`']);
    let Some(rest) = text.strip_prefix('{') else {
        return false;
    };
    let value = |key: &str| {
        let (before, value) = rest.split_once(key)?;
        let is_key = before.trim_end().is_empty() || before.trim_end().ends_with(',');
        is_key.then(|| value.trim_start().strip_prefix(':'))?
    };
    let code = value("\"code\"").and_then(|value| {
        let value = value.trim_start();
        let end = value.find(|c: char| !c.is_ascii_digit());
        value.get(..end?)?.parse::<u32>().ok()
    });
    let says = value("\"msg\"").is_some_and(|value| !value.trim_start().starts_with("\"\""));
    let of_cni = value("\"cniversion\"").is_some();
    let fits = code.is_some_and(|code| match code {
        0 => false,
        3..=11 | 100 | 999 => true,
        _ => of_cni,
    });
    let others = ["\"level\"", "\"data\"", "\"time\"", "\"ts\"", "\"success\""];
    fits && says && !others.iter().any(|key| rest.contains(key))
}

/// What a message is, by its words, by who wrote it, and by how bad that found
/// it in its own words.
pub fn of(said: &SearchText, ident: Option<&str>, level: Option<Level>) -> Verdict {
    let said = &said.of_start();
    let warns = level >= Some(Level::Warning);
    let is_wrong = warns || PROBLEMS.are_in(said);
    // Services that fail are no pods.
    let is_of_pods = ident != Some("systemd");
    if !is_wrong || !is_of_pods || IGNORED.are_in(said) {
        return Verdict::Nothing;
    }
    if level == Some(Level::Warning) && INSTEAD.are_in(said) {
        return Verdict::Nothing;
    }
    let is_over = || RUNNING.are_in(said) || ENDING.are_in(said);
    if !MAKING.are_in(said) && is_over() {
        return Verdict::Nothing;
    }
    if PARTS.are_in(said) || (level.is_none() && is_plugins_error(said)) {
        return Verdict::Failure;
    }
    let begins = || BEGINNING.are_in(said);
    let is_known = ident.is_none_or(|ident| writer(ident).is_some());
    if is_known && level != Some(Level::Warning) && NAMES.are_in(said) && begins() {
        return Verdict::Failure;
    }
    let used_up = || ANYWHERE.are_in(said) && OF_A_NODE.are_in(said);
    // The kubelet says so of a container, and names it only beside it.
    let of_container = || {
        said.as_str()
            .starts_with("error: context deadline exceeded")
    };
    let slow = || SLOW.are_in(said) && ((OF_A_POD.are_in(said) && begins()) || of_container());
    match is_known && (used_up() || slow()) {
        true => Verdict::Failure,
        false => Verdict::Nothing,
    }
}
