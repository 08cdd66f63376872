//! What lasts: a namespace, an address, a sleep, the wait for CNI DEL.

use super::{super::lanes::Lane, Canvas, Percent, Shown};
use event::{clock::Timestamp, wording::duration::length};

/// Bars of one kind in one lane.
const MAX: usize = 4;
/// About as wide is a character on a bar, percent of the narrowest drawing.
const CHARACTER: f64 = 1.8;

#[derive(Debug)]
pub struct Bar {
    /// Its looks: `netns`, `address`, `stall`, `no-del`.
    pub class: &'static str,
    pub x: Percent,
    pub end: Percent,
    pub width: Percent,
    /// px below the lane's top.
    pub y: u32,
    /// It began before anybody looked.
    pub open_left: bool,
    /// It went on after the end.
    pub open_right: bool,
    /// What is written on it.
    pub label: Shown,
    /// What is added where there is room.
    pub more: Shown,
    /// The text ends at its right end, and does not begin at its left one.
    pub flush_right: bool,
    pub title: Shown,
}

impl Canvas<'_> {
    /// A lane's bars, from the top.
    pub(super) fn bars(&self, lane: &Lane) -> Vec<Bar> {
        let mut bars = Vec::new();
        if let Some(netns) = lane.netns {
            let title = format!(
                "network namespace {} {}",
                netns.inode,
                self.lasted(lane, lane.created, lane.gone)
            );
            bars.push(self.bar(lane, "netns", (lane.created, lane.gone), "", "", &title));
        }
        for held in lane.held.iter().take(MAX) {
            let title = format!(
                "{} is on it {}",
                held.address,
                self.lasted(lane, held.since, held.until)
            );
            let label = held.address.to_string();
            bars.push(self.bar(
                lane,
                "address",
                (held.since, held.until),
                &label,
                "",
                &title,
            ));
        }
        for stall in lane.stalls.iter().take(MAX) {
            let place = match &stall.wchan {
                Some(wchan) => format!(" in {wchan}"),
                None => String::new(),
            };
            let slept = length(
                stall
                    .until
                    .unwrap_or(self.sheet.ended_of(lane))
                    .since(stall.since),
            );
            let span = (Some(stall.since), stall.until);
            let title = format!(
                "{} ({}) is in uninterruptible sleep{place} {}",
                stall.comm,
                stall.pid,
                self.lasted(lane, span.0, span.1)
            );
            let label = format!("stuck {slept}");
            let more = format!(": {} ({}){place}", stall.comm, stall.pid);
            let mut bar = self.bar(lane, "stall", span, &label, &more, &title);
            bar.open_left = stall.found;
            bars.push(bar);
        }
        bars.extend(self.no_del(lane));
        bars
    }

    /// From the end of the pod to the first CNI DEL, where findings are about
    /// the sandbox: an ordinary deletion needs no bar.
    fn no_del(&self, lane: &Lane) -> Option<Bar> {
        let gone = lane.pod_gone()?;
        let del = lane.first_del(gone);
        if lane.named.is_empty() || lane.calls.is_empty() {
            return None;
        }
        let until = del.or(lane.gone);
        let title = match del {
            Some(_) => format!("no CNI DEL {}", self.lasted(lane, Some(gone), until)),
            None => format!(
                "no CNI DEL was seen {}",
                self.lasted(lane, Some(gone), until)
            ),
        };
        let how_long = length(until.unwrap_or(self.sheet.ended_of(lane)).since(gone));
        let label = format!("no DEL {how_long}");
        let mut bar = self.bar(lane, "no-del", (Some(gone), until), &label, "", &title);
        bar.open_right = del.is_none();
        Some(bar)
    }

    fn bar(
        &self,
        lane: &Lane,
        class: &'static str,
        (from, to): (Option<Timestamp>, Option<Timestamp>),
        label: &str,
        more: &str,
        title: &str,
    ) -> Bar {
        let (x, width) = self.span(lane, from, to);
        let needed = label.chars().count() as f64 * CHARACTER;
        Bar {
            class,
            x,
            end: Percent(x.0 + width.0),
            width,
            y: 0,
            open_left: from.is_none(),
            open_right: to.is_none(),
            label: Shown::new(label),
            more: Shown::new(more),
            flush_right: x.0 > 50.0 && x.0 + needed > 100.0,
            title: Shown::new(title),
        }
    }
}
