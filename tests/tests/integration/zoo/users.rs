//! What an unprivileged user of the node, or root in a pod, makes to be taken
//! for a pod: real processes, with what those may make.

use super::expect::finds;
use super::situation::{Device, Other, Pod, Situation};

const REAL: &str = "who has made a namespace or a cgroup is the kernel's to tell";

/// A program that waits, for all.
const TOOLS: &str = "mkdir -p /run/zoo/bin; cp /usr/bin/sleep /run/zoo/bin/mine";

/// What a user does: two network namespaces in a user namespace, with a pair of
/// veths whose numbers are those of a pod's. One has the pod's address. Only a
/// descriptor keeps it, unless the user stays inside.
const IMITATION: &str = r#"cat > /run/zoo/imitate.sh <<'END'
exec 5</proc/self/ns/net
exec unshare -n sh -ec '
  ip link add eth0 index $2 type veth peer name far index $3 netns /proc/self/fd/5
  ip addr add $1 dev eth0
  ip link set eth0 up
  [ -z "$4" ] || exec /run/zoo/bin/mine 1000
  exec 6</proc/self/ns/net
  exec nsenter --net=/proc/self/fd/5 /run/zoo/bin/mine 1000' sh "$@"
END"#;

/// The user does it, as to shop/web.
const IMITATE: &str = "set -- 10.244.7.2/24 $(nsenter --net={shop/web} ip -o link show eth0 | sed 's/: eth0@if/ /; s/:.*//'); \
    (exec setpriv --reuid 65534 --clear-groups unshare -U -r -n sh /run/zoo/imitate.sh \"$@\") </dev/null >/dev/null & \
    settled mine 1";

/// The user does it, in a delegated cgroup that has the name of that of shop/api.
const BOTH: &str = "set -- 10.244.7.2/24 $(nsenter --net={shop/web} ip -o link show eth0 | sed 's/: eth0@if/ /; s/:.*//') inside; \
    mkdir /sys/fs/cgroup/lab; chown 65534 /sys/fs/cgroup/lab /sys/fs/cgroup/lab/cgroup.*; \
    (echo 0 > /sys/fs/cgroup/lab/cgroup.procs; exec setpriv --reuid 65534 --clear-groups sh -ec '\
        P=/sys/fs/cgroup/lab{cgroup shop/api}; mkdir -p $P; echo 0 > $P/cgroup.procs; \
        exec unshare -U -r -n sh /run/zoo/imitate.sh \"$@\"' sh \"$@\") </dev/null >/dev/null & \
    settled mine 1";

/// A cgroup that was delegated to a user, in which they play kubelet.
const DELEGATED: &str = "mkdir /sys/fs/cgroup/lab; chown 65534 /sys/fs/cgroup/lab /sys/fs/cgroup/lab/cgroup.*; \
    P=/lab/kubepods/besteffort/podaaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee/$(printf %064d 7); \
    setpriv --reuid 65534 --clear-groups mkdir -p /sys/fs/cgroup$P";

/// Something that is stuck there, on /run/hang, with an address.
const STUCK: &str = "hang $P /run/netns/lab dd # /run/hang";

/// What libcni remembers of a sandbox of which nothing else is left.
const REMEMBERED: &str = r#"cat > /var/lib/cni/results/podnet-$(printf %064d 9)-eth0 <<END
{"kind":"cniCacheV1","containerId":"$(printf %064d 9)","ifName":"eth0","networkName":"podnet","netns":"/run/netns/cni-9",
 "cniArgs":[["K8S_POD_NAMESPACE","shop"],["K8S_POD_NAME","gone"],["K8S_POD_UID","99999999-bbbb-cccc-dddd-eeeeeeeeeeee"]],
 "result":{"cniVersion":"1.0.0","interfaces":[{"name":"cni0"},{"name":"veth9"},
  {"name":"eth0","mac":"02:00:00:00:00:09","sandbox":"/run/netns/cni-9"}],"ips":[{"address":"10.244.7.9/24"}]}}
END"#;

