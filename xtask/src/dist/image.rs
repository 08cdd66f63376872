//! The container image, as an archive: the binary alone. Written as the OCI
//! image layout wants it, with the one file besides by which older tools find
//! their way, so no daemon is needed to make it and any takes it:
//!
//! ```text
//! ctr -n k8s.io images import FILE
//! docker load -i FILE
//! skopeo copy --preserve-digests oci-archive:FILE docker://REGISTRY/node-tracer:VERSION
//! ```

use serde_json::{Value, json};

use super::archive::{FILE, PROGRAM, Tree, gzip, tar};
use super::contents::Contents;
use super::{Release, sha256};

/// What the image is called until it is in somebody's registry: a name that is
/// nobody's.
pub(super) const NAME: &str = "registry.example/node-tracer";

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

/// The image, and its digest: what a registry has it by.
pub(super) fn archive(contents: &Contents, release: &Release) -> anyhow::Result<(Vec<u8>, String)> {
    let version = &release.version;
    let program = Tree::from([(PATH.to_owned(), (PROGRAM, contents.binary.clone()))]);
    let layer = tar(&program, "", release.time)?;
    let unpacked = sha256(&layer);
    let mut layout = Layout { files: Tree::new() };
    let layer = layout.put("application/vnd.oci.image.layer.v1.tar+gzip", gzip(&layer)?);
    let labels = json!({
        "org.opencontainers.image.title": "node-tracer",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "MIT AND (MIT OR GPL-2.0-only)",
        "org.opencontainers.image.source": "https://github.com/node-tracer/node-tracer",
    });
    let config = json!({
        "created": release.second()?,
        "architecture": "amd64",
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
    let older = json!([{
        "Config": path(&config),
        "RepoTags": [format!("{NAME}:{version}")],
        "Layers": [path(&layer)],
    }]);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
    });
    let mut manifest = layout.put(
        "application/vnd.oci.image.manifest.v1+json",
        manifest.to_string().into_bytes(),
    );
    let digest = manifest["digest"].as_str().unwrap_or_default().to_owned();
    manifest["platform"] = json!({ "architecture": "amd64", "os": "linux" });
    manifest["annotations"] = json!({
        "org.opencontainers.image.ref.name": version,
        "io.containerd.image.name": format!("{NAME}:{version}"),
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    for (name, content) in [
        ("oci-layout", json!({ "imageLayoutVersion": "1.0.0" })),
        ("index.json", index),
        ("manifest.json", older),
    ] {
        let content = content.to_string().into_bytes();
        layout.files.insert(name.to_owned(), (FILE, content));
    }
    Ok((tar(&layout.files, "", release.time)?, digest))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;

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
        let contents = Contents::of_binary(b"\x7fELF".to_vec());
        let files = files(&archive(&contents, &release).unwrap().0);
        let read = |descriptor: &Value| {
            let content = &files[&path(descriptor)];
            assert_eq!(descriptor["size"], content.len());
            assert_eq!(descriptor["digest"], format!("sha256:{}", sha256(content)));
            content.clone()
        };
        let parse = |content: &[u8]| -> Value { serde_json::from_slice(content).unwrap() };
        let index = parse(&files["index.json"]);
        let manifest = parse(&read(&index["manifests"][0]));
        let config = parse(&read(&manifest["config"]));
        let layer = read(&manifest["layers"][0]);
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(layer.as_slice())
            .read_to_end(&mut unpacked)
            .unwrap();
        let id = format!("sha256:{}", sha256(&unpacked));
        assert_eq!(config["rootfs"]["diff_ids"][0], id);
        let program = config["config"]["Entrypoint"][0].as_str().unwrap();
        let within = self::files(&unpacked);
        assert_eq!(within[program.trim_start_matches('/')], b"\x7fELF");
        let older = parse(&files["manifest.json"]);
        assert_eq!(
            older[0]["RepoTags"][0],
            "registry.example/node-tracer:1.2.3"
        );
        assert!(files.contains_key(older[0]["Config"].as_str().unwrap()));
    }
}
