//! `dist`: what is released, from one build for each architecture: a static binary,
//! a Debian package, an archive, a bill of materials, the kubectl plugin; and for all
//! of them a container image, the Helm chart, manifests, checksums.
//!
//! | module | what |
//! |---|---|
//! | [`binary`] | the build itself, with nothing of this machine in it |
//! | [`contents`] | what is packed, and where it goes |
//! | [`dependencies`] | the crates that the binary is made of |
//! | [`sbom`], [`notices`] | the same as a bill of materials; their licences |
//! | [`sign`] | a signature of the checksums, with the key that is given |
//! | [`archive`] | reproducible tar and gzip |
//! | [`deb`], [`image`] | Debian's package; the OCI image |
//! | [`chart`], [`plugin`] | the Helm chart; the kubectl plugin and krew's manifest |
//!
//! The same commit gives the same bytes, wherever and whenever it is built (with
//! the same toolchain): names are sorted, owners and modes are set, times are
//! that of the commit, paths are mapped, and settings of whoever builds are left
//! out. `--verify` builds a second time, elsewhere, and compares.
//!
//! The formats are written here. One list of files makes all packages, each of
//! them is a tar archive with a little around it, and what they must not have
//! (times, owners, an order by chance) is known in one place.

mod archive;
mod binary;
mod chart;
mod contents;
mod deb;
mod dependencies;
mod image;
mod notices;
mod plugin;
mod sbom;
mod sign;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::arch::Arch;
use crate::cargo;

use binary::Programs;

pub(crate) use binary::act_if_called;

/// What the binary may have, in bytes (design.md, section 9).
pub(crate) const BUDGET: usize = 12_000_000;

/// What `dist` is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Dist {
    /// Where the files go [default: dist in cargo's target folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// For this architecture alone (may be given several times) [default: all of
    /// them]
    #[arg(long, value_enum, value_name = "ARCH")]
    arch: Vec<Arch>,
    /// Build a second time, of a copy of the sources in another folder, and compare
    #[arg(long)]
    verify: bool,
    /// Sign SHA256SUMS with this secret key of minisign, whose password is in
    /// NODE_TRACER_SIGNING_PASSWORD (not set: it has none)
    #[arg(long, value_name = "KEY", env = "NODE_TRACER_SIGNING_KEY")]
    sign: Option<PathBuf>,
}

/// One version, as everything released of it says.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    /// As in `Cargo.toml`.
    version: String,
    /// The commit's time, in seconds since 1970.
    time: u64,
}

impl Release {
    /// The one that is checked out.
    pub(crate) fn current() -> anyhow::Result<Self> {
        Ok(Self {
            version: String::from(env!("CARGO_PKG_VERSION")),
            time: time()?,
        })
    }

    /// The day, as `2026-11-22`.
    fn day(&self) -> anyhow::Result<String> {
        Ok(self.moment()?.strftime("%Y-%m-%d").to_string())
    }

    /// The second, as `2026-11-22T08:00:00Z`.
    fn second(&self) -> anyhow::Result<String> {
        Ok(self.moment()?.to_string())
    }

    fn moment(&self) -> anyhow::Result<jiff::Timestamp> {
        let time = i64::try_from(self.time).context("SOURCE_DATE_EPOCH")?;
        jiff::Timestamp::from_second(time).context("SOURCE_DATE_EPOCH")
    }
}

/// That of the last commit, unless `SOURCE_DATE_EPOCH` says another.
fn time() -> anyhow::Result<u64> {
    const VARIABLE: &str = "SOURCE_DATE_EPOCH";
    if let Ok(text) = std::env::var(VARIABLE) {
        return text.trim().parse().context(VARIABLE);
    }
    let output = Command::new("git")
        .args(["log", "-1", "--format=%ct"])
        .current_dir(cargo::root())
        .output()
        .context("start git")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let time = text.trim().parse();
    time.with_context(|| format!("not a checkout of git: set {VARIABLE} to the release's time"))
}

/// The sums of all other files.
const SUMS: &str = "SHA256SUMS";

/// Files to be released, by name.
type Files = BTreeMap<String, Vec<u8>>;

