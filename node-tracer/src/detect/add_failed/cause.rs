//! Why a CNI call failed, in one word: by the signal that ended it, by what
//! the plugin said, and if that says nothing, by the error's code.
//!
//! The texts are the plugins' own, without case. The first line of the table
//! all of whose parts are there decides, so what is more special stands first.

use crate::{event::CniError, model::calls::End};

/// How much of an error is read.
const MAX_TEXT: usize = 4 << 10;

/// The words of `cause`; they are added to, never renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::detect) enum Cause {
    /// Somebody else has the address, or has it reserved.
    AddressInUse,
    /// There is no address left.
    RangeExhausted,
    /// A port of the host is taken.
    PortInUse,
    /// A device, or a container, of that name is there already.
    NameConflict,
    /// The sandbox's namespace is not there.
    NetnsGone,
    /// The binary of a plugin is not there.
    PluginMissing,
    /// The plugin's own daemon on the node does not answer, or has not written
    /// what the plugin needs.
    AgentUnreachable,
    /// The API server, or another server over the network, does not answer.
    ApiUnreachable,
    /// It answers, and refuses.
    Unauthorized,
    /// The disk is full.
    NoSpace,
    /// There is no memory.
    NoMemory,
    /// It took too long.
    Timeout,
    /// A signal ended the plugin.
    Killed,
    /// The plugin asks to be called again later.
    TryLater,
    /// The plugin does not like what it was given.
    BadConfig,
    /// None of these.
    Other,
}

use Cause::{
    AddressInUse, AgentUnreachable, ApiUnreachable, BadConfig, Killed, NameConflict, NetnsGone,
    NoMemory, NoSpace, Other, PluginMissing, PortInUse, RangeExhausted, Timeout, TryLater,
    Unauthorized,
};

/// All parts must be there.
const TEXTS: &[(&[&str], Cause)] = &[
    (&["no space left on device"], NoSpace),
    (&["disk quota exceeded"], NoSpace),
    (&["cannot allocate memory"], NoMemory),
    // host-local
    (&["no ip addresses available in range set"], RangeExhausted),
    (&["requested ip address", "is not available"], AddressInUse),
    (&["duplicate allocation is not allowed"], AddressInUse),
    // Calico
    (&["assigned 0 out of", "requested ipv"], RangeExhausted),
    (&["no ips available in pools"], RangeExhausted),
    (&["already assigned in block"], AddressInUse),
    (
        &["route", "already exists for an interface other than"],
        AddressInUse,
    ),
    (
        &["error adding host side routes", "file exists"],
        AddressInUse,
    ),
    // Cilium
    (&["range is full"], RangeExhausted),
    (&["provided ip is already allocated"], AddressInUse),
    // AWS VPC CNI, Whereabouts, Terway
    (
        &["failed to assign an ip address to container"],
        RangeExhausted,
    ),
    (&["could not allocate ip in range"], RangeExhausted),
    (&["ipnotenough"], RangeExhausted),
    // A hostPort, in the words that an address has, too.
    (&["listen ", "bind: address already in use"], PortInUse),
    (&["cannot open hostport"], PortInUse),
    (&["address already in use"], AddressInUse),
    (&["failed to add ip addr", "file exists"], AddressInUse),
    // bridge, ptp
    (&["container veth name", "already exists"], NameConflict),
    (&["failed to make veth pair", "exists"], NameConflict),
    (&["already exists but is not a bridge"], NameConflict),
    (&["already has an ip address different from"], NameConflict),
    // dockershim
    (&["the container name", "already in use"], NameConflict),
    (&["failed to find plugin"], PluginMissing),
    (&["executable file not found"], PluginMissing),
    (&["/cni/bin/", "no such file or directory"], PluginMissing),
    (&["failed to statfs"], NetnsGone),
    (&["failed to open netns"], NetnsGone),
    (&["unknown fs magic"], NetnsGone),
    (&["cannot find network namespace"], NetnsGone),
    // flannel, Calico, Cilium, Multus: what their daemons write or answer.
    (&["/run/flannel/subnet.env"], AgentUnreachable),
    (&["/var/lib/calico/nodename"], AgentUnreachable),
    (&["cilium daemon"], AgentUnreachable),
    (&["cilium agent"], AgentUnreachable),
    (&["readinessindicatorfile"], AgentUnreachable),
    (&["dial unix"], AgentUnreachable),
    (&["dial tcp 127.0.0.1"], AgentUnreachable),
    (&["dial tcp [::1]"], AgentUnreachable),
    (&["unauthorized"], Unauthorized),
    (&["forbidden"], Unauthorized),
    (&["x509:"], Unauthorized),
    (&["dial tcp"], ApiUnreachable),
    (&["connection refused"], ApiUnreachable),
    (&["no route to host"], ApiUnreachable),
    (&["network is unreachable"], ApiUnreachable),
    (&["no such host"], ApiUnreachable),
    (&["tls handshake timeout"], ApiUnreachable),
    (&["https://", "deadline exceeded"], ApiUnreachable),
    (&["client.timeout exceeded"], ApiUnreachable),
    (&["etcd cluster is unavailable"], ApiUnreachable),
    (&["context deadline exceeded"], Timeout),
    (&["context canceled"], Timeout),
    (&["operation timeout"], Timeout),
    (&["timed out"], Timeout),
    (&["timeout"], Timeout),
    (&["signal: killed"], Killed),
];

