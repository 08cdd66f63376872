//! Points in time from what a log's lines say of theirs, and from what stands
//! around them: years and zones that are missing, uptimes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{
    LogOptions,
    stamp::{SECOND, Stamp, Wall, year_of},
};
use event::clock::Timestamp;

/// Zones differ from each other by multiples of this.
const QUARTER: i64 = 900 * SECOND;
/// Two times of one line may be so far apart: who passes lines on may be slow.
const SAME_LINE: i64 = 120 * SECOND;
/// A time without a fraction is replaced by one beside it that is no further
/// away.
const REFINE: i64 = 2 * SECOND;
/// No zone is further from UTC.
const FARTHEST: i64 = 14 * 3_600 * SECOND;
/// A day without a leap second.
const DAY: i64 = 86_400 * SECOND;

#[derive(Debug)]
pub(super) struct Calendar {
    options: LogOptions,
    /// When the last line was written at the latest, ns since 1970.
    modified: i64,
    /// The zone's offset by lines that have both a local time and a full one.
    learned: Option<i64>,
    /// The last point in time: a year that is missing is the one that comes
    /// nearest to it.
    anchor: Option<i64>,
    /// The time of the last line.
    last: i64,
    /// When the kernel started, ns since 1970.
    started: Option<i64>,
    /// A given year has been used.
    begun: bool,
    /// The year that was taken from the file's time.
    pub(super) assumed_year: Option<i16>,
    /// UTC was taken for want of anything better.
    pub(super) assumed_zone: bool,
}

impl Calendar {
    /// Of a log whose last line was written then at the latest.
    pub(super) fn new(options: LogOptions, modified: SystemTime) -> Self {
        Self {
            options,
            modified: nanos(modified),
            learned: None,
            anchor: None,
            last: 0,
            started: None,
            begun: false,
            assumed_year: None,
            assumed_zone: false,
        }
    }

    /// Looks at a line ahead: zone and year are known by the first that says
    /// them, for all lines before it, too.
    pub(super) fn learn(&mut self, stamps: &[Stamp]) {
        if let Some(exact) = exact(stamps) {
            if self.learned.is_none() {
                self.learn_zone(stamps, exact);
            }
            self.anchor.get_or_insert(exact);
        }
        for stamp in stamps {
            if let Stamp::Wall(wall) = stamp
                && let Some(year) = wall.year
                && let Some(local) = wall.in_year(year)
            {
                self.anchor.get_or_insert(local);
            }
        }
    }

    /// The kernel has said when it started.
    pub(super) fn started(&mut self, uptime: i64, at: i64) {
        self.started = Some(at.saturating_sub(uptime));
    }

    /// A line's time, by all its stamps, the outermost first. Of a time
    /// without a fraction only the second is known, and that it is not before
    /// the line before it.
    pub(super) fn time(&mut self, stamps: &[Stamp]) -> Option<Timestamp> {
        let mut nanos = self.nanos(stamps)?;
        if nanos % SECOND == 0 && (nanos..nanos + SECOND).contains(&self.last) {
            nanos = self.last;
        }
        self.last = nanos;
        timestamp(nanos)
    }

    fn nanos(&mut self, stamps: &[Stamp]) -> Option<i64> {
        let base = match exact(stamps) {
            Some(exact) => {
                self.learn_zone(stamps, exact);
                exact
            }
            None => match stamps.iter().find_map(|stamp| wall(*stamp)) {
                Some(wall) => self.complete(wall)?,
                None => {
                    let started = self.started?;
                    let uptime = stamps.iter().find_map(|stamp| uptime(*stamp))?;
                    return Some(started.saturating_add(uptime));
                }
            },
        };
        self.anchor = Some(base);
        if let Some(uptime) = stamps.iter().find_map(|stamp| uptime(*stamp)) {
            self.started = Some(base.saturating_sub(uptime));
        }
        Some(refined(stamps, base))
    }

