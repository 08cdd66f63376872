//! A writer of bbolt files (go.etcd.io/bbolt, file format 2) with one bucket.
//!
//! As bbolt does it: two meta pages, of which each transaction writes the other
//! one; nothing that the last transaction needs is overwritten; a small bucket
//! is kept inside its entry; up to four keys are one leaf, however long; and
//! the file is locked. What a reader may see half-way is what it would see of
//! bbolt.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, ensure};

const PAGE: usize = 4096;
const PAGE_HEADER: usize = 16;
const ELEMENT: usize = 16;
const LEAF: u16 = 0x02;
const META: u16 = 0x04;
const FREELIST: u16 = 0x10;
/// A leaf's element that is a bucket.
const IS_BUCKET: u32 = 1;
const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
/// bbolt never splits a leaf of so few keys.
const MAX_KEYS: usize = 4;

#[derive(Debug)]
pub struct Bbolt {
    file: File,
    bucket: String,
    transaction: u64,
    /// Pages in the file.
    pages: u64,
    /// Those that the last transaction needs.
    used: BTreeSet<u64>,
}

impl Bbolt {
    /// A new file with an empty bucket.
    pub fn create(path: &Path, bucket: &str) -> anyhow::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("create {}", path.display()))?;
        // SAFETY: flock takes a descriptor and a number.
        let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
        ensure!(locked == 0, "{} is locked", path.display());
        let mut this = Self {
            file,
            bucket: bucket.to_owned(),
            transaction: 0,
            pages: 2,
            used: BTreeSet::new(),
        };
        // Both meta pages must be there from the beginning.
        this.replace(&BTreeMap::new())?;
        this.replace(&BTreeMap::new())?;
        Ok(this)
    }

    /// One transaction: from now on the bucket holds exactly this.
    pub fn replace(&mut self, entries: &BTreeMap<String, String>) -> anyhow::Result<()> {
        ensure!(entries.len() <= MAX_KEYS, "more keys than one leaf has");
        let mut fresh = BTreeSet::new();
        let items: Vec<Item<'_>> = entries
            .iter()
            .map(|(key, value)| (key.as_bytes(), value.as_bytes(), 0))
            .collect();
        let leaf = leaf(&items);
        let value = match leaf.len() <= PAGE / 4 {
            // Root page 0: the bucket is right here.
            true => [bucket_header(0), page(0, LEAF, items.len(), 0, &leaf)].concat(),
            false => {
                let at = self.write(&mut fresh, LEAF, items.len(), &leaf)?;
                bucket_header(at)
            }
        };
        let root: [Item<'_>; 1] = [(self.bucket.as_bytes(), &value, IS_BUCKET)];
        let root_leaf = self::leaf(&root);
        let root_page = self.write(&mut fresh, LEAF, 1, &root_leaf)?;
        let list_page = self.allocate(&mut fresh, 1);
        // What only the transaction before needed is free as from now.
        let free: Vec<u64> = (2..self.pages).filter(|id| !fresh.contains(id)).collect();
        ensure!(free.len() < PAGE / 8 - 2, "too many free pages");
        let ids: Vec<u8> = free.iter().flat_map(|id| id.to_le_bytes()).collect();
        self.put(list_page, &page(list_page, FREELIST, free.len(), 0, &ids))?;
        self.file.sync_data()?;
        let id = self.transaction % 2;
        let meta = meta(root_page, list_page, self.pages, self.transaction);
        self.put(id, &page(id, META, 0, 0, &meta))?;
        self.file.sync_data()?;
        self.transaction += 1;
        self.used = fresh;
        Ok(())
    }

    /// Writes a page, with the pages that it overflows to, where nobody needs
    /// what is there. Returns its ID.
    fn write(
        &mut self,
        fresh: &mut BTreeSet<u64>,
        kind: u16,
        count: usize,
        body: &[u8],
    ) -> anyhow::Result<u64> {
        let pages = (PAGE_HEADER + body.len()).div_ceil(PAGE);
        let id = self.allocate(fresh, pages as u64);
        self.put(id, &page(id, kind, count, pages as u32 - 1, body))?;
        Ok(id)
    }

    /// So many free pages side by side.
    fn allocate(&mut self, fresh: &mut BTreeSet<u64>, count: u64) -> u64 {
        let is_free =
            |id: u64| id >= self.pages || !(self.used.contains(&id) || fresh.contains(&id));
        let first = (2..=self.pages)
            .find(|&first| (first..first + count).all(is_free))
            .unwrap_or(self.pages);
        fresh.extend(first..first + count);
        self.pages = self.pages.max(first + count);
        first
    }

    fn put(&self, id: u64, bytes: &[u8]) -> anyhow::Result<()> {
        let mut whole = bytes.to_vec();
        whole.resize(bytes.len().div_ceil(PAGE) * PAGE, 0);
        self.file
            .write_all_at(&whole, id * PAGE as u64)
            .context("write a page")
    }
}

