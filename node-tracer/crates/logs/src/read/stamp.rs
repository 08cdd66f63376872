//! Times as logs write them: with a year or without, with a zone or without.

use jiff::civil;

/// Nanoseconds in a second.
pub(super) const SECOND: i64 = 1_000_000_000;

/// A time as it stands in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    /// Nanoseconds since 1970, and how many digits the fraction has.
    Instant(i64, u8),
    /// What the clock on some wall showed.
    Wall(Wall),
    /// Nanoseconds since the kernel started.
    Uptime(i64),
}

/// What a clock showed, in whatever zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wall {
    /// None, if it stands nowhere.
    pub(super) year: Option<i16>,
    month: i8,
    day: i8,
    /// Nanoseconds since midnight.
    pub(super) of_day: i64,
    /// How many digits its fraction has.
    pub(super) digits: u8,
}

impl Wall {
    /// As nanoseconds since 1970 if the zone were UTC, in that year. `None` if
    /// the year has no such day.
    pub(super) fn in_year(self, year: i16) -> Option<i64> {
        let date = civil::Date::new(year, self.month, self.day).ok()?;
        let days = date.duration_since(EPOCH).as_hours() / 24;
        days.checked_mul(86_400 * SECOND)?.checked_add(self.of_day)
    }
}

const EPOCH: civil::Date = civil::date(1970, 1, 1);

/// The year of a point in time, in UTC.
pub(super) fn year_of(nanos: i64) -> i16 {
    let second = nanos.div_euclid(SECOND);
    jiff::Timestamp::from_second(second)
        .map(|time| jiff::tz::Offset::UTC.to_datetime(time).year())
        .unwrap_or(1970)
}

/// Reads from left to right. All that it takes is ASCII.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a>(pub(super) &'a str);

impl<'a> Cursor<'a> {
    fn peek(self) -> Option<u8> {
        self.0.as_bytes().first().copied()
    }

    /// Passes over so many bytes, of which all are known to be ASCII.
    fn skip(&mut self, bytes: usize) {
        self.0 = self.0.get(bytes..).unwrap_or_default();
    }

    pub(super) fn eat(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.skip(1))
    }

    /// Takes a number of so many digits.
    pub(super) fn number(&mut self, digits: usize) -> Option<i64> {
        let text = self.0.get(..digits)?;
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        self.skip(digits);
        text.parse().ok()
    }

    /// Takes the digits that are here, at least one and no more than that.
    pub(super) fn digits(&mut self, most: usize) -> Option<&'a str> {
        let length = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let text = self.0.get(..length)?;
        (1..=most).contains(&length).then(|| self.skip(length))?;
        Some(text)
    }

    /// Takes a fraction, if there is one: nanoseconds and digits.
    fn fraction(&mut self, points: &[u8]) -> Option<(i64, u8)> {
        let mut rest = *self;
        if !rest.peek().is_some_and(|byte| points.contains(&byte)) {
            return Some((0, 0));
        }
        rest.skip(1);
        let Some(digits) = rest.digits(usize::MAX) else {
            return Some((0, 0));
        };
        *self = rest;
        let nanos = digits.bytes().chain(std::iter::repeat(b'0')).take(9);
        let nanos = nanos.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        Some((nanos, digits.len().min(9) as u8))
    }

    /// `20:21:27`, with a fraction or without: nanoseconds since midnight.
    fn clock(&mut self, points: &[u8]) -> Option<(i64, u8)> {
        let hour = self.number(2)?;
        self.eat(b':')?;
        let minute = self.number(2)?;
        self.eat(b':')?;
        let second = self.number(2)?;
        // A leap second is the one before.
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let (nanos, digits) = self.fraction(points)?;
        let seconds = hour * 3_600 + minute * 60 + second.min(59);
        Some((seconds * SECOND + nanos, digits))
    }

    fn month(&mut self) -> Option<i8> {
        let name = self.0.get(..3)?;
        let month = MONTHS.iter().position(|month| *month == name)?;
        self.skip(3);
        i8::try_from(month + 1).ok()
    }
}

/// English month names, short.
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// English weekday names, short.
const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

