//! Addresses: added, removed.
//!
//! With fentry or kprobes each change is seen as it is made. With tracepoints
//! only the fact that some IPv4 address has changed is seen (`notifier.rs`);
//! the tracer then looks (`walk.rs`).

use aya_ebpf::{
    EbpfContext as _,
    helpers::bpf_get_current_pid_tgid,
    macros::{fentry, fexit, kprobe, kretprobe},
    programs::{FEntryContext, FExitContext, ProbeContext, RetProbeContext},
};
use node_tracer_ebpf::record::{AddressRecord, Net, kind};

use super::{budget::with_told_address, netns::ARGUMENTS};
use crate::kernel::{emit, header, load, load_into, load_text, offset};

/// Fills in what an address record says of its device.
#[inline(always)]
fn with_device(record: &mut AddressRecord, dev: u64) {
    record.ifindex = load(dev, offset!(dev_ifindex));
    load_into(&mut record.ifname, dev, offset!(dev_name));
    let ops: u64 = load(dev, offset!(dev_link_ops));
    let kind: u64 = load(ops, offset!(link_ops_kind));
    load_text(kind, &mut record.link_kind);
}

#[inline(always)]
fn with_ipv4(record: &mut AddressRecord, ifa: u64) {
    load_into::<[u8; 4]>(
        // The first four of sixteen bytes.
        record.address.first_chunk_mut().unwrap_or(&mut [0; 4]),
        ifa,
        offset!(ifa_local),
    );
    record.family = 4;
    load_into(&mut record.prefix, ifa, offset!(ifa_prefixlen));
}

#[inline(always)]
fn with_ipv6(record: &mut AddressRecord, ifa: u64) {
    load_into(&mut record.address, ifa, offset!(ifa6_addr));
    record.family = 6;
    record.prefix = load::<u32>(ifa, offset!(ifa6_prefix_len)) as u8;
}

#[inline(always)]
fn blank(kind: u32, net: Net) -> AddressRecord {
    AddressRecord {
        header: header(kind),
        net,
        ..AddressRecord::default()
    }
}

#[inline(always)]
fn ipv4(kind: u32, ifa: u64, in_dev: u64) {
    if ifa != 0 {
        let dev = load(in_dev, offset!(in_dev_dev));
        let Some(net) = with_told_address(load(dev, offset!(dev_net))) else {
            return;
        };
        let mut record = blank(kind, net);
        with_ipv4(&mut record, ifa);
        with_device(&mut record, dev);
        emit(&record);
    }
}

#[inline(always)]
fn ipv6(kind: u32, ifa: u64) {
    const MAX_ERRNO: u64 = 4095;
    if ifa != 0 && ifa < u64::MAX - MAX_ERRNO {
        let in6_dev = load(ifa, offset!(ifa6_idev));
        let dev = load(in6_dev, offset!(in6_dev_dev));
        let Some(net) = with_told_address(load(dev, offset!(dev_net))) else {
            return;
        };
        let mut record = blank(kind, net);
        with_ipv6(&mut record, ifa);
        with_device(&mut record, dev);
        emit(&record);
    }
}

// --- fentry, fexit

#[fexit(function = "__inet_insert_ifa")]
fn inet_insert_fexit(ctx: FExitContext) -> i32 {
    // (ifa, nlh, portid, extack) -> 0; on failure the address is freed.
    if ctx.arg::<i32>(4) == 0 {
        let ifa: u64 = ctx.arg(0);
        ipv4(kind::ADDRESS_ADDED, ifa, load(ifa, offset!(ifa_dev)));
    }
    0
}

#[fentry(function = "__inet_del_ifa")]
fn inet_del_fentry(ctx: FEntryContext) -> i32 {
    // (in_dev, &ifa, ...). Older verifiers let no program touch a pointer to a
    // pointer among its arguments; the argument can be read like any memory.
    let slot: u64 = load(ctx.as_ptr() as u64, size_of::<u64>() as u32);
    ipv4(kind::ADDRESS_REMOVED, load(slot, 0), ctx.arg(0));
    0
}

#[fexit(function = "ipv6_add_addr")]
fn inet6_add_fexit(ctx: FExitContext) -> i32 {
    // (idev, cfg, can_block, extack) -> ifa
    ipv6(kind::ADDRESS_ADDED, ctx.arg(4));
    0
}

#[fentry(function = "ipv6_del_addr")]
fn inet6_del_fentry(ctx: FEntryContext) -> i32 {
    ipv6(kind::ADDRESS_REMOVED, ctx.arg(0));
    0
}

// --- kprobe, kretprobe

#[kprobe]
fn inet_insert_kprobe(ctx: ProbeContext) -> u32 {
    if let Some(ifa) = ctx.arg::<u64>(0) {
        let _ = ARGUMENTS.insert(bpf_get_current_pid_tgid(), ifa, 0);
    }
    0
}

#[kretprobe]
fn inet_insert_kretprobe(ctx: RetProbeContext) -> u32 {
    let thread = bpf_get_current_pid_tgid();
    if let Some(ifa) = ARGUMENTS.get_ptr(thread) {
        // SAFETY: the map's own value.
        let ifa = unsafe { *ifa };
        let _ = ARGUMENTS.remove(thread);
        if ctx.ret::<i32>() == 0 {
            ipv4(kind::ADDRESS_ADDED, ifa, load(ifa, offset!(ifa_dev)));
        }
    }
    0
}

#[kprobe]
fn inet_del_kprobe(ctx: ProbeContext) -> u32 {
    if let (Some(in_dev), Some(slot)) = (ctx.arg::<u64>(0), ctx.arg::<u64>(1)) {
        ipv4(kind::ADDRESS_REMOVED, load(slot, 0), in_dev);
    }
    0
}

#[kretprobe]
fn inet6_add_kretprobe(ctx: RetProbeContext) -> u32 {
    ipv6(kind::ADDRESS_ADDED, ctx.ret());
    0
}

#[kprobe]
fn inet6_del_kprobe(ctx: ProbeContext) -> u32 {
    ipv6(kind::ADDRESS_REMOVED, ctx.arg(0).unwrap_or(0));
    0
}
