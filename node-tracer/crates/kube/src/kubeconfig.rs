//! From a kubeconfig to what a connection is made of. Certificates, keys and
//! tokens that it names by path are read here: a kubelet's are paths of the
//! host.

use std::{
    io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{
    error::{Flaw, KubeError, quoted},
    files::{Doubt, Files},
    plugin::Plugin,
};

/// What a connection is made of.
#[derive(Default)]
pub(super) struct Loaded {
    /// The server's address, without a slash at its end.
    pub(super) url: String,
    /// Its host and port, for messages.
    pub(super) server: String,
    /// The node that these are the credentials of.
    pub(super) node: Option<String>,
    /// The authority of the server's certificate, PEM; the system's if there
    /// is none.
    pub(super) authority: Option<Vec<u8>>,
    /// The name in the server's certificate, if it is not the address.
    pub(super) server_name: Option<String>,
    /// The server's certificate is not looked at.
    pub(super) insecure: bool,
    pub(super) identity: Identity,
    /// Makes a better identity.
    pub(super) plugin: Option<Plugin>,
}

/// Who asks. It has no `Debug`, being secret.
#[derive(Default)]
pub(super) struct Identity {
    /// Certificates, PEM.
    pub(super) certificate: Option<Vec<u8>>,
    /// The key of the first, PEM.
    pub(super) key: Option<Vec<u8>>,
    /// The value of the `Authorization` header.
    pub(super) authorization: Option<String>,
}

/// Whose word a kubeconfig is. It names the server that is believed, and the
/// programs that are run and the files that are read with root's rights as a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The user's, who gave it.
    Given,
    /// It was found: not used unless nobody but root, and who runs this, can have
    /// written it.
    Found,
    /// The kubelet's, below the host's root: of it no program is run.
    Kubelet,
}

/// One file, and the folder that its paths are relative to.
struct Document {
    path: PathBuf,
    folder: PathBuf,
    /// Why others could have written it, if they could.
    doubt: Option<Doubt>,
    content: Value,
}

/// Files that are one: of what is in several, the first has it.
pub(super) struct Kubeconfig(Vec<Document>);

impl Kubeconfig {
    /// Reads those of the files that there are; `None` if there is none.
    pub(super) fn read(paths: &[PathBuf], files: &Files) -> Result<Option<Self>, KubeError> {
        let mut documents = Vec::new();
        for path in paths {
            let (content, doubt) = match files.read_judged(path) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(source) => {
                    let path = path.clone();
                    return Err(KubeError::Read { path, source });
                }
            };
            let content = parse(&content).map_err(|flaw| KubeError::Unusable {
                from: path.display().to_string(),
                flaw,
            })?;
            let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
            documents.push(Document {
                path: path.clone(),
                folder,
                doubt,
                content,
            });
        }
        Ok((!documents.is_empty()).then_some(Self(documents)))
    }

    fn named(&self, list: &str, entry: &str, name: &str) -> Option<(&Value, &Document)> {
        self.0.iter().find_map(|document| {
            let list = document.content.get(list)?.as_array()?;
            let found = list.iter().find(|one| text(one, "name") == Some(name))?;
            Some((found.get(entry)?, document))
        })
    }

    /// A file that others could have written, if there is one. Each of them has
    /// a say in which server is asked, which program is run and which file is read.
    fn doubtful(&self) -> Option<(&Path, &Doubt)> {
        let mut documents = self.0.iter();
        documents.find_map(|document| Some((document.path.as_path(), document.doubt.as_ref()?)))
    }

    fn current_context(&self) -> Option<&str> {
        let mut documents = self.0.iter();
        documents.find_map(|document| text(&document.content, "current-context"))
    }
}

/// The parser's own words would quote the content.
fn parse(content: &[u8]) -> Result<Value, Flaw> {
    let no_kubeconfig = |at| Flaw::NotKubeconfig { at };
    let content = std::str::from_utf8(content).map_err(|_| no_kubeconfig(None))?;
    if content.trim().is_empty() {
        return Ok(Value::Null);
    }
    let content: Value = serde_saphyr::from_str(content).map_err(|error| {
        let at = error.location().map(|at| (at.line(), at.column()));
        no_kubeconfig(at)
    })?;
    let lists = ["clusters", "contexts", "users"];
    let is_list = |name: &&str| {
        matches!(
            content.get(name),
            None | Some(Value::Null | Value::Array(_))
        )
    };
    if !content.is_object() || !lists.iter().all(is_list) {
        return Err(no_kubeconfig(None));
    }
    Ok(content)
}

