//! What is run in the guests: suites of tests, and the boots that each takes.

use clap::ValueEnum;

/// What the tests of all suites use.
const MODULES: [&str; 10] = [
    "veth",
    "bridge",
    "dummy",
    "ipvlan",
    "macvlan",
    "fuse",
    "overlay",
    "loop",
    "ext4",
    "af_packet",
];

/// Tests that run in the same kind of guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// Every signal by every mechanism
    Matrix,
    /// With one fact taken away at a time: capabilities, lockdown, BTF, memlock
    Privileges,
    /// The whole incident on a node with systemd and containerd
    Node,
    /// The same with the tracer in a pod, as the DaemonSet runs it
    Daemonset,
    /// The integration tests with API server and kubelet, on cgroup v2 alone
    Cluster,
}

/// One start of a guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Boot {
    /// What runs in it.
    pub(crate) suite: Suite,
    /// What is added to the kernel's command line.
    pub(crate) append: &'static str,
}

impl Suite {
    pub(crate) const ALL: [Self; 5] = [
        Self::Matrix,
        Self::Node,
        Self::Daemonset,
        Self::Cluster,
        Self::Privileges,
    ];

    /// As the guest is told.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Matrix => "matrix",
            Self::Privileges => "privileges",
            Self::Node => "node",
            Self::Daemonset => "daemonset",
            Self::Cluster => "cluster",
        }
    }

    /// Whether a run of everything has it on this kernel. (A node's packages
    /// are not made for every old kernel.)
    pub(crate) fn is_for(self, kernel: &str) -> bool {
        match self {
            Self::Matrix | Self::Privileges => true,
            Self::Node | Self::Daemonset | Self::Cluster => kernel != "5.10",
        }
    }

    /// Whether its guests go on from a disk with a whole system.
    pub(crate) fn has_disk(self) -> bool {
        matches!(self, Self::Node | Self::Daemonset | Self::Cluster)
    }

    /// Memory of a guest, in MiB.
    pub(crate) fn memory(self) -> u32 {
        match self {
            Self::Matrix | Self::Privileges => 1536,
            Self::Node | Self::Daemonset => 2048,
            Self::Cluster => 6144,
        }
    }

    /// Processors of a guest.
    pub(crate) fn processors(self) -> u32 {
        match self {
            Self::Matrix | Self::Privileges | Self::Node | Self::Daemonset => 1,
            Self::Cluster => 2,
        }
    }

    /// The modules that its guests load. One that is built in is not missed.
    pub(crate) fn modules(self) -> Vec<&'static str> {
        let own: &[&str] = match self {
            Self::Matrix | Self::Privileges => &[],
            Self::Node | Self::Daemonset | Self::Cluster => &["virtio_pci", "virtio_blk"],
        };
        [&MODULES, own].concat()
    }

    /// All that it takes.
    pub(crate) fn boots(self) -> Vec<Boot> {
        let appends: &[&str] = match self {
            Self::Matrix | Self::Node | Self::Daemonset | Self::Cluster => &[""],
            Self::Privileges => &["", "lockdown=integrity", "lockdown=confidentiality"],
        };
        let boots = appends.iter().map(|append| Boot {
            suite: self,
            append,
        });
        boots.collect()
    }
}
