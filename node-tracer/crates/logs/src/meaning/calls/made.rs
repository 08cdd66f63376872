//! Calls as events.

use event::{CniCall, CniCommand};
use std::net::IpAddr;

use super::{About, CniError, CniResult, Open, Timestamp, Verb, What};

/// How a call ended, by a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Succeeded,
    /// With an error: what was said.
    Failed(String),
    /// No line says how.
    Unknown,
}

/// The same with what was answered.
pub(super) enum SaidResult {
    Ok(Vec<IpAddr>),
    Failed(String),
    Unknown,
}

/// What a plugin is called that nobody names.
const UNNAMED: &str = "cni";
/// What runtimes call a pod's own interface.
const INTERFACE: &str = "eth0";

impl Open {
    /// The call of the plugin itself.
    pub(super) fn call(&self, verb: Verb) -> CniCall {
        let About {
            container_id,
            pod,
            ifname,
            netns_path,
            plugin,
            pid,
            caller,
        } = self.about.clone();
        let named = pod.name.is_some() || pod.uid.is_some();
        CniCall {
            command: verb.as_str().into(),
            container_id,
            ifname: ifname.unwrap_or_else(|| INTERFACE.to_owned()),
            netns_path: netns_path.unwrap_or_default(),
            plugin: plugin.unwrap_or_else(|| UNNAMED.to_owned()),
            pid: pid.unwrap_or(0),
            parent_comm: caller.unwrap_or_default(),
            pod: named.then_some(pod),
            trusted: true,
            log: true,
            ..CniCall::default()
        }
    }

    pub(super) fn ipam_call(&self, verb: Verb) -> CniCall {
        let own = self.call(verb);
        CniCall {
            plugin: format!("{}-ipam", own.plugin),
            parent_comm: own.plugin,
            pid: 0,
            delegated: true,
            ..own
        }
    }
}

pub(super) fn ended(call: CniCall, started: Timestamp, at: Timestamp, end: SaidResult) -> What {
    let duration_ms = at.since(started).as_secs_f64() * 1_000.0;
    let (exit_code, result, error, unread) = match end {
        SaidResult::Ok(ips) => {
            let result = CniResult {
                ips,
                ..CniResult::default()
            };
            let result =
                (call.command == CniCommand::Add && !result.ips.is_empty()).then_some(result);
            (Some(0), result, None, None)
        }
        SaidResult::Failed(msg) => {
            let error = CniError {
                msg,
                ..CniError::default()
            };
            (None, None, Some(error), None)
        }
        SaidResult::Unknown => {
            let unread = String::from("the log does not tell how it ended");
            (None, None, None, Some(unread))
        }
    };
    What::CniCall {
        call,
        exit_code,
        signal: None,
        duration_ms,
        result,
        error,
        unread,
    }
}
