//! The kubectl plugin: its archive, and the manifest by which krew installs it.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, ensure};

use super::archive::{FILE, PROGRAM, Tree, gzip, tar};
use super::binary::PLUGIN;
use super::contents::source;
use super::{Release, dependencies, notices, sha256};
use crate::arch::Arch;
use crate::cargo;

/// krew's manifest, below `node-tracer/packaging`, with VERSION to be filled in,
/// and ARCH and SHA256 for each architecture, of which there is a platform.
pub(super) const MANIFEST: &str = "krew/node-tracer.yaml";

/// The archive's file name, as krew's manifest has it.
pub(super) fn name(arch: Arch, release: &Release) -> String {
    let (version, arch) = (&release.version, arch.name());
    format!("{}-{version}-linux-{arch}.tar.gz", PLUGIN.name)
}

/// The program and its licences.
pub(super) fn archive(binary: &[u8], arch: Arch, release: &Release) -> anyhow::Result<Vec<u8>> {
    let licence = fs::read(cargo::root().join("LICENSE")).context("LICENSE")?;
    let others = notices::text(PLUGIN.name, &dependencies::plugin(arch))?;
    let tree = Tree::from([
        (PLUGIN.name.to_owned(), (PROGRAM, binary.to_vec())),
        (String::from("LICENSE"), (FILE, licence)),
        (String::from("THIRD-PARTY"), (FILE, others.into_bytes())),
    ]);
    gzip(&tar(&tree, "", release.time)?)
}

/// What krew installs these archives by.
pub(super) fn manifest(
    archives: &BTreeMap<Arch, Vec<u8>>,
    release: &Release,
) -> anyhow::Result<Vec<u8>> {
    const PLATFORMS: &str = "  platforms:\n";
    let text = String::from_utf8(source(MANIFEST)?).context(MANIFEST)?;
    let (head, platform) = text.split_once(PLATFORMS).context(MANIFEST)?;
    let platforms = archives.iter().map(|(arch, archive)| {
        platform
            .replace("ARCH", arch.name())
            .replace("SHA256", &sha256(archive))
    });
    let platforms: String = platforms.collect();
    let filled = [head, PLATFORMS, &platforms].concat();
    let filled = filled.replace("VERSION", &release.version);
    for arch in archives.keys() {
        ensure!(
            filled.contains(&name(*arch, release)),
            "{MANIFEST}: another name"
        );
    }
    Ok(filled.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn krew_gets_the_archive_of_this_version_by_its_sum() {
        let release = Release {
            version: String::from("1.2.3"),
            time: 0,
        };
        let archives = Arch::ALL.map(|arch| (arch, arch.name().as_bytes().to_vec()));
        let archives = BTreeMap::from(archives);
        let text = String::from_utf8(manifest(&archives, &release).unwrap()).unwrap();
        let mut parts = vec![String::from("\n  version: v1.2.3\n")];
        for (arch, archive) in &archives {
            let url = format!("/releases/download/v1.2.3/{}\n", name(*arch, &release));
            parts.push(format!("{url}      sha256: {}\n", sha256(archive)));
            parts.push(format!("\n          arch: {}\n", arch.name()));
        }
        for part in parts {
            assert_eq!(text.matches(&part).count(), 1, "{part} in {text}");
        }
        // krew prints the first in one line of a table.
        let short = text.split("shortDescription: ").nth(1).unwrap();
        assert!(short.lines().next().unwrap().len() <= 50, "{short}");
    }
}
