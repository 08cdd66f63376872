//! `node-tracer report RECORDING... -o report.html`: each recording goes through the
//! same engine as in `replay`, by itself, and the page of all of them to a file or to
//! standard output.

mod file;

use std::path::PathBuf;

use crate::{
    config,
    outcome::{self, Outcome},
    replay,
};
use event::record::Summary;
use report::{
    page::Page,
    sheet::{Pen, Sheet, joined},
};

/// Writes the report of some recordings. Returns what was found in them.
pub(crate) fn run(config: &config::Report) -> anyhow::Result<Outcome> {
    let out = file::Out::new(&config.output, config.force)?;
    let (sheet, told) = read(&config.recordings);
    // What was read by then is told all the same; of nothing there is no page.
    let is_something = |summary: &Summary| summary.events_seen > 0 || !summary.rules.is_empty();
    let is_told = sheet.summaries().any(is_something);
    if is_told || (told.is_ok() && sheet.summaries().next().is_some()) {
        out.write(Page::new(&sheet).html()?.as_bytes())?;
    }
    let not_checked = sheet.summaries().flat_map(|it| it.not_checked.clone());
    outcome::say_not_checked(&[], &not_checked.collect::<Vec<_>>());
    told
}

/// What recordings tell, and what was found in them, or why not all were read.
fn read(recordings: &[PathBuf]) -> (Sheet, anyhow::Result<Outcome>) {
    let mut pens: Vec<Pen> = Vec::new();
    let told = replay::into_sinks(recordings, || {
        let pen = Pen::default();
        pens.push(pen.clone());
        Box::new(pen)
    });
    let sheets = pens.iter().flat_map(Pen::lift);
    (joined(sheets.collect()), told)
}

/// The page of a recording of chance: it is well-formed, has no tag that no
/// page has, nothing that acts or hides, and is of bounded length.
#[cfg(feature = "testing")]
pub fn fuzz(data: &[u8]) {
    /// All that there is in the templates.
    const TAGS: &str = "html head meta title style article q body header nav main section footer h1 h2 h3 h4 \
                        p a b i em strong span div ul ol li dl dt dd details summary table thead \
                        tbody tr th td pre code svg g rect line path text tspan circle defs \
                        pattern foreignObject br time small caption";
    let pen = Pen::default();
    let told = replay::fuzz_into(data, Box::new(pen.clone()));
    if told.is_none() {
        return;
    }
    let page = Page::new(&joined(pen.lift()))
        .html()
        .expect("a page is made");
    assert!(page.len() < 8 << 20, "{} bytes", page.len());
    let hidden = |c: char| c != '\n' && event::wording::escape::is_hidden(c);
    assert!(!page.contains(hidden));
    for line in report::outline::outline(&page) {
        let Some(tag) = line.strip_prefix('<') else {
            continue;
        };
        let name = tag
            .trim_start_matches('/')
            .split([' ', '\n', '/', '>'])
            .next();
        let name = name.unwrap_or_default();
        assert!(TAGS.split_whitespace().any(|known| known == name), "{line}");
        let acts = |sign| {
            tag.split('"')
                .step_by(2)
                .any(|outside| outside.contains(sign))
        };
        assert!(
            ![" on", " src", "javascript"].into_iter().any(acts),
            "{line}"
        );
    }
}

#[cfg(test)]
mod tests;
