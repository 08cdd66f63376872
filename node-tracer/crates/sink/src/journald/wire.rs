//! journald's native protocol: <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>.
//!
//! Why not a library: `libsystemd` and `systemd-journal-logger` are sound, but
//! both send to one fixed path, while the tracer may run in a container that
//! has the host's root elsewhere, and both wait without end for a journald that
//! is stopped, which would stop the tracer. Besides, the one brings eight
//! dependencies (nix, nom, sha2, ...), and the other takes only records of the
//! `log` facade. The encoding is half a page; the system calls are rustix's,
//! which procfs brings anyway.

use std::{
    fs::File,
    io::{self, IoSlice, Write},
    mem::MaybeUninit,
    os::{fd::AsFd, unix::net::UnixDatagram},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    io::Errno,
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr},
};

use super::VALUES;

/// How long a send may wait for journald to make room in its queue.
const PATIENCE: Duration = Duration::from_millis(200);

/// A journal entry: fields in order, names repeated where a field has several
/// values.
#[derive(Debug, Default)]
pub(super) struct Entry {
    fields: Vec<(&'static str, String)>,
}

impl Entry {
    /// Adds a field. One without a value is left out.
    pub(super) fn push(&mut self, name: &'static str, value: &str) {
        if !value.is_empty() {
            self.fields.push((name, value.to_owned()));
        }
    }

    /// Adds a field with each of several values, once each.
    pub(super) fn push_each(
        &mut self,
        name: &'static str,
        values: impl IntoIterator<Item: ToString>,
    ) {
        let first = self.fields.len();
        for value in values {
            let value = value.to_string();
            let known = &self.fields[first..];
            if known.len() < VALUES && !known.iter().any(|(_, one)| *one == value) {
                self.push(name, &value);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn fields(&self) -> &[(&'static str, String)] {
        &self.fields
    }

    /// The fields as journald reads them.
    pub(super) fn encoded(&self) -> Vec<u8> {
        let mut data = Vec::new();
        for (name, value) in &self.fields {
            data.extend_from_slice(name.as_bytes());
            if value.contains('\n') {
                data.push(b'\n');
                data.extend_from_slice(&(value.len() as u64).to_le_bytes());
            } else {
                data.push(b'=');
            }
            data.extend_from_slice(value.as_bytes());
            data.push(b'\n');
        }
        data
    }
}

/// A socket that sends to whoever listens at a path at the moment.
#[derive(Debug)]
pub(super) struct Socket {
    socket: UnixDatagram,
    path: PathBuf,
    /// The last send found journald's queue full. Until one gets through,
    /// none waits, or a stopped journald would stop the tracer too.
    full: bool,
    /// Each send waits all the same.
    patient: bool,
}

impl Socket {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            socket,
            path: path.to_owned(),
            full: false,
            patient: false,
        })
    }

    /// From now on each send may wait.
    pub(super) fn be_patient(&mut self) {
        self.patient = true;
    }

    /// Where it sends to.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Sends one entry: as a datagram, or if it is too large for one, as a
    /// sealed file in memory.
    pub(super) fn send(&mut self, data: &[u8]) -> io::Result<()> {
        let no_files = &mut SendAncillaryBuffer::default();
        let sent = match self.sendmsg(data, no_files) {
            Err(Errno::MSGSIZE | Errno::NOBUFS) => self.send_file(data),
            sent => sent.map_err(io::Error::from),
        };
        self.full = matches!(&sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        sent
    }

    fn send_file(&self, data: &[u8]) -> io::Result<()> {
        let file = memfd_create(
            "node-tracer",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        let mut file = File::from(file);
        file.write_all(data)?;
        // Exactly these: journald before 256 takes no others.
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        fcntl_add_seals(&file, seals)?;

        let files = [file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&files)) {
            return Err(io::Error::from(Errno::NOBUFS));
        }
        Ok(self.sendmsg(&[], &mut control)?)
    }

    fn sendmsg(
        &self,
        data: &[u8],
        control: &mut SendAncillaryBuffer<'_, '_, '_>,
    ) -> Result<(), Errno> {
        let address = SocketAddrUnix::new(&self.path)?;
        let flags = match self.full && !self.patient {
            true => SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            false => SendFlags::NOSIGNAL,
        };
        let data = [IoSlice::new(data)];
        rustix::io::retry_on_intr(|| sendmsg_addr(&self.socket, &address, &data, control, flags))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_a_newline_has_its_length_in_front() {
        let mut entry = Entry::default();
        entry.push("A", "one");
        entry.push("B", "1\n2");
        entry.push("EMPTY", "");
        assert_eq!(
            entry.encoded(),
            b"A=one\nB\n\x03\x00\x00\x00\x00\x00\x00\x001\n2\n"
        );
    }

    #[test]
    fn a_repeated_value_is_sent_once_and_many_are_bounded() {
        let mut entry = Entry::default();
        entry.push("A", "x");
        entry.push_each("B", ["x", "y", "x"]);
        assert_eq!(entry.encoded(), b"A=x\nB=x\nB=y\n");
        entry.push_each("C", 0..5000);
        assert_eq!(entry.fields().len(), 3 + VALUES);
    }
}
