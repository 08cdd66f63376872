//! Stores that are files: read again when the file system says that they have
//! changed.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    super::{FILES, StoreReading, changes::Last, files, stamp::Stamp},
    Expected, Root, StoreKind, What,
};
use event::fault;

/// What was found by the last look.
#[derive(Debug)]
pub(super) struct FileLook {
    expected: Expected,
    last: Last,
    /// Of kinds that were read.
    stamps: BTreeMap<StoreKind, (Stamp, Option<String>)>,
}

impl FileLook {
    /// Nothing is known yet.
    pub(super) fn new(root: Arc<Root>) -> Self {
        Self {
            expected: Expected::new(root),
            last: Last::default(),
            stamps: BTreeMap::new(),
        }
    }

    /// What the configuration named when it was last read.
    pub(super) fn expected(&self) -> &BTreeMap<StoreKind, String> {
        &self.expected.kinds
    }

    /// Nothing was there when it was last looked, and nothing is to be.
    pub(super) fn is_bare(&self) -> bool {
        let named = FILES
            .iter()
            .any(|kind| self.expected.kinds.contains_key(kind));
        let read = |kind| self.stamps.get(kind);
        !named
            && FILES
                .iter()
                .all(|kind| read(kind).is_some_and(|(stamp, _)| stamp.is_bare()))
    }

    /// Looks. Returns the answers of kinds that were read, and what has
    /// changed.
    pub(super) fn round(&mut self) -> (Vec<StoreReading>, Vec<What>) {
        let named = self.expected.kinds().clone();
        let looked = |root: &Root| FILES.map(|kind| (kind, Stamp::of(root, kind)));
        let (mut answers, mut changes) = (Vec::new(), Vec::new());
        let stamps = match self.expected.bounded(looked) {
            Ok(stamps) => stamps,
            Err(error) => {
                // Only of what is known to be there.
                for kind in FILES {
                    let known = self
                        .stamps
                        .remove(&kind)
                        .is_some_and(|(stamp, _)| !stamp.is_bare());
                    if known || named.contains_key(&kind) {
                        let why = format!("its files: {}", fault::chain(&error));
                        let failed = StoreReading::failed(kind, why);
                        changes.extend(self.last.changes_of(kind, std::slice::from_ref(&failed)));
                        answers.push(failed);
                    }
                }
                return (answers, changes);
            }
        };
        for (kind, stamp) in stamps {
            let by = named.get(&kind).cloned();
            let same = self.stamps.get(&kind);
            if same.is_some_and(|(before, named)| stamp.is_same(before) && *named == by) {
                continue;
            }
            let network = by.clone();
            let read = move |root: &Root| files(root, kind, network.as_deref());
            let found = match self.expected.bounded(read) {
                Ok(found) => {
                    self.stamps.insert(kind, (stamp, by));
                    found
                }
                Err(error) => {
                    self.stamps.remove(&kind);
                    let why = format!("its files: {}", fault::chain(&error));
                    vec![StoreReading::failed(kind, why)]
                }
            };
            changes.extend(self.last.changes_of(kind, &found));
            answers.extend(found);
        }
        (answers, changes)
    }
}
