//! Budgets (design.md, section 9), and what was measured of them: the last
//! table of `cargo xtask bench`, and the one in `performance.md`.

use crate::generated;

/// Whether a budget is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Met,
    Missed,
    /// There is no limit; the number is there to be known.
    NoLimit,
    /// It could not be measured here.
    NotMeasured,
}

impl Verdict {
    pub(crate) fn of(met: bool) -> Self {
        match met {
            true => Self::Met,
            false => Self::Missed,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Met => "yes",
            Self::Missed => "NO",
            Self::NoLimit => "",
            Self::NotMeasured => "not measured",
        }
    }
}

/// One line of that table.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    pub(crate) what: String,
    /// What it may be; empty if there is no limit.
    pub(crate) limit: String,
    /// Median and spread, or why there is none.
    pub(crate) measured: String,
    /// What was measured of others in the same run.
    pub(crate) peers: Vec<String>,
    /// Whether it is kept.
    pub(crate) verdict: Verdict,
}

impl Budget {
    /// One of which nothing is known, and why.
    pub(crate) fn not_measured(what: &str, why: &str) -> Self {
        Self {
            what: what.to_owned(),
            limit: String::new(),
            measured: why.to_owned(),
            peers: Vec::new(),
            verdict: Verdict::NotMeasured,
        }
    }

    fn cells(&self) -> [String; 5] {
        [
            self.what.clone(),
            self.limit.clone(),
            self.measured.clone(),
            self.peers.join("; "),
            self.verdict.word().to_owned(),
        ]
    }
}

const HEADER: [&str; 5] = ["what", "limit", "node-tracer", "beside it", "met"];

/// All of them, in Markdown.
pub(crate) fn table(budgets: &[Budget]) -> String {
    let rows: Vec<Vec<String>> = std::iter::once(HEADER.map(str::to_owned))
        .chain(budgets.iter().map(Budget::cells))
        .map(Vec::from)
        .collect();
    generated::table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_column_for_each_question() {
        let budget = Budget {
            what: String::from("a|b"),
            limit: String::from("≤ 1 s"),
            measured: String::from("0.9 s"),
            peers: vec![String::from("x 2 s"), String::from("y 3 s")],
            verdict: Verdict::of(0.9 <= 1.0),
        };
        assert_eq!(
            table(&[budget, Budget::not_measured("c", "why")]),
            "| what | limit | node-tracer | beside it | met |\n\
             |---|---|---|---|---|\n\
             | a\\|b | ≤ 1 s | 0.9 s | x 2 s; y 3 s | yes |\n\
             | c |  | why |  | not measured |\n"
        );
    }
}
