//! What a cause means in a clause, and what to do about it in a line.

use super::Cause;
use event::phrase::Said;

/// What a message says more exactly than its cause does.
#[derive(Debug)]
pub(in crate::detect::sandbox_create_failed) struct Hint {
    cause: Cause,
    any: &'static [&'static str],
    /// Instead of the cause's own.
    pub(in crate::detect::sandbox_create_failed) clause: &'static str,
    pub(in crate::detect::sandbox_create_failed) advice: &'static str,
}

/// In this order.
const HINTS: &[Hint] = &[
    Hint {
        cause: Cause::RuntimeUnavailable,
        any: &[
            "cgroupspath to be of format",
            "cgroup-parent for systemd cgroup",
            "cgroup driver",
            "cgroup manager",
            "systemd support for managing cgroups is not available",
        ],
        clause: "the kubelet and the runtime use different cgroup drivers",
        advice: "give both the same cgroup driver (systemd where systemd runs): cgroupDriver in \
                 /var/lib/kubelet/config.yaml; SystemdCgroup in /etc/containerd/config.toml, \
                 cgroup_manager of CRI-O, native.cgroupdriver in /etc/docker/daemon.json; then \
                 restart the runtime and the kubelet",
    },
    Hint {
        cause: Cause::RuntimeUnavailable,
        any: &[
            "message recipient disconnected from message bus",
            "dbus .. connection closed",
            "sd-bus call",
            "unable to start unit",
            "start transient unit",
            "unit kubepods* .. not found",
        ],
        clause: "systemd does not make the cgroup that it needs",
        advice: "see whether systemd and its bus answer on this node (systemctl status; \
                 journalctl -u dbus -u systemd-logind); systemctl daemon-reexec helps where the \
                 connection was lost",
    },
    Hint {
        cause: Cause::RuntimeUnavailable,
        any: &["*cgroup*", "mountpoint for", "no subsystem for mount"],
        clause: "the runtime cannot make or mount a cgroup for it",
        advice: "see which cgroup file systems the node has (mount -t cgroup,cgroup2; cat \
                 /proc/cgroups) and whether this version of the runtime knows them: cgroup v2 \
                 needs runc 1.0 and containerd 1.4 at least, a controller that is off is turned \
                 on at the kernel's command line",
    },
    Hint {
        cause: Cause::RuntimeUnavailable,
        any: &[
            "overlay*",
            "tmpmounts*",
            "containerd-mount*",
            "failed to mount .. no such device",
        ],
        clause: "the kernel has no overlay file system for it",
        advice: "load the module that is missing: modprobe overlay; if it is not found, the \
                 modules of the running kernel are not installed (ls /lib/modules/$(uname -r)), \
                 as after an update without a reboot",
    },
    Hint {
        cause: Cause::RuntimeUnavailable,
        any: &[
            "did not terminate*",
            "unable to retrieve oci runtime error",
            "symbol lookup error",
            "undefined symbol",
            "cannot create sandbox*",
            "cannot read client sync file",
            "waiting for sandbox to start",
            "starting root container",
            "urpc method",
            "gofer*",
            "access kvm",
            "failed to launch qemu",
            "/dev/kvm*",
            "dial vsock*",
        ],
        clause: "the low-level runtime (runc, crun, runsc, kata) does not start",
        advice: "run it by hand on this node (runc --version; runsc --version): it is missing, \
                 does not fit its libraries, or the kernel lacks what it needs; its own log says \
                 which (log.json in the bundle, runsc's --debug-log)",
    },
    Hint {
        cause: Cause::NodeMemory,
        any: &[
            "resource temporarily unavailable",
            "new os thread",
            "max user processes",
            "newosproc",
            "errno=11",
            "pthread_create*",
            "fork rejected by pids controller",
            "pids limit",
            "pid limit",
            "process limit",
            "too many processes",
            "no more processes",
            "maximum number of processes",
        ],
        clause: "the node, or a cgroup, has no process or thread left for it",
        advice: "compare what runs with the limits: ps -eLf | wc -l; cat \
                 /proc/sys/kernel/threads-max /proc/sys/kernel/pid_max; grep . \
                 /sys/fs/cgroup/system.slice/*/pids.max; find what has the most threads, and raise \
                 TasksMax= of the runtime's service if that is the limit",
    },
    Hint {
        cause: Cause::CniNotReady,
        any: &["*subnet.env*"],
        clause: "flannel has not written the node's subnet yet",
        advice: "after a reboot, wait for flanneld: it writes /run/flannel/subnet.env when it has \
                 reached the API server; if it stays missing, see its pod's log (kubectl logs -n \
                 kube-flannel) and whether the node has a podCIDR",
    },
    Hint {
        cause: Cause::CniNotReady,
        any: &[
            "dial unix*",
            "*.sock",
            "*.socket",
            "dial tcp 127.0.0.1*",
            "dial tcp [::1]*",
            "localhost:*",
            "127.0.0.1:*",
        ],
        clause: "the network's daemon on the node does not answer",
        advice: "see whether the network's daemon runs on this node, and why not: kubectl get pods \
                 -A -o wide and the log of its pod; crictl ps -a where the API does not answer; \
                 the kubelet tries again by itself once it does",
    },
    Hint {
        cause: Cause::CniPluginError,
        any: &["set bridge addr", "could not add ip address to"],
        clause: "its bridge cannot be given the node's own address",
        advice: "compare the bridge's addresses (ip addr show cni0) with the node's pod network: \
                 one is of an earlier network or on another device; a bridge that no pod uses can \
                 be deleted and is made again (ip link delete cni0)",
    },
];

