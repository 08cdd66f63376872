//! Names that say whose they are, and a folder that goes away.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;

/// Start of every name made on the stage.
pub const PREFIX: &str = "nt-test-";

/// `nt-test-PID`: what everything made by this process starts with.
pub fn own_prefix() -> String {
    format!("{PREFIX}{}", std::process::id())
}

/// `nt-test-PID-N`, another one each time.
pub fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{}-{}", own_prefix(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The process that made a thing of this name, if the name is ours.
pub(crate) fn maker_of(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("/dev/urandom")?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A container or sandbox ID: 64 hexadecimal digits.
pub fn container_id() -> anyhow::Result<String> {
    Ok(hex(&random::<32>()?))
}

/// A pod UID: a random (version 4) UUID.
pub fn pod_uid() -> anyhow::Result<String> {
    let mut bytes = random::<16>()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let all = hex(&bytes);
    Ok([
        &all[..8],
        &all[8..12],
        &all[12..16],
        &all[16..20],
        &all[20..],
    ]
    .join("-"))
}

/// A private folder below the temporary folder, removed with all it holds.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes an empty folder.
    pub fn create() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(unique_name());
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("mkdir {}", path.display()))?;
        Ok(Self { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("stage: cannot remove {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_looks_like_kubernetes_makes_them() {
        let uid = pod_uid().unwrap();
        let lengths: Vec<usize> = uid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(uid.as_bytes()[14], b'4');
    }

    #[test]
    fn a_name_tells_its_maker() {
        assert_eq!(maker_of(&unique_name()), Some(std::process::id()));
        assert_eq!(maker_of("nt-test-17"), Some(17));
        assert_eq!(maker_of("cni-1234"), None);
        assert_eq!(maker_of("nt-test-x-1"), None);
    }

    #[test]
    fn a_scratch_folder_goes_away_with_its_content() {
        let scratch = Scratch::create().unwrap();
        let path = scratch.path().to_owned();
        fs::write(path.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
