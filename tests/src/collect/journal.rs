//! The journals of several nodes in one folder: systemd-journal-upload beside
//! each journald, and one systemd-journal-remote.

use std::net::TcpStream;
use std::process::Command;

use serde_json::Value;

use super::{LIMIT, Service, free_port};
use crate::journald::{Journald, read};
use crate::scratch::Scratch;
use crate::wait;

/// The programs; they are in no PATH.
pub(crate) const UPLOAD: &str = "/lib/systemd/systemd-journal-upload";
pub(crate) const REMOTE: &str = "/lib/systemd/systemd-journal-remote";

#[derive(Debug)]
pub struct JournalRemote {
    uploads: Vec<Service>,
    remote: Service,
    port: u16,
    // Dropped last: everything is in it.
    folder: Scratch,
}

impl JournalRemote {
    /// Starts the one that collects; back when it listens.
    pub fn start() -> anyhow::Result<Self> {
        let folder = Scratch::create()?;
        let port = free_port()?;
        let entries = folder.path().join("remote");
        std::fs::create_dir(&entries)?;
        let mut command = Command::new(REMOTE);
        command
            .arg(format!("--listen-http=127.0.0.1:{port}"))
            .arg(format!("--output={}", entries.display()));
        let mut remote = Service::start(&mut command, &folder.path().join("remote.log"))?;
        wait::until("systemd-journal-remote to listen", LIMIT, || {
            remote.lives()?;
            Ok(TcpStream::connect(("127.0.0.1", port)).ok().map(drop))
        })?;
        Ok(Self {
            uploads: Vec::new(),
            remote,
            port,
            folder,
        })
    }

    /// Starts the upload of a node's journal, which goes on as long as this is there.
    pub fn upload(&mut self, journald: &Journald) -> anyhow::Result<()> {
        let number = self.uploads.len();
        let file = |kind| self.folder.path().join(format!("upload-{number}.{kind}"));
        let mut command = Command::new(UPLOAD);
        command
            .arg(format!("--url=http://127.0.0.1:{}", self.port))
            .arg(format!("--save-state={}", file("state").display()))
            .arg("--directory")
            .arg(journald.entries());
        self.uploads
            .push(Service::start(&mut command, &file("log"))?);
        Ok(())
    }

    /// What `journalctl --directory=… -o json` prints of all nodes' entries that
    /// have all of these. Fails if one of the programs has ended.
    pub fn records(&mut self, matches: &[&str]) -> anyhow::Result<Vec<Value>> {
        self.remote.lives()?;
        self.uploads.iter_mut().try_for_each(Service::lives)?;
        let folder = self.folder.path().join("remote");
        read(&["--directory".as_ref(), folder.as_os_str()], matches)
    }
}
