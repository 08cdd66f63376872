use serde_json::json;

use super::*;
use crate::server::kubeconfig;

fn environment(folder: &Path) -> Environment {
    Environment {
        service: None,
        service_account: folder.join("sa"),
        kubeconfig: None,
        home: Some(folder.join("home")),
    }
}

fn put(path: &Path, server: &str, user: serde_json::Value) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, kubeconfig(&format!("https://{server}"), user)).unwrap();
}

fn token() -> serde_json::Value {
    json!({ "token": "s3cr3t" })
}

#[test]
fn the_nearest_credentials_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    let root = at("root");
    let found = |environment| Credentials::found(&root, environment).unwrap().server;
    let full = || Environment {
        service: Some(String::from("https://[fd00::1]:443")),
        kubeconfig: Some(at("missing").into_os_string()),
        ..environment(folder.path())
    };

    put(&root.join("etc/kubernetes/admin.conf"), "admin", token());
    std::fs::create_dir_all(&root).unwrap();
    assert!(
        Credentials::found(&root, full()).is_err(),
        "the admin's are nobody's"
    );
    put(
        &root.join("var/lib/rancher/k3s/agent/kubelet.kubeconfig"),
        "k3s",
        token(),
    );
    assert_eq!(found(full()), "k3s");
    put(
        &root.join("etc/kubernetes/kubelet.conf"),
        "kubeadm",
        token(),
    );
    assert_eq!(found(full()), "kubeadm");
    put(&at("home/.kube/config"), "home", token());
    assert_eq!(found(full()), "home");
    put(&at("missing"), "variable", token());
    assert_eq!(found(full()), "variable");
    std::fs::create_dir_all(at("sa")).unwrap();
    std::fs::write(at("sa/token"), "t\n").unwrap();
    assert_eq!(found(full()), "variable", "it has no authority");
    std::fs::write(at("sa/ca.crt"), "c\n").unwrap();
    assert_eq!(found(full()), "[fd00::1]:443");
    assert_eq!(found(environment(folder.path())), "home");
}

#[test]
fn without_any_it_is_said_where_they_were_looked_for_and_what_was_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    put(
        &root.join("var/lib/kubelet/kubeconfig"),
        "eks",
        json!({ "exec": { "command": "/usr/bin/aws-iam-authenticator" } }),
    );
    std::fs::create_dir_all(root.join("home/.kube")).unwrap();
    std::fs::write(root.join("home/.kube/config"), "users: s3cr3t").unwrap();
    let error = Credentials::found(root, environment(root))
        .unwrap_err()
        .to_string();
    for part in [
        "no credentials for the API server (not in a pod; KUBECONFIG is not set; ",
        "/home/.kube/config is no kubeconfig; ",
        "/var/lib/kubelet/kubeconfig has its credentials from another program (/usr/bin/aws-iam-authenticator)",
        "there is no /etc/kubernetes/kubelet.conf, /var/lib/rancher/k3s",
        "give --kubeconfig FILE, or a list with --pods FILE",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert!(!error.contains("s3cr3t"), "{error}");
}

#[test]
fn the_given_one_is_used_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    put(
        &folder.path().join("etc/kubernetes/kubelet.conf"),
        "kubeadm",
        token(),
    );
    let error = Credentials::find(folder.path(), Some(Path::new("/nowhere/config"))).unwrap_err();
    assert_eq!(error.to_string(), "cannot read /nowhere/config");
}

#[test]
fn a_kubelets_credentials_are_for_its_own_node() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("etc/kubernetes/kubelet.conf");
    put(&path, "kubeadm", token());
    let named = std::fs::read_to_string(&path)
        .unwrap()
        .replace(r#""u""#, r#""system:node:ip-10-0-0-1.ec2""#);
    std::fs::write(&path, named).unwrap();
    let kubelets = Credentials::found(folder.path(), environment(folder.path())).unwrap();
    assert_eq!(kubelets.node("Worker-7"), "ip-10-0-0-1.ec2");
    assert_eq!(kubelets.place(), "/etc/kubernetes/kubelet.conf");
    // Given by its path they are the same; of a copy the user knows better.
    let given = Credentials::find(folder.path(), Some(&path)).unwrap();
    assert_eq!(given.node("Worker-7"), "ip-10-0-0-1.ec2");
    let copy = folder.path().join("config");
    std::fs::copy(&path, &copy).unwrap();
    let given = Credentials::find(folder.path(), Some(&copy)).unwrap();
    assert_eq!(given.node("Worker-7"), "worker-7");
}

#[test]
fn no_secret_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    put(&path, "server", token());
    let credentials = Credentials::find(folder.path(), Some(&path)).unwrap();
    assert!(!format!("{credentials:?}").contains("s3cr3t"));
}

