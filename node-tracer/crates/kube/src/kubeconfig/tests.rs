use std::{fs, os::unix::fs::PermissionsExt as _};

use serde_json::json;

use super::*;
use crate::server::kubeconfig;
use event::fault;

/// A certificate, as far as anybody looks here.
fn certificate(common_name: &str) -> String {
    let mut der = vec![0x30, 0x82, 0x01];
    for name in ["kubernetes", common_name] {
        der.extend([0x06, 0x03, 0x55, 0x04, 0x03, 0x0c, name.len() as u8]);
        der.extend(name.bytes());
    }
    let body = STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
}

fn load_text(text: &str, origin: Origin) -> Result<Loaded, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    fs::write(&path, text).unwrap();
    let loaded = Kubeconfig::read(&[path], &Files::Own)
        .and_then(|kubeconfig| load(&kubeconfig.unwrap(), "the-file", &Files::Own, origin));
    loaded.map_err(|error| fault::chain(&error))
}

#[test]
fn a_broken_kubeconfig_is_said_to_be_so_without_its_content() {
    for text in ["token: [s3cr3t", "- s3cr3t", "users: s3cr3t"] {
        let error = load_text(text, Origin::Given).err().unwrap();
        assert!(error.contains("is no kubeconfig"), "{error}");
        assert!(!error.contains("s3cr3t"), "{error}");
    }
    let error = load_text("", Origin::Given).err().unwrap();
    assert!(error.contains("has no current-context"), "{error}");
}

#[test]
fn each_flaw_is_named() {
    let good = kubeconfig("https://10.0.0.1:6443", json!({}));
    let cases = [
        (
            good.replace(r#""current-context":"x""#, r#""current-context":"y""#),
            "has no context \"y\"",
        ),
        (
            good.replace(r#""cluster":"c""#, r#""cluster":"d""#),
            "has no cluster \"d\"",
        ),
        (
            good.replace("https://10.0.0.1:6443", "https:// no"),
            "has no valid server",
        ),
        (
            good.replace("https://10.0.0.1:6443", "/path"),
            "has no valid server",
        ),
        (
            good.replace(r#""server":"#, r#""proxy-url":"http://p","server":"#),
            "has a proxy-url",
        ),
        (
            good.replace(r#""user":{}"#, r#""user":{"as":"root"}"#),
            "asks as another user",
        ),
        (
            good.replace(
                r#""server":"#,
                r#""certificate-authority-data":"%","server":"#,
            ),
            "has a certificate, key or token that is none",
        ),
    ];
    for (text, expected) in cases {
        let error = load_text(&text, Origin::Given).err().unwrap();
        assert!(error.contains(expected), "{error}");
    }
    let loaded = load_text(&good, Origin::Kubelet).unwrap();
    assert_eq!(
        (loaded.server.as_str(), loaded.node),
        ("10.0.0.1:6443", None)
    );
}

#[test]
fn another_program_is_run_only_for_the_user() {
    let exec = json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "aws-iam-authenticator",
    } });
    let text = kubeconfig("https://10.0.0.1", exec);
    let error = load_text(&text, Origin::Kubelet).err().unwrap();
    assert!(
        error.contains("another program (aws-iam-authenticator)"),
        "{error}"
    );
    let loaded = load_text(&text, Origin::Given).unwrap();
    assert_eq!(loaded.plugin.unwrap().name(), "aws-iam-authenticator");
    let provider = json!({ "auth-provider": { "name": "gcp", "config": {} } });
    let text = kubeconfig("https://10.0.0.1", provider);
    let error = load_text(&text, Origin::Given).err().unwrap();
    assert!(error.contains("the auth-provider gcp"), "{error}");
}

#[test]
fn of_several_files_the_first_that_has_a_thing_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let without = json!({ "current-context": "x", "users": null, "clusters": [
        { "name": "c", "cluster": { "server": "https://first:1/k8s/" } },
    ] });
    let paths = [
        folder.path().join("missing"),
        put("1", without.to_string()),
        put(
            "2",
            kubeconfig("https://second", json!({ "tokenFile": "token" })),
        ),
        put(
            "3",
            kubeconfig("https://third", json!({ "token": "third" })),
        ),
    ];
    put("token", String::from(" second\n"));
    let merged = Kubeconfig::read(&paths, &Files::Own).unwrap().unwrap();
    let loaded = load(&merged, "files", &Files::Own, Origin::Given).unwrap();
    assert_eq!(loaded.url, "https://first:1/k8s");
    assert_eq!(
        loaded.identity.authorization.as_deref(),
        Some("Bearer second")
    );
    assert!(
        Kubeconfig::read(&paths[..1], &Files::Own)
            .unwrap()
            .is_none()
    );
}

