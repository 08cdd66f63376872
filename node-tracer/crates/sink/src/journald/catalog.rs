//! The message IDs: one a rule, for `journalctl MESSAGE_ID=...` and for the
//! explanations of `journalctl -x`.
//!
//! They are part of the contract: an ID stays with its rule for ever, also for
//! rules that this version does not have yet. The explanations are in
//! `node-tracer/packaging/journald/node-tracer.catalog`, which belongs to
//! `/usr/lib/systemd/catalog/`; a test holds the two together.

/// Rules and other records, with their message IDs.
const MESSAGE_IDS: [(&str, &str); 19] = [
    ("add-failed", "ec15780b2efe4db4b3e2652ea5f77269"),
    ("blocked-task", "0b01b4f6c76a475d92dcc2e7a0904ec6"),
    ("coverage", "a364d0a7e5c7481987463aab88dfc53b"),
    ("del-retry", "d4748e38cd034e32ab27b7117bc1cc33"),
    ("duplicate-address", "51278603b74d420199c1bf224b9a8216"),
    ("events-lost", "7ba51a94cd89419d93914fe01924b8d4"),
    ("ghost-sandbox", "afde87c57ad749088f4f0d8441d330e4"),
    ("leaked-reservation", "2018727be63842aab9635ddd91a564cf"),
    ("missing-del", "9a0bf87017ce4c9d9f86d6464504827c"),
    (
        "missing-gateway-neighbour",
        "700e8392a0dc4db8b45a65a208cebb37",
    ),
    ("netns-teardown-stall", "42369ac41e024068b868bf02aa399b85"),
    ("orphan-veth", "bd143a1570cb4cda9a54462b05536333"),
    ("pinned-netns", "7fbc6e178e064ad896f0e40e86fb77a9"),
    ("range-exhausted", "5540bd29c3a74b008125222804528ace"),
    ("sandbox-churn", "ef11c16bb5c146ebac1db0424050f4ae"),
    ("sandbox-create-failed", "b0c4e711f3d04c9ea317591521827844"),
    ("stale-del", "7bd7334898b54d93890c290b171f78eb"),
    ("summary", "dee87d58951c4988b5fe967c45dda1ca"),
    ("trapped-device", "9d00a45d4cc146e684d3ebbb91661baa"),
];

/// The message ID of a rule, or of `coverage` and `summary`.
pub(super) fn message_id(of: &str) -> Option<&'static str> {
    MESSAGE_IDS
        .iter()
        .find(|(name, _)| *name == of)
        .map(|(_, id)| *id)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use event::finding::Rule;

    const CATALOG: &str = include_str!("../../../../packaging/journald/node-tracer.catalog");

    /// An entry of the catalog, see systemd.catalog(7).
    struct Entry {
        rule: &'static str,
        head: BTreeMap<&'static str, &'static str>,
        text: &'static str,
    }

    /// The catalog's entries by message ID.
    fn entries() -> BTreeMap<&'static str, Entry> {
        let mut entries = BTreeMap::new();
        let mut parts = CATALOG.split("\n-- ");
        let mut before = parts.next().unwrap();
        for part in parts {
            let (id, rest) = part.split_once('\n').unwrap();
            let (head, text) = rest.split_once("\n\n").unwrap();
            let entry = Entry {
                rule: before.lines().last().unwrap().strip_prefix("# ").unwrap(),
                head: head
                    .lines()
                    .map(|line| line.split_once(": ").unwrap())
                    .collect(),
                text: text.split("\n# ").next().unwrap().trim(),
            };
            assert!(entries.insert(id, entry).is_none(), "{id} twice");
            before = part;
        }
        entries
    }

    #[test]
    fn every_rule_has_a_message_id() {
        for rule in Rule::ALL {
            assert!(message_id(rule.as_str()).is_some(), "{rule:?}");
        }
        assert!(message_id("coverage").is_some());
        assert!(message_id("summary").is_some());
    }

    #[test]
    fn message_ids_are_all_different_and_in_journalds_form() {
        let ids: BTreeSet<_> = MESSAGE_IDS.iter().map(|(_, id)| id).collect();
        assert_eq!(ids.len(), MESSAGE_IDS.len());
        let lower_hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
        assert!(
            ids.iter()
                .all(|id| id.len() == 32 && id.chars().all(lower_hex))
        );
    }

    #[test]
    fn every_message_id_has_one_catalog_entry_and_there_are_no_others() {
        let catalog = entries();
        let of_catalog: BTreeSet<_> = catalog.keys().copied().collect();
        let of_table: BTreeSet<_> = MESSAGE_IDS.iter().map(|(_, id)| *id).collect();
        assert_eq!(of_catalog, of_table);
        for (name, id) in MESSAGE_IDS {
            let Entry { rule, head, text } = &catalog[id];
            assert_eq!(*rule, name);
            assert_eq!(head["Defined-By"], "node-tracer");
            assert!(
                head.contains_key("Subject") && head.contains_key("Support"),
                "{name}"
            );
            assert!(text.len() > 100, "{name} is not explained");
        }
    }

    #[test]
    fn the_catalog_uses_only_fields_that_entries_have() {
        const FIELDS: [&str; 5] = [
            "NODE_TRACER_IP",
            "NODE_TRACER_NETNS",
            "NODE_TRACER_PID",
            "NODE_TRACER_POD",
            "NODE_TRACER_SANDBOX_ID",
        ];
        for field in CATALOG.split('@').skip(1).step_by(2) {
            assert!(FIELDS.contains(&field), "@{field}@");
        }
    }
}
