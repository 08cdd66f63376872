//! The kernel's list of network namespaces, with every device and address in
//! each, read without entering any and without a lock.
//!
//! The iterator target is of no interest (the list of BPF maps, because it is
//! short): the program does its work at the first element and goes through
//! `net_namespace_list` and the device and address lists below it by itself.
//! A list that changes underneath is safe (the reads are checked, the nodes
//! are freed by RCU) and shows either state.
//!
//! Anybody who may make a namespace can put any number of devices and
//! addresses into it. Of each namespace a walk of all reports no more items
//! than the tracer asks for, and passes over the rest without a look at it:
//! nobody's items cost another one's. A walk of a single namespace goes on
//! where the last one has stopped.

use core::ffi::c_void;

use aya_ebpf::{
    helpers::bpf_loop,
    macros::map,
    maps::{Array, RingBuf},
};
use node_tracer_ebpf::{
    layout::ABSENT,
    record::{Header, NetnsRecord, WalkAddress, WalkDevice, kind},
};

use super::task::{IterMeta, WALK_REQUEST};
use crate::kernel::{describe_net, header, load, load_into, load_text, offset};

/// Filled by the walk, emptied by the tracer before the next.
#[map]
static WALK: RingBuf = RingBuf::with_byte_size(1 << 19, 0);

/// Where the walk stands. In a map, and not on the stack: of what is read out of a
/// map the verifier knows nothing, so one step is as any other. (Each step anew, the
/// newest kernels come to no end.)
#[map]
static PLACE: Array<Place> = Array::with_max_entries(1, 0);

/// Steps of one walk: some 20 ms, for which it holds back what waits for RCU.
const MAX_STEPS: u32 = 1 << 19;
/// `IFF_LOOPBACK`
const IFF_LOOPBACK: u32 = 8;

const AT_NET: u32 = 0;
const AT_DEVICE: u32 = 1;
const AT_IPV4: u32 = 2;
const AT_IPV6: u32 = 3;

#[repr(C)]
struct Place {
    /// One of the above.
    at: u32,
    /// Namespaces passed, the one being looked at included.
    seen: u32,
    /// As the request has them.
    skip: u32,
    bare: u32,
    skip_items: u32,
    limit: u32,
    only: u64,
    /// Items of the current namespace passed, the one being looked at
    /// included; addresses among them.
    item: u32,
    addresses: u32,
    /// 1 at the end of the list.
    complete: u32,
    pad: u32,
    /// The list's head: a node that lies in no namespace.
    head: u64,
    /// `net.list` of the current namespace.
    net_node: u64,
    /// `net.dev_base_head`
    dev_head: u64,
    /// `net_device.dev_list` of the current device.
    dev_node: u64,
    /// The next IPv4 address.
    ifa: u64,
    /// `inet6_dev.addr_list`
    ifa6_head: u64,
    /// `inet6_ifaddr.if_list` of the next IPv6 address.
    ifa6_node: u64,
}

const STOP: i64 = 1;
const GO_ON: i64 = 0;

#[inline(always)]
fn device(place: &Place) -> u64 {
    place.dev_node - u64::from(offset!(dev_list))
}

#[inline(always)]
fn send<T: 'static>(record: &T) -> i64 {
    // A full buffer ends the walk; the tracer goes on from where it stood.
    if WALK.output::<T>(record, 0).is_err() {
        STOP
    } else {
        GO_ON
    }
}

#[inline(always)]
fn timeless(kind: u32) -> Header {
    Header {
        kind,
        pad: 0,
        time: 0,
    }
}

/// Whether the item that the walk has come to is to be reported.
#[inline(always)]
fn is_wanted(place: &Place) -> bool {
    place.item > place.skip_items && place.limit != 0
}

/// Whether the items to be reported all have been.
#[inline(always)]
fn is_over(place: &Place) -> bool {
    place.limit != 0 && place.item >= place.skip_items + place.limit
}

/// Passes over the rest of the namespace; one that was asked for alone is not
/// at its end.
#[inline(always)]
fn leave(place: &mut Place) -> i64 {
    place.at = AT_NET;
    if place.only == 0 { GO_ON } else { STOP }
}

#[inline(always)]
fn at_net(place: &mut Place) -> i64 {
    let node: u64 = load(place.net_node, 0);
    if node == 0 || node == place.head {
        place.complete = u32::from(node != 0);
        return STOP;
    }
    place.net_node = node;
    place.seen += 1;
    let net = node - u64::from(offset!(net_list));
    if place.seen <= place.skip || (place.only != 0 && place.only != net) {
        return GO_ON;
    }
    if place.seen > place.skip + place.bare {
        place.item = 0;
        place.addresses = 0;
        place.dev_head = net + u64::from(offset!(net_dev_base_head));
        place.dev_node = load(place.dev_head, 0);
        place.at = AT_DEVICE;
    }
    send(&NetnsRecord {
        header: header(kind::WALK_NETNS),
        net: describe_net(net),
        ..NetnsRecord::default()
    })
}

