//! A bbolt database (go.etcd.io/bbolt, file format 2) as bytes: its buckets and
//! what is in them, read-only.
//!
//! Its writer never overwrites a page that the last finished transaction can
//! reach: it writes new pages and then one of the two meta pages, in turns. So
//! a copy is whole if the number of the last transaction was the same before
//! and after it was made; the caller sees to that. What is read here can be
//! anything all the same: every offset is checked, every page is visited once,
//! and nothing is called by itself.

use std::collections::HashSet;

/// Longest key that bbolt takes.
const MAX_KEY: usize = 32_768;
/// Names of buckets that are looked at.
const MAX_BUCKETS: usize = 4_096;

const MAGIC: u32 = 0xed0c_daed;
const VERSION: u32 = 2;
const PAGE_HEADER: usize = 16;
const ELEMENT: usize = 16;
const BUCKET_HEADER: usize = 16;
/// Of a meta page: what the checksum is of.
const SUMMED: usize = 56;
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
/// Of a leaf's element: the value is a bucket.
const IS_BUCKET: u32 = 0x01;
/// Sizes that a page can have.
const PAGE_SIZES: std::ops::RangeInclusive<usize> = 512..=65_536;

/// Why a database cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BoltError {
    /// Not the file that it should be.
    #[error("is no bbolt database")]
    NoDatabase,
    /// Neither meta page has its checksum.
    #[error("is damaged: neither of its meta pages is valid")]
    NoMeta,
    /// Of another version of the format.
    #[error("is a bbolt database of the unknown version {0}")]
    Version(u32),
    /// A page is not what leads to it says.
    #[error("is damaged: page {page} {what}")]
    Page { page: u64, what: &'static str },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Db<'a> {
    bytes: &'a [u8],
    meta: Meta,
}

/// What a meta page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Meta {
    page_size: usize,
    root: u64,
    txid: u64,
}

/// A bucket: its own tree, or a page inside its parent's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bucket<'a> {
    /// The page of the tree's root.
    Tree(u64),
    Inline(&'a [u8]),
}

/// One element of a leaf.
#[derive(Clone, Copy, Debug)]
enum Element<'a> {
    Value { key: &'a [u8], value: &'a [u8] },
    Bucket { key: &'a [u8], value: &'a [u8] },
}

impl<'a> Db<'a> {
    /// Takes the state that the last finished transaction has left.
    ///
    /// # Errors
    /// It is no database, or of another version, or was cut off.
    pub(crate) fn open(bytes: &'a [u8]) -> Result<Self, BoltError> {
        let mut error = BoltError::NoDatabase;
        let first = match Meta::read(bytes, 0) {
            Ok(meta) => Some(meta),
            Err(wrong) => {
                error = wrong;
                None
            }
        };
        let second = match first {
            Some(first) => Meta::read(bytes, first.page_size).ok(),
            // Its place tells the size of a page.
            None => {
                let sizes = std::iter::successors(Some(*PAGE_SIZES.start()), |size| Some(size * 2));
                let mut sizes = sizes.take_while(|size| PAGE_SIZES.contains(size));
                sizes.find_map(|size| {
                    let meta = Meta::read(bytes, size).ok()?;
                    (meta.page_size == size).then_some(meta)
                })
            }
        };
        let newest = first.into_iter().chain(second).max_by_key(|meta| meta.txid);
        let meta = newest.ok_or(error)?;
        Ok(Self { bytes, meta })
    }

    /// The number of the last finished transaction.
    pub(crate) fn transaction(&self) -> u64 {
        self.meta.txid
    }

