//! A repair as text: what would be done, what is left alone and why, what only
//! a person can do; then what was done.

use std::{collections::BTreeMap, path::Path, time::Duration};

use super::style::{Painter, Style, grouped, moment, short_id};
use super::wrap;
use event::wording::duration::length;
use event::{
    clock::Timestamp,
    finding::Holder,
    order::Order as _,
    repair::{
        outcome::{Action, Outcome, Result, Totals},
        plan::{ByHand, Plan, Reason, Release, StoreSeen, Withheld},
    },
    wording::{
        escape::Printable,
        plural::{after, counted},
    },
};

/// Width of a label and of the space after it.
const LABEL: usize = 11;
/// Releases of a store that are listed; the JSON record has all.
const LISTED: usize = 40;
/// Addresses that are named of those that are left alone for one reason.
const NAMED: usize = 4;
/// Findings of one kind that are told in whole.
const TOLD: usize = 3;
/// What holds one, at most.
const HOLDERS: usize = 3;

struct Page {
    text: String,
    paint: Painter,
    now: Timestamp,
}

/// A plan's lines, each with its newline.
pub(super) fn plan(paint: Painter, now: Timestamp, plan: &Plan, file: Option<&Path>) -> String {
    let mut page = Page {
        text: String::new(),
        paint,
        now,
    };
    page.answer(plan);
    for store in &plan.stores {
        page.store(plan, store);
    }
    page.by_hand(&plan.by_hand);
    if !plan.unknown.is_empty() {
        page.text.push('\n');
        page.lines(
            "unknown",
            Style::Warning,
            plan.unknown.iter().map(String::as_str),
        );
    }
    page.next(plan, file);
    page.text
}

impl Page {
    /// One value in as many lines as it takes, behind a label.
    fn value(&mut self, label: &str, style: Style, text: &str) {
        let label = self
            .paint
            .paint(style, format!("{label:<width$}", width = LABEL - 2));
        let text = self
            .paint
            .hanging(&Printable(text).to_string(), LABEL, LABEL);
        self.text += &format!("  {label}{text}\n");
    }

