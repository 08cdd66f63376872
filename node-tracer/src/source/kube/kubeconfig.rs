//! From a kubeconfig to what a client is made of. Certificates, keys and tokens
//! that it names by path are read here: a kubelet's are paths of the host.

use std::{io, path::Path, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::config::{AuthInfo, Cluster, ExecInteractiveMode, Kubeconfig};

use super::{
    error::{Flaw, KubeError, quoted},
    files::Files,
};

/// What a client is made of.
pub(super) struct Loaded {
    /// Server and secrets.
    pub(super) config: kube::Config,
    /// Host and port, for messages.
    pub(super) server: String,
    /// The node that these are the credentials of.
    pub(super) node: Option<String>,
}

/// Whether programs that a kubeconfig names are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plugins {
    /// The user gave the kubeconfig.
    Run,
    /// It was found.
    Refuse,
}

/// Reads a kubeconfig; several are merged as kubectl does. `None`: there is
/// none of them.
pub(super) fn read(paths: &[PathBuf], files: &Files) -> Result<Option<Kubeconfig>, KubeError> {
    let mut merged: Option<Kubeconfig> = None;
    for path in paths {
        let content = match files.read(path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => {
                return Err(KubeError::Read {
                    path: path.clone(),
                    source,
                });
            }
        };
        let unusable = |at| KubeError::Unusable {
            from: path.display().to_string(),
            flaw: Flaw::NotKubeconfig { at },
        };
        let text = String::from_utf8(content).map_err(|_| unusable(None))?;
        let mut next = Kubeconfig::from_yaml(&text).map_err(|error| unusable(position(&error)))?;
        resolve_paths(&mut next, path.parent().unwrap_or(Path::new("/")));
        merged = Some(match merged {
            Some(first) => first.merge(next).map_err(|_| unusable(None))?,
            None => next,
        });
    }
    Ok(merged)
}

fn position(error: &kube::config::KubeconfigError) -> Option<(u64, u64)> {
    let kube::config::KubeconfigError::Parse(error) = error else {
        return None;
    };
    let at = error.location()?;
    Some((at.line(), at.column()))
}

/// Paths in a kubeconfig are relative to its folder.
fn resolve_paths(config: &mut Kubeconfig, folder: &Path) {
    let resolve = |path: &mut Option<String>| {
        if let Some(path) = path.as_mut().filter(|path| !path.is_empty()) {
            *path = folder.join(&*path).to_string_lossy().into_owned();
        }
    };
    for cluster in config
        .clusters
        .iter_mut()
        .filter_map(|named| named.cluster.as_mut())
    {
        resolve(&mut cluster.certificate_authority);
    }
    for user in config
        .auth_infos
        .iter_mut()
        .filter_map(|named| named.auth_info.as_mut())
    {
        resolve(&mut user.client_certificate);
        resolve(&mut user.client_key);
        resolve(&mut user.token_file);
        // A bare name is looked up in PATH.
        if let Some(exec) = &mut user.exec
            && exec
                .command
                .as_ref()
                .is_some_and(|command| command.contains('/'))
        {
            resolve(&mut exec.command);
        }
    }
}

