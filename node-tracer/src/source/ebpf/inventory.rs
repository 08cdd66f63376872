//! What is there: runs the iterators and reads what they say.
//!
//! Both are snapshots taken by the kernel in one go, without a lock, without
//! entering a namespace and without touching a task's /proc files, so that
//! nothing that is stuck can hold them up.

use std::{fs::File, io::Read as _};

use aya::programs::{Iter, Program};
use node_tracer_ebpf::{
    map,
    record::{self, AddressRecord, Header, Net, NetnsRecord, TaskRow, WalkRequest, kind},
};

use super::probes::{ProbeError, Probes, Value};
use crate::event::NotStuck;

/// One task, with its stack if it is in uninterruptible sleep.
#[derive(Clone, Debug)]
pub(crate) struct TaskEntry {
    /// What the kernel said.
    pub(crate) row: TaskRow,
    /// Return addresses, innermost first.
    pub(crate) stack: Vec<u64>,
    /// It is in state D and not stuck. What an iterator says is judged by who
    /// has the symbols.
    pub(crate) not_stuck: Option<NotStuck>,
}

/// One network namespace on the kernel's list.
#[derive(Clone, Debug)]
pub(crate) struct NetEntry {
    /// The namespace.
    pub(crate) net: Net,
    /// Every address in it but those of its loopback device.
    pub(crate) addresses: Vec<AddressRecord>,
}

/// Rounds of a walk whose buffer keeps filling up; 64 rounds are some 300,000
/// addresses.
const MAX_ROUNDS: usize = 64;

impl Probes {
    /// Every task, threads included. `outside_of`: the initial namespace's
    /// address, to leave out the tasks in it that are not blocked.
    pub(crate) fn tasks(&mut self, outside_of: Option<u64>) -> Result<Vec<TaskEntry>, ProbeError> {
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

    /// Every network namespace on the kernel's list, with its addresses.
    /// `None` if the list did not hold still for it.
    ///
    /// Of a namespace with more addresses than the buffer holds (some 5,000)
    /// the first ones are listed, the same each time.
    pub(crate) fn netns(&mut self, init_net: u64) -> Result<Option<Vec<NetEntry>>, ProbeError> {
        let mut all: Vec<NetEntry> = Vec::new();
        for _ in 0..MAX_ROUNDS {
            // The last one again: if another is found in its place, the list
            // has changed before it, and counting does not lead on.
            let skip = all.len().saturating_sub(1);
            let (round, complete) = self.round(init_net, skip)?;
            let first = round.first().map(|entry| entry.net.address);
            if let Some(last) = all.last()
                && first != Some(last.net.address)
            {
                all.clear();
                continue;
            }
            let whole = round.len() - usize::from(!complete);
            all.truncate(skip);
            // One that fills the buffer by itself is taken as it is.
            let taken = if whole < 2 && !complete {
                round.len()
            } else {
                whole
            };
            all.extend(round.into_iter().take(taken));
            if complete {
                return Ok(Some(all));
            }
        }
        Ok(None)
    }

    /// One filling of the buffer: namespaces from number `skip` on, of which
    /// the last may lack addresses unless the walk was complete.
    fn round(&mut self, init_net: u64, skip: usize) -> Result<(Vec<NetEntry>, bool), ProbeError> {
        while self.walk.next().is_some() {} // what a walk that failed left
        let skip = u32::try_from(skip).unwrap_or(u32::MAX);
        self.request(WalkRequest {
            init_net,
            skip,
            ..WalkRequest::default()
        })?;
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
        Ok((round, request.complete != 0))
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

fn collect(all: &mut Vec<NetEntry>, bytes: &[u8]) {
    let Some(header) = record::read::<Header>(bytes) else {
        return;
    };
    match header.kind {
        kind::WALK_NETNS => {
            if let Some(NetnsRecord { net, .. }) = record::read(bytes) {
                all.push(NetEntry {
                    net,
                    addresses: Vec::new(),
                });
            }
        }
        kind::WALK_ADDRESS => {
            if let (Some(address), Some(entry)) = (record::read(bytes), all.last_mut()) {
                entry.addresses.push(address);
            }
        }
        _ => {}
    }
}

/// What the walks of the kernel's lists give.
#[cfg(fuzzing)]
pub(crate) fn fuzz(data: &[u8]) {
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

    #[test]
    fn an_address_belongs_to_the_namespace_named_before_it() {
        let net = NetnsRecord {
            header: Header {
                kind: kind::WALK_NETNS,
                pad: 0,
                time: 0,
            },
            ..NetnsRecord::default()
        };
        let address = AddressRecord {
            header: Header {
                kind: kind::WALK_ADDRESS,
                pad: 0,
                time: 0,
            },
            ..AddressRecord::default()
        };
        let mut all = Vec::new();
        collect(&mut all, bytes_of(&address));
        collect(&mut all, bytes_of(&net));
        collect(&mut all, bytes_of(&address));
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].addresses.len(), 1);
    }
}
