//! `node-tracer report RECORDING -o report.html`: the incident as one page, to
//! be handed to those who were not there.
//!
//! The recording goes through the same engine as in `replay`; the page is made
//! of what that tells, and of the events themselves. Nothing is kept that the
//! page cannot show: [`lanes`] and [`history`] bound themselves and count what
//! they leave out, and the page says so.
//!
//! | module | what |
//! |---|---|
//! | [`sheet`] | takes the run in: a sink |
//! | [`lanes`], [`history`] | sandboxes and findings over time |
//! | [`incident`] | which of them belong together |
//! | [`story`], [`prose`] | the incident in words |
//! | [`timeline`], [`axis`] | the incident as a drawing |
//! | [`page`], [`shown`] | what the template is given |
//! | [`mod@file`] | where it goes |
//!
//! The page loads nothing and runs nothing: there is no script, and a content
//! security policy forbids any. All text that is not the template's own gets
//! there as [`Shown`](shown::Shown) and is escaped by the template engine.

mod axis;
mod file;
mod history;
mod incident;
mod lanes;
#[cfg(any(test, fuzzing))]
mod outline;
mod page;
mod prose;
mod sheet;
mod shown;
mod story;
mod timeline;

use self::{page::Page, sheet::Pen};
use crate::{config, replay};

/// Writes the report of a recording. Returns whether anything of severity
/// warning or above was found in it.
pub(crate) fn run(config: &config::Report) -> anyhow::Result<bool> {
    let out = file::Out::new(&config.output, config.force)?;
    let pen = Pen::default();
    let told = replay::into_sink(&config.recording, Box::new(pen.clone()));
    let sheet = pen.lift();
    // What was read by then is told all the same; of nothing there is no page.
    let events = sheet
        .summary
        .as_ref()
        .map(|(_, summary)| summary.events_seen);
    if events.is_some_and(|events| events > 0 || told.is_ok()) {
        out.write(Page::new(&sheet).html()?.as_bytes())?;
    }
    told
}

/// The page of a recording of chance: it is well-formed, has no tag that no
/// page has, nothing that acts or hides, and is of bounded length.
#[cfg(fuzzing)]
pub(crate) fn fuzz(data: &[u8]) {
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
    let page = Page::new(&pen.lift()).html().expect("a page is made");
    assert!(page.len() < 8 << 20, "{} bytes", page.len());
    let hidden = |c: char| c != '\n' && event::wording::escape::is_hidden(c);
    assert!(!page.contains(hidden));
    for line in outline::outline(&page) {
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
