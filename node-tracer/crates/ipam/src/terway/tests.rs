use super::{
    super::{
        bbolt::tests::{INLINE, PAGES, sum},
        tests::host,
    },
    *,
};

fn of(bytes: &[u8]) -> Result<Store, Unread> {
    let host = host(&[(FILE, bytes)]);
    read(&Root::open(host.path()).unwrap()).map(Option::unwrap)
}

fn refusal(bytes: &[u8]) -> String {
    of(bytes).unwrap_err().to_string()
}

fn parsed(json: &str) -> Option<Vec<String>> {
    let document = document(b"shop/web-1", json.as_bytes())?;
    Some(document.addresses.iter().map(ToString::to_string).collect())
}

#[test]
fn what_terway_has_given_out_is_read_out_of_its_database() {
    let store = of(PAGES).unwrap();
    assert_eq!(
        (store.kind, store.path.to_str()),
        (StoreKind::Terway, Some(FILE))
    );
    assert!(store.unread.is_empty(), "{:?}", store.unread);
    assert_eq!(store.reservations.len(), 21);
    let first = &store.reservations[0];
    assert_eq!(first.address.to_string(), "192.168.0.10");
    assert_eq!(first.modified.to_string(), "2026-07-01T12:00:00.500000Z");
    assert_eq!(
        first.holder.container_id,
        format!("{:064x}", 0xc0ff_ee00_u32)
    );
    let pod = first.holder.pod.as_ref().unwrap();
    assert_eq!(pod.label(), "shop/web-000");
    assert_eq!(
        pod.uid.as_deref(),
        Some("11111111-2222-3333-4444-000000000000")
    );
    let addresses = store
        .reservations
        .iter()
        .map(|each| each.address.to_string());
    let deleted = |address: &String| address == "192.168.0.11";
    assert_eq!(
        addresses.clone().filter(deleted).count(),
        0,
        "a deleted key"
    );
    assert_eq!(of(INLINE).unwrap().reservations.len(), 1);
}

#[test]
fn there_may_be_no_database() {
    let bare = host::<&str>(&[]);
    assert_eq!(read(&Root::open(bare.path()).unwrap()).unwrap(), None);
}

#[test]
fn a_database_that_cannot_be_read_is_not_an_empty_one() {
    let not = |text: &str| format!("{FILE} {text}");
    assert_eq!(refusal(b""), not("is no bbolt database"));
    assert_eq!(refusal(b"SQLite format 3"), not("is no bbolt database"));
    let mut torn = INLINE.to_vec();
    torn[40] ^= 1;
    torn[4096 + 40] ^= 1;
    assert!(refusal(&torn).contains("neither of its meta pages is valid"));
    let mut newer = INLINE.to_vec();
    for at in [0, 4096] {
        newer[at + 20] = 9;
        sum(&mut newer, at);
    }
    assert_eq!(
        refusal(&newer),
        not("is a bbolt database of the unknown version 9")
    );
    let renamed: Vec<u8> = String::from_utf8_lossy(b"relation")
        .replace('l', "L")
        .into();
    let mut other = INLINE.to_vec();
    for at in 0..other.len() - 8 {
        if &other[at..at + 8] == b"relation" {
            other[at..at + 8].copy_from_slice(&renamed);
        }
    }
    assert!(refusal(&other).contains("unknown version of Terway"));
}

#[test]
fn a_part_that_is_damaged_leaves_the_rest_and_is_told() {
    let mut parts = 0;
    for page in (6..30).step_by(2) {
        let mut other = PAGES.to_vec();
        // Its number.
        other[page * 1024] = 0xff;
        let store = of(&other).unwrap();
        if store.unread.is_empty() {
            // It is free.
            assert_eq!(store.reservations.len(), 21);
            continue;
        }
        parts += 1;
        assert!(store.reservations.len() < 21);
        assert!(store.unread[0].ends_with(&format!("is damaged: page {page} is another page")));
    }
    assert!(parts > 3, "{parts}");
    // One entry that is no JSON any more.
    let mut garbage = INLINE.to_vec();
    for at in 0..garbage.len() - 12 {
        if &garbage[at..at + 12] == b"{\"Resources\"" {
            garbage[at] = 0xff;
        }
    }
    let store = of(&garbage).unwrap();
    assert_eq!(store.reservations, []);
    assert_eq!(
        store.unread,
        [format!(
            "{FILE} has an entry shop/web-000 that is none of a pod's"
        )]
    );
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let host = host(&[(FILE, INLINE)]);
    let path = host.path().join(FILE.trim_start_matches('/'));
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(100 << 20).unwrap();
    let error = read(&Root::open(host.path()).unwrap()).unwrap_err();
    let error = event::fault::chain(&error);
    assert!(
        error.starts_with(&format!("cannot read {FILE}: ")),
        "{error}"
    );
}

