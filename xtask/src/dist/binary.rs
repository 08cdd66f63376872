//! The released binary: static, and with nothing of this machine in it.
//!
//! Compilers write paths into what they make (where a panic came from, the
//! names of the kernel programs' sources), and the kernel programs are built by
//! a cargo of their own, to which flags do not come. So rustc is started by way
//! of this program ([`act_if_called`]), which tells it what to write in place of
//! each folder: of the repository, of cargo's registry, of the toolchain, of the
//! build. Of the environment the build gets only what says where tools and
//! downloads are ([`PASSED`]).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use super::Release;
use crate::arch::Arch;
use crate::toolchain::{RUST_SRC, Toolchain};
use crate::{cargo, setup};

/// A program that is released.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    /// Its package in the workspace.
    pub(super) package: &'static str,
    pub(super) name: &'static str,
}

pub(super) const TRACER: Program = Program {
    package: "node-tracer",
    name: "node-tracer",
};
/// What kubectl starts for `kubectl node-tracer`.
pub(super) const PLUGIN: Program = Program {
    package: "node-tracer-kubectl",
    name: "kubectl-node_tracer",
};

/// What each folder is called, one `FOLDER=NAME` a line; tells this program
/// that it is called in place of rustc.
const NAMES: &str = "NODE_TRACER_DIST_NAMES";

/// Where the toolchain's own linker is, for that.
const LINKER: &str = "NODE_TRACER_DIST_LINKER";

/// Names a binary that is packed as it is.
const GIVEN: &str = "NODE_TRACER_BIN";

/// What the build gets of its caller's environment; a name that ends in an
/// underscore is a beginning. Everything else (`CARGO_PROFILE_RELEASE_DEBUG`,
/// `RUSTFLAGS`, `CFLAGS`, `CC`, `AYA_BUILD_SKIP`, ...) would be a setting of
/// whoever builds, and none of the release's.
const PASSED: [&str; 19] = [
    "PATH",
    "HOME",
    "LD_LIBRARY_PATH",
    "TMPDIR",
    "TERM",
    "CARGO_BUILD_JOBS",
    "CARGO_HOME",
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTRIES_",
    "CARGO_REGISTRY_",
    "CARGO_TERM_",
    "RUSTUP_",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "no_proxy",
];

/// What the binary is compiled and linked with, whatever a configuration of
/// cargo says. It lies anywhere in memory (PIE), and corrects some 14,000 of its
/// own pointers as it starts: they are listed in bits, not in 24 bytes each,
/// which is a third of a megabyte less. (Takes binutils 2.38 and musl 1.2.4, and
/// nothing of the kernel.)
const FLAGS: &str = "-Clink-arg=-Wl,-z,pack-relative-relocs";

fn is_passed(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    PASSED.iter().any(|passed| match passed.ends_with('_') {
        true => name.starts_with(passed.as_bytes()),
        false => name == passed.as_bytes(),
    })
}

/// Where a build's things are.
#[derive(Debug)]
pub(super) struct Folders {
    checkout: PathBuf,
    /// Cargo's target folder, as it is set for everything else.
    pub(super) target: PathBuf,
    pub(super) build: PathBuf,
    registry: PathBuf,
    toolchain: Toolchain,
}

impl Folders {
    /// Asks cargo and rustc.
    pub(super) fn find() -> anyhow::Result<Self> {
        let target = cargo::target()?;
        Ok(Self {
            checkout: cargo::root().to_owned(),
            build: target.join("dist/build"),
            target,
            registry: cargo::home()?.join("registry/src"),
            toolchain: setup::for_build()?,
        })
    }

    /// The same for a build of a copy of these sources, below this folder. The
    /// names differ in length, so that a path that is written somewhere shows.
    pub(super) fn elsewhere(&self, folder: &Path) -> anyhow::Result<Self> {
        let checkout = folder.join("another-checkout");
        copy(&self.checkout, &checkout)?;
        Ok(Self {
            checkout,
            target: self.target.clone(),
            build: folder.join("another-build"),
            registry: self.registry.clone(),
            toolchain: self.toolchain.clone(),
        })
    }

