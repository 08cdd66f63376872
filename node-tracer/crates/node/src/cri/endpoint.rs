//! Where a container runtime listens: as given, or found on the node.

use std::{
    collections::BTreeSet,
    fmt, io,
    path::{Path, PathBuf},
};

use rustix::fs::{FileType, fstat};

use crate::root::{Found, Root, RootError};

/// Where the runtimes listen unless told otherwise, and those that come with
/// a Kubernetes distribution.
const USUAL: [&str; 8] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/var/run/cri-dockerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k3s/cri-dockerd/cri-dockerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
    "/run/dockershim.sock",
];

/// Files that name the endpoint, the kubelet's first, and the word before it. A
/// flag of the kubelet wins over its file.
const CONFIGURATION: [(&str, &str); 3] = [
    (
        "/var/lib/kubelet/kubeadm-flags.env",
        "--container-runtime-endpoint=",
    ),
    ("/var/lib/kubelet/config.yaml", "containerRuntimeEndpoint:"),
    ("/etc/crictl.yaml", "runtime-endpoint:"),
];

/// Largest configuration that is read.
const MAX_FILE: usize = 256 << 10;

/// How often a path is looked up: a rename anywhere at the same time can
/// disturb that.
const TRIES: usize = 5;

/// Longest path that the kernel takes.
const MAX_PATH: usize = 4096;

/// A unix socket on the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint(PathBuf);

/// Why a text names no endpoint. Each says what to give instead.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Over a network, or by other means.
    #[error(
        "{0} is no unix socket: only the runtime on this node is asked, and it listens on one; give unix:///run/containerd/containerd.sock or its like"
    )]
    NotUnix(String),
    /// Not from the root.
    #[error("{0} is no absolute path; give unix:///PATH (three slashes) or /PATH")]
    NotAbsolute(String),
    /// No path at all.
    #[error("an endpoint is unix:///PATH or /PATH, of a socket and not of a folder")]
    NoFile,
    /// Longer than any path, or with a zero byte in it.
    #[error("the endpoint is longer than a path can be, or has a zero byte in it")]
    NoPath,
}

impl Endpoint {
    /// Reads `unix:///path` or `/path`; the path is the host's.
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let text = text.trim();
        if text.len() > MAX_PATH || text.contains('\0') {
            return Err(EndpointError::NoPath);
        }
        let path = match text.split_once(':') {
            Some(("unix", rest)) => rest.strip_prefix("//").unwrap_or(rest),
            Some((scheme, _)) if !scheme.contains('/') => {
                return Err(EndpointError::NotUnix(text.to_owned()));
            }
            _ => text,
        };
        if path.is_empty() || path.ends_with('/') {
            return Err(EndpointError::NoFile);
        }
        if !path.starts_with('/') {
            return Err(EndpointError::NotAbsolute(text.to_owned()));
        }
        Ok(Self(PathBuf::from(path)))
    }

    /// The socket's path on the host.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.0.display())
    }
}

/// The sockets of runtimes below a root folder.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    /// What the configuration names, there or not, each once, the kubelet's
    /// first.
    named: Vec<Endpoint>,
    /// Those that are there, each once: of what the configuration names, or,
    /// if none of that is there, of the usual ones. Where one is named and
    /// there, another has not the kubelet's sandboxes.
    pub(super) found: Vec<Endpoint>,
    /// Those of the same that cannot be looked at, and may be there.
    hidden: Vec<Endpoint>,
}

impl Sockets {
    /// Looks for them. Nothing is connected to. Blocks as long as the file
    /// system does.
    ///
    /// # Errors
    /// The root cannot be opened.
    pub(super) fn find(root: &Path) -> Result<Self, RootError> {
        let root = Root::open(root)?;
        let mut sockets = Self {
            named: configured(&root),
            ..Self::default()
        };
        sockets.look(&root, sockets.named.clone());
        // A configuration can be older than the runtime. One that cannot be
        // looked at is no reason to take another for it.
        if sockets.found.is_empty() && sockets.hidden.is_empty() {
            let usual = USUAL.map(|path| Endpoint(PathBuf::from(path)));
            sockets.look(&root, usual);
        }
        Ok(sockets)
    }

