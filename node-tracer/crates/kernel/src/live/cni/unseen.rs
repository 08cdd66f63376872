//! Calls whose end was not seen: the process is gone, and no record said so.
//!
//! On kernels that let other tasks in while a program runs (7.x), the program
//! at the exit of a process is now and then passed over.

use super::{CniTable, Ended, PluginOutput};

/// Younger calls are not looked after, ns: most have ended by then.
const YOUNG: u64 = 2_000_000_000;

impl CniTable {
    /// Takes out the calls whose process (its number and start, ns since boot)
    /// was gone at the last look already: their records, had there been any,
    /// have been taken since. `time` is now, monotonic ns.
    pub(crate) fn ended_unseen(
        &mut self,
        time: u64,
        mut is_there: impl FnMut(u32, u64) -> bool,
    ) -> Vec<Ended> {
        let mut ended = Vec::new();
        self.running.retain(|pid, running| {
            if running.started + YOUNG > time || is_there(*pid, running.start_boottime) {
                running.gone = None;
                return true;
            }
            let Some(gone) = running.gone else {
                running.gone = Some(time);
                return true;
            };
            ended.push(Ended {
                call: running.call.clone(),
                exit_code: None,
                signal: None,
                duration: gone.saturating_sub(running.started),
                answer: PluginOutput {
                    unread: Some(String::from("its end was not seen")),
                    ..PluginOutput::default()
                },
            });
            false
        });
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_process_that_is_gone_at_two_looks_has_ended() {
        let mut table = CniTable::new(HOST);
        let parent = root(1, "containerd");
        table.exec(&exec(7, parent, "/opt/cni/bin/bridge"), containerd);
        let mut look = |time: u64, there: bool| {
            let ended = table.ended_unseen(time * SECOND, |pid, _| {
                assert_eq!(pid, 7);
                there
            });
            ended.len()
        };
        // Young; there; gone for a moment; there; gone; gone.
        let looks = [(1, false), (3, true), (4, false), (5, true), (6, false)];
        assert_eq!(looks.map(|(time, there)| look(time, there)), [0; 5]);
        assert_eq!(look(7, false), 1);
        assert_eq!(look(8, false), 0);
    }

    #[test]
    fn how_it_ended_is_not_known() {
        let mut table = CniTable::new(HOST);
        let parent = root(1, "containerd");
        table.exec(&exec(7, parent, "/opt/cni/bin/bridge"), containerd);
        assert!(table.ended_unseen(3 * SECOND, |_, _| false).is_empty());
        let ended = table.ended_unseen(4 * SECOND, |_, _| false).remove(0);
        assert_eq!((ended.exit_code, ended.signal), (None, None));
        assert_eq!(ended.duration, 3 * SECOND - 1_000);
        assert!(ended.answer.unread.is_some());
        assert_eq!(ended.call.pid, 7);
    }
}
