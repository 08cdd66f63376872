//! What a cause means in a clause, and what to do about it in a line; finer
//! where a message says more exactly what is wrong.

use crate::{
    Cause::{
        self, CniNotReady, CniPluginError, CniTimeout, NameConflict, NodeMemory,
        RuntimeUnavailable, Unknown,
    },
    PluginFailure,
    phrase::Said,
};

/// What a message says more exactly than its cause.
#[derive(Debug)]
pub struct Remedy {
    /// What is wrong, after `POD does not start: `.
    pub clause: &'static str,
    /// What to do about it.
    pub advice: &'static str,
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
            advice: "give both the same cgroup driver (systemd where systemd runs): cgroupDriver in \
                 /var/lib/kubelet/config.yaml; SystemdCgroup in /etc/containerd/config.toml, \
                 cgroup_manager of CRI-O, native.cgroupdriver in /etc/docker/daemon.json; then \
                 restart the runtime and the kubelet",
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
            advice: "see whether systemd and its bus answer on this node (systemctl status; \
                 journalctl -u dbus -u systemd-logind); systemctl daemon-reexec helps where the \
                 connection was lost",
        },
    },
    Row {
        causes: &[RuntimeUnavailable],
        any: &["*cgroup*", "mountpoint for", "no subsystem for mount"],
        codes: &[],
        remedy: Remedy {
            clause: "the runtime cannot make or mount a cgroup for it",
            advice: "see which cgroup file systems the node has (mount -t cgroup,cgroup2; cat \
                 /proc/cgroups) and whether this version of the runtime knows them: cgroup v2 \
                 needs runc 1.0 and containerd 1.4 at least, a controller that is off is turned \
                 on at the kernel's command line",
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
            advice: "load the module that is missing: modprobe overlay; if it is not found, the \
                 modules of the running kernel are not installed (ls /lib/modules/$(uname -r)), \
                 as after an update without a reboot",
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
            advice: "run it by hand on this node (runc --version; runsc --version): it is missing, \
                 does not fit its libraries, or the kernel lacks what it needs; its own log says \
                 which (log.json in the bundle, runsc's --debug-log)",
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
            advice: "compare what runs with the limits: ps -eLf | wc -l; cat \
                 /proc/sys/kernel/threads-max /proc/sys/kernel/pid_max; grep . \
                 /sys/fs/cgroup/system.slice/*/pids.max; find what has the most threads, and raise \
                 TasksMax= of the runtime's service if that is the limit",
        },
    },
    Row {
        causes: &[CniNotReady],
        any: &["*subnet.env*"],
        codes: &[],
        remedy: Remedy {
            clause: "flannel has not written the node's subnet yet",
            advice: "after a reboot, wait for flanneld: it writes /run/flannel/subnet.env when it has \
                 reached the API server; if it stays missing, see its pod's log (kubectl logs -n \
                 kube-flannel) and whether the node has a podCIDR",
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
            advice: "see whether the network's daemon runs on this node, and why not: kubectl get pods \
                 -A -o wide and the log of its pod; crictl ps -a where the API does not answer; \
                 the kubelet tries again by itself once it does",
        },
    },
    Row {
        causes: &[CniPluginError],
        any: &["set bridge addr", "could not add ip address to"],
        codes: &[],
        remedy: Remedy {
            clause: "its bridge cannot be given the node's own address",
            advice: "compare the bridge's addresses (ip addr show cni0) with the node's pod network: \
                 one is of an earlier network or on another device; a bridge that no pod uses can \
                 be deleted and is made again (ip link delete cni0)",
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
            advice: "find who listens on the host's port (ss -ltnup), and end it or give the pod \
                     another hostPort",
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
            advice: "find what has that name already: ip -d link show on the node and, with \
                     nsenter, in the pod's namespace; what an older plugin or configuration has \
                     left can be deleted once nothing uses it",
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
            advice: "install the binary that the message names in the folder that it names \
                     (usually /opt/cni/bin), in the version of the others",
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
            clause: "its network namespace is not there",
            advice: "see why the sandbox ended so early: dmesg | grep -i -e oom -e killed, and the \
                     runtime's log; a memory limit that is too small for the pause container does \
                     it",
        },
    },
    Row {
        causes: &[CniPluginError],
        any: &["unauthorized", "forbidden", "x509:*"],
        codes: &[],
        remedy: Remedy {
            clause: "the API server refuses the network's credentials",
            advice: "renew the credentials that the plugin uses: restarting its daemon's pod on \
                     this node writes a new kubeconfig in most cases; look at the node's clock, \
                     too",
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
            advice: "see from this node whether the address in the message answers (curl -k), and \
                     whether kube-proxy or what stands for it runs here",
        },
    },
    Row {
        causes: &[CniPluginError],
        any: &["signal: killed"],
        codes: &[],
        remedy: Remedy {
            clause: "its CNI plugin is killed",
            advice: "find out who killed the plugin: the kernel when memory is short (dmesg | grep \
                     -i oom), or the runtime when the call's time is up; node-tracer scan shows \
                     tasks that are stuck",
        },
    },
    Row {
        causes: &[CniPluginError],
        any: &[],
        codes: &[11],
        remedy: Remedy {
            clause: "its CNI plugin is not ready and asks to be called again later",
            advice: "wait; if it does not end by itself, see why the plugin is not ready: its \
                     daemon's log on this node",
        },
    },
    Row {
        causes: &[CniPluginError],
        any: &[],
        codes: &[1, 2, 4, 6, 7],
        remedy: Remedy {
            clause: "its CNI plugin refuses what it is given",
            advice: "see what the plugin does not like in /etc/cni/net.d: a version that it does \
                     not know, or a field",
        },
    },
];

impl Cause {
    /// What a message says besides.
    pub fn remedy(self, message: &str) -> Option<&'static Remedy> {
        let mut own = self.rows().peekable();
        own.peek()?;
        let said = Said::new(message);
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

    /// What to do about a CNI call that fails; `None` if only its message says.
    pub fn advice_on_call(self, remedy: Option<&Remedy>) -> Option<&'static str> {
        match (remedy, self) {
            (Some(remedy), _) => Some(remedy.advice),
            (
                None,
                Self::AddressInUse | Self::RangeExhausted | Self::CniPluginError | Self::Unknown,
            ) => None,
            (None, cause) => Some(cause.advice()),
        }
    }

    fn rows(self) -> impl Iterator<Item = &'static Row> {
        ROWS.iter().filter(move |row| row.causes.contains(&self))
    }

    /// After `POD does not start: `.
    pub fn clause(self) -> &'static str {
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

    /// What to do about it, in a line.
    pub fn advice(self) -> &'static str {
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
