//! The programs of the cluster: no distribution has them all.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::stage::in_path;

/// The variable that names the folder with the programs, as KUBEBUILDER_ASSETS
/// does elsewhere: each plain, or compressed as NAME.zst.
pub const FOLDER: &str = "NODE_TRACER_KUBE_ASSETS";

/// etcd may also be installed.
const ETCD: &str = "etcd";
const API_SERVER: &str = "kube-apiserver";
const KUBELET: &str = "kubelet";

/// Where the programs are.
#[derive(Debug)]
pub(crate) struct Assets {
    pub(crate) etcd: PathBuf,
    pub(crate) api_server: PathBuf,
    pub(crate) kubelet: PathBuf,
}

/// One program as it was found.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Plain(PathBuf),
    Compressed(PathBuf),
}

/// A program in a folder; a plain one is preferred.
fn look(folder: &Path, name: &str) -> Option<Found> {
    let plain = folder.join(name);
    let compressed = folder.join(format!("{name}.zst"));
    let plain = plain.is_file().then_some(Found::Plain(plain));
    plain.or_else(|| {
        compressed
            .is_file()
            .then_some(Found::Compressed(compressed))
    })
}

fn look_for_etcd(folder: &Path) -> Option<Found> {
    look(folder, ETCD).or_else(|| in_path(ETCD).map(Found::Plain))
}

/// What is missing of the programs, and how to mend it, in one line.
pub(crate) fn missing(folder: Option<OsString>) -> Option<String> {
    let how = format!(
        "set {FOLDER} to a folder with {API_SERVER} and {KUBELET} (1.20, for containerd 1.6), each \
         plain or as .zst, and install etcd (Debian: etcd-server) or put it there"
    );
    let Some(folder) = folder
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
    else {
        return Some(format!(
            "needs a real API server and kubelet, so nothing was run against these: {how}"
        ));
    };
    let programs = [
        (API_SERVER, look(&folder, API_SERVER)),
        (KUBELET, look(&folder, KUBELET)),
        (ETCD, look_for_etcd(&folder)),
    ];
    let compressed = |(_, found): &(_, Option<Found>)| matches!(found, Some(Found::Compressed(_)));
    if programs.iter().any(compressed) && in_path("zstd").is_none() {
        return Some(String::from("needs zstd: install it (Debian: zstd)"));
    }
    let absent: Vec<&str> = programs
        .iter()
        .filter_map(|(name, found)| found.is_none().then_some(*name))
        .collect();
    (!absent.is_empty()).then(|| {
        let folder = folder.display();
        format!("needs {}, not in {folder}: {how}", absent.join(" and "))
    })
}

/// A program as a file that can be run, in `folder` if it has to be unpacked.
fn unpack(name: &str, found: Option<Found>, folder: &Path) -> anyhow::Result<PathBuf> {
    let packed = match found.with_context(|| format!("there is no {name}"))? {
        // Links would lead elsewhere on the node's root.
        Found::Plain(path) => return path.canonicalize().with_context(|| name.to_owned()),
        Found::Compressed(path) => path,
    };
    let program = folder.join(name);
    let status = Command::new("zstd")
        .args(["--decompress", "--quiet", "--force", "-o"])
        .args([&program, &packed])
        .stdin(Stdio::null())
        .status()
        .context("start zstd")?;
    anyhow::ensure!(status.success(), "zstd {}: {status}", packed.display());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(program)
}

impl Assets {
    /// Finds them, and unpacks into a new folder in `scratch` what is compressed.
    pub(crate) fn find(scratch: &Path) -> anyhow::Result<Self> {
        let folder = std::env::var_os(FOLDER);
        if let Some(missing) = missing(folder.clone()) {
            anyhow::bail!(missing);
        }
        let folder = PathBuf::from(folder.unwrap_or_default());
        let unpacked = scratch.join("programs");
        fs::create_dir(&unpacked).context("mkdir programs")?;
        let find = |name| unpack(name, look(&folder, name), &unpacked);
        Ok(Self {
            api_server: find(API_SERVER)?,
            kubelet: find(KUBELET)?,
            etcd: unpack(ETCD, look_for_etcd(&folder), &unpacked)?,
        })
    }

    /// The folders that they are in, each once, for the node to have them.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let programs = [&self.etcd, &self.api_server, &self.kubelet];
        let mut folders: Vec<PathBuf> = programs
            .into_iter()
            .filter_map(|program| program.parent().map(Path::to_owned))
            .collect();
        folders.sort();
        folders.dedup();
        folders
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn what_is_missing_is_named_with_the_remedy() {
        for unset in [None, Some(OsString::new())] {
            let text = missing(unset).unwrap();
            assert!(
                text.contains(FOLDER) && text.contains("etcd-server"),
                "{text}"
            );
        }
        let folder = Scratch::create().unwrap();
        fs::write(folder.path().join(KUBELET), "").unwrap();
        let text = missing(Some(folder.path().into())).unwrap();
        let (absent, _) = text.split_once(", not in").unwrap();
        assert!(absent.contains(API_SERVER), "{text}");
        assert!(!absent.contains(KUBELET), "{text}");
    }

    #[test]
    fn a_plain_program_goes_before_a_compressed_one() {
        let folder = Scratch::create().unwrap();
        let path = |name: &str| folder.path().join(name);
        assert_eq!(look(folder.path(), KUBELET), None);
        fs::write(path("kubelet.zst"), "").unwrap();
        let compressed = Found::Compressed(path("kubelet.zst"));
        assert_eq!(look(folder.path(), KUBELET), Some(compressed));
        fs::write(path(KUBELET), "").unwrap();
        assert_eq!(
            look(folder.path(), KUBELET),
            Some(Found::Plain(path(KUBELET)))
        );
    }
}
