//! What a plugin complains of, finer than the causes that records have: it
//! decides on the remedy.
//!
//! What is in use or used up is told by the causes' own table
//! ([`sandbox_create_failed`](crate::detect::sandbox_create_failed)). The rest
//! is read here: the first line of [`TEXTS`] all of whose parts are there, in
//! whatever case; if none is, the error's code.

use crate::{detect::sandbox_create_failed::Cause, model::calls::CallResult};
use event::CniError;

/// How much of an error is read.
const MAX_TEXT: usize = 4 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::detect) enum Complaint {
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
    NoMemory,
    /// It took too long.
    Timeout,
    /// A signal ended the plugin.
    Killed,
    /// The plugin asks to be called again later.
    TryLater,
    /// The plugin does not like what it was given.
    BadConfig,
    Other,
}

use Complaint::{
    AddressInUse, AgentUnreachable, ApiUnreachable, BadConfig, Killed, NameConflict, NetnsGone,
    NoMemory, NoSpace, Other, PluginMissing, PortInUse, RangeExhausted, Timeout, TryLater,
    Unauthorized,
};

/// All parts must be there.
const TEXTS: &[(&[&str], Complaint)] = &[
    // A hostPort, in the words that an address has, too.
    (&["listen ", "bind: address already in use"], PortInUse),
    (&["cannot open hostport"], PortInUse),
    // bridge, ptp
    (&["container veth name", "already exists"], NameConflict),
    (&["failed to make veth pair", "exists"], NameConflict),
    (&["already exists but is not a bridge"], NameConflict),
    (&["already has an ip address different from"], NameConflict),
    (&["could not add ip address to"], NameConflict),
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

impl Complaint {
    /// Of a call that failed.
    pub(in crate::detect) fn of(end: &CallResult) -> Self {
        if end.signal.is_some() {
            return Killed;
        }
        match (Cause::of_end(end), &end.error) {
            (Cause::AddressInUse, _) => AddressInUse,
            (Cause::RangeExhausted, _) => RangeExhausted,
            (Cause::NoSpace, _) => NoSpace,
            (Cause::NodeMemory, _) => NoMemory,
            (_, Some(error)) => Self::of_error(error),
            (_, None) => Other,
        }
    }

    /// Of what a plugin said.
    fn of_error(error: &CniError) -> Self {
        let text = text_of(error);
        let has = |parts: &[&str]| parts.iter().all(|part| text.contains(part));
        let told = TEXTS.iter().find(|(parts, _)| has(parts));
        if let Some((_, complaint)) = told {
            return *complaint;
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
    use event::testing::s;

    fn failed(error: CniError) -> CallResult {
        CallResult {
            at: s(1),
            exit_code: Some(1),
            signal: None,
            duration_ms: 9.0,
            result: None,
            error: Some(error),
            log: false,
        }
    }

    fn of(code: u64, msg: &str) -> Complaint {
        Complaint::of(&failed(CniError {
            code: Some(code),
            msg: msg.to_owned(),
            details: None,
        }))
    }

    #[test]
    fn the_plugins_own_words_are_understood() {
        for (cause, msg) in [
            (
                RangeExhausted,
                "failed to allocate for range 0: no IP addresses available in range set: \
                 10.244.7.1-10.244.7.254",
            ),
            (
                RangeExhausted,
                "failed to request IPv4 addresses: Assigned 0 out of 1 requested IPv4 addresses; \
                 No more free affine blocks and strict affinity enabled",
            ),
            (
                RangeExhausted,
                "add cmd: failed to assign an IP address to container",
            ),
            (
                RangeExhausted,
                "error at storage engine: Could not allocate IP in range: ip: 10.10.0.1 / - \
                 10.10.0.254 / range: 10.10.0.0/24",
            ),
            (
                RangeExhausted,
                "unable to allocate IP via local cilium agent: [POST /ipam][502] postIpamFailure  \
                 range is full",
            ),
            (
                AddressInUse,
                "failed to allocate for range 0: requested IP address 10.0.0.9 is not available \
                 in range set 10.0.0.1-10.0.0.254",
            ),
            (
                AddressInUse,
                "failed to allocate for range 0: 10.1.0.5/24 has been allocated to d6fe7d733426b, \
                 duplicate allocation is not allowed",
            ),
            (
                AddressInUse,
                "FailedCreatePodSandbox; address already in use",
            ),
            (
                AddressInUse,
                "failed to add IP addr {Version:4 Interface:0xc000014 Address:{IP:10.0.4.61 \
                 Mask:ffffff00} Gateway:10.0.4.1} to \"eth0\": file exists",
            ),
            (
                AddressInUse,
                "route (Ifindex: 7, Dst: 192.168.8.34/32, Scope: link) already exists for an \
                 interface other than 'cali5d0ee4ce9b1'",
            ),
            (
                PortInUse,
                "cannot open hostport 8080 for pod shop_a_: listen tcp4 :8080: bind: address \
                 already in use",
            ),
            (
                NameConflict,
                "container veth name provided (eth0) already exists",
            ),
            (
                NameConflict,
                "failed to set bridge addr: \"cni0\" already has an IP address different from \
                 10.244.7.1/24",
            ),
            (
                NameConflict,
                "Error response from daemon: Conflict. The container name \"/k8s_POD_lomp_0\" is \
                 already in use by container \"30aa3f5847e0\".",
            ),
            (
                PluginMissing,
                "failed to find plugin \"host-local\" in path [/opt/cni/bin]",
            ),
            (
                NetnsGone,
                "failed to open netns \"/var/run/netns/cni-4f2a\": failed to Statfs \
                 \"/var/run/netns/cni-4f2a\": no such file or directory",
            ),
            (
                NetnsGone,
                "CNI failed to retrieve network namespace path: Cannot find network namespace for \
                 the terminated container \"41857f70ed13\"",
            ),
            (
                AgentUnreachable,
                "loadFlannelSubnetEnv failed: open /run/flannel/subnet.env: no such file or \
                 directory",
            ),
            (
                AgentUnreachable,
                "stat /var/lib/calico/nodename: no such file or directory: check that the \
                 calico/node container is running and has mounted /var/lib/calico/",
            ),
            (
                AgentUnreachable,
                "unable to connect to Cilium daemon: failed to create cilium agent client after \
                 30.000000 seconds timeout",
            ),
            (
                AgentUnreachable,
                "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error \
                 while dialing dial tcp 127.0.0.1:50051: connect: connection refused\"",
            ),
            (
                AgentUnreachable,
                "cmdAdd: error alloc ip, dial unix /var/run/eni/eni.socket: connect: connection \
                 refused",
            ),
            (
                Unauthorized,
                "error getting ClusterInformation: connection is unauthorized: Unauthorized",
            ),
            (
                ApiUnreachable,
                "error getting ClusterInformation: Get \"https://10.96.0.1:443/apis/crd.projectcalico.org/v1\
                 /clusterinformations/default\": dial tcp 10.96.0.1:443: i/o timeout",
            ),
            (
                ApiUnreachable,
                "Get https://10.96.0.1:443/api: context deadline exceeded",
            ),
            (
                Timeout,
                "netplugin failed with no error message: context deadline exceeded",
            ),
            (Timeout, "operation timeout: context deadline exceeded"),
            (
                NoSpace,
                "mkdir /var/lib/docker/aufs/mnt/1f09d6c1-init: no space left on device",
            ),
            (
                NoSpace,
                "open /var/lib/cni/networks/pods/10.0.0.5: No space left on device",
            ),
            (NoMemory, "failed to fork: cannot allocate memory"),
            (Killed, "netplugin failed: signal: killed"),
            (Other, "something else"),
            (Other, ""),
        ] {
            assert_eq!(of(999, msg), cause, "{msg}");
        }
    }

    #[test]
    fn a_text_that_says_nothing_leaves_the_code() {
        for (code, cause) in [
            (11, TryLater),
            (50, TryLater),
            (1, BadConfig),
            (4, BadConfig),
            (7, BadConfig),
            (3, NetnsGone),
            (5, Other),
            (100, Other),
        ] {
            assert_eq!(of(code, "no"), cause, "{code}");
        }
        assert_eq!(of(11, "no space left on device"), NoSpace);
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
        assert_eq!(Complaint::of(&failed(told)), Timeout);
        assert_eq!(Complaint::of(&failed(error(long + "i/o timeout"))), Other);
    }

    #[test]
    fn a_signal_says_more_than_what_was_said_before_it() {
        let end = CallResult {
            at: s(1),
            exit_code: None,
            signal: Some(9),
            duration_ms: 120_000.0,
            result: None,
            error: None,
            log: false,
        };
        assert_eq!(Complaint::of(&end), Killed);
        let silent = CallResult {
            exit_code: Some(1),
            signal: None,
            ..end
        };
        assert_eq!(Complaint::of(&silent), Other);
    }
}
