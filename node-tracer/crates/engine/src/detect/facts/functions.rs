//! Functions of PCI devices, and their network devices.

use std::collections::HashSet;

use crate::{
    detect::{View, unread},
    model::netns::NETNS,
};
use event::{Device, PciFunction, clock::Timestamp};

/// The function that a network device is of.
pub fn of_device<'a>(view: &View<'a>, device: &Device) -> Option<&'a PciFunction> {
    let (_, name) = device.hardware.as_deref()?.split_once(' ')?;
    all(view).find(|it| it.address == name || it.carries.iter().any(|other| other == name))
}

/// All that were read.
pub fn all<'a>(view: &View<'a>) -> impl Iterator<Item = &'a PciFunction> {
    let functions = view.model.functions.as_ref();
    functions.into_iter().flat_map(|(_, functions)| functions)
}

/// The PCI address of a network device, if it has one.
pub fn address_of(view: &View<'_>, device: &Device) -> Option<String> {
    let named = device.hardware.as_deref()?.strip_prefix("pci ");
    let named = named.or_else(|| Some(of_device(view, device)?.address.as_str()));
    named.map(str::to_owned)
}

/// Those that have a driver and no network device in any namespace: one of them is
/// where nothing leads to. None if not every namespace was read.
pub fn without_device<'a>(view: &View<'a>) -> Vec<(Timestamp, &'a PciFunction)> {
    let model = view.model;
    let Some((at, functions)) = &model.functions else {
        return Vec::new();
    };
    // What the kernel does not name may be any of them.
    let devices = || {
        let entries = model.netns.live();
        entries.flat_map(|entry| entry.wiring.iter().flat_map(|wiring| &wiring.devices))
    };
    let is_nameless = |device: &Device| device.hardware.as_deref() == Some("unknown");
    let is_whole = view.settings.surveyed
        && model.failure(NETNS).is_none()
        && unread(view) == 0
        && model.netns.live().any(|entry| entry.host)
        && !devices().any(is_nameless);
    if !is_whole {
        return Vec::new();
    }
    let named: HashSet<&str> = devices()
        .filter_map(|device| Some(device.hardware.as_deref()?.split_once(' ')?.1))
        .collect();
    let has_none = |it: &&PciFunction| {
        !named.contains(it.address.as_str())
            && !it.carries.iter().any(|name| named.contains(name.as_str()))
    };
    functions
        .iter()
        .filter(has_none)
        .map(|it| (*at, it))
        .collect()
}
