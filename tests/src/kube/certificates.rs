//! Keys and certificates of the cluster, made with the openssl program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// Days that they are good for.
const DAYS: &str = "2";

/// So that nothing depends on the machine's own openssl.cnf.
const CONFIG: &str = "\
    [req]\ndistinguished_name = name\n[name]\n\
    [authority]\nbasicConstraints = critical, CA:TRUE\nkeyUsage = keyCertSign\n\
    subjectKeyIdentifier = hash\n\
    [server]\nextendedKeyUsage = serverAuth\n\
    subjectAltName = IP:127.0.0.1, DNS:localhost, DNS:kubernetes\n\
    [client]\nextendedKeyUsage = clientAuth\n";

/// A new key, without a passphrase.
const NEW_KEY: [&str; 7] = [
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:prime256v1",
    "-nodes",
    "-config",
    "openssl.cnf",
];

/// An authority that the whole cluster trusts, and all that it has signed: files
/// in a folder.
#[derive(Debug)]
pub(super) struct Authority {
    folder: PathBuf,
}

impl Authority {
    /// Makes it in a new folder in `scratch`, with the certificates of the API
    /// server and the administrator, and the key that signs the tokens of service
    /// accounts.
    pub(super) fn create(scratch: &Path) -> anyhow::Result<Self> {
        let folder = scratch.join("certificates");
        fs::create_dir(&folder).context("mkdir certificates")?;
        let this = Self { folder };
        fs::write(this.file("openssl.cnf"), CONFIG)?;
        let make = ["req", "-x509", "-subj", "/CN=stage", "-days", DAYS];
        let files = ["-keyout", "ca.key", "-out", "ca.crt"];
        let extensions = ["-extensions", "authority"];
        this.openssl(&[&make[..], &NEW_KEY, &extensions, &files].concat())?;
        this.sign("api-server", "server", "/CN=kube-apiserver")?;
        this.sign("admin", "client", "/O=system:masters/CN=admin")?;
        this.sign("accounts", "client", "/CN=accounts")?;
        Ok(this)
    }

    /// What kubelet has of a node: `node.crt`, `node.key`.
    pub(super) fn sign_node(&self, name: &str) -> anyhow::Result<()> {
        let subject = format!("/O=system:nodes/CN=system:node:{name}");
        self.sign("node", "client", &subject)
    }

    /// The authority's own certificate.
    pub(super) fn certificate(&self) -> PathBuf {
        self.file("ca.crt")
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The text of one of its files.
    pub(super) fn text(&self, name: &str) -> anyhow::Result<String> {
        let path = self.file(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    /// A key and a certificate: NAME.key and NAME.crt. `usage` is a section of
    /// the configuration.
    fn sign(&self, name: &str, usage: &str, subject: &str) -> anyhow::Result<()> {
        let [key, request, certificate] =
            ["key", "csr", "crt"].map(|kind| format!("{name}.{kind}"));
        let make = ["req", "-new", "-subj", subject];
        let files = ["-keyout", &key, "-out", &request];
        self.openssl(&[&make[..], &NEW_KEY, &files].concat())?;
        let authority = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"];
        let extensions = ["-extfile", "openssl.cnf", "-extensions", usage];
        let files = ["-in", &request, "-out", &certificate, "-days", DAYS];
        self.openssl(&[&["x509", "-req"], &authority[..], &extensions, &files].concat())
    }

    /// Runs openssl in the folder.
    fn openssl(&self, args: &[&str]) -> anyhow::Result<()> {
        let output = Command::new("openssl")
            .args(args)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .output()
            .context("start openssl")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let ok = output.status.success();
        anyhow::ensure!(ok, "openssl {}: {}", args.join(" "), stderr.trim());
        Ok(())
    }
}
