//! One tracer a node: two would cost twice and say everything twice.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
};

use crate::config::Node;

/// Held while `trace` runs; the kernel releases it however the process ends.
#[derive(Debug)]
pub(super) struct Lock {
    _file: Option<File>,
}

/// Why the lock cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum LockError {
    #[error(
        "another node-tracer trace already runs on this node ({holder}); stop it, or read what it \
         says (journalctl -t node-tracer -f, if it writes to journald)"
    )]
    Taken {
        /// Its process ID, as it wrote it down.
        holder: String,
    },
    /// The file cannot be locked.
    #[error("cannot lock {}", path.display())]
    Lock {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

const FILE: &str = "/run/node-tracer.lock";

impl Lock {
    /// Takes the lock of the node. A node whose /run cannot be written has
    /// none; that is no reason not to help.
    pub(super) fn take(node: &Node) -> Result<Self, LockError> {
        let path = node.path(FILE);
        let open = |write: bool| {
            OpenOptions::new()
                .read(true)
                .write(write)
                .create(write)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(&path)
        };
        // What is held is open for reading alone: its file system can be made
        // read-only (`--seal-root`).
        let opened = open(true).and_then(|made| Ok((made, open(false)?)));
        let (mut made, file) = match opened {
            Ok(files) => files,
            Err(error) => {
                tracing::info!("no lock: cannot open {}: {error}", path.display());
                return Ok(Self { _file: None });
            }
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only for the message.
                let _ = file.take(32).read_to_string(&mut holder);
                let holder = match holder.trim().parse::<u32>() {
                    Ok(pid) => format!("process {pid}"),
                    Err(_) => String::from("its process is not known"),
                };
                return Err(LockError::Taken { holder });
            }
            Err(TryLockError::Error(source)) => return Err(LockError::Lock { path, source }),
        }
        let written = made
            .set_len(0)
            .and_then(|()| writeln!(made, "{}", std::process::id()));
        written.map_err(|source| LockError::Lock { path, source })?;
        Ok(Self { _file: Some(file) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_refused_until_the_first_has_ended() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("run")).unwrap();
        let node = Node {
            root: root.path().to_owned(),
            name: String::from("n"),
            boot_id: String::from("b"),
            is_named: true,
        };
        let first = Lock::take(&node).unwrap();
        let refused = Lock::take(&node).unwrap_err().to_string();
        assert!(
            refused.contains(&std::process::id().to_string()),
            "{refused}"
        );
        drop(first);
        assert!(Lock::take(&node).is_ok());
    }

    #[test]
    fn a_node_without_a_run_folder_has_no_lock() {
        let root = tempfile::tempdir().unwrap();
        let node = Node {
            root: root.path().to_owned(),
            name: String::from("n"),
            boot_id: String::from("b"),
            is_named: true,
        };
        let _first = Lock::take(&node).unwrap();
        assert!(Lock::take(&node).is_ok());
    }
}
