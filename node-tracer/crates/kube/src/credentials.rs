//! Which credentials to ask the API server with.
//!
//! Found once and read anew for every connection: tokens and certificates are
//! replaced while a trace runs. No secret is kept in between.

use std::{
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use super::{
    error::KubeError,
    files::Files,
    kubeconfig::{Kubeconfig, Loaded, Origin, load, service_account},
};
use event::fault;

/// The kubelet's own, by distribution: paths of the host.
const KUBELET: [&str; 6] = [
    // kubeadm
    "/etc/kubernetes/kubelet.conf",
    // EKS, GKE, AKS, OpenShift, kOps
    "/var/lib/kubelet/kubeconfig",
    "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
    "/var/lib/k0s/kubelet.conf",
    "/var/snap/microk8s/current/credentials/kubelet.config",
];

/// Where a pod finds its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Credentials that were there when they were looked for.
#[derive(Clone, Debug)]
pub struct Credentials {
    place: Place,
    server: String,
    node: Option<String>,
}

/// Where credentials are read from.
#[derive(Clone, Debug)]
enum Place {
    /// The kubeconfig that the user has given.
    Given(PathBuf),
    /// Kubeconfigs of the user's that were found, merged. Whose they are is not
    /// known: `sudo -E` and `su` leave another user's environment.
    Found(Vec<PathBuf>),
    /// This pod's service account.
    Pod {
        folder: PathBuf,
        server: String,
    },
    Kubelet {
        root: PathBuf,
        path: PathBuf,
    },
}

/// What this process was started with.
struct Environment {
    service: Option<String>,
    service_account: PathBuf,
    kubeconfig: Option<OsString>,
    home: Option<PathBuf>,
}

impl Environment {
    fn of_process() -> Self {
        let text = |name| env::var(name).ok().filter(|text| !text.is_empty());
        let host = text("KUBERNETES_SERVICE_HOST");
        let port = text("KUBERNETES_SERVICE_PORT");
        Self {
            service: host.zip(port).map(|(host, port)| {
                if host.contains(':') {
                    format!("https://[{host}]:{port}")
                } else {
                    format!("https://{host}:{port}")
                }
            }),
            service_account: PathBuf::from(SERVICE_ACCOUNT),
            kubeconfig: env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty()),
            home: env::var_os("HOME").map(PathBuf::from),
        }
    }
}

impl Credentials {
    /// The kubeconfig that was given; or else the first usable of: this pod's
    /// service account, `$KUBECONFIG`, `~/.kube/config`, and the kubelet's own
    /// below the host's root.
    ///
    /// # Errors
    /// The given one cannot be used, or none can: [`KubeError::NoCredentials`]
    /// then says why, for each.
    pub fn find(root: &Path, given: Option<&Path>) -> Result<Self, KubeError> {
        match given {
            Some(path) => Self::at(Place::given(root, path))?.ok_or_else(|| KubeError::Read {
                path: path.to_owned(),
                source: io::ErrorKind::NotFound.into(),
            }),
            None => Self::found(root, Environment::of_process()),
        }
    }

    fn found(root: &Path, environment: Environment) -> Result<Self, KubeError> {
        let Environment {
            service,
            service_account: folder,
            kubeconfig,
            home,
        } = environment;
        let mut looked = Vec::new();
        let mut places = Vec::new();
        match service {
            Some(server) => places.push(Place::Pod { folder, server }),
            None => looked.push(String::from("not in a pod")),
        }
        match kubeconfig {
            Some(paths) => places.push(Place::Found(env::split_paths(&paths).collect())),
            None => looked.push(String::from("KUBECONFIG is not set")),
        }
        places.extend(home.map(|home| Place::Found(vec![home.join(".kube/config")])));
        places.extend(KUBELET.map(|path| Place::Kubelet {
            root: root.to_owned(),
            path: PathBuf::from(path),
        }));
        let mut missing = Vec::new();
        for place in places {
            let name = place.name();
            match Self::at(place) {
                Ok(Some(credentials)) => return Ok(credentials),
                Ok(None) => missing.push(name),
                Err(error) => looked.push(fault::chain(&error)),
            }
        }
        looked.push(format!("there is no {}", missing.join(", ")));
        Err(KubeError::NoCredentials { looked })
    }

    /// `None`: there is nothing.
    fn at(place: Place) -> Result<Option<Self>, KubeError> {
        let loaded = place.load()?;
        Ok(loaded.map(|loaded| Self {
            place,
            server: loaded.server,
            node: loaded.node,
        }))
    }

    /// The name to list the pods of: a kubelet's credentials are of its own
    /// node and allow no other; else as it is configured. API names have no
    /// capitals, host names may.
    pub fn node(&self, configured: &str) -> String {
        match (&self.place, &self.node) {
            (Place::Kubelet { .. }, Some(node)) => node.clone(),
            _ => configured.to_lowercase(),
        }
    }

    /// The file that they are from.
    pub fn place(&self) -> String {
        self.place.name()
    }

    /// The API server's host and port.
    pub fn server(&self) -> &str {
        &self.server
    }

    pub(super) fn load(&self) -> Result<Loaded, KubeError> {
        self.place.load()?.ok_or_else(|| KubeError::Read {
            path: PathBuf::from(self.place.name()),
            source: io::ErrorKind::NotFound.into(),
        })
    }
}

impl Place {
    /// The kubelet's own, if it is that by its path below the host's root: what
    /// is named in it is below that root, too. A path that does not begin with
    /// that root is none of the host's: one of this process's folder, or of its
    /// container.
    fn given(root: &Path, path: &Path) -> Self {
        let on_host = path
            .strip_prefix(root)
            .map(|below| Path::new("/").join(below));
        match on_host {
            Ok(on_host) if KUBELET.iter().any(|own| on_host == Path::new(own)) => Self::Kubelet {
                root: root.to_owned(),
                path: on_host,
            },
            _ => Self::Given(path.to_owned()),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Given(path) => path.display().to_string(),
            Self::Found(paths) => {
                let paths: Vec<String> = paths
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect();
                paths.join(":")
            }
            Self::Pod { folder, .. } => folder.join("token").display().to_string(),
            Self::Kubelet { path, .. } => path.display().to_string(),
        }
    }

    fn load(&self) -> Result<Option<Loaded>, KubeError> {
        let (paths, files, origin) = match self {
            Self::Pod { folder, server } => return service_account(folder, server),
            Self::Given(path) => (std::slice::from_ref(path), Files::Own, Origin::Given),
            Self::Found(paths) => (paths.as_slice(), Files::Own, Origin::Found),
            Self::Kubelet { root, path } => {
                let files = Files::host(root).map_err(|source| KubeError::Read {
                    path: root.clone(),
                    source,
                })?;
                (std::slice::from_ref(path), files, Origin::Kubelet)
            }
        };
        let kubeconfig = Kubeconfig::read(paths, &files)?;
        let load = |kubeconfig| load(&kubeconfig, &self.name(), &files, origin);
        kubeconfig.map(load).transpose()
    }
}

#[cfg(test)]
mod tests;