impl Cause {
    /// The name in records.
    pub(in crate::detect) fn as_str(self) -> &'static str {
        match self {
            AddressInUse => "address-in-use",
            RangeExhausted => "range-exhausted",
            PortInUse => "port-in-use",
            NameConflict => "name-conflict",
            NetnsGone => "netns-gone",
            PluginMissing => "plugin-missing",
            AgentUnreachable => "agent-unreachable",
            ApiUnreachable => "api-unreachable",
            Unauthorized => "unauthorized",
            NoSpace => "no-space",
            NoMemory => "no-memory",
            Timeout => "timeout",
            Killed => "killed",
            TryLater => "try-later",
            BadConfig => "bad-config",
            Other => "other",
        }
    }

    /// Of a call that failed.
    pub(in crate::detect) fn of(end: &End) -> Self {
        if end.signal.is_some() {
            return Killed;
        }
        end.error.as_ref().map_or(Other, Self::of_error)
    }

    /// Of what a plugin said.
    pub(in crate::detect) fn of_error(error: &CniError) -> Self {
        let text = text_of(error);
        let has = |parts: &[&str]| parts.iter().all(|part| text.contains(part));
        let told = TEXTS.iter().find(|(parts, _)| has(parts));
        if let Some((_, cause)) = told {
            return *cause;
        }
        match error.code {
            Some(11 | 50 | 51) => TryLater,
            Some(1 | 2 | 4 | 6 | 7) => BadConfig,
            Some(3) => NetnsGone,
            _ => Other,
        }
    }
}