    fn look(&mut self, root: &Root, at: impl IntoIterator<Item = Endpoint>) {
        let mut seen = BTreeSet::new();
        for endpoint in at {
            match socket(root, &endpoint) {
                Ok(Some(id)) if seen.insert(id) => self.found.push(endpoint),
                Ok(_) => {}
                Err(_) => self.hidden.push(endpoint),
            }
        }
    }

    /// Those to ask. If none is there, the one that the kubelet is to use, or
    /// else the first that cannot be looked at: why that one does not answer
    /// is worth telling.
    pub(super) fn candidates(self) -> Vec<Endpoint> {
        if !self.found.is_empty() {
            return self.found;
        }
        let told = self.named.into_iter().chain(self.hidden).next();
        told.into_iter().collect()
    }

    /// It is there, or may be, or is to come back there: the configuration
    /// names it.
    pub(super) fn may_have(&self, endpoint: &Endpoint) -> bool {
        let mut all = self.named.iter().chain(&self.found).chain(&self.hidden);
        all.any(|each| each == endpoint)
    }

    /// The configuration puts no other before this one.
    pub(super) fn puts_first(&self, endpoint: &Endpoint) -> bool {
        self.named.first().is_none_or(|first| first == endpoint)
    }

    /// Those that are there and that the configuration puts before this one.
    pub(super) fn before(&self, endpoint: &Endpoint) -> Vec<Endpoint> {
        let before = self.named.iter().take_while(|each| *each != endpoint);
        let there = before.filter(|each| self.found.contains(each));
        there.cloned().collect()
    }
}

/// The runtimes' sockets to ask below a root folder, each once, the kubelet's
/// first: those that the configuration names, or, if none of them is there, the
/// usual ones. If there is none, the one that the kubelet is to use, or else the
/// first that cannot be looked at: why that one does not answer is worth
/// telling. Nothing is connected to.
///
/// Blocks as long as the file system does.
pub fn endpoints(root: &Path) -> Vec<Endpoint> {
    let sockets = Sockets::find(root).unwrap_or_default();
    sockets.candidates()
}

/// What the configuration names, each once.
fn configured(root: &Root) -> Vec<Endpoint> {
    let mut all = Vec::new();
    for (file, key) in CONFIGURATION {
        if let Ok(Found::File(content)) = root.read(Path::new(file), MAX_FILE)
            && let Some(endpoint) = named(&String::from_utf8_lossy(&content.bytes), key)
            && !all.contains(&endpoint)
        {
            all.push(endpoint);
        }
    }
    all
}

/// What a socket is known by, whatever its path: /var/run is /run. `None` if
/// there is none.
///
/// # Errors
/// There may be one, and it cannot be looked at.
fn socket(root: &Root, endpoint: &Endpoint) -> io::Result<Option<(u64, u64)>> {
    let mut tries = 1..TRIES;
    let handle = loop {
        match root.handle(endpoint.path()) {
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && tries.next().is_some() => {}
            result => break result?,
        }
    };
    let stat = fstat(handle)?;
    let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
    Ok(is_socket.then_some((stat.st_dev, stat.st_ino)))
}

