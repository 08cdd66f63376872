//! An explanation on one screen: the answer, who has what, what happened, what to
//! do. All that is known of it is there with -v.

use super::{CONFLICT, LABEL, Page};
use crate::text::{style::Style, wrap};
use event::order::Order as _;
use event::{
    explanation::{Explanation, Kind, Moment, NetnsPart, PodState},
    finding::Holder,
    not_checked,
    wording::{escape::Printable, subjects::pod_word},
};

/// Lines of all of it, at most.
const LINES: usize = 30;
/// Lines of the answer, of the table, and of what is unknown.
const ANSWER: usize = 2;
const ROWS: usize = 4;
const UNKNOWN: usize = 4;
/// Moments that are told if steps leave room for no more.
const MOMENTS: usize = 6;
/// Columns of the table that a narrow terminal does without, the inode first:
/// the other columns tell the rows apart.
const LEAST_FIRST: [usize; 3] = [2, 3, 5];
/// What says that there is more.
const MORE: &str = " ... (-v)";

impl Page {
    /// What is known, in as many lines as a screen has.
    pub(super) fn brief(&mut self, node: &str, all: &Explanation) {
        self.head(node, all);
        if !all.subject.found {
            self.nobody(all);
            return;
        }
        if let Some(also) = all.subject.also.first() {
            self.one("or", &Printable(also).to_string());
        }
        self.text.push('\n');
        self.table(all);
        self.enis(&all.eni, 0);
        if let Some(path) = all.path.first() {
            self.short_path(path);
        }
        if all.subject.kind == Kind::Pid {
            for task in all.tasks.iter().take(1) {
                self.holder("task", 0, task, &[]);
            }
        }
        if all.netns.is_empty() {
            let mut label = "reserved";
            for part in all.reservations.iter().take(2) {
                self.reservation(label, part);
                label = "";
            }
        }
        self.findings_line(all);
        let unknown = self.part(|page| page.unknown(all));
        let used = self.lines() + unknown.lines().count();
        let room = LINES.saturating_sub(used);
        let moments = all.timeline.len().min(MOMENTS) + usize::from(!all.timeline.is_empty());
        let steps = self.part(|page| page.steps(all, room.saturating_sub(moments)));
        let room = room.saturating_sub(steps.lines().count());
        self.moments(all, room);
        self.text += &steps;
        self.text += &unknown;
    }

    fn head(&mut self, node: &str, all: &Explanation) {
        let answer = self.part(|page| page.answer(node, all));
        let answer = answer.trim_end();
        // The last line says when and where.
        let (answer, place) = answer.rsplit_once('\n').unwrap_or((answer, ""));
        let all: Vec<&str> = answer.lines().collect();
        let kept = all
            .iter()
            .take(ANSWER)
            .copied()
            .collect::<Vec<_>>()
            .join("\n");
        let more = if all.len() > ANSWER { MORE } else { "" };
        self.text += &format!("{kept}{more}\n{place}\n");
    }

    /// What nobody has: what was looked at, and what could not be.
    fn nobody(&mut self, all: &Explanation) {
        self.one(
            "looked at",
            &Printable(all.looked_at.join("; ")).to_string(),
        );
        match not_checked::lines(&all.not_checked).first() {
            Some(line) => {
                let line =
                    wrap::first_line(&Printable(line).to_string(), self.paint.width, 0, MORE);
                self.text += &format!("{}\n", self.paint.paint(Style::Warning, line));
            }
            None => self.unknown_of(all, 2),
        }
    }

    fn unknown(&mut self, all: &Explanation) {
        for line in not_checked::lines(&all.not_checked).iter().take(2) {
            let line = wrap::first_line(&Printable(line).to_string(), self.paint.width, 0, MORE);
            self.text += &format!("{}\n", self.paint.paint(Style::Warning, line));
        }
        self.unknown_of(all, UNKNOWN);
    }

    fn unknown_of(&mut self, all: &Explanation, most: usize) {
        let mut label = "unknown";
        let (told, more) = match all.unknown.len() {
            number if number <= most => (number, 0),
            number => (most - 1, number - (most - 1)),
        };
        for text in all.unknown.iter().take(told) {
            self.one(label, &Printable(text).to_string());
            label = "";
        }
        if more > 0 {
            let noun = if more == 1 { "thing" } else { "things" };
            let other = if told == 0 { "" } else { " more" };
            self.one(label, &format!("{more}{other} {noun} (-v)"));
        }
    }