/// Message and details, without case, as far as they are read.
fn text_of(error: &CniError) -> String {
    let details = error.details.as_deref().unwrap_or_default();
    let first = |text: &str| -> String {
        let text = text.chars().take(MAX_TEXT);
        text.map(|c| c.to_ascii_lowercase()).collect()
    };
    format!("{}\n{}", first(&error.msg), first(details))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::story::s;

    fn of(code: u64, msg: &str) -> &'static str {
        let error = CniError {
            code: Some(code),
            msg: msg.to_owned(),
            details: None,
        };
        Cause::of_error(&error).as_str()
    }

    #[test]
    fn the_plugins_own_words_are_understood() {
        for (cause, msg) in [
            (
                "range-exhausted",
                "failed to allocate for range 0: no IP addresses available in range set: \
                 10.244.7.1-10.244.7.254",
            ),
            (
                "range-exhausted",
                "failed to request IPv4 addresses: Assigned 0 out of 1 requested IPv4 addresses; \
                 No more free affine blocks and strict affinity enabled",
            ),
            (
                "range-exhausted",
                "add cmd: failed to assign an IP address to container",
            ),
            (
                "range-exhausted",
                "error at storage engine: Could not allocate IP in range: ip: 10.10.0.1 / - \
                 10.10.0.254 / range: 10.10.0.0/24",
            ),
            (
                "range-exhausted",
                "unable to allocate IP via local cilium agent: [POST /ipam][502] postIpamFailure  \
                 range is full",
            ),
            (
                "address-in-use",
                "failed to allocate for range 0: requested IP address 10.0.0.9 is not available \
                 in range set 10.0.0.1-10.0.0.254",
            ),
            (
                "address-in-use",
                "failed to allocate for range 0: 10.1.0.5/24 has been allocated to d6fe7d733426b, \
                 duplicate allocation is not allowed",
            ),
            (
                "address-in-use",
                "FailedCreatePodSandbox; address already in use",
            ),
            (
                "address-in-use",
                "failed to add IP addr {Version:4 Interface:0xc000014 Address:{IP:10.0.4.61 \
                 Mask:ffffff00} Gateway:10.0.4.1} to \"eth0\": file exists",
            ),
            (
                "address-in-use",
                "route (Ifindex: 7, Dst: 192.168.8.34/32, Scope: link) already exists for an \
                 interface other than 'cali5d0ee4ce9b1'",
            ),
            (
                "port-in-use",
                "cannot open hostport 8080 for pod shop_a_: listen tcp4 :8080: bind: address \
                 already in use",
            ),
            (
                "name-conflict",
                "container veth name provided (eth0) already exists",
            ),
            (
                "name-conflict",
                "failed to set bridge addr: \"cni0\" already has an IP address different from \
                 10.244.7.1/24",
            ),
            (
                "name-conflict",
                "Error response from daemon: Conflict. The container name \"/k8s_POD_lomp_0\" is \
                 already in use by container \"30aa3f5847e0\".",
            ),
            (
                "plugin-missing",
                "failed to find plugin \"host-local\" in path [/opt/cni/bin]",
            ),
            (
                "netns-gone",
                "failed to open netns \"/var/run/netns/cni-4f2a\": failed to Statfs \
                 \"/var/run/netns/cni-4f2a\": no such file or directory",
            ),
            (
                "netns-gone",
                "CNI failed to retrieve network namespace path: Cannot find network namespace for \
                 the terminated container \"41857f70ed13\"",
            ),
            (
                "agent-unreachable",
                "loadFlannelSubnetEnv failed: open /run/flannel/subnet.env: no such file or \
                 directory",
            ),
            (
                "agent-unreachable",
                "stat /var/lib/calico/nodename: no such file or directory: check that the \
                 calico/node container is running and has mounted /var/lib/calico/",
            ),
            (
                "agent-unreachable",
                "unable to connect to Cilium daemon: failed to create cilium agent client after \
                 30.000000 seconds timeout",
            ),
            (
                "agent-unreachable",
                "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error \
                 while dialing dial tcp 127.0.0.1:50051: connect: connection refused\"",
            ),
            (
                "agent-unreachable",
                "cmdAdd: error alloc ip, dial unix /var/run/eni/eni.socket: connect: connection \
                 refused",
            ),
            (
                "unauthorized",
                "error getting ClusterInformation: connection is unauthorized: Unauthorized",
            ),
            (
                "api-unreachable",
                "error getting ClusterInformation: Get \"https://10.96.0.1:443/apis/crd.projectcalico.org/v1\
                 /clusterinformations/default\": dial tcp 10.96.0.1:443: i/o timeout",
            ),
            (
                "api-unreachable",
                "Get https://10.96.0.1:443/api: context deadline exceeded",
            ),
            (
                "timeout",
                "netplugin failed with no error message: context deadline exceeded",
            ),
            ("timeout", "operation timeout: context deadline exceeded"),
            (
                "no-space",
                "mkdir /var/lib/docker/aufs/mnt/1f09d6c1-init: no space left on device",
            ),
            (
                "no-space",
                "open /var/lib/cni/networks/pods/10.0.0.5: No space left on device",
            ),
            ("no-memory", "failed to fork: cannot allocate memory"),
            ("killed", "netplugin failed: signal: killed"),
            ("other", "something else"),
            ("other", ""),
        ] {
            assert_eq!(of(999, msg), cause, "{msg}");
        }
    }

    #[test]
    fn a_text_that_says_nothing_leaves_the_code() {
        for (code, cause) in [
            (11, "try-later"),
            (50, "try-later"),
            (1, "bad-config"),
            (4, "bad-config"),
            (7, "bad-config"),
            (3, "netns-gone"),
            (5, "other"),
            (100, "other"),
        ] {
            assert_eq!(of(code, "no"), cause, "{code}");
        }
        assert_eq!(of(11, "no space left on device"), "no-space");
    }

    #[test]
    fn details_count_and_are_not_read_for_ever() {
        let long = "x".repeat(1 << 20);
        let error = |details: String| CniError {
            code: None,
            msg: String::from("failed"),
            details: Some(details),
        };
        let told = error(String::from("i/o timeout"));
        assert_eq!(Cause::of_error(&told), Timeout);
        assert_eq!(Cause::of_error(&error(long + "i/o timeout")), Other);
    }

    #[test]
    fn a_signal_says_more_than_what_was_said_before_it() {
        let end = End {
            at: s(1),
            exit_code: None,
            signal: Some(9),
            duration_ms: 120_000.0,
            result: None,
            error: None,
            log: false,
        };
        assert_eq!(Cause::of(&end), Killed);
        let silent = End {
            exit_code: Some(1),
            signal: None,
            ..end
        };
        assert_eq!(Cause::of(&silent), Other);
    }
}
