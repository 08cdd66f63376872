//! The crates that the binary is made of: what cargo resolves for the tracer
//! and for its kernel programs, each for its own target. Crates that only
//! build (build scripts, procedural macros) are none of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::binary;
use crate::arch::Arch;
use crate::cargo::{cargo, root};

/// A crate, and what it is made of in turn.
#[derive(Clone, Debug)]
pub(super) struct Crate {
    /// As in the registry.
    pub(super) name: String,
    /// The one that is used.
    pub(super) version: String,
    pub(super) licence: String,
    /// Where its source is developed.
    pub(super) repository: Option<String>,
    /// Of its archive in the registry; the workspace's own have none.
    pub(super) sha256: Option<String>,
    /// Where its source is on this machine.
    pub(super) folder: PathBuf,
    /// [`id`](Self::id)s.
    pub(super) depends_on: BTreeSet<String>,
}

impl Crate {
    /// What names it: its package URL.
    pub(super) fn id(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }
}

/// (workspace member, target): what it is made of is what is looked for.
pub(super) type Part = (&'static str, &'static str);
pub(super) const fn tracer(arch: Arch) -> [Part; 2] {
    [
        (binary::TRACER.package, arch.target()),
        ("node-tracer-ebpf", "bpfel-unknown-none"),
    ]
}
pub(super) const fn plugin(arch: Arch) -> [Part; 1] {
    [(binary::PLUGIN.package, arch.target())]
}

/// All of them by ID, the workspace's own too.
pub(super) fn of(parts: &[Part]) -> anyhow::Result<BTreeMap<String, Crate>> {
    let sums = checksums(&fs::read_to_string(root().join("Cargo.lock")).context("Cargo.lock")?);
    let mut all: BTreeMap<String, Crate> = BTreeMap::new();
    for &(member, target) in parts {
        let metadata = said(&[
            "metadata",
            "--locked",
            "--format-version=1",
            "--filter-platform",
            target,
        ])?;
        let metadata = serde_json::from_str(&metadata).context("cargo metadata")?;
        let linked = linked(member, target)?;
        for one in made_of(&metadata, member, &linked, &sums)? {
            // The record layout is in both parts; it depends on nothing in one.
            let depends_on = one.depends_on.clone();
            let listed = all.entry(one.id()).or_insert(one);
            listed.depends_on.extend(depends_on);
        }
    }
    Ok(all)
}

/// Name and version of what is linked into a member of the workspace. `cargo
/// metadata` alone has the features that any member asks for, also what only
/// fuzz targets and tests need.
fn linked(member: &str, target: &str) -> anyhow::Result<BTreeSet<(String, String)>> {
    let text = said(&[
        "tree",
        "--locked",
        "--edges=normal,no-proc-macro",
        "--prefix=none",
        "--format={p}",
        "--package",
        member,
        "--target",
        target,
    ])?;
    let pairs = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" v")?;
        let version = rest.split_whitespace().next()?;
        Some((name.to_owned(), version.to_owned()))
    });
    Ok(pairs.collect())
}

/// What cargo prints.
fn said(args: &[&str]) -> anyhow::Result<String> {
    let output = cargo(args)?.output().context("start cargo")?;
    ensure!(
        output.status.success(),
        "cargo {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).context("what cargo prints is no text")
}

/// Sums by name and version, out of `Cargo.lock`.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let packages = lock.split("[[package]]").skip(1);
    let sums = packages.filter_map(|package| {
        let field = |name: &str| {
            let start = format!("{name} = \"");
            let value = package.lines().find_map(|line| line.strip_prefix(&start))?;
            Some(value.trim_end_matches('"').to_owned())
        };
        Some(((field("name")?, field("version")?), field("checksum")?))
    });
    sums.collect()
}

