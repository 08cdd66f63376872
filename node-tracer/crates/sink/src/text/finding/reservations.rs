//! Reservations: those that are leaked, and how far a range is used up.

use super::{Block, LISTED};
use crate::text::style::short_id;
use event::{
    finding::{Detail, LeakedReservation},
    wording::escape::Printable,
};

impl Block<'_> {
    /// What the finding says of reservations.
    pub(super) fn reservations(&mut self) {
        let Detail {
            reservations,
            used,
            leaked,
            size,
            ..
        } = &self.finding.detail;
        if let (Some(used), Some(size)) = (used, size) {
            let leaked = match leaked {
                Some(leaked) => format!("{leaked} of them leaked"),
                None => String::from("how many of them are leaked is not known"),
            };
            self.line("reserved", &format!("{used} of {size}, {leaked}"));
        }
        let mut label = "reserved";
        for each in reservations.iter().take(LISTED) {
            let LeakedReservation {
                path,
                address,
                container_id,
                ifname,
                ..
            } = each;
            let whose = match container_id.as_str() {
                "" => String::from("for nobody: empty file"),
                id => format!("for {}", short_id(id)),
            };
            let ifname = ifname.as_ref().map(|name| format!(" {}", Printable(name)));
            let ifname = ifname.unwrap_or_default();
            let path = Printable(path.display());
            self.wrapped(label, "", &format!("{address}  {whose}{ifname}  {path}"));
            label = "";
        }
        self.and_more(reservations.len());
    }
}

#[cfg(test)]
mod tests {
    use crate::{Sink as _, TextSink, text::finding::calls::tests::finding};
    use event::{clock::Timestamp, finding::State, record::Record};

    fn text(rule: &str, detail: serde_json::Value) -> String {
        let finding = finding(rule, detail);
        let mut out = Vec::new();
        let mut sink = TextSink::new(&mut out, false).verbose(1);
        let now = Timestamp::parse("2025-11-21T06:00:00Z").unwrap();
        sink.write(&Record::finding("n", now, &finding, State::Open))
            .unwrap();
        drop(sink);
        String::from_utf8(out).unwrap()
    }

    /// The lines after the first with a label, without what stands before.
    fn values(text: &str, label: &str) -> Vec<String> {
        let lines = text
            .lines()
            .skip_while(|line| line.trim_start() == *line || !line.trim_start().starts_with(label));
        lines.map(|line| line.trim_start().to_owned()).collect()
    }

    #[test]
    fn eight_reservations_are_printed_and_the_others_counted() {
        let reservations: Vec<_> = (1..=10)
            .map(|last| {
                serde_json::json!({
                    "path": format!("/net/10.0.0.{last}"), "address": format!("10.0.0.{last}"),
                    "container_id": if last == 2 { "" } else { "291716a39be97105e916" },
                    "ifname": if last == 3 { Some("et\u{1b}h0") } else { None },
                })
            })
            .collect();
        let addresses: Vec<_> = (1..=10).map(|last| format!("10.0.0.{last}")).collect();
        let detail = serde_json::json!({"reservations": reservations, "addresses": addresses});
        let text = text("leaked-reservation", detail);
        let lines = values(&text, "reserved");
        assert_eq!(
            lines[..3],
            [
                "reserved  10.0.0.1  for 291716a39be97  /net/10.0.0.1",
                "10.0.0.2  for nobody: empty file  /net/10.0.0.2",
                "10.0.0.3  for 291716a39be97 et\\x1bh0  /net/10.0.0.3",
            ],
            "{text}"
        );
        assert_eq!(lines[8], "… and 2 more", "{text}");
        assert!(!text.contains("address "), "{text}");
    }

    #[test]
    fn what_is_not_known_to_be_leaked_is_not_called_zero() {
        let used = |leaked: Option<u64>| {
            let detail = serde_json::json!({"used": 253, "leaked": leaked, "size": 254});
            values(&text("range-exhausted", detail), "reserved").remove(0)
        };
        assert_eq!(used(Some(0)), "reserved  253 of 254, 0 of them leaked");
        assert_eq!(
            used(None),
            "reserved  253 of 254, how many of them are leaked is not known"
        );
    }

    #[test]
    fn eight_addresses_are_printed_and_the_others_counted() {
        let addresses: Vec<_> = (1..=9).map(|last| format!("9.0.0.{last}")).collect();
        let text = text(
            "duplicate-address",
            serde_json::json!({"addresses": addresses}),
        );
        let lines = values(&text, "address");
        assert!(lines[0].ends_with("9.0.0.8"), "{text}");
        assert_eq!(lines[1], "… and 1 more", "{text}");
    }
}
