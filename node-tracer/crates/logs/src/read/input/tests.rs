use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};

use super::*;
use crate::read::{LogOptions, LogReader, Words};

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(text).unwrap();
    packer.finish().unwrap()
}

fn open(bytes: &[u8]) -> Result<Input, LogError> {
    let raw = io::Cursor::new(bytes.to_vec());
    Input::new(String::from("node.log"), None, Box::new(raw))
}

fn messages(bytes: &[u8]) -> (Vec<String>, LogReader) {
    let mut reader = LogReader::new(open(bytes).unwrap(), Words::new(&[]), LogOptions::default());
    let mut messages = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        messages.push(entry.message.into_owned());
    }
    (messages, reader)
}

/// Lines that do not pack well.
fn lines(count: u32) -> String {
    let line = |n: u32| {
        format!(
            "1699179072.{:06} n a[1]: {:08x}\n",
            n,
            n.wrapping_mul(2_654_435_761)
        )
    };
    (0..count).map(line).collect()
}

#[test]
fn gzip_in_several_members_is_one_log() {
    let packed = [gzip(lines(3).as_bytes()), gzip(lines(2).as_bytes())].concat();
    let (messages, reader) = messages(&packed);
    assert_eq!(messages.len(), 5);
    assert_eq!(reader.packed(), Some("gzip"));
    assert!(reader.gaps().texts().is_empty());
}

#[test]
fn zstd_is_unpacked() {
    let text = lines(2_000);
    let packed = ruzstd::encoding::compress_to_vec(
        text.as_bytes(),
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    let (messages, reader) = messages(&packed);
    assert_eq!(messages.len(), 2_000);
    assert_eq!(reader.packed(), Some("zstd"));
    assert_eq!(reader.bytes(), text.len() as u64);
}

#[test]
fn what_ends_too_early_is_read_as_far_as_it_goes_and_that_is_said() {
    let text = lines(20_000);
    let packed = gzip(text.as_bytes());
    let (messages, reader) = messages(&packed[..packed.len() / 2]);
    assert!(messages.len() > 5_000, "{}", messages.len());
    let gaps = reader.gaps();
    let why = gaps.broken_off.as_deref().unwrap();
    assert!(
        why.starts_with("its gzip data ends too early, after "),
        "{why}"
    );
    assert_eq!(gaps.texts().len(), 1);
}

#[test]
fn what_is_damaged_is_said_too() {
    let mut packed = gzip(lines(20_000).as_bytes());
    let middle = packed.len() / 2;
    packed[middle..middle + 64].fill(0xff);
    let (messages, reader) = messages(&packed);
    assert!(messages.len() > 1_000, "{}", messages.len());
    assert!(reader.gaps().broken_off.is_some());
}

#[test]
fn what_is_no_log_is_named_with_what_to_do() {
    let mut archive = vec![b'x'; 512];
    archive[257..262].copy_from_slice(b"ustar");
    for (bytes, found, advice) in [
        (
            b"\xfd7zXZ\0\0\0".to_vec(),
            "compressed with xz",
            "`xz -dc FILE |",
        ),
        (
            b"BZh91AY&SYxxxx".to_vec(),
            "compressed with bzip2",
            "`bzip2 -dc FILE |",
        ),
        (
            b"\x04\x22\x4d\x18xxxx".to_vec(),
            "compressed with lz4",
            "`lz4 -dc FILE |",
        ),
        (
            b"LPKSHHRH".to_vec(),
            "a journal file",
            "`journalctl --file FILE -o export |",
        ),
        (archive.clone(), "an archive", "unpack it"),
        (gzip(&archive), "an archive", "unpack it"),
        (b"PK\x03\x04xxxx".to_vec(), "an archive", "unpack it"),
        (gzip(&gzip(b"text")), "compressed twice", "`zcat FILE |"),
        (b"\xff\xfea\0".to_vec(), "UTF-16", "`iconv -f UTF-16"),
        (
            b"\x28\xb5\x2f\xfd\0\x98\0\0\0".to_vec(),
            "a larger window",
            "`zstd -dc",
        ),
    ] {
        let error = open(&bytes).unwrap_err().to_string();
        assert!(error.starts_with("node.log is "), "{error}");
        assert!(error.contains(found) && error.contains(advice), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let error = Input::open(folder.path(), &BytesRead::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("a directory") && error.contains("name the log files"),
        "{error}"
    );
    let missing = folder.path().join("none.log");
    assert!(matches!(
        Input::open(&missing, &BytesRead::default()),
        Err(LogError::Open { .. })
    ));
}

#[test]
fn its_beginning_can_be_looked_at_and_is_read_all_the_same() {
    let text = lines(1_000);
    for bytes in [text.clone().into_bytes(), gzip(text.as_bytes())] {
        let mut input = open(&bytes).unwrap();
        assert_eq!(input.beginning(), &text.as_bytes()[..BEGINNING]);
        let mut whole = String::new();
        input.read_to_string(&mut whole).unwrap();
        assert_eq!(whole, text);
    }
    assert_eq!(open(b"").unwrap().beginning(), b"");
}

#[test]
fn a_file_says_when_it_was_last_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubelet.log");
    std::fs::write(&path, "Nov  5 10:11:12 n kubelet[1]: hello\n").unwrap();
    let written = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_546_300_800);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(written)
        .unwrap();
    let mut reader = LogReader::new(
        Input::open(&path, &BytesRead::default()).unwrap(),
        Words::new(&["hello"]),
        LogOptions::default(),
    );
    let time = reader.next().unwrap().unwrap().time.unwrap();
    assert_eq!(time.to_string(), "2018-11-05T10:11:12.000000Z");
}

/// A disk that fails after some bytes.
struct Failing(usize);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let line = b"1699179072.000000 n a[1]: hello\n";
        if self.0 == 0 {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.0 -= 1;
        let length = line.len().min(buffer.len());
        buffer[..length].copy_from_slice(&line[..length]);
        Ok(length)
    }
}

