//! The timeline as shapes: where each goes, in percent of the width and in
//! pixels of the height. The template draws them.
//!
//! Lanes of one incident stand together in a group of their own, so that paper
//! has somewhere to break. The time axis is the same for all.

mod bars;
mod marks;

use std::{collections::BTreeMap, fmt};

pub use self::marks::{Legend, legend};
use super::{
    axis::{Axis, Cut, Tick},
    incident::{Conflict, Incident},
    lanes::{Lane, Serial},
    narrative::Narrator,
    prose::Calendar,
    sheet::Sheet,
    shown::Shown,
};
use event::{
    clock::Timestamp,
    order::Order as _,
    wording::{duration::length, subjects::short_id},
};

/// Lanes that are drawn, and those of a run that has found nothing.
pub const MAX_LANES: usize = 40;
const MAX_QUIET: usize = 12;
/// Lanes of one pod in one incident.
const MAX_OF_POD: usize = 6;
/// Lanes of one group.
const GROUP: usize = 8;
/// Height of a lane's title, px.
const TITLE: u32 = 40;
/// Height of a row, px.
const ROW: u32 = 24;
/// What is left free below a lane, px.
const MARGIN: u32 = 14;
/// Height of the axis above a group, px.
const AXIS: u32 = 38;

/// Percent of the width.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Percent(pub f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}%", self.0)
    }
}

#[derive(Debug)]
pub struct Timeline {
    /// Groups of lanes, worst first.
    pub groups: Vec<Group>,
    pub ticks: Vec<TickView>,
    /// Times that are shortened.
    pub cuts: Vec<CutView>,
    /// What the signs that occur mean.
    pub legend: Vec<Legend>,
    /// Sandboxes that are not drawn.
    pub left_out: usize,
    /// Nothing was found about those that are drawn.
    pub quiet: bool,
    /// How far times of different nodes can be compared.
    pub clocks: Vec<Shown>,
}

/// Lanes that stand together.
#[derive(Debug)]
pub struct Group {
    /// px
    pub height: u32,
    /// Height of the axis above it, px.
    pub top: u32,
    pub lanes: Vec<LaneView>,
    /// Times of conflict, across lanes.
    pub bands: Vec<Band>,
}

#[derive(Debug)]
pub struct LaneView {
    /// px
    pub y: u32,
    /// px
    pub height: u32,
    pub name: Shown,
    /// Its sandbox and namespace.
    pub ids: Shown,
    pub bars: Vec<bars::Bar>,
    /// What happened at one moment.
    pub marks: Vec<marks::Sign>,
}

/// When two had the same address.
#[derive(Debug)]
pub struct Band {
    pub x: Percent,
    pub width: Percent,
    /// px
    pub y: u32,
    /// px
    pub height: u32,
    pub title: Shown,
}

/// A label of the axis.
#[derive(Debug)]
pub struct TickView {
    pub x: Percent,
    /// Which side of its text is there.
    pub anchor: &'static str,
    pub date_anchor: &'static str,
    pub label: String,
    /// The date, where it changes.
    pub date: String,
    /// It goes without where there is little room.
    pub minor: bool,
}

/// A time that is shortened.
#[derive(Debug)]
pub struct CutView {
    pub x: Percent,
    /// How long it is.
    pub label: String,
}

/// What all parts of the drawing need to know.
struct Canvas<'a> {
    axis: Axis,
    calendar: Calendar,
    narrator: Narrator<'a>,
    sheet: &'a Sheet,
}

