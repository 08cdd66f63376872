//! Why a pod does not start, in one word.

use std::{cell::RefCell, collections::HashMap, time::Duration};

use event::{CniError, StartFailure};

use crate::{phrase::SearchText, speaker, table};

/// A network's daemon that starts with the node is there after this time.
const STARTED: Duration = Duration::from_secs(300);
/// A runtime that has waited for so long has killed the plugin itself, ms.
const KILLED_FOR_TIME: f64 = 15_000.0;

thread_local! {
    static CAUSES: RefCell<CauseCache> = RefCell::default();
}

/// The causes of the texts that were asked about of late. The same ones are
/// asked about at every evaluation, and the table is long.
#[derive(Default)]
struct CauseCache {
    causes: HashMap<(Option<Box<str>>, Box<str>), Cause>,
    bytes: usize,
}

impl CauseCache {
    /// Bytes of texts that are kept.
    const MOST: usize = 8 << 20;

    fn cause(&mut self, reason: Option<&str>, text: &str) -> Cause {
        let key = (reason.map(Box::from), Box::from(text));
        if let Some(cause) = self.causes.get(&key) {
            return *cause;
        }
        if self.bytes + text.len() > Self::MOST {
            *self = Self::default();
        }
        let cause = Cause::find(reason, text);
        self.bytes += text.len();
        self.causes.insert(key, cause);
        cause
    }
}

/// The words of `cause`; they are added to, never renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The pod's address is somebody else's.
    AddressInUse,
    /// There is no address left.
    RangeExhausted,
    /// The node has no pod network yet: no configuration, no plugin, or what
    /// the network's daemon writes is missing.
    CniNotReady,
    /// A CNI plugin did not end in time.
    CniTimeout,
    /// A CNI plugin failed, for a reason that is none of the others.
    CniPluginError,
    /// A file system is full, of bytes or of inodes, or a limit on watches is
    /// reached.
    NoSpace,
    /// The node's memory is short, or in pieces.
    NodeMemory,
    /// The memory limit is too small for the sandbox itself, or for what
    /// starts a container.
    SandboxOom,
    /// The name that the sandbox would get is taken by an older one.
    NameConflict,
    ImagePull,
    /// A disk cannot be attached to the node.
    VolumeAttach,
    /// A volume cannot be mounted.
    VolumeMount,
    /// A ConfigMap, a Secret, or a key in one does not exist.
    ConfigMissing,
    /// The container runtime, or a part of it, is not there or cannot work.
    RuntimeUnavailable,
    /// The container runtime did not answer in time.
    RuntimeTimeout,
    Unknown,
}

