//! Namespaces with more in them than a listing has: their addresses are read
//! apart, piece by piece, with turns for everything else in between.
//!
//! The time that this takes is bounded by itself, so that it neither delays nor
//! is delayed by what others do: 100,000 addresses take some 0.1 s.

use std::collections::{BTreeSet, VecDeque};

use node::netlink;
use node_tracer_ebpf::record::{self, Net};

use super::{
    Live, SECOND, UNASKED_PAUSE, UNASKED_SHARE, WALK_SHARE, nets::ListedNet, now, records,
};
use crate::ebpf::inventory::{Item, NetEntry};
use event::{ADDRESSES, Address, Event, MAX_ADDRESSES, What};

/// Items that a listing has of each namespace: at most, and at least.
const MOST_ITEMS: u32 = 1_024;
const FEWEST_ITEMS: u32 = 16;
/// Items of one namespace that are read; of those beyond, the addresses are
/// counted.
const MAX_ITEMS: u32 = MAX_ADDRESSES as u32;
/// Items that are read at once; they always fit into the buffer.
const PIECE: u32 = 4_096;
/// Between two rounds over these namespaces at least, ns.
const ROUND_PAUSE: u64 = SECOND / 10;
/// How often it is told that what is not known has changed, ns.
const TOLD_PAUSE: u64 = 10 * SECOND;

/// Where the reading stands.
#[derive(Debug, Default)]
pub(super) struct Readings {
    queue: VecDeque<Net>,
    current: Option<Reading>,
    /// What a record tells of may be among them.
    asked: bool,
    not_before: u64,
    /// The next that no record asks for.
    unasked: u64,
    /// Time that this round has taken, ns.
    spent: u64,
    left_out: LeftOut,
}

#[derive(Debug)]
struct Reading {
    net: Net,
    items: u32,
    addresses: u32,
    last: Option<Item>,
    device: Option<Device>,
    torn: bool,
}

/// What is told of addresses that are not known.
#[derive(Debug, Default)]
struct LeftOut {
    /// The most that there have been; so many are counted.
    most: u64,
    told: Option<String>,
    not_before: u64,
}

/// A device, as its addresses name it.
#[derive(Clone, Debug)]
pub(super) struct Device {
    index: u32,
    name: String,
    kind: Option<String>,
}

/// A namespace of a listing that has `limit` items at most.
pub(super) fn seen(entry: &NetEntry, limit: u32) -> ListedNet {
    ListedNet {
        net: entry.net,
        addresses: Some(addresses(&entry.items, &mut None)),
        cut: entry.items.len() >= limit as usize,
        left_out: 0,
    }
}

/// The addresses among items; `device` is the one that came last before them.
pub(super) fn addresses(items: &[Item], device: &mut Option<Device>) -> BTreeSet<Address> {
    let mut all = BTreeSet::new();
    for item in items {
        match item {
            Item::Device(found) => {
                let text = |bytes| String::from_utf8_lossy(record::text(bytes)).into_owned();
                *device = Some(Device {
                    index: found.ifindex,
                    name: text(&found.ifname),
                    kind: Some(text(&found.link_kind)).filter(|kind| !kind.is_empty()),
                });
            }
            Item::Address(found) => {
                // After a change in between, it can be another one's.
                let device = device.as_ref().filter(|it| it.index == found.ifindex);
                let address = records::ip(found.family, found.address);
                all.extend(device.zip(address).map(|(device, address)| Address {
                    address,
                    prefix: found.prefix,
                    ifname: device.name.clone(),
                    link_kind: device.kind.clone(),
                    dad: netlink::dad(found.flags.into()),
                }));
            }
        }
    }
    all
}

impl Live {
    /// How many items a listing has of each namespace: fewer, the more of them
    /// there are.
    pub(super) fn item_limit(&self) -> u32 {
        let all = self.nets.len();
        match u32::try_from(2 * MAX_ADDRESSES / all.max(1)) {
            Ok(share) if all > 0 => share.clamp(FEWEST_ITEMS, MOST_ITEMS),
            // How many there are is not known yet.
            _ => FEWEST_ITEMS,
        }
    }

    /// A record tells of a change that a reading may have to find.
    pub(super) fn ask_readings(&mut self) {
        self.readings.asked = true;
    }

    /// A listing has been made: what it lacks is to be read.
    pub(super) fn want_readings(&mut self) {
        let readings = &self.readings;
        let is_under_way = readings.current.is_some() || !readings.queue.is_empty();
        if is_under_way || self.nets.cut(now()).next().is_none() {
            return;
        }
        let due = match readings.asked {
            true => readings.not_before,
            false => readings.unasked,
        };
        self.due.reading = Some(due.max(now()));
    }

