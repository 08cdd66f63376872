//! The addresses of one namespace, in little memory: there can be 100,000.

use std::{collections::BTreeMap, net::IpAddr};

use event::{Address, Dad};

/// By the device's name. (A device can have been replaced by one of another
/// kind, of the same name.)
#[derive(Debug, Default)]
pub(super) struct Held {
    devices: BTreeMap<String, Vec<OfDevice>>,
    count: usize,
}

/// The addresses of one device.
#[derive(Debug)]
struct OfDevice {
    kind: Option<String>,
    addresses: BTreeMap<(IpAddr, u8), Mark>,
}

/// What is kept of an address.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// The reading that last came across it.
    reading: u32,
    /// See [`Address::is_refused`].
    refused: bool,
}

/// What marking an address has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marked {
    AsBefore,
    /// Whether another host has it is told differently now.
    Changed,
    Absent,
}

impl OfDevice {
    fn address(&self, ifname: &str, (address, prefix): (IpAddr, u8), mark: Mark) -> Address {
        Address {
            address,
            prefix,
            ifname: ifname.to_owned(),
            link_kind: self.kind.clone(),
            dad: mark.refused.then_some(Dad::Failed),
        }
    }
}

impl Held {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    fn device(&mut self, address: &Address) -> Option<&mut OfDevice> {
        let devices = self.devices.get_mut(address.ifname.as_str())?;
        let mut devices = devices.iter_mut();
        devices.find(|device| device.kind == address.link_kind)
    }

    /// A reading has come across it.
    pub(super) fn mark(&mut self, address: &Address, reading: u32) -> Marked {
        let key = (address.address, address.prefix);
        let device = self.device(address);
        let Some(mark) = device.and_then(|device| device.addresses.get_mut(&key)) else {
            return Marked::Absent;
        };
        let refused = address.is_refused();
        let before = std::mem::replace(mark, Mark { reading, refused });
        match before.refused == refused {
            true => Marked::AsBefore,
            false => Marked::Changed,
        }
    }

    /// Whether it is there.
    pub(super) fn has(&self, address: &Address) -> bool {
        let key = (address.address, address.prefix);
        let devices = self.devices.get(address.ifname.as_str());
        let mut devices = devices.into_iter().flatten();
        devices
            .any(|device| device.kind == address.link_kind && device.addresses.contains_key(&key))
    }

    /// Puts in one that is not there.
    pub(super) fn insert(&mut self, address: &Address, reading: u32) {
        if self.device(address).is_none() {
            let devices = self.devices.entry(address.ifname.clone());
            let devices = devices.or_insert_with(|| Vec::with_capacity(1));
            devices.push(OfDevice {
                kind: address.link_kind.clone(),
                addresses: BTreeMap::new(),
            });
        }
        let key = (address.address, address.prefix);
        let refused = address.is_refused();
        let mark = Mark { reading, refused };
        if let Some(device) = self.device(address)
            && device.addresses.insert(key, mark).is_none()
        {
            self.count += 1;
        }
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, address: &Address) -> bool {
        let key = (address.address, address.prefix);
        let device = self.device(address);
        let was_there = device.is_some_and(|device| device.addresses.remove(&key).is_some());
        if was_there {
            self.count -= 1;
            self.drop_empty();
        }
        was_there
    }

    /// Takes out those that no reading since this one has come across, so many at
    /// most.
    pub(super) fn take_older(&mut self, reading: u32, most: usize) -> Vec<Address> {
        let mut taken = Vec::new();
        for (ifname, devices) in &mut self.devices {
            for device in devices {
                let old = device.addresses.iter();
                let old = old.filter(|(_, mark)| mark.reading < reading);
                let old = old.take(most - taken.len());
                let old: Vec<_> = old.map(|(key, mark)| (*key, *mark)).collect();
                for (key, mark) in old {
                    device.addresses.remove(&key);
                    taken.push(device.address(ifname, key, mark));
                }
            }
        }
        if !taken.is_empty() {
            self.count -= taken.len();
            self.drop_empty();
        }
        taken
    }

    /// The same address on a device of the same name, whatever else differs.
    pub(super) fn alike(&self, address: &Address) -> Option<Address> {
        let devices = self.devices.get(address.ifname.as_str())?;
        devices.iter().find_map(|device| {
            let least = (address.address, 0);
            let most = (address.address, u8::MAX);
            let (key, mark) = device.addresses.range(least..=most).next()?;
            Some(device.address(&address.ifname, *key, *mark))
        })
    }

    fn drop_empty(&mut self) {
        self.devices.retain(|_, devices| {
            devices.retain(|device| !device.addresses.is_empty());
            !devices.is_empty()
        });
    }
}