pub(crate) fn run(asked: &Dist) -> anyhow::Result<ExitCode> {
    let release = Release::current()?;
    let folders = binary::Folders::find()?;
    let out = match &asked.out {
        Some(out) => std::path::absolute(out).context("--out")?,
        None => folders.target.join("dist"),
    };
    // A key that cannot be used is known before anything is built.
    let signer = asked.sign.as_deref().map(sign::Signer::read).transpose()?;
    let architectures = architectures(asked)?;
    let build = |folders: &binary::Folders| -> anyhow::Result<Vec<Programs>> {
        let all = architectures.iter();
        all.map(|arch| binary::build_all(*arch, folders, &release))
            .collect()
    };
    println!("── dist: {} of {}", release.version, release.second()?);
    let built = build(&folders)?;
    let files = pack(&built, &release)?;
    write(&files, &out)?;
    if let Some(signer) = &signer {
        let signature = signer.sign(&files[SUMS], &release)?;
        let path = out.join(format!("{SUMS}.minisig"));
        fs::write(&path, signature).with_context(|| path.display().to_string())?;
        println!(
            "dist: signed; verify with minisign -Vm {SUMS} -P {}",
            signer.public()
        );
    }
    for programs in &built {
        within_budget(programs)?;
    }
    if asked.verify {
        ensure!(
            !binary::is_given(),
            "--verify builds, and NODE_TRACER_BIN names what is not to be built: unset it"
        );
        println!("── dist: once more, of a copy of the sources");
        let elsewhere = folders.target.join("dist/again");
        clear(&elsewhere)?;
        let folders = folders.elsewhere(&elsewhere)?;
        let again = build(&folders)?;
        same(&files, &pack(&again, &release)?)?;
        clear(&elsewhere)?;
        println!("dist: both builds gave the same bytes");
    }
    Ok(ExitCode::SUCCESS)
}

/// What is asked for: each can be built, so that none fails when another is done.
fn architectures(asked: &Dist) -> anyhow::Result<Vec<Arch>> {
    let mut all = match (asked.arch.as_slice(), binary::is_given()) {
        ([], true) => vec![Arch::HOST],
        ([], false) => Arch::ALL.to_vec(),
        (named, _) => named.to_vec(),
    };
    all.sort_unstable();
    all.dedup();
    ensure!(
        all.len() == 1 || !binary::is_given(),
        "NODE_TRACER_BIN is of one architecture: name it by --arch"
    );
    for arch in &all {
        let what = || format!("--arch {} builds without it", Arch::HOST.name());
        arch.can_be_compiled().with_context(what)?;
    }
    Ok(all)
}

/// Removes a folder; one of a run that was cut short, say.
fn clear(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| folder.display().to_string())
        }
        _ => Ok(()),
    }
}

