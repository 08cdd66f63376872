//! A planned release beside the file that it is about.

use event::repair::plan::{Release, is_plain};
use node::hostlocal::{file_name, locked_store::Exact, parse};

/// What a release is by its file.
pub(super) trait OnDisk {
    /// The file's name in its store.
    fn name(&self) -> String;

    /// Whether a file is, to the last byte and with the same inode and times,
    /// what was looked at.
    fn is(&self, found: &Exact) -> bool;

    /// What differs, in words.
    fn difference(&self, found: &Exact) -> &'static str;

    /// What no look can have brought.
    fn impossible(&self) -> Option<String>;
}

impl OnDisk for Release {
    fn name(&self) -> String {
        file_name(self.address)
    }

    fn is(&self, found: &Exact) -> bool {
        self.content == found.content
            && (self.device, self.inode) == (found.device, found.inode)
            && (self.modified, self.changed) == (found.modified, found.changed)
    }

    fn difference(&self, found: &Exact) -> &'static str {
        match () {
            () if self.content != found.content => "its content has changed",
            () if (self.device, self.inode) != (found.device, found.inode) => {
                "it is another file with the same content"
            }
            () => "it was written or changed again",
        }
    }

    fn impossible(&self) -> Option<String> {
        let path = self.path.display();
        if self.path != self.store.join(self.name()) {
            return Some(format!(
                "{path} is not the file of {} in its store",
                self.address
            ));
        }
        if !is_plain(&self.store) {
            return Some(format!(
                "{} is no plain absolute path (.. and . are never in a plan)",
                self.store.display()
            ));
        }
        if self.size != self.content.len() as u64 {
            return Some(format!("{path}: size and content do not fit"));
        }
        let parsed = parse(&self.content);
        if parsed != Some((self.container_id.clone(), self.ifname.clone())) {
            return Some(format!("{path}: container and content do not fit"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, time::Duration};

    use super::*;
    use crate::repair::testing::release;

    #[test]
    fn what_no_look_can_have_brought_is_named() {
        assert_eq!(release("10.0.0.5").impossible(), None);
        let edited = |edit: fn(&mut Release)| {
            let mut release = release("10.0.0.5");
            edit(&mut release);
            release.impossible().expect("it is possible")
        };
        edited(|it| it.path = PathBuf::from("/etc/passwd"));
        edited(|it| it.store = PathBuf::from("/etc"));
        edited(|it| {
            it.store = PathBuf::from("/var/lib/../../etc");
            it.path = it.store.join("10.0.0.5");
        });
        edited(|it| it.content = b"other\r\neth0".to_vec());
        edited(|it| it.size += 1);
        edited(|it| it.container_id = String::from("x"));
        edited(|it| it.address = "10.0.0.6".parse().unwrap());
    }

    #[test]
    fn any_difference_of_a_file_is_seen() {
        let release = release("10.0.0.5");
        let exact = crate::repair::testing::exact(&release);
        assert!(release.is(&exact));
        let differs = |edit: fn(&mut Exact)| {
            let mut other = exact.clone();
            edit(&mut other);
            assert!(!release.is(&other), "{other:?}");
        };
        differs(|it| it.content.push(b'\n'));
        differs(|it| it.inode += 1);
        differs(|it| it.device += 1);
        differs(|it| it.modified = it.modified.plus(Duration::from_nanos(1)));
        differs(|it| it.changed = it.changed.plus(Duration::from_nanos(1)));
    }
}
