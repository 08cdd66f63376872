//! What a cause means in a clause, and what to do about it in steps; finer
//! where a message says more exactly what is wrong.

use crate::{
    Cause::{
        self, CniNotReady, CniPluginError, CniTimeout, NameConflict, NodeMemory,
        RuntimeUnavailable, Unknown,
    },
    PluginFailure,
    phrase::SearchText,
};

/// What a message says more exactly than its cause.
#[derive(Debug)]
pub struct Remedy {
    /// What is wrong, after `POD does not start: `.
    pub clause: &'static str,
    /// What to do about it, in steps.
    pub advice: &'static [&'static str],
}

/// What is said more exactly.
#[derive(Debug)]
struct Row {
    /// Within these causes.
    causes: &'static [Cause],
    /// One of these phrases is in the message,
    any: &'static [&'static str],
    /// or no row's phrases are, and it has one of these CNI error codes.
    codes: &'static [u64],
    remedy: Remedy,
}

/// The first that fits counts.
const ROWS: &[Row] = &[
    Row {
        causes: &[RuntimeUnavailable],
        any: &[
            "cgroupspath to be of format",
            "cgroup-parent for systemd cgroup",
            "cgroup driver",
            "cgroup manager",
            "systemd support for managing cgroups is not available",
        ],
        codes: &[],
        remedy: Remedy {
            clause: "the kubelet and the runtime use different cgroup drivers",
            advice: &[
                "give both the same cgroup driver (systemd where systemd runs), then restart the runtime and the kubelet",
                "grep -i cgroup /var/lib/kubelet/config.yaml /etc/containerd/config.toml    # what each is set to",
            ],
        },
    },
    Row {
        causes: &[RuntimeUnavailable],
        any: &[
            "message recipient disconnected from message bus",
            "dbus .. connection closed",
            "sd-bus call",
            "unable to start unit",
            "start transient unit",
            "unit kubepods* .. not found",
        ],
        codes: &[],
        remedy: Remedy {
            clause: "systemd does not make the cgroup that it needs",
            advice: &[
                "see whether systemd and its bus answer on this node",
                "systemctl status    # must say State: running",
                "journalctl -u dbus -u systemd-logind    # errors of the bus",
                "systemctl daemon-reexec    # where the connection was lost",
            ],
        },
    },
    Row {
        causes: &[RuntimeUnavailable],
        any: &["*cgroup*", "mountpoint for", "no subsystem for mount"],
        codes: &[],
        remedy: Remedy {
            clause: "the runtime cannot make or mount a cgroup for it",
            advice: &[
                "see which cgroup file systems the node has, and whether this version of the runtime knows them: cgroup v2 needs runc 1.0 and containerd 1.4; the kernel's command line turns a controller on",
                "grep cgroup /proc/mounts    # which are mounted",
                "cat /proc/cgroups    # which controllers are on",
            ],
        },
    },
    Row {
        causes: &[RuntimeUnavailable],
        any: &[
            "overlay*",
            "tmpmounts*",
            "containerd-mount*",
            "failed to mount .. no such device",
        ],
        codes: &[],
        remedy: Remedy {
            clause: "the kernel has no overlay file system for it",
            advice: &[
                "load the overlay module; if it is not found, the modules of the running kernel are not installed, as after an update without a reboot",
                "mount -t overlay    # overlay mounts that work",
            ],
        },
    },
    Row {
        causes: &[RuntimeUnavailable],
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
        codes: &[],
        remedy: Remedy {
            clause: "the low-level runtime (runc, crun, runsc, kata) does not start",
            advice: &[
                "run it by hand on this node: it is missing, does not fit its libraries, or the kernel lacks what it needs; its own log says which (log.json in the bundle, runsc's --debug-log)",
            ],
        },
    },
    Row {
        causes: &[NodeMemory],
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
        codes: &[],
        remedy: Remedy {
            clause: "the node, or a cgroup, has no process or thread left for it",
            advice: &[
                "find what has the most threads; raise TasksMax= of the runtime's service if that is the limit",
                "ps -eLf    # all threads",
                "sysctl kernel.threads-max kernel.pid_max    # limits of the node",
                "grep . /sys/fs/cgroup/system.slice/*/pids.max    # the limits of services",
            ],
        },
    },
    Row {
        causes: &[CniNotReady],
        any: &["*subnet.env*"],
        codes: &[],
        remedy: Remedy {
            clause: "flannel has not written the node's subnet yet",
            advice: &[
                "after a reboot, wait for flanneld: it writes /run/flannel/subnet.env when it has reached the API server; if the file stays missing, see its pod's log and whether the node has a podCIDR",
                "kubectl get pods -A -l app=flannel -o wide    # its pods",
            ],
        },
    },
    Row {
        causes: &[CniNotReady],
        any: &[
            "dial unix*",
            "*.sock",
            "*.socket",
            "dial tcp 127.0.0.1*",
            "dial tcp [::1]*",
            "localhost:*",
            "127.0.0.1:*",
            "/var/lib/calico/nodename*",
            "cilium daemon",
            "cilium agent",
            "readinessindicatorfile",
        ],
        codes: &[],
        remedy: Remedy {
            clause: "the network's daemon on the node does not answer",
            advice: &[
                "see whether the network's daemon runs on this node, and why not; the kubelet tries again by itself once it does",
                "kubectl get pods -A -o wide    # its pod",
                "crictl ps -a    # its containers, where the API does not answer",
            ],
        },
    },
    Row {
        causes: &[CniPluginError],
        any: &["set bridge addr", "could not add ip address to"],
        codes: &[],
        remedy: Remedy {
            clause: "its bridge cannot be given the node's own address",
            advice: &[
                "compare the bridge's addresses with the node's pod network: one is of an earlier network or on another device; a bridge that no pod uses can be deleted and is made again",
                "ip addr show type bridge    # what bridges have",
            ],
        },
    },
    Row {
        causes: &[CniPluginError, Unknown],
        any: &[
            "listen .. bind: address already in use",
            "cannot open hostport",
            "hostport .. already in use",
            "port is already allocated",
        ],
        codes: &[],
        remedy: Remedy {
            clause: "its hostPort is taken on the node",
            advice: &[
                "find who listens on the host's port, and end that or give the pod another hostPort",
                "ss -ltnup    # who listens",
            ],
        },
    },
    // containerd/containerd#13609: a sandbox that failed late leaves its record.
    Row {
        causes: &[NameConflict],
        any: &["failed to recover state", "recover .. reserve sandbox name"],
        codes: &[],
        remedy: Remedy {
            clause: "containerd does not start, as two of its records have this name",
            advice: &[
                "no pod of this node starts until one of them is gone: start containerd once without its CRI plugin (disabled_plugins in its configuration), remove the record that has no task, and start it as before",
                "ctr -n k8s.io containers ls    # all records",
                "ctr -n k8s.io tasks ls    # what still runs",
            ],
        },
    },
    Row {
        causes: &[CniPluginError, NameConflict],
        any: &[
            "container veth name .. already exists",
            "failed to make veth pair .. exists",
            "already exists but is not a bridge",
            "already has an ip address different from",
        ],
        codes: &[],
        remedy: Remedy {
            clause: "a device of that name is there already",
            advice: &[
                "find what has that name; what an older plugin or configuration has left can be deleted once nothing uses it",
                "ip -d link show    # devices on the node. With nsenter in the pods netns",
            ],
        },
    },
    Row {
        causes: &[CniNotReady, CniPluginError],
        any: &[
            "failed to find plugin",
            "executable file not found",
            "*/cni/bin/* .. no such file or directory",
        ],
        codes: &[],
        remedy: Remedy {
            clause: "the binary of a CNI plugin is missing",
            advice: &[
                "install the binary that the message names in the directory that it names (usually /opt/cni/bin), in the version of the others",
                "ls -l /opt/cni/bin    # what is installed",
            ],
        },
    },
    Row {
        causes: &[CniPluginError],
        any: &[
            "failed to statfs",
            "failed to open netns",
            "unknown fs magic",
            "cannot find network namespace",
        ],
        codes: &[3],
        remedy: Remedy {
            clause: "its netns is not there",
            advice: &[
                "see why the sandbox ended so early: a memory limit that is too small for the pause container does it",
                "dmesg -T | grep -i -e oom -e killed    # what the kernel killed",
            ],
        },
    },
    Row {
        causes: &[CniPluginError],
        any: &["unauthorized", "forbidden", "x509:*"],
        codes: &[],
        remedy: Remedy {
            clause: "the API server refuses the network's credentials",
            advice: &[
                "renew the credentials that the plugin uses: restarting its daemon's pod on this node writes a new kubeconfig in most cases; check the node's clock",
            ],
        },
    },
    Row {
        causes: &[CniPluginError, CniTimeout],
        any: &[
            "dial tcp",
            "connection refused",
            "no route to host",
            "network is unreachable",
            "no such host",
            "tls handshake timeout",
            "https://* .. deadline exceeded",
            "client.timeout exceeded",
            "etcd cluster is unavailable",
        ],
        codes: &[],
        remedy: Remedy {
            clause: "the server that its CNI plugin needs does not answer",
            advice: &[
                "see from this node whether the address in the message answers, and whether kube-proxy or what replaces it runs here",
            ],
        },
    },
    Row {
        causes: &[CniPluginError],
        any: &["signal: killed"],
        codes: &[],
        remedy: Remedy {
            clause: "its CNI plugin is killed",
            advice: &[
                "find out who killed the plugin: the kernel when memory is short, or the runtime when the call takes too long",
                "dmesg -T | grep -i oom    # what the kernel killed",
                "node-tracer scan    # stuck tasks",
            ],
        },
    },
    Row {
        causes: &[CniPluginError],
        any: &[],
        codes: &[11],
        remedy: Remedy {
            clause: "its CNI plugin is not ready and asks to be called again later",
            advice: &["wait; if it does not end by itself, read its daemon's log on this node"],
        },
    },
    Row {
        causes: &[CniPluginError],
        any: &[],
        codes: &[1, 2, 4, 6, 7],
        remedy: Remedy {
            clause: "its CNI plugin refuses what it is given",
            advice: &[
                "see what the plugin refuses in the CNI configuration: a version that it does not know, or a field",
                "grep . /etc/cni/net.d/*    # the configuration, which can hold tokens",
            ],
        },
    },
];