#[test]
fn addresses_are_written_in_several_ways() {
    let one = |item: &str| parsed(&format!("{{\"Resources\":[{item}]}}"));
    let all = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
    assert_eq!(
        one(r#"{"type":"eniIp","ipv4":"10.0.0.5"}"#),
        all(&["10.0.0.5"])
    );
    assert_eq!(
        one(r#"{"type":"eni","ipv4":"10.0.0.5/24"}"#),
        all(&["10.0.0.5"])
    );
    assert_eq!(
        one(r#"{"ipv4":"10.0.0.5","ipv6":"fd00::5/64"},{"ipv4":"10.0.0.6"},{"ipv4":"10.0.0.5"}"#),
        all(&["10.0.0.5", "fd00::5", "10.0.0.6"])
    );
    let old = r#"{"type":"eniIp","id":"00:16:3e:00:00:01.10.0.0.5"}"#;
    assert_eq!(one(old), all(&["10.0.0.5"]));
    assert_eq!(one(r#"{"type":"veth","id":"cali0123"}"#), all(&[]));
    for wrong in [
        r#"{"ipv4":"10.0.0"}"#,
        r#"{"ipv4":"10.0.0.5/33"}"#,
        r#"{"ipv4":"10.0.0.5/"}"#,
        r#"{"ipv4":5}"#,
        r#"{"type":"eniIp","id":"x"}"#,
    ] {
        assert_eq!(one(wrong), None, "{wrong}");
    }
}

#[test]
fn what_is_no_pods_entry_is_not_taken_for_one() {
    assert_eq!(parsed(r#"{"Resources":null}"#), Some(Vec::new()));
    for wrong in [
        "",
        "{}",
        "[]",
        "null",
        "{\"Resources\":{}}",
        "{\"Resources\":[1]}",
    ] {
        assert_eq!(parsed(wrong), None, "{wrong}");
    }
    assert_eq!(parsed(r#"{"Resources":[],"ContainerID":"a/../b"}"#), None);
    let long = format!(
        "{{\"Resources\":[],\"NetConf\":\"{}\"}}",
        "x".repeat(MAX_DOCUMENT)
    );
    assert_eq!(parsed(&long), None);
    let nameless = br#"{"Resources":[{"ipv4":"10.0.0.5"}]}"#;
    assert!(document(b"\xff/web", nameless).is_none());
    let named = document(b"shop/web", nameless).unwrap();
    assert_eq!(
        (named.pod.label().as_str(), named.container_id.as_str()),
        ("shop/web", "")
    );
}

#[test]
fn a_copy_counts_only_if_nothing_was_written_meanwhile() {
    let path = Path::new(FILE);
    let content = |txid: u64| {
        let mut bytes = INLINE.to_vec();
        for (at, txid) in [(0, txid), (4096, txid - 1)] {
            bytes[at + 64..at + 72].copy_from_slice(&txid.to_ne_bytes());
            sum(&mut bytes, at);
        }
        Content {
            bytes,
            modified: sys::clock::now(),
        }
    };
    let copies = |mut txids: Vec<u64>| {
        txids.reverse();
        let mut copy = || Ok(Some(content(txids.pop().unwrap())));
        settled(path, &mut copy).map(|copy| Db::open(&copy.unwrap().bytes).unwrap().transaction())
    };
    assert_eq!(copies(vec![5, 5]).unwrap(), 5);
    assert_eq!(copies(vec![5, 6, 7, 7]).unwrap(), 7);
    let error = copies((5..20).collect()).unwrap_err().to_string();
    assert!(error.ends_with("no copy of it is of one moment"), "{error}");
    // It can go away meanwhile.
    let mut there = true;
    let gone = settled(path, &mut || {
        Ok(std::mem::take(&mut there).then(|| content(5)))
    });
    assert_eq!(gone.unwrap(), None);
}

/// A database whose transaction `n` has the address 10.0.n/256.n%256 in page
/// 2 or 3, in turns.
fn write(file: &std::fs::File, transaction: u64) {
    use std::os::unix::fs::FileExt as _;
    const SIZE: usize = 4096;
    let number = |bytes: &mut [u8], at: usize, value: u64| {
        bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    };
    let leaf = 4 + transaction % 2;
    let (high, low) = (transaction / 250, transaction % 250);
    let value = format!(
        "{{\"Resources\":[{{\"ipv4\":\"10.0.{high}.{low}\"}}],\"ContainerID\":\"c{transaction}\"}}"
    );
    let key = b"shop/web";
    let element = |bytes: &mut [u8], at: usize, flags: u32, key: &[u8], value: &[u8]| {
        for (field, value) in [flags, 16, key.len() as u32, value.len() as u32]
            .iter()
            .enumerate()
        {
            bytes[at + 4 * field..at + 4 * field + 4].copy_from_slice(&value.to_ne_bytes());
        }
        bytes[at + 16..at + 16 + key.len()].copy_from_slice(key);
        let at = at + 16 + key.len();
        bytes[at..at + value.len()].copy_from_slice(value);
    };
    let page = |number_: u64, flags: u16, count: u16| {
        let mut bytes = vec![0; SIZE];
        number(&mut bytes, 0, number_);
        bytes[8..10].copy_from_slice(&flags.to_ne_bytes());
        bytes[10..12].copy_from_slice(&count.to_ne_bytes());
        bytes
    };
    let mut data = page(leaf, 2, 1);
    element(&mut data, 16, 0, key, value.as_bytes());
    file.write_all_at(&data, leaf * SIZE as u64).unwrap();
    let mut bucket = [0; 16];
    bucket[..8].copy_from_slice(&leaf.to_ne_bytes());
    let mut root = page(leaf - 2, 2, 1);
    element(&mut root, 16, 1, BUCKET, &bucket);
    file.write_all_at(&root, (leaf - 2) * SIZE as u64).unwrap();
    let mut meta = page(transaction % 2, 4, 0);
    meta[16..20].copy_from_slice(&0xed0c_daed_u32.to_ne_bytes());
    meta[20..24].copy_from_slice(&2_u32.to_ne_bytes());
    meta[24..28].copy_from_slice(&(SIZE as u32).to_ne_bytes());
    number(&mut meta, 32, leaf - 2);
    number(&mut meta, 64, transaction);
    sum(&mut meta, 0);
    file.write_all_at(&meta, (transaction % 2) * SIZE as u64)
        .unwrap();
}

#[test]
fn a_database_that_is_written_meanwhile_is_read_as_of_one_moment() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let host = host(&[(FILE, "")]);
    let path = host.path().join(FILE.trim_start_matches('/'));
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(6 * 4096).unwrap();
    (10..12).for_each(|transaction| write(&file, transaction));
    let root = Root::open(host.path()).unwrap();
    let stop = AtomicBool::new(false);
    let (mut whole, mut last) = (0, 0);
    thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            let mut transaction = 12;
            while !stop.load(Ordering::Relaxed) {
                write(&file, transaction);
                transaction += 1;
                // As often as no daemon does.
                thread::sleep(Duration::from_millis(transaction % 4));
            }
        });
        for _ in 0..150 {
            let store = match read(&root) {
                Ok(store) => store.unwrap(),
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.ends_with("no copy of it is of one moment"), "{error}");
                    continue;
                }
            };
            assert!(store.unread.is_empty(), "{:?}", store.unread);
            let [one] = store.reservations.as_slice() else {
                panic!("{:?}", store.reservations)
            };
            let transaction: u64 = one.holder.container_id[1..].parse().unwrap();
            let (high, low) = (transaction / 250, transaction % 250);
            assert_eq!(one.address.to_string(), format!("10.0.{high}.{low}"));
            assert!(transaction >= last, "it went back in time");
            last = transaction;
            whole += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(whole > 50, "{whole}");
}