/// Draws what was found; or, if that was nothing, what happened.
pub fn timeline(sheet: &Sheet, incidents: &[Incident<'_>]) -> Timeline {
    let mut chosen: Vec<(Vec<Serial>, Vec<Conflict>)> = Vec::new();
    let mut left_out = 0;
    let mut room = MAX_LANES;
    for incident in incidents {
        let lanes = choose(sheet, &incident.lanes, room);
        room -= lanes.len();
        left_out += incident.lanes.len() - lanes.len();
        if !lanes.is_empty() {
            chosen.push((lanes, incident.conflicts(sheet)));
        }
    }
    let all = sheet.lanes.all().filter(|(_, lane)| lane.is_sandbox());
    let all: Vec<Serial> = all.map(|(serial, _)| serial).collect();
    let quiet = chosen.is_empty();
    if quiet {
        let lanes = choose(sheet, &all, MAX_QUIET);
        left_out = all.len() - lanes.len();
        if !lanes.is_empty() {
            chosen.push((lanes, Vec::new()));
        }
    }
    draw(sheet, &chosen, left_out, quiet)
}

/// Those that have most to show, in their order. Of a pod whose sandbox is made
/// over and over, some show how it goes.
fn choose(sheet: &Sheet, of: &[Serial], room: usize) -> Vec<Serial> {
    let weight = |serial: &Serial| {
        let lane = sheet.lanes.get(*serial)?;
        let shown = (lane.stalls.len(), lane.named.len(), lane.marks.len());
        Some((shown, lane.held.len()))
    };
    let mut best = of.to_vec();
    best.order_by_key(|serial| (std::cmp::Reverse(weight(serial)), *serial));
    let mut of_pods: BTreeMap<String, usize> = BTreeMap::new();
    best.retain(|serial| {
        let pod = sheet.lanes.get(*serial).and_then(|lane| lane.pod.as_ref());
        let count = pod.map(|pod| of_pods.entry(pod.label()).or_default());
        count.is_none_or(|count| {
            *count += 1;
            *count <= MAX_OF_POD
        })
    });
    best.truncate(room);
    of.iter().copied().filter(|it| best.contains(it)).collect()
}

fn draw(
    sheet: &Sheet,
    chosen: &[(Vec<Serial>, Vec<Conflict>)],
    left_out: usize,
    quiet: bool,
) -> Timeline {
    let lanes = chosen.iter().flat_map(|(lanes, _)| lanes);
    let lanes: Vec<&Lane> = lanes.filter_map(|it| sheet.lanes.get(*it)).collect();
    let parts = sheet.parts.iter();
    let moments: Vec<Timestamp> = lanes
        .iter()
        .flat_map(|lane| lane.moments())
        .chain(sheet.lanes.nodes().flat_map(Lane::moments))
        .chain([sheet.began(), sheet.ended()])
        .chain(parts.flat_map(|part| [part.began, part.ended]))
        .collect();
    let canvas = Canvas {
        calendar: sheet.calendar(),
        narrator: Narrator::new(sheet),
        sheet,
        axis: Axis::new(moments),
    };
    let mut groups = Vec::new();
    for (lanes, conflicts) in chosen {
        for part in lanes.chunks(GROUP) {
            groups.push(canvas.group(sheet, part, conflicts));
        }
    }
    for node in sheet.lanes.nodes() {
        if node.marks.is_empty() && node.stalls.is_empty() {
            continue;
        }
        let name = match sheet.has_nodes() {
            true => format!("Node {} itself", sheet.node_of(node.part)),
            false => String::from("The node itself"),
        };
        let mut group = Group {
            height: AXIS,
            top: AXIS,
            lanes: Vec::new(),
            bands: Vec::new(),
        };
        canvas.lane(&mut group, node, Shown::new(name), Shown::default());
        groups.push(group);
    }
    Timeline {
        legend: legend(&groups),
        groups,
        ticks: canvas
            .axis
            .ticks()
            .into_iter()
            .map(TickView::from)
            .collect(),
        cuts: canvas.axis.cuts().into_iter().map(CutView::from).collect(),
        left_out,
        quiet,
        clocks: clocks(sheet),
    }
}

/// What the order of moments of different nodes is worth.
fn clocks(sheet: &Sheet) -> Vec<Shown> {
    let Some(first) = sheet.parts.first().filter(|_| sheet.has_nodes()) else {
        return Vec::new();
    };
    let others = sheet.parts.iter().filter(|part| part.node != first.node);
    let told =
        others.map(|part| format!("clock of {}: {}", part.node, part.clock.words(&first.node)));
    let mut told: Vec<Shown> = told.map(Shown::new).collect();
    told.dedup();
    told
}

impl Canvas<'_> {
    fn group(&self, sheet: &Sheet, part: &[Serial], conflicts: &[Conflict]) -> Group {
        let mut group = Group {
            height: AXIS,
            top: AXIS,
            lanes: Vec::new(),
            bands: Vec::new(),
        };
        let mut places = Vec::new();
        for serial in part {
            let Some(lane) = sheet.lanes.get(*serial) else {
                continue;
            };
            let (name, ids) = self.title(lane);
            self.lane(&mut group, lane, name, ids);
            places.push(*serial);
        }
        for conflict in conflicts {
            let of = |serial: &Serial| places.iter().position(|place| place == serial);
            let mut at: Vec<usize> = conflict.lanes.iter().filter_map(of).collect();
            at.sort_unstable();
            let ends = at.first().zip(at.last());
            let ends = ends.map(|(first, last)| (&group.lanes[*first], &group.lanes[*last]));
            if let Some((first, last)) = ends {
                let (y, to) = (first.y + 4, last.y + last.height - 6);
                group.bands.push(self.band(conflict, y, to - y));
            }
        }
        group
    }

    fn title(&self, lane: &Lane) -> (Shown, Shown) {
        let name = self.narrator.whose(lane);
        let id = lane
            .sandbox_id
            .as_deref()
            .map(|id| format!("sandbox {}", short_id(id)));
        let netns = lane.netns.map(|netns| format!("netns {}", netns.inode));
        let left_out = match lane.left_out {
            0 => None,
            number => Some(format!("{number} more events are not shown")),
        };
        let ids: Vec<String> = [id, netns, lane.path.clone(), left_out]
            .into_iter()
            .flatten()
            .collect();
        (Shown::new(name), Shown::new(ids.join("  ·  ")))
    }

    /// Adds a lane below the others.
    fn lane(&self, group: &mut Group, lane: &Lane, name: Shown, ids: Shown) {
        let y = group.height;
        let (marks, rows) = self.marks(lane);
        let mut at = TITLE + rows * ROW;
        let mut bars = Vec::new();
        for bar in self.bars(lane) {
            bars.push(bars::Bar { y: at, ..bar });
            at += ROW;
        }
        let height = at + MARGIN;
        group.height += height;
        group.lanes.push(LaneView {
            y,
            height,
            name,
            ids,
            bars,
            marks,
        });
    }

    fn band(&self, conflict: &Conflict, y: u32, height: u32) -> Band {
        let (x, width) = self.drawn(Some(conflict.from), conflict.to);
        let until = match conflict.to {
            Some(to) => format!(
                "until {} ({})",
                self.calendar.moment(to),
                length(to.since(conflict.from))
            ),
            None => String::from("to the end of the recording"),
        };
        let from = self.calendar.moment(conflict.from);
        Band {
            x,
            width,
            y,
            height,
            title: Shown::new(format!(
                "{}both have {} from {from} {until}",
                match conflict.certain {
                    true => "conflict: ",
                    false => "",
                },
                conflict.address
            )),
        }
    }

    /// From where to where; what is open goes to the ends of its recording.
    fn span(
        &self,
        lane: &Lane,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> (Percent, Percent) {
        let is_part = !self.sheet.parts.is_empty();
        let began = is_part.then(|| self.sheet.began_of(lane));
        let ended = is_part.then(|| self.sheet.ended_of(lane));
        self.drawn(from.or(began), to.or(ended))
    }

    /// The same; what is open goes to the end of the drawing.
    fn drawn(&self, from: Option<Timestamp>, to: Option<Timestamp>) -> (Percent, Percent) {
        let left = from.map_or(0.0, |from| self.axis.x(from));
        let right = to.map_or(100.0, |to| self.axis.x(to));
        (Percent(left), Percent((right - left).max(0.25)))
    }

    /// From when to when, and how long, in words.
    fn lasted(&self, lane: &Lane, from: Option<Timestamp>, to: Option<Timestamp>) -> String {
        let ended = self.sheet.ended_of(lane);
        let begin = match from {
            Some(from) => format!("from {}", self.calendar.moment(from)),
            None => String::from("from before the recording"),
        };
        let end = match to {
            Some(to) => format!("until {}", self.calendar.moment(to)),
            None => String::from("to the end of the recording"),
        };
        match from.map(|from| length(to.unwrap_or(ended).since(from))) {
            Some(length) => format!("{begin} {end} ({length})"),
            None => format!("{begin} {end}"),
        }
    }
}

impl From<Tick> for TickView {
    fn from(tick: Tick) -> Self {
        Self {
            x: Percent(tick.x),
            anchor: match tick.x {
                ..4.0 => "start",
                96.0.. => "end",
                _ => "middle",
            },
            date_anchor: if tick.x < 60.0 { "start" } else { "end" },
            label: tick.label,
            date: tick.date.unwrap_or_default(),
            minor: tick.minor,
        }
    }
}

impl From<Cut> for CutView {
    fn from(cut: Cut) -> Self {
        Self {
            x: Percent(cut.x),
            label: length(cut.length),
        }
    }
}
