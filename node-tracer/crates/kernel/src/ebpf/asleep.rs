//! Numbers that the kernel's programs and the tracer change both: of blocked
//! tasks, and of those of each crowd.
//!
//! An update of a map replaces its value; between a look and an update the
//! programs may have counted. So the values' pages are mapped, and counted in
//! as they do.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _},
    ptr::{self, NonNull},
    sync::atomic::{AtomicI64, Ordering::Relaxed},
};

use aya::maps::{Map, MapData, MapError};
use node_tracer_ebpf::record::{CROWDS, all_crowds};

/// An array of numbers, as it is in the kernel.
#[derive(Debug)]
struct Numbers {
    /// Of so many numbers.
    page: NonNull<AtomicI64>,
    count: usize,
    _map: MapData,
}

// SAFETY: the pages are this value's own, and changed by atomic operations only.
unsafe impl Send for Numbers {}

impl Numbers {
    /// Maps them.
    ///
    /// # Errors
    /// It is no array of so many, or mmap(2) refuses.
    fn new(map: Map, count: usize) -> Result<Self, MapError> {
        let Map::Array(map) = map else {
            let map_type = aya::maps::MapType::Array as u32;
            return Err(MapError::InvalidMapType { map_type });
        };
        // SAFETY: a new mapping anywhere; the result is checked. The kernel
        // refuses one that is longer than the map.
        let page = unsafe {
            libc::mmap(
                ptr::null_mut(),
                count * size_of::<AtomicI64>(),
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
        Ok(Self {
            page,
            count,
            _map: map,
        })
    }

    fn get(&self, index: usize) -> Option<&AtomicI64> {
        // SAFETY: so many are mapped for as long as `self` lives, and aligned.
        unsafe { std::slice::from_raw_parts(self.page.as_ptr(), self.count) }.get(index)
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        let length = self.count * size_of::<AtomicI64>();
        // SAFETY: mapped by `new`, and nobody has a reference into it.
        unsafe { libc::munmap(self.page.as_ptr().cast(), length) };
    }
}

/// How many tasks are blocked, in all and of each crowd.
#[derive(Debug)]
pub(super) struct Asleep {
    all: Numbers,
    crowds: Numbers,
}

impl Asleep {
    /// Maps both.
    ///
    /// # Errors
    /// One is no array of its length, or mmap(2) refuses.
    pub(super) fn new(all: Map, crowds: Map) -> Result<Self, MapError> {
        Ok(Self {
            all: Numbers::new(all, 1)?,
            crowds: Numbers::new(crowds, CROWDS as usize)?,
        })
    }

    /// One of a crowd less; 0 is none.
    pub(super) fn one_less(&self, crowd: u32) {
        for number in self.of_crowd(crowd).chain(self.all.get(0)) {
            number.fetch_sub(1, Relaxed);
        }
    }

    fn of_crowd(&self, crowd: u32) -> impl Iterator<Item = &AtomicI64> {
        let both = [all_crowds(crowd), crowd].map(|index| self.crowds.get(index as usize));
        both.into_iter().flatten().filter(move |_| crowd != 0)
    }

    /// One of a crowd more, which `insert` makes.
    ///
    /// # Errors
    /// Those of `insert`.
    pub(super) fn counting<T>(
        &self,
        crowd: u32,
        insert: impl FnOnce() -> Result<T, MapError>,
    ) -> Result<T, MapError> {
        let numbers: Vec<_> = self.of_crowd(crowd).chain(self.all.get(0)).collect();
        counting(&numbers, insert)
    }
}

/// Counts an entry before it is there: its task can run at once, on another CPU,
/// and where the number is 0 nobody looks for the entry, which then stays. A
/// number that is too high for a moment only costs a look.
fn counting<T, E>(numbers: &[&AtomicI64], insert: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let change = |by: i64| {
        for number in numbers {
            number.fetch_add(by, Relaxed);
        }
    };
    change(1);
    let inserted = insert();
    if inserted.is_err() {
        change(-1);
    }
    inserted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_counted_before_it_is_there() {
        let number = AtomicI64::new(0);
        let counted =
            |insert: Result<(), ()>| counting(&[&number], || insert.map(|()| number.load(Relaxed)));
        assert_eq!(counted(Ok(())), Ok(1));
        assert_eq!(counted(Ok(())), Ok(2));
    }

    #[test]
    fn what_is_not_inserted_is_not_counted() {
        let number = AtomicI64::new(0);
        assert_eq!(
            counting(&[&number], || Err::<(), _>("there already")),
            Err("there already")
        );
        assert_eq!(number.load(Relaxed), 0);
    }
}
