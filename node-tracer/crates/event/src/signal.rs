//! What the tracer listens to in the kernel, by the names that records have.

use std::fmt;

/// What the tracer wants to hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// A network namespace was created.
    NetnsCreated,
    /// The last reference to a namespace is gone.
    NetnsDying,
    /// A namespace is destroyed.
    NetnsDestroyed,
    /// An address was added or removed.
    Address,
    /// A task entered or left uninterruptible sleep.
    TaskBlocked,
    /// A CNI plugin started or ended.
    CniCall,
    /// What a CNI plugin was configured with, and what it answered.
    CniResult,
    /// What is there at the start: tasks, namespaces, addresses.
    Inventory,
    /// A task was killed, as memory is short.
    OomKill,
}

impl Signal {
    /// All signals, in the order they are shown.
    pub const ALL: [Self; 9] = [
        Self::NetnsCreated,
        Self::NetnsDying,
        Self::NetnsDestroyed,
        Self::Address,
        Self::TaskBlocked,
        Self::CniCall,
        Self::CniResult,
        Self::Inventory,
        Self::OomKill,
    ];

    /// The name in records and in `check`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NetnsCreated => "netns-created",
            Self::NetnsDying => "netns-dying",
            Self::NetnsDestroyed => "netns-destroyed",
            Self::Address => "address",
            Self::TaskBlocked => "task-blocked",
            Self::CniCall => "cni-call",
            Self::CniResult => "cni-result",
            Self::Inventory => "inventory",
            Self::OomKill => "oom-kill",
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
