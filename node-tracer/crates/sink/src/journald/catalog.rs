//! The message IDs of records that are no findings, for `journalctl
//! MESSAGE_ID=...` and for the explanations of `journalctl -x`; a rule's is in its
//! [`RuleSpec`](event::rule::RuleSpec).
//!
//! They are part of the contract: an ID stays with its record for ever. The
//! explanations are in `node-tracer/packaging/journald/node-tracer.catalog`, which
//! belongs to `/usr/lib/systemd/catalog/`; a test holds the two together.

pub(super) const COVERAGE: &str = "a364d0a7e5c7481987463aab88dfc53b";
pub(super) const SUMMARY: &str = "dee87d58951c4988b5fe967c45dda1ca";

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use event::rule::Rule;

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
    fn every_message_id_has_one_catalog_entry_and_there_are_no_others() {
        let catalog = entries();
        let of_catalog: BTreeSet<_> = catalog.keys().copied().collect();
        let rules = Rule::ALL.iter().map(|rule| rule.spec());
        let rules = rules.map(|spec| (spec.name, spec.message_id));
        let others = [("coverage", COVERAGE), ("summary", SUMMARY)];
        let table: Vec<(&str, &str)> = rules.chain(others).collect();
        let of_table: BTreeSet<_> = table.iter().map(|(_, id)| *id).collect();
        assert_eq!(
            (of_catalog, of_table.len()),
            (of_table.clone(), table.len())
        );
        for (name, id) in table {
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
