//! An explanation as a page: the answer first, then who holds it, what CNI, the
//! runtime and the API server say, what happened, and last, next to the
//! cursor, what to do.

use super::{
    style::{Painter, Style, date, grouped, moment},
    wrap,
};
use event::{
    clock::Timestamp,
    explanation::{Explanation, FindingPart, Kind},
    not_checked,
    wording::{advice, escape::Printable},
};

mod brief;
mod namespace;
mod path;
mod sources;

/// Width of a label and of the space after it.
const LABEL: usize = 10;
/// Stands behind the moment from which on two have the same address.
const CONFLICT: &str = "  <-- conflict";
/// Parts of one kind that are listed; the JSON record has all.
const LISTED: usize = 12;
/// Texts of one kind that are listed.
const TEXTS: usize = 30;
/// Moments that are listed.
const MOMENTS: usize = 40;

/// Lines of a page under construction.
struct Page {
    text: String,
    paint: Painter,
    now: Timestamp,
}

/// An explanation's lines, each with its newline.
pub(super) fn text(
    paint: Painter,
    now: Timestamp,
    node: &str,
    all: &Explanation,
    verbose: u8,
) -> String {
    let mut page = Page {
        text: String::new(),
        paint,
        now,
    };
    if verbose == 0 {
        page.brief(node, all);
        return page.text;
    }
    page.answer(node, all);
    page.text.push('\n');
    let also = all.subject.also.iter().map(String::as_str);
    page.texts("or", also);
    page.namespaces(all);
    page.enis(&all.eni, verbose);
    page.each("path", &all.path, Page::path);
    page.reservations(all);
    page.each("cni", &all.cni_calls, Page::call);
    page.sandboxes(&all.sandboxes);
    page.each("pods", &all.pods, Page::pod);
    page.each("findings", &all.findings, Page::finding);
    page.timeline(all);
    for line in not_checked::lines(&all.not_checked) {
        let line = paint.hanging(&Printable(line).to_string(), 0, 2);
        page.text += &format!("{}\n", paint.paint(Style::Warning, line));
    }
    page.texts("unknown", all.unknown.iter().map(String::as_str));
    if !all.subject.found {
        page.texts("looked at", all.looked_at.iter().map(String::as_str));
    }
    let steps: Vec<String> = match all.advice.as_slice() {
        [only] => vec![only.clone()],
        many => (1..)
            .zip(many)
            .map(|(step, advice)| format!("{step}. {advice}"))
            .collect(),
    };
    page.whole_steps(&steps);
    page.text
}

impl Page {
    fn answer(&mut self, node: &str, all: &Explanation) {
        let worst = all.findings.iter().map(|part| part.finding.severity).max();
        let style = worst.map_or(Style::Title, Style::from);
        for line in self.paint.lines(&Printable(&all.answer).to_string(), 0, 2) {
            let indent = if self.text.is_empty() { "" } else { "  " };
            let line = self.paint.paint(style, line);
            self.text += &format!("{indent}{line}\n");
        }
        let subject = &all.subject;
        let kind = match subject.kind {
            Kind::Address => "an address",
            Kind::Pod => "a pod",
            Kind::PodUid => "a pod's UID",
            Kind::Container => "a sandbox or container",
            Kind::Netns | Kind::NetnsPath => "a network namespace",
            Kind::Pid => "a process",
        };
        let time = self.now.time_of_day().to_string();
        let second = time.split('.').next().unwrap_or_default();
        let line = format!(
            "{} {second} UTC  node {}  {} taken as {kind}",
            date(self.now),
            Printable(node),
            Printable(&subject.asked),
        );
        let line = wrap::cut(&line, self.paint.width);
        self.text += &format!("{}\n", self.paint.paint(Style::Quiet, line));
    }

    /// A labelled line, in several if it is long; what hangs is further in than
    /// any value's beginning, so that no name can look like the next line.
    fn line(&mut self, label: &str, indent: usize, value: &str) {
        let begin = LABEL + indent;
        let value = self.paint.hanging(value, begin, begin + 4);
        self.styled(label, indent, Style::Plain, &value);
    }