/// A text that is there and is not empty.
fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str().filter(|text| !text.is_empty())
}

/// What the current context leads to, with every file read.
pub(super) fn load(
    kubeconfig: &Kubeconfig,
    from: &str,
    files: &Files,
    origin: Origin,
) -> Result<Loaded, KubeError> {
    let unusable = |flaw| KubeError::Unusable {
        from: from.to_owned(),
        flaw,
    };
    let dangling = |kind, name: &str| {
        let name = quoted(name);
        unusable(Flaw::Dangling { kind, name })
    };
    if let (Origin::Found, Some((path, doubt))) = (origin, kubeconfig.doubtful()) {
        return Err(KubeError::Unusable {
            from: path.display().to_string(),
            flaw: Flaw::Untrusted {
                doubt: doubt.clone(),
                path: path.to_owned(),
            },
        });
    }
    let current = kubeconfig
        .current_context()
        .ok_or_else(|| unusable(Flaw::NoContext))?;
    let context = kubeconfig.named("contexts", "context", current);
    let (context, _) = context.ok_or_else(|| dangling("context", current))?;
    let name = text(context, "cluster").unwrap_or_default();
    let cluster = kubeconfig.named("clusters", "cluster", name);
    let (cluster, cluster_file) = cluster.ok_or_else(|| dangling("cluster", name))?;
    let cluster_folder = cluster_file.folder.as_path();
    let user_name = text(context, "user").unwrap_or_default();
    // Without a user it is anonymous: the way through `kubectl proxy`.
    let user = kubeconfig.named("users", "user", user_name);
    let (user, user_folder) = user.map_or((&Value::Null, Path::new("/")), |(user, document)| {
        (user, document.folder.as_path())
    });

    if text(cluster, "proxy-url").is_some() {
        return Err(unusable(Flaw::Proxy));
    }
    if text(user, "as").is_some() {
        return Err(unusable(Flaw::Impersonation));
    }
    let (url, server) = address(text(cluster, "server").unwrap_or_default())
        .ok_or_else(|| unusable(Flaw::NoServer))?;
    let plugin = Plugin::of(user, cluster, user_folder);
    if let (Origin::Kubelet, Some(plugin)) = (origin, &plugin) {
        return Err(unusable(Flaw::Plugin(quoted(plugin.name()))));
    }
    if let Some(provider) = user.get("auth-provider") {
        let name = quoted(text(provider, "name").unwrap_or_default());
        return Err(unusable(Flaw::Provider(name)));
    }
    let secret = |value, folder, name| match secret(value, folder, name, files) {
        Err(Wrong::Flaw(flaw)) => Err(unusable(flaw)),
        Err(Wrong::File(error)) => Err(error),
        Ok(secret) => Ok(secret),
    };
    let certificate = secret(user, user_folder, "client-certificate")?;
    let by_name = user_name.strip_prefix(NODE_USER).map(str::to_owned);
    let node = by_name.or_else(|| node_of_certificate(certificate.as_deref()?));
    Ok(Loaded {
        url,
        server,
        node,
        authority: secret(cluster, cluster_folder, "certificate-authority")?,
        server_name: text(cluster, "tls-server-name").map(str::to_owned),
        insecure: cluster.get("insecure-skip-tls-verify") == Some(&Value::Bool(true)),
        identity: Identity {
            certificate,
            key: secret(user, user_folder, "client-key")?,
            authorization: authorization(user, user_folder, files)?,
        },
        plugin,
    })
}

/// A server's URL without its last slash; its host and port.
fn address(url: &str) -> Option<(String, String)> {
    let uri: hyper::Uri = url.parse().ok()?;
    matches!(uri.scheme_str(), Some("https" | "http")).then_some(())?;
    let host = uri.host()?;
    let port = uri.port_u16();
    let server = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    Some((url.trim_end_matches('/').to_owned(), server))
}

enum Wrong {
    Flaw(Flaw),
    File(KubeError),
}

