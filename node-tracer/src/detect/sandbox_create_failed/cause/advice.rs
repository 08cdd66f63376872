//! What a cause means in a clause, and what to do about it in a line.

use super::Cause;

impl Cause {
    /// After `POD does not start: `.
    pub(in crate::detect::sandbox_create_failed) fn clause(self) -> &'static str {
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

    /// What to do.
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