    /// A bucket of the database; `None` if there is none of that name.
    ///
    /// # Errors
    /// The database is damaged.
    pub(crate) fn bucket(&self, name: &[u8]) -> Result<Option<Bucket<'a>>, BoltError> {
        let root = Bucket::Tree(self.meta.root);
        let mut found = None;
        let mut seen = 0;
        self.elements(root, |element| {
            seen += 1;
            if let Element::Bucket { key, value } = element
                && key == name
            {
                found = Some(value);
            }
            found.is_none() && seen < MAX_BUCKETS
        })?;
        found.map(|value| self.bucket_of(value)).transpose()
    }

    /// Shows each key of a bucket with its value, as long as `show` wants more.
    /// Buckets inside of it are left out.
    ///
    /// # Errors
    /// The database is damaged; what was shown by then is in it.
    pub(crate) fn each(
        &self,
        bucket: Bucket<'a>,
        mut show: impl FnMut(&'a [u8], &'a [u8]) -> bool,
    ) -> Result<(), BoltError> {
        self.elements(bucket, |element| match element {
            Element::Value { key, value } => show(key, value),
            Element::Bucket { .. } => true,
        })
    }

    fn bucket_of(&self, value: &'a [u8]) -> Result<Bucket<'a>, BoltError> {
        let wrong = BoltError::Page {
            page: self.meta.root,
            what: "has a bucket that is cut off",
        };
        match u64_at(value, 0) {
            Some(0) => value.get(BUCKET_HEADER..).map(Bucket::Inline).ok_or(wrong),
            Some(page) => Ok(Bucket::Tree(page)),
            None => Err(wrong),
        }
    }

    fn elements(
        &self,
        bucket: Bucket<'a>,
        mut show: impl FnMut(Element<'a>) -> bool,
    ) -> Result<(), BoltError> {
        let root = match bucket {
            Bucket::Tree(root) => root,
            Bucket::Inline(bytes) => {
                let page = Page::of(0, bytes)?;
                if page.flags != LEAF {
                    return Err(page.wrong("is inside another and no leaf"));
                }
                page.leaf(&mut show)?;
                return Ok(());
            }
        };
        // All elements together are part of the file.
        let mut left = self.bytes.len();
        let mut show = |element: Element<'a>| {
            let (Element::Value { key, value } | Element::Bucket { key, value }) = element;
            let fits = left.checked_sub(key.len() + value.len());
            left = fits.unwrap_or_default();
            fits.is_some() && show(element)
        };
        // In a tree, there is one way to each page.
        let mut seen = HashSet::new();
        let mut open = vec![root];
        while let Some(number) = open.pop() {
            if !seen.insert(number) {
                let what = "is led to twice";
                return Err(BoltError::Page { page: number, what });
            }
            let page = self.page(number)?;
            match page.flags {
                LEAF => {
                    if !page.leaf(&mut show)? {
                        let overlap = "has elements that overlap";
                        return if left == 0 {
                            Err(page.wrong(overlap))
                        } else {
                            Ok(())
                        };
                    }
                }
                BRANCH => {
                    let children = page.branch()?;
                    open.extend(children.into_iter().rev());
                }
                _ => return Err(page.wrong("is neither a branch nor a leaf")),
            }
        }
        Ok(())
    }

    /// A page with those that go on from it.
    fn page(&self, number: u64) -> Result<Page<'a>, BoltError> {
        let wrong = |what| BoltError::Page { page: number, what };
        let size = self.meta.page_size;
        let start = usize::try_from(number)
            .ok()
            .and_then(|n| n.checked_mul(size));
        let start = start.ok_or(wrong("is outside of the file"))?;
        let rest = self.bytes.get(start..).unwrap_or_default();
        let more = u32_at(rest, 12).ok_or(wrong("is outside of the file"))?;
        if u64_at(rest, 0) != Some(number) {
            return Err(wrong("is another page"));
        }
        let length = (more as usize)
            .checked_add(1)
            .and_then(|n| n.checked_mul(size));
        let bytes = length.and_then(|length| rest.get(..length));
        Page::of(number, bytes.ok_or(wrong("is cut off"))?)
    }
}

