//! `node-tracer report RECORDING -o report.html`: the recording goes through the
//! same engine as in `replay`, and its page to a file or to standard output.

mod file;

use crate::{
    config,
    outcome::{self, Outcome},
    replay,
};
use report::{page::Page, sheet::Pen};

/// Writes the report of a recording. Returns what was found in it.
pub(crate) fn run(config: &config::Report) -> anyhow::Result<Outcome> {
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
    if let Some((_, summary)) = &sheet.summary {
        outcome::say_not_checked(&[], &summary.not_checked);
    }
    told
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
    let page = Page::new(&pen.lift()).html().expect("a page is made");
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
