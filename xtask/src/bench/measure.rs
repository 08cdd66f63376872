//! One run of a program, measured; and several, summed up.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// How a program ran.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// From its start to its end.
    pub(crate) wall: Duration,
    /// Time on a CPU, its children's included.
    pub(crate) cpu: Duration,
    /// Largest resident memory, in KiB.
    pub(crate) memory: u64,
    /// Exit code; none after a signal.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    /// What it complained about.
    pub(crate) stderr: String,
}

fn text(mut file: File) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
}

/// Runs a program to its end and looks at its memory all the while. What the
/// kernel says at the end is not less than what the starting program, this one,
/// had.
pub(crate) fn run_watched(command: &mut Command) -> anyhow::Result<Run> {
    let (tell, told) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let watcher = std::thread::spawn(move || {
        let status = format!("/proc/{}/status", told.recv().unwrap_or(0));
        let mut peak = None;
        let over = std::sync::mpsc::RecvTimeoutError::Disconnected;
        while ended.recv_timeout(WATCH) != Err(over) {
            let status = std::fs::read_to_string(&status).unwrap_or_default();
            let peak_now = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let peak_now = peak_now.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
            peak = peak.max(peak_now);
        }
        peak
    });
    let run = run_telling(command, |pid| {
        // The watcher waits for nothing else.
        let _ = tell.send(pid);
    });
    drop((end, tell));
    let peak: Option<u64> = watcher.join().ok().flatten();
    let mut run = run?;
    run.memory = peak.unwrap_or(run.memory);
    Ok(run)
}

/// How often memory is looked at.
const WATCH: Duration = Duration::from_millis(5);

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<Run> {
    run_telling(command, |_| {})
}

fn run_telling(command: &mut Command, tell: impl FnOnce(u32)) -> anyhow::Result<Run> {
    // Unlike a pipe, a file never makes the program wait for its reader.
    let (stdout, stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command
        .stdin(Stdio::null())
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?);
    let begin = Instant::now();
    let child = command
        .spawn()
        .with_context(|| format!("start {}", command.get_program().display()))?;
    tell(child.id());
    let (mut status, pid) = (0, child.id() as libc::pid_t);
    // SAFETY: an all-zero rusage is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both places are valid for the call; the child was not waited for yet.
        match unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return Err(io::Error::last_os_error()).context("wait4"),
            _ => break,
        }
    }
    Ok(Run {
        wall: begin.elapsed(),
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
        memory: usage.ru_maxrss as u64,
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        stdout: text(stdout)?,
        stderr: text(stderr)?,
    })
}

/// Several runs of the same thing. There is at least one.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    runs: Vec<Run>,
}

impl Series {
    pub(crate) fn of(mut runs: Vec<Run>) -> anyhow::Result<Self> {
        anyhow::ensure!(!runs.is_empty(), "nothing was run");
        runs.sort_by_key(|run| run.wall);
        Ok(Self { runs })
    }

    /// The middle one, of an even number the slower.
    pub(crate) fn median(&self) -> Duration {
        self.runs[self.runs.len() / 2].wall
    }

    /// The median, and from the fastest to the slowest.
    pub(crate) fn spread(&self) -> String {
        let seconds = |time: Duration| time.as_secs_f64();
        format!(
            "{:.3} s ({:.3}–{:.3})",
            seconds(self.median()),
            seconds(self.runs[0].wall),
            seconds(self.runs[self.runs.len() - 1].wall)
        )
    }

    /// The middle one of the times on a CPU.
    pub(crate) fn middle_cpu(&self) -> Duration {
        let mut cpu: Vec<Duration> = self.runs.iter().map(|run| run.cpu).collect();
        cpu.sort();
        cpu[cpu.len() / 2]
    }

    /// Largest resident memory of all, in KiB.
    pub(crate) fn memory(&self) -> u64 {
        self.runs.iter().map(|run| run.memory).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_seen_whole() {
        let run = run(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"])).unwrap();
        assert_eq!(
            (run.code, run.stdout.as_str(), run.stderr.as_str()),
            (Some(3), "out\n", "err\n")
        );
        assert!(run.memory > 0);
    }

    #[test]
    fn memory_is_that_of_the_program_alone() {
        // More than the program has, touched so that it is there.
        let own = vec![1_u8; 64 << 20];
        let run = run_watched(Command::new("sleep").arg("0.3")).unwrap();
        assert!((100..32 << 10).contains(&run.memory), "{}", run.memory);
        assert_eq!(
            own.iter().map(|byte| u64::from(*byte)).sum::<u64>(),
            64 << 20
        );
    }

    #[test]
    fn the_median_is_not_the_mean() {
        let run = |milliseconds| Run {
            wall: Duration::from_millis(milliseconds),
            cpu: Duration::ZERO,
            memory: 0,
            code: Some(0),
            stdout: String::new(),
            stderr: String::new(),
        };
        let series = Series::of(vec![run(900), run(10), run(20)]).unwrap();
        assert_eq!(series.median(), Duration::from_millis(20));
        assert!(Series::of(Vec::new()).is_err());
    }
}
