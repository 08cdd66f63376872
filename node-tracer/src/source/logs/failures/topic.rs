//! Whether a message is about a pod that does not start.
//!
//! It is if it names a part of a pod's start and says that something is wrong
//! with it. Words that occur everywhere (a full disk, a time-out) count only
//! beside those of what makes up a node. What is about a container that has
//! started once, about its end, or about tearing a pod down, is not.

use crate::phrase::{Phrases, Said};

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::source::logs) enum Verdict {
    /// It tells of a pod that does not start.
    Failure,
    /// It may; its words decide.
    Perhaps,
    /// It does not.
    Nothing,
}

/// By the reason of a Kubernetes event.
pub(in crate::source::logs) fn of_reason(reason: &str) -> Verdict {
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
        | "FailedToRetrieveImagePullSecret" => Verdict::Failure,
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

/// Parts of a pod's start that nothing else has.
static PARTS: Phrases = Phrases::new(&[
    "createpodsandbox*",
    "runpodsandbox*",
    "create pod sandbox",
    "create a sandbox",
    "create sandbox",
    "creating pod sandbox",
    "creating sandbox",
    "run pod sandbox",
    "running pod sandbox",
    "start pod sandbox",
    "start sandbox",
    "start sandbox container",
    "starting sandbox",
    "failedcreatepodsandbox",
    "failedcreatepodcontainer",
    "sandbox image",
    "sandbox container",
    "sandbox for pod",
    "pod sandbox with name",
    "sandbox name",
    "reserving pod name",
    "reserving ctr name",
    "reserve container name",
    "reserving sandbox name",
    "name is reserved",
    "is reserved for",
    "already reserved for",
    "container name .. is already in use",
    "container name .. already in use",
    "name .. is already in use by container",
    "set up pod",
    "setup pod",
    "network for sandbox",
    "network for pod",
    "pod network sandbox",
    "network namespace for sandbox",
    "sandbox network",
    "ensure pod container exists",
    "cgroups exist and are correctly applied",
    "failed to setup sandbox",
    "sandbox root directory",
    "sandbox files",
    "sandbox task",
    "failed .. sandbox",
    "error .. sandbox",
    "unable .. sandbox",
    "cannot .. sandbox",
    "sandbox .. failed",
    "volume .. already attached",
    "pod container",
    "networkplugin cni",
    "network plugin is not ready",
    "network plugin not ready",
    "networkpluginnotready",
    "network is not ready",
    "runtime network not ready",
    "cni config uninitialized",
    "cni plugin not initialized",
    "cni config load failed",
    "no networks found in",
    "no valid networks found in",
    "update cni config",
    "load cni config*",
    "load cni during init",
    "adding .. to cni network",
    "adding to cni network",
    "adding to network",
    "adding network",
    "add cmd",
    "failed (add)",
    "cmdadd",
    "plugin type=* .. (add)",
    "failed to allocate for range",
    "no ip addresses available in range set",
    "failed to find plugin",
    "netplugin failed",
    "delegateadd",
    "confadd",
    "multus* .. error",
    "adding .. to network",
    "cni",
    "cni0",
    "weave-cni",
    "ipam",
    "ipamd",
    "logical port",
    "/var/lib/calico/nodename",
    "/run/flannel/subnet.env",
    "mountvolume.*",
    "mapvolume.*",
    "attachvolume.attach",
    "multi-attach error",
    "unable to attach or mount volumes",
    "unable to mount volumes",
    "unmounted volumes",
    "failed to attach volume",
    "failed to attach disk",
    "error attaching",
    "attachvolume*",
    "attachdisk",
    "failedmount",
    "failedattachvolume",
    "failedmapvolume",
    "not attached according to node status",
    "mount failed",
    "subpath for volumemount",
    "volume-subpaths",
    "list of registered csi drivers",
    "to mount into container",
    "failed to pull image",
    "failed to pull and unpack image",
    "failed pulling image",
    "unable to pull",
    "pullimage",
    "errimagepull",
    "errimageneverpull",
    "imagepullbackoff",
    "back-off pulling image",
    "invalidimagename",
    "imageinspecterror",
    "failed to apply default image tag",
    "pull policy of never",
    "manifest unknown",
    "failed to allocate address .. no available address*",
    "image pull secrets",
    "createcontainerconfigerror",
    "createcontainererror",
    "runcontainererror",
    "configmap* .. not found",
    "secret* .. not found",
    "references non-existent",
    "couldn't find key",
    "oci runtime create failed",
    "oci runtime start failed",
    "oci runtime error",
    "runc create failed",
    "crun create failed",
    "failed to create containerd task",
    "failed to create containerd container",
    "failed to create shim",
    "failed to create shim task",
    "failed to start shim",
    "container create failed",
    "container start failed",
    "failed to create container",
    "failed to start container",
    "failed to run container",
    "failed to generate container",
    "failed to generate sandbox",
    "createcontainer in sandbox",
    "createcontainer within sandbox",
    "startcontainer",
    "startcontainer for",
    "handler for post .. /start returned error",
    "handler for post .. containers/create* returned error",
    "starting container process caused",
    "unable to start container process",
    "exec setns",
    "setns process",
    "final child*",
    "init-p",
    "container init was oom-killed",
    "memory limit too low",
    "cannot start a container that has stopped",
    "ttrpc: client shutting down",
    "k8s_pod_*",
]);

/// What can be used up, or not answer, anywhere.
static ANYWHERE: Phrases = Phrases::new(&[
    "no space left*",
    "disk quota exceeded",
    "too many open files",
    "free data blocks which is less than",
    "allocate memory",
    "page allocation failure",
    "system oom encountered",
    "address already in use",
    "address .. already in use",
    "ip .. already in use",
    "already allocated",
    "already assigned",
    "no available ip*",
    "no available address*",
    "no free ip*",
    "no free address*",
    "no more ip*",
    "noavailable*",
    "ipnotenough",
    "ip* .. exhausted",
    "address* .. exhausted",
    "ttrpc: closed",
    "transport is closing",
    "cannot connect to the docker daemon",
    "containerd.sock .. connection refused",
    "containerd.sock .. no such file",
    "dockershim.sock .. connection refused",
    "dockershim.sock .. no such file",
    "docker.sock .. connection refused",
    "docker.sock .. no such file",
    "crio.sock .. connection refused",
    "crio.sock .. no such file",
    "cri-dockerd.sock .. connection refused",
    "cri-dockerd.sock .. no such file",
    "container runtime is down",
    "stale nfs file handle",
    "inotify* .. limit*",
    "inotify* .. no space",
]);

/// That the time ran out, in words of everybody.
static SLOW: Phrases = Phrases::new(&["deadline exceeded", "operation timeout"]);

/// What that must be about.
static OF_A_POD: Phrases = Phrases::new(&["pod", "sandbox", "create container"]);

/// What makes up a node and its pods.
static OF_A_NODE: Phrases = Phrases::new(&[
    "pod",
    "pods",
    "*kubepods*",
    "kubelet",
    "sandbox",
    "container",
    "containers",
    "containerd*",
    "dockerd",
    "docker",
    "dockershim*",
    "crio*",
    "cri-o",
    "runc",
    "runc:[*",
    "crun",
    "conmon",
    "pause",
    "cni",
    "ipam",
    "eni",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/etc/cni",
    "/run/containerd",
    "/run/netns",
    "volume",
]);

/// Words that say that something is wrong.
static PROBLEMS: Phrases = Phrases::new(&[
    "fail*",
    "*failed*",
    "error*",
    "*error",
    "err*",
    "unable",
    "cannot",
    "can't",
    "can not",
    "couldn't",
    "could not",
    "not found",
    "no such",
    "no space*",
    "no ip*",
    "no available",
    "no networks",
    "refused",
    "denied",
    "unauthorized",
    "forbidden",
    "timed out",
    "timeout",
    "exceeded",
    "invalid*",
    "in use",
    "reserved",
    "conflict*",
    "not ready",
    "not initialized",
    "uninitialized",
    "missing",
    "exhausted",
    "oom*",
    "killed",
    "reset by peer",
    "broken pipe",
    "shutting down",
    "closing",
    "closed",
    "not enough",
    "unavailable",
    "already exists",
    "caused",
    "eof",
    "back-off",
    "imagepullbackoff",
    "non-existent",
    "multi-attach",
    "does not",
    "doesn't",
    "not present",
    "not attached",
    "not registered",
    "manifest unknown",
]);

/// Containers that had started, and images that were there: nothing of these
/// keeps a pod in ContainerCreating.
static RUNNING: Phrases = Phrases::new(&[
    "back-off restarting failed container",
    "restarting failed container",
    "crashloopbackoff",
    "liveness probe",
    "readiness probe",
    "startup probe",
    "probe failed",
    "probe errored",
    "poststarthook*",
    "prestophook*",
    "successfully pulled",
    "already present on machine",
    "succeeded for volume",
    "mountvolume.mountdevice succeeded",
    "mountvolume started",
    "mountvolume.setup succeeded",
    "attachvolume.attach succeeded",
    "verifycontrollerattachedvolume started",
    "started container",
    "created container",
    "failedscheduling",
    "nodes are available",
    "garbage collect*",
    "failed to garbage collect*",
    "eviction manager",
    "image_gc_manager",
    "memory cgroup out of memory",
    "oom-kill:constraint*",
    "invoked oom-killer",
    "execsync",
    "exec in container",
    "failed to exec",
    "error executing in",
    "exec sync",
    "execute command",
    "containerstats",
    "container stats",
    "cadvisor",
    "summary api",
    "failed to get status",
    "status hook",
    "failed to read pod ip",
    "pod status",
    "containerstatus",
    "podsandboxstatus",
    "podsandbox status",
    "listpodsandbox",
    "list pod sandboxes",
    "listcontainers",
    "list containers",
    "reflector",
    "failed to list *v1",
    "failed to watch",
    "update node status",
    "updating node status",
    "register node",
    "registering node",
    "updating lease",
    "ensure lease",
    "ensure node lease",
    "node lease",
]);

/// Taking a pod down.
static ENDING: Phrases = Phrases::new(&[
    "stoppodsandbox*",
    "stop pod sandbox",
    "stop sandbox",
    "killpodsandbox*",
    "killpodsandboxerror",
    "kill pod",
    "killing pod",
    "killcontainer*",
    "removepodsandbox*",
    "removecontainer",
    "remove container",
    "stopcontainer",
    "stop container",
    "teardown",
    "tear down",
    "tearing down",
    "failed (delete)",
    "(delete)",
    "destroy network for sandbox",
    "removing pod",
    "deleting network",
    "delete network",
    "deleting pod",
    "unmountvolume*",
    "unmountdevice*",
    "detachvolume*",
    "detach volume",
    "orphaned pod",
    "cleanup",
    "clean up",
    "cleaning up",
    "handler for delete",
    "for the terminated container",
    "does not match workloadendpoint",
    "workloadendpoint does not exist in the datastore",
]);

/// Parts of a start that count although the end is spoken of, too: what could
/// not be made is cleaned up, and that can fail in turn.
static MAKING: Phrases = Phrases::new(&[
    "createpodsandbox*",
    "runpodsandbox*",
    "create pod sandbox",
    "create a sandbox",
    "create sandbox",
    "failed to set up sandbox container",
    "failed to set up pod",
    "failed (add)",
    "errimagepull",
    "imagepullbackoff",
    "createcontainerconfigerror",
    "createcontainererror",
    "failed to create containerd task",
    "oci runtime create failed",
    "failed to start sandbox",
    "start sandbox container",
]);

/// Who writes such messages, as envelopes name them.
pub(super) fn writer(ident: &str) -> Option<&'static str> {
    const WRITERS: [(&str, &str); 18] = [
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
    ];
    let ident = ident.to_ascii_lowercase();
    let known = WRITERS.iter().find(|(name, _)| ident.contains(name));
    known.map(|(_, source)| *source)
}

/// A quick look: most messages of a healthy node hold none of these.
pub(super) fn may_be_a_problem(text: &str) -> bool {
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

/// What a message is, by its words, by who wrote it, and by whether that found
/// it worth a warning.
pub(super) fn of(said: &Said, ident: Option<&str>, warns: bool) -> Verdict {
    let is_wrong = warns || PROBLEMS.are_in(said);
    if !is_wrong {
        return Verdict::Nothing;
    }
    let is_over = || RUNNING.are_in(said) || ENDING.are_in(said);
    if !MAKING.are_in(said) && is_over() {
        return Verdict::Nothing;
    }
    if PARTS.are_in(said) {
        return Verdict::Failure;
    }
    let is_known = ident.is_none_or(|ident| writer(ident).is_some());
    let used_up = || ANYWHERE.are_in(said) && OF_A_NODE.are_in(said);
    // The kubelet says so of a container, and names it only beside it.
    let of_container = || {
        said.as_str()
            .starts_with("error: context deadline exceeded")
    };
    let slow = || SLOW.are_in(said) && (OF_A_POD.are_in(said) || of_container());
    match is_known && (used_up() || slow()) {
        true => Verdict::Failure,
        false => Verdict::Nothing,
    }
}
