//! Tar archives and gzip streams that are the same whoever makes them, and
//! whenever: sorted, owned by root, with one time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

/// Of programs, and of folders.
pub(super) const PROGRAM: u32 = 0o755;
pub(super) const FILE: u32 = 0o644;

/// Files with their modes, by their path in the archive.
pub(super) type Tree = BTreeMap<String, (u32, Vec<u8>)>;

/// An archive of the tree, with all its folders. `above` is put before each
/// path; time in seconds since 1970.
pub(super) fn tar(tree: &Tree, above: &str, time: u64) -> anyhow::Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    let mut made = BTreeSet::new();
    let header = |kind: EntryType, mode: u32, size: usize| -> anyhow::Result<Header> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(u64::try_from(size)?);
        header.set_mtime(time);
        header.set_uid(0);
        header.set_gid(0);
        header.set_username("root")?;
        header.set_groupname("root")?;
        Ok(header)
    };
    for (path, (mode, content)) in tree {
        let full = format!("{above}{path}");
        let folders: Vec<&Path> = Path::new(&full).ancestors().skip(1).collect();
        for folder in folders.into_iter().rev() {
            let name = folder.display().to_string();
            if !name.is_empty() && made.insert(name.clone()) {
                let mut header = header(EntryType::Directory, PROGRAM, 0)?;
                append(&mut archive, &mut header, &format!("{name}/"), &[])?;
            }
        }
        let mut header = header(EntryType::Regular, *mode, content.len())?;
        append(&mut archive, &mut header, &full, content)?;
    }
    archive.into_inner().context("the end of an archive")
}

/// The name is written as it is: tar's own way takes "./" off.
fn append(
    archive: &mut Builder<Vec<u8>>,
    header: &mut Header,
    name: &str,
    content: &[u8],
) -> anyhow::Result<()> {
    let field = &mut header.as_old_mut().name;
    anyhow::ensure!(name.len() < field.len(), "too long for an archive: {name}");
    field[..name.len()].copy_from_slice(name.as_bytes());
    header.set_cksum();
    archive
        .append(header, content)
        .with_context(|| name.to_owned())
}

/// Compressed, without a name or a time.
pub(super) fn gzip(content: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut stream = GzBuilder::new().write(Vec::new(), Compression::best());
    stream.write_all(content)?;
    Ok(stream.finish()?)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn an_archive_has_folders_first_one_owner_and_one_time() {
        let tree = Tree::from([
            (String::from("usr/bin/b"), (PROGRAM, b"12".to_vec())),
            (String::from("usr/a"), (FILE, b"1".to_vec())),
        ]);
        let bytes = tar(&tree, "./", 1_700_000_000).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            assert_eq!(header.username().unwrap(), Some("root"));
            assert_eq!(header.mtime().unwrap(), 1_700_000_000);
            let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            (name, header.mode().unwrap())
        });
        let entries: Vec<_> = entries.collect();
        let expected = [
            ("./", 0o755),
            ("./usr/", 0o755),
            ("./usr/a", 0o644),
            ("./usr/bin/", 0o755),
            ("./usr/bin/b", 0o755),
        ];
        assert_eq!(
            entries,
            expected.map(|(name, mode)| (name.to_owned(), mode))
        );
    }

    #[test]
    fn a_name_that_does_not_fit_is_refused() {
        let tree = Tree::from([("x".repeat(100), (FILE, Vec::new()))]);
        assert!(tar(&tree, "", 0).is_err());
        let tree = Tree::from([("x".repeat(99), (FILE, Vec::new()))]);
        assert!(tar(&tree, "", 0).is_ok());
    }

    #[test]
    fn a_stream_has_no_time_and_comes_back() {
        let stream = gzip(b"something").unwrap();
        assert_eq!(stream[4..8], [0; 4], "the time");
        let mut content = String::new();
        flate2::read::GzDecoder::new(stream.as_slice())
            .read_to_string(&mut content)
            .unwrap();
        assert_eq!(content, "something");
    }
}