#[test]
fn a_kubelets_files_are_looked_up_below_the_hosts_root() {
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    fs::create_dir_all(at("etc/kubernetes/pki")).unwrap();
    fs::create_dir_all(at("var/lib/kubelet/pki")).unwrap();
    let user = json!({
        "client-certificate": "/var/lib/kubelet/pki/current.pem",
        "client-key": "/var/lib/kubelet/pki/current.pem",
    });
    let text = kubeconfig("https://10.0.0.1:6443", user);
    let text = text.replace(
        r#""server":"#,
        r#""certificate-authority":"pki/ca.crt","server":"#,
    );
    fs::write(at("etc/kubernetes/kubelet.conf"), text).unwrap();
    fs::write(at("etc/kubernetes/pki/ca.crt"), certificate("ca")).unwrap();
    fs::write(
        at("var/lib/kubelet/pki/1.pem"),
        certificate("system:node:worker-7"),
    )
    .unwrap();
    // As kubelet has it: an absolute link, which is one of the host's.
    std::os::unix::fs::symlink(
        "/var/lib/kubelet/pki/1.pem",
        at("var/lib/kubelet/pki/current.pem"),
    )
    .unwrap();

    let host = Files::host(root.path()).unwrap();
    let paths = [PathBuf::from("/etc/kubernetes/kubelet.conf")];
    let found = |host: &Files| {
        let kubeconfig = Kubeconfig::read(&paths, host).unwrap().unwrap();
        load(&kubeconfig, "kubelet.conf", host, Origin::Kubelet)
    };
    let loaded = found(&host).unwrap();
    assert_eq!(loaded.node.as_deref(), Some("worker-7"));
    assert_eq!(loaded.authority.unwrap(), certificate("ca").as_bytes());
    assert_eq!(loaded.identity.certificate, loaded.identity.key);

    fs::remove_file(at("var/lib/kubelet/pki/1.pem")).unwrap();
    let error = fault::chain(&found(&host).err().unwrap());
    assert!(
        error.starts_with("cannot read /var/lib/kubelet/pki/current.pem: "),
        "{error}"
    );
}

#[test]
fn a_node_is_known_by_its_user_too() {
    let text = kubeconfig("https://10.0.0.1", json!({ "token": "t" }))
        .replace(r#""u""#, r#""system:node:n1""#);
    assert_eq!(
        load_text(&text, Origin::Given).unwrap().node.as_deref(),
        Some("n1")
    );
}

#[test]
fn what_only_looks_like_a_certificate_names_no_node() {
    for pem in [
        "",
        "-----BEGIN CERTIFICATE-----\n%%\n-----END CERTIFICATE-----",
        &certificate("worker"),
    ] {
        assert_eq!(node_of_certificate(pem.as_bytes()), None);
    }
    let cut = [0x06, 0x03, 0x55, 0x04, 0x03, 0x13, 200, b's'];
    assert_eq!(common_name(&cut, "s"), None);
    assert_eq!(common_name(&cut[..5], "s"), None);
}

#[test]
fn of_files_that_were_found_none_may_be_another_users() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, mode, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let way = "current-context: c
contexts: [{name: c, context: {cluster: k, user: admin}}]
clusters: [{name: k, cluster: {server: \"http://127.0.0.1:1\"}}]
";
    let users = "users: [{name: admin, user: {token: inline}}]\n";
    let own = file("own", 0o600, users);
    let load = |paths: &[PathBuf]| {
        let read = Kubeconfig::read(paths, &Files::Own).unwrap().unwrap();
        load(&read, "found", &Files::Own, Origin::Found).map(|loaded| loaded.url)
    };
    let strange = file("strange", 0o666, way);
    let refused = |paths: &[PathBuf]| {
        let error = load(paths).unwrap_err().to_string();
        error.contains("others than its owner can write it")
    };
    assert!(refused(&[strange, own.clone()]));
    assert!(load(&[file("good", 0o600, way), own]).is_ok());
    // Its own token goes with the server that is believed.
    assert!(refused(&[file("whole", 0o666, &format!("{way}{users}"))]));
}
