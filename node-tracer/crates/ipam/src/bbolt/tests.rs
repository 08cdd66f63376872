use std::collections::BTreeMap;

use super::*;

/// Made by bbolt: see `fixtures/make.go`.
pub(in super::super) const INLINE: &[u8] = include_bytes!("../fixtures/inline.db");
pub(in super::super) const PAGES: &[u8] = include_bytes!("../fixtures/pages.db");

fn keys(bytes: &[u8]) -> Result<BTreeMap<String, usize>, BoltError> {
    let db = Db::open(bytes)?;
    let mut keys = BTreeMap::new();
    if let Some(bucket) = db.bucket(b"relation")? {
        db.each(bucket, |key, value| {
            keys.insert(String::from_utf8_lossy(key).into_owned(), value.len());
            true
        })?;
    }
    Ok(keys)
}

/// Puts a meta page's checksum right.
pub(in super::super) fn sum(bytes: &mut [u8], at: usize) {
    let start = at + PAGE_HEADER;
    let sum = fnv(&bytes[start..start + SUMMED]);
    bytes[start + SUMMED..start + SUMMED + 8].copy_from_slice(&sum.to_ne_bytes());
}

#[test]
fn a_small_bucket_is_read_out_of_its_parents_page() {
    let keys = keys(INLINE).unwrap();
    assert_eq!(keys.keys().collect::<Vec<_>>(), ["shop/web-000"]);
    let db = Db::open(INLINE).unwrap();
    assert!(matches!(
        db.bucket(b"relation"),
        Ok(Some(Bucket::Inline(_)))
    ));
    assert!(db.bucket(b"none").unwrap().is_none());
}

#[test]
fn branches_and_long_values_are_followed_and_deleted_keys_are_gone() {
    let keys = keys(PAGES).unwrap();
    let expected = (0..25).filter(|i| i % 7 != 1);
    let expected: Vec<String> = expected.map(|i| format!("shop/web-{i:03}")).collect();
    assert_eq!(keys.keys().cloned().collect::<Vec<_>>(), expected);
    assert!(keys["shop/web-000"] > 3 * 1024, "it has several pages");
    let db = Db::open(PAGES).unwrap();
    assert!(matches!(db.bucket(b"relation"), Ok(Some(Bucket::Tree(_)))));
}

#[test]
fn a_bucket_of_buckets_has_no_values() {
    let db = Db::open(PAGES).unwrap();
    let other = db.bucket(b"other").unwrap().unwrap();
    db.each(other, |_, _| panic!("it has no values")).unwrap();
}

#[test]
fn the_newest_meta_page_that_is_valid_counts() {
    let size = 1024;
    let newest = Db::open(PAGES).unwrap().transaction();
    let of = |at: usize| Meta::read(PAGES, at).unwrap().txid;
    assert_eq!(newest, of(0).max(of(size)));
    assert_ne!(of(0), of(size));
    for at in [0, size] {
        let mut torn = PAGES.to_vec();
        torn[at + PAGE_HEADER + 20] ^= 1;
        let other = of(size - at);
        assert_eq!(Db::open(&torn).unwrap().transaction(), other);
    }
    let mut torn = PAGES.to_vec();
    torn[PAGE_HEADER + 20] ^= 1;
    torn[size + PAGE_HEADER + 20] ^= 1;
    assert_eq!(Db::open(&torn).unwrap_err(), BoltError::NoMeta);
}

#[test]
fn what_is_no_database_is_said_to_be_none() {
    for bytes in [&b""[..], b"bolt", &[0; 70_000], &[0xff; 70_000]] {
        assert_eq!(Db::open(bytes).unwrap_err(), BoltError::NoDatabase);
    }
    let mut newer = INLINE.to_vec();
    for at in [0, 4096] {
        newer[at + PAGE_HEADER + 4] = 3;
        sum(&mut newer, at);
    }
    assert_eq!(Db::open(&newer).unwrap_err(), BoltError::Version(3));
}

#[test]
fn a_file_that_was_cut_off_is_damaged_and_not_empty() {
    for length in (0..PAGES.len()).step_by(97) {
        if let Ok(keys) = keys(&PAGES[..length]) {
            // What is cut off was of no use.
            assert_eq!(keys.len(), 21, "{length}");
        }
    }
    assert!(keys(&PAGES[..20 * 1024]).is_err());
}

/// Both meta pages of one-kilobyte pages lead to `root`.
fn rooted(pages: &mut [u8], root: u64) {
    for at in [0, 1024] {
        let field = at + PAGE_HEADER + 16;
        pages[field..field + 8].copy_from_slice(&root.to_ne_bytes());
        sum(pages, at);
    }
}

#[test]
fn a_tree_that_goes_in_circles_is_left() {
    let mut circle = PAGES.to_vec();
    // A branch on page 5 that has itself as a child, twice.
    let page = 5 * 1024;
    circle[page..page + 1024].fill(0);
    circle[page..page + 8].copy_from_slice(&5_u64.to_ne_bytes());
    circle[page + 8..page + 10].copy_from_slice(&BRANCH.to_ne_bytes());
    circle[page + 10..page + 12].copy_from_slice(&2_u16.to_ne_bytes());
    for element in [page + 16, page + 32] {
        circle[element + 8..element + 16].copy_from_slice(&5_u64.to_ne_bytes());
    }
    rooted(&mut circle, 5);
    let what = "is led to twice";
    assert_eq!(keys(&circle), Err(BoltError::Page { page: 5, what }));
    for (root, what) in [
        (0, "is neither a branch nor a leaf"),
        (1 << 40, "is outside of the file"),
        (u64::MAX, "is outside of the file"),
        (32, "is another page"),
    ] {
        rooted(&mut circle, root);
        assert_eq!(keys(&circle), Err(BoltError::Page { page: root, what }));
    }
}

#[test]
fn no_byte_makes_it_fail_inside() {
    // Bytes of what is reachable changed, with the checksums put right.
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for at in (0..INLINE.len()).step_by(3) {
        let mut bytes = INLINE.to_vec();
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        bytes[at] = seed as u8;
        sum(&mut bytes, 0);
        sum(&mut bytes, 4096);
        let _ = keys(&bytes);
    }
    for at in (0..PAGES.len()).step_by(7) {
        let mut bytes = PAGES.to_vec();
        let end = (at + 8).min(bytes.len());
        bytes[at..end].fill(0xff);
        sum(&mut bytes, 0);
        sum(&mut bytes, 1024);
        let _ = keys(&bytes);
    }
}
