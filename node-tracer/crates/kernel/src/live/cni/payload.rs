//! What a plugin was configured with and what it answered: JSON, of which the
//! kernel has kept the beginning. Of the configuration only names are taken:
//! it can hold tokens.

use event::{CniCommand, CniError, CniInterface, CniResult};
use std::net::IpAddr;

use node_tracer_ebpf::record::pipe;
use serde::Deserialize;
use serde_json::Value;

use node::redact::redact;

/// Names and messages are cut at this length.
const MAX_TEXT: usize = 1024;
/// Addresses and interfaces that are taken of one result.
const MAX_ITEMS: usize = 64;

/// The part of a network configuration (CNI spec, section 1) that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NetworkConfig {
    /// `name`
    pub network: Option<String>,
    /// `cniVersion`
    pub version: Option<String>,
    /// `ipam.type`
    pub ipam: Option<String>,
}

/// What a plugin wrote to standard output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PluginOutput {
    /// A result of ADD.
    pub result: Option<CniResult>,
    pub error: Option<CniError>,
    /// Why neither could be had, although there should be one.
    pub unread: Option<String>,
}

impl NetworkConfig {
    /// Reads what there is of it.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let Some(config) = lenient(bytes) else {
            return Self::default();
        };
        let at = |value: &Value, key: &str| value.get(key)?.as_str().map(cut);
        Self {
            network: at(&config, "name"),
            version: at(&config, "cniVersion"),
            ipam: config.get("ipam").and_then(|ipam| at(ipam, "type")),
        }
    }
}

impl PluginOutput {
    /// Reads it. `state` says what the kernel could read; `succeeded` is the
    /// exit status's word.
    pub(crate) fn parse(command: &CniCommand, succeeded: bool, state: u32, bytes: &[u8]) -> Self {
        let expected = *command == CniCommand::Add || !succeeded;
        let why = match state {
            pipe::WHOLE | pipe::CUT => None,
            pipe::EMPTY => return Self::default(),
            pipe::NOT_READ => Some("the kernel's pages cannot be read"),
            pipe::NO_PIPE => Some("its standard output was no pipe at its end"),
            pipe::OVERWRITTEN => Some("it was written in parts and read at once"),
            _ => Some("its standard output could not be read"),
        };
        if let Some(why) = why {
            return Self {
                unread: expected.then(|| why.to_owned()),
                ..Self::default()
            };
        }
        let object = lenient(bytes).filter(Value::is_object);
        match (object, succeeded) {
            (Some(object), true) if *command == CniCommand::Add => Self {
                result: Some(result(&object)),
                ..Self::default()
            },
            (Some(object), false) if object.get("msg").is_some() => Self {
                error: Some(error(&object)),
                ..Self::default()
            },
            // Some plugins print text where the specification wants JSON.
            (None, false) => Self {
                error: text(bytes).map(|msg| CniError {
                    code: None,
                    msg,
                    details: None,
                }),
                ..Self::default()
            },
            (_, true) if *command != CniCommand::Add => Self::default(),
            _ => Self {
                unread: Some(String::from("what it wrote is no result of CNI")),
                ..Self::default()
            },
        }
    }
}

