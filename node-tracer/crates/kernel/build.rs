//! Builds the kernel programs and leaves the object in `OUT_DIR`, as it is and
//! packed, as it is in the tracer: a seventh of it.
//!
//! Needs `rust-src` and `bpf-linker`; `cargo xtask setup` brings both.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use aya_build::{Package, Toolchain, build_ebpf};
use flate2::{Compression, write::ZlibEncoder};
use object::build::elf::{Builder, SectionData};
use object::elf::SHT_STRTAB;

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
            root_dir: concat!(env!("CARGO_MANIFEST_DIR"), "/../../../node-tracer-ebpf"),
            ..Package::default()
        }],
        Toolchain::Custom(&toolchain),
    )
    .context("cannot build the kernel programs; `cargo xtask setup` brings what that needs")?;
    // Skipped on request (AYA_BUILD_SKIP): the tool then says at run time that
    // it has no programs.
    let object = PathBuf::from(std::env::var_os("OUT_DIR").context("no OUT_DIR")?);
    let object = object.join("node-tracer-probes");
    let programs = match object.exists() {
        true => without_debugging(&object)?,
        false => Vec::new(),
    };
    fs::write(&object, &programs).with_context(|| object.display().to_string())?;
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&programs)?;
    let file = object.with_extension("zlib");
    fs::write(&file, packed.finish()?).with_context(|| file.display().to_string())
}

/// The programs without what only a debugger reads: a tenth of the released
/// tracer. The kernel's type information, which is made of it, stays.
fn without_debugging(path: &Path) -> anyhow::Result<Vec<u8>> {
    let whole = fs::read(path).with_context(|| path.display().to_string())?;
    let mut programs = Builder::read(whole.as_slice()).context("the kernel programs")?;
    for section in &mut programs.sections {
        let name = section.name.as_slice();
        section.delete = name.starts_with(b".debug_") || name.starts_with(b".rel.debug_");
    }
    programs.delete_orphans();
    // The linker keeps the names of sections with those of symbols.
    let names = programs.sections.add();
    names.name = b".shstrtab".as_slice().into();
    names.sh_type = SHT_STRTAB;
    names.sh_addralign = 1;
    names.data = SectionData::SectionString;
    let mut smaller = Vec::new();
    programs
        .write(&mut smaller)
        .context("the kernel programs without debugging information")?;
    Ok(smaller)
}
