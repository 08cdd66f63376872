//! The kernel programs. One file under `probes/` for each kernel topic.
//!
//! Compiled for eBPF only; on the host this target is empty so that the
//! workspace builds as one.

#![cfg_attr(target_arch = "bpf", no_std, no_main)]
// For one instruction that core has no function for: see `probes::task`.
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

#[cfg(target_arch = "bpf")]
mod kernel;
#[cfg(target_arch = "bpf")]
mod probes;

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Programs that call GPL-only helpers must say that they may.
#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(target_arch = "bpf"))]
fn main() {}
