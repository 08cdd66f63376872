//! Functions of PCI devices that are Ethernet controllers, by sysfs. Which network
//! device one has is not read there: sysfs shows only those of one namespace.

use std::path::{Path, PathBuf};

use crate::root::{Found, Root};
use event::PciFunction;

const DEVICES: &str = "/sys/bus/pci/devices";
/// An ENI and 256 virtual functions of some controllers are far below.
const MAX_FUNCTIONS: usize = 8_192;
const MAX_ENTRIES: usize = 256;
const MAX_UEVENT: usize = 4_096;
/// Class 02 (network), subclass 00 (Ethernet).
const ETHERNET: u32 = 0x02_00;
/// Drivers that give a function to a program or a virtual machine: it has no network
/// device then.
const PASS_ON: [&str; 6] = [
    "vfio-pci",
    "uio_pci_generic",
    "igb_uio",
    "pci-stub",
    "pciback",
    "xen-pciback",
];

/// All of them that have a driver of the kernel's; `None` if there is no PCI bus, or
/// it cannot be read in whole.
pub fn functions(root: &Root) -> Option<Vec<PciFunction>> {
    let listing = root
        .folder(Path::new(DEVICES))
        .ok()??
        .list(MAX_FUNCTIONS)
        .ok()?;
    if listing.cut {
        return None;
    }
    let names = listing.entries.iter().filter_map(|entry| entry.text());
    Some(names.filter_map(|name| function(root, name)).collect())
}

fn function(root: &Root, name: &str) -> Option<PciFunction> {
    let folder = PathBuf::from(DEVICES).join(name);
    let uevent = uevent(root, &folder)?;
    let class = u32::from_str_radix(value(&uevent, "PCI_CLASS")?, 16).ok()?;
    if class >> 8 != ETHERNET {
        return None;
    }
    let driver = value(&uevent, "DRIVER")?;
    if PASS_ON.contains(&driver) {
        return None;
    }
    let physical = self::uevent(root, &folder.join("physfn"));
    let physical = physical.and_then(|text| Some(value(&text, "PCI_SLOT_NAME")?.to_owned()));
    // What a virtio function carries is a device of another bus.
    let below = root.folder(&folder).ok()??.list(MAX_ENTRIES).ok()?;
    let below = below.entries.iter().filter_map(|entry| entry.text());
    let carries = below.filter(|name| name.starts_with("virtio"));
    Some(PciFunction {
        address: name.to_owned(),
        driver: driver.to_owned(),
        physical,
        carries: carries.map(str::to_owned).collect(),
    })
}

fn uevent(root: &Root, folder: &Path) -> Option<String> {
    match root.read(&folder.join("uevent"), MAX_UEVENT).ok()? {
        Found::File(content) => String::from_utf8(content.bytes).ok(),
        _ => None,
    }
}

/// `KEY=value`, a line each.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once('='));
    lines.find_map(|(name, value)| (name == key).then_some(value))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn ethernet_controllers_with_a_driver_are_found_and_whose_functions_they_are() {
        let root = tempfile::tempdir().unwrap();
        let bus = root.path().join("sys/bus/pci/devices");
        fs::create_dir_all(&bus).unwrap();
        let device = |address: &str, class: &str, driver: Option<&str>| {
            let folder = root.path().join("sys/devices/pci0000:00").join(address);
            fs::create_dir_all(&folder).unwrap();
            let driver = driver
                .map(|it| format!("DRIVER={it}\n"))
                .unwrap_or_default();
            let text = format!("{driver}PCI_CLASS={class}\nPCI_SLOT_NAME={address}\n");
            fs::write(folder.join("uevent"), text).unwrap();
            let to = format!("../../../devices/pci0000:00/{address}");
            symlink(to, bus.join(address)).unwrap();
            folder
        };
        let virtio = device("0000:00:03.0", "20000", Some("virtio-pci"));
        fs::create_dir(virtio.join("virtio1")).unwrap();
        device("0000:00:06.0", "20000", Some("mlx5_core"));
        let function = device("0000:00:06.2", "20000", Some("mlx5_core"));
        symlink("../0000:00:06.0", function.join("physfn")).unwrap();
        device("0000:00:07.0", "20000", Some("vfio-pci"));
        device("0000:00:08.0", "20000", None);
        device("0000:00:09.0", "18000", Some("nvme"));

        let found = functions(&Root::open(root.path()).unwrap()).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|it| {
                (
                    it.address.as_str(),
                    it.physical.as_deref(),
                    it.carries.len(),
                )
            })
            .collect();
        let expected = [
            ("0000:00:03.0", None, 1),
            ("0000:00:06.0", None, 0),
            ("0000:00:06.2", Some("0000:00:06.0"), 0),
        ];
        assert_eq!(found, expected);
    }
}