    /// (folder, what it is called). Of two that fit, rustc takes the later one.
    fn names(&self) -> anyhow::Result<Vec<(PathBuf, String)>> {
        let named = |folder: &Path, name: &str| (folder.to_owned(), name.to_owned());
        let mut names = vec![named(&self.checkout, "/node-tracer")];
        let registries = fs::read_dir(&self.registry);
        let registries = registries.with_context(|| self.registry.display().to_string())?;
        for registry in registries {
            names.push(named(&registry?.path(), "/registry"));
        }
        let Toolchain {
            sysroot, commit, ..
        } = &self.toolchain;
        names.push(named(sysroot, "/toolchain"));
        // What was compiled by Rust's makers is from there. What is compiled
        // here (generic functions, and all of core for the kernel programs) is
        // from the component rust-src, of the same commit.
        names.push((sysroot.join(RUST_SRC), format!("/rustc/{commit}")));
        names.push(named(&self.build, "/build"));
        Ok(names)
    }
}

/// Copies the files that git knows, or would.
fn copy(checkout: &Path, to: &Path) -> anyhow::Result<()> {
    for name in cargo::own_files(checkout)? {
        let (from, to) = (checkout.join(&name), to.join(&name));
        let folder = to.parent().unwrap_or(&to);
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        fs::copy(&from, &to).with_context(|| from.display().to_string())?;
    }
    Ok(())
}

/// Whether a binary is packed that was built elsewhere.
pub(super) fn is_given() -> bool {
    std::env::var_os(GIVEN).is_some()
}

/// The plugin that belongs to a tracer built by cargo: beside it, or else built
/// now.
pub(super) fn plugin_beside(tracer: &Path) -> anyhow::Result<PathBuf> {
    let plugin = tracer.with_file_name(PLUGIN.name);
    if plugin.exists() {
        return Ok(plugin);
    }
    cargo::build(&["--package", PLUGIN.package], PLUGIN.name)
}

/// Builds both programs, each on its own: together, one would get the features
/// that the other one asks for.
pub(super) fn build_all(
    arch: Arch,
    folders: &Folders,
    release: &Release,
) -> anyhow::Result<Programs> {
    let tracer = build(TRACER, arch, folders, release)?;
    let plugin = match is_given() {
        true => plugin_beside(&tracer)?,
        false => build(PLUGIN, arch, folders, release)?,
    };
    Programs::read(arch, &tracer, &plugin)
}

/// The programs' bytes.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) arch: Arch,
    pub(super) tracer: Vec<u8>,
    pub(super) plugin: Vec<u8>,
}

impl Programs {
    pub(super) fn read(arch: Arch, tracer: &Path, plugin: &Path) -> anyhow::Result<Self> {
        let read = |path: &Path| fs::read(path).with_context(|| path.display().to_string());
        Ok(Self {
            arch,
            tracer: read(tracer)?,
            plugin: read(plugin)?,
        })
    }
}

/// Builds one, and returns its path.
pub(super) fn build(
    program: Program,
    arch: Arch,
    folders: &Folders,
    release: &Release,
) -> anyhow::Result<PathBuf> {
    if is_given() {
        return cargo::build_tracer(&[]);
    }
    setup::for_arch(arch)?;
    let names = folders.names()?;
    let lines: Vec<String> = names
        .iter()
        .map(|(folder, name)| format!("{}={name}", folder.display()))
        .collect();
    let in_c: Vec<String> = lines
        .iter()
        .map(|line| format!("-ffile-prefix-map={line}"))
        .collect();
    let me = std::env::current_exe().context("this program")?;
    let linker = folders.toolchain.linker()?;
    let args = [
        "--locked",
        "--release",
        "--target",
        arch.target(),
        "--package",
        program.package,
    ];
    let binary = cargo::build_with(&args, program.name, |command| {
        for (name, _) in std::env::vars_os() {
            if !is_passed(&name) {
                command.env_remove(name);
            }
        }
        command
            .current_dir(&folders.checkout)
            .env("CARGO_TARGET_DIR", &folders.build)
            .env("CARGO_ENCODED_RUSTFLAGS", FLAGS)
            .env("CARGO_INCREMENTAL", "0")
            .env("LC_ALL", "C.UTF-8")
            .env("RUSTC_WRAPPER", &me)
            .env(NAMES, lines.join("\n"))
            .env(LINKER, &linker)
            .env("CFLAGS", in_c.join(" "))
            .env("SOURCE_DATE_EPOCH", release.time.to_string());
    })?;
    let content = fs::read(&binary).with_context(|| binary.display().to_string())?;
    is_static(&content)?;
    checks_overflow(&content)?;
    has_no_paths(&content, &names)?;
    let programs = programs(&folders.build.join(arch.target()).join("release/build"))?;
    ensure!(
        !programs.is_empty(),
        "there are no kernel programs to look at"
    );
    for programs in &programs {
        let content = fs::read(programs).with_context(|| programs.display().to_string())?;
        has_no_paths(&content, &names)?;
    }
    Ok(binary)
}

