//! What is packed, and where it goes on a node.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::archive::{FILE, PROGRAM, Tree, gzip, tar};
use super::{Release, dependencies, image, notices};
use crate::arch::Arch;
use crate::{cargo, documents};

const MANIFEST: (&str, &str) = (
    "kubernetes/node-tracer.yaml",
    "usr/share/doc/node-tracer/examples/node-tracer.yaml",
);

/// A script, which node-problem-detector runs.
const PLUGIN: (&str, &str) = (
    "node-problem-detector/node-problem-detector",
    "usr/lib/node-tracer/node-problem-detector",
);

/// (below `node-tracer/packaging`, on the node)
const FILES: [(&str, &str); 11] = [
    (
        "systemd/node-tracer.service",
        "usr/lib/systemd/system/node-tracer.service",
    ),
    (
        "systemd/50-node-tracer.preset",
        "usr/lib/systemd/system-preset/50-node-tracer.preset",
    ),
    ("systemd/node-tracer.default", "etc/default/node-tracer"),
    (
        "journald/node-tracer.catalog",
        "usr/lib/systemd/catalog/node-tracer.catalog",
    ),
    ("debian/copyright", "usr/share/doc/node-tracer/copyright"),
    (MANIFEST.0, MANIFEST.1),
    (
        "kubernetes/node-tracer-kube-events.yaml",
        "usr/share/doc/node-tracer/examples/node-tracer-kube-events.yaml",
    ),
    (
        "kubernetes/node-tracer-node-condition.yaml",
        "usr/share/doc/node-tracer/examples/node-tracer-node-condition.yaml",
    ),
    (
        "prometheus/alerts.yaml",
        "usr/share/doc/node-tracer/examples/alerts.yaml",
    ),
    (
        "grafana/node-tracer.json",
        "usr/share/doc/node-tracer/examples/dashboard.json",
    ),
    (
        "node-problem-detector/node-tracer.json",
        "usr/share/doc/node-tracer/examples/node-problem-detector.json",
    ),
];

/// (shell, below `usr/share`)
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/node-tracer"),
    ("zsh", "zsh/vendor-completions/_node-tracer"),
    ("fish", "fish/vendor_completions.d/node-tracer.fish"),
];

#[derive(Debug)]
pub(super) struct Contents {
    pub(super) arch: Arch,
    pub(super) binary: Vec<u8>,
    /// What belongs to it, by path on the node.
    others: Tree,
}

impl Contents {
    /// A binary, and nothing that belongs to it.
    #[cfg(test)]
    pub(super) fn of_binary(binary: Vec<u8>, arch: Arch) -> Self {
        Self {
            arch,
            binary,
            others: Tree::new(),
        }
    }

    /// Has the DaemonSet name its image by this digest. Returns the manifest.
    pub(super) fn name_image(
        &mut self,
        digest: &str,
        release: &Release,
    ) -> anyhow::Result<Vec<u8>> {
        let text = String::from_utf8(source(MANIFEST.0)?).context(MANIFEST.0)?;
        let name = format!("image: {}:", image::NAME);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let place = lines.iter().position(|line| line.trim().starts_with(&name));
        let place = place.with_context(|| format!("no {name} in {}", MANIFEST.0))?;
        let indent = lines[place].len() - lines[place].trim_start().len();
        lines[place] = format!("{:indent$}{name}{}@{digest}", "", release.version);
        // What is said of the missing digest.
        if lines[place - 1].trim().starts_with("# cargo xtask dist") {
            lines.remove(place - 1);
        }
        let manifest = (lines.join("\n") + "\n").into_bytes();
        let path = MANIFEST.1.to_owned();
        self.others.insert(path, (FILE, manifest.clone()));
        Ok(manifest)
    }

    /// All files, by path on the node.
    pub(super) fn installed(&self) -> Tree {
        let mut tree = self.others.clone();
        let program = (PROGRAM, self.binary.clone());
        tree.insert(String::from("usr/bin/node-tracer"), program);
        tree
    }
}

/// A file of `node-tracer/packaging`.
pub(super) fn source(path: &str) -> anyhow::Result<Vec<u8>> {
    read(&format!("node-tracer/packaging/{path}"))
}

fn read(path: &str) -> anyhow::Result<Vec<u8>> {
    let path = cargo::root().join(path);
    fs::read(&path).with_context(|| path.display().to_string())
}

