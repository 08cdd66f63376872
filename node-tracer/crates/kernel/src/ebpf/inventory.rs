//! What is there: runs the iterators and reads what they say.
//!
//! Both are taken by the kernel without a lock, without entering a namespace and
//! without touching a task's /proc files, so that nothing that is stuck can hold
//! them up. What one namespace has in it takes no room from others: a listing
//! has so many items of each at most, and who has more is read on by itself.

use std::{fs::File, io::Read as _};

use aya::programs::{Iter, Program};
use node_tracer_ebpf::{
    map,
    record::{self, Header, Net, NetnsRecord, TaskRow, WalkAddress, WalkDevice, WalkRequest, kind},
};

use super::probes::{ProbeError, Probes, Value};
use event::NotStuck;

/// One task, with its stack if it is in uninterruptible sleep.
#[derive(Clone, Debug)]
pub struct TaskEntry {
    /// What the kernel said.
    pub row: TaskRow,
    /// Return addresses, innermost first.
    pub stack: Vec<u64>,
    /// It is in state D and not stuck. What an iterator says is judged by who
    /// has the symbols.
    pub not_stuck: Option<NotStuck>,
}

/// One network namespace on the kernel's list.
#[derive(Clone, Debug)]
pub struct NetEntry {
    pub net: Net,
    /// Its devices and the addresses on them, but for those of its loopback
    /// device, in the kernel's order: all of them, or as many as were asked
    /// for.
    pub items: Vec<Item>,
}

/// Something in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A device. It comes before its addresses.
    Device(WalkDevice),
    /// An address of the device with its index.
    Address(WalkAddress),
}

/// Namespaces at the end of what is known of the list that are looked at again
/// with the next filling of the buffer. The list grows at its end alone, so as
/// long as one of them is still on it, what follows that one was not seen yet.
const OVERLAP: usize = 64;
/// The same where so many have ended meanwhile that none was found.
const LONG_OVERLAP: usize = 4_096;
/// How often the list is begun anew.
const MAX_RESTARTS: usize = 16;
/// Fillings of the buffer for one listing; each has at least seven namespaces.
const MAX_ROUNDS: usize = 10_000;

impl Probes {
    /// Every task, threads included. `outside_of`: the initial namespace's
    /// address, to leave out the tasks in it that are not blocked.
    pub fn tasks(&mut self, outside_of: Option<u64>) -> Result<Vec<TaskEntry>, ProbeError> {
        self.request(WalkRequest {
            init_net: outside_of.unwrap_or(0),
            tasks_outside_only: u32::from(outside_of.is_some()),
            ..WalkRequest::default()
        })?;
        let mut bytes = Vec::new();
        self.iterate("task_rows")?
            .read_to_end(&mut bytes)
            .map_err(|source| ProbeError::Read {
                name: "task_rows",
                source,
            })?;
        Ok(task_entries(&bytes))
    }