impl Cause {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 16] = [
        Self::AddressInUse,
        Self::RangeExhausted,
        Self::CniNotReady,
        Self::CniTimeout,
        Self::CniPluginError,
        Self::NoSpace,
        Self::NodeMemory,
        Self::SandboxOom,
        Self::NameConflict,
        Self::ImagePull,
        Self::VolumeAttach,
        Self::VolumeMount,
        Self::ConfigMissing,
        Self::RuntimeUnavailable,
        Self::RuntimeTimeout,
        Self::Unknown,
    ];

    /// The name in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AddressInUse => "address-in-use",
            Self::RangeExhausted => "range-exhausted",
            Self::CniNotReady => "cni-not-ready",
            Self::CniTimeout => "cni-timeout",
            Self::CniPluginError => "cni-plugin-error",
            Self::NoSpace => "no-space",
            Self::NodeMemory => "node-memory",
            Self::SandboxOom => "sandbox-oom",
            Self::NameConflict => "name-conflict",
            Self::ImagePull => "image-pull",
            Self::VolumeAttach => "volume-attach",
            Self::VolumeMount => "volume-mount",
            Self::ConfigMissing => "config-missing",
            Self::RuntimeUnavailable => "runtime-unavailable",
            Self::RuntimeTimeout => "runtime-timeout",
            Self::Unknown => "unknown",
        }
    }

    /// Of what was told.
    pub fn of(failure: &StartFailure) -> Self {
        Self::of_text(failure.reason.as_deref(), &failure.message)
    }

    /// Of a text, with the reason of the Kubernetes event that it is from.
    pub fn of_text(reason: Option<&str>, text: &str) -> Self {
        CAUSES.with_borrow_mut(|known| known.cause(reason, text))
    }

    fn find(reason: Option<&str>, text: &str) -> Self {
        // What names a product must not be the name of a pod.
        let said = SearchText::new(text).without_names();
        let of_sandbox = speaker::of_sandbox_in_event(reason, text);
        let network =
            (of_sandbox.len() < text.len()).then(|| SearchText::new(of_sandbox).without_names());
        let fits = |row: &&table::Row| match &network {
            Some(network) if row.cause.is_of_the_network() => row.fits(reason, network),
            _ => row.fits(reason, &said),
        };
        table::rows()
            .find(fits)
            .map_or(Self::Unknown, |row| row.cause)
    }

    /// Of a CNI call that failed, with the failures of the plugins that its
    /// plugin called: what says nothing itself passes on what they say.
    pub fn of_call<'e>(
        own: PluginFailure<'e>,
        children: impl Iterator<Item = PluginFailure<'e>>,
    ) -> Self {
        match Self::of_plugin(own) {
            Self::CniPluginError => children
                .map(Self::of_plugin)
                .find(|cause| *cause != Self::CniPluginError)
                .unwrap_or(Self::CniPluginError),
            own => own,
        }
    }

    /// Of one plugin.
    pub fn of_plugin(failure: PluginFailure<'_>) -> Self {
        if failure.signal.is_some() {
            return match failure.duration_ms >= KILLED_FOR_TIME {
                true => Self::CniTimeout,
                false => Self::CniPluginError,
            };
        }
        match (Self::of_text(None, &failure.text()), failure.code()) {
            // CNI: the plugin is not available.
            (Self::CniPluginError, Some(50 | 51)) => Self::CniNotReady,
            (cause, _) => cause,
        }
    }

    /// A cause that a message names besides its own, as what came before it.
    pub fn before(text: &str) -> Option<Self> {
        let said = SearchText::new(text).of_start();
        // CRI-O: the name is taken by the request that is still under way.
        let slow = said.has_one(&[
            "kubelet may be retrying requests that are timing out",
            "timing out in cri-o",
        ]);
        slow.then_some(Self::RuntimeTimeout)
    }

    /// Whether what is wrong follows, as a rule, from what went wrong before:
    /// of a sandbox that could not be finished the name is still taken, and
    /// what waits for a lock runs into its time.
    pub fn follows(self) -> bool {
        matches!(
            self,
            Self::NameConflict | Self::RuntimeTimeout | Self::CniTimeout
        )
    }

    /// Whether what has been missing for so long may still come by itself, as
    /// after a reboot.
    pub fn may_be_late(self, missing: Duration) -> bool {
        self == Self::CniNotReady && missing < STARTED
    }

    /// Whether it is over once the pod's sandbox is there: volumes come before
    /// that, images and what containers need after it.
    pub fn ends_with_sandbox(self) -> bool {
        !matches!(self, Self::ImagePull | Self::ConfigMissing)
    }

    /// Whether it is the network of a sandbox that failed.
    pub fn is_of_the_network(self) -> bool {
        matches!(
            self,
            Self::AddressInUse
                | Self::RangeExhausted
                | Self::CniNotReady
                | Self::CniTimeout
                | Self::CniPluginError
        )
    }

    /// Whether it says what is wrong, and not only who complains.
    pub fn is_specific(self) -> bool {
        !matches!(self, Self::CniPluginError | Self::Unknown)
    }

    /// Whether it is the node's matter, and no pod's own.
    pub fn is_of_the_node(self) -> bool {
        match self {
            Self::RangeExhausted
            | Self::CniNotReady
            | Self::CniTimeout
            | Self::CniPluginError
            | Self::NoSpace
            | Self::NodeMemory
            | Self::RuntimeUnavailable
            | Self::RuntimeTimeout => true,
            Self::AddressInUse
            | Self::SandboxOom
            | Self::NameConflict
            | Self::ImagePull
            | Self::VolumeAttach
            | Self::VolumeMount
            | Self::ConfigMissing
            | Self::Unknown => false,
        }
    }
}

/// In front of what a plugin says, in libcni's and containerd's words.
const PASSED_ON: &str =
    "failed to setup network for sandbox: plugin type=\"plugin\" failed (add): ";

/// How a CNI plugin failed.
#[derive(Clone, Copy, Debug)]
pub struct PluginFailure<'e> {
    /// What it answered with, if that could be read.
    pub error: Option<&'e CniError>,
    /// What ended it.
    pub signal: Option<i32>,
    pub duration_ms: f64,
}

impl PluginFailure<'_> {
    /// What it said, as runtimes pass it on: a failure has one cause, whether
    /// it is seen or read of.
    pub(crate) fn text(&self) -> String {
        match (self.error, self.signal) {
            (Some(error), _) => {
                let details = error.details.as_deref().unwrap_or_default();
                format!("{PASSED_ON}{}: {details}", error.msg)
            }
            (None, Some(_)) => format!("{PASSED_ON}signal: killed"),
            (None, None) => PASSED_ON.to_owned(),
        }
    }

    pub(crate) fn code(&self) -> Option<u64> {
        self.error?.code
    }
}

#[cfg(test)]
mod tests;
