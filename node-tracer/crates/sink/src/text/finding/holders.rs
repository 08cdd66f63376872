//! What holds a namespace, or is stuck: one line each, and its stack.

use super::{Block, LISTED, VALUE};
use crate::text::{
    memory::{Memory, Printed},
    style::{Style, count, moment, short_id, task},
};
use event::{
    NotStuck,
    finding::{Holder, Rule},
    wording::{escape::Printable, stack},
};

impl Block<'_> {
    fn holders_label(&self) -> &'static str {
        match self.finding.rule {
            Rule::BlockedTask => "task",
            _ => "held by",
        }
    }

    /// How many, for an update.
    pub(super) fn holder_count(&mut self) {
        let (mut tasks, mut mounts, mut fds, mut sockets) = (0, 0, 0, 0);
        for holder in &self.finding.holders {
            match holder {
                Holder::Task { .. } => tasks += 1,
                Holder::Mount { .. } => mounts += 1,
                Holder::Fd { .. } => fds += 1,
                Holder::Socket { .. } => sockets += 1,
            }
        }
        let counts = [
            (tasks, "task"),
            (mounts, "mount"),
            (fds, "descriptor"),
            (sockets, "socket"),
        ];
        let counts: Vec<_> = counts
            .iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, noun)| count(*number, noun))
            .collect();
        if !counts.is_empty() {
            self.line(self.holders_label(), &counts.join(", "));
        }
    }

    /// One by one. What is stuck is told once: a duplicate lists a task whose
    /// stack the reader has already seen without it.
    pub(super) fn holders(&mut self, printed: &mut Printed, memory: &Memory) {
        let finding = self.finding;
        let mut label = self.holders_label();
        let mut last_stack: &[String] = &[];
        for holder in finding.holders.iter().take(LISTED) {
            match holder {
                Holder::Task {
                    pid,
                    tid,
                    comm,
                    state,
                    since,
                    wchan,
                    stack,
                    container_id,
                    not_stuck,
                    first_seen,
                } => {
                    let mut text = task(comm, *pid, *tid);
                    if let Some(state) = state {
                        text += &format!("  {}", state_name(*state, *not_stuck));
                    }
                    if let Some(since) = since {
                        let age = self.age(*since);
                        let since = moment(*since, self.now);
                        text += &match first_seen {
                            true => format!(" first seen {since} ({age} or more)"),
                            false => format!(" since {since} ({age})"),
                        };
                    }
                    if let Some(wchan) = wchan {
                        text += &format!(" in {}", Printable(wchan));
                    }
                    if let Some(id) = container_id {
                        text += &format!("  container {}", short_id(id));
                    }
                    self.wrapped(label, "", &text);
                    let known = finding.rule == Rule::DuplicateAddress
                        && memory.shown(*tid, stack).is_some();
                    if !stack.is_empty() && !known {
                        let frames = match stack == last_stack {
                            true => "same stack".to_owned(),
                            false => stack::folded(stack),
                        };
                        self.frames(&frames);
                        printed.stack_shown(*tid, stack);
                        last_stack = stack;
                    }
                }
                Holder::Mount { path } => {
                    let path = format!("mount {}", Printable(path.display()));
                    self.wrapped(label, "", &path);
                }
                Holder::Fd { pid, fd, comm } | Holder::Socket { pid, fd, comm } => {
                    let kind = match holder {
                        Holder::Socket { .. } => "socket",
                        _ => "descriptor",
                    };
                    let process = match comm {
                        Some(comm) => task(comm, *pid, *pid),
                        None => format!("process {pid}"),
                    };
                    self.wrapped(label, "", &format!("{kind} {fd} of {process}"));
                }
            }
            label = "";
        }
        self.and_more(finding.holders.len());
    }

    /// A stack, below its task.
    fn frames(&mut self, frames: &str) {
        let mut indent = 2;
        for line in self.paint.lines(frames, VALUE + 2, VALUE + 4) {
            let line = self.paint.paint(Style::Quiet, line);
            self.line("", &format!("{:indent$}{line}", ""));
            indent = 4;
        }
    }
}

/// A state letter of ps(1) in words, where the letter alone says too little.
fn state_name(state: char, not_stuck: Option<NotStuck>) -> String {
    if let Some(why) = not_stuck {
        return format!("{} ({})", Printable(state), why.as_str());
    }
    match state {
        'D' => "D (uninterruptible)".to_owned(),
        'Z' => "Z (zombie)".to_owned(),
        'T' => "T (stopped)".to_owned(),
        other => Printable(other).to_string(),
    }
}