/// A secret that is given as base64 (`NAME-data`) or by path.
fn secret(
    value: &Value,
    folder: &Path,
    name: &str,
    files: &Files,
) -> Result<Option<Vec<u8>>, Wrong> {
    if let Some(data) = text(value, &format!("{name}-data")) {
        let data = STANDARD
            .decode(data)
            .map_err(|_| Wrong::Flaw(Flaw::BadSecret))?;
        return Ok(Some(data));
    }
    let path = text(value, name);
    path.map(|path| read(&folder.join(path), files))
        .transpose()
        .map_err(Wrong::File)
}

fn read(path: &Path, files: &Files) -> Result<Vec<u8>, KubeError> {
    let path = path.to_owned();
    files
        .read(&path)
        .map_err(|source| KubeError::Read { path, source })
}

/// The `Authorization` header of a token or a password.
fn authorization(user: &Value, folder: &Path, files: &Files) -> Result<Option<String>, KubeError> {
    if let Some(token) = text(user, "token") {
        return Ok(Some(bearer(token)));
    }
    if let Some(path) = text(user, "tokenFile") {
        let token = read(&folder.join(path), files)?;
        return Ok(Some(bearer(&String::from_utf8_lossy(&token))));
    }
    let password = text(user, "password").unwrap_or_default();
    let name = text(user, "username");
    Ok(name.map(|name| format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))))
}

/// The `Authorization` header of a token.
pub(super) fn bearer(token: &str) -> String {
    format!("Bearer {}", token.trim())
}

/// What a pod's service account amounts to; `None`: it has none.
///
/// # Errors
/// Its token or its authority cannot be read. Without the latter any server with
/// a certificate of the system's authorities would be given the token.
pub(super) fn service_account(folder: &Path, url: &str) -> Result<Option<Loaded>, KubeError> {
    let token = match read(&folder.join("token"), &Files::Own) {
        Ok(token) => token,
        Err(KubeError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let Some((url, server)) = address(url) else {
        return Ok(None);
    };
    Ok(Some(Loaded {
        url,
        server,
        authority: Some(read(&folder.join("ca.crt"), &Files::Own)?),
        identity: Identity {
            authorization: Some(bearer(&String::from_utf8_lossy(&token))),
            ..Identity::default()
        },
        ..Loaded::default()
    }))
}

/// How kubelets are called.
const NODE_USER: &str = "system:node:";

/// The node in the common name of a kubelet's certificate.
fn node_of_certificate(pem: &[u8]) -> Option<String> {
    let pem = std::str::from_utf8(pem).ok()?;
    let (_, rest) = pem.split_once("-----BEGIN CERTIFICATE-----")?;
    let (body, _) = rest.split_once("-----END CERTIFICATE-----")?;
    let body: String = body.split_whitespace().collect();
    common_name(&STANDARD.decode(body).ok()?, NODE_USER)
}

/// The rest of the common name that begins like this, in a DER certificate. A
/// common name is its object identifier, a string's tag, a length below 128,
/// and the string.
fn common_name(der: &[u8], prefix: &str) -> Option<String> {
    const IDENTIFIER: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];
    let starts = der.windows(IDENTIFIER.len()).enumerate();
    let mut names = starts
        .filter(|(_, window)| *window == IDENTIFIER)
        .filter_map(|(at, _)| {
            let value = der.get(at + IDENTIFIER.len()..)?;
            let length = usize::from(*value.get(1)?);
            std::str::from_utf8(value.get(2..2 + length)?).ok()
        });
    names
        .find_map(|name| name.strip_prefix(prefix))
        .map(str::to_owned)
}

/// Its names are looked up; what they lead to is not read, and nothing is run.
#[cfg(feature = "testing")]
pub(super) fn fuzz(data: &[u8]) {
    match parse(data) {
        Ok(content) => {
            let folder = PathBuf::from("/root/.kube");
            let all = Kubeconfig(vec![Document {
                path: folder.join("config"),
                folder,
                doubt: None,
                content,
            }]);
            let context = all.current_context().unwrap_or_default();
            for (list, entry) in [
                ("contexts", "context"),
                ("clusters", "cluster"),
                ("users", "user"),
            ] {
                let _ = all.named(list, entry, context);
            }
        }
        // The content is not quoted.
        Err(flaw) => assert!(flaw.to_string().len() < 300, "{flaw}"),
    }
}

#[cfg(test)]
mod tests;
