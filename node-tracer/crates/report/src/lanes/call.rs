//! A CNI call as the report shows it.

use event::{CniCall, CniCommand, CniError, CniResult, clock::Timestamp};
use std::{net::IpAddr, time::Duration};

/// One call of one plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub began: Timestamp,
    pub ended: Option<CallOutcome>,
    /// `CNI_COMMAND`
    pub command: CniCommand,
    /// `CNI_CONTAINERID`
    pub container_id: String,
    /// `CNI_IFNAME`
    pub ifname: String,
    pub plugin: String,
    pub pid: u32,
    /// Another plugin called it.
    pub delegated: bool,
    /// The network, if it was read.
    pub network: Option<String>,
    pub trusted: bool,
    pub distrust: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CallOutcome {
    pub at: Timestamp,
    /// From exec to exit, ms.
    pub took_ms: f64,
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Addresses that it gave.
    pub ips: Vec<IpAddr>,
    /// What it said when it failed.
    pub error: Option<String>,
}

impl Call {
    pub fn begun(call: &CniCall, at: Timestamp) -> Self {
        Self {
            began: at,
            ended: None,
            command: call.command.clone(),
            container_id: call.container_id.clone(),
            ifname: call.ifname.clone(),
            plugin: call.plugin.clone(),
            pid: call.pid,
            delegated: call.delegated,
            network: call.network.clone(),
            trusted: call.trusted,
            distrust: call.distrust.clone(),
        }
    }

    pub fn ended(
        call: &CniCall,
        at: Timestamp,
        status: (Option<i32>, Option<i32>),
        took_ms: f64,
        result: Option<&CniResult>,
        error: Option<&CniError>,
    ) -> Self {
        let took = Duration::try_from_secs_f64(took_ms / 1e3).unwrap_or_default();
        let end = CallOutcome {
            at,
            took_ms,
            exit_code: status.0,
            signal: status.1,
            ips: result.map(|result| result.ips.clone()).unwrap_or_default(),
            error: error.map(words),
        };
        Self {
            ended: Some(end),
            ..Self::begun(call, at.minus(took))
        }
    }

    /// Whether this is how another one began.
    pub fn is_begin_of(&self, other: &Self) -> bool {
        (self.pid, &self.command, &self.plugin, &self.ifname)
            == (other.pid, &other.command, &other.plugin, &other.ifname)
    }

    /// Whether it is only for the loopback device.
    pub fn is_loopback(&self) -> bool {
        self.ifname == "lo"
    }
}

impl CallOutcome {
    /// Whether it says that it went well.
    pub fn is_success(&self) -> bool {
        self.exit_code == Some(0) && self.error.is_none()
    }

    pub fn failure(&self) -> String {
        match (&self.error, self.signal, self.exit_code) {
            (Some(error), ..) => error.clone(),
            (None, Some(signal), _) => format!("ended by signal {signal}"),
            (None, None, Some(code)) => format!("exit status {code}"),
            (None, None, None) => String::from("how it ended is not known"),
        }
    }
}

/// An error in one line.
fn words(error: &CniError) -> String {
    let CniError { code, msg, details } = error;
    let mut text = msg.clone();
    if let Some(details) = details.as_ref().filter(|details| !details.is_empty()) {
        text.push_str("; ");
        text.push_str(details);
    }
    if let Some(code) = code {
        text.push_str(&format!(" (code {code})"));
    }
    text
}