#[test]
fn a_disk_that_fails_is_an_error_after_what_was_read() {
    let name = String::from("node.log");
    let input = Input::new(name, None, Box::new(Failing(3))).unwrap();
    let mut reader = LogReader::new(input, Words::new(&[]), LogOptions::default());
    for _ in 0..3 {
        assert!(reader.next().unwrap().is_some());
    }
    assert!(matches!(reader.next(), Err(LogError::Read { .. })));
    let name = String::from("node.log");
    assert!(Input::new(name, None, Box::new(Failing(0))).is_err());
}

#[test]
fn what_is_read_is_counted() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "twelve bytes").unwrap();
    let read = BytesRead::default();
    let mut input = Input::open(file.path(), &read).unwrap();
    let mut text = String::new();
    input.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), read.get()), ("twelve bytes", 12));
}

#[test]
fn what_has_no_end_of_a_line_has_an_end() {
    for byte in [0, b'x'] {
        let raw = Box::new(io::repeat(byte));
        let mut input = Input::new(String::from("x"), None, raw).unwrap();
        let error = io::copy(&mut input, &mut io::sink()).unwrap_err();
        assert!(error.to_string().contains("no line ends"), "{error}");
    }
}

#[test]
fn a_line_that_does_not_end_costs_nothing_that_is_before_it() {
    let lines = [&b"ab\ncd\n"[..], &[b'x'; 40]].concat();
    let mut input = Ending::new(&lines[..], 20);
    let mut read = Vec::new();
    let error = io::copy(&mut (&mut input).take(u64::MAX), &mut read);
    assert!(is_endless(&error.unwrap_err()));
    assert!(read.starts_with(b"ab\ncd\n"));
    // However much there is of shorter ones.
    let lines = [&[b'x'; 20][..], b"\n"].concat().repeat(50);
    let mut input = Ending::new(&lines[..], 20);
    assert_eq!(io::copy(&mut input, &mut io::sink()).unwrap(), 1_050);
}