/// What the current context leads to, with every file read.
pub(super) fn load(
    mut kubeconfig: Kubeconfig,
    from: &str,
    files: &Files,
    plugins: Plugins,
) -> Result<Loaded, KubeError> {
    let unusable = |flaw| KubeError::Unusable {
        from: from.to_owned(),
        flaw,
    };
    let dangling = |kind, name: &str| {
        unusable(Flaw::Dangling {
            kind,
            name: quoted(name),
        })
    };

    let current = kubeconfig
        .current_context
        .clone()
        .filter(|name| !name.is_empty());
    let current = current.ok_or_else(|| unusable(Flaw::NoContext))?;
    let context = kubeconfig
        .contexts
        .iter()
        .find(|named| named.name == current);
    let context = context.and_then(|named| named.context.clone());
    let context = context.ok_or_else(|| dangling("context", &current))?;
    let user_name = context.user.clone().unwrap_or_default();

    // Only what is in use: another user's files may well be missing.
    kubeconfig
        .clusters
        .retain(|named| named.name == context.cluster);
    kubeconfig
        .auth_infos
        .retain(|named| named.name == user_name);
    let cluster = kubeconfig
        .clusters
        .first_mut()
        .and_then(|named| named.cluster.as_mut());
    let cluster = cluster.ok_or_else(|| dangling("cluster", &context.cluster))?;
    // Without a user it is anonymous: the way through `kubectl proxy`.
    let user = kubeconfig
        .auth_infos
        .first_mut()
        .and_then(|named| named.auth_info.as_mut());
    let mut nobody = AuthInfo::default();
    let user = user.unwrap_or(&mut nobody);

    if cluster
        .proxy_url
        .as_ref()
        .is_some_and(|url| !url.is_empty())
    {
        return Err(unusable(Flaw::Proxy));
    }
    if let Some(program) = program(user) {
        if plugins == Plugins::Refuse {
            return Err(unusable(Flaw::Plugin(quoted(&program))));
        }
        if let Some(exec) = &mut user.exec {
            // Standard input may be the list of pods, or nobody's.
            exec.interactive_mode = Some(ExecInteractiveMode::Never);
        }
    }
    inline(cluster, user, files)?;
    let node = user_name.strip_prefix(NODE_USER).map(str::to_owned);
    let certificate = user.client_certificate_data.as_deref();
    let node = node.or_else(|| certificate.and_then(node_of_certificate));

    let mut config = kube::Config::try_from(kubeconfig).map_err(|error| {
        unusable(match error {
            kube::config::KubeconfigError::MissingClusterUrl
            | kube::config::KubeconfigError::ParseClusterUrl(_) => Flaw::NoServer,
            _ => Flaw::BadSecret,
        })
    })?;
    // The environment's proxy is for the outside; kubelet's way is direct.
    config.proxy_url = None;
    // Whoever asks knows how long they can wait.
    config.default_retry = false;
    let host = config
        .cluster_url
        .host()
        .ok_or_else(|| unusable(Flaw::NoServer))?;
    let port = config.cluster_url.port_u16();
    let server = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    Ok(Loaded {
        config,
        server,
        node,
    })
}

/// The program that makes the credentials.
fn program(user: &AuthInfo) -> Option<String> {
    if let Some(exec) = &user.exec {
        return Some(exec.command.clone().unwrap_or_default());
    }
    user.auth_provider
        .as_ref()
        .map(|provider| provider.name.clone())
}

/// Reads what is named by path.
fn inline(cluster: &mut Cluster, user: &mut AuthInfo, files: &Files) -> Result<(), KubeError> {
    let read = |path: Option<String>| -> Result<Option<Vec<u8>>, KubeError> {
        let Some(path) = path.filter(|path| !path.is_empty()).map(PathBuf::from) else {
            return Ok(None);
        };
        match files.read(&path) {
            Ok(content) => Ok(Some(content)),
            Err(source) => Err(KubeError::Read { path, source }),
        }
    };
    let authority = cluster.certificate_authority.take();
    if cluster.certificate_authority_data.is_none() {
        cluster.certificate_authority_data = read(authority)?.map(|pem| STANDARD.encode(pem));
    }
    let certificate = user.client_certificate.take();
    if user.client_certificate_data.is_none() {
        user.client_certificate_data = read(certificate)?.map(|pem| STANDARD.encode(pem));
    }
    let key = user.client_key.take();
    if user.client_key_data.is_none() {
        user.client_key_data = read(key)?.map(|pem| STANDARD.encode(pem).into());
    }
    let token = user.token_file.take();
    if user.token.is_none()
        && let Some(token) = read(token)?
    {
        user.token = Some(String::from_utf8_lossy(&token).trim().to_owned().into());
    }
    Ok(())
}

/// How kubelets are called.
const NODE_USER: &str = "system:node:";

/// The node in the common name of a kubelet's certificate.
fn node_of_certificate(data: &str) -> Option<String> {
    let pem = String::from_utf8(STANDARD.decode(data).ok()?).ok()?;
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

#[cfg(test)]
mod tests;
