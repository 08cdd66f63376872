//! The kubectl plugin: its archive, and the manifest by which krew installs it.

use std::fs;

use anyhow::{Context as _, ensure};

use super::archive::{FILE, PROGRAM, Tree, gzip, tar};
use super::binary::PLUGIN;
use super::contents::source;
use super::{Release, dependencies, notices, sha256};
use crate::cargo;

/// krew's manifest, below `node-tracer/packaging`, with VERSION and SHA256 to be
/// filled in.
pub(super) const MANIFEST: &str = "krew/node-tracer.yaml";

/// The archive's file name, as krew's manifest has it.
pub(super) fn name(release: &Release) -> String {
    format!("{}-{}-linux-amd64.tar.gz", PLUGIN.name, release.version)
}

/// The program and its licences.
pub(super) fn archive(binary: &[u8], release: &Release) -> anyhow::Result<Vec<u8>> {
    let licence = fs::read(cargo::root().join("LICENSE")).context("LICENSE")?;
    let others = notices::text(PLUGIN.name, &dependencies::PLUGIN)?;
    let tree = Tree::from([
        (PLUGIN.name.to_owned(), (PROGRAM, binary.to_vec())),
        (String::from("LICENSE"), (FILE, licence)),
        (String::from("THIRD-PARTY"), (FILE, others.into_bytes())),
    ]);
    gzip(&tar(&tree, "", release.time)?)
}

/// What krew installs this archive by.
pub(super) fn manifest(archive: &[u8], release: &Release) -> anyhow::Result<Vec<u8>> {
    let text = String::from_utf8(source(MANIFEST)?).context(MANIFEST)?;
    let filled = text
        .replace("VERSION", &release.version)
        .replace("SHA256", &sha256(archive));
    ensure!(filled.contains(&name(release)), "{MANIFEST}: another name");
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
        let text = String::from_utf8(manifest(b"x", &release).unwrap()).unwrap();
        let url = format!("/releases/download/v1.2.3/{}\n", name(&release));
        let sum = format!("\n      sha256: {}\n", sha256(b"x"));
        for part in [&url, &sum, "\n  version: v1.2.3\n"] {
            assert_eq!(text.matches(part).count(), 1, "{part} in {text}");
        }
        // krew prints the first in one line of a table.
        let short = text.split("shortDescription: ").nth(1).unwrap();
        assert!(short.lines().next().unwrap().len() <= 50, "{short}");
    }
}