#[inline(always)]
fn at_device(place: &mut Place) -> i64 {
    if place.dev_node == 0 || place.dev_node == place.dev_head {
        place.at = AT_NET;
        place.complete = u32::from(place.only != 0);
        return if place.only == 0 { GO_ON } else { STOP };
    }
    let dev = device(place);
    if load::<u32>(dev, offset!(dev_flags)) & IFF_LOOPBACK != 0 {
        place.dev_node = load(place.dev_node, 0);
        return GO_ON;
    }
    if is_over(place) {
        return leave(place);
    }
    let in_dev: u64 = load(dev, offset!(dev_ip_ptr));
    place.ifa = load(in_dev, offset!(in_dev_ifa_list));
    place.at = AT_IPV4;
    place.item += 1;
    if !is_wanted(place) {
        return GO_ON;
    }
    let mut record = WalkDevice {
        header: timeless(kind::WALK_DEVICE),
        ifindex: load(dev, offset!(dev_ifindex)),
        ..WalkDevice::default()
    };
    load_into(&mut record.ifname, dev, offset!(dev_name));
    let ops: u64 = load(dev, offset!(dev_link_ops));
    let kind: u64 = load(ops, offset!(link_ops_kind));
    load_text(kind, &mut record.link_kind);
    send(&record)
}

#[inline(always)]
fn at_ipv4(place: &mut Place) -> i64 {
    if place.ifa == 0 {
        let in6_dev: u64 = load(device(place), offset!(dev_ip6_ptr));
        place.ifa6_head = match in6_dev {
            0 => 0,
            _ => in6_dev + u64::from(offset!(in6_dev_addr_list)),
        };
        place.ifa6_node = load(place.ifa6_head, 0);
        place.at = AT_IPV6;
        return GO_ON;
    }
    if is_over(place) {
        return leave(place);
    }
    let ifa = place.ifa;
    place.ifa = load(ifa, offset!(ifa_next));
    place.item += 1;
    place.addresses += 1;
    if !is_wanted(place) {
        return GO_ON;
    }
    let mut record = blank(place, 4);
    load_into::<[u8; 4]>(
        // The first four of sixteen bytes.
        record.address.first_chunk_mut().unwrap_or(&mut [0; 4]),
        ifa,
        offset!(ifa_local),
    );
    load_into(&mut record.prefix, ifa, offset!(ifa_prefixlen));
    send(&record)
}

#[inline(always)]
fn at_ipv6(place: &mut Place) -> i64 {
    if place.ifa6_node == 0 || place.ifa6_node == place.ifa6_head {
        place.dev_node = load(place.dev_node, 0);
        place.at = AT_DEVICE;
        return GO_ON;
    }
    if is_over(place) {
        return leave(place);
    }
    let ifa = place.ifa6_node - u64::from(offset!(ifa6_list));
    place.ifa6_node = load(place.ifa6_node, 0);
    place.item += 1;
    place.addresses += 1;
    if !is_wanted(place) {
        return GO_ON;
    }
    let mut record = blank(place, 6);
    load_into(&mut record.address, ifa, offset!(ifa6_addr));
    record.prefix = load::<u32>(ifa, offset!(ifa6_prefix_len)) as u8;
    record.flags = load::<u32>(ifa, offset!(ifa6_flags)) as u16;
    send(&record)
}

#[inline(always)]
fn blank(place: &Place, family: u8) -> WalkAddress {
    WalkAddress {
        header: timeless(kind::WALK_ADDRESS),
        ifindex: load(device(place), offset!(dev_ifindex)),
        family,
        ..WalkAddress::default()
    }
}

extern "C" fn step(_index: u64, _: *mut c_void) -> i64 {
    let Some(place) = PLACE.get_ptr_mut(0) else {
        return STOP;
    };
    // SAFETY: the map's own value; the tracer runs one walk at a time.
    let place = unsafe { &mut *place };
    match place.at {
        AT_NET => at_net(place),
        AT_DEVICE => at_device(place),
        AT_IPV4 => at_ipv4(place),
        _ => at_ipv6(place),
    }
}

#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/bpf_map")]
extern "C" fn net_walk(ctx: *mut c_void) -> i32 {
    // SAFETY: the kernel hands a bpf_iter__bpf_map, which starts with meta.
    let seq_num = unsafe { (*(*ctx.cast::<*const IterMeta>())).seq_num };
    let (Some(request), Some(place)) = (WALK_REQUEST.get_ptr_mut(0), PLACE.get_ptr_mut(0)) else {
        return 0;
    };
    // SAFETY: both are the maps' own values; the tracer runs one walk at a time.
    let (request, place) = unsafe { (&mut *request, &mut *place) };
    if seq_num != 0 || request.init_net == 0 || offset!(net_list) == ABSENT {
        return 0;
    }
    // The initial namespace is the first on the list and never leaves it, so
    // what precedes it is the head.
    let head: u64 = load(request.init_net + u64::from(offset!(net_list)), 8);
    *place = Place {
        at: AT_NET,
        seen: 0,
        skip: request.skip,
        bare: request.bare,
        skip_items: request.skip_items,
        limit: request.limit,
        only: request.only,
        item: 0,
        addresses: 0,
        complete: 0,
        pad: 0,
        head,
        net_node: head,
        dev_head: 0,
        dev_node: 0,
        ifa: 0,
        ifa6_head: 0,
        ifa6_node: 0,
    };
    if head != 0 {
        // SAFETY: `step` is a callback of the form that bpf_loop wants.
        unsafe {
            bpf_loop(MAX_STEPS, step as *mut c_void, core::ptr::null_mut(), 0);
        }
    }
    request.complete = place.complete;
    request.addresses = place.addresses;
    request.reported = if place.complete != 0 {
        place.seen
    } else {
        place.seen.saturating_sub(1)
    };
    0
}
