//! Standard output as a stream writes to it, from a thread of its own.
//!
//! A pipe takes what is longer than `PIPE_BUF` in parts, so a reader that
//! stops for good could be left with half a record. Such a record is begun
//! only once the pipe has room for all of it, as far as it can ever have.
//!
//! Whether standard output blocks is not changed: others may share it.
//!
//! A process that is started without standard output (`>&-`) is given
//! `/dev/null` by the standard library before `main` begins, and would write
//! there as if somebody read it. So that is looked at before
//! ([`stdout_was_missing`]), and each write fails.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd as _,
    time::Duration,
};

use crate::progress;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::ioctl_fionread,
    pipe::{PIPE_BUF, fcntl_getpipe_size},
};
use sys::syscall::stdout_was_missing;

/// Pauses between looks at a full pipe.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Stdout {
    file: File,
    /// Bytes that the pipe has room for, if it is one.
    size: Option<usize>,
    missing: bool,
}

impl Stdout {
    pub(super) fn new() -> io::Result<Self> {
        let stdout = io::stdout().as_fd().try_clone_to_owned()?.into();
        Ok(Self {
            missing: stdout_was_missing(),
            ..Self::of(stdout)
        })
    }

    fn of(file: File) -> Self {
        Self {
            size: fcntl_getpipe_size(&file).ok(),
            file,
            missing: false,
        }
    }

    /// Waits until a pipe has room for so many bytes, or is empty. Errors are
    /// left to the write.
    fn wait_for_room(&self, bytes: usize) {
        let Some(size) = self.size.filter(|_| bytes > PIPE_BUF) else {
            return;
        };
        let page = procfs::page_size() as usize;
        let mut pause = FIRST_PAUSE;
        while let Ok(unread) = ioctl_fionread(&self.file)
            && !fits(
                bytes,
                usize::try_from(unread).unwrap_or(usize::MAX),
                size,
                page,
            )
        {
            // A reader that goes ends the pause.
            match self.poll(PollFlags::empty(), Some(pause)) {
                Ok(true) | Err(_) => return,
                Ok(false) => pause = (pause * 2).min(LAST_PAUSE),
            }
        }
    }

    /// Whether something came, an error too.
    fn poll(&self, wanted: PollFlags, limit: Option<Duration>) -> io::Result<bool> {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut files = [PollFd::new(&self.file, wanted)];
        let count = rustix::io::retry_on_intr(|| poll(&mut files, limit.as_ref()))?;
        Ok(count > 0)
    }
}

/// Whether a pipe of this size, in pages of that one, has room for so many bytes.
/// Two pages that follow each other hold at least one page's bytes: what would have
/// fitted the earlier one would be in it.
fn fits(bytes: usize, unread: usize, size: usize, page: usize) -> bool {
    let used = unread / page * 2 + 2;
    unread == 0 || used + bytes.div_ceil(page) < size / page
}

impl Write for Stdout {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.missing {
            return Err(rustix::io::Errno::BADF.into());
        }
        self.wait_for_room(data.len());
        loop {
            match progress::aside(|| (&self.file).write(data)) {
                // Somebody who shares it has made it so.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.poll(PollFlags::OUT, None)?;
                }
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        os::fd::OwnedFd,
        sync::{Arc, Mutex},
        thread,
    };

    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn pipe() -> (io::PipeReader, Stdout) {
        let (reader, writer) = io::pipe().unwrap();
        (reader, Stdout::of(File::from(OwnedFd::from(writer))))
    }

    /// Writes in a thread until the pipe is full; what was written whole.
    fn fill(mut out: Stdout, record: Vec<u8>) -> Arc<Mutex<usize>> {
        let whole = Arc::new(Mutex::new(0));
        let counter = Arc::clone(&whole);
        thread::spawn(move || {
            while out.write_all(&record).is_ok() {
                *counter.lock().unwrap() += 1;
            }
        });
        whole
    }

    #[test]
    fn a_pipe_that_nobody_reads_holds_whole_records_only() {
        for length in [100, 4_000, 5_000, 9_000, 20_000] {
            let (reader, out) = pipe();
            let mut record = vec![b'x'; length];
            record.push(b'\n');
            let watch = reader.as_fd().try_clone_to_owned().unwrap();
            let whole = fill(out, record);
            let mut last = usize::MAX;
            // Until nothing moves.
            while last != *whole.lock().unwrap() {
                last = *whole.lock().unwrap();
                thread::sleep(Duration::from_millis(200));
            }
            let unread = usize::try_from(ioctl_fionread(&watch).unwrap()).unwrap();
            assert!(last > 0, "{length}");
            assert_eq!(unread, last * (length + 1), "{length}");
        }
    }

    #[test]
    fn room_is_counted_in_the_pages_of_the_machine() {
        let mebibyte = 1 << 20;
        assert!(fits(900_000, 1, mebibyte, 4 << 10));
        // Of 16 pages one is begun, and one may be left half empty.
        assert!(!fits(900_000, 1, mebibyte, 64 << 10));
        assert!(fits(800_000, 1, mebibyte, 64 << 10));
        assert!(fits(mebibyte, 0, mebibyte, 64 << 10));
    }

    #[test]
    fn a_record_larger_than_the_pipe_is_written_all_the_same() {
        let (mut reader, mut out) = pipe();
        let record = vec![b'x'; 1 << 20];
        let writer = thread::spawn(move || out.write_all(&record));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        writer.join().unwrap().unwrap();
        assert_eq!(read.len(), 1 << 20);
    }

    #[test]
    fn one_that_does_not_block_is_waited_for() {
        let (mut reader, mut out) = pipe();
        let flags = fcntl_getfl(&out.file).unwrap();
        fcntl_setfl(&out.file, flags | OFlags::NONBLOCK).unwrap();
        let writer = thread::spawn(move || {
            for _ in 0..100 {
                out.write_all(&[b'x'; 3_000])?;
            }
            out.write_all(&[b'y'; 30_000])
        });
        thread::sleep(Duration::from_millis(100));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        writer.join().unwrap().unwrap();
        assert_eq!(read.len(), 330_000);
    }

    #[test]
    fn a_reader_that_goes_ends_the_wait() {
        let (reader, out) = pipe();
        let (ended, end) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let mut out = out;
            while out.write_all(&[b'x'; 10_000]).is_ok() {}
            ended.send(()).unwrap();
        });
        thread::sleep(Duration::from_millis(200));
        drop(reader);
        end.recv_timeout(SOON).unwrap();
    }
}