/// What a member of the workspace is made of, itself included.
fn made_of(
    metadata: &Value,
    member: &str,
    linked: &BTreeSet<(String, String)>,
    sums: &BTreeMap<(String, String), String>,
) -> anyhow::Result<Vec<Crate>> {
    let by_id = |list: &Value| -> BTreeMap<String, Value> {
        let list = list.as_array().into_iter().flatten();
        let pairs = list.filter_map(|one| Some((one["id"].as_str()?.to_owned(), one.clone())));
        pairs.collect()
    };
    let packages = by_id(&metadata["packages"]);
    let nodes = by_id(&metadata["resolve"]["nodes"]);
    let links = |id: &str| -> Vec<String> {
        let dependencies = nodes.get(id).and_then(|node| node["deps"].as_array());
        let normal = dependencies.into_iter().flatten().filter(|dependency| {
            let mut kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
            kinds.any(|kind| kind["kind"].is_null())
        });
        let ids = normal.filter_map(|dependency| dependency["pkg"].as_str());
        let ids = ids.filter(|id| {
            let text = |field: &str| packages[*id][field].as_str().unwrap_or_default().to_owned();
            linked.contains(&(text("name"), text("version")))
        });
        ids.map(str::to_owned).collect()
    };
    let first = packages
        .iter()
        .find(|(_, package)| package["name"] == member)
        .map(|(id, _)| id.clone())
        .with_context(|| format!("no {member} in the workspace"))?;
    let mut seen = BTreeSet::from([first.clone()]);
    let mut to_do = vec![first];
    let mut found = Vec::new();
    while let Some(id) = to_do.pop() {
        let below = links(&id);
        let one = describe(&packages[&id], sums)?;
        let names = below.iter().map(|id| describe(&packages[id], sums));
        let names: anyhow::Result<BTreeSet<String>> = names.map(|one| Ok(one?.id())).collect();
        found.push(Crate {
            depends_on: names?,
            ..one
        });
        for id in below {
            if seen.insert(id.clone()) {
                to_do.push(id);
            }
        }
    }
    Ok(found)
}

fn describe(package: &Value, sums: &BTreeMap<(String, String), String>) -> anyhow::Result<Crate> {
    let text = |field: &str| package[field].as_str().map(str::to_owned);
    let name = text("name").context("a crate without a name")?;
    let version = text("version").context("a crate without a version")?;
    let manifest = PathBuf::from(text("manifest_path").context("a crate without a manifest")?);
    let licence = text("license").with_context(|| format!("{name} names no licence"))?;
    Ok(Crate {
        // As it was written before there were expressions.
        licence: licence.replace('/', " OR "),
        repository: text("repository"),
        sha256: sums.get(&(name.clone(), version.clone())).cloned(),
        folder: manifest.parent().map(PathBuf::from).unwrap_or_default(),
        name,
        version,
        depends_on: BTreeSet::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_made_of_libraries_for_both_sides_and_of_no_tools() {
        let all = of(&tracer(Arch::HOST)).unwrap();
        let names: BTreeSet<&str> = all.values().map(|one| one.name.as_str()).collect();
        for name in [
            "node-tracer",
            "node-tracer-ebpf",
            "aya",
            "aya-ebpf",
            "serde",
            "ring",
        ] {
            assert!(names.contains(name), "{name}");
        }
        for name in [
            "aya-build",
            "serde_derive",
            "tempfile",
            "clap_mangen",
            "cc",
            "xtask",
        ] {
            assert!(!names.contains(name), "{name}");
        }
        for one in all.values() {
            assert!(!one.licence.contains('/'), "{}", one.licence);
            assert!(
                one.sha256.is_some() || one.name.starts_with("node-tracer"),
                "{}",
                one.name
            );
            for other in &one.depends_on {
                assert!(all.contains_key(other), "{} on {other}", one.name);
            }
        }
    }

    #[test]
    fn sums_are_read_from_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"x\"\nchecksum = \"ff\"\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n";
        let sums = checksums(lock);
        let key = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        assert_eq!(sums.get(&key("a", "1.0.0")).map(String::as_str), Some("ff"));
        assert_eq!(sums.len(), 1);
    }
}
