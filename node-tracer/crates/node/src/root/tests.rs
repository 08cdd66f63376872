use std::os::unix::fs::symlink;

use super::*;

fn name(listing: &Listing) -> Vec<&str> {
    let names = listing.entries.iter().map(|each| each.text().unwrap());
    names.collect()
}

#[test]
fn links_stay_below_the_root_and_the_last_part_is_none() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    let host = tempfile::tempdir().unwrap();
    fs::create_dir(host.path().join("real")).unwrap();
    fs::write(host.path().join("real/file"), "here").unwrap();
    symlink("/real", host.path().join("link")).unwrap();
    symlink("/real/file", host.path().join("file")).unwrap();
    symlink(outside.path(), host.path().join("out")).unwrap();
    symlink("../../../../../..", host.path().join("up")).unwrap();
    let root = Root::open(host.path()).unwrap();
    let read = |path: &str| root.read(Path::new(path), 100);
    let Found::File(content) = read("/link/file").unwrap() else {
        panic!("the host's own link is followed");
    };
    assert_eq!(content.bytes, b"here");
    assert_eq!(read("/out/secret").unwrap(), Found::Missing);
    assert_eq!(read("/up/real").unwrap(), Found::Folder);
    assert_eq!(read("/").unwrap(), Found::Folder);
    let error = read("/file").unwrap_err();
    assert_eq!(error.to_string(), "it is a link");
}

#[test]
fn no_more_than_the_limit_is_read() {
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("ten"), "0123456789").unwrap();
    let root = Root::open(host.path()).unwrap();
    assert!(matches!(
        root.read(Path::new("/ten"), 10),
        Ok(Found::File(_))
    ));
    let error = root.read(Path::new("/ten"), 9).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    // These say that they are empty and are not.
    let proc = Root::open(Path::new("/proc/self")).unwrap();
    let error = proc.read(Path::new("/status"), 9).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
}

#[test]
fn a_folder_is_listed_up_to_the_limit_and_says_so() {
    let host = tempfile::tempdir().unwrap();
    for file in ["c", "a", "b"] {
        fs::write(host.path().join(file), "").unwrap();
    }
    let root = Root::open(host.path()).unwrap();
    let folder = root.folder(Path::new("/")).unwrap().unwrap();
    let all = folder.list(3).unwrap();
    assert_eq!((name(&all), all.cut), (vec!["a", "b", "c"], false));
    let some = folder.list(2).unwrap();
    assert_eq!((some.entries.len(), some.cut), (2, true));
    assert_eq!(folder.list(3).unwrap(), all, "it starts anew");
    assert!(root.folder(Path::new("/none")).unwrap().is_none());
    assert!(root.folder(Path::new("/a")).is_err());
}

#[test]
fn an_entry_that_has_become_something_else_is_not_waited_for() {
    let host = tempfile::tempdir().unwrap();
    for file in ["fifo", "gone", "link"] {
        fs::write(host.path().join(file), "").unwrap();
    }
    let root = Root::open(host.path()).unwrap();
    let folder = root.folder(Path::new("/")).unwrap().unwrap();
    let listing = folder.list(10).unwrap();
    for file in ["fifo", "gone", "link"] {
        fs::remove_file(host.path().join(file)).unwrap();
    }
    let fifo = host.path().join("fifo");
    rustix::fs::mknodat(CWD, fifo, FileType::Fifo, Mode::RWXU, 0).unwrap();
    symlink("fifo", host.path().join("link")).unwrap();
    let [fifo, gone, link] = listing.entries.as_slice() else {
        panic!("three entries");
    };
    assert!(folder.read(fifo, 10).is_err());
    assert_eq!(folder.read(gone, 10).unwrap(), Found::Missing);
    assert!(folder.read(link, 10).is_err());
    // The same, from a file system that does not say what an entry is.
    for (name, expected) in [("fifo", "it is a FIFO"), ("link", "it is a link")] {
        let error = folder.read(&Entry::named(name), 10).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let missing = folder.read(&Entry::named("gone"), 10).unwrap();
    assert_eq!(missing, Found::Missing);
}

#[test]
fn only_a_namespace_has_a_namespaces_inode() {
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("netns"), "").unwrap();
    let root = Root::open(host.path()).unwrap();
    assert_eq!(root.nsfs_inode(Path::new("/netns")), None);
    assert_eq!(root.nsfs_inode(Path::new("/none")), None);
    // A link of the kernel's leads out of the root, and is not followed.
    let proc = Root::open(Path::new("/proc")).unwrap();
    assert_eq!(proc.nsfs_inode(Path::new("/self/ns/net")), None);
}

#[test]
fn a_configured_path_is_taken_as_a_plugin_takes_it() {
    for (path, expected) in [
        ("/var/lib/cni/", "/var/lib/cni"),
        ("data", "/data"),
        ("/a/../../b/./c", "/b/c"),
        ("", "/"),
    ] {
        assert_eq!(absolute(path), Path::new(expected));
    }
}

#[test]
fn what_is_renamed_elsewhere_keeps_nothing_from_being_opened() {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("a/b")).unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| elsewhere.path().join(name));
    fs::write(&one, "").unwrap();
    let root = Root::open(folder.path()).unwrap();
    let done = AtomicBool::new(false);
    let failed = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                fs::rename(&one, &other).unwrap();
                fs::rename(&other, &one).unwrap();
            }
        });
        let path = Path::new("/a/b/../../a/b/../../file");
        let failed = (0..20_000).find_map(|_| root.open_below(path, OFlags::PATH).err());
        done.store(true, Relaxed);
        failed
    });
    assert!(failed.is_none(), "{failed:?}");
}

#[test]
fn a_path_that_the_kernel_has_not_in_memory_leads_to_no_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    // Nobody has asked for it before.
    let error = root.namespace(Path::new("/netns/never")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
}