/// All packages of a tracer and the plugin beside it, for tests of their
/// contents, into this folder.
pub(crate) fn pack_into(tracer: &Path, out: &Path) -> anyhow::Result<()> {
    let programs = Programs::read(Arch::HOST, tracer, &binary::plugin_beside(tracer)?)?;
    for (name, content) in pack(&[programs], &Release::current()?)? {
        let path = out.join(name);
        fs::write(&path, content).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The Debian package alone, of this binary.
pub(crate) fn debian_package(binary: &Path, arch: Arch) -> anyhow::Result<Vec<u8>> {
    let content = fs::read(binary).with_context(|| binary.display().to_string())?;
    let release = Release::current()?;
    deb::package(&contents::all(&content, arch, &release)?, &release)
}

/// All that is made of the programs.
fn pack(all: &[Programs], release: &Release) -> anyhow::Result<Files> {
    let version = &release.version;
    let contents = all
        .iter()
        .map(|programs| contents::all(&programs.tracer, programs.arch, release));
    let mut contents: Vec<_> = contents.collect::<anyhow::Result<_>>()?;
    let mut files = Files::new();
    let (image, digest) = image::archive(&contents, release).context("the image")?;
    files.insert(format!("node-tracer-{version}-image.tar"), image);
    for role in ["kube-events", "node-condition"] {
        files.insert(
            format!("node-tracer-{version}-{role}.yaml"),
            contents::source(&format!("kubernetes/node-tracer-{role}.yaml"))?,
        );
    }
    files.insert(
        chart::name(release),
        chart::package(&digest, release).context("the chart")?,
    );
    let mut plugins = BTreeMap::new();
    for (programs, contents) in all.iter().zip(&mut contents) {
        let (arch, binary) = (programs.arch, &programs.tracer);
        let manifest = contents.name_image(&digest, release)?;
        files.insert(format!("node-tracer-{version}.yaml"), manifest);
        let name = format!("node-tracer-{version}-{}", arch.target());
        files.insert(
            format!("{name}.tar.gz"),
            contents::archive(contents, release).context("the archive")?,
        );
        files.insert(
            format!("{name}.cdx.json"),
            sbom::document(binary, arch, release).context("the bill of materials")?,
        );
        files.insert(name, binary.clone());
        files.insert(
            deb::name(arch, release),
            deb::package(contents, release).context("the Debian package")?,
        );
        let plugin = plugin::archive(&programs.plugin, arch, release).context("the plugin")?;
        files.insert(plugin::name(arch, release), plugin.clone());
        plugins.insert(arch, plugin);
    }
    files.insert(
        format!("{}-{version}-krew.yaml", binary::PLUGIN.name),
        plugin::manifest(&plugins, release)?,
    );
    let sums: String = files
        .iter()
        .map(|(name, content)| format!("{}  {name}\n", sha256(content)))
        .collect();
    files.insert(String::from(SUMS), sums.into_bytes());
    Ok(files)
}

/// Writes them, and says what they are. Files of an earlier run go.
fn write(files: &Files, out: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    for entry in fs::read_dir(out).with_context(|| out.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_own = [SUMS, binary::TRACER.name, binary::PLUGIN.name];
        if path.is_file() && is_own.iter().any(|own| name.starts_with(own)) {
            fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
    }
    for (name, content) in files {
        let path = out.join(name);
        fs::write(&path, content).with_context(|| path.display().to_string())?;
        if Arch::ALL.iter().any(|arch| name.ends_with(arch.target())) {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        println!("{:>10}  {}  {name}", content.len(), &sha256(content)[..16]);
    }
    println!("dist: in {}", out.display());
    Ok(())
}

/// The static binary of this source; without `build` the one of the last build,
/// if there is any.
pub(crate) fn static_binary(build: bool) -> anyhow::Result<Option<PathBuf>> {
    let folders = binary::Folders::find()?;
    if build {
        return binary::build(binary::TRACER, Arch::HOST, &folders, &Release::current()?).map(Some);
    }
    let built = Path::new(Arch::HOST.target()).join("release/node-tracer");
    Ok(Some(folders.build.join(built)).filter(|binary| binary.exists()))
}

fn within_budget(programs: &Programs) -> anyhow::Result<()> {
    let (arch, size) = (programs.arch.name(), programs.tracer.len());
    ensure!(
        size <= BUDGET,
        "the binary for {arch} has {size} bytes and may have {BUDGET}: cargo bloat --release \
         --crates says what they are"
    );
    println!(
        "dist: the binary for {arch} has {:.1} MB of {} MB",
        size as f64 / 1e6,
        BUDGET / 1_000_000
    );
    Ok(())
}

fn same(one: &Files, other: &Files) -> anyhow::Result<()> {
    let differ: Vec<&str> = one
        .iter()
        .filter(|(name, content)| other.get(*name) != Some(content))
        .map(|(name, _)| name.as_str())
        .collect();
    if differ.is_empty() && one.len() == other.len() {
        return Ok(());
    }
    bail!(
        "two builds of the same commit differ: {}",
        differ.join(", ")
    )
}

fn sha256(content: &[u8]) -> String {
    hex(&Sha256::digest(content))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASE: fn() -> Release = || Release {
        version: String::from("1.2.3"),
        time: 1_700_000_000,
    };

    fn programs(tracer: &[u8]) -> [Programs; 2] {
        Arch::ALL.map(|arch| Programs {
            arch,
            tracer: tracer.to_vec(),
            plugin: b"\x7fELF".to_vec(),
        })
    }

    #[test]
    fn times_are_written_as_people_and_as_machines_read_them() {
        assert_eq!(RELEASE().day().unwrap(), "2023-11-14");
        assert_eq!(RELEASE().second().unwrap(), "2023-11-14T22:13:20Z");
    }

    #[test]
    fn a_binary_is_packed_twice_into_the_same_bytes_with_a_sum_of_each() {
        let one = pack(&programs(b"\x7fELF"), &RELEASE()).unwrap();
        same(&one, &pack(&programs(b"\x7fELF"), &RELEASE()).unwrap()).unwrap();
        let sums = String::from_utf8(one["SHA256SUMS"].clone()).unwrap();
        for (name, content) in one.iter().filter(|(name, _)| *name != "SHA256SUMS") {
            let line = format!("{}  {name}", sha256(content));
            assert!(sums.lines().any(|one| one == line), "{line}");
        }
        assert_eq!(sums.lines().count() + 1, one.len());
    }

    #[test]
    fn the_released_manifest_names_the_released_image_by_its_digest() {
        let release = Release::current().unwrap();
        let files = pack(&programs(b"\x7fELF"), &release).unwrap();
        let version = &release.version;
        let manifest = &files[&format!("node-tracer-{version}.yaml")];
        let manifest = String::from_utf8(manifest.clone()).unwrap();
        let contents = Arch::ALL.map(|arch| contents::all(b"\x7fELF", arch, &release).unwrap());
        let (_, digest) = image::archive(&contents, &release).unwrap();
        let line = format!("image: {}:{version}@{digest}", image::NAME);
        assert_eq!(manifest.matches(&line).count(), 1, "{line}");
        assert!(!manifest.contains("here there is none"), "{manifest}");
    }

    #[test]
    fn what_differs_is_named() {
        let one = pack(&programs(b"\x7fELF"), &RELEASE()).unwrap();
        let other = pack(&programs(b"\x7fELG"), &RELEASE()).unwrap();
        let error = same(&one, &other).unwrap_err().to_string();
        for arch in ["amd64", "arm64"] {
            let name = format!("node-tracer_1.2.3_{arch}.deb");
            assert!(error.contains(&name), "{error}");
        }
        // The manifest has the image's digest; this has nothing of the binary.
        assert!(!error.contains("kube-events.yaml"), "{error}");
    }

    #[test]
    fn a_binary_above_the_budget_is_refused_with_its_size() {
        let [fits, _] = programs(&vec![0; BUDGET]);
        assert!(within_budget(&fits).is_ok());
        let [_, larger] = programs(&vec![0; BUDGET + 1]);
        let error = within_budget(&larger).unwrap_err().to_string();
        assert!(error.contains("arm64 has 12000001"), "{error}");
    }
}