    /// Every network namespace on the kernel's list, each with its first items,
    /// `limit` at most. `None` if the list did not hold still for it.
    pub fn netns(
        &mut self,
        init_net: u64,
        limit: u32,
    ) -> Result<Option<Vec<NetEntry>>, ProbeError> {
        let mut all: Vec<NetEntry> = Vec::new();
        let (mut overlap, mut restarts) = (OVERLAP, 0);
        for _ in 0..MAX_ROUNDS {
            let bare = all.len().min(overlap);
            let skip = all.len() - bare;
            let request = WalkRequest {
                init_net,
                skip: u32::try_from(skip).unwrap_or(u32::MAX),
                bare: u32::try_from(bare).unwrap_or(u32::MAX),
                limit,
                ..WalkRequest::default()
            };
            let (mut round, walked) = self.round(request)?;
            let complete = walked.complete != 0;
            if !complete {
                round.pop(); // it may lack items
            }
            if append(&mut all, skip, round) {
                if complete {
                    return Ok(Some(all));
                }
                overlap = OVERLAP;
            } else if overlap < LONG_OVERLAP && all.len() > overlap {
                overlap = LONG_OVERLAP;
            } else {
                all.clear();
                restarts += 1;
                if restarts == MAX_RESTARTS {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Items of one namespace from number `skip` on, `limit` at most, and
    /// whether these are the last; `None` if it is no longer on the list.
    pub fn items(
        &mut self,
        init_net: u64,
        net: Net,
        skip: u32,
        limit: u32,
    ) -> Result<Option<(Vec<Item>, bool)>, ProbeError> {
        let (round, walked) = self.round(WalkRequest {
            init_net,
            only: net.address,
            skip_items: skip,
            limit,
            ..WalkRequest::default()
        })?;
        let mut round = round.into_iter().filter(|entry| is_same(entry.net, net));
        let items = round.next().map(|entry| entry.items);
        Ok(items.map(|items| (items, walked.complete != 0)))
    }

    /// How many addresses a namespace has; at least so many, if they are more
    /// than one walk can count.
    pub fn count_addresses(&mut self, init_net: u64, net: Net) -> Result<u32, ProbeError> {
        let (_, walked) = self.round(WalkRequest {
            init_net,
            only: net.address,
            ..WalkRequest::default()
        })?;
        Ok(walked.addresses)
    }

    /// One filling of the buffer. Unless the walk was complete, the last
    /// namespace may lack items.
    fn round(&mut self, request: WalkRequest) -> Result<(Vec<NetEntry>, WalkRequest), ProbeError> {
        while self.walk.next().is_some() {} // what a walk that failed left
        self.request(request)?;
        self.run("net_walk")?;
        let mut round = Vec::new();
        while let Some(item) = self.walk.next() {
            collect(&mut round, &item);
        }
        let request = self.walk_request.get(&0, 0);
        let Value(request) = request.map_err(|source| ProbeError::Map {
            name: map::WALK_REQUEST,
            source,
        })?;
        // An empty list is none: the initial namespace is always on it.
        Ok((round, request))
    }

    fn request(&mut self, request: WalkRequest) -> Result<(), ProbeError> {
        self.walk_request
            .set(0, Value(request), 0)
            .map_err(|source| ProbeError::Map {
                name: map::WALK_REQUEST,
                source,
            })
    }

    /// Runs an iterator that writes nothing.
    pub(super) fn run(&mut self, name: &'static str) -> Result<(), ProbeError> {
        let mut nothing = Vec::new();
        let read = self.iterate(name)?.read_to_end(&mut nothing);
        read.map_err(|source| ProbeError::Read { name, source })?;
        Ok(())
    }

    fn iterate(&mut self, name: &'static str) -> Result<File, ProbeError> {
        let program: &mut Iter = match self.ebpf.program_mut(name) {
            Some(Program::Iter(program)) => program,
            _ => return Err(ProbeError::Iterator { name, source: None }),
        };
        let refused = |source| ProbeError::Iterator {
            name,
            source: Some(source),
        };
        let link = program.attach().map_err(refused)?;
        let link = program.take_link(link).map_err(refused)?;
        link.into_file()
            .map_err(|source| ProbeError::Link { name, source })
    }
}

fn task_entries(mut bytes: &[u8]) -> Vec<TaskEntry> {
    let mut entries = Vec::new();
    while let Some(row) = record::read::<TaskRow>(bytes) {
        bytes = &bytes[size_of::<TaskRow>()..];
        let Some((stack, rest)) = bytes.split_at_checked(row.stack_len as usize) else {
            break;
        };
        bytes = rest;
        let stack = stack
            .chunks_exact(8)
            .filter_map(|frame| Some(u64::from_ne_bytes(frame.try_into().ok()?)))
            .collect();
        entries.push(TaskEntry {
            row,
            stack,
            not_stuck: None,
        });
    }
    entries
}

/// Whether these are one namespace, and not a later one in its place.
fn is_same(one: Net, other: Net) -> bool {
    (one.address, one.inum) == (other.address, other.inum)
        && (one.cookie == other.cookie || one.cookie == 0 || other.cookie == 0)
}

/// Appends what follows on the list. `round` begins with number `skip`, as the
/// list was when it was read. Returns whether any of `all` from there on was
/// found in it.
fn append(all: &mut Vec<NetEntry>, skip: usize, round: Vec<NetEntry>) -> bool {
    if all.is_empty() {
        *all = round;
        return !all.is_empty();
    }
    let known = all.iter().enumerate().skip(skip).rev();
    let mut found = known.filter_map(|(at, entry)| {
        let mut round = round.iter();
        Some((at, round.position(|new| is_same(new.net, entry.net))?))
    });
    let Some((at, place)) = found.next() else {
        return false;
    };
    // What followed it and was not found has ended.
    all.truncate(at + 1);
    all.extend(round.into_iter().skip(place + 1));
    true
}

fn collect(all: &mut Vec<NetEntry>, bytes: &[u8]) {
    let Some(header) = record::read::<Header>(bytes) else {
        return;
    };
    let item = match header.kind {
        kind::WALK_NETNS => {
            if let Some(NetnsRecord { net, .. }) = record::read(bytes) {
                let items = Vec::new();
                all.push(NetEntry { net, items });
            }
            return;
        }
        kind::WALK_DEVICE => record::read(bytes).map(Item::Device),
        kind::WALK_ADDRESS => record::read(bytes).map(Item::Address),
        _ => return,
    };
    if let (Some(item), Some(entry)) = (item, all.last_mut()) {
        entry.items.push(item);
    }
}

/// What the walks of the kernel's lists give.
#[cfg(feature = "testing")]
pub fn fuzz(data: &[u8]) {
    let entries = task_entries(data);
    let stacks = entries.iter().map(|entry| 8 * entry.stack.len());
    assert!(entries.len() * size_of::<TaskRow>() + stacks.sum::<usize>() <= data.len());
    let mut all = Vec::new();
    for record in data.chunks(64) {
        collect(&mut all, record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of<T: record::Plain>(value: &T) -> &[u8] {
        // SAFETY: Plain types have no padding.
        unsafe { std::slice::from_raw_parts((&raw const *value).cast(), size_of::<T>()) }
    }

    #[test]
    fn rows_are_read_with_their_stacks_and_a_cut_row_is_left_out() {
        let row = TaskRow {
            stack_len: 16,
            ..TaskRow::default()
        };
        let mut bytes = bytes_of(&row).to_vec();
        bytes.extend(1u64.to_ne_bytes());
        bytes.extend(2u64.to_ne_bytes());
        bytes.extend(bytes_of(&TaskRow::default()));
        bytes.extend(bytes_of(&row));
        bytes.extend(1u64.to_ne_bytes());
        let entries = task_entries(&bytes);
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].stack, [1, 2]);
        assert!(entries[1].stack.is_empty());
    }

    fn header(kind: u32) -> Header {
        Header {
            kind,
            pad: 0,
            time: 0,
        }
    }

    #[test]
    fn an_address_belongs_to_the_namespace_named_before_it() {
        let net = NetnsRecord {
            header: header(kind::WALK_NETNS),
            ..NetnsRecord::default()
        };
        let address = WalkAddress {
            header: header(kind::WALK_ADDRESS),
            ..WalkAddress::default()
        };
        let mut all = Vec::new();
        collect(&mut all, bytes_of(&address));
        collect(&mut all, bytes_of(&net));
        collect(&mut all, bytes_of(&address));
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].items, [Item::Address(address)]);
    }

    fn listed(numbers: impl IntoIterator<Item = u32>) -> Vec<NetEntry> {
        let entry = |inum: u32| NetEntry {
            net: Net {
                user: record::NetUser::default(),
                address: inum.into(),
                cookie: inum.into(),
                inum,
                refs: 1,
            },
            items: Vec::new(),
        };
        numbers.into_iter().map(entry).collect()
    }

    fn numbers(all: &[NetEntry]) -> Vec<u32> {
        all.iter().map(|entry| entry.net.inum).collect()
    }

    #[test]
    fn a_list_that_changes_while_it_is_read_is_read_to_its_end() {
        let mut all = listed(1..=6);
        // 2 and 3 have ended: what was number 4 is now number 2.
        assert!(append(&mut all, 2, listed([5, 6, 7, 8])));
        assert_eq!(numbers(&all), [1, 2, 3, 4, 5, 6, 7, 8]);
        // The last two have ended.
        assert!(append(&mut all, 4, listed([5, 6, 9])));
        assert_eq!(numbers(&all), [1, 2, 3, 4, 5, 6, 9]);
        // Nothing tells what has been passed over.
        assert!(!append(&mut all, 5, listed([10, 11])));
    }
}
