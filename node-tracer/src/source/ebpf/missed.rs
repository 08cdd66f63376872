//! How often the kernel has passed over a program.
//!
//! While a program runs for one task, the same program does not run for
//! another on the same CPU: an interrupt, or, on a kernel that preempts, a
//! task that was let in between. The kernel counts what was passed over
//! (`recursion_misses` in the program's fdinfo, since Linux 5.12).

use std::{
    fs,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd},
};

use aya::Ebpf;

/// The cause that losses of this kind have.
pub(super) const CAUSE: &str = "program-passed-over";

/// Programs whose records nothing else makes up for. What the others say of a
/// namespace, its end and its addresses, the next walk says, too; and that a
/// plugin is gone is seen a moment later, and counted then.
const ALONE: [&str; 4] = [
    "cni_exec",
    "cni_exec_bounded",
    "task_switch",
    "task_switch_raw",
];

/// How often so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Missed {
    /// Programs whose records are lost with it.
    pub(super) lost: u64,
    /// All others.
    pub(super) made_up_for: u64,
}

impl Missed {
    /// Of all programs that are loaded.
    pub(super) fn of(ebpf: &Ebpf) -> Self {
        let mut all = Self::default();
        for (name, program) in ebpf.programs() {
            let Ok(fd) = program.fd() else {
                continue; // not loaded
            };
            let missed = count(fd.as_fd());
            if ALONE.contains(&name) {
                all.lost += missed;
            } else {
                all.made_up_for += missed;
            }
        }
        all
    }
}

fn count(program: BorrowedFd<'_>) -> u64 {
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
