//! The Helm chart, packed as `helm package` does it: a tar archive of its folder.

use anyhow::{Context as _, ensure};

use super::Release;
use super::archive::{FILE, Tree, gzip, tar};
use super::contents::source;

/// Below `node-tracer/packaging`.
pub(super) const FOLDER: &str = "helm";
const VALUES: &str = "values.yaml";

/// Below [`FOLDER`].
const FILES: [&str; 11] = [
    "Chart.yaml",
    VALUES,
    "values.schema.json",
    "templates/NOTES.txt",
    "templates/_helpers.tpl",
    "templates/account.yaml",
    "templates/daemonset.yaml",
    "templates/kube-events.yaml",
    "templates/namespace.yaml",
    "templates/node-condition.yaml",
    "templates/podmonitor.yaml",
];

/// The file's name, as Helm has it.
pub(super) fn name(release: &Release) -> String {
    format!("node-tracer-{}.tgz", release.version)
}

/// The chart, with the image named by this digest.
pub(super) fn package(digest: &str, release: &Release) -> anyhow::Result<Vec<u8>> {
    let mut tree = Tree::new();
    for file in FILES {
        let mut content = source(&format!("{FOLDER}/{file}"))?;
        if file == VALUES {
            content = name_image(&content, digest)?;
        }
        tree.insert(file.to_owned(), (FILE, content));
    }
    gzip(&tar(&tree, "node-tracer/", release.time)?)
}

fn name_image(values: &[u8], digest: &str) -> anyhow::Result<Vec<u8>> {
    const NONE: &str = "\n  digest: \"\"\n";
    let text = std::str::from_utf8(values).context(VALUES)?;
    ensure!(text.matches(NONE).count() == 1, "{VALUES} has no{NONE}");
    let named = text.replace(NONE, &format!("\n  digest: {digest}\n"));
    Ok(named.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::contents::files_below;

    #[test]
    fn every_file_of_the_charts_folder_is_packed() {
        let mut files = FILES.map(str::to_owned).to_vec();
        files.sort();
        assert_eq!(files, files_below(FOLDER));
    }

    #[test]
    fn the_chart_is_of_this_version() {
        let chart = String::from_utf8(source("helm/Chart.yaml").unwrap()).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        for line in ["version", "appVersion"] {
            let line = format!("\n{line}: {version}\n");
            assert!(chart.contains(&line), "{line}");
        }
    }
}