impl Cause {
    /// What a message says besides.
    pub(in crate::detect::sandbox_create_failed) fn hint(
        self,
        message: &str,
    ) -> Option<&'static Hint> {
        let mut own = HINTS.iter().filter(|hint| hint.cause == self).peekable();
        own.peek()?;
        let said = Said::new(message);
        own.find(|hint| said.has_one(hint.any))
    }

    /// After `POD does not start: `.
    pub(in crate::detect) fn clause(self) -> &'static str {
        match self {
            Self::AddressInUse => "the address that it should get is in use",
            Self::RangeExhausted => "the node has no address left for it",
            Self::CniNotReady => "the node's pod network is not ready",
            Self::CniTimeout => "its CNI plugin does not end in time",
            Self::CniPluginError => "its CNI plugin fails",
            Self::NoSpace => "the node has no space left",
            Self::NodeMemory => "the node has no memory for it",
            Self::SandboxOom => "its memory limit is too small to start it",
            Self::NameConflict => "an older sandbox or container still has its name",
            Self::ImagePull => "an image cannot be pulled",
            Self::VolumeAttach => "a volume cannot be attached to the node",
            Self::VolumeMount => "a volume cannot be mounted",
            Self::ConfigMissing => "a ConfigMap, a Secret, or a key of one is missing",
            Self::RuntimeUnavailable => "the container runtime does not work",
            Self::RuntimeTimeout => "the container runtime does not answer in time",
            Self::Unknown => "for a reason that is not known here",
        }
    }

    pub(in crate::detect::sandbox_create_failed) fn advice(self) -> &'static str {
        match self {
            Self::AddressInUse => {
                "find what has the address (node-tracer explain ADDRESS on this node): a ghost's \
                 namespace, a leaked reservation, or another host; then end that"
            }
            Self::RangeExhausted => {
                "see what has the addresses: node-tracer scan (findings range-exhausted and \
                 leaked-reservation); give back only what is leaked, or enlarge the range"
            }
            Self::CniNotReady => {
                "see whether the network's daemon runs on this node (its pod in kube-system: \
                 kubectl get pods -A -o wide), and whether it has written its configuration to \
                 /etc/cni/net.d and its plugins to /opt/cni/bin"
            }
            Self::CniTimeout => {
                "find out what the plugin waits for: the API server, its own daemon, a lock; \
                 node-tracer trace shows each call with its duration, node-tracer scan what is \
                 stuck"
            }
            Self::CniPluginError => {
                "mend what the plugin complains of: whether its daemon runs on this node, whether \
                 the API server answers from here, and whether its credentials are still good \
                 (restarting the daemon's pod renews them in most cases)"
            }
            Self::NoSpace => {
                "make room: df -h and df -i of /, /run, /var/lib/kubelet and the runtime's folder; \
                 crictl rmi --prune; where no file system is full, look at fs.inotify.* and \
                 user.max_* (sysctl -a)"
            }
            Self::NodeMemory => {
                "see what has the memory (free -m) and whether it is in pieces \
                 (/proc/buddyinfo: no pages of order 4 and above); echo 1 > \
                 /proc/sys/vm/compact_memory and dropping caches help for a while, a reboot longer"
            }
            Self::SandboxOom => {
                "raise the memory limit, and check its unit: 100m are a tenth of a byte, 100Mi is \
                 meant; a container needs some 10 Mi to be started at all (dmesg | grep -i oom)"
            }
            Self::NameConflict => {
                "see what has the name (crictl pods, docker ps -a) and whether its request is still \
                 under way; what is dead can be removed: crictl rmp ID or docker rm ID; the cause \
                 is what kept that one from being finished"
            }
            Self::ImagePull => {
                "pull it by hand on this node (crictl pull IMAGE) to see why not: its name and tag, \
                 the registry as this node reaches it, the pull secret; of a pause image see the \
                 runtime's sandbox_image"
            }
            Self::VolumeAttach => {
                "see where the disk is still attached (kubectl get volumeattachments) and whether \
                 the pod that had it, or its node, is really gone; it follows by itself some 6 \
                 minutes after that"
            }
            Self::VolumeMount => {
                "see what the mount waits for or lacks: the storage's pod on this node, the server \
                 behind it, mount helpers (nfs-common), the path; node-tracer scan shows mounts \
                 that are stuck"
            }
            Self::ConfigMissing => {
                "create what the message names, in the pod's own namespace, or mend the name or the \
                 key in the pod's specification"
            }
            Self::RuntimeUnavailable => {
                "see whether the runtime runs and answers (systemctl status containerd docker crio; \
                 crictl info), whether a second one is installed, and whether its parts are of the \
                 same version; then restart it"
            }
            Self::RuntimeTimeout => {
                "see what the runtime is busy with: stuck tasks (node-tracer scan), the disk \
                 (iostat -x 1), its log; more pods at once make it worse"
            }
            Self::Unknown => {
                "read the message; what the runtime did before it stands in its log (journalctl -u \
                 containerd -u crio -u docker)"
            }
        }
    }
}