    /// Several, of which the first has the label.
    fn lines<'a>(&mut self, label: &str, style: Style, texts: impl Iterator<Item = &'a str>) {
        for (place, text) in texts.enumerate() {
            self.value(if place == 0 { label } else { "" }, style, text);
        }
    }

    fn answer(&mut self, plan: &Plan) {
        let count = plan.releases.len();
        let left = plan.withheld.len();
        let (style, first) = match (count, plan.refused.is_empty()) {
            (0, false) => (
                Style::Critical,
                String::from("REFUSED: nothing can be released"),
            ),
            (0, true) if left == 0 => (Style::Good, String::from("no reservation is leaked")),
            (0, true) => (Style::Good, String::from("nothing to release")),
            (1, _) => (Style::Title, String::from("1 reservation can be released")),
            (n, _) => {
                let n = grouped(n as u64);
                (Style::Title, format!("{n} reservations can be released"))
            }
        };
        let rest = match left {
            0 => String::new(),
            1 => String::from("; 1 is left alone"),
            n => format!("; {} are left alone", grouped(n as u64)),
        };
        let first = self.paint.paint(style, format!("{first}{rest}"));
        self.text += &format!("{first}. Nothing was changed.\n");
        let reasons = plan.refused.iter().map(String::as_str);
        self.lines("because", Style::Warning, reasons);
        let [begin, end] = plan.observed;
        let seen = match begin == end {
            true => format!("once, at {}", begin.time_of_day()),
            false => format!(
                "twice, at {} and {}; both looks agree on what can be released",
                begin.time_of_day(),
                end.time_of_day()
            ),
        };
        self.value("looked", Style::Quiet, &seen);
    }

    fn store(&mut self, plan: &Plan, store: &StoreSeen) {
        let releases: Vec<&Release> = plan
            .releases
            .iter()
            .filter(|each| each.store.as_os_str() == store.path.as_str())
            .collect();
        let below =
            |each: &&Withheld| Path::new(&each.path).parent() == Some(Path::new(&store.path));
        let withheld: Vec<&Withheld> = plan.withheld.iter().filter(below).collect();
        if releases.is_empty() && withheld.is_empty() {
            return;
        }
        let network = match &store.network {
            Some(name) => format!("network {}", Printable(name)),
            None => String::from("no configured network"),
        };
        let reservations = counted(store.reservations, "reservation");
        let title = self.paint.paint(Style::Title, Printable(&store.path));
        self.text += &format!("\n{title}  {network}, {reservations}\n");
        for release in releases.iter().take(LISTED) {
            self.release(release);
        }
        if releases.len() > LISTED {
            let more = grouped((releases.len() - LISTED) as u64);
            self.value(
                "",
                Style::Plain,
                &format!("and {more} more: the plan has all"),
            );
        }
        self.withheld(&withheld);
    }

    fn release(&mut self, each: &Release) {
        let age = length(self.now.since(each.modified));
        let ifname = each.ifname.as_deref().unwrap_or("-");
        let whose = match each.container_id.as_str() {
            "" => String::from("nobody (empty file)"),
            id => format!("{:<13}  {}", short_id(id), Printable(ifname)),
        };
        let label = self.paint.paint(
            Style::Good,
            format!("{:<width$}", "release", width = LABEL - 2),
        );
        let address = each.address.to_string();
        let reserved = moment(each.modified, self.now);
        let reserved = reserved.get(..reserved.len() - 4).unwrap_or(&reserved);
        self.text += &format!("  {label}{address:<17}{whose:<22}reserved {reserved} ({age} ago)\n");
    }

    /// By reason, the most important first.
    fn withheld(&mut self, all: &[&Withheld]) {
        let mut groups: BTreeMap<(Reason, &str), Vec<&Withheld>> = BTreeMap::new();
        for each in all {
            let group = groups.entry((each.reason, each.why.as_str()));
            group.or_default().push(each);
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        // Long lists of things that are in order come last.
        groups.order_by_key(|((reason, _), _)| *reason == Reason::Live);
        for ((_, why), each) in groups {
            let mut names: Vec<String> = each
                .iter()
                .take(NAMED)
                .map(|one| match one.address {
                    Some(address) => address.to_string(),
                    None => one.path.clone(),
                })
                .collect();
            if each.len() > NAMED {
                names.push(format!("{} more", grouped((each.len() - NAMED) as u64)));
            }
            let text = format!("{}: {why}", names.join(", "));
            self.value("leave", Style::Quiet, &text);
        }
    }

    fn by_hand(&mut self, all: &[ByHand]) {
        if all.is_empty() {
            return;
        }
        let title = "manual steps: --apply does none of these";
        self.text += &format!("\n{}\n", self.paint.paint(Style::Title, title));
        let mut told: BTreeMap<&str, usize> = BTreeMap::new();
        for (place, each) in all.iter().enumerate() {
            let told = told.entry(each.kind.as_str()).or_default();
            *told += 1;
            if *told <= TOLD {
                if place > 0 {
                    self.text.push('\n');
                }
                self.trouble(each);
            }
        }
        for (kind, number) in told {
            if number > TOLD {
                let text = format!(
                    "{} more of this kind: see scan",
                    grouped((number - TOLD) as u64)
                );
                self.value(kind, Style::Quiet, &text);
            }
        }
    }

    fn trouble(&mut self, each: &ByHand) {
        let kind = self.paint.paint(Style::from(each.severity), &each.kind);
        let title = Printable(&each.title).to_string();
        let begin = each.kind.chars().count() + 4;
        self.text += &format!("  {kind}: {}\n", self.paint.hanging(&title, begin, 4));
        for holder in each.holders.iter().take(HOLDERS) {
            self.value("held by", Style::Plain, &held_by(holder));
        }
        let mut label = "do";
        for (number, step) in (1..).zip(&each.steps) {
            let mark = match each.steps.len() {
                1 => String::new(),
                _ => format!("{number}. "),
            };
            let text = Printable(step).to_string();
            for line in wrap::step_lines(&mark, &text, self.paint.width, LABEL, LABEL + 3) {
                self.text += &format!("  {label:<width$}{line}\n", width = LABEL - 2);
                label = "";
            }
        }
    }

    /// What to do with the plan, next to the cursor.
    fn next(&mut self, plan: &Plan, file: Option<&Path>) {
        let Some(first) = plan.releases.first() else {
            return;
        };
        self.text.push('\n');
        let root = option(&plan.root.path);
        let look = format!(
            "look at one before: node-tracer explain{root} {} (nobody may have it)",
            first.address
        );
        self.value("then", Style::Title, &look);
        let valid = length(Duration::from_millis(plan.valid_for_ms));
        let until = plan.expires.time_of_day();
        let until = until.get(..8).unwrap_or_default();
        let text = match file {
            Some(path) => format!(
                "carry it out: node-tracer repair{root} --apply {}; that keeps a copy of each, and can be \
                 undone. The plan is valid for {valid}, until {until}",
                path.display(),
            ),
            None => format!(
                "this plan was only shown; make one that can be carried out: node-tracer \
                 repair{root} --plan plan.json, and then: node-tracer repair{root} --apply plan.json"
            ),
        };
        self.value("", Style::Title, &text);
    }
}

