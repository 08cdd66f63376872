//! The number of blocked tasks, which the kernel's programs and the tracer
//! change both.
//!
//! An update of a map replaces its value; between a look and an update the
//! programs may have counted. So the value's page is mapped, and counted in as
//! they do.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _},
    ptr::{self, NonNull},
    sync::atomic::{AtomicI64, Ordering::Relaxed},
};

use aya::maps::{Map, MapData, MapError};

/// The number, as it is in the kernel.
#[derive(Debug)]
pub(super) struct Asleep {
    /// Of [`LENGTH`] bytes.
    page: NonNull<AtomicI64>,
    /// What is mapped.
    _map: MapData,
}

/// What is mapped of it: the kernel rounds up to pages.
const LENGTH: usize = size_of::<i64>();

// SAFETY: the page is this value's own, and changed by atomic operations only.
unsafe impl Send for Asleep {}

impl Asleep {
    /// Maps it.
    ///
    /// # Errors
    /// It is no array, or mmap(2) refuses.
    pub(super) fn new(map: Map) -> Result<Self, MapError> {
        let Map::Array(map) = map else {
            let map_type = aya::maps::MapType::Array as u32;
            return Err(MapError::InvalidMapType { map_type });
        };
        // SAFETY: a new mapping anywhere; the result is checked.
        let page = unsafe {
            libc::mmap(
                ptr::null_mut(),
                LENGTH,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.fd().as_fd().as_raw_fd(),
                0,
            )
        };
        let mapped = (page != libc::MAP_FAILED).then_some(page.cast::<AtomicI64>());
        let page = mapped
            .and_then(NonNull::new)
            .ok_or_else(|| MapError::IoError(io::Error::last_os_error()))?;
        Ok(Self { page, _map: map })
    }

    /// So many more, or fewer.
    pub(super) fn count(&self, entries: i64) {
        self.number().fetch_add(entries, Relaxed);
    }

    /// One more, which `insert` makes.
    pub(super) fn counting<T, E>(&self, insert: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        counting(self.number(), insert)
    }

    fn number(&self) -> &AtomicI64 {
        // SAFETY: mapped for as long as `self` lives, and aligned.
        unsafe { self.page.as_ref() }
    }
}

/// Counts an entry before it is there: its task can run at once, on another CPU,
/// and where the number is 0 nobody looks for the entry, which then stays. A
/// number that is too high for a moment only costs a look.
fn counting<T, E>(number: &AtomicI64, insert: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    number.fetch_add(1, Relaxed);
    let inserted = insert();
    if inserted.is_err() {
        number.fetch_sub(1, Relaxed);
    }
    inserted
}

impl Drop for Asleep {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody has a reference into it.
        unsafe { libc::munmap(self.page.as_ptr().cast(), LENGTH) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_counted_before_it_is_there() {
        let number = AtomicI64::new(0);
        let counted =
            |insert: Result<(), ()>| counting(&number, || insert.map(|()| number.load(Relaxed)));
        assert_eq!(counted(Ok(())), Ok(1));
        assert_eq!(counted(Ok(())), Ok(2));
    }

    #[test]
    fn what_is_not_inserted_is_not_counted() {
        let number = AtomicI64::new(0);
        assert_eq!(
            counting(&number, || Err::<(), _>("there already")),
            Err("there already")
        );
        assert_eq!(number.load(Relaxed), 0);
    }
}
