//! Builds the kernel programs and leaves the object in `OUT_DIR`.
//!
//! Needs `rust-src` and `bpf-linker`; `cargo xtask setup` brings both.

use std::path::PathBuf;

use anyhow::Context as _;
use aya_build::{Package, Toolchain, build_ebpf};

fn main() -> anyhow::Result<()> {
    // The eBPF target is built with `-Z build-std`, which stable takes under
    // this variable only. It is set for this build script alone.
    //
    // What that build compiles would come out as warnings of this one; its
    // own warnings and errors still do.
    //
    // SAFETY: the build script has one thread.
    unsafe {
        std::env::set_var("RUSTC_BOOTSTRAP", "1");
        std::env::set_var("CARGO_TERM_QUIET", "true");
    }
    let toolchain = std::env::var("RUSTUP_TOOLCHAIN").unwrap_or_else(|_| String::from("stable"));
    build_ebpf(
        [Package {
            name: "node-tracer-ebpf",
            root_dir: concat!(env!("CARGO_MANIFEST_DIR"), "/../node-tracer-ebpf"),
            ..Package::default()
        }],
        Toolchain::Custom(&toolchain),
    )
    .context("cannot build the kernel programs; `cargo xtask setup` brings what that needs")?;
    // Skipped on request (AYA_BUILD_SKIP): the tool then says at run time that
    // it has no programs.
    let object = PathBuf::from(std::env::var_os("OUT_DIR").context("no OUT_DIR")?);
    let object = object.join("node-tracer-probes");
    if !object.exists() {
        std::fs::write(&object, []).with_context(|| object.display().to_string())?;
    }
    Ok(())
}