/// The README and what it links to, by their names in the package. (The rules'
/// pages are in the program: `node-tracer explain-rule`.)
fn packed_documents() -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let all = documents::all()?.into_iter().filter_map(|document| {
        let is_readme = document.path == Path::new("README.md");
        let name = match document.path.strip_prefix(documents::FOLDER) {
            Ok(name) => Path::new("doc").join(name),
            Err(_) if is_readme => document.path.clone(),
            Err(_) => return None,
        };
        let text = document
            .text
            .replace(&format!("]({}/", documents::FOLDER), "](doc/")
            .replace("](../../README.md", "](../README.md");
        Some((name.display().to_string(), text.into_bytes()))
    });
    Ok(all.collect())
}

/// This binary, and what belongs to it.
pub(super) fn all(binary: &[u8], arch: Arch, release: &Release) -> anyhow::Result<Contents> {
    let mut others = Tree::new();
    let mut add = |path: String, content: Vec<u8>| {
        others.insert(path, (FILE, content));
    };
    for (from, to) in FILES {
        add(to.to_owned(), source(from)?);
    }
    let day = release.day()?;
    for command in manual::commands().map(Some).chain([None]) {
        let page = manual::man_page(command, &day).context("no man page")?;
        let name = command.map_or(String::new(), |name| format!("-{name}"));
        let section = manual::SECTION;
        add(
            format!("usr/share/man/man{section}/node-tracer{name}.{section}.gz"),
            gzip(page.as_bytes())?,
        );
    }
    for (shell, path) in COMPLETIONS {
        let script = manual::completions(shell).context(shell)?;
        add(format!("usr/share/{path}"), script.into_bytes());
    }
    let mut texts = packed_documents()?;
    texts.push((
        String::from("THIRD-PARTY"),
        notices::text("node-tracer", &dependencies::tracer(arch))?.into_bytes(),
    ));
    for (name, content) in texts {
        add(
            format!("usr/share/doc/node-tracer/{name}.gz"),
            gzip(&content)?,
        );
    }
    others.insert(PLUGIN.1.to_owned(), (PROGRAM, source(PLUGIN.0)?));
    Ok(Contents {
        arch,
        binary: binary.to_vec(),
        others,
    })
}

/// The archive, for nodes without dpkg: one folder with everything below it
/// where it belongs below `/`.
pub(super) fn archive(contents: &Contents, release: &Release) -> anyhow::Result<Vec<u8>> {
    let above = format!("node-tracer-{}/", release.version);
    gzip(&tar(&contents.installed(), &above, release.time)?)
}

/// All files below a folder of `node-tracer/packaging`, by their paths there.
#[cfg(test)]
pub(super) fn files_below(folder: &str) -> Vec<String> {
    let top = cargo::root().join("node-tracer/packaging").join(folder);
    let mut folders = vec![top.clone()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(&top).unwrap();
                files.push(name.display().to_string());
            }
        }
    }
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::{chart, plugin};

    #[test]
    fn a_node_gets_all_of_it() {
        let release = Release {
            version: String::from("1.2.3"),
            time: 0,
        };
        let installed = all(b"x", Arch::HOST, &release).unwrap().installed();
        for path in [
            "usr/bin/node-tracer",
            "usr/lib/systemd/system/node-tracer.service",
            "usr/lib/systemd/catalog/node-tracer.catalog",
            "usr/share/man/man8/node-tracer.8.gz",
            "usr/share/man/man8/node-tracer-trace.8.gz",
            "usr/share/bash-completion/completions/node-tracer",
            "usr/share/zsh/vendor-completions/_node-tracer",
            "usr/share/fish/vendor_completions.d/node-tracer.fish",
            "usr/share/doc/node-tracer/copyright",
            "usr/share/doc/node-tracer/THIRD-PARTY.gz",
            "usr/share/doc/node-tracer/README.md.gz",
            "usr/share/doc/node-tracer/doc/runbook.md.gz",
            "etc/default/node-tracer",
        ] {
            assert!(installed.contains_key(path), "{path}");
        }
        let programs = installed.values().filter(|(mode, _)| *mode == PROGRAM);
        assert_eq!(programs.count(), 2);
        // And finds it where its configuration says.
        let config = source("node-problem-detector/node-tracer.json").unwrap();
        let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
        let path = config["rules"][0]["path"].as_str().unwrap();
        assert_eq!(path.strip_prefix('/'), Some(PLUGIN.1));
    }

    #[test]
    fn every_file_of_the_folder_is_packed_or_makes_a_package() {
        let makes = ["debian/postinst", "debian/prerm", "debian/postrm"];
        for name in files_below("") {
            let packed = FILES.iter().any(|(from, _)| *from == name) || name == PLUGIN.0;
            let makes = makes.contains(&name.as_str()) || name == plugin::MANIFEST;
            // All of the chart is in its own package.
            let of_chart = Path::new(&name).starts_with(chart::FOLDER);
            assert!(packed || makes || of_chart, "{name}");
        }
    }
}
