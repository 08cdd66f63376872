//! What can be told of a log itself: its forms, its times, what it lacks.

use super::{begin::Form, lines::Place};
use event::clock::Timestamp;
use event::order::Order as _;

/// What was seen of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormCount {
    pub form: Form,
    pub records: u64,
    /// The time of the first one.
    pub first: Option<Timestamp>,
    /// The time of the last one.
    pub last: Option<Timestamp>,
}

/// What had to be assumed, and what is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Times have no year; the file's own time says that it is this one.
    pub assumed_year: Option<i16>,
    /// Times have no zone; they are taken for UTC.
    pub assumed_zone: bool,
    /// Lines that were too long; their rest was cut off.
    pub cut: u64,
    /// Records that could not be understood.
    pub damaged: u64,
    /// Some records name their writers themselves, and nobody vouches for it.
    pub unvouched: bool,
    /// Some records are of a container, and nothing says of which pod.
    pub of_container: bool,
    /// Records that users of the node or containers wrote, which are left out.
    pub others: u64,
    /// The pod that wrote the log, if it is no daemon of the node.
    pub tenant: Option<String>,
    /// It could not be unpacked to its end, and why.
    pub broken_off: Option<String>,
}

impl Gaps {
    /// For people, one a line.
    pub fn texts(&self) -> Vec<String> {
        let mut texts = Vec::new();
        if let Some(why) = &self.broken_off {
            texts.push(format!("what the log says after its end here: {why}"));
        }
        if let Some(year) = self.assumed_year {
            texts.push(format!(
                "the year of the log's times: they say none, and the file was last written in or \
                 after {year}, so {year} was taken (--year names another)"
            ));
        }
        if self.assumed_zone {
            texts.push(String::from(
                "the time zone of the log's times: they say none, so UTC was taken \
                 (--utc-offset names another)",
            ));
        }
        if self.cut > 0 {
            let kib = super::lines::LONGEST >> 10;
            texts.push(format!(
                "the ends of {} records of the log that are longer than {kib} KiB",
                self.cut
            ));
        }
        match &self.tenant {
            Some(pod) if self.others > 0 => texts.push(format!(
                "what {} of the log say: pod {pod} wrote them, which is no daemon of the node",
                records(self.others)
            )),
            _ if self.others > 0 => texts.push(format!(
                "what {} of the log say: users of the node or containers wrote them, not the \
                 daemons of the node",
                records(self.others)
            )),
            _ => {}
        }
        if self.unvouched {
            texts.push(String::from(
                "who wrote the log's lines: any user of the node can write such lines in any \
                 name (journalctl -o json says who did)",
            ));
        }
        if self.of_container {
            texts.push(String::from(
                "which pod wrote the log's lines: a container prints what it wants (under its \
                 path in /var/log/pods the log says whose it is)",
            ));
        }
        if self.damaged > 0 {
            texts.push(format!(
                "what {} records of the log say: they are damaged",
                self.damaged
            ));
        }
        texts
    }
}

/// So many of them, in words.
fn records(count: u64) -> String {
    match count {
        1 => String::from("1 record"),
        _ => format!("{count} records"),
    }
}

#[derive(Debug, Default)]
pub(super) struct FormCounts {
    forms: [One; Form::ALL.len()],
}

#[derive(Clone, Debug, Default)]
struct One {
    records: u64,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    /// The last record, as long as its time is not known.
    place: Option<Place>,
}

impl FormCounts {
    fn of(&mut self, form: Form) -> &mut One {
        // One for each, by the array's length.
        &mut self.forms[form as usize]
    }

    /// A record that stands at a place in the buffer. Whether it is the first.
    pub(super) fn record(&mut self, form: Form, place: Option<Place>) -> bool {
        let one = self.of(form);
        one.records += 1;
        if place.is_some() {
            one.place = place;
        }
        one.records == 1
    }

    /// The time of a record, in their order.
    pub(super) fn time(&mut self, form: Form, time: Timestamp) {
        let one = self.of(form);
        one.first.get_or_insert(time);
        one.last = Some(time);
    }

    /// The last records of each form whose times are not known.
    pub(super) fn unsettled(&mut self) -> Vec<(Form, Place)> {
        let forms = Form::ALL.iter().zip(&mut self.forms);
        let mut places: Vec<(Form, Place)> = forms
            .filter_map(|(form, one)| Some((*form, one.place.take()?)))
            .collect();
        places.order_by_key(|(_, place)| place.start);
        places
    }

    pub(super) fn seen(&self) -> Vec<FormCount> {
        let forms = Form::ALL.into_iter().zip(&self.forms);
        let seen = forms.filter(|(_, one)| one.records > 0);
        seen.map(|(form, one)| FormCount {
            form,
            records: one.records,
            first: one.first,
            last: one.last,
        })
        .collect()
    }
}
