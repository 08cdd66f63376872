//! How often the kernel has passed over a program.
//!
//! While a program runs for one task, the same program does not run for
//! another on the same CPU: an interrupt, or, on a kernel that preempts, a
//! task that was let in between. The kernel counts what was passed over
//! (`recursion_misses` in the program's fdinfo, since Linux 5.12).

use std::{
    fs,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd},
    time::{Duration, Instant},
};

use aya::Ebpf;

/// Reading all of them takes a fraction of a millisecond.
const EVERY: Duration = Duration::from_secs(10);

/// The cause that losses of this kind have.
pub(super) const CAUSE: &str = "program-passed-over";

/// What has been told so far.
#[derive(Debug)]
pub(super) struct Missed {
    told: u64,
    next: Instant,
}

impl Missed {
    pub(super) fn new() -> Self {
        Self {
            told: 0,
            next: Instant::now() + EVERY,
        }
    }

    /// How many more there are than at the last call; zero if it is too soon
    /// to look, unless it is the last chance.
    pub(super) fn more(&mut self, ebpf: &Ebpf, last: bool) -> u64 {
        let time = Instant::now();
        if time < self.next && !last {
            return 0;
        }
        self.next = time + EVERY;
        let mut total = 0;
        for (name, program) in ebpf.programs() {
            let Ok(fd) = program.fd() else {
                continue; // not loaded
            };
            let missed = of(fd.as_fd());
            if missed > 0 {
                tracing::debug!(program = name, missed, "passed over");
            }
            total += missed;
        }
        let more = total.saturating_sub(self.told);
        self.told += more;
        more
    }
}

fn of(program: BorrowedFd<'_>) -> u64 {
    let path = format!("/proc/self/fdinfo/{}", program.as_raw_fd());
    fs::read_to_string(path).map_or(0, |text| parse(&text))
}

fn parse(fdinfo: &str) -> u64 {
    fdinfo
        .lines()
        .find_map(|line| line.strip_prefix("recursion_misses:")?.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_count_is_found_where_there_is_one() {
        let text = "pos:\t0\nprog_type:\t26\nmemlock:\t4096\nprog_id:\t9\nrun_cnt:\t1\nrecursion_misses:\t17\n";
        assert_eq!(parse(text), 17);
        assert_eq!(parse("prog_type:\t26\nmemlock:\t4096\n"), 0);
    }
}