/// The kernel programs of this build and of earlier ones; in the binary they
/// are packed, and show no path.
fn programs(builds: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(builds).with_context(|| builds.display().to_string())?;
    let object = |entry: fs::DirEntry| entry.path().join("out/node-tracer-probes");
    let objects = entries.map(|entry| Ok(object(entry?)));
    let mut objects = objects.collect::<anyhow::Result<Vec<_>>>()?;
    objects.retain(|object| object.exists());
    Ok(objects)
}

/// If cargo has started this program in place of rustc: goes on as rustc, with
/// the folders' names. Comes back otherwise.
pub(crate) fn act_if_called() {
    let Some(names) = std::env::var_os(NAMES) else {
        return;
    };
    let mut args = std::env::args_os().skip(1);
    let Some(rustc) = args.next() else {
        return;
    };
    let args: Vec<OsString> = args.collect();
    let mut flags = flags(&names);
    if let Some(linker) = std::env::var_os(LINKER)
        && Arch::ALL
            .iter()
            .any(|arch| args.iter().any(|arg| arg == arch.target()))
    {
        flags.extend(linked_by(&linker.to_string_lossy()));
    }
    let error = Command::new(rustc).args(args).args(flags).exec();
    eprintln!("error: rustc: {error}");
    std::process::exit(2);
}

fn flags(names: &OsString) -> Vec<String> {
    let names = names.to_string_lossy();
    let flags = names
        .lines()
        .map(|line| format!("--remap-path-prefix={line}"));
    flags.collect()
}

/// LLD, which comes with Rust, keeps one of functions that are the same to the last
/// byte: a tenth of a megabyte less. That is no setting of cargo's, as its path is
/// this machine's.
fn linked_by(folder: &str) -> [String; 3] {
    [
        format!("-Clink-arg=-B{folder}"),
        String::from("-Clink-arg=-fuse-ld=lld"),
        String::from("-Clink-arg=-Wl,--icf=all"),
    ]
}

