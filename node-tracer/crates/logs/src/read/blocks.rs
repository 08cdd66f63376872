//! Values of several lines whose lines are records of their own.
//!
//! klog writes such a value as `key=<`, its lines behind a tab each, and ` >`.
//! journald and syslog make a record of each line, all of them its writer's
//! (the kubelet's, root's), and records of others stand between them. What is
//! behind the tab may be anybody's: a probe's output, a registry's answer. But
//! nobody can write in front of the tab. So what begins with one is never a
//! record of its own, wherever its beginning is; and what its writer begins
//! without one is, even while a value has no end (the log was filtered, its
//! writer died).

use std::collections::VecDeque;

use super::{lines::LONGEST, ready::Ready};

/// Values at most that wait for their end. The oldest makes room.
const MOST: usize = 16;

/// Whether a message is a line of a value: rsyslog writes a tab as `#011`,
/// journalctl as eight blanks.
pub(super) fn is_inside(message: &[u8]) -> bool {
    [b"\t".as_slice(), b"#011", b"        "]
        .iter()
        .any(|tab| message.starts_with(tab))
}

/// Who has written a line of syslog's (`host ident[pid]`), and where its
/// message begins.
pub(super) fn writer(text: &[u8]) -> Option<(&[u8], usize)> {
    let at = message_at(text)?;
    let head = text.get(..at)?.trim_ascii_end();
    let space = memchr::memrchr(b' ', head)?;
    let host = memchr::memrchr(b' ', head.get(..space)?)?;
    Some((head.get(host..)?, at))
}

/// Where a syslog line's message begins.
pub(super) fn message_at(text: &[u8]) -> Option<usize> {
    let head = text.get(..text.len().min(160))?;
    memchr::memmem::find(head, b": ").map(|at| at + 2)
}

/// The values that have begun, by their writers.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    open: VecDeque<Block>,
    /// Records that are whole.
    whole: VecDeque<Ready>,
}

#[derive(Debug)]
struct Block {
    writer: Vec<u8>,
    ready: Ready,
    /// journald has cut its last line: the next entry goes on with it.
    cut: bool,
    /// A value is open.
    value: bool,
}

impl Blocks {
    /// Whether a record of any writer may belong to one.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes a record in if it begins a value or goes on with one. `cut`:
    /// journald has put the rest of its line into the next entry.
    pub(super) fn take(
        &mut self,
        writer: &[u8],
        message: &[u8],
        cut: bool,
        ready: impl FnOnce() -> Ready,
    ) -> bool {
        let begins = message.ends_with(b"=<");
        let known = self.open.iter().position(|block| block.writer == writer);
        if let Some(mut block) = known.and_then(|at| self.open.remove(at)) {
            let goes_on = is_inside(message) || message.first() == Some(&b' ');
            if !block.cut && !goes_on {
                // Its end is missing.
                self.whole.push_back(block.ready);
            } else {
                let inside = block.cut || !message.starts_with(b" >");
                block.add(message);
                block.value = begins || (block.value && inside);
                block.cut = cut;
                match block.cut || block.value {
                    true => self.open.push_back(block),
                    false => self.whole.push_back(block.ready),
                }
                return true;
            }
        }
        if begins || cut {
            if self.open.len() >= MOST {
                self.whole
                    .extend(self.open.pop_front().map(|old| old.ready));
            }
            self.open.push_back(Block {
                writer: writer.to_vec(),
                ready: ready(),
                cut,
                value: begins,
            });
        }
        begins || cut
    }

    /// The next record that is whole.
    pub(super) fn next(&mut self) -> Option<Ready> {
        self.whole.pop_front()
    }

    /// No record follows.
    pub(super) fn end(&mut self) {
        let open = self.open.drain(..).map(|block| block.ready);
        self.whole.extend(open);
    }
}

impl Block {
    fn add(&mut self, message: &[u8]) {
        let text = String::from_utf8_lossy(message);
        // The tab stays: behind it ` >` ends nothing.
        let (tab, line) = match text.strip_prefix("#011") {
            Some(line) => ("\t", line),
            None => ("", text.as_ref()),
        };
        if self.ready.text.len() + line.len() < LONGEST {
            let joint = if self.cut { "" } else { "\n" };
            self.ready.text.extend([joint, tab, line]);
        }
    }
}
