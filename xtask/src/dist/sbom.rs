//! The bill of materials: the crates that the binary is made of, in CycloneDX's
//! JSON form (version 1.5).

use serde_json::{Value, json};

use super::dependencies::{self, Crate};
use super::{Release, sha256};
use crate::arch::Arch;

pub(super) fn document(binary: &[u8], arch: Arch, release: &Release) -> anyhow::Result<Vec<u8>> {
    let crates = dependencies::of(&dependencies::tracer(arch))?;
    let tool = |name: &str, version: &str| json!({ "type": "application", "name": name, "version": version });
    // Under the version that is released.
    let own = crates.values().find(|one| one.name == "node-tracer");
    let mut main = own.map(component).unwrap_or_default();
    main["type"] = json!("application");
    main["hashes"] = json!([{ "alg": "SHA-256", "content": sha256(binary) }]);
    let components: Vec<Value> = crates
        .values()
        .filter(|one| one.name != "node-tracer")
        .map(component)
        .collect();
    let dependencies: Vec<Value> = crates
        .values()
        .map(|one| json!({ "ref": one.id(), "dependsOn": one.depends_on }))
        .collect();
    let mut document = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": release.second()?,
            "tools": { "components": [tool("cargo xtask dist", &release.version)] },
            "component": main,
        },
        "components": components,
        "dependencies": dependencies,
    });
    // Of what is in it: another document has another one, the same has the same.
    document["serialNumber"] = json!(urn(&sha256(document.to_string().as_bytes())));
    let mut text = serde_json::to_vec_pretty(&document)?;
    text.push(b'\n');
    Ok(text)
}

fn component(one: &Crate) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": one.id(),
        "name": one.name,
        "version": one.version,
        "purl": one.id(),
        "licenses": [{ "expression": one.licence }],
    });
    if let Some(sum) = &one.sha256 {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    if let Some(url) = &one.repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": url }]);
    }
    component
}

/// A UUID of a sum (version 8: whatever its maker chose).
fn urn(sum: &str) -> String {
    format!(
        "urn:uuid:{}-{}-8{}-8{}-{}",
        &sum[..8],
        &sum[8..12],
        &sum[13..16],
        &sum[17..20],
        &sum[20..32]
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reference_has_its_component_and_the_binary_its_sum() {
        let release = Release {
            version: String::from("1.2.3"),
            time: 1_700_000_000,
        };
        let document = document(b"x", Arch::HOST, &release).unwrap();
        let document: Value = serde_json::from_slice(&document).unwrap();
        let main = &document["metadata"]["component"];
        assert_eq!(main["name"], "node-tracer");
        assert_eq!(main["hashes"][0]["content"], sha256(b"x"));
        let components = document["components"].as_array().unwrap();
        let all = components.iter().chain([main]);
        let references: BTreeSet<&str> = all.map(|one| one["bom-ref"].as_str().unwrap()).collect();
        assert_eq!(references.len(), components.len() + 1);
        for dependency in document["dependencies"].as_array().unwrap() {
            let to = dependency["dependsOn"].as_array().unwrap();
            for reference in to.iter().chain([&dependency["ref"]]) {
                assert!(
                    references.contains(reference.as_str().unwrap()),
                    "{reference}"
                );
            }
        }
        let serial = document["serialNumber"].as_str().unwrap();
        assert_eq!(serial.len(), "urn:uuid:".len() + 36);
    }
}
