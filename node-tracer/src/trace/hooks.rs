//! Whether the kernel still calls the programs.
//!
//! A link cannot be taken from a tracer that lives: the kernel refuses to
//! detach one of these kinds (`EOPNOTSUPP`), and so it does to switch ftrace
//! off under programs that it calls. Kprobes it lets be switched off for the
//! whole machine, without a word to those who have some.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use event::{Event, What};
use kernel::ebpf::plan::{Mechanism, Plan, Signal};

/// `0` or `1`; there only if debugfs is mounted.
const SWITCH: &str = "/sys/kernel/debug/kprobes/enabled";
/// The name of this source in events.
const SOURCE: &str = "kprobes";
/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(5);

pub(super) struct Hooks {
    switch: PathBuf,
    /// Signals that rest on kprobes.
    signals: Vec<&'static str>,
    off: bool,
    next: Instant,
}

impl Hooks {
    /// Looks after the programs of a plan.
    pub(super) fn of(plan: &Plan) -> Self {
        let by_kprobe = |signal: &Signal| plan.mechanism(*signal) == Mechanism::Kprobe;
        let signals = Signal::ALL.into_iter().filter(by_kprobe);
        Self::at(PathBuf::from(SWITCH), signals.map(Signal::as_str).collect())
    }

    fn at(switch: PathBuf, signals: Vec<&'static str>) -> Self {
        Self {
            switch,
            signals,
            off: false,
            next: Instant::now(),
        }
    }

    /// Tells what has changed, if it is time to look.
    pub(super) fn poll(&mut self, out: &mut Vec<Event>) {
        if self.signals.is_empty() || Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + EVERY;
        out.extend(self.look());
    }

    fn look(&mut self) -> Option<Event> {
        // What cannot be read says nothing.
        let text = fs::read_to_string(&self.switch).ok()?;
        let off = text.trim() == "0";
        if std::mem::replace(&mut self.off, off) == off {
            return None;
        }
        let source = String::from(SOURCE);
        let what = match off {
            false => What::SourceRecovered { source },
            true => What::SourceFailed {
                source,
                error: format!(
                    "kprobes are switched off on this node, so what rests on them is not told as \
                     it happens: {}; switch them on again: echo 1 > {}",
                    self.signals.join(", "),
                    self.switch.display()
                ),
            },
        };
        Some(Event {
            time: sys::clock::now(),
            what,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kprobes_that_are_switched_off_are_told_once_and_their_return() {
        let folder = tempfile::tempdir().unwrap();
        let switch = folder.path().join("enabled");
        let mut hooks = Hooks::at(switch.clone(), vec!["netns-created", "address"]);
        let mut told = |text: Option<&str>| {
            if let Some(text) = text {
                fs::write(&switch, text).unwrap();
            }
            hooks.look().map(|event| match event.what {
                What::SourceFailed { error, .. } => error,
                other => other.name().to_owned(),
            })
        };
        assert_eq!(told(None), None, "no debugfs");
        assert_eq!(told(Some("1\n")), None);
        let error = told(Some("0\n")).unwrap();
        assert!(error.contains("netns-created, address"), "{error}");
        assert_eq!(told(Some("0\n")), None);
        assert_eq!(told(Some("1\n")).as_deref(), Some("source-recovered"));
    }

    #[test]
    fn without_kprobes_nothing_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let switch = folder.path().join("enabled");
        fs::write(&switch, "0\n").unwrap();
        let mut events = Vec::new();
        Hooks::at(switch, Vec::new()).poll(&mut events);
        assert!(events.is_empty());
    }
}
