//! The rules: what each is called, and what others need to know of it. How it
//! decides is in the engine.

use serde::{Deserialize, Serialize};

/// What is known of a rule without asking it.
#[derive(Debug)]
pub struct RuleSpec {
    /// The name in records.
    pub name: &'static str,
    /// The page for people (`node-tracer/rules/`).
    pub page: &'static str,
    /// The journal's message ID. It stays with the rule for ever.
    pub message_id: &'static str,
    /// It compares things that a look does not read at the same moment, and
    /// counts only if a second look shows it, too. The others tell of calls, or
    /// of what one source says alone.
    pub needs_confirmation: bool,
    /// It knows only when the last look found what it tells of: it has been so
    /// since the first look that did.
    pub is_dated_by_looks: bool,
    /// What a plan calls it, if a person has to do something about it that no
    /// release does.
    pub by_hand: Option<&'static str>,
}

/// One line a rule, worst first.
macro_rules! rules {
    ($(
        $(#[$doc:meta])*
        $rule:ident = $name:literal, $message_id:literal $(, $field:ident: $value:expr)*;
    )*) => {
        /// The contract's rule names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Rule {
            $($(#[$doc])* #[serde(rename = $name)] $rule,)*
        }

        impl Rule {
            /// Every rule, worst first.
            pub const ALL: &[Self] = &[$(Self::$rule,)*];

            pub fn spec(self) -> &'static RuleSpec {
                match self {
                    $(Self::$rule => {
                        #[allow(clippy::needless_update, reason = "of some rules all is said")]
                        const SPEC: RuleSpec = RuleSpec {
                            name: $name,
                            page: include_str!(concat!("../../../rules/", $name, ".md")),
                            message_id: $message_id,
                            $($field: $value,)*
                            ..OF_CALLS
                        };
                        &SPEC
                    })*
                }
            }
        }
    };
}

const OF_CALLS: RuleSpec = RuleSpec {
    name: "",
    page: "",
    message_id: "",
    needs_confirmation: false,
    is_dated_by_looks: false,
    by_hand: None,
};

rules! {
    /// Two network namespaces hold the same address.
    DuplicateAddress = "duplicate-address", "51278603b74d420199c1bf224b9a8216",
        needs_confirmation: true, by_hand: Some("duplicate address");
    /// A sandbox's network namespace outlives its pod and holds its address.
    GhostSandbox = "ghost-sandbox", "afde87c57ad749088f4f0d8441d330e4",
        needs_confirmation: true, by_hand: Some("ghost");
    /// CNI DEL of an old sandbox while a newer one of the same pod name lives.
    StaleDel = "stale-del", "7bd7334898b54d93890c290b171f78eb";
    /// Few or no addresses are left to give out.
    RangeExhausted = "range-exhausted", "5540bd29c3a74b008125222804528ace";
    /// A running pod's address is free in its IPAM's store, or is somebody else's.
    UnreservedAddress = "unreserved-address", "78ede4316fc241d1b5b472a993900029",
        needs_confirmation: true, is_dated_by_looks: true, by_hand: Some("unreserved address");
    /// The kernel does not finish taking a network namespace down.
    NetnsTeardownStall = "netns-teardown-stall", "42369ac41e024068b868bf02aa399b85",
        by_hand: Some("teardown stall");
    /// The node's own device is in a namespace that nobody uses any more.
    TrappedDevice = "trapped-device", "9d00a45d4cc146e684d3ebbb91661baa",
        needs_confirmation: true, by_hand: Some("trapped device");
    /// A pod's gateway has no neighbour entry, and so no traffic goes out.
    MissingGatewayNeighbour = "missing-gateway-neighbour", "700e8392a0dc4db8b45a65a208cebb37",
        needs_confirmation: true, is_dated_by_looks: true,
        by_hand: Some("missing gateway neighbour");
    /// CNI ADD fails: the pod does not start.
    AddFailed = "add-failed", "ec15780b2efe4db4b3e2652ea5f77269";
    /// A pod does not start: its sandbox, or what it needs besides, cannot be
    /// made.
    SandboxCreateFailed = "sandbox-create-failed", "b0c4e711f3d04c9ea317591521827844";
    /// A pod's sandbox is made and killed over and over.
    SandboxChurn = "sandbox-churn", "ef11c16bb5c146ebac1db0424050f4ae";
    /// A sandbox is gone and its CNI DEL never came.
    MissingDel = "missing-del", "9a0bf87017ce4c9d9f86d6464504827c";
    /// CNI DEL of the same attachment fails again and again.
    DelRetry = "del-retry", "d4748e38cd034e32ab27b7117bc1cc33";
    /// Addresses are reserved for containers that do not exist.
    LeakedReservation = "leaked-reservation", "2018727be63842aab9635ddd91a564cf",
        needs_confirmation: true,
        by_hand: Some("another plugin's store, or one that is not used");
    /// A sandbox's network namespace is kept although nothing runs in it.
    PinnedNetns = "pinned-netns", "7fbc6e178e064ad896f0e40e86fb77a9",
        needs_confirmation: true, by_hand: Some("leaked mount or descriptor");
    /// A task is stuck in uninterruptible sleep.
    BlockedTask = "blocked-task", "0b01b4f6c76a475d92dcc2e7a0904ec6",
        by_hand: Some("stuck task");
    /// The host-side end of a veth pair whose other end is gone.
    OrphanVeth = "orphan-veth", "bd143a1570cb4cda9a54462b05536333",
        needs_confirmation: true, is_dated_by_looks: true, by_hand: Some("orphan veth");
    /// A rule, route or neighbour of a pod that is gone leads packets astray.
    StalePath = "stale-path", "c6a1f0d2b7e84f3a9d5c21e4870b6f93",
        needs_confirmation: true, is_dated_by_looks: true, by_hand: Some("stale path");
    /// Records were lost; there may be more than is reported.
    EventsLost = "events-lost", "7ba51a94cd89419d93914fe01924b8d4";
}

impl Rule {
    /// Where the rule's findings stand in an incident, first what the others
    /// follow from.
    pub fn rank_in_incident(self) -> usize {
        const CAUSES_FIRST: [Rule; 6] = [
            Rule::GhostSandbox,
            Rule::StaleDel,
            Rule::PinnedNetns,
            Rule::MissingDel,
            Rule::DuplicateAddress,
            Rule::LeakedReservation,
        ];
        let rank = CAUSES_FIRST.iter().position(|cause| *cause == self);
        rank.unwrap_or(CAUSES_FIRST.len() + self as usize)
    }

    /// The name in records.
    pub fn as_str(self) -> &'static str {
        self.spec().name
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_rule_has_a_name_and_a_message_id_of_its_own() {
        for of in [
            |rule: &Rule| rule.spec().name,
            |rule: &Rule| rule.spec().message_id,
        ] {
            let all: BTreeSet<&str> = Rule::ALL.iter().map(of).collect();
            assert_eq!(all.len(), Rule::ALL.len());
        }
        for rule in Rule::ALL {
            let id = rule.spec().message_id;
            assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()));
        }
    }

    #[test]
    fn every_rules_page_has_all_its_parts() {
        for rule in Rule::ALL {
            let RuleSpec { name, page, .. } = rule.spec();
            assert!(page.starts_with(&format!("# {name}\n\n## What it means\n")));
            for part in ["How it is decided", "What to do", "What it cannot know"] {
                assert!(page.contains(&format!("\n## {part}")), "{name}: {part}");
            }
            let widest = page.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(84), "{name} is {widest:?} wide");
            assert!(page.is_ascii() && page.ends_with('\n'), "{name}");
        }
    }

    #[test]
    fn rules_that_pages_name_exist() {
        for rule in Rule::ALL {
            let words: Vec<&str> = rule.spec().page.split_whitespace().collect();
            for pair in words.windows(2).filter(|pair| pair[0].ends_with("finding")) {
                let named = pair[1].trim_end_matches(|c: char| !c.is_ascii_lowercase());
                let is_known = Rule::ALL.iter().any(|rule| rule.as_str() == named);
                assert!(!named.contains('-') || is_known, "{rule:?} names {named}");
            }
        }
    }
}
