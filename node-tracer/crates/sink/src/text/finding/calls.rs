//! CNI calls: why they fail and how often, and what they did.

use super::Block;
use crate::text::style::{count, short_id};
use event::{
    finding::{Detail, Effect},
    wording::escape::Printable,
};

impl Block<'_> {
    /// What the finding says of calls.
    pub(super) fn calls(&mut self) {
        let Detail {
            effect,
            old_container_id,
            new_container_id,
            cause,
            earlier_cause,
            error,
            ..
        } = &self.finding.detail;
        if let Some(effect) = effect {
            let effect = match effect {
                Effect::Harmful => "harmful: the newer sandbox has lost something",
                Effect::Harmless => "harmless: the newer sandbox has all it had",
                Effect::Unknown => "not known",
            };
            self.line("effect", effect);
        }
        if let Some(id) = old_container_id {
            self.line("old", &short_id(id));
        }
        if let Some(id) = new_container_id {
            self.line("newer", &short_id(id));
        }
        if let Some(cause) = cause {
            let mut text = Printable(cause).to_string();
            if let Some(earlier) = earlier_cause {
                text += &format!(", which follows from {}", Printable(earlier));
            }
            self.line("cause", &text);
        }
        if let Some(error) = error {
            let code = error.code.map(|code| format!("code {code}  "));
            let details = error.details.as_deref().unwrap_or_default();
            let text = match (error.msg.as_str(), details) {
                (msg, "") => msg.to_owned(),
                ("", details) => details.to_owned(),
                (msg, details) => format!("{msg}: {details}"),
            };
            let text = Printable(text).to_string();
            let code = code.unwrap_or_default();
            self.wrapped("error", "", &format!("{code}{}", cut(&text)));
        }
        self.attempts();
    }

    /// How often it was tried.
    pub(super) fn attempts(&mut self) {
        if let Some(attempts) = self.finding.detail.attempts {
            self.line("tried", &count(attempts, "time"));
        }
    }
}

/// As much of a plugin's words as is printed; the JSON record has them whole.
fn cut(text: &str) -> String {
    const PRINTED: usize = 600;
    match text.char_indices().nth(PRINTED) {
        Some((end, _)) => format!("{} …", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use crate::{Sink as _, TextSink};
    use event::{
        clock::Timestamp,
        finding::{Finding, State},
        record::Record,
    };

    /// A finding with only what a rule says besides.
    pub(in crate::text::finding) fn finding(rule: &str, detail: serde_json::Value) -> Finding {
        let mut json = serde_json::json!({
            "rule": rule, "severity": "warning", "id": "1", "since": "2025-11-21T05:53:10Z",
            "title": "t", "addresses": [], "holders": [], "evidence": [], "unknown": [],
            "advice": []
        });
        let map = json.as_object_mut().unwrap();
        map.extend(detail.as_object().unwrap().clone());
        serde_json::from_value(json).unwrap()
    }

    fn printed(findings: &[(Finding, State)]) -> Vec<String> {
        let mut out = Vec::new();
        let mut sink = TextSink::new(&mut out, false).verbose(1);
        let now = Timestamp::parse("2025-11-21T06:00:00Z").unwrap();
        for (finding, state) in findings {
            sink.write(&Record::finding("n", now, finding, *state))
                .unwrap();
        }
        drop(sink);
        let text = String::from_utf8(out).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn a_failed_call_is_printed_with_its_cause_and_its_words() {
        let detail = serde_json::json!({
            "cause": "range-exhausted", "attempts": 12,
            "error": {"code": 999, "msg": "no\u{1b}[31m", "details": "x".repeat(5_000)},
        });
        let lines = printed(&[(finding("add-failed", detail), State::Open)]);
        assert!(lines.contains(&String::from("cause     range-exhausted")));
        assert!(lines.contains(&String::from("tried     12 times")));
        let error = lines.iter().position(|line| line.starts_with("error"));
        assert!(lines[error.unwrap()].starts_with("error     code 999  no\\x1b[31m:"));
        assert!(lines.iter().map(String::len).sum::<usize>() < 1_500);
    }

    #[test]
    fn a_stale_call_is_printed_with_both_sandboxes() {
        let detail = serde_json::json!({
            "effect": "harmless", "old_container_id": "41857f70ed13326dbc",
            "new_container_id": "247d3c7833453715487a",
        });
        let lines = printed(&[(finding("stale-del", detail), State::Open)]);
        let wanted = [
            "effect    harmless: the newer sandbox has all it had",
            "old       41857f70ed133",
            "newer     247d3c7833453",
        ];
        let from = lines.iter().position(|line| line == wanted[0]).unwrap();
        assert_eq!(lines[from..from + 3], wanted);
    }

    #[test]
    fn one_more_try_is_no_news_but_told_with_what_is() {
        let tried = |attempts: u64, title: &str| {
            let detail = serde_json::json!({"attempts": attempts, "title": title});
            finding("del-retry", detail)
        };
        let first = (tried(3, "t"), State::Open);
        let more = (tried(4, "t"), State::Updated);
        let other = (tried(5, "u"), State::Updated);
        let lines = printed(&[first, more, other]);
        let tries = lines.iter().filter(|line| line.starts_with("tried"));
        let tries: Vec<_> = tries.map(String::as_str).collect();
        assert_eq!(tries, ["tried     3 times", "tried     5 times"]);
    }
}