#[test]
fn the_kubelets_own_is_known_by_its_path_below_a_mounted_root() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let own = root.join("etc/kubernetes/kubelet.conf");
    std::fs::create_dir_all(root.join("pki")).unwrap();
    std::fs::write(root.join("pki/token"), "s3cr3t").unwrap();
    // A path of the host.
    put(&own, "kubeadm", json!({ "tokenFile": "/pki/token" }));
    let found = Credentials::find(root, Some(&own)).unwrap();
    assert_eq!(found.server, "kubeadm");
    found.load().unwrap();
    let copy = root.join("etc/kubernetes/copy.conf");
    put(&copy, "copy", json!({ "tokenFile": "/pki/token" }));
    let found = Credentials::find(root, Some(&copy));
    assert!(
        found.and_then(|found| found.load()).is_err(),
        "a user's own"
    );
}

#[test]
fn a_path_that_only_ends_like_the_kubelets_is_the_users() {
    let is_kubelets = |root: &str, path: &str| {
        let place = Place::given(Path::new(root), Path::new(path));
        matches!(place, Place::Kubelet { path, .. } if path == Path::new(KUBELET[0]))
    };
    assert!(is_kubelets("/", "/etc/kubernetes/kubelet.conf"));
    assert!(is_kubelets("/host", "/host/etc/kubernetes/kubelet.conf"));
    assert!(is_kubelets("/host/", "/host/etc/kubernetes/kubelet.conf"));
    for (root, path) in [
        ("/", "etc/kubernetes/kubelet.conf"),
        ("/host", "etc/kubernetes/kubelet.conf"),
        // Mounted into the container there.
        ("/host", "/etc/kubernetes/kubelet.conf"),
        ("/host", "/hosts/etc/kubernetes/kubelet.conf"),
    ] {
        assert!(!is_kubelets(root, path), "{path} below {root}");
    }
}

#[test]
fn what_the_container_has_is_not_looked_for_on_the_host() {
    let folder = tempfile::tempdir().unwrap();
    put(
        &folder.path().join("etc/kubernetes/kubelet.conf"),
        "host",
        token(),
    );
    let given = Path::new("/etc/kubernetes/kubelet.conf");
    // Should this machine have one, it is that.
    match Credentials::find(folder.path(), Some(given)) {
        Ok(found) => assert_ne!(found.server, "host"),
        Err(error) => assert!(error.to_string().contains("/etc/kubernetes/kubelet.conf")),
    }
}

#[test]
fn a_service_account_whose_authority_cannot_be_read_trusts_nobody_instead() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    std::fs::create_dir_all(at("sa/ca.crt")).unwrap();
    std::fs::write(at("sa/token"), "t\n").unwrap();
    let environment = Environment {
        service: Some(String::from("https://10.96.0.1:443")),
        ..environment(folder.path())
    };
    let error = Credentials::found(folder.path(), environment).unwrap_err();
    assert!(error.to_string().contains("sa/ca.crt"), "{error}");
}

#[test]
fn a_found_kubeconfig_is_used_only_if_no_other_user_can_have_written_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let (home, path) = (
        folder.path().join("home"),
        folder.path().join("home/.kube/config"),
    );
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let found = || {
        let found = Credentials::found(folder.path(), environment(folder.path()));
        found.map_err(|error| error.to_string())
    };
    let secret = folder.path().join("shadow");
    std::fs::write(&secret, "s3cr3t").unwrap();
    // Its own token is no better: it goes with the server that is believed.
    for user in [
        token(),
        json!({ "exec": { "command": "plugin" } }),
        json!({ "tokenFile": secret }),
        json!({ "client-certificate": secret, "client-key": secret }),
    ] {
        put(&path, "home", user);
        mode(&path, 0o600);
        mode(&home, 0o755);
        mode(&home.join(".kube"), 0o755);
        for (what, bad, good) in [
            (path.as_path(), 0o664, 0o600),
            (path.as_path(), 0o606, 0o600),
            (home.as_path(), 0o775, 0o755),
            (path.parent().unwrap(), 0o1777, 0o755),
        ] {
            mode(what, bad);
            let error = found().unwrap_err();
            let advice = format!("give --kubeconfig {}", path.display());
            assert!(error.contains(&advice), "{error}");
            assert!(!error.contains("s3cr3t"), "{error}");
            assert!(
                Credentials::find(folder.path(), Some(&path)).is_ok(),
                "given"
            );
            mode(what, good);
        }
        assert_eq!(found().unwrap().server, "home");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            let error = found().unwrap_err();
            assert!(error.contains("it belongs to user 65534"), "{error}");
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
    }
}
