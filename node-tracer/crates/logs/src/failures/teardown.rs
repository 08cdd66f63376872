//! Events of pods whose network is not taken down (`FailedKillPod`): CNI DELs
//! that failed. The kubelet tries again until one succeeds, so each of these is
//! one of many.

use std::time::Duration;

use super::kept;
use crate::meaning::{
    calls::{Verb, unnamed},
    failure::{self, Failure},
    hide,
};
use event::{CniCall, CniError, Event, PodRef, What, clock::Timestamp};

/// The reason of such an event.
pub(crate) const REASON: &str = "FailedKillPod";
/// What a plugin is called that nobody names.
const UNNAMED: &str = "cni";
/// What runtimes call a pod's own interface.
const INTERFACE: &str = "eth0";

/// The DEL that such a message tells of, and that it was called again.
pub(crate) fn events(
    pod: &PodRef,
    message: &str,
    first: Option<Timestamp>,
    time: Timestamp,
) -> Vec<Event> {
    let Some(failure) = failure::read(message, None).filter(|failure| failure.verb == Verb::Del)
    else {
        return Vec::new();
    };
    let Failure {
        verb,
        container_id,
        pod: named,
        plugin,
        message,
    } = failure;
    let pod = PodRef {
        namespace: pod.namespace.clone().or(named.namespace),
        name: pod.name.clone().or(named.name),
        uid: pod.uid.clone().or(named.uid),
    };
    let call = CniCall {
        command: verb.as_str().into(),
        // Older kubelets do not name it.
        container_id: container_id.unwrap_or_else(|| unnamed(&pod)),
        ifname: INTERFACE.to_owned(),
        plugin: plugin.unwrap_or_else(|| UNNAMED.to_owned()),
        parent_comm: String::from("kubelet"),
        pod: (pod != PodRef::default()).then_some(pod),
        trusted: true,
        log: true,
        ..CniCall::default()
    };
    // What was before it is not told where there is no count.
    let first = first.filter(|first| *first < time);
    let first = first.unwrap_or(time.minus(Duration::from_millis(1)));
    let started = |at| Event {
        time: at,
        what: What::CniStarted { call: call.clone() },
    };
    let failed = What::CniCall {
        call: call.clone(),
        exit_code: None,
        signal: None,
        duration_ms: 0.0,
        result: None,
        error: Some(CniError {
            msg: kept(&message),
            ..CniError::default()
        }),
        unread: None,
    };
    let failed = Event {
        time: first,
        what: failed,
    };
    let mut events = vec![started(first), failed, started(time)];
    hide::all(&mut events);
    events
}
