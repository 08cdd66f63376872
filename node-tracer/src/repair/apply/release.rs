//! What is done in a store by the thread that may write: opening it, taking its
//! lock, removing one file.

use crate::repair::release::OnDisk as _;
use std::{path::Path, sync::Arc, time::Duration};

use event::repair::plan::Release;
use node::{
    hostlocal::locked_store::{Lock, LockError, LockedStore},
    root::Root,
};
use sys::privileges::Starter;

/// How long the lock is waited for.
const LOCK_PATIENCE: Duration = Duration::from_secs(15);

/// How removing one went.
pub(super) enum Removed {
    Yes,
    /// It is not what was planned.
    Changed(String),
    /// The system does not do it.
    Failed(String),
}

/// Removes one, if it is what was planned at this very moment.
pub(super) fn release(opened: &LockedStore, lock: &Lock, planned: &Release) -> Removed {
    let name = planned.name();
    match opened.read(&name) {
        Ok(Some(exact)) if planned.is(&exact) => match opened.remove(lock, &name) {
            Ok(()) => Removed::Yes,
            Err(error) => Removed::Failed(format!("it cannot be removed: {error}")),
        },
        Ok(Some(exact)) => Removed::Changed(planned.difference(&exact).to_owned()),
        Ok(None) => Removed::Changed(String::from("it is gone: somebody else has released it")),
        Err(error) => Removed::Failed(format!("it cannot be read: {error}")),
    }
}

/// Opens a store by the thread that may.
pub(in crate::repair) fn open(
    writer: &Starter,
    root: &Path,
    store: &Path,
) -> anyhow::Result<Arc<LockedStore>> {
    let (root, path) = (root.to_owned(), store.to_owned());
    let opened = writer
        .run(move || -> anyhow::Result<_> { Ok(LockedStore::open(&Root::open(&root)?, &path)?) })?;
    match opened {
        Ok(Some(opened)) => Ok(Arc::new(opened)),
        Ok(None) => anyhow::bail!(
            "{} is gone: nothing is left to be released",
            store.display()
        ),
        Err(error) => Err(error.context(format!("cannot open the store {}", store.display()))),
    }
}

/// The lock of a store by the thread that may.
pub(in crate::repair) fn lock(
    writer: &Starter,
    opened: &Arc<LockedStore>,
) -> anyhow::Result<Result<Lock, LockError>> {
    let opened = Arc::clone(opened);
    Ok(writer.run(move || opened.lock(LOCK_PATIENCE))?)
}
