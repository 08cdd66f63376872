//! The guest's file system: an archive in cpio's "newc" form, which the kernel
//! unpacks as it starts.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::tools::Tools;

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_777;

/// An archive being written.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    made: BTreeSet<PathBuf>,
}

impl Archive {
    fn entry(&mut self, path: &Path, mode: u32, content: &[u8]) {
        // Unique, or files with several links would be seen.
        let inode = self.made.len() + 1;
        let name = path.strip_prefix("/").unwrap_or(path).to_string_lossy();
        let fields = [
            inode,
            mode as usize,
            0, // uid
            0, // gid
            1, // links
            0, // mtime
            content.len(),
            0,
            0,
            0,
            0,
            name.len() + 1,
            0, // checksum
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
        self.made.insert(path.to_owned());
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// A folder, with those above it.
    pub(crate) fn folder(&mut self, path: &Path) {
        if path == Path::new("/") || self.made.contains(path) {
            return;
        }
        if let Some(above) = path.parent() {
            self.folder(above);
        }
        self.entry(path, FOLDER, &[]);
    }

    fn room(&mut self, path: &Path) {
        if let Some(above) = path.parent() {
            self.folder(above);
        }
    }

    /// A file, with the folders above it.
    pub(crate) fn file(&mut self, path: &Path, mode: u32, content: &[u8]) {
        self.room(path);
        self.entry(path, FILE | mode, content);
    }

    pub(crate) fn link(&mut self, path: &Path, target: &str) {
        self.room(path);
        self.entry(path, LINK, target.as_bytes());
    }

    /// A copy of a file.
    pub(crate) fn copy(&mut self, from: &Path, to: &Path) -> anyhow::Result<()> {
        let content = fs::read(from).with_context(|| from.display().to_string())?;
        let mode = fs::metadata(from)?.permissions().mode() & 0o777;
        self.file(to, mode, &content);
        Ok(())
    }

    /// Copies of all files of a folder.
    pub(crate) fn files(&mut self, from: &Path, to: &Path) -> anyhow::Result<()> {
        for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                self.copy(&entry.path(), &to.join(entry.file_name()))?;
            }
        }
        Ok(())
    }

    /// A program of others, with the libraries that it is linked to.
    pub(crate) fn program(&mut self, tools: &Tools, from: &Path, to: &Path) -> anyhow::Result<()> {
        self.copy(from, to)?;
        for (from, to) in tools.libraries(from)? {
            if !self.made.contains(&to) {
                self.copy(&from, &to)?;
            }
        }
        Ok(())
    }

    /// Writes it to a file.
    pub(crate) fn write(mut self, path: &Path) -> anyhow::Result<()> {
        self.entry(Path::new("TRAILER!!!"), 0, &[]);
        fs::write(path, &self.bytes).with_context(|| path.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_header_a_name_and_the_content_each_padded() {
        let mut archive = Archive::default();
        archive.file(Path::new("/a/b"), 0o755, b"12345");
        let text = String::from_utf8_lossy(&archive.bytes).into_owned();
        assert_eq!(archive.bytes.len() % 4, 0);
        // The folder, then the file.
        let second = text.rfind("070701").unwrap();
        assert_eq!(&text[second + 14..second + 22], "000081ed");
        assert_eq!(&text[second + 54..second + 62], "00000005");
        assert_eq!(&text[second + 94..second + 102], "00000004");
        assert_eq!(&text[second + 110..second + 121], "a/b\0\0\x0012345");
    }
}