    /// `ROLE POD NETNS SINCE HELD BY RESERVED API`
    fn table(&mut self, all: &Explanation) {
        let parts: Vec<&NetnsPart> = all.netns.iter().take(ROWS).collect();
        if parts.is_empty() {
            return;
        }
        let head = [
            "ROLE", "POD", "NETNS", "SINCE", "HELD BY", "RESERVED", "API",
        ];
        let mut rows = vec![head.map(String::from)];
        rows.extend(parts.iter().map(|part| self.row(part, all)));
        let mut widths = [0; 7];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut shown = [true; 7];
        for column in LEAST_FIRST {
            let used = widths.iter().zip(shown).filter(|(_, shown)| *shown);
            if used.map(|(width, _)| width + 2).sum::<usize>() <= self.paint.width + 2 {
                break;
            }
            shown[column] = false;
        }
        for (number, row) in rows.iter().enumerate() {
            let cells = row.iter().zip(widths).zip(shown);
            let line: Vec<String> = cells
                .filter(|(_, shown)| *shown)
                .map(|((cell, width), _)| format!("{cell:<width$}"))
                .collect();
            let line = line.join("  ");
            let line = wrap::cut(line.trim_end(), self.paint.width);
            let style = match (number, row[0].as_str()) {
                (0, _) => Style::Quiet,
                (_, "ghost") => Style::Critical,
                _ => Style::Plain,
            };
            self.text += &format!("{}\n", self.paint.paint(style, line));
        }
        let more = all.netns.len() - parts.len();
        if more > 0 {
            self.text += &format!("{more} more network namespaces (-v)\n");
        }
        self.text.push('\n');
    }

    fn row(&self, part: &NetnsPart, all: &Explanation) -> [String; 7] {
        let is_gone = |part: &NetnsPart| part.pod_state == Some(PodState::Gone);
        let shares = |other: &NetnsPart| {
            let has = |it| other.addresses.iter().any(|own| own.address == it);
            !other.host && part.addresses.iter().any(|own| has(own.address))
        };
        let suffers = all
            .netns
            .iter()
            .any(|other| is_gone(other) && shares(other));
        let role = match part.pod.as_ref() {
            _ if part.host => "host",
            _ if is_gone(part) => "ghost",
            _ if suffers => "victim",
            Some(_) => "pod",
            None => "netns",
        };
        let pod = part
            .pod
            .as_ref()
            .map(|pod| Printable(pod_word(pod)).to_string());
        let path = || Some(Printable(part.paths.first()?.display()).to_string());
        let none = || String::from("-");
        let since = part.addresses.iter().filter_map(|each| each.since).min();
        let since = since.map(|since| {
            let text = self.time(since);
            text.split('.').next().unwrap_or_default().to_owned()
        });
        [
            role.to_owned(),
            pod.or_else(path).unwrap_or_else(none),
            part.id.inode.to_string(),
            since.unwrap_or_else(none),
            self.keeper(part),
            reserved(part, all).to_owned(),
            listed(part, all),
        ]
    }

    /// What keeps a namespace: a stuck task first, which nothing ends.
    fn keeper(&self, part: &NetnsPart) -> String {
        let is_stuck = |holder: &&Holder| matches!(holder, Holder::Task { since: Some(_), .. });
        let stuck = part.holders.iter().find(is_stuck);
        match stuck.or_else(|| part.holders.first()) {
            Some(Holder::Task {
                pid, comm, since, ..
            }) => {
                let comm = Printable(comm);
                let stuck = since.map(|since| format!(" (D {})", short(self.now.since(since))));
                format!("{comm} {pid}{}", stuck.unwrap_or_default())
            }
            Some(Holder::Mount { path }) => {
                let name = path.file_name().unwrap_or(path.as_os_str());
                format!("mount {}", Printable(name.display()))
            }
            Some(Holder::Fd { pid, .. }) => format!("fd of {pid}"),
            Some(Holder::Socket { pid, .. }) => format!("socket of {pid}"),
            None if part.task_count > 0 => format!("{} tasks", part.task_count),
            None => String::from("-"),
        }
    }

    /// All findings in one line, worst first.
    fn findings_line(&mut self, all: &Explanation) {
        let mut words = String::new();
        let mut worst = None;
        for part in &all.findings {
            let finding = &part.finding;
            let phase = finding
                .detail
                .phase
                .map(|phase| format!("/{}", phase.as_str()));
            let rule = format!("{}{}", finding.rule.as_str(), phase.unwrap_or_default());
            let severity = finding.severity.as_str().to_uppercase();
            words += &match worst {
                None => format!("{severity} {rule}"),
                Some(same) if same == finding.severity => format!(", {rule}"),
                Some(_) => format!("; {severity} {rule}"),
            };
            worst = Some(finding.severity);
        }
        if !words.is_empty() {
            self.one("findings", &words);
        }
    }

