//! How one address is kept from being given away while a ghost has it, by what
//! its IPAM offers. The AWS VPC CNI, Terway and Cilium offer nothing.
//!
//! host-local makes a reservation's file only if there is none (`O_EXCL`), and
//! so does `cp -n`: whoever comes first has it. An empty file is reserved for
//! nobody. Calico assigns no address of an `IPReservation` (projectcalico.org/v3);
//! Whereabouts none of a range's `exclude`.

use std::net::IpAddr;

use event::{StoreKind, wording::advice::commented};

use crate::detect::{
    Command, View,
    facts::ipam::{Ipam, Outlook, gives},
    ghost_sandbox::address_state::{AddressState, Case},
};

/// What sets an address aside, and what undoes that.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SetAside {
    pub(super) step: String,
    pub(super) undo: Option<String>,
}

/// For an address that can be given away, now or by and by.
pub(super) fn set_aside(view: &View<'_>, case: &Case<'_>) -> Option<SetAside> {
    let Ipam::Store(kind) = case.allocator.as_ref()?.ipam else {
        return None;
    };
    let is_coming = matches!(case.outlook, Outlook::Conflict { .. });
    match (kind, &case.fate) {
        (_, AddressState::TakenBy(..)) => None,
        (StoreKind::HostLocal, AddressState::Free(known, _)) => {
            let answer = known.answer.as_ref().filter(|it| it.holder.is_none())?;
            // The folder that has all networks' stores is asked, too.
            let mut stores = answer.stores.iter();
            let store = match answer.stores.as_slice() {
                [only] => only,
                _ => stores.find(|store| gives(view, store, case.address))?,
            };
            let file = store.join(case.address.to_string());
            let make = Command::new("cp -n /dev/null").word(&file);
            let undo = Command::new("find").word(&file).own("-empty -delete");
            Some(SetAside {
                step: commented(make, "reserves the IP for nobody, unless it is taken"),
                undo: Some(commented(undo, "gives the IP back when the ghost is gone")),
            })
        }
        (StoreKind::Calico, fate) if is_coming || matches!(fate, AddressState::Free(..)) => {
            let name = reservation_name(case.address);
            // Both texts have nothing that JSON or a shell would act on.
            let manifest = format!(
                r#"{{"apiVersion":"projectcalico.org/v3","kind":"IPReservation","metadata":{{"name":"{name}"}},"spec":{{"reservedCIDRs":["{}"]}}}}"#,
                network(case.address),
            );
            let make = format!("echo '{manifest}' | calicoctl create -f -");
            let undo = Command::new("calicoctl delete ipreservation").word(&name);
            let address = case.address;
            Some(SetAside {
                step: commented(make, &format!("Calico gives {address} to no other pod")),
                undo: Some(commented(undo, "when the ghost is gone")),
            })
        }
        (StoreKind::Whereabouts, fate) if is_coming || matches!(fate, AddressState::Free(..)) => {
            let network = network(case.address);
            Some(SetAside {
                step: format!(
                    "add {network} to exclude in the NetworkAttachmentDefinition of the pod's \
                     network, until the ghost is gone: Whereabouts gives it to no other pod",
                ),
                undo: None,
            })
        }
        _ => None,
    }
}

/// The address alone, as a network.
fn network(address: IpAddr) -> String {
    let prefix = if address.is_ipv4() { 32 } else { 128 };
    format!("{address}/{prefix}")
}

/// A name that Kubernetes takes: `ghost-10-244-7-2`.
fn reservation_name(address: IpAddr) -> String {
    let words: Vec<String> = match address {
        IpAddr::V4(v4) => v4.octets().iter().map(u8::to_string).collect(),
        IpAddr::V6(v6) => v6.segments().iter().map(|it| format!("{it:x}")).collect(),
    };
    format!("ghost-{}", words.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_an_address_is_one_that_kubernetes_takes() {
        for (address, name) in [
            ("10.244.7.2", "ghost-10-244-7-2"),
            ("fd00::5", "ghost-fd00-0-0-0-0-0-0-5"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(reservation_name(address), name);
        }
        assert_eq!(network("fd00::5".parse().unwrap()), "fd00::5/128");
    }
}