fn wall(year: Option<i64>, month: i64, day: i64, clock: (i64, u8)) -> Option<Wall> {
    let wall = Wall {
        year: match year {
            Some(year) => Some(i16::try_from(year).ok()?),
            None => None,
        },
        month: i8::try_from(month).ok()?,
        day: i8::try_from(day).ok()?,
        of_day: clock.0,
        digits: clock.1,
    };
    // A leap year has every day.
    wall.in_year(wall.year.unwrap_or(2000)).map(|_| wall)
}

/// With its zone it is a point in time.
fn zoned(wall: Wall, offset: i64) -> Option<Stamp> {
    let utc = wall.in_year(wall.year?)?;
    let nanos = utc.checked_sub(offset * SECOND)?;
    Some(Stamp::Instant(nanos, wall.digits))
}

/// `Dec 12 20:21:27`, `Dec  2 20:21:27.123456`: syslog's, and journalctl's
/// `short` and `short-precise`.
pub(super) fn short(text: &str) -> Option<(Stamp, &str)> {
    let mut at = Cursor(text);
    let month = at.month()?;
    at.eat(b' ')?;
    let _padding = at.eat(b' ');
    let day = at.digits(2)?.parse().ok()?;
    at.eat(b' ')?;
    let clock = at.clock(b".")?;
    Some((Stamp::Wall(wall(None, month.into(), day, clock)?), at.0))
}

/// `2023-11-05T10:11:12.123+08:00` and its relatives: a space instead of the
/// `T`, a comma for the point, `+0800`, ` +0800 CST`, no zone.
pub(super) fn iso(text: &str) -> Option<(Stamp, &str)> {
    let mut at = Cursor(text);
    let year = at.number(4)?;
    at.eat(b'-')?;
    let month = at.number(2)?;
    at.eat(b'-')?;
    let day = at.number(2)?;
    at.eat(b'T').or_else(|| at.eat(b' '))?;
    let wall = wall(Some(year), month, day, at.clock(b".,")?)?;
    let (offset, rest) = zone(at.0);
    let stamp = match offset {
        Some(offset) => zoned(wall, offset)?,
        None => Stamp::Wall(wall),
    };
    Some((stamp, rest))
}

/// An offset behind a time, with a space between them or without.
fn zone(text: &str) -> (Option<i64>, &str) {
    if let Some(rest) = text.strip_prefix('Z') {
        return (Some(0), rest);
    }
    if let Some((offset, rest)) = numeric_zone(text) {
        return (Some(offset), rest);
    }
    match text.strip_prefix(' ').and_then(numeric_zone) {
        // Go prints the zone's name, too.
        Some((offset, rest)) => {
            let named = rest.strip_prefix(' ').and_then(|rest| {
                let length = rest.bytes().take_while(u8::is_ascii_uppercase).count();
                (2..=5).contains(&length).then(|| rest.get(length..))?
            });
            (Some(offset), named.unwrap_or(rest))
        }
        None => (None, text),
    }
}

/// `+08:00`, `+0800`, `+08`.
fn numeric_zone(text: &str) -> Option<(i64, &str)> {
    let mut at = Cursor(text);
    let sign = match at.peek()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    at.skip(1);
    let hours = at.number(2)?;
    let mut minutes_at = at;
    let _colon = minutes_at.eat(b':');
    let minutes = match minutes_at.number(2) {
        Some(minutes) => {
            at = minutes_at;
            minutes
        }
        None => 0,
    };
    let ends = !at.peek().is_some_and(|byte| byte.is_ascii_alphanumeric());
    (hours <= 14 && minutes < 60 && ends).then_some((sign * (hours * 3_600 + minutes * 60), at.0))
}

/// Zones by name, where a name means one zone.
fn named_zone(name: &str) -> Option<i64> {
    let hours = match name {
        "UTC" | "GMT" | "Z" | "WET" => 0,
        "CET" | "WEST" => 1,
        "CEST" | "EET" => 2,
        "EEST" | "MSK" => 3,
        "JST" | "KST" => 9,
        "EDT" => -4,
        "PST" => -8,
        "PDT" => -7,
        _ => {
            let (offset, rest) = numeric_zone(name)?;
            return rest.is_empty().then_some(offset);
        }
    };
    Some(hours * 3_600)
}

