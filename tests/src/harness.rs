//! Runs the integration tests, each in a process of its own, so that what one
//! leaves behind is known as its own. There is one kernel, and one tracer of it
//! at a time: tests run one by one. Those that look at files alone run beside
//! them. Each has a time limit; one that this machine cannot run is said.
//! Arguments are those of Rust's own harness, as far as they make sense: names
//! (or parts of names) to run, `--exact`, `--list`.

use std::os::fd::AsRawFd as _;
use std::panic::AssertUnwindSafe;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::stage::{self, Need};
use crate::{process, wait};

/// Time for one test, then time for it to clean up.
const LIMIT: Duration = Duration::from_secs(300);
const GRACE: Duration = Duration::from_secs(30);
/// So many tests of files run at once, beside one of the kernel.
const OF_FILES: usize = 2;
/// What the harness asks a process of its own for: one test, by its name.
const ONE: &str = "--one";

/// A law about the tracer's contract. [`test!`](crate::test) registers it.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// Where it is written: its module and line.
    pub place: (&'static str, u32),
    /// Its name: what must be true.
    pub name: &'static str,
    /// Without these it is skipped.
    pub needs: &'static [Need],
    /// It looks at files of its own, and not at the kernel.
    pub is_apart: bool,
    pub run: fn() -> anyhow::Result<()>,
}

/// All tests that are linked into this program.
#[linkme::distributed_slice]
pub static TESTS: [Test];

/// Registers the function of this name as an integration test:
/// `test!(NEEDS, the_law_that_it_states);`. With `apart` in front it runs
/// beside others: it looks at files of its own, and not at the kernel.
#[macro_export]
macro_rules! test {
    (apart $needs:expr, $law:ident) => {
        $crate::test!(@ true, $needs, $law);
    };
    (@ $is_apart:literal, $needs:expr, $law:ident) => {
        const _: () = {
            #[$crate::linkme::distributed_slice($crate::harness::TESTS)]
            #[linkme(crate = $crate::linkme)]
            static TEST: $crate::harness::Test = $crate::harness::Test {
                place: (module_path!(), line!()),
                name: stringify!($law),
                needs: $needs,
                is_apart: $is_apart,
                run: $law,
            };
        };
    };
    ($needs:expr, $law:ident) => {
        $crate::test!(@ false, $needs, $law);
    };
}

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    names: Vec<String>,
    exact: bool,
    list: bool,
    /// Only the test of this name, here and now.
    one: bool,
}

impl Wanted {
    fn parse(args: impl Iterator<Item = String>) -> Self {
        let mut wanted = Self::default();
        for arg in args {
            match arg.as_str() {
                "--exact" => wanted.exact = true,
                "--list" => wanted.list = true,
                ONE => (wanted.exact, wanted.one) = (true, true),
                // Options of Rust's harness that change nothing here.
                option if option.starts_with('-') => {}
                _ => wanted.names.push(arg),
            }
        }
        wanted
    }

    fn has(&self, name: &str) -> bool {
        let is = |wanted: &String| {
            if self.exact {
                wanted == name
            } else {
                name.contains(wanted.as_str())
            }
        };
        self.names.is_empty() || self.names.iter().any(is)
    }
}

/// How many of the tests went how.
#[derive(Debug, Default)]
struct Counts {
    passed: AtomicUsize,
    failed: AtomicUsize,
    skipped: AtomicUsize,
}

/// Runs the wanted ones; the exit code is 1 if one failed.
pub fn run() -> ExitCode {
    let wanted = Wanted::parse(std::env::args().skip(1));
    let mut chosen: Vec<&Test> = TESTS.iter().filter(|test| wanted.has(test.name)).collect();
    chosen.sort_by_key(|test| test.place);
    if wanted.list {
        chosen
            .iter()
            .for_each(|test| println!("{}: test", test.name));
        return ExitCode::SUCCESS;
    }
    if let Err(error) = wait::catch_signals() {
        eprintln!("{error:#}");
        return ExitCode::FAILURE;
    }
    if wanted.one {
        return chosen
            .first()
            .map_or(ExitCode::FAILURE, |test| run_here(test));
    }
    stage::sweep();
    let counts = Counts::default();
    let (apart, others): (Vec<&Test>, Vec<&Test>) =
        chosen.into_iter().partition(|test| test.is_apart);
    let (apart, others) = (Queue::of(apart), Queue::of(others));
    std::thread::scope(|scope| {
        for _ in 0..OF_FILES {
            scope.spawn(|| apart.run(&counts));
        }
        others.run(&counts);
    });
    let [passed, failed, skipped] = [&counts.passed, &counts.failed, &counts.skipped]
        .map(|count| count.load(Ordering::Relaxed));
    if wait::interrupted() {
        println!("interrupted");
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    match failed > 0 || wait::interrupted() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// Tests that are taken one after the other, by any number of threads.
struct Queue<'a> {
    tests: Vec<&'a Test>,
    next: AtomicUsize,
}

impl<'a> Queue<'a> {
    fn of(tests: Vec<&'a Test>) -> Self {
        Self {
            tests,
            next: AtomicUsize::new(0),
        }
    }

    fn run(&self, counts: &Counts) {
        while let Some(test) = self.tests.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if wait::interrupted() {
                break;
            }
            report(test, counts);
        }
    }
}

