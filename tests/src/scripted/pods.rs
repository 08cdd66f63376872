//! What the scripted plugins have in common: whose call it is, and the cable of
//! a pod that is routed to, not bridged. Calico and Terway both make it so.

/// Shell functions.
///
/// * `arg KEY`: a value of `CNI_ARGS`.
/// * `cable`: name of the host-side end, which both make of the pod's name.
/// * `wire ADDRESS`: cable, address, the default route by 169.254.1.1 with its
///   permanent neighbour, and the host's route to the pod.
/// * `unwire ADDRESS DEVICE`: takes the host's part back.
/// * `answer ADDRESS`, `fail CODE MESSAGE`: the result, the error; one write.
pub(crate) const FUNCTIONS: &str = r#"
PATH=/usr/sbin:/usr/bin:/sbin:/bin
cat >/dev/null

arg() {
    rest=${CNI_ARGS#*"$1="}
    printf '%s' "${rest%%;*}"
}
fail() {
    printf '{"cniVersion":"0.4.0","code":%s,"msg":"%s"}' "$1" "$2"
    exit 1
}
answer() {
    printf '{"cniVersion":"0.4.0","interfaces":[{"name":"%s"}],"ips":[{"version":"4","address":"%s/32"}],"dns":{}}' "$device" "$1"
}
pod=$(arg K8S_POD_NAMESPACE).$(arg K8S_POD_NAME)
device=cali$(printf '%s' "$pod" | sha1sum | cut -c1-11)

wire() {
    inner=${CNI_NETNS##*/}
    peer=peer$$
    # One of this name is an earlier sandbox's of the same pod.
    ip link del "$device" 2>/dev/null
    ip link add "$device" address ee:ee:ee:ee:ee:ee type veth peer name "$peer" &&
        ip link set "$peer" netns "$inner" name "$CNI_IFNAME" &&
        ip link set "$device" up &&
        ip -n "$inner" link set "$CNI_IFNAME" up &&
        ip -n "$inner" route add 169.254.1.1 dev "$CNI_IFNAME" scope link &&
        ip -n "$inner" route add default via 169.254.1.1 dev "$CNI_IFNAME" &&
        ip -n "$inner" neigh replace 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee \
            dev "$CNI_IFNAME" nud permanent &&
        ip route replace "$1/32" dev "$device" scope link &&
        ip -n "$inner" addr add "$1/32" dev "$CNI_IFNAME"
}
unwire() {
    ip route del "$1/32" dev "$2" 2>/dev/null
    ip link del "$2" 2>/dev/null
    :
}
"#;
