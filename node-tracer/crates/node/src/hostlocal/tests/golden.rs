//! A store of 5,000 files in which everything is that has been seen in one,
//! and more; each judged exactly.

use std::{
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _, net::UnixListener},
    time::{Duration, Instant, SystemTime},
};

use rustix::fs::{CWD, Mode, mknodat};

use super::*;
use event::Reservation;

const FILES: usize = 5_000;
const STORE: &str = "/var/lib/cni/networks/pods";

/// What makes an entry.
enum Make<'a> {
    File(&'a [u8]),
    /// So large, and without content.
    Sparse(u64),
    Link(&'a str),
    Folder,
    Fifo,
    Socket,
}

enum Is<'a> {
    Reserved(&'a str, Option<&'a str>),
    Last(&'a str, &'a str),
    /// host-local's own, and nothing to tell.
    Own,
    Foreign,
    Unread(&'a str),
}

const SPECIAL: &[(&[u8], Make<'_>, Is<'_>)] = {
    use Is::*;
    use Make::*;
    &[
        // Reservations, in every form.
        (b"10.0.0.1", File(b"old-form"), Reserved("old-form", None)),
        (b"10.0.0.2", File(b"old-form\n"), Reserved("old-form", None)),
        (
            b"10.0.0.3",
            File(b"id\r\neth0"),
            Reserved("id", Some("eth0")),
        ),
        (
            b"10.0.0.4",
            File(b"id\neth0\n"),
            Reserved("id", Some("eth0")),
        ),
        (
            b"10.0.0.5",
            File(b" id \r\n net1 \r\n "),
            Reserved("id", Some("net1")),
        ),
        (b"10.0.0.6", File(b""), Reserved("", None)),
        (b"10.0.0.7", File(b" \r\n"), Reserved("", None)),
        (b"255.255.255.255", File(b"id"), Reserved("id", None)),
        (
            b"fd00::2",
            File(b"id\r\neth0"),
            Reserved("id", Some("eth0")),
        ),
        (b"2001:db8:0:1::2", File(b"id"), Reserved("id", None)),
        (b"::1", File(b"id"), Reserved("id", None)),
        // host-local's own files.
        (b"lock", File(b""), Own),
        (
            b"last_reserved_ip.0",
            File(b"10.1.3.7"),
            Last("0", "10.1.3.7"),
        ),
        (
            b"last_reserved_ip.1",
            File(b"fd00::2\n"),
            Last("1", "fd00::2"),
        ),
        (b"last_reserved_ip.2", File(b""), Own),
        (b"last_reserved_ip.3", File(b"soon"), Own),
        // Other spellings of addresses hold nothing.
        (b"010.0.0.1", File(b"id"), Foreign),
        (b"10.0.1", File(b"id"), Foreign),
        (b"FD00::3", File(b"id"), Foreign),
        (b"fd00:0::4", File(b"id"), Foreign),
        (b"fd00::5%eth0", File(b"id"), Foreign),
        (b"::ffff:10.0.0.8", File(b"id"), Foreign),
        (b"fd00__6", File(b"id"), Foreign),
        (b"10.0.0.9 ", File(b"id"), Foreign),
        // Nor do other files.
        (b".lock", File(b""), Foreign),
        (b"10.0.0.10.tmp", File(b"id"), Foreign),
        (b"README", File(b"text"), Foreign),
        (b"last_reserved_ip.", File(b"10.0.0.1"), Foreign),
        (b"last_reserved_ip.x", File(b"10.0.0.1"), Foreign),
        (b"name-\xff", File(b"id"), Foreign),
        (b"folder", Folder, Foreign),
        (b"link", Link("/etc/passwd"), Foreign),
        (b"socket", Socket, Foreign),
        // What has an address's name and says nothing keeps it all the same.
        (
            b"10.0.2.1",
            File(b"\0\0\0\0\0\0\0\0"),
            Unread("is no reservation"),
        ),
        (
            b"10.0.2.2",
            File(b"\x7fELF\xff\xfe"),
            Unread("is no reservation"),
        ),
        (
            b"10.0.2.3",
            File(b"two words\r\neth0"),
            Unread("is no reservation"),
        ),
        (
            b"10.0.2.4",
            File(&[b'a'; MAX_FILE + 1]),
            Unread("too large"),
        ),
        (b"10.0.2.5", Sparse(100 << 20), Unread("too large")),
        (b"10.0.2.6", Link("10.0.0.3"), Unread("it is a link")),
        (b"10.0.2.7", Link("/outside"), Unread("it is a link")),
        (b"10.0.2.8", Link("10.0.2.8"), Unread("it is a link")),
        (b"10.0.2.9", Folder, Unread("is a folder")),
        (b"10.0.2.10", Fifo, Unread("it is a FIFO")),
        (b"10.0.2.11", Socket, Unread("it is a socket")),
    ]
};

fn make(path: &Path, make: &Make<'_>) {
    match make {
        Make::File(content) => fs::write(path, content).unwrap(),
        Make::Sparse(size) => fs::File::create(path).unwrap().set_len(*size).unwrap(),
        Make::Link(target) => symlink(target, path).unwrap(),
        Make::Folder => fs::create_dir(path).unwrap(),
        Make::Fifo => mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap(),
        Make::Socket => drop(UnixListener::bind(path).unwrap()),
    }
}

/// When the `n`th reservation was made.
fn made(n: usize) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000 + n as u64, 123_456_789)
}