    /// The zone, by a local time beside a point in time.
    fn learn_zone(&mut self, stamps: &[Stamp], exact: i64) {
        for wall in stamps.iter().filter_map(|stamp| wall(*stamp)) {
            let Some(local) = nearest(wall, exact) else {
                continue;
            };
            let apart = local - exact;
            let offset = (apart + QUARTER / 2).div_euclid(QUARTER) * QUARTER;
            if (apart - offset).abs() <= SAME_LINE && offset.abs() <= FARTHEST {
                self.learned = Some(offset / SECOND);
                return;
            }
        }
    }

    /// A local time with all that it lacks.
    fn complete(&mut self, wall: Wall) -> Option<i64> {
        let offset = match (self.options.offset, self.learned) {
            (Some(given), _) => i64::from(given),
            (None, Some(learned)) => learned,
            (None, None) => {
                self.assumed_zone = true;
                0
            }
        };
        let local = match (wall.year, self.options.year, self.anchor) {
            (Some(year), ..) => wall.in_year(year)?,
            (None, Some(given), _) if !self.begun => {
                self.begun = true;
                wall.in_year(given)
                    .or_else(|| nearest(wall, self.modified))?
            }
            (None, _, Some(anchor)) => nearest(wall, anchor + offset * SECOND)?,
            (None, ..) => {
                let latest = self.modified + offset * SECOND;
                let year = year_of(latest);
                // The file's time and the writer's clock may differ a little.
                let fits = |local: &i64| *local <= latest + DAY;
                let local = (0..=4).find_map(|back| wall.in_year(year - back).filter(fits))?;
                self.assumed_year = Some(year_of(local));
                local
            }
        };
        Some(local - offset * SECOND)
    }
}

/// The innermost point in time: it is the writer's own.
fn exact(stamps: &[Stamp]) -> Option<i64> {
    stamps.iter().rev().find_map(|stamp| match stamp {
        Stamp::Instant(nanos, _) => Some(*nanos),
        _ => None,
    })
}

fn wall(stamp: Stamp) -> Option<Wall> {
    match stamp {
        Stamp::Wall(wall) => Some(wall),
        _ => None,
    }
}

fn uptime(stamp: Stamp) -> Option<i64> {
    match stamp {
        Stamp::Uptime(nanos) => Some(nanos),
        _ => None,
    }
}

/// A local time in the year that brings it nearest to another.
fn nearest(wall: Wall, to: i64) -> Option<i64> {
    let year = wall.year.unwrap_or(year_of(to));
    let years = match wall.year {
        Some(_) => 0..=0,
        // 29 February is up to four years away, once in a century eight.
        None => -8..=8,
    };
    let local = years.filter_map(|more: i16| wall.in_year(year.checked_add(more)?));
    local.min_by_key(|local| local.abs_diff(to))
}

/// The same time with a fraction of a second, if another of the stamps has
/// one: writers leave it out that journald and klog know.
fn refined(stamps: &[Stamp], base: i64) -> i64 {
    if base % SECOND != 0 {
        return base;
    }
    let apart = |stamp: &Stamp| match stamp {
        Stamp::Instant(nanos, 1..) => Some(*nanos - base),
        Stamp::Wall(wall) if wall.digits > 0 => {
            let apart = wall.of_day - base.rem_euclid(DAY);
            Some((apart + QUARTER / 2).rem_euclid(QUARTER) - QUARTER / 2)
        }
        _ => None,
    };
    // The innermost of several.
    let mut near = stamps.iter().rev().filter_map(apart);
    let near = near.find(|apart| apart.abs() <= REFINE);
    base.saturating_add(near.unwrap_or(0))
}

fn nanos(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

fn timestamp(nanos: i64) -> Option<Timestamp> {
    // Nothing that this tool reads was written before 1970.
    let since = Duration::from_nanos(u64::try_from(nanos).ok()?);
    Some(Timestamp::from(UNIX_EPOCH + since))
}