/// A result: today's form, or that of before version 0.3.0 (`ip4`, `ip6`).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawResult {
    ips: Vec<RawIp>,
    interfaces: Vec<RawInterface>,
    ip4: Option<OldIp>,
    ip6: Option<OldIp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawIp {
    address: String,
    gateway: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OldIp {
    ip: String,
    gateway: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawInterface {
    name: String,
    mac: Option<String>,
    sandbox: Option<String>,
}

fn result(object: &Value) -> CniResult {
    // Part by part: one that is odd takes nothing else with it.
    let part = |key: &str| object.get(key).cloned().unwrap_or_default();
    let raw = RawResult {
        ips: items(part("ips")),
        interfaces: items(part("interfaces")),
        ip4: serde_json::from_value(part("ip4")).unwrap_or_default(),
        ip6: serde_json::from_value(part("ip6")).unwrap_or_default(),
    };
    let old = raw.ip4.into_iter().chain(raw.ip6);
    let old = old.map(|OldIp { ip, gateway }| RawIp {
        address: ip,
        gateway,
    });
    let mut told = CniResult::default();
    for RawIp { address, gateway } in raw.ips.into_iter().chain(old) {
        told.ips.extend(ip(&address));
        let gateway = gateway.as_deref().and_then(ip);
        told.gateways
            .extend(gateway.filter(|gateway| !told.gateways.contains(gateway)));
    }
    let interfaces = raw.interfaces.into_iter();
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty()).map(|text| cut(&text));
    told.interfaces = interfaces
        .map(|RawInterface { name, mac, sandbox }| CniInterface {
            name: cut(&name),
            mac: filled(mac),
            sandbox: filled(sandbox),
        })
        .collect();
    told
}

fn items<T: serde::de::DeserializeOwned>(list: Value) -> Vec<T> {
    let Value::Array(items) = list else {
        return Vec::new();
    };
    let items = items.into_iter().take(MAX_ITEMS);
    items
        .filter_map(|item| serde_json::from_value(item).ok())
        .collect()
}

/// An address with or without its prefix length.
fn ip(text: &str) -> Option<IpAddr> {
    let address = text.split_once('/').map_or(text, |(address, _)| address);
    address.trim().parse().ok()
}

fn error(object: &Value) -> CniError {
    let at = |key: &str| object.get(key)?.as_str().map(|text| cut(&redact(text)));
    CniError {
        code: object.get("code").and_then(Value::as_u64),
        msg: at("msg").unwrap_or_default(),
        details: at("details").filter(|details| !details.is_empty()),
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    Some(cut(&redact(text.trim()))).filter(|text| !text.is_empty())
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

/// The first JSON value of `bytes`, also if its end is missing: then without
/// the member that was cut through.
fn lenient(bytes: &[u8]) -> Option<Value> {
    let mut whole = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    match whole.next() {
        Some(Ok(value)) => return Some(value),
        Some(Err(error)) if error.is_eof() => {}
        _ => return None,
    }
    let text = String::from_utf8_lossy(bytes);
    let (end, open) = last_boundary(&text)?;
    let mut repaired = text.get(..end)?.to_owned();
    repaired.extend(open.iter().rev());
    serde_json::from_slice(repaired.as_bytes()).ok()
}

/// The end of the last member or element that is whole, and what has to be
/// closed there, outermost first.
fn last_boundary(text: &str) -> Option<(usize, Vec<char>)> {
    let mut open: Vec<char> = Vec::new();
    let mut best = None;
    let (mut in_string, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        if in_string {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match c {
            '"' => in_string = true,
            '{' | '[' => {
                open.push(if c == '{' { '}' } else { ']' });
                best = Some((at + 1, open.clone()));
            }
            '}' | ']' => {
                open.pop();
                best = Some((at + 1, open.clone()));
            }
            // What precedes a comma is whole.
            ',' => best = Some((at, open.clone())),
            _ => {}
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"{"cniVersion":"0.4.0","ipam":{"ranges":[[{"subnet":"10.0.0.0/24"}]],
        "type":"host-local"},"name":"pods","policy":{"k8s_api_token":"eyJhbGciOi"},
        "prevResult":{"ips":[{"address":"10.0.0.5/24"}]},"type":"bridge"}"#;

    #[test]
    fn only_names_are_taken_of_a_configuration() {
        let config = NetworkConfig::parse(CONFIG.as_bytes());
        assert_eq!(config.network.as_deref(), Some("pods"));
        assert_eq!(config.ipam.as_deref(), Some("host-local"));
        assert_eq!(config.version.as_deref(), Some("0.4.0"));
        assert!(!format!("{config:?}").contains("eyJ"));
    }

    #[test]
    fn of_a_configuration_that_was_cut_the_whole_members_are_taken() {
        for end in 0..CONFIG.len() {
            let config = NetworkConfig::parse(&CONFIG.as_bytes()[..end]);
            let told =
                |value: Option<String>, whole: &str| value.is_none_or(|value| value == whole);
            assert!(told(config.network.clone(), "pods"), "{end}: {config:?}");
            assert!(told(config.ipam.clone(), "host-local"), "{end}: {config:?}");
        }
        let cut = CONFIG.find("prevResult").unwrap();
        let config = NetworkConfig::parse(&CONFIG.as_bytes()[..cut]);
        assert_eq!(config.network.as_deref(), Some("pods"));
        assert_eq!(config.ipam.as_deref(), Some("host-local"));
    }

    fn answer(command: &str, succeeded: bool, text: &str) -> PluginOutput {
        PluginOutput::parse(&command.into(), succeeded, pipe::WHOLE, text.as_bytes())
    }

    #[test]
    fn a_result_tells_addresses_and_interfaces() {
        let told = answer(
            "ADD",
            true,
            r#"{"cniVersion":"0.4.0","interfaces":[{"name":"cni0","mac":"aa:bb"},
                {"name":"eth0","mac":"","sandbox":"/run/netns/a"}],
                "ips":[{"version":"4","interface":1,"address":"10.0.0.5/24","gateway":"10.0.0.1"},
                {"address":"fd00::5/64"},{"address":"nonsense"}],"dns":{}}"#,
        );
        let result = told.result.unwrap();
        assert_eq!(
            result.ips,
            ["10.0.0.5", "fd00::5"].map(|ip| ip.parse::<IpAddr>().unwrap())
        );
        assert_eq!(result.gateways, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(result.interfaces.len(), 2);
        assert_eq!(result.interfaces[0].sandbox, None);
        assert_eq!(
            result.interfaces[1].sandbox.as_deref(),
            Some("/run/netns/a")
        );
        assert_eq!(result.interfaces[1].mac, None);
    }

    /// Of a plugin for virtual functions and one for user space, with all that version
    /// 1.1 has added.
    #[test]
    fn results_of_version_1_1_are_understood() {
        let told = answer(
            "ADD",
            true,
            r#"{"cniVersion":"1.1.0","interfaces":[
                {"name":"eth0","mac":"aa:bb","mtu":1500,"sandbox":"/run/netns/a","pciID":"0000:00:1f.6"},
                {"name":"net1","mtu":0,"socketPath":"/run/vhost/net1.sock"}],
                "ips":[{"address":"10.0.0.5/24","gateway":"10.0.0.1","interface":0}],
                "routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1","mtu":1400,"advmss":1360,
                "priority":100,"table":10,"scope":0}],"dns":{}}"#,
        );
        let result = told.result.unwrap();
        assert_eq!(result.ips, ["10.0.0.5".parse::<IpAddr>().unwrap()]);
        let names: Vec<&str> = result.interfaces.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["eth0", "net1"]);
    }

    #[test]
    fn a_call_for_no_container_has_no_result_and_may_fail() {
        for command in ["STATUS", "GC"] {
            assert_eq!(answer(command, true, ""), PluginOutput::default());
            assert_eq!(answer(command, true, "{}"), PluginOutput::default());
            let failed = answer(command, false, r#"{"code":50,"msg":"not ready"}"#);
            let error = failed.error.unwrap();
            assert_eq!((error.code, error.msg.as_str()), (Some(50), "not ready"));
        }
    }

    #[test]
    fn results_of_old_plugins_are_understood() {
        let told = answer(
            "ADD",
            true,
            r#"{"ip4":{"ip":"10.0.0.5/24","gateway":"10.0.0.1"}}"#,
        );
        assert_eq!(told.result.unwrap().ips.len(), 1);
    }

    #[test]
    fn an_error_tells_code_and_message() {
        let told = answer(
            "ADD",
            false,
            r#"{"code": 11, "msg": "no IP addresses available in range set: 10.0.0.1-10.0.0.6"}"#,
        );
        let error = told.error.unwrap();
        assert_eq!(error.code, Some(11));
        assert!(error.msg.contains("range set"));
        let told = answer("DEL", false, "panic: runtime error\n");
        assert_eq!(told.error.unwrap().msg, "panic: runtime error");
    }

    #[test]
    fn what_is_missing_is_said_only_where_something_was_expected() {
        let none = |command, succeeded, state| PluginOutput::parse(command, succeeded, state, b"");
        assert!(
            none(&CniCommand::Add, true, pipe::OVERWRITTEN)
                .unread
                .is_some()
        );
        assert!(
            none(&CniCommand::Del, false, pipe::NO_PIPE)
                .unread
                .is_some()
        );
        assert_eq!(
            none(&CniCommand::Del, true, pipe::NO_PIPE),
            PluginOutput::default()
        );
        assert_eq!(
            none(&CniCommand::Del, false, pipe::EMPTY),
            PluginOutput::default()
        );
        assert!(answer("ADD", true, "fine").unread.is_some());
        assert_eq!(answer("DEL", true, "{}"), PluginOutput::default());
    }

    #[test]
    fn hostile_output_is_bounded_and_never_panics() {
        let long = format!(r#"{{"msg":"{}"}}"#, "x".repeat(100_000));
        assert_eq!(
            answer("ADD", false, &long).error.unwrap().msg.len(),
            MAX_TEXT
        );
        let deep = "[".repeat(100_000);
        assert_eq!(lenient(deep.as_bytes()), None);
        for bytes in [&b"\xff\xfe{"[..], b"{\"a\":\"\\", b"\"", b",", b"]"] {
            let _ = PluginOutput::parse(&CniCommand::Add, false, pipe::CUT, bytes);
        }
    }
}
