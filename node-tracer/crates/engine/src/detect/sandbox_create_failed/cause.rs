//! Why a pod does not start, in one word, by what was said.
//!
//! The words are the programs' own. [`table`] has them all, in the order in
//! which they are looked for: the first row that fits decides.

mod advice;
mod table;

use std::{cell::RefCell, collections::HashMap, time::Duration};

use crate::model::calls::CallResult;
use event::{StartFailure, phrase::Said};

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
    pub(super) const ALL: [Self; 16] = [
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
    pub(super) fn of_text(reason: Option<&str>, text: &str) -> Self {
        CAUSES.with_borrow_mut(|known| known.cause(reason, text))
    }

    fn find(reason: Option<&str>, text: &str) -> Self {
        // What names a product must not be the name of a pod.
        let said = Said::new(text).without_names();
        let fits = |row: &&table::Row| row.fits(reason, &said);
        table::rows()
            .find(fits)
            .map_or(Self::Unknown, |row| row.cause)
    }

    /// Of an ADD that failed, with the failures of plugins that it called: what
    /// says nothing itself passes on what they say.
    pub(in crate::detect) fn of_call<'e>(
        end: &CallResult,
        mut children: impl Iterator<Item = &'e CallResult>,
    ) -> Self {
        match Self::of_end(end) {
            Self::CniPluginError => children
                .find_map(|end| Some(Self::of_end(end)).filter(|it| *it != Self::CniPluginError))
                .unwrap_or(Self::CniPluginError),
            own => own,
        }
    }

    pub(in crate::detect) fn of_end(end: &CallResult) -> Self {
        if end.signal.is_some() {
            return match end.duration_ms >= KILLED_FOR_TIME {
                true => Self::CniTimeout,
                false => Self::CniPluginError,
            };
        }
        let Some(error) = &end.error else {
            return Self::CniPluginError;
        };
        let details = error.details.as_deref().unwrap_or_default();
        let text = format!("CNI ADD failed: {}: {details}", error.msg);
        match (Self::of_text(None, &text), error.code) {
            // CNI: the plugin is not available.
            (Self::CniPluginError, Some(50 | 51)) => Self::CniNotReady,
            (cause, _) => cause,
        }
    }

    /// A cause that a message names besides its own, as what came before it.
    pub(super) fn before(text: &str) -> Option<Self> {
        let said = Said::new(text);
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
    pub(super) fn follows(self) -> bool {
        matches!(
            self,
            Self::NameConflict | Self::RuntimeTimeout | Self::CniTimeout
        )
    }

    /// Whether what has been missing for so long may still come by itself, as
    /// after a reboot.
    pub(in crate::detect) fn may_be_late(self, missing: Duration) -> bool {
        self == Self::CniNotReady && missing < STARTED
    }

    /// Whether it is over once the pod's sandbox is there: volumes come before
    /// that, images and what containers need after it.
    pub fn ends_with_sandbox(self) -> bool {
        !matches!(self, Self::ImagePull | Self::ConfigMissing)
    }

    /// Whether it is the node's matter, and no pod's own.
    pub(super) fn is_of_the_node(self) -> bool {
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

#[cfg(test)]
mod tests;
