//! From a line of a watch to what it changes.

use std::time::Duration;

use serde::Deserialize;

use crate::{client::Status, error::Problem};
use event::Pod;
use node::pods::{
    document::{Item, Name},
    object::Object,
};

/// What an event does to the pods.
#[derive(Debug, PartialEq)]
pub(super) enum Change {
    /// Nothing: a bookmark.
    None,
    /// The pod of this UID is so now.
    Put(String, Pod),
    /// It is gone; as it last was.
    Delete(String, Pod),
}

#[derive(Deserialize)]
struct WatchEvent {
    #[serde(rename = "type")]
    kind: Name,
    #[serde(default)]
    object: Object<Item>,
}

/// `ERROR`
#[derive(Deserialize)]
struct ErrorEvent {
    object: Status,
}

impl Change {
    /// An event's version and change, or what it says has gone wrong; `None`
    /// if it is no event of pods.
    pub(super) fn parse(line: &[u8]) -> Option<Result<(String, Self), Problem>> {
        let event: WatchEvent = serde_json::from_slice(line).ok()?;
        let kind = event.kind.0;
        if kind == "ERROR" {
            let ErrorEvent { object } = serde_json::from_slice(line).ok()?;
            return Some(Err(Problem::status(
                object.code,
                &object.message,
                "watch",
                Duration::ZERO,
            )));
        }
        let mut object = event.object.0?;
        if object.kind.as_ref()?.0 != "Pod" {
            return None;
        }
        let metadata = object.metadata.0.as_mut();
        let version = metadata.and_then(|metadata| metadata.resource_version.take());
        let change = match kind.as_str() {
            "BOOKMARK" => Self::None,
            "ADDED" | "MODIFIED" | "DELETED" => {
                let (uid, pod) = object.pod()?;
                if kind == "DELETED" {
                    Self::Delete(uid, pod)
                } else {
                    Self::Put(uid, pod)
                }
            }
            _ => return None,
        };
        Some(Ok((version.unwrap_or_default().0, change)))
    }
}

#[cfg(feature = "testing")]
pub(super) fn fuzz(line: &[u8]) {
    if let Some(Ok((_, Change::Put(uid, pod) | Change::Delete(uid, pod)))) = Change::parse(line) {
        assert!(!uid.is_empty() && pod.uids.contains(&uid));
    }
}
