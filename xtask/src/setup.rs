//! `setup`: what the build and the tests need. Idempotent; one line an item.

use crate::arch::Arch;
use crate::toolchain::Toolchain;
use crate::{bpf_linker, kube_clients, newer, packages};

fn say(state: &str, item: &str, detail: &str) {
    println!("setup: {state:<11} {item:<11} {detail}");
}

pub(crate) fn ok(item: &str, detail: &str) {
    say("ok", item, detail);
}

/// An item is being installed.
pub(crate) fn installing(item: &str, detail: &str) {
    say("installing", item, detail);
}

/// An item is missing and stays so; `detail` says what to do.
pub(crate) fn missing(item: &str, detail: &str) {
    say("missing", item, detail);
}

/// What the build needs.
pub(crate) fn for_build() -> anyhow::Result<Toolchain> {
    let toolchain = Toolchain::current()?;
    toolchain.bring("rust-src")?;
    bpf_linker::bring(&toolchain)?;
    Ok(toolchain)
}

/// What the static build for an architecture needs besides.
pub(crate) fn for_arch(arch: Arch) -> anyhow::Result<()> {
    for_build()?.bring_target(arch.target())?;
    arch.can_be_compiled()
}

/// What the build and the tests need.
pub(crate) fn run() -> anyhow::Result<()> {
    let toolchain = for_build()?;
    // Only `vm` and `dist` need them.
    for arch in Arch::ALL {
        if let Err(error) = toolchain.bring_target(arch.target()) {
            missing("target", &format!("{error:#}"));
        }
    }
    packages::bring();
    kube_clients::bring();
    newer::bring();
    Ok(())
}
