//! `setup`: what the build and the tests need. Idempotent; one line an item.

use crate::toolchain::Toolchain;
use crate::{bpf_linker, kube_clients, packages};

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

/// What the build for guests needs besides.
pub(crate) fn for_guests() -> anyhow::Result<()> {
    for_build()?.bring_target(GUESTS)
}

/// For programs that bring their own C library: they run in any guest.
pub(crate) const GUESTS: &str = "x86_64-unknown-linux-musl";

/// What the build and the tests need.
pub(crate) fn run() -> anyhow::Result<()> {
    let toolchain = for_build()?;
    // Only `vm` needs it.
    if let Err(error) = toolchain.bring_target(GUESTS) {
        missing("target", &format!("{error:#}"));
    }
    packages::bring();
    kube_clients::bring();
    Ok(())
}
