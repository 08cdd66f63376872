//! A backup as it is read again, whenever the tool was killed.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead, BufReader, Read as _},
    path::{Path, PathBuf},
};

use super::{BackupError, Header, Line, MANIFEST, Saved, VERSION};
use crate::repair::load::{others_cannot_write, own_file};
use event::record::SCHEMA;

/// Largest manifest that is read.
const MAX_MANIFEST: u64 = 256 << 20;

/// A backup as it is read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) header: Header,
    /// What may have been released.
    pub(crate) released: Vec<Saved>,
    /// Lines that could not be understood, such as the last one of a run that
    /// was killed.
    pub(crate) ignored: usize,
}

/// Reads a backup.
///
/// # Errors
/// It is none, or others could have changed it.
pub(crate) fn read(folder: &Path) -> Result<Read, BackupError> {
    let no_backup = |error: io::Error| BackupError::NoBackup {
        path: folder.to_owned(),
        why: format!("{MANIFEST}: {error}"),
    };
    let untrusted = |why| BackupError::Untrusted {
        path: folder.to_owned(),
        why,
    };
    let found = fs::symlink_metadata(folder).map_err(no_backup)?;
    if found.is_symlink() {
        return Err(untrusted("it is a symbolic link"));
    }
    others_cannot_write(&found).map_err(untrusted)?;
    let file = own_file(&folder.join(MANIFEST)).map_err(no_backup)?;
    let file = file.map_err(untrusted)?;
    manifest(folder, BufReader::new(file.take(MAX_MANIFEST)))
}

fn manifest(folder: &Path, text: impl BufRead) -> Result<Read, BackupError> {
    let no_backup = |why: String| BackupError::NoBackup {
        path: folder.to_owned(),
        why,
    };
    let mut lines = text.split(b'\n');
    let first = lines.next().and_then(Result::ok).unwrap_or_default();
    let header = match serde_json::from_slice(&first) {
        Ok(Line::Backup(header)) => header,
        _ => return Err(no_backup(format!("{MANIFEST} does not begin as one"))),
    };
    if header.schema != SCHEMA || header.version != VERSION {
        return Err(no_backup(format!(
            "it is of another version ({} {})",
            header.schema, header.version
        )));
    }
    let mut saved: BTreeMap<PathBuf, Saved> = BTreeMap::new();
    let mut released: BTreeMap<PathBuf, Saved> = BTreeMap::new();
    let mut ignored = 0;
    for line in lines {
        let line = line.map_err(|error| no_backup(format!("{MANIFEST}: {error}")))?;
        match serde_json::from_slice(&line) {
            Ok(Line::Saved(one)) if one.is_possible() => {
                saved.insert(one.path.clone(), one);
            }
            Ok(Line::Releasing { path } | Line::Released { path }) => {
                if let Some(one) = saved.get(&path) {
                    released.insert(path, one.clone());
                }
            }
            Ok(Line::Kept { path, .. }) => drop(released.remove(&path)),
            Ok(Line::Saved(_) | Line::Backup(_)) | Err(_) => ignored += 1,
        }
    }
    Ok(Read {
        header,
        released: released.into_values().collect(),
        ignored,
    })
}

/// A manifest of chance: whatever is undone lies in a store and is there once;
/// written again, it is the same.
#[cfg(feature = "testing")]
pub fn fuzz(data: &[u8]) {
    let Ok(read) = manifest(Path::new("/backup"), data) else {
        return;
    };
    let mut again = vec![Line::Backup(read.header.clone())];
    for saved in &read.released {
        assert!(saved.is_possible() && saved.path.starts_with(&saved.store));
        assert!(saved.path.is_absolute() && saved.path.file_name().is_some());
        assert_eq!(saved.exact().mode & !0o777, 0);
        let path = saved.path.clone();
        again.extend([Line::Saved(saved.clone()), Line::Releasing { path }]);
    }
    let lines = again
        .iter()
        .map(|line| serde_json::to_string(line).expect("a line is written"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let twice = manifest(Path::new("/backup"), text.as_bytes()).expect("it is read again");
    assert_eq!(
        (twice.header, twice.released, twice.ignored),
        (read.header, read.released, 0)
    );
}