    /// Reads on, one piece; whether there is more to read.
    pub fn read_on(&mut self, out: &mut Vec<Event>) -> bool {
        self.due.reading = None;
        let start = now();
        if self.readings.current.is_none() && self.readings.queue.is_empty() {
            self.readings.queue = self.nets.cut(start).collect();
            self.readings.asked = false;
            self.readings.spent = 0;
        }
        let mut reading = match self.readings.current.take() {
            Some(reading) => reading,
            None => {
                let Some(net) = self.readings.queue.pop_front() else {
                    return false;
                };
                self.nets.reads(net);
                Reading {
                    net,
                    items: 0,
                    addresses: 0,
                    last: None,
                    device: None,
                    torn: false,
                }
            }
        };
        let mut changes = Vec::new();
        match self.read_piece(&mut reading, start, &mut changes) {
            Ok(true) => self.readings.current = Some(reading),
            Ok(false) => {}
            Err(error) => self.failed(&error),
        }
        self.tell(changes, out);
        let end = now();
        self.readings.spent += end - start;
        let more = self.readings.current.is_some() || !self.readings.queue.is_empty();
        if more {
            self.due.reading = Some(end);
        } else {
            let spent = self.readings.spent;
            self.readings.not_before = end + ROUND_PAUSE.max(spent * WALK_SHARE);
            let unasked = UNASKED_PAUSE.min(spent * UNASKED_SHARE);
            self.readings.unasked = end + unasked.max(ROUND_PAUSE).max(spent * WALK_SHARE);
            self.want_readings();
            self.tell_left_out(out);
        }
        more
    }

    /// Whether there is more.
    fn read_piece(
        &mut self,
        reading: &mut Reading,
        time: u64,
        changes: &mut Vec<super::nets::Change>,
    ) -> Result<bool, crate::ebpf::ProbeError> {
        let Some(probes) = &mut self.probes else {
            return Ok(false);
        };
        let net = reading.net;
        // The last one again: if another is found in its place, what comes
        // before it has changed, and some may have been missed.
        let skip = reading.items.saturating_sub(1);
        let Some((items, complete)) = probes.items(self.init_net, net, skip, PIECE)? else {
            return Ok(false);
        };
        let new = match (&reading.last, items.as_slice()) {
            (Some(last), [first, rest @ ..]) if last == first => rest,
            (Some(_), all) => {
                reading.torn = true;
                all
            }
            (None, all) => all,
        };
        let counted = |item: &&Item| matches!(item, Item::Address(_));
        reading.addresses += new.iter().filter(counted).count() as u32;
        reading.items = skip + items.len() as u32;
        let found = addresses(new, &mut reading.device);
        self.nets.read(net, time, &found, changes);
        if !complete && !new.is_empty() && reading.items < MAX_ITEMS {
            reading.last = items.last().copied();
            return Ok(true);
        }
        let all = match complete {
            true => reading.addresses,
            false => probes.count_addresses(self.init_net, net)?,
        };
        let passed_over = all.saturating_sub(reading.addresses).into();
        self.nets
            .has_read(net, time, passed_over, reading.torn, changes);
        Ok(false)
    }

    /// Tells of addresses that are there and not known.
    pub(super) fn tell_left_out(&mut self, out: &mut Vec<Event>) {
        let time = now();
        let count = self.nets.left_out();
        let most = &mut self.readings.left_out.most;
        let more = count.saturating_sub(*most);
        *most = count.max(*most);
        self.drop("addresses-left-out", more);
        let too_many = (count > 0).then(|| {
            String::from(
                "there are more addresses in network namespaces than are kept: who has most of \
                 them has some left out",
            )
        });
        let why: Vec<String> = too_many.into_iter().chain(self.unread.gap()).collect();
        let why = (!why.is_empty()).then(|| why.join("; "));
        let left_out = &mut self.readings.left_out;
        if why == left_out.told || time < left_out.not_before {
            return;
        }
        left_out.not_before = time + TOLD_PAUSE;
        left_out.told.clone_from(&why);
        let source = ADDRESSES.to_owned();
        let what = match why {
            Some(error) => What::SourceFailed { source, error },
            None => What::SourceRecovered { source },
        };
        out.push(Event {
            time: self.time(time),
            what,
        });
    }
}
