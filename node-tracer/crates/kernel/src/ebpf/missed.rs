//! How often the kernel has passed over a program.
//!
//! While a program runs for one task, the same program does not run for
//! another on the same CPU: an interrupt, or, on a kernel that preempts, a
//! task that was let in between. The kernel counts what was passed over
//! (`recursion_misses` in the program's fdinfo, since Linux 5.12).

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _},
        unix::fs::FileExt as _,
    },
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
    pub(super) made_up_for: u64,
}

/// The counts' files, which stay open: every second each is read once more.
#[derive(Debug)]
pub(super) struct Counts(Vec<Count>);

#[derive(Debug)]
struct Count {
    fdinfo: File,
    alone: bool,
}

impl Counts {
    /// Of all programs that are loaded. What cannot be opened is not counted,
    /// which is told where losses could go unnoticed by it.
    pub(super) fn of(ebpf: &Ebpf) -> Self {
        let files = ebpf.programs().filter_map(|(name, program)| {
            let program = program.fd().ok()?.as_fd().as_raw_fd();
            Some((name, File::open(format!("/proc/self/fdinfo/{program}"))))
        });
        let (counts, uncounted) = Self::open(files);
        for (program, error) in uncounted {
            tracing::warn!("what {program} misses is not counted: {error}");
        }
        counts
    }

    /// The counts, and those of [`ALONE`] that there are none of.
    fn open<'a>(
        files: impl Iterator<Item = (&'a str, io::Result<File>)>,
    ) -> (Self, Vec<(&'a str, io::Error)>) {
        let (mut counts, mut uncounted) = (Vec::new(), Vec::new());
        for (name, file) in files {
            let alone = ALONE.contains(&name);
            match file {
                Ok(fdinfo) => counts.push(Count { fdinfo, alone }),
                Err(error) if alone => uncounted.push((name, error)),
                Err(_) => {}
            }
        }
        (Self(counts), uncounted)
    }

    /// How often so far. The programs must be those that it was made of.
    pub(super) fn read(&self) -> Missed {
        let mut all = Missed::default();
        for Count { fdinfo, alone } in &self.0 {
            let missed = read(fdinfo);
            if *alone {
                all.lost += missed;
            } else {
                all.made_up_for += missed;
            }
        }
        all
    }
}

/// Of one program; a page holds all that the kernel has to say of it.
fn read(fdinfo: &File) -> u64 {
    let mut page = [0; 4096];
    let length = fdinfo.read_at(&mut page, 0).unwrap_or(0);
    let text = page
        .get(..length)
        .and_then(|text| str::from_utf8(text).ok());
    text.map_or(0, parse)
}

fn parse(fdinfo: &str) -> u64 {
    fdinfo
        .lines()
        .find_map(|line| line.strip_prefix("recursion_misses:")?.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn fdinfo(misses: u64) -> io::Result<File> {
        let mut file = tempfile::tempfile()?;
        write!(file, "prog_id:\t9\nrecursion_misses:\t{misses}\n")?;
        Ok(file)
    }

    #[test]
    fn what_cannot_be_counted_is_told_where_nothing_makes_up_for_it() {
        let none = || Err(io::Error::from_raw_os_error(libc::EMFILE));
        let programs = [
            ("task_switch", none()),
            ("notified", none()),
            ("cni_exec", fdinfo(2)),
            ("cni_exit", fdinfo(3)),
        ];
        let (counts, uncounted) = Counts::open(programs.into_iter());
        let uncounted: Vec<_> = uncounted.iter().map(|(name, _)| *name).collect();
        assert_eq!(uncounted, ["task_switch"]);
        let missed = Missed {
            lost: 2,
            made_up_for: 3,
        };
        assert_eq!(counts.read(), missed);
    }

    #[test]
    fn the_count_is_found_where_there_is_one() {
        let text = "pos:\t0\nprog_type:\t26\nmemlock:\t4096\nprog_id:\t9\nrun_cnt:\t1\nrecursion_misses:\t17\n";
        assert_eq!(parse(text), 17);
        assert_eq!(parse("prog_type:\t26\nmemlock:\t4096\n"), 0);
    }
}