/// Nothing is at the path, or nothing can be.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// The endpoint after a word, in a file of lines.
fn named(text: &str, key: &str) -> Option<Endpoint> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .find_map(|line| {
            let (before, after) = line.split_once(key)?;
            // A key of YAML starts its line; a flag stands anywhere.
            let whole = key.starts_with('-') || before.trim().is_empty();
            let quotes = |c: char| c.is_whitespace() || matches!(c, '"' | '\'');
            let value = after.trim_start_matches(quotes).split(quotes).next()?;
            whole.then(|| Endpoint::parse(value).ok()).flatten()
        })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixListener};

    use super::*;

    fn parse(text: &str) -> Result<String, EndpointError> {
        Endpoint::parse(text).map(|endpoint| endpoint.to_string())
    }

    /// A root with these files, and sockets where the content is `None`.
    fn root(files: &[(&str, Option<&str>)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match content {
                Some(text) => fs::write(path, text).unwrap(),
                None => drop(UnixListener::bind(path).unwrap()),
            }
        }
        root
    }

    fn found(files: &[(&str, Option<&str>)]) -> Vec<String> {
        let root = root(files);
        endpoints(root.path())
            .iter()
            .map(Endpoint::to_string)
            .collect()
    }

    #[test]
    fn an_endpoint_is_a_path_with_or_without_its_scheme() {
        let expected = "unix:///run/x.sock";
        for text in [
            "/run/x.sock",
            "unix:///run/x.sock",
            "unix:/run/x.sock",
            " /run/x.sock\n",
        ] {
            assert_eq!(parse(text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(
            parse("/run/a:b/x.sock").as_deref(),
            Ok("unix:///run/a:b/x.sock")
        );
    }

    #[test]
    fn what_is_no_unix_socket_on_this_node_is_refused_with_the_reason() {
        for text in [
            "tcp://10.0.0.1:2376",
            "npipe:////./pipe/x",
            "http://localhost",
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error, EndpointError::NotUnix(text.to_owned()));
            assert!(
                error.to_string().contains("only the runtime on this node"),
                "{error}"
            );
        }
        for text in ["run/x.sock", "unix://run/x.sock", "containerd", "./x:y"] {
            assert_eq!(
                parse(text),
                Err(EndpointError::NotAbsolute(text.to_owned()))
            );
        }
        for text in ["", "unix://", "/", "/run/"] {
            assert_eq!(parse(text), Err(EndpointError::NoFile), "{text:?}");
        }
        assert_eq!(parse("/a\0b"), Err(EndpointError::NoPath));
        assert_eq!(parse(&"/a".repeat(4096)), Err(EndpointError::NoPath));
    }

    #[test]
    fn sockets_are_found_at_the_usual_places_and_files_are_not_taken_for_them() {
        assert_eq!(
            found(&[
                ("/run/crio/crio.sock", None),
                ("/run/k3s/containerd/containerd.sock", None),
                ("/run/k3s/cri-dockerd/cri-dockerd.sock", None),
                ("/run/containerd/containerd.sock", Some("no socket")),
            ]),
            [
                "unix:///run/crio/crio.sock",
                "unix:///run/k3s/containerd/containerd.sock",
                "unix:///run/k3s/cri-dockerd/cri-dockerd.sock"
            ]
        );
        assert!(found(&[]).is_empty());
    }

    #[test]
    fn where_configured_ones_are_there_no_other_is_asked() {
        let kubelet = "kind: KubeletConfiguration\n#containerRuntimeEndpoint: /no\ncontainerRuntimeEndpoint: \"unix:///opt/own.sock\"\n";
        let flags = "KUBELET_KUBEADM_ARGS=\"--v=2 --container-runtime-endpoint=unix:///opt/flag.sock --x=y\"\n";
        let crictl =
            "runtime-endpoint: unix:///run/crio/crio.sock\nimage-endpoint: unix:///no.sock\n";
        assert_eq!(
            found(&[
                ("/var/lib/kubelet/config.yaml", Some(kubelet)),
                ("/var/lib/kubelet/kubeadm-flags.env", Some(flags)),
                ("/etc/crictl.yaml", Some(crictl)),
                ("/opt/own.sock", None),
                ("/opt/flag.sock", None),
                ("/run/containerd/containerd.sock", None),
                ("/run/crio/crio.sock", None),
            ]),
            [
                "unix:///opt/flag.sock",
                "unix:///opt/own.sock",
                "unix:///run/crio/crio.sock",
            ]
        );
        assert_eq!(
            found(&[
                ("/var/lib/kubelet/config.yaml", Some(kubelet)),
                ("/etc/crictl.yaml", Some(crictl)),
                ("/run/containerd/containerd.sock", None),
                ("/run/crio/crio.sock", None),
            ]),
            ["unix:///run/crio/crio.sock"]
        );
    }

    #[test]
    fn none_comes_twice() {
        let kubelet = "containerRuntimeEndpoint: unix:///var/run/own.sock\n";
        let crictl = "runtime-endpoint: unix:///run/own.sock\n";
        let root = root(&[
            ("/var/lib/kubelet/config.yaml", Some(kubelet)),
            ("/etc/crictl.yaml", Some(crictl)),
            ("/run/own.sock", None),
            ("/run/cri-dockerd.sock", None),
        ]);
        std::os::unix::fs::symlink("/run", root.path().join("var/run")).unwrap();
        let own = Endpoint::parse("/var/run/own.sock").unwrap();
        assert_eq!(endpoints(root.path()), [own]);
    }

    #[test]
    fn a_configured_one_that_cannot_be_looked_at_is_not_given_up_for_another() {
        let crictl = "runtime-endpoint: unix:///run/own/x.sock\n";
        let root = root(&[
            ("/etc/crictl.yaml", Some(crictl)),
            ("/run/crio/crio.sock", None),
        ]);
        // A link that leads to itself: neither missing nor a socket.
        let folder = root.path().join("run/own");
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink("x.sock", folder.join("x.sock")).unwrap();
        let own = Endpoint::parse("/run/own/x.sock").unwrap();
        assert_eq!(endpoints(root.path()), [own]);
    }

    #[test]
    fn one_that_is_configured_may_come_back_and_one_before_it_is_preferred() {
        let kubelet = "containerRuntimeEndpoint: unix:///run/first.sock\n";
        let crictl = "runtime-endpoint: unix:///run/second.sock\n";
        let root = root(&[
            ("/var/lib/kubelet/config.yaml", Some(kubelet)),
            ("/etc/crictl.yaml", Some(crictl)),
            ("/run/crio/crio.sock", None),
        ]);
        let at = |path: &str| Endpoint::parse(path).unwrap();
        let (first, second) = (at("/run/first.sock"), at("/run/second.sock"));
        let (crio, gone) = (at("/run/crio/crio.sock"), at("/run/gone.sock"));
        let sockets = Sockets::find(root.path()).unwrap();
        for each in [&first, &second, &crio] {
            assert!(sockets.may_have(each), "{each}");
        }
        assert!(!sockets.may_have(&gone));
        assert!(sockets.puts_first(&first) && !sockets.puts_first(&second));
        assert!(sockets.before(&crio).is_empty());
        drop(UnixListener::bind(root.path().join("run/first.sock")).unwrap());
        let sockets = Sockets::find(root.path()).unwrap();
        assert!(!sockets.may_have(&crio));
        assert!(sockets.before(&first).is_empty());
        assert_eq!(sockets.before(&second), std::slice::from_ref(&first));
        assert_eq!(sockets.before(&crio), [first]);
    }

    #[test]
    fn the_kubelets_is_named_even_if_it_is_missing_unless_there_is_another() {
        let kubelet = "containerRuntimeEndpoint: unix:///run/gone.sock\n";
        let files = [("/var/lib/kubelet/config.yaml", Some(kubelet))];
        assert_eq!(found(&files), ["unix:///run/gone.sock"]);
        let files = [files[0], ("/run/crio/crio.sock", None)];
        assert_eq!(found(&files), ["unix:///run/crio/crio.sock"]);
    }

    #[test]
    fn what_cannot_be_looked_at_is_named_if_there_is_nothing_else() {
        let root = root(&[("/run/k0s/other", Some(""))]);
        let folder = root.path().join("run/crio");
        fs::create_dir(&folder).unwrap();
        // Two links that lead to each other: neither missing nor a socket.
        for (from, to) in [("crio.sock", "other"), ("other", "crio.sock")] {
            std::os::unix::fs::symlink(to, folder.join(from)).unwrap();
        }
        let texts = || -> Vec<String> {
            let found = endpoints(root.path());
            found.iter().map(Endpoint::to_string).collect()
        };
        assert_eq!(texts(), ["unix:///run/crio/crio.sock"]);
        drop(UnixListener::bind(root.path().join("run/k0s/containerd.sock")).unwrap());
        assert_eq!(texts(), ["unix:///run/k0s/containerd.sock"]);
    }

    #[test]
    fn a_link_does_not_lead_out_of_the_root() {
        let outside = tempfile::tempdir().unwrap();
        let socket = outside.path().join("x.sock");
        drop(UnixListener::bind(&socket).unwrap());
        let root = root(&[("/run/crio/other", Some(""))]);
        std::os::unix::fs::symlink(&socket, root.path().join("run/crio/crio.sock")).unwrap();
        assert!(endpoints(root.path()).is_empty());
    }
}
