//! Events by their reason, where the message says nothing.

use super::{Row, reason, row};
use crate::Cause::{CniNotReady, ConfigMissing, ImagePull, VolumeAttach, VolumeMount};

/// In this order.
pub(super) const ROWS: &[Row] = &[
    // 8. By the reason alone.
    reason(
        ImagePull,
        &[
            "ErrImagePull",
            "ImagePullBackOff",
            "InvalidImageName",
            "InspectFailed",
            "ErrImageNeverPull",
            "ImageInspectError",
            "RegistryUnavailable",
            "FailedToRetrieveImagePullSecret",
        ],
    ),
    reason(VolumeAttach, &["FailedAttachVolume"]),
    reason(
        VolumeMount,
        &["FailedMount", "FailedMapVolume", "VolumeFailedMount"],
    ),
    reason(ConfigMissing, &["CreateContainerConfigError"]),
    reason(CniNotReady, &["NetworkNotReady"]),
    // A container's configuration cannot be made: of what is not there, if
    // nothing else is said.
    row(ConfigMissing, &["createcontainerconfigerror"]).without(&["runasnonroot", "run as root"]),
];