    /// The same, of lines that are broken already.
    fn styled(&mut self, label: &str, indent: usize, style: Style, value: &str) {
        let label = format!("{label:<LABEL$}");
        let label = self.paint.paint(Style::Quiet, label);
        let value = self.paint.paint(style, value);
        self.text += &format!("{label}{:indent$}{value}\n", "");
    }

    /// Steps of advice. A command is not broken: half of one is another command.
    fn whole_steps(&mut self, steps: &[String]) {
        let mut label = "do";
        for step in steps {
            let text = Printable(step).to_string();
            let (_, bare) = text.split_once(". ").unwrap_or(("", &text));
            match advice::command(bare).is_some() {
                true => self.styled(label, 0, Style::Plain, &text),
                false => self.line(label, 0, &text),
            }
            label = "";
        }
    }

    /// Foreign texts, each on lines of its own.
    fn texts<'a>(&mut self, label: &str, texts: impl Iterator<Item = &'a str>) {
        let mut label = label;
        let mut texts = texts;
        for text in texts.by_ref().take(TEXTS) {
            self.line(label, 0, &Printable(text).to_string());
            label = "";
        }
        self.more(texts.count());
    }

    /// The first of some parts, and how many there are besides.
    fn each<T>(&mut self, label: &str, parts: &[T], print: fn(&mut Self, &str, &T)) {
        let mut label = label;
        for part in parts.iter().take(LISTED) {
            print(self, label, part);
            label = "";
        }
        self.more(parts.len().saturating_sub(LISTED));
    }

    fn more(&mut self, more: usize) {
        if more > 0 {
            self.line("", 0, &format!("… and {} more", grouped(more as u64)));
        }
    }

    fn time(&self, time: Timestamp) -> String {
        moment(time, self.now)
    }

    fn finding(&mut self, label: &str, part: &FindingPart) {
        let finding = &part.finding;
        let phase = finding.detail.phase;
        let phase = phase.map(|phase| format!(", {}", phase.as_str()));
        let head = format!(
            "{}  {}{}",
            finding.severity.as_str().to_uppercase(),
            finding.rule.as_str(),
            phase.unwrap_or_default(),
        );
        let id = format!("  id {}", Printable(&finding.id));
        let id = self.paint.paint(Style::Quiet, id);
        let head = self.paint.paint(Style::from(finding.severity), head);
        self.styled(label, 0, Style::Plain, &format!("{head}{id}"));
        self.line("", 2, &Printable(&finding.title).to_string());
    }

    fn timeline(&mut self, all: &Explanation) {
        let more = all.timeline.len().saturating_sub(MOMENTS);
        // The latest matter most.
        let shown = all.timeline.iter().skip(more);
        let rows: Vec<_> = shown
            .map(|moment| {
                let source = Printable(&moment.source).to_string();
                let mark = if moment.conflict { CONFLICT } else { "" };
                (
                    self.time(moment.at),
                    source,
                    format!("{}{mark}", moment.what),
                )
            })
            .collect();
        let width = |text: &str| text.chars().count();
        let times = rows.iter().map(|(at, ..)| width(at)).max().unwrap_or(0);
        let sources = rows.iter().map(|(_, by, _)| width(by)).max().unwrap_or(0);
        let mut label = "timeline";
        if more > 0 {
            self.line(label, 0, &format!("… {} earlier", grouped(more as u64)));
            label = "";
        }
        for (at, by, what) in rows {
            let quiet = format!("{at:>times$}  {by:<sources$}  ");
            let begin = LABEL + width(&quiet);
            let what = self
                .paint
                .hanging(&Printable(&what).to_string(), begin, begin);
            let quiet = self.paint.paint(Style::Quiet, quiet);
            self.styled(label, 0, Style::Plain, &format!("{quiet}{what}"));
            label = "";
        }
    }
}