impl Meta {
    fn read(bytes: &[u8], at: usize) -> Result<Self, BoltError> {
        let meta = bytes.get(at..).and_then(|page| page.get(PAGE_HEADER..));
        let meta = meta.ok_or(BoltError::NoDatabase)?;
        if u32_at(meta, 0) != Some(MAGIC) {
            return Err(BoltError::NoDatabase);
        }
        let sum = meta.get(..SUMMED).map(fnv);
        if sum.is_none() || sum != u64_at(meta, SUMMED) {
            return Err(BoltError::NoMeta);
        }
        match u32_at(meta, 4) {
            Some(VERSION) => {}
            other => return Err(BoltError::Version(other.unwrap_or_default())),
        }
        let page_size = u32_at(meta, 8).unwrap_or_default() as usize;
        if !PAGE_SIZES.contains(&page_size) || !page_size.is_power_of_two() {
            return Err(BoltError::NoMeta);
        }
        let (root, txid) = (u64_at(meta, 16), u64_at(meta, 48));
        let (Some(root), Some(txid)) = (root, txid) else {
            return Err(BoltError::NoMeta);
        };
        Ok(Self {
            page_size,
            root,
            txid,
        })
    }
}

/// A page, or one inside a value.
#[derive(Clone, Copy, Debug)]
struct Page<'a> {
    number: u64,
    flags: u16,
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Page<'a> {
    fn of(number: u64, bytes: &'a [u8]) -> Result<Self, BoltError> {
        let (flags, count) = (u16_at(bytes, 8), u16_at(bytes, 10));
        let (Some(flags), Some(count), true) = (flags, count, bytes.len() >= PAGE_HEADER) else {
            let what = "is cut off";
            return Err(BoltError::Page { page: number, what });
        };
        Ok(Self {
            number,
            flags,
            count: count.into(),
            bytes,
        })
    }

    fn wrong(&self, what: &'static str) -> BoltError {
        BoltError::Page {
            page: self.number,
            what,
        }
    }

    /// The header of an element, and all that comes after it.
    fn element(&self, index: usize) -> Result<(usize, &'a [u8]), BoltError> {
        let start = PAGE_HEADER + index * ELEMENT;
        let header = self.bytes.get(start..start + ELEMENT);
        let header = header.ok_or(self.wrong("has more elements than fit"))?;
        Ok((start, header))
    }

    /// Shows the elements of a leaf. Returns whether more are wanted.
    fn leaf(&self, show: &mut impl FnMut(Element<'a>) -> bool) -> Result<bool, BoltError> {
        for index in 0..self.count {
            let (start, header) = self.element(index)?;
            let field = |at| u32_at(header, at).map(|value| value as usize);
            let fields = (field(4), field(8), field(12));
            let (Some(position), Some(key), Some(value)) = fields else {
                return Err(self.wrong("is cut off"));
            };
            let outside = || self.wrong("has an element that is outside of it");
            if key > MAX_KEY {
                return Err(outside());
            }
            let data = start.checked_add(position);
            let data = data.and_then(|start| self.bytes.get(start..));
            let data = data.ok_or_else(outside)?;
            let (key, rest) = data.split_at_checked(key).ok_or_else(outside)?;
            let value = rest.get(..value).ok_or_else(outside)?;
            let element = match u32_at(header, 0).unwrap_or_default() & IS_BUCKET {
                0 => Element::Value { key, value },
                _ => Element::Bucket { key, value },
            };
            if !show(element) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The pages that a branch leads to.
    fn branch(&self) -> Result<Vec<u64>, BoltError> {
        (0..self.count)
            .map(|index| {
                let (_, header) = self.element(index)?;
                u64_at(header, 8).ok_or(self.wrong("is cut off"))
            })
            .collect()
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*bytes))
}

/// FNV-1a, 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Gives the meta pages that are there the sums that chance does not find.
#[cfg(feature = "testing")]
pub(crate) fn with_sums(mut bytes: Vec<u8>) -> Vec<u8> {
    let sizes = std::iter::successors(Some(*PAGE_SIZES.start()), |size| Some(size * 2));
    for at in std::iter::once(0).chain(sizes.take_while(|size| PAGE_SIZES.contains(size))) {
        let meta = bytes
            .get_mut(at..)
            .and_then(|page| page.get_mut(PAGE_HEADER..));
        if let Some((summed, rest)) = meta.and_then(|meta| meta.split_at_mut_checked(SUMMED))
            && u32_at(summed, 0) == Some(MAGIC)
            && let Some(sum) = rest.first_chunk_mut()
        {
            *sum = fnv(summed).to_le_bytes();
        }
    }
    bytes
}

#[cfg(test)]
pub(super) mod tests;