/// A namespace that only a descriptor keeps, with a device that has the MAC and
/// the address of that sandbox.
const FORGERY: &str = r#"cat > /run/zoo/forge.sh <<'END'
exec 5</proc/self/ns/net
exec unshare -n sh -ec '
  ip link add eth0 address 02:00:00:00:00:09 type veth peer name far
  ip addr add 10.244.7.9/24 dev eth0
  ip link set eth0 up
  exec 6</proc/self/ns/net
  exec nsenter --net=/proc/self/fd/5 /run/zoo/bin/mine 1000'
END"#;

/// Root in a pod makes one.
const FORGE: &str = "(echo 0 > /sys/fs/cgroup{cgroup shop/api}/cgroup.procs; \
    exec nsenter --net={shop/api} unshare -U -r -n sh /run/zoo/forge.sh) </dev/null >/dev/null & \
    settled mine 1";

/// A pod with a user namespace of its own, on the bridge, which all have forgotten.
const FORGOTTEN: &str = "cp /usr/bin/sleep /run/zoo/bin/forgotten; \
    (exec unshare -U -r -n /run/zoo/bin/forgotten 1000) </dev/null >/dev/null & \
    settled forgotten 1; F=$(grep -lx forgotten /proc/[0-9]*/comm | cut -d/ -f3); \
    ip link add veth8 type veth peer name eth0 netns /proc/$F/ns/net; ip link set veth8 master cni0 up; \
    nsenter --net=/proc/$F/ns/net sh -c 'ip addr add 10.244.7.2/24 dev eth0; ip link set eth0 up'";

/// Root in another pod gives a pair of veths in its own namespaces the numbers
/// of that one's, and the address.
const ANOTHERS_NUMBERS: &str = "set -- 10.244.7.2/24 $(nsenter --net=/proc/$F/ns/net ip -o link show eth0 | sed 's/: eth0@if/ /; s/:.*//'); \
    (echo 0 > /sys/fs/cgroup{cgroup shop/api}/cgroup.procs; \
     exec unshare -U -r -n sh /run/zoo/imitate.sh \"$@\") </dev/null >/dev/null & \
    settled mine 1";

fn row(name: &'static str) -> Situation {
    Situation::new(name)
        .pod(Pod::new("shop/web", "10.244.7.2/24"))
        .pod(Pod::new("shop/api", "10.244.7.3/24"))
        .shell(TOOLS)
        .real(REAL)
}

fn lab(name: &'static str) -> Situation {
    let device = Device::veth("eth0").to("cni0").ip("10.244.7.99/24");
    row(name)
        .other(Other::at("lab", "/run/netns/lab").device(device))
        .shell(DELEGATED)
        .quiet()
        .silent("ghost-sandbox")
        .may("blocked-task")
}

fn imitated(name: &'static str) -> Situation {
    row(name).shell(IMITATION).quiet().finds(
        finds("duplicate-address")
            .info()
            .about("shop/web")
            .about("user 65534")
            .times(1),
    )
}

fn forged(name: &'static str) -> Situation {
    let row = row(name)
        .shell(REMEMBERED)
        .shell(FORGERY)
        .quiet()
        .silent("ghost-sandbox");
    row.may("missing-del").may("leaked-reservation")
}

/// Those of one look.
pub(super) fn rows() -> Vec<Situation> {
    vec![
        imitated("a user gives a pod's address to a namespace that looks plugged in")
            .shell(IMITATE),
        imitated("a user does that in the name of another pod").shell(BOTH),
        lab("a user names a delegated cgroup as kubelet names a pod's").shell(STUCK),
        forged("root in a pod gives a namespace the MAC and address of a sandbox that is gone")
            .shell(FORGE),
        row("root in a pod numbers a cable as that of a forgotten pod, whose address is another's")
            .shell(IMITATION)
            .shell(FORGOTTEN)
            .shell(ANOTHERS_NUMBERS)
            .quiet()
            .finds(
                finds("duplicate-address")
                    .warning()
                    .about("shop/web")
                    .times(1),
            ),
    ]
}

/// Those under `trace`.
pub(super) fn traced() -> Vec<Situation> {
    vec![
        imitated("traced: a user gives a pod's address to a namespace that looks plugged in")
            .later(IMITATE),
        imitated("traced: a user has given a pod's address to a namespace").shell(IMITATE),
        lab("traced: a user has named a delegated cgroup as kubelet names a pod's").shell(STUCK),
    ]
}
