//! What an unprivileged user of the node makes to be taken for a pod: real
//! processes of a user, with what any user may make.

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

/// Those of one look.
pub(super) fn rows() -> Vec<Situation> {
    vec![
        imitated("a user gives a pod's address to a namespace that looks plugged in")
            .shell(IMITATE),
        imitated("a user does that in the name of another pod").shell(BOTH),
        lab("a user names a delegated cgroup as kubelet names a pod's").shell(STUCK),
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