/// `Sun 2023-11-05 10:11:12 UTC`: journalctl's `short-full` and `with-unit`.
/// A zone whose name is not known is left out.
pub(super) fn full(text: &str) -> Option<(Stamp, &str)> {
    let (weekday, rest) = text.split_once(' ')?;
    WEEKDAYS.contains(&weekday).then_some(())?;
    let (stamp, rest) = iso(rest)?;
    let Stamp::Wall(wall) = stamp else {
        return Some((stamp, rest));
    };
    let word = rest.strip_prefix(' ')?;
    let (name, after) = word.split_at(word.find([' ', ',']).unwrap_or(word.len()));
    let letters = name.bytes().all(|byte| byte.is_ascii_uppercase());
    match named_zone(name) {
        Some(offset) => Some((zoned(wall, offset)?, after)),
        None if letters && (2..=5).contains(&name.len()) => Some((stamp, after)),
        None => Some((stamp, rest)),
    }
}

/// `2017/12/13 14:19:24.5`: Go's log package.
pub(super) fn slashes(text: &str) -> Option<(Stamp, &str)> {
    let mut at = Cursor(text);
    let year = at.number(4)?;
    at.eat(b'/')?;
    let month = at.number(2)?;
    at.eat(b'/')?;
    let day = at.number(2)?;
    at.eat(b' ')?;
    let wall = wall(Some(year), month, day, at.clock(b".")?)?;
    Some((Stamp::Wall(wall), at.0))
}

/// `Sun Nov  5 10:11:12 2023`: `dmesg -T`.
pub(super) fn ctime(text: &str) -> Option<(Stamp, &str)> {
    let (weekday, rest) = text.split_once(' ')?;
    WEEKDAYS.contains(&weekday).then_some(())?;
    let (stamp, rest) = short(rest)?;
    let Stamp::Wall(short) = stamp else {
        return None;
    };
    let mut at = Cursor(rest);
    at.eat(b' ')?;
    let year = Some(i16::try_from(at.number(4)?).ok()?);
    Some((Stamp::Wall(Wall { year, ..short }), at.0))
}

/// `Okt 05 10:11:12`, `Dez  5 10:11:12`: the month in any language. Without a
/// time, if its name is not known.
pub(super) fn local(text: &str) -> Option<(Option<Stamp>, &str)> {
    let (name, rest) = text.split_once(' ')?;
    let mut at = Cursor(rest.trim_start_matches(' '));
    let day = at.digits(2)?.parse().ok()?;
    at.eat(b' ')?;
    let clock = at.clock(b".")?;
    let stamp = month_of(name).and_then(|month| wall(None, month, day, clock));
    Some((stamp.map(Stamp::Wall), at.0))
}

/// A month by its short name, in the languages of locales that are common.
fn month_of(name: &str) -> Option<i64> {
    let name = name.trim_end_matches('.').to_lowercase();
    // Chinese, Japanese and Korean count them.
    let counted = name.trim_end_matches(['\u{6708}', '\u{c6d4}']);
    if let (true, Ok(month @ 1..=12)) = (counted.len() < name.len(), counted.parse()) {
        return Some(month);
    }
    let is_it = |names: &&str| names.split(' ').any(|other| other == name);
    let at = LOCAL_MONTHS.iter().position(is_it)?;
    i64::try_from(at + 1).ok()
}

