//! Runs the integration tests: one by one, because tests of one kernel disturb
//! each other; with a time limit; and with a line for each one that this
//! machine cannot run. Arguments are those of Rust's own harness, as far as
//! they make sense: names (or parts of names) to run, `--exact`, `--list`.

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::stage::{self, Need};
use crate::wait;

/// Time for one test, then time for it to clean up.
const LIMIT: Duration = Duration::from_secs(300);
const GRACE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// Its name: what must be true.
    pub name: &'static str,
    /// Without these it is skipped.
    pub needs: &'static [Need],
    pub run: fn() -> anyhow::Result<()>,
}

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    names: Vec<String>,
    exact: bool,
    list: bool,
}

impl Wanted {
    fn parse(args: impl Iterator<Item = String>) -> Self {
        let mut wanted = Self::default();
        for arg in args {
            match arg.as_str() {
                "--exact" => wanted.exact = true,
                "--list" => wanted.list = true,
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

/// How a test went.
enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// Runs the wanted ones of `tests`; the exit code is 1 if one failed.
pub fn run(tests: &[Test]) -> ExitCode {
    let wanted = Wanted::parse(std::env::args().skip(1));
    let chosen = || tests.iter().filter(|test| wanted.has(test.name));
    if wanted.list {
        chosen().for_each(|test| println!("{}: test", test.name));
        return ExitCode::SUCCESS;
    }
    if let Err(error) = wait::catch_signals() {
        eprintln!("{error:#}");
        return ExitCode::FAILURE;
    }
    stage::sweep();

    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for test in chosen() {
        if wait::interrupted() {
            println!("interrupted");
            break;
        }
        let start = Instant::now();
        match run_one(test) {
            Outcome::Passed => {
                passed += 1;
                println!(
                    "ok      {:<48} {:>5.1} s",
                    test.name,
                    start.elapsed().as_secs_f32()
                );
            }
            Outcome::Failed(why) => {
                failed += 1;
                println!(
                    "FAILED  {}\n  {}",
                    test.name,
                    why.trim_end().replace('\n', "\n  ")
                );
            }
            Outcome::Skipped(why) => {
                skipped += 1;
                println!("skipped: {}: {why}", test.name);
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed > 0 || wait::interrupted() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn run_one(test: &Test) -> Outcome {
    let missing = stage::missing(test.needs);
    if !missing.is_empty() {
        return Outcome::Skipped(missing.join("; "));
    }
    let (finish, finished) = mpsc::channel();
    let name = test.name;
    let watchdog = std::thread::spawn(move || watch(name, &finished));
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(test.run));
    drop(finish);
    let _ = watchdog.join();
    wait::set_overdue(false);
    let left = stage::leftovers();
    match outcome {
        Ok(Ok(())) if left.is_empty() => Outcome::Passed,
        Ok(Ok(())) => Outcome::Failed(format!("left behind: {}", left.join(", "))),
        Ok(Err(error)) => Outcome::Failed(format!("{error:#}")),
        // The panic's own message is on stderr already.
        Err(_) => Outcome::Failed(String::from("panicked")),
    }
}

/// Ends a test that takes too long: first all its waits fail, so that it
/// cleans up; if even that does not help, the whole run ends.
fn watch(name: &str, finished: &mpsc::Receiver<()>) {
    if finished.recv_timeout(LIMIT) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    wait::set_overdue(true);
    if finished.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
        println!(
            "FAILED  {name}: still running after {} s; giving up",
            (LIMIT + GRACE).as_secs()
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
