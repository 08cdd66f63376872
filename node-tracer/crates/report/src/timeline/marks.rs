//! What happens at one moment: a letter in a shape each, so that colour alone
//! says nothing.

use super::{
    super::lanes::{Lane, Mark, MarkKind},
    Canvas, Group, Percent, Shown,
};
use event::order::Order as _;

/// The least distance of two signs in one row, percent.
const DISTANCE: f64 = 3.6;
/// Rows of signs in one lane.
const MAX_ROWS: usize = 3;
/// About as wide is a character beside a sign, percent of a wide drawing.
const CHARACTER: f64 = 0.75;

#[derive(Debug)]
pub struct Sign {
    /// Its kind; what is put together is of the first's.
    kind: MarkKind,
    pub x: Percent,
    /// px below the lane's top.
    pub y: u32,
    pub class: &'static str,
    pub shape: Shape,
    pub letter: String,
    /// What is written beside it where there is room.
    pub label: String,
    pub label_left: bool,
    pub title: Shown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Circle,
    /// What is taken away.
    Square,
    /// What makes it worse.
    Diamond,
    Triangle,
}

/// What a sign means.
#[derive(Debug)]
pub struct Legend {
    pub class: &'static str,
    pub shape: Shape,
    pub letter: &'static str,
    pub meaning: &'static str,
}

impl Shape {
    /// As a path around 0,0.
    pub fn path(self) -> &'static str {
        match self {
            Self::Circle => "M-8 0a8 8 0 1 0 16 0a8 8 0 1 0 -16 0z",
            Self::Square => "M-7.5 -7.5h15v15h-15z",
            Self::Diamond => "M0 -10.5L10.5 0L0 10.5L-10.5 0z",
            Self::Triangle => "M0 -10L10.5 8.5L-10.5 8.5z",
        }
    }
}

/// Looks and words of a kind.
fn looks(kind: MarkKind) -> Legend {
    use Shape::{Circle, Diamond, Square, Triangle};
    let (class, shape, letter, meaning) = match kind {
        MarkKind::Add => ("good", Circle, "A", "CNI ADD"),
        MarkKind::GivenAgain => ("bad", Diamond, "R", "address given again"),
        MarkKind::AddFailed => ("bad", Triangle, "A", "CNI ADD failed"),
        MarkKind::Del => ("calm", Square, "D", "CNI DEL"),
        MarkKind::DelFailed => ("bad", Triangle, "D", "CNI DEL failed"),
        MarkKind::NotDone => ("bad", Triangle, "N", "call without effect"),
        MarkKind::Terminating => ("calm", Square, "T", "pod Terminating"),
        MarkKind::PodDeleted => ("warn", Square, "P", "pod deleted"),
        MarkKind::NotListed => ("warn", Square, "P", "pod not listed"),
        MarkKind::Freed => ("warn", Diamond, "F", "reservation freed"),
        MarkKind::Made => ("calm", Circle, "S", "sandbox made"),
        MarkKind::Removed => ("calm", Square, "S", "sandbox removed"),
        MarkKind::StartFailed => ("bad", Triangle, "S", "start failed"),
        MarkKind::EndpointWritten => ("calm", Circle, "E", "endpoint written"),
        MarkKind::EndpointDeleted => ("warn", Square, "E", "endpoint deleted"),
        MarkKind::Killed => ("bad", Triangle, "K", "killed for memory"),
        MarkKind::Waiting => ("warn", Diamond, "W", "device waited for"),
        MarkKind::Source => ("calm", Diamond, "Q", "source silent or back"),
        MarkKind::Lost => ("bad", Triangle, "L", "records lost"),
    };
    Legend {
        class,
        shape,
        letter,
        meaning,
    }
}

/// What the signs that occur mean.
pub fn legend(groups: &[Group]) -> Vec<Legend> {
    let lanes = groups.iter().flat_map(|group| &group.lanes);
    let mut kinds: Vec<MarkKind> = lanes
        .flat_map(|lane| lane.marks.iter().map(|sign| sign.kind))
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.into_iter().map(looks).collect()
}

impl Canvas<'_> {
    /// A lane's signs, and how many rows they take.
    pub(super) fn marks(&self, lane: &Lane) -> (Vec<Sign>, u32) {
        let mut marks: Vec<&Mark> = lane.marks.iter().collect();
        marks.order_by_key(|mark| mark.at);
        let mut signs: Vec<Sign> = Vec::new();
        // The last sign of each row.
        let mut rows: Vec<usize> = Vec::new();
        for mark in marks {
            let x = self.axis.x(mark.at);
            let free = |place: &usize| x - signs[*place].x.0 >= DISTANCE;
            let row = match rows.iter().position(free) {
                Some(row) => row,
                None if rows.len() < MAX_ROWS => {
                    rows.push(0);
                    rows.len() - 1
                }
                None => {
                    let last = rows[MAX_ROWS - 1];
                    signs[last].join(&self.told(mark));
                    continue;
                }
            };
            rows[row] = signs.len();
            let Legend {
                class,
                shape,
                letter,
                meaning,
            } = looks(mark.kind);
            signs.push(Sign {
                kind: mark.kind,
                x: Percent(x),
                y: super::TITLE + row as u32 * super::ROW + super::ROW / 2,
                class,
                shape,
                letter: letter.to_owned(),
                label: meaning.to_owned(),
                label_left: false,
                title: Shown::new(self.told(mark)),
            });
        }
        label(&mut signs);
        (signs, rows.len() as u32)
    }

    /// A mark in words.
    pub(super) fn told(&self, mark: &Mark) -> String {
        let meaning = looks(mark.kind).meaning;
        let mut text = format!("{}  {meaning}", self.calendar.moment(mark.at));
        for address in &mark.addresses {
            text.push_str(&format!(" {address}"));
        }
        if !mark.text.is_empty() {
            text.push_str(&format!(": {}", mark.text));
        }
        text
    }
}

impl Sign {
    /// Takes another one in, for which there is no room.
    fn join(&mut self, told: &str) {
        let number = self.letter.strip_prefix('+');
        let number: usize = number.and_then(|number| number.parse().ok()).unwrap_or(1);
        self.letter = format!("+{}", number + 1);
        self.title = Shown::new(format!("{}; {told}", self.title));
        self.label.clear();
    }
}

/// Keeps labels only where they run into nothing.
fn label(signs: &mut [Sign]) {
    let wide = |sign: &Sign| 1.6 + sign.label.chars().count() as f64 * CHARACTER;
    for place in 0..signs.len() {
        let sign = &signs[place];
        let same_row = |other: &&Sign| other.y == sign.y;
        let next = signs[place + 1..].iter().find(same_row);
        let before = signs[..place].iter().rev().find(same_row);
        let right = next.map_or(100.0, |next| next.x.0 - 1.0);
        let left = before.map_or(0.0, |before| match before.label_left {
            false if !before.label.is_empty() => before.x.0 + wide(before),
            _ => before.x.0 + 1.0,
        });
        let fits_right = sign.x.0 + wide(sign) <= right;
        let fits_left = sign.x.0 - wide(sign) >= left;
        let sign = &mut signs[place];
        match (fits_right, fits_left) {
            (true, _) => {}
            (false, true) => sign.label_left = true,
            (false, false) => sign.label.clear(),
        }
    }
}