/// Short names: German, French, Spanish, Italian, Portuguese, Dutch, Swedish,
/// Norwegian, Danish, Polish, Czech, Turkish, Finnish, Russian, Ukrainian.
const LOCAL_MONTHS: [&str; 12] = [
    "jan janv ene gen sty led oca tammi \u{44f}\u{43d}\u{432} \u{441}\u{456}\u{447}",
    "feb f\u{e9}vr fev lut \u{fa}no \u{15f}ub helmi \u{444}\u{435}\u{432} \u{43b}\u{44e}\u{442}",
    "m\u{e4}r m\u{e4}rz mrz mar mars mrt b\u{159}e maalis \u{43c}\u{430}\u{440} \u{431}\u{435}\u{440}",
    "apr avr avril abr kwi dub nis huhti \u{430}\u{43f}\u{440} \u{43a}\u{432}\u{456}",
    "mai may mag mei maj kv\u{11b} touko \u{43c}\u{430}\u{439} \u{43c}\u{430}\u{44f} \u{442}\u{440}\u{430}",
    "jun juin giu cze \u{10d}en \u{10d}vn haz kes\u{e4} \u{438}\u{44e}\u{43d} \u{447}\u{435}\u{440}",
    "jul juil lug lip \u{10d}ec \u{10d}vc tem hein\u{e4} \u{438}\u{44e}\u{43b} \u{43b}\u{438}\u{43f}",
    "aug ao\u{fb}t ago sie srp a\u{11f}u elo \u{430}\u{432}\u{433} \u{441}\u{435}\u{440}",
    "sep sept set wrz z\u{e1}\u{159} eyl syys \u{441}\u{435}\u{43d} \u{441}\u{435}\u{43d}\u{442} \u{432}\u{435}\u{440}",
    "okt oct ott out pa\u{17a} \u{159}\u{ed}j eki loka \u{43e}\u{43a}\u{442} \u{436}\u{43e}\u{432}",
    "nov lis kas marras \u{43d}\u{43e}\u{44f} \u{43d}\u{43e}\u{44f}\u{431}",
    "dez d\u{e9}c dic dec des gru pro ara joulu \u{434}\u{435}\u{43a} \u{433}\u{440}\u{443}",
];

/// `1105 10:11:12.123456`: klog, behind its letter.
pub(super) fn klog(text: &str) -> Option<(Stamp, &str)> {
    let mut at = Cursor(text);
    let month = at.number(2)?;
    let day = at.number(2)?;
    at.eat(b' ')?;
    let clock = at.clock(b".")?;
    Some((Stamp::Wall(wall(None, month, day, clock)?), at.0))
}

/// `1699179072.123456`: seconds since 1970, with a fraction.
pub(super) fn unix(text: &str) -> Option<(Stamp, &str)> {
    let mut at = Cursor(text);
    let seconds: i64 = at.digits(11)?.parse().ok()?;
    let (nanos, digits) = at.fraction(b".")?;
    let recent = (100_000_000..100_000_000_000).contains(&seconds);
    let nanos = seconds.checked_mul(SECOND)?.checked_add(nanos)?;
    (recent && digits > 0).then_some((Stamp::Instant(nanos, digits), at.0))
}

/// `[12345.678901] `, `[    0.000000] `: since the kernel started.
pub(super) fn uptime(text: &str) -> Option<(Stamp, &str)> {
    let padded = text.strip_prefix('[')?.trim_start_matches(' ');
    let mut at = Cursor(padded);
    let seconds: i64 = at.digits(9)?.parse().ok()?;
    let (nanos, digits) = at.fraction(b".")?;
    // The thread that wrote it may stand beside it.
    if let Some(rest) = at.0.strip_prefix("][") {
        let thread = rest.split_once(']')?.0.trim_start();
        let named = thread.starts_with(['T', 'C']);
        named.then_some(())?;
        at.0 = rest.get(rest.find(']')?..)?;
    }
    at.eat(b']')?;
    (digits > 0).then_some((Stamp::Uptime(seconds * SECOND + nanos), at.0))
}

/// A JSON number: seconds, milliseconds, microseconds or nanoseconds since
/// 1970, whichever makes it a time of these decades.
pub(super) fn epoch(number: f64) -> Option<Stamp> {
    let (seconds, digits) = match number {
        n if (1e8..1e11).contains(&n) => (n, 6),
        n if (1e11..1e14).contains(&n) => (n / 1e3, 6),
        n if (1e14..1e17).contains(&n) => (n / 1e6, 6),
        n if (1e17..9e18).contains(&n) => (n / 1e9, 6),
        _ => return None,
    };
    // A double has room for microseconds.
    let micros = (seconds * 1e6).round() as i64;
    Some(Stamp::Instant(micros.checked_mul(1_000)?, digits))
}

/// Any time with a date, of a member or field called `time`.
pub(super) fn any(text: &str) -> Option<Stamp> {
    if let Ok(number) = text.parse() {
        return epoch(number);
    }
    let (stamp, _) = iso(text)
        .or_else(|| slashes(text))
        .or_else(|| short(text))?;
    Some(stamp)
}

#[cfg(test)]
mod tests;