/// It runs on a node whatever is, or is not, installed there.
fn is_static(binary: &[u8]) -> anyhow::Result<()> {
    /// Type of the program header that names a dynamic linker.
    const INTERPRETER: u32 = 3;
    let number = |at: usize, length: usize| -> anyhow::Result<u64> {
        let bytes = binary.get(at..at + length).context("it ends too early")?;
        let number = bytes.iter().rev();
        Ok(number.fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    ensure!(
        binary.starts_with(b"\x7fELF\x02\x01"),
        "no 64-bit little-endian ELF file"
    );
    // Of the ELF header: where program headers are, their size, and how many.
    let (from, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for header in 0..count {
        let at = usize::try_from(from + header * size)?;
        if number(at, 4)? == u64::from(INTERPRETER) {
            bail!("the binary is linked dynamically");
        }
    }
    Ok(())
}

/// What such a check says is there only with one.
fn checks_overflow(binary: &[u8]) -> anyhow::Result<()> {
    let there = find(binary, b"attempt to add with overflow").is_some();
    ensure!(there, "the binary does not check its sums for overflow");
    Ok(())
}

/// Another machine's would be others.
fn has_no_paths(binary: &[u8], names: &[(PathBuf, String)]) -> anyhow::Result<()> {
    for (folder, _) in names {
        let path = folder.as_os_str().as_encoded_bytes();
        if let Some(at) = find(binary, path) {
            let text = &binary[at..binary.len().min(at + 120)];
            let end = text.iter().position(|byte| !byte.is_ascii_graphic());
            let text = String::from_utf8_lossy(&text[..end.unwrap_or(text.len())]);
            bail!("the binary has a path of this machine in it: {text}");
        }
    }
    Ok(())
}

fn find(content: &[u8], part: &[u8]) -> Option<usize> {
    let first = part.first()?;
    let mut from = 0;
    while let Some(at) = content[from..].iter().position(|byte| byte == first) {
        let at = from + at;
        if content[at..].starts_with(part) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_folder_is_one_flag() {
        let names = OsString::from("/home/me/x=/x\n/home/me/a=b=/y");
        assert_eq!(
            flags(&names),
            [
                "--remap-path-prefix=/home/me/x=/x",
                "--remap-path-prefix=/home/me/a=b=/y"
            ]
        );
    }

    #[test]
    fn settings_of_whoever_builds_are_none_of_the_releases() {
        for name in [
            "PATH",
            "HOME",
            "CARGO_HOME",
            "RUSTUP_TOOLCHAIN",
            "https_proxy",
        ] {
            assert!(is_passed(OsStr::new(name)), "{name}");
        }
        for name in [
            "CARGO_PROFILE_RELEASE_DEBUG",
            "CARGO_PROFILE_RELEASE_LTO",
            "CARGO_BUILD_TARGET",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_MANIFEST_DIR",
            "RUSTC",
            "RUSTC_BOOTSTRAP",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTFLAGS",
            "CC_x86_64-unknown-linux-musl",
            "CFLAGS",
            "AYA_BUILD_SKIP",
            "PATHS",
        ] {
            assert!(!is_passed(OsStr::new(name)), "{name}");
        }
    }

    /// Of two names that fit, rustc takes the later one: Rust's own sources are
    /// in the toolchain, and the build is in the repository as a rule.
    #[test]
    fn what_is_compiled_of_rusts_sources_is_called_as_what_came_compiled() {
        let folders = Folders::find().unwrap();
        let names = folders.names().unwrap();
        let named = |path: &Path| {
            let fits = names.iter().rfind(|(folder, _)| path.starts_with(folder));
            let (folder, name) = fits.unwrap();
            Path::new(name).join(path.strip_prefix(folder).unwrap())
        };
        let sysroot = &folders.toolchain.sysroot;
        let core = sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs");
        assert!(core.exists());
        let commit = &folders.toolchain.commit;
        assert_eq!(commit.len(), 40, "{commit}");
        let expected = format!("/rustc/{commit}/library/core/src/lib.rs");
        assert_eq!(named(&core), Path::new(&expected));
        assert_eq!(named(&sysroot.join("bin/x")), Path::new("/toolchain/bin/x"));
        assert_eq!(named(&folders.build.join("x")), Path::new("/build/x"));
    }

    #[test]
    fn a_program_with_a_dynamic_linker_is_told_from_one_without() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(
            is_static(&own).is_err(),
            "these tests are linked dynamically"
        );
        let mut header = vec![0; 64 + 56];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (header[32], header[54], header[56]) = (64, 56, 1);
        header[64] = 1;
        is_static(&header).unwrap();
        header[64] = 3;
        assert!(is_static(&header).is_err());
        assert!(is_static(&header[..64]).is_err());
        assert!(is_static(b"#!/bin/sh").is_err());
    }

    #[test]
    fn a_path_of_this_machine_is_found_and_named() {
        let names = [(PathBuf::from("/home/me"), String::from("/x"))];
        assert!(has_no_paths(b"/home/you", &names).is_ok());
        let error = has_no_paths(b"..//home/me/src/a.rs\0rest", &names).unwrap_err();
        assert!(
            error.to_string().ends_with(": /home/me/src/a.rs"),
            "{error}"
        );
    }
}