/// Runs one in a process of its own, and tells how it went.
fn report(test: &Test, counts: &Counts) {
    let missing = stage::missing(test.needs);
    if !missing.is_empty() {
        counts.skipped.fetch_add(1, Ordering::Relaxed);
        println!("skipped: {}: {}", test.name, missing.join("; "));
        return;
    }
    let start = Instant::now();
    let ended = run_apart(test);
    let (passed, said) = ended.unwrap_or_else(|error| (false, format!("{error:#}")));
    let seconds = start.elapsed().as_secs_f32();
    let (count, verdict) = match passed {
        true => (&counts.passed, "ok"),
        false => (&counts.failed, "FAILED"),
    };
    count.fetch_add(1, Ordering::Relaxed);
    let said: String = said.lines().map(|line| format!("\n  {line}")).collect();
    println!("{verdict:<7} {:<48} {seconds:>5.1} s{said}", test.name);
}

/// Whether it passed, and what it said.
fn run_apart(test: &Test) -> anyhow::Result<(bool, String)> {
    // One file for both, in the order in which it was written; unlike a pipe it
    // waits for no process that a test has left.
    let said = tempfile::tempfile()?;
    let mut child = Command::new("/proc/self/exe")
        .args([ONE, test.name])
        .stdin(Stdio::null())
        .stdout(said.try_clone()?)
        .stderr(said.try_clone()?)
        .spawn()
        .context("start this program")?;
    // Ctrl-C reaches it, too; a signal to this process alone does not.
    let mut is_told = false;
    let status = loop {
        if let Some(status) = child.try_wait().context("wait for the test")? {
            break status;
        }
        if wait::interrupted() && !std::mem::replace(&mut is_told, true) {
            let _ = process::signal(child.id(), libc::SIGINT);
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let text = std::fs::read(format!("/proc/self/fd/{}", said.as_raw_fd()))?;
    let mut text = String::from_utf8_lossy(&text).into_owned();
    if status.code().is_none() {
        text += &format!("{status}");
    }
    Ok((status.success(), text))
}

/// Runs a test in this process, which does nothing else.
fn run_here(test: &Test) -> ExitCode {
    let (finish, finished) = mpsc::channel();
    let name = test.name;
    let watchdog = std::thread::spawn(move || watch(name, &finished));
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(test.run));
    drop(finish);
    let _ = watchdog.join();
    let left = stage::leftovers();
    match outcome {
        Ok(Ok(())) if left.is_empty() => return ExitCode::SUCCESS,
        Ok(Ok(())) => println!("left behind: {}", left.join(", ")),
        Ok(Err(error)) => println!("{}", format!("{error:#}").trim_end()),
        // The panic's own message is on stderr already.
        Err(_) => println!("panicked"),
    }
    ExitCode::FAILURE
}

/// Ends a test that takes too long: first all its waits fail, so that it
/// cleans up; if even that does not help, its process ends.
fn watch(name: &str, finished: &mpsc::Receiver<()>) {
    if finished.recv_timeout(wait::here(LIMIT)) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    wait::set_overdue();
    if finished.recv_timeout(wait::here(GRACE)) == Err(RecvTimeoutError::Timeout) {
        println!(
            "{name}: still running after {} s; giving up",
            wait::here(LIMIT + GRACE).as_secs()
        );
        std::process::exit(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(args: &[&str]) -> Wanted {
        Wanted::parse(args.iter().map(|arg| (*arg).to_owned()))
    }

    #[test]
    fn no_name_means_all() {
        assert!(wanted(&[]).has("anything"));
        assert!(wanted(&["--nocapture", "--test-threads=1"]).has("anything"));
    }

    #[test]
    fn a_name_is_a_part_unless_exact() {
        assert!(wanted(&["storm"]).has("netns_storm"));
        assert!(!wanted(&["storm", "--exact"]).has("netns_storm"));
        assert!(wanted(&["stall", "netns_storm", "--exact"]).has("netns_storm"));
    }
}
