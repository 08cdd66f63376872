//! The runtime's own socket, and names that are taken.

use super::{
    super::Cause::{NameConflict, RuntimeUnavailable},
    Row, row,
};

/// Of a connection that was not to be had.
const NOBODY_ANSWERS: &[&str] = &[
    "connection refused",
    "no such file or directory",
    "connection reset by peer",
    "broken pipe",
    "use of closed network connection",
    "eof",
    "transport is closing",
    "transport: error while dialing",
    "connection error",
    "permission denied",
    "connection closed",
    "no route to host",
];

/// The sockets of runtimes.
const RUNTIMES_SOCKETS: &[&str] = &[
    "containerd.sock",
    "docker.sock",
    "dockershim.sock",
    "cri-dockerd.sock",
    "crio.sock",
    "frakti.sock",
    "shim.sock",
    "containerd-shim*",
    "/run/containerd/s/*",
    "/containerd/s/*",
    "docker/containerd/*",
];

/// In this order.
pub(super) const ROWS: &[Row] = &[
    // 3. The runtime's own socket, and what runs behind it.
    row(
        RuntimeUnavailable,
        &[
            "cannot connect to the docker daemon",
            "is the docker daemon running",
            "ttrpc: client shutting down",
            "ttrpc: closed",
            "ttrpc: server closed",
            "client shutting down",
            "failed to start shim",
            "failed to start containerd-shim",
            "start failed .. shim",
            "shim .. is dead",
            "shim .. has exited",
            "shim .. exited unexpectedly",
            "shim disconnected",
            "dead shim",
            "containerd-shim* .. executable file not found",
            "containerd-shim* .. no such file or directory",
            "runc\": executable file not found*",
            "crun\": executable file not found*",
            "conmon\": executable file not found*",
            "fork/exec .. runc: no such file or directory",
            "fork/exec .. conmon: no such file or directory",
            "no runtime for",
            "unknown runtime specified",
            "unknown or invalid runtime name",
            "runtime handler .. not found",
            "runtime handler .. not supported",
            "runtimehandler .. not supported",
            "runtimehandler .. not found",
            "failed to find runtime handler",
            "runtime .. binary not installed",
            "failed to get sandbox runtime",
            "unknown service runtime.*",
            "container runtime is down",
            "container runtime is not running",
            "container runtime status check may not have completed yet",
            "runtime is not ready",
            "docker daemon is not running",
            "containerd is not running",
            "server is not initialized yet",
            "server is not ready yet",
            "grpc: the client connection is closing",
            "grpc: the connection is unavailable",
            "docker-runc not installed",
            "not installed on system",
            "client connection is closing",
        ],
    )
    .without(&[
        "plugin type=*",
        "failed (add)",
        "cni plugin not initialized",
    ]),
    // Any server's words: those of a storage driver, of a registry and of a
    // network's agent belong to what they were asked for.
    row(
        RuntimeUnavailable,
        &[
            "code = unavailable",
            "all subconns are in transientfailure",
            "transport is closing",
            "error reading from server: eof",
        ],
    )
    .without(&[
        "mountvolume.*",
        "attachvolume.*",
        "csi*",
        "failed to pull*",
        "pull image",
        "plugin type=*",
        "(add)",
        "networkplugin",
        "add cmd",
        "network for",
        "subconns .. 127.0.0.1",
    ]),
    row(RuntimeUnavailable, RUNTIMES_SOCKETS)
        .with(NOBODY_ANSWERS)
        .without(&["plugin type=*", "failed (add)"]),
    row(RuntimeUnavailable, RUNTIMES_SOCKETS).with(&["bind: address already in use"]),
    // 4. Names that are taken.
    row(
        NameConflict,
        &[
            "name is reserved",
            "is reserved for",
            "already reserved for",
            "reserve sandbox name",
            "reserve container name",
            "reserving pod name",
            "reserving ctr name",
            "reserving container name",
            "reserving sandbox name",
            "container name .. already in use",
            "container name .. is in use",
            "name is already in use",
            "name .. is already in use by container",
            "name .. is already in use by pod",
            "name .. already in use by",
            "name .. is already used by",
            "conflict. the container name",
            "conflict. the name",
            "conflict .. the container name",
            "pod sandbox .. already exists",
            "sandbox with name .. already exists",
            "container with id .. already exists",
            "container with id exists",
            "container with given id already exists",
            "container id .. already exists",
            "id already in use",
            "id already exists",
            "containerd container .. already exists",
            "container name .. already exists",
            "task .. already exists",
            "sandbox .. already exists",
        ],
    )
    .without(&["veth", "veths", "bridge", "volumeattachment*"]),
];