/// All that messages say more exactly.
#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = &'static Remedy> {
    ROWS.iter().map(|row| &row.remedy)
}

impl Cause {
    /// What a message says besides.
    pub fn remedy(self, message: &str) -> Option<&'static Remedy> {
        let mut own = self.rows().peekable();
        own.peek()?;
        let said = SearchText::new(message);
        let found = own.find(|row| said.has_one(row.any));
        found.map(|row| &row.remedy)
    }

    /// What a plugin says besides, in words or else by its error's code.
    pub fn remedy_of_plugin(self, failure: PluginFailure<'_>) -> Option<&'static Remedy> {
        self.remedy(&failure.text()).or_else(|| {
            let code = failure.code()?;
            let found = self.rows().find(|row| row.codes.contains(&code));
            found.map(|row| &row.remedy)
        })
    }

    /// What to do about a CNI call that fails; nothing if only its message says.
    pub fn advice_on_call(self, remedy: Option<&Remedy>) -> &'static [&'static str] {
        match (remedy, self) {
            (Some(remedy), _) => remedy.advice,
            (
                None,
                Self::AddressInUse | Self::RangeExhausted | Self::CniPluginError | Self::Unknown,
            ) => &[],
            (None, cause) => cause.advice(),
        }
    }

    fn rows(self) -> impl Iterator<Item = &'static Row> {
        ROWS.iter().filter(move |row| row.causes.contains(&self))
    }

    /// After `POD does not start: `.
    pub fn clause(self) -> &'static str {
        match self {
            Self::AddressInUse => "its IP is already in use",
            Self::RangeExhausted => "the node has no IP left for it",
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
            Self::Unknown => "for an unknown reason",
        }
    }

    /// What to do about it, in steps: sentences, and commands each of which stands
    /// alone.
    pub fn advice(self) -> &'static [&'static str] {
        match self {
            Self::AddressInUse => &[
                "find what has the IP: a ghost's netns, a leaked reservation, or another host; then end that",
                "node-tracer explain ADDRESS    # fill in ADDRESS",
            ],
            Self::RangeExhausted => &[
                "free only what is leaked, or enlarge the range: see range-exhausted and leaked-reservation",
                "node-tracer scan    # what has the IPs",
            ],
            Self::CniNotReady => &[
                "see whether the network's daemon runs on this node, and whether it has written its configuration to /etc/cni/net.d and its plugins to /opt/cni/bin",
                "kubectl get pods -n kube-system -o wide    # its pod",
            ],
            Self::CniTimeout => &[
                "find out what the plugin waits for: the API server, its own daemon, a lock",
                "node-tracer scan    # stuck tasks",
                "node-tracer trace    # each call with its duration",
            ],
            Self::CniPluginError => &[
                "mend what the plugin complains of: whether its daemon runs on this node, whether the API server answers from here, and whether its credentials are still good (restarting the daemon's pod renews them in most cases)",
            ],
            Self::NoSpace => &[
                "make room in /, /run, /var/lib/kubelet and the runtime's directory; where no file system is full, see the inotify and user limits",
                "crictl rmi --prune    # removes images that no container uses",
                "sysctl -a --pattern '^(fs.inotify|user.max)'    # limits",
            ],
            Self::NodeMemory => &[
                "see what has the memory, and whether it is in pieces (no pages of order 4 and above)",
                "grep Mem /proc/meminfo    # what is left",
                "cat /proc/buddyinfo    # free pages by order",
                "echo 1 > /proc/sys/vm/compact_memory    # helps for a while, a reboot longer",
            ],
            Self::SandboxOom => &[
                "raise the memory limit, and check its unit: 100m is a tenth of a byte, 100Mi is meant; a container needs some 10 Mi to start",
                "dmesg -T | grep -i oom    # what the kernel killed",
            ],
            Self::NameConflict => &[
                "see what has the name, and whether its request is still under way; find out what kept that one from being finished",
                "crictl pods    # sandboxes",
                "crictl ps -a    # containers",
                "crictl rmp ID    # fill in ID, only of a sandbox that is dead",
            ],
            Self::ImagePull => &[
                "pull the image by hand on this node to see why it fails: its name and tag, the registry as this node reaches it, the pull secret; for a pause image see the runtime's sandbox_image",
                "crictl pull IMAGE    # fill in IMAGE",
            ],
            Self::VolumeAttach => &[
                "see where the disk is still attached, and whether the pod that had it, or its node, is really gone; the disk follows by itself some 6 minutes after that",
                "kubectl get volumeattachments    # where disks are attached",
            ],
            Self::VolumeMount => &[
                "see what the mount waits for or lacks: the storage's pod on this node, the server behind it, mount helpers (nfs-common), the path",
                "node-tracer scan    # mounts that are stuck",
            ],
            Self::ConfigMissing => &[
                "create what the message names, in the pod's own namespace, or correct the name or the key in the pod's specification",
            ],
            Self::RuntimeUnavailable => &[
                "see whether the runtime runs and answers, whether a second one is installed, and whether its parts are of the same version; then restart it",
                "systemctl status containerd docker crio    # which runs",
                "crictl info    # whether it answers",
            ],
            Self::RuntimeTimeout => &[
                "see what the runtime is busy with; more pods at once make it worse",
                "node-tracer scan    # stuck tasks",
                "iostat -x 1 3    # the disk",
            ],
            Self::Unknown => &[
                "read the message, and what the runtime logged before it",
                "journalctl -u containerd -u crio -u docker    # the log of the runtime",
            ],
        }
    }
}