fn ordinary(n: usize) -> (IpAddr, String) {
    let [_, _, high, low] = u32::try_from(n).unwrap().to_be_bytes();
    (IpAddr::from([10, 1, high, low]), format!("{n:064x}"))
}

#[test]
fn a_store_of_5000_files_with_everything_in_it_is_judged_exactly() {
    let host = host(&[]);
    let folder = host.path().join(STORE.trim_start_matches('/'));
    fs::create_dir_all(&folder).unwrap();
    for (name, how, _) in SPECIAL {
        make(&folder.join(std::ffi::OsStr::from_bytes(name)), how);
    }
    let mut expected = Store {
        path: PathBuf::from(STORE),
        ..Store::default()
    };
    for n in 0..FILES - SPECIAL.len() {
        let (address, id) = ordinary(n);
        let path = folder.join(address.to_string());
        fs::write(&path, format!("{id}\r\neth0")).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(made(n)).unwrap();
        expected.reservations.push(Reservation {
            address,
            holder: ReservationHolder {
                path: Path::new(STORE).join(address.to_string()),
                container_id: id,
                ifname: Some(String::from("eth0")),
                pod: None,
            },
            modified: made(n).into(),
        });
    }
    let root = Root::open(host.path()).unwrap();
    let start = Instant::now();
    let stores = look(&root, &[], sys::clock::now());
    let took = start.elapsed();
    let [
        Event {
            what: What::StoreListed { store },
            ..
        },
    ] = stores.as_slice()
    else {
        panic!("{} stores", stores.len());
    };

    let mut unread = Vec::new();
    for (name, _, is) in SPECIAL {
        let name = String::from_utf8_lossy(name).into_owned();
        let path = Path::new(STORE).join(&name);
        match is {
            Is::Reserved(id, ifname) => {
                let address = name.parse().unwrap();
                let there = store
                    .reservations
                    .iter()
                    .find(|each| each.address == address);
                expected.reservations.push(Reservation {
                    address,
                    holder: ReservationHolder {
                        path,
                        container_id: (*id).to_owned(),
                        ifname: ifname.map(str::to_owned),
                        pod: None,
                    },
                    modified: there.unwrap_or_else(|| panic!("{name}")).modified,
                });
            }
            Is::Last(set, address) => {
                let last = ((*set).to_owned(), address.parse().unwrap());
                expected.last_reserved.push(last);
            }
            Is::Own => {}
            Is::Foreign => expected.foreign.push(name),
            Is::Unread(why) => {
                unread.push((path.display().to_string(), *why));
                // Whatever it is, its name takes the address.
                expected.blocked.extend(name.parse::<IpAddr>().ok());
            }
        }
    }
    expected.reservations.sort_by_key(|each| each.address);
    expected.foreign.sort();
    expected.blocked.sort();
    unread.sort();
    assert_eq!(store.unread.len(), unread.len(), "{:?}", store.unread);
    for (text, (path, why)) in store.unread.iter().zip(&unread) {
        assert!(text.contains(path) && text.contains(why), "{text}");
    }
    expected.unread = store.unread.clone();
    assert_eq!(*store, expected);
    assert_eq!(store.reservations.len(), 4_967);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn more_files_than_are_looked_at_are_said() {
    let host = host(&[]);
    let folder = host.path().join(STORE.trim_start_matches('/'));
    fs::create_dir_all(&folder).unwrap();
    for n in 0..20 {
        let (address, id) = ordinary(n);
        fs::write(folder.join(address.to_string()), id).unwrap();
    }
    let root = Root::open(host.path()).unwrap();
    let list = |limit| {
        let folder = root.folder(Path::new(STORE)).unwrap().unwrap();
        store::list(Path::new(STORE), &folder, limit)
    };
    let all = list(20);
    assert_eq!((all.reservations.len(), all.unread.len()), (20, 0));
    let some = list(19);
    assert_eq!(some.reservations.len(), 19);
    let said = format!("{STORE} has more than 19 files; the rest was not read");
    assert_eq!(some.unread, [said]);
}

#[test]
fn a_reservation_that_is_released_while_it_is_read_is_none() {
    let host = host(&[("pods/10.0.0.1", ID), ("pods/10.0.0.2", ID)]);
    let root = Root::open(host.path()).unwrap();
    let path = Path::new("/pods");
    let folder = root.folder(path).unwrap().unwrap();
    let listing = folder.list(10).unwrap();
    fs::remove_file(host.path().join("pods/10.0.0.1")).unwrap();
    let store = store::judge(path, &folder, &listing, UnreadList::default());
    assert_eq!((store.reservations.len(), store.unread.len()), (1, 0));
}

#[test]
fn a_reservation_that_may_not_be_read_is_told_with_the_reason() {
    let host = host(&[("pods/10.0.0.1", ID), ("pods/10.0.0.2", ID)]);
    let file = host.path().join("pods/10.0.0.2");
    fs::set_permissions(file, fs::Permissions::from_mode(0o000)).unwrap();
    let root = Root::open(host.path()).unwrap();
    let path = Path::new("/pods");
    let folder = root.folder(path).unwrap().unwrap();
    let listed = std::thread::spawn(move || {
        const NOBODY: libc::uid_t = 65_534;
        // SAFETY: takes numbers only. The bare system call changes this thread
        // alone, which ends with it.
        let result = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        // Whoever is not root may not read it anyway.
        assert!(result == 0 || !rustix::process::geteuid().is_root());
        store::list(path, &folder, 10)
    });
    let store = listed.join().unwrap();
    assert_eq!(store.reservations.len(), 1);
    let [text] = store.unread.as_slice() else {
        panic!("{:?}", store.unread);
    };
    assert!(text.contains("pods/10.0.0.2: Permission denied"), "{text}");
}

#[test]
fn the_default_folder_is_a_store_of_its_own_only_if_something_is_in_it() {
    let paths = |host: &tempfile::TempDir| {
        let root = Root::open(host.path()).unwrap();
        let config = Configuration::read(&root);
        let events = look(&root, &config.networks, sys::clock::now());
        let path = |event: Event| match event.what {
            What::StoreListed { store } => {
                let count = store.reservations.len();
                format!("{} {count} {:?}", store.path.display(), store.foreign)
            }
            other => panic!("{other:?}"),
        };
        events.into_iter().map(path).collect::<Vec<_>>()
    };
    let networks = host(&[("var/lib/cni/networks/a/10.0.0.1", ID)]);
    assert_eq!(paths(&networks), ["/var/lib/cni/networks/a 1 []"]);
    let flat = host(&[
        ("var/lib/cni/networks/10.0.0.1", ID),
        ("var/lib/cni/networks/lock", ""),
        ("var/lib/cni/networks/note", ""),
        ("var/lib/cni/networks/a/10.0.0.1", ID),
        ("data/b/10.0.0.1", ID),
        (
            "etc/cni/net.d/b.conf",
            r#"{"name":"b","type":"ptp","ipam":{"type":"host-local","dataDir":"/data"}}"#,
        ),
    ]);
    // Another way to a store is no other store.
    symlink("/data/b", flat.path().join("var/lib/cni/networks/b")).unwrap();
    assert_eq!(
        paths(&flat),
        [
            "/data/b 1 []",
            "/var/lib/cni/networks 1 [\"note\"]",
            "/var/lib/cni/networks/a 1 []",
        ]
    );
    assert!(paths(&host(&[])).is_empty());
}

#[test]
fn folders_that_are_not_looked_into_are_said() {
    let host = host(&[("var/lib/cni/networks/10.0.0.1", ID)]);
    let folder = host.path().join("var/lib/cni/networks");
    for n in 0..=MAX_NETWORKS {
        fs::create_dir(folder.join(format!("net{n:03}"))).unwrap();
    }
    let root = Root::open(host.path()).unwrap();
    let events = look(&root, &[], sys::clock::now());
    assert_eq!(events.len(), 1 + MAX_NETWORKS);
    let What::StoreListed { store } = &events[0].what else {
        panic!("{:?}", events[0]);
    };
    assert_eq!((store.reservations.len(), store.unread.len()), (1, 1));
    let stores = Stores::discover(host.path()).unwrap();
    let lookup = stores.holder("10.0.0.2".parse().unwrap());
    assert_eq!(lookup.unread.texts(), store.unread);
}
