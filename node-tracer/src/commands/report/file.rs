//! Where the page goes: a file that is there as a whole or not at all, or
//! standard output.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use sink::SinkError;

/// The page cannot be written. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// It is not for us to overwrite.
    #[error("{} is there already: give another name with -o, or --force to replace it", .0.display())]
    Exists(PathBuf),
    /// A folder, a device.
    #[error("{} is no regular file: give a file's name with -o, or - for standard output", .0.display())]
    Other(PathBuf),
    /// The disk, the rights.
    #[error("cannot write the report {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    NoStdout(#[from] SinkError),
    #[error("cannot write the report to standard output")]
    Stdout(#[source] io::Error),
}

#[derive(Debug)]
pub(super) struct Out<'a> {
    path: &'a Path,
    force: bool,
}

impl<'a> Out<'a> {
    /// Looks whether it can go there, before a long recording is read.
    pub(super) fn new(path: &'a Path, force: bool) -> Result<Self, FileError> {
        if path == Path::new("-") {
            crate::output::has_stdout()?;
        } else {
            match fs::symlink_metadata(path) {
                Ok(found) if found.is_dir() => return Err(FileError::Other(path.to_owned())),
                Ok(_) if !force => return Err(FileError::Exists(path.to_owned())),
                Ok(found) if !found.is_file() && !found.is_symlink() => {
                    return Err(FileError::Other(path.to_owned()));
                }
                _ => {}
            }
        }
        Ok(Self { path, force })
    }

    pub(super) fn write(&self, page: &[u8]) -> Result<(), FileError> {
        if self.path == Path::new("-") {
            let mut out = io::stdout().lock();
            return match out.write_all(page).and_then(|()| out.flush()) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                other => other.map_err(FileError::Stdout),
            };
        }
        self.write_file(page).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => FileError::Exists(self.path.to_owned()),
            _ => FileError::Write {
                path: self.path.to_owned(),
                source,
            },
        })
    }

    /// Beside its place first, then there at once. Without leave to overwrite
    /// it is linked there, which fails if somebody else was faster.
    fn write_file(&self, page: &[u8]) -> io::Result<()> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let draft = format!(".{name}.{}.part", std::process::id());
        let draft = Draft(self.path.with_file_name(draft));
        // What pods are called and where they ran is nobody else's business.
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft.0);
        let mut file: File = file?;
        file.write_all(page)?;
        file.sync_all()?;
        match self.force {
            true => fs::rename(&draft.0, self.path),
            false => match fs::hard_link(&draft.0, self.path) {
                // Not every file system has links.
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    match fs::symlink_metadata(self.path) {
                        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
                        Err(_) => fs::rename(&draft.0, self.path),
                    }
                }
                linked => linked,
            },
        }
    }
}

/// Removed in any case; after a rename there is nothing to remove.
struct Draft(PathBuf);

impl Drop for Draft {
    fn drop(&mut self) {
        // It may be in its place by now.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let all = fs::read_dir(folder).unwrap();
        let names = all.map(|it| it.unwrap().file_name().to_string_lossy().into_owned());
        names.collect()
    }

    #[test]
    fn a_page_is_private_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        Out::new(&path, false).unwrap().write(b"one").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(names(folder.path()), ["report.html"]);
    }

    #[test]
    fn a_file_that_is_there_is_replaced_only_by_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        let late = Out::new(&path, false).unwrap();
        fs::write(&path, "precious").unwrap();
        assert!(matches!(Out::new(&path, false), Err(FileError::Exists(_))));
        assert!(matches!(late.write(b"new"), Err(FileError::Exists(_))));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        Out::new(&path, true).unwrap().write(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["report.html"]);
    }

    #[test]
    fn what_is_no_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let out = Out::new(folder.path(), true);
        assert!(matches!(out, Err(FileError::Other(_))));
        assert!(matches!(
            Out::new(Path::new("/dev/null"), true),
            Err(FileError::Other(_))
        ));
        let path = folder.path().join("none/report.html");
        let error = Out::new(&path, false).unwrap().write(b"x").unwrap_err();
        assert!(error.to_string().contains("none/report.html"), "{error}");
    }
}