/// `--root`, where it is needed.
fn option(root: &str) -> String {
    match root {
        "/" => String::new(),
        root => format!(" --root {}", Printable(root)),
    }
}

fn held_by(holder: &Holder) -> String {
    match holder {
        Holder::Task {
            pid,
            tid,
            comm,
            state,
            wchan,
            ..
        } => {
            let state = state.map(|state| format!(", state {state}"));
            let asleep = wchan.as_ref().map(|wchan| format!(", asleep in {wchan}"));
            format!(
                "{}{}{}",
                super::style::task(comm, *pid, *tid),
                state.unwrap_or_default(),
                asleep.unwrap_or_default()
            )
        }
        Holder::Mount { path } => format!("the mount {}", path.display()),
        Holder::Fd { pid, fd, comm } => {
            format!("descriptor {fd} of {}", named(comm.as_deref(), *pid))
        }
        Holder::Socket { pid, fd, comm } => {
            format!(
                "a socket, descriptor {fd} of {}",
                named(comm.as_deref(), *pid)
            )
        }
    }
}

fn named(comm: Option<&str>, pid: u32) -> String {
    super::style::task(comm.unwrap_or("process"), pid, pid)
}

/// What became of one reservation.
pub(super) fn outcome(paint: Painter, one: &Outcome) -> String {
    let (word, style) = match one.result {
        Result::Released => ("released", Style::Good),
        Result::Restored => ("put back", Style::Good),
        Result::Unchanged => ("there", Style::Quiet),
        Result::Kept => ("kept", Style::Warning),
        Result::Taken => ("taken", Style::Warning),
        Result::Failed => ("FAILED", Style::Critical),
    };
    let word = paint.paint(style, format!("{word:<width$}", width = LABEL));
    let whose = match one.container_id.as_str() {
        "" => String::from("nobody (empty file)"),
        id => format!(
            "{:<13}  {}",
            short_id(id),
            Printable(one.ifname.as_deref().unwrap_or("-"))
        ),
    };
    let address = one.address.to_string();
    match &one.why {
        Some(why) => {
            let why = paint.hanging(&Printable(why).to_string(), LABEL, LABEL);
            format!("{word}{address:<17}{whose}\n{:LABEL$}{why}\n", "")
        }
        None => format!("{word}{address:<17}{whose}\n"),
    }
}

/// A repair in numbers.
pub(super) fn summary(paint: Painter, totals: &Totals) -> String {
    let Totals {
        action,
        done,
        kept,
        failed,
        root,
        backup,
        locked_ms,
        notes,
    } = totals;
    let (did, kept_as) = match action {
        Action::Apply => ("released", "left alone, as things have changed"),
        Action::Undo => ("put back", "not put back: the address has a new owner"),
    };
    let style = match (failed, kept) {
        (0, 0) => Style::Good,
        (0, _) => Style::Warning,
        _ => Style::Critical,
    };
    let mut parts = vec![format!("{} {did}", grouped(*done as u64))];
    if *kept > 0 {
        parts.push(format!("{} {kept_as}", grouped(*kept as u64)));
    }
    if *failed > 0 {
        let number = *failed as u64;
        parts.push(format!(
            "{} {} FAILED",
            grouped(number),
            after(number, "reservation")
        ));
    }
    let mut text = format!("{}\n", paint.paint(style, parts.join("; ")));
    let mut value = |label: &str, value: &str| {
        let value = paint.hanging(&Printable(value).to_string(), LABEL, LABEL);
        text += &format!("  {label:<width$}{value}\n", width = LABEL - 2);
    };
    for note in notes {
        value("note", note);
    }
    if *action == Action::Apply && !backup.is_empty() {
        let held = length(Duration::from_millis(*locked_ms));
        value(
            "lock",
            &format!("host-local's lock was held for {held} at most"),
        );
        value("backup", backup);
        value(
            "undo",
            &format!("node-tracer repair{} --undo {backup}", option(root)),
        );
    }
    text
}