    /// What to do, whole steps; what is cut is no command.
    fn steps(&mut self, all: &Explanation, room: usize) {
        let mut label = "do";
        for (number, advice) in (1..).zip(&all.advice) {
            let advice = Printable(advice).to_string();
            let mark = match all.advice.len() {
                1 => String::new(),
                _ => format!("{number}. "),
            };
            let step = wrap::step(&advice, self.paint.width, LABEL + mark.len());
            let text = format!("{mark}{step}");
            let more = all.advice.len() - number;
            if self.lines() + 1 + usize::from(more > 0) > room {
                self.line(label, 0, &format!("... {} more (-v)", more + 1));
                return;
            }
            self.styled(label, 0, Style::Plain, &text);
            label = "";
        }
    }

    /// What happened, a line each: what decides something before what only
    /// belongs to the course of things, and of those the latest.
    fn moments(&mut self, all: &Explanation, room: usize) {
        // An empty line follows, and a line says what is left out.
        let room = room.saturating_sub(1);
        let total = all.timeline.len();
        let decide = all.timeline.iter().filter(|moment| !moment.minor).count();
        let wanted = decide.max(MOMENTS).min(total);
        let most = match total <= room {
            true => wanted,
            false => wanted.min(room.saturating_sub(1)),
        };
        if most == 0 {
            return;
        }
        let mut order: Vec<usize> = (0..total).rev().collect();
        let worth = |moment: &Moment| (!moment.conflict, moment.minor);
        order.order_by_key(|at| all.timeline.get(*at).map(worth));
        order.truncate(most);
        order.sort_unstable();
        let rows: Vec<_> = order
            .iter()
            .filter_map(|at| all.timeline.get(*at))
            .map(|moment| {
                let time = self.time(moment.at);
                let second = time.split('.').next().unwrap_or_default().to_owned();
                let source = Printable(&moment.source).to_string();
                (second, source, moment)
            })
            .collect();
        let width = |text: &str| text.chars().count();
        let times = rows.iter().map(|(at, ..)| width(at)).max().unwrap_or(0);
        let sources = rows.iter().map(|(_, by, _)| width(by)).max().unwrap_or(0);
        for (at, by, moment) in rows {
            let quiet = format!("{at:>times$}  {by:<sources$}  ");
            let mark = if moment.conflict { CONFLICT } else { "" };
            let room = self.paint.width.saturating_sub(width(mark));
            let what = Printable(&moment.what).to_string();
            let what = wrap::first_line(&what, room, width(&quiet), " …");
            let quiet = self.paint.paint(Style::Quiet, quiet);
            let mark = self.paint.paint(Style::Critical, mark);
            self.text += &format!("{quiet}{what}{mark}\n");
        }
        if most < total {
            self.text += &format!("... {} more (-v)\n", total - most);
        }
        self.text.push('\n');
    }

    /// A labelled text in one line.
    pub(super) fn one(&mut self, label: &str, text: &str) {
        let text = wrap::first_line(text, self.paint.width, LABEL, MORE);
        self.styled(label, 0, Style::Plain, &text);
    }

    fn lines(&self) -> usize {
        self.text.lines().count()
    }

    /// What something adds, by itself.
    fn part(&mut self, print: impl FnOnce(&mut Self)) -> String {
        let before = std::mem::take(&mut self.text);
        print(self);
        std::mem::replace(&mut self.text, before)
    }
}

/// Whether any of its addresses is reserved for its sandbox, as far as stores
/// were read.
fn reserved(part: &NetnsPart, all: &Explanation) -> &'static str {
    let Some(id) = part.sandbox_id.as_deref() else {
        return "-";
    };
    let mut reservations = all.reservations.iter();
    match reservations.any(|each| each.container_id == id) {
        true => "yes",
        false if !all.stores.is_empty() && all.stores.iter().all(|store| !store.partial) => "no",
        false => "?",
    }
}

/// What the API says of its pod.
fn listed(part: &NetnsPart, all: &Explanation) -> String {
    let Some(pod) = &part.pod else {
        return String::from("-");
    };
    let own = all
        .pods
        .iter()
        .find(|each| each.uid.is_some() && each.uid == pod.uid);
    match own.and_then(|own| Some((own, own.listed?))) {
        Some((own, true)) if own.deletion.is_some() => String::from("Terminating"),
        Some((own, true)) => {
            let phase = own.phase.as_deref().unwrap_or("listed");
            Printable(phase).to_string()
        }
        Some((own, false)) if own.doubt.is_none() => String::from("gone"),
        _ => String::from("?"),
    }
}

/// How long, in one unit.
fn short(time: std::time::Duration) -> String {
    match time.as_secs() {
        seconds @ ..60 => format!("{seconds}s"),
        seconds @ ..3_600 => format!("{}m", seconds / 60),
        seconds @ ..86_400 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}
