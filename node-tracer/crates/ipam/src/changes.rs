//! What has changed from one look at the stores to the next.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::StoreReading;
use event::{Store, StoreKind, What};

/// What was told last.
#[derive(Debug, Default)]
pub(super) struct Last {
    stores: BTreeMap<PathBuf, LastStore>,
    /// The error that was told, by kind.
    failing: BTreeMap<StoreKind, String>,
}

#[derive(Debug)]
struct LastStore {
    kind: StoreKind,
    /// What was in it when it could last be read.
    store: Option<Store>,
}

impl Last {
    /// A store as it was last read.
    pub(super) fn store(&self, path: &Path) -> Option<&Store> {
        self.stores.get(path)?.store.as_ref()
    }

    /// What answers change: all that there are, of each kind that is asked
    /// about. What could be read once is not untold by a failure.
    pub(super) fn changes(&mut self, answers: &[StoreReading]) -> Vec<What> {
        let asked: BTreeSet<StoreKind> = answers.iter().map(|answer| answer.kind).collect();
        let mut changes = Vec::new();
        for kind in asked {
            changes.extend(self.changes_of(kind, answers));
        }
        changes
    }

    /// As [`changes`](Self::changes), of one kind: one of which there is no
    /// store any more has no answers.
    pub(super) fn changes_of(&mut self, kind: StoreKind, answers: &[StoreReading]) -> Vec<What> {
        let answers = answers.iter().filter(|answer| answer.kind == kind);
        let mut changes = Vec::new();
        for answer in answers.clone() {
            let told = self.stores.get(&answer.path);
            match &answer.store {
                Ok(store) if told.and_then(|told| told.store.as_ref()) == Some(store) => {}
                Ok(store) => {
                    let new = LastStore {
                        kind,
                        store: Some(store.clone()),
                    };
                    self.stores.insert(answer.path.clone(), new);
                    let store = store.clone();
                    changes.push(What::StoreListed { store });
                }
                Err(_) if told.is_some() => {}
                Err(why) => {
                    let new = LastStore { kind, store: None };
                    self.stores.insert(answer.path.clone(), new);
                    changes.push(super::unread_store(kind, &answer.path, why));
                }
            }
        }
        let there: BTreeSet<&Path> = answers.clone().map(|it| it.path.as_path()).collect();
        self.stores.retain(|path, told| {
            let gone = told.kind == kind && !there.contains(path.as_path());
            if gone {
                let store = Store {
                    path: path.clone(),
                    kind,
                    ..Store::default()
                };
                changes.push(What::StoreListed { store });
            }
            !gone
        });
        let source = || kind.as_str().to_owned();
        let failed: Vec<&str> = answers
            .filter_map(|it| it.store.as_ref().err().map(String::as_str))
            .collect();
        if failed.is_empty() {
            if self.failing.remove(&kind).is_some() {
                changes.push(What::SourceRecovered { source: source() });
            }
            return changes;
        }
        let error = failed.join("; ");
        // LastStore again after a list of another store of the kind, which would
        // pass for an answer of all.
        let told = self.failing.insert(kind, error.clone());
        if told.as_ref() != Some(&error) || !changes.is_empty() {
            let source = source();
            changes.push(What::SourceFailed { source, error });
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::{
        Reservation,
        testing::{ip, reservation, s},
    };

    fn read(path: &str, last: u8) -> StoreReading {
        let store = Store {
            path: PathBuf::from(path),
            kind: StoreKind::Aws,
            reservations: vec![Reservation {
                address: ip(last),
                holder: reservation("a"),
                modified: s(1),
            }],
            ..Store::default()
        };
        StoreReading::new(StoreKind::Aws, Path::new(path), Ok(store))
    }

    fn unread(path: &str, why: &str) -> StoreReading {
        StoreReading::new(StoreKind::Aws, Path::new(path), Err(why.to_owned()))
    }

    fn words(changes: &[What]) -> Vec<String> {
        let word = |what: &What| match what {
            What::StoreListed { store } => format!(
                "{} {} {}",
                store.path.display(),
                store.reservations.len(),
                store.unread.join(",")
            ),
            What::SourceFailed { source, error } => format!("{source} failed {error}"),
            What::SourceRecovered { source } => format!("{source} recovered"),
            other => format!("{other:?}"),
        };
        changes.iter().map(word).collect()
    }

    #[test]
    fn only_what_has_changed_is_told() {
        let mut last = Last::default();
        let mut tell = |answers: &[StoreReading]| words(&last.changes_of(StoreKind::Aws, answers));
        assert_eq!(tell(&[read("/a", 5)]), ["/a 1 "]);
        assert!(tell(&[read("/a", 5)]).is_empty());
        assert_eq!(tell(&[read("/a", 6), read("/b", 7)]), ["/a 1 ", "/b 1 "]);
        assert_eq!(tell(&[read("/b", 7)]), ["/a 0 "]);
        assert_eq!(tell(&[]), ["/b 0 "]);
        assert!(tell(&[]).is_empty());
    }

    #[test]
    fn a_failure_takes_nothing_back_and_is_told_once() {
        let mut last = Last::default();
        let mut tell = |answers: &[StoreReading]| words(&last.changes_of(StoreKind::Aws, answers));
        assert_eq!(tell(&[read("/a", 5)]), ["/a 1 "]);
        assert_eq!(tell(&[unread("/a", "busy")]), ["aws failed busy"]);
        assert!(tell(&[unread("/a", "busy")]).is_empty());
        assert_eq!(tell(&[unread("/a", "huge")]), ["aws failed huge"]);
        assert_eq!(tell(&[read("/a", 5)]), ["aws recovered"]);
        assert_eq!(tell(&[unread("/a", "huge")]), ["aws failed huge"]);
        assert_eq!(tell(&[read("/a", 6)]), ["/a 1 ", "aws recovered"]);
    }

    #[test]
    fn a_store_that_was_never_read_is_told_as_such() {
        let mut last = Last::default();
        let mut tell = |answers: &[StoreReading]| words(&last.changes(answers));
        assert_eq!(tell(&[unread("/a", "x")]), ["/a 0 x", "aws failed x"]);
        // Another card's answer is not this one's.
        let both = [unread("/a", "x"), read("/b", 5)];
        assert_eq!(tell(&both), ["/b 1 ", "aws failed x"]);
        assert!(tell(&both).is_empty());
    }
}
