//! zstd, unpacked: one frame after the other, skippable ones passed over, in
//! memory that is known beforehand.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The largest window. `zstd -19` has 8 MiB; only `--ultra` and `--long` have
/// more.
const MAX_WINDOW: u64 = 32 << 20;
/// How much is unpacked at a time.
const STEP: usize = 128 << 10;
/// The first four bytes of a frame.
pub(super) const FRAME: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// An empty last block and room for a checksum, which is not looked at: with
/// it a frame that breaks off gives out what it still holds back.
const LAST_BLOCK: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

/// Whether a skippable frame begins here.
pub(super) fn is_skippable(magic: [u8; 4]) -> bool {
    matches!(magic, [0x50..=0x5f, 0x2a, 0x4d, 0x18])
}

/// A window that is larger than what this tool may take of a node's memory.
#[derive(Debug, thiserror::Error)]
#[error("it was compressed with a window of {} MiB", window >> 20)]
pub(super) struct TooLarge {
    /// Bytes.
    window: u64,
}

pub(super) struct Frames<R> {
    input: R,
    decoder: FrameDecoder,
    inside: bool,
    /// What went wrong, once everything before it is given out.
    failed: Option<io::Error>,
}

impl<R: BufRead> Frames<R> {
    /// From a frame's first byte on.
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            decoder: FrameDecoder::new(),
            inside: false,
            failed: None,
        }
    }

    /// Enters the next frame; `false` if there is none.
    fn enter(&mut self) -> io::Result<bool> {
        loop {
            if self.input.fill_buf()?.is_empty() {
                return Ok(false);
            }
            let mut magic = [0; 4];
            self.input.read_exact(&mut magic)?;
            if is_skippable(magic) {
                let mut length = [0; 4];
                self.input.read_exact(&mut length)?;
                let length = u64::from(u32::from_le_bytes(length));
                let skipped = io::copy(&mut (&mut self.input).take(length), &mut io::sink())?;
                if skipped < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                continue;
            }
            if magic != FRAME {
                return Err(damaged("something that is not zstd follows"));
            }
            let header = self.header(magic)?;
            self.decoder
                .reset(header.as_slice())
                .map_err(|error| damaged(error.to_string()))?;
            self.inside = true;
            return Ok(true);
        }
    }

    /// A frame's header, whole, of one whose window is small enough.
    fn header(&mut self, magic: [u8; 4]) -> io::Result<Vec<u8>> {
        let mut header = magic.to_vec();
        let descriptor = self.more(&mut header, 1)?;
        let descriptor = descriptor.first().copied().unwrap_or(0);
        let single = descriptor & 0x20 != 0;
        let window = match single {
            true => None,
            false => self.more(&mut header, 1)?.first().copied(),
        };
        self.more(&mut header, [0, 1, 2, 4][usize::from(descriptor & 3)])?;
        let size = match (descriptor >> 6, single) {
            (0, false) => 0,
            (0, true) => 1,
            (1, _) => 2,
            (2, _) => 4,
            _ => 8,
        };
        let content = self.more(&mut header, size)?;
        let window = match window {
            Some(window) => {
                let base = 1_u64 << (10 + (window >> 3));
                base + base / 8 * u64::from(window & 7)
            }
            None => content
                .iter()
                .rev()
                .fold(0, |size, byte| size << 8 | u64::from(*byte)),
        };
        if window > MAX_WINDOW {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                TooLarge { window },
            ));
        }
        Ok(header)
    }

    /// Reads so many bytes of the header.
    fn more(&mut self, header: &mut Vec<u8>, size: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; size];
        self.input.read_exact(&mut bytes)?;
        header.extend_from_slice(&bytes);
        Ok(bytes)
    }

    /// Unpacks until there is something to give out or the frame has ended.
    fn unpack(&mut self) {
        while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
            let step = BlockDecodingStrategy::UptoBytes(STEP);
            if let Err(error) = self.decoder.decode_blocks(&mut self.input, step) {
                self.failed = Some(cause(&error));
                let last = BlockDecodingStrategy::UptoBlocks(1);
                // What the frame holds is lost if even this is refused.
                let _ = self.decoder.decode_blocks(LAST_BLOCK.as_slice(), last);
                return;
            }
        }
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.inside && self.failed.is_none() {
                self.unpack();
            }
            if self.inside && self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if let Some(error) = self.failed.take() {
                self.inside = false;
                return Err(error);
            }
            self.inside = false;
            if !self.enter()? {
                return Ok(0);
            }
        }
    }
}

fn damaged(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// What the system said, if it did; else what is wrong with the data.
fn cause(error: &(dyn std::error::Error + 'static)) -> io::Error {
    let mut link = Some(error);
    while let Some(error) = link {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return match error.raw_os_error() {
                Some(number) => io::Error::from_raw_os_error(number),
                None => io::Error::new(error.kind(), error.to_string()),
            };
        }
        link = error.source();
    }
    damaged(error.to_string())
}

#[cfg(test)]
mod tests;
