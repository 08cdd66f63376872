//! Kubernetes events that a component has written into its own log.
//!
//! ```text
//! Event(v1.ObjectReference{Kind:"Pod", ...}): type: 'Warning' reason: 'FailedMount' MESSAGE
//! "Event occurred" object="shop/web" kind="Pod" type="Warning" reason="FailedMount" message="..."
//! ```

use super::{Whose, kept, teardown};
use crate::entry::Entry;
use diagnosis::{
    gate::{self, Verdict, of_reason},
    phrase::{SearchText, unquoted},
};
use event::{Event, StartFailure, clock::Timestamp};

pub(super) struct Recorded {
    whose: Whose,
    normal: bool,
    reason: String,
    message: String,
}

/// How such a message begins.
const PRINTED: [&str; 3] = [
    "Event(v1.ObjectReference{",
    "Event(api.ObjectReference{",
    "Event(ObjectReference{",
];

impl Recorded {
    /// Of a message that is one.
    pub(super) fn of(entry: &Entry<'_>) -> Option<Self> {
        if PRINTED.iter().any(|begin| entry.message.starts_with(begin)) {
            return Self::printed(&unquoted(&entry.message));
        }
        let reason = entry.field("reason")?;
        let kind = entry.field("type")?;
        let message = entry.field("message").or_else(|| entry.field("note"))?;
        let mut whose = Whose::of_fields(entry);
        whose.read(message);
        Some(Self {
            whose,
            normal: kind == "Normal",
            reason: reason.to_owned(),
            message: message.to_owned(),
        })
    }

    fn printed(text: &str) -> Option<Self> {
        let (object, rest) = text.split_once("}): ")?;
        let (_, rest) = rest.split_once("type: '")?;
        let (kind, rest) = rest.split_once('\'')?;
        let (_, rest) = rest.split_once("reason: '")?;
        let (reason, message) = rest.split_once('\'')?;
        let mut whose = Whose::default();
        if object.contains("Kind:\"Pod\"") {
            whose.read(object);
        }
        whose.read(message);
        Some(Self {
            whose,
            normal: kind == "Normal",
            reason: reason.to_owned(),
            message: message.trim().to_owned(),
        })
    }

    /// Whether it tells of a pod that is not taken down.
    pub(super) fn is_of_teardown(&self) -> bool {
        self.reason == teardown::REASON
    }

    /// What it tells of that.
    pub(super) fn teardown(self, time: Timestamp) -> Vec<Event> {
        teardown::events(&self.whose.pod, &self.message, None, time)
    }

    /// What it tells of a pod that does not start, if it does.
    pub(super) fn failure(self) -> Option<StartFailure> {
        of_event(self.normal, &self.reason, &self.message).then(|| StartFailure {
            source: String::from("events"),
            reason: Some(kept(&self.reason)),
            message: kept(&self.message),
            ..self.whose.failure()
        })
    }
}

/// Whether an event tells of a pod that does not start.
pub(crate) fn of_event(normal: bool, reason: &str, message: &str) -> bool {
    let said = SearchText::new(message);
    if normal && !said.has("back-off pulling image") {
        return false;
    }
    match of_reason(reason) {
        Verdict::Failure => true,
        Verdict::Nothing => false,
        // "Failed" is of an image, or of a container that was not started.
        Verdict::Perhaps if reason == "Failed" => {
            !said.has_one(&["crashloopbackoff", "back-off restarting failed container"])
        }
        Verdict::Perhaps => gate::of(&said, None, None) == Verdict::Failure,
    }
}