/// Key, value, flags.
type Item<'a> = (&'a [u8], &'a [u8], u32);

fn page(id: u64, kind: u16, count: usize, overflow: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PAGE_HEADER + body.len());
    bytes.extend(id.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend((count as u16).to_le_bytes());
    bytes.extend(overflow.to_le_bytes());
    bytes.extend(body);
    bytes
}

/// The elements, then what they point to: positions count from the element.
fn leaf(items: &[Item<'_>]) -> Vec<u8> {
    let mut elements = Vec::new();
    let mut data: Vec<u8> = Vec::new();
    for (index, (key, value, flags)) in items.iter().enumerate() {
        let position = (items.len() - index) * ELEMENT + data.len();
        for number in [
            *flags,
            position as u32,
            key.len() as u32,
            value.len() as u32,
        ] {
            elements.extend(number.to_le_bytes());
        }
        data.extend(*key);
        data.extend(*value);
    }
    elements.extend(data);
    elements
}

/// Root page and sequence number.
fn bucket_header(root: u64) -> Vec<u8> {
    [root.to_le_bytes(), 0u64.to_le_bytes()].concat()
}

fn meta(root: u64, freelist: u64, pages: u64, transaction: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [MAGIC, VERSION, PAGE as u32, 0] {
        bytes.extend(number.to_le_bytes());
    }
    for number in [root, 0, freelist, pages, transaction] {
        bytes.extend(number.to_le_bytes());
    }
    let sum = fnv1a(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::fs;

    fn number(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    fn entries(count: usize, length: usize) -> BTreeMap<String, String> {
        (0..count)
            .map(|i| (format!("shop/web-{i}"), "x".repeat(length)))
            .collect()
    }

    /// The transaction of each meta page, both of which must be whole.
    fn transactions(file: &[u8]) -> [u64; 2] {
        [0, PAGE].map(|page| {
            let meta = &file[page + PAGE_HEADER..page + PAGE_HEADER + 64];
            assert_eq!(number(meta, 56), fnv1a(&meta[..56]), "the checksum");
            number(meta, 48)
        })
    }

    #[test]
    fn the_checksum_is_fnv_1a() {
        // The published test values.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn transactions_alternate_and_leave_the_one_before_as_it_was() {
        let folder = Scratch::create().unwrap();
        let path = folder.path().join("test.db");
        let mut bolt = Bbolt::create(&path, "relation").unwrap();
        let mut before = fs::read(&path).unwrap();
        for round in 0..12 {
            let used = bolt.used.clone();
            bolt.replace(&entries(round % 5, 100 * round)).unwrap();
            let now = fs::read(&path).unwrap();
            let mut both = transactions(&now);
            both.sort_unstable();
            assert_eq!(both, [round as u64 + 1, round as u64 + 2]);
            for id in used {
                let range = id as usize * PAGE..(id as usize + 1) * PAGE;
                assert_eq!(now[range.clone()], before[range], "page {id}");
            }
            before = now;
        }
        assert!(bolt.pages < 12, "pages are used again: {}", bolt.pages);
    }
}
