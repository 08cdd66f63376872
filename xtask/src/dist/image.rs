//! The container image, as an archive: the binary alone, for each architecture.
//! Written as the OCI
//! image layout wants it, with the one file besides by which older tools find
//! their way, so no daemon is needed to make it and any takes it:
//!
//! ```text
//! ctr -n k8s.io images import FILE
//! docker load -i FILE
//! skopeo copy --all --preserve-digests oci-archive:FILE docker://REGISTRY/node-tracer:VERSION
//! ```

use serde_json::{Value, json};

use super::archive::{FILE, PROGRAM, Tree, gzip, tar};
use super::contents::Contents;
use super::{Release, sha256};

/// What the image is called until it is in somebody's registry: a name that is
/// nobody's.
pub(super) const NAME: &str = "registry.example/node-tracer";

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Where the binary is in it.
const PATH: &str = "usr/bin/node-tracer";

/// The layout, and what is put into it.
struct Layout {
    files: Tree,
}

impl Layout {
    /// Puts something in, and returns what refers to it.
    fn put(&mut self, kind: &str, content: Vec<u8>) -> Value {
        let digest = sha256(&content);
        let size = content.len();
        let path = format!("blobs/sha256/{digest}");
        self.files.insert(path, (FILE, content));
        json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": size })
    }
}

/// The path of what is referred to.
fn path(descriptor: &Value) -> String {
    let digest = descriptor["digest"].as_str().unwrap_or_default();
    format!("blobs/{}", digest.replace(':', "/"))
}

/// The image of these binaries, one for each architecture, and its digest: what a
/// registry has it by.
pub(super) fn archive(all: &[Contents], release: &Release) -> anyhow::Result<(Vec<u8>, String)> {
    let version = &release.version;
    let mut layout = Layout { files: Tree::new() };
    let (mut manifests, mut older) = (Vec::new(), Vec::new());
    for contents in all {
        let (manifest, config, layer) = one(&mut layout, contents, release)?;
        manifests.push(manifest);
        // Tools of then know no more than one architecture under a name.
        let tag = match all.len() {
            1 => version.clone(),
            _ => format!("{version}-{}", contents.arch.name()),
        };
        older.push(json!({
            "Config": path(&config),
            "RepoTags": [format!("{NAME}:{tag}")],
            "Layers": [path(&layer)],
        }));
    }
    let index = |manifests: Vec<Value>| json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
    let mut whole = layout.put(INDEX, index(manifests).to_string().into_bytes());
    let digest = whole["digest"].as_str().unwrap_or_default().to_owned();
    whole["annotations"] = json!({
        "org.opencontainers.image.ref.name": version,
        "io.containerd.image.name": format!("{NAME}:{version}"),
    });
    for (name, content) in [
        ("oci-layout", json!({ "imageLayoutVersion": "1.0.0" })),
        ("index.json", index(vec![whole])),
        ("manifest.json", Value::Array(older)),
    ] {
        let content = content.to_string().into_bytes();
        layout.files.insert(name.to_owned(), (FILE, content));
    }
    Ok((tar(&layout.files, "", release.time)?, digest))
}

/// Puts in what there is of one architecture: its manifest, its configuration and
/// its layer.
fn one(
    layout: &mut Layout,
    contents: &Contents,
    release: &Release,
) -> anyhow::Result<(Value, Value, Value)> {
    let version = &release.version;
    let program = Tree::from([(PATH.to_owned(), (PROGRAM, contents.binary.clone()))]);
    let layer = tar(&program, "", release.time)?;
    let unpacked = sha256(&layer);
    let layer = layout.put("application/vnd.oci.image.layer.v1.tar+gzip", gzip(&layer)?);
    let labels = json!({
        "org.opencontainers.image.title": "node-tracer",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "MIT AND (MIT OR GPL-2.0-only)",
        "org.opencontainers.image.source": "https://github.com/node-tracer/node-tracer",
    });
    let config = json!({
        "created": release.second()?,
        "architecture": contents.arch.name(),
        "os": "linux",
        "config": {
            "Entrypoint": [format!("/{PATH}")],
            // Where the manifest and kubectl debug mount the node's root.
            "Env": ["PATH=/usr/bin", "NODE_TRACER_ROOT=/host"],
            "WorkingDir": "/",
            "Labels": labels,
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{unpacked}")] },
        "history": [{ "created": release.second()?, "created_by": "cargo xtask dist" }],
    });
    let config = layout.put(
        "application/vnd.oci.image.config.v1+json",
        config.to_string().into_bytes(),
    );
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [layer],
    });
    let mut manifest = layout.put(MANIFEST, manifest.to_string().into_bytes());
    manifest["platform"] = json!({ "architecture": contents.arch.name(), "os": "linux" });
    Ok((manifest, config, layer))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;
    use crate::arch::Arch;

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.path().unwrap().display().to_string(), content)
        });
        entries.collect()
    }

    #[test]
    fn whoever_follows_the_index_comes_to_the_binary() {
        let release = Release {
            version: String::from("1.2.3"),
            time: 1_700_000_000,
        };
        let contents = |arch: Arch| Contents::of_binary(arch.name().into(), arch);
        let files = files(&archive(&Arch::ALL.map(contents), &release).unwrap().0);
        let read = |descriptor: &Value| {
            let content = &files[&path(descriptor)];
            assert_eq!(descriptor["size"], content.len());
            assert_eq!(descriptor["digest"], format!("sha256:{}", sha256(content)));
            content.clone()
        };
        let parse = |content: &[u8]| -> Value { serde_json::from_slice(content).unwrap() };
        let outer = parse(&files["index.json"]);
        let index = parse(&read(&outer["manifests"][0]));
        let older = parse(&files["manifest.json"]);
        for (at, arch) in Arch::ALL.into_iter().enumerate() {
            let entry = &index["manifests"][at];
            assert_eq!(entry["platform"]["architecture"], arch.name());
            let manifest = parse(&read(entry));
            let config = parse(&read(&manifest["config"]));
            assert_eq!(config["architecture"], arch.name());
            let layer = read(&manifest["layers"][0]);
            let mut unpacked = Vec::new();
            flate2::read::GzDecoder::new(layer.as_slice())
                .read_to_end(&mut unpacked)
                .unwrap();
            let id = format!("sha256:{}", sha256(&unpacked));
            assert_eq!(config["rootfs"]["diff_ids"][0], id);
            let program = config["config"]["Entrypoint"][0].as_str().unwrap();
            let within = self::files(&unpacked);
            let program = &within[program.trim_start_matches('/')];
            assert_eq!(*program, arch.name().as_bytes());
            let tag = format!("registry.example/node-tracer:1.2.3-{}", arch.name());
            assert_eq!(older[at]["RepoTags"][0], tag);
            assert!(files.contains_key(older[at]["Config"].as_str().unwrap()));
        }
    }

    #[test]
    fn older_tools_have_a_lone_architecture_by_the_plain_name() {
        let release = Release {
            version: String::from("1.2.3"),
            time: 1_700_000_000,
        };
        let contents = Contents::of_binary(b"\x7fELF".to_vec(), Arch::HOST);
        let files = files(&archive(&[contents], &release).unwrap().0);
        let older: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        assert_eq!(
            older[0]["RepoTags"][0],
            "registry.example/node-tracer:1.2.3"
        );
    }
}
