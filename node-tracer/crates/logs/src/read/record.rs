//! Records that are complete: which of them are given out.

use super::{
    LogReader,
    begin::Form,
    blocks,
    fold::Pending,
    heads,
    journal::{Author, JournalEntry, is_verbose},
    lines::Line,
    ready::Ready,
};

impl LogReader {
    /// A line that belongs to no record. Whether it is given out.
    pub(super) fn plain(&mut self, line: &Line) -> bool {
        let text = self.lines.text(&line.place);
        let bare = text.get(heads::dress(text)..).unwrap_or_default();
        // A tag alone is what somebody has written.
        let text = if bare.is_empty() { text } else { bare };
        if text.trim_ascii().is_empty() {
            return false;
        }
        // What journalctl says itself.
        if text.starts_with(b"-- ") {
            if let Some(boot) = text.strip_prefix(b"-- Boot ")
                && let Some(boot) = boot.get(..32)
                && boot.iter().all(u8::is_ascii_hexdigit)
            {
                self.boot = Some(String::from_utf8_lossy(boot).into_owned());
                return false;
            }
            if text.starts_with(b"-- Logs begin at ")
                || text.starts_with(b"-- Journal begins at ")
                || text == b"-- Reboot --"
                || text == b"-- No entries --"
            {
                return false;
            }
        }
        self.ready.set(text);
        self.ready.plain = true;
        self.ready.line = self.lines.number;
        true
    }

    /// A record is complete. Whether it is given out.
    pub(super) fn finish(&mut self, pending: &Pending) -> bool {
        self.lines.hold(None);
        let form = pending.form;
        let place = (!pending.folded).then(|| pending.place.clone());
        let first = self.told.record(form, place);
        let text = match pending.folded {
            true => self.joined.as_slice(),
            false => self.lines.text(&pending.place),
        };
        // A new month: the year may be new, too.
        let month = match form {
            Form::Short => text.get(..3),
            Form::Klog => text.get(1..4),
            _ => None,
        };
        let turned = month.is_some_and(|month| month != self.month);
        if let (true, Some(Ok(month))) = (turned, month.map(TryInto::try_into)) {
            self.month = month;
        }
        if first || turned {
            let mut ready = Ready::default();
            ready.set(text);
            if let Some(time) = ready.time(form, &mut self.calendar) {
                self.told.time(form, time);
            }
        }
        if self.tenant.is_some() && matches!(form, Form::Cri | Form::CriPartial | Form::Docker) {
            self.others += 1;
            return false;
        }
        match form {
            Form::CriPartial => {
                self.pieces.cri_piece(text);
                return false;
            }
            Form::Cri if !self.pieces.is_empty() => {
                if let Some(whole) = self.pieces.cri_end(text) {
                    self.ready.set(&whole);
                    self.ready.line = pending.line;
                    return self.needles.is_in(&whole);
                }
            }
            Form::Docker => {
                if let Some((whole, time)) = self.pieces.docker(text) {
                    self.ready.set(&whole);
                    self.ready.stamps.extend(time);
                    self.ready.envelopes = 1;
                    self.ready.line = pending.line;
                    return !whole.is_empty() && self.needles.is_in(&whole);
                }
            }
            _ => {}
        }
        if is_verbose(form, text) {
            let entry = JournalEntry::from_verbose(&String::from_utf8_lossy(text));
            self.ready.line = pending.line;
            return self.journal(entry);
        }
        if form.names_a_writer()
            && (text.ends_with(b"=<") || !self.blocks.is_empty())
            && let Some((writer, at)) = blocks::writer(text)
        {
            let message = text.get(at..).unwrap_or_default();
            let ready = || {
                let mut ready = Ready::default();
                ready.set(text);
                ready.line = pending.line;
                ready
            };
            if self.blocks.take(writer, message, false, ready) {
                return false;
            }
        }
        let hit = match pending.folded {
            true => self.needles.is_in(text),
            false => self.needles.hit(&self.lines, &pending.place),
        };
        self.of_container |= hit && self.pathless && matches!(form, Form::Cri | Form::Docker);
        let in_block = || !self.blocks.is_empty() || begins_block(text) || is_in_bytes(text);
        if form == Form::JournalJson && (first || hit || in_block()) {
            let entry = JournalEntry::from_json(&String::from_utf8_lossy(text));
            if let Some(entry) = entry {
                self.ready.line = pending.line;
                return self.journal(entry);
            }
        }
        if hit {
            self.ready.set(text);
            self.ready.line = pending.line;
        }
        hit
    }

    /// An entry of the journal's export, whose first line was taken.
    pub(super) fn exported(&mut self) -> bool {
        let line = self.lines.number;
        let entry = self.export_entry();
        self.told.record(Form::Export, None);
        let stamp = entry.stamp();
        if let Some(time) = stamp.and_then(|stamp| self.calendar.time(&[stamp])) {
            self.told.time(Form::Export, time);
        }
        self.ready.line = line;
        self.journal(entry)
    }

    /// An entry of the journal. Whether it is given out.
    fn journal(&mut self, mut entry: JournalEntry) -> bool {
        if let Some(boot) = entry.boot.take() {
            self.boot = Some(boot);
        }
        let Some(message) = entry.message() else {
            return false;
        };
        let hit = self.needles.is_in(message.as_bytes());
        let in_block = entry.cut || message.ends_with("=<") || !self.blocks.is_empty();
        if !hit && !in_block {
            return false;
        }
        if entry.author() == Author::Other {
            self.others += u64::from(hit);
            return false;
        }
        if in_block {
            let (writer, message, cut) = (entry.writer(), message.to_owned(), entry.cut);
            let line = self.ready.line;
            let ready = || {
                let mut ready = Ready::default();
                std::mem::take(&mut entry).into_ready(&mut ready);
                ready.line = line;
                ready
            };
            let (writer, message) = (writer.as_bytes(), message.as_bytes());
            if self.blocks.take(writer, message, cut, ready) || !hit {
                return false;
            }
        }
        entry.into_ready(&mut self.ready);
        true
    }

    /// Takes the times of each form's last record before it is forgotten.
    pub(super) fn settle(&mut self) {
        for (form, place) in self.told.unsettled() {
            if place.start < self.lines.base() {
                continue;
            }
            let mut ready = Ready::default();
            ready.set(self.lines.text(&place));
            if let Some(time) = ready.time(form, &mut self.calendar) {
                self.told.time(form, time);
            }
        }
    }
}

/// Whether a journal entry's message may be the first of several.
fn begins_block(text: &[u8]) -> bool {
    let ends: [&[u8]; 3] = [b"=<\"", b"=\\u003c\"", b"\"_LINE_BREAK\""];
    ends.iter()
        .any(|end| memchr::memmem::find(text, end).is_some())
}

/// Whether a journal entry's message is written as bytes, in which no word can
/// be found.
fn is_in_bytes(text: &[u8]) -> bool {
    let name = b"\"MESSAGE\"";
    let Some(at) = memchr::memmem::find(text, name) else {
        return false;
    };
    let value = text.get(at + name.len()..).unwrap_or_default();
    let mut value = value.iter().filter(|b| !b" :".contains(b));
    value.next() == Some(&b'[')
}
