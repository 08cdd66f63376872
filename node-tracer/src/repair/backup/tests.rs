//! What is in a backup, whenever the tool was killed.

use super::*;
use crate::repair::testing::{exact, release};

fn header() -> Header {
    Header {
        schema: SCHEMA.to_owned(),
        version: VERSION,
        time: crate::repair::testing::at(0),
        node: String::from("node-1"),
        boot_id: String::from("boot"),
        root: RootFolder {
            path: String::from("/"),
            device: 1,
            inode: 2,
        },
    }
}

fn saved(address: &str) -> Saved {
    let release = release(address);
    Saved::of(&release, &exact(&release))
}

fn backup(folder: &Path) -> Backup {
    Backup::create(folder, header(), &[]).unwrap()
}

fn addresses(read: &Read) -> Vec<String> {
    read.released
        .iter()
        .map(|one| one.address.to_string())
        .collect()
}

#[test]
fn only_what_may_have_been_removed_is_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("deep/backup");
    let mut backup = backup(&folder);
    let all: Vec<Saved> = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::4"]
        .into_iter()
        .map(saved)
        .collect();
    backup.save(all.clone()).unwrap();
    let path = |place: usize| all[place].path.clone();
    let kept = |place| Line::Kept {
        path: path(place),
        why: String::from("changed"),
    };
    backup.write(&[kept(0)]).unwrap();
    let releasing = |place| Line::Releasing { path: path(place) };
    backup
        .write(&[releasing(1), releasing(2), releasing(3)])
        .unwrap();
    // It was killed here.
    assert_eq!(
        addresses(&read(&folder).unwrap()),
        ["10.0.0.2", "10.0.0.3", "fd00::4"]
    );
    backup
        .write(&[Line::Released { path: path(1) }, kept(2)])
        .unwrap();
    let whole = read(&folder).unwrap();
    assert_eq!(
        (addresses(&whole), whole.ignored),
        (vec!["10.0.0.2".into(), "fd00::4".into()], 0)
    );
    assert_eq!(whole.released[0], all[1]);
    let copy = folder.join("var/lib/cni/networks/pods/10.0.0.2");
    assert_eq!(fs::read(copy).unwrap(), all[1].content);
}

#[test]
fn a_line_that_was_cut_off_is_ignored_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("backup");
    let mut backup = backup(&folder);
    let one = saved("10.0.0.1");
    backup.save(vec![one.clone()]).unwrap();
    backup
        .write(&[Line::Releasing {
            path: one.path.clone(),
        }])
        .unwrap();
    let manifest = folder.join(MANIFEST);
    let whole = fs::read(&manifest).unwrap();
    for length in 0..whole.len() {
        fs::write(&manifest, &whole[..length]).unwrap();
        // Never anything that was not in it.
        match read(&folder) {
            Ok(read) => assert!(read.released.is_empty() || read.released == [one.clone()]),
            Err(error) => assert!(matches!(error, BackupError::NoBackup { .. }), "{error}"),
        }
    }
    fs::write(&manifest, [&whole[..], br#"{"type":"rel"#].concat()).unwrap();
    let read = read(&folder).unwrap();
    assert_eq!((read.released.len(), read.ignored), (1, 1));
}

#[test]
fn what_could_not_have_been_saved_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("backup");
    let mut backup = backup(&folder);
    let mut other = saved("10.0.0.1");
    other.path = PathBuf::from("/etc/cron.d/10.0.0.1");
    let line = [
        Line::Saved(other.clone()),
        Line::Releasing { path: other.path },
    ];
    backup.write(&line).unwrap();
    let read = read(&folder).unwrap();
    assert_eq!((read.released.len(), read.ignored), (0, 1));
}

#[test]
fn a_backup_is_a_new_folder_outside_of_every_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    fs::create_dir(&store).unwrap();
    let metadata = fs::metadata(&store).unwrap();
    let stores = [(PathBuf::from("/store"), (metadata.dev(), metadata.ino()))];
    for inside in ["store/backup", "store/deep/er/backup"] {
        let error = Backup::create(&folder.path().join(inside), header(), &stores).unwrap_err();
        assert!(matches!(error, BackupError::InStore { .. }), "{error}");
    }
    let beside = folder.path().join("backup");
    Backup::create(&beside, header(), &stores).unwrap();
    Backup::create(&beside, header(), &stores).unwrap_err();
    let mode = fs::metadata(&beside).unwrap().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_backup_that_others_could_have_changed_is_not_put_back() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let shared = folder.path().join("shared");
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    fs::create_dir(&shared).unwrap();
    mode(&shared, 0o777);
    let made = Backup::create(&shared.join("backup"), header(), &[]);
    assert!(matches!(made, Err(BackupError::Untrusted { .. })));
    mode(&shared, 0o755);
    let folder = shared.join("backup");
    drop(backup(&folder));
    read(&folder).unwrap();
    for (path, bad, good) in [
        (folder.clone(), 0o770, 0o700),
        (folder.join(MANIFEST), 0o660, 0o600),
    ] {
        mode(&path, bad);
        let refused = read(&folder).unwrap_err();
        assert!(
            matches!(refused, BackupError::Untrusted { .. }),
            "{refused}"
        );
        mode(&path, good);
    }
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&folder, Some(65_534), None).unwrap();
        let refused = read(&folder).unwrap_err().to_string();
        assert!(refused.contains("belongs to another user"), "{refused}");
    }
}
