//! What is different on a terminal: help, width, colours, progress.

use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::netns::Netns;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::scripted_cri::{Mood, ScriptedCri};
use node_tracer_tests::terminal::{Out, Shown, Terminal, plain};
use node_tracer_tests::tracer::{SOON, command};
use node_tracer_tests::wait;

use super::run;

const COMMANDS: [&str; 8] = [
    "trace",
    "scan",
    "explain",
    "explain-rule",
    "replay",
    "report",
    "check",
    "repair",
];

/// A log with findings.
fn log() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/logs/containerd.log")
}

fn nothing(_: &mut Child) -> anyhow::Result<()> {
    Ok(())
}

fn on_terminal(columns: u16, line: &mut Command, out: Out) -> anyhow::Result<Shown> {
    Terminal::open(columns)?.run(line, out, SOON, nothing)
}

fn replay(options: &[&str]) -> anyhow::Result<Command> {
    let mut line = command(&["replay"])?;
    line.args(options).arg(log());
    Ok(line)
}

fn widest(text: &str) -> usize {
    let lines = text.lines();
    lines.map(|line| line.chars().count()).max().unwrap_or(0)
}

test!(
    apart & [Need::Tracer],
    every_command_has_help_that_fits_the_terminal
);
fn every_command_has_help_that_fits_the_terminal() -> anyhow::Result<()> {
    for columns in [80, 120] {
        for name in COMMANDS {
            let help = |option| {
                let shown = on_terminal(columns, &mut command(&[name, option])?, Out::Terminal)?;
                let text = plain(&shown.left());
                ensure!(shown.status.success(), "{name} {option}: {text}");
                let widest = widest(&text);
                ensure!(
                    widest <= usize::from(columns),
                    "{name} {option} is {widest} columns wide:\n{text}"
                );
                ensure!(
                    text.contains(&format!("\n  node-tracer {name}")),
                    "{name} {option} has no example:\n{text}"
                );
                Ok(text.lines().count())
            };
            let (short, long) = (help("-h")?, help("--help")?);
            ensure!(short < long, "{name}: {short} lines, in detail {long}");
        }
    }
    Ok(())
}

test!(apart & [Need::Tracer], text_is_as_wide_as_the_terminal);
fn text_is_as_wide_as_the_terminal() -> anyhow::Result<()> {
    let piped = replay(&[])?.output().context("the tracer")?;
    let piped = String::from_utf8(piped.stdout)?;
    ensure!(piped.contains("certain"), "no finding: {piped}");
    let lines_at = |columns| {
        let shown = on_terminal(columns, &mut replay(&[])?, Out::Terminal)?;
        Ok::<_, anyhow::Error>(plain(&shown.left()))
    };
    // On a terminal an event has one line, and in a file all of it.
    let incidents = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with("  "));
        lines.map(str::to_owned).collect()
    };
    ensure!(
        incidents(&lines_at(100)?) == incidents(&piped),
        "of 100 columns it is what a file has"
    );
    let (narrow, wide) = (lines_at(80)?, lines_at(150)?);
    let count = |text: &str| text.lines().count();
    ensure!(
        count(&narrow) > count(&piped) && count(&piped) > count(&wide),
        "lines: {}, {}, {}",
        count(&narrow),
        count(&piped),
        count(&wide)
    );
    // Claims are broken; titles and events are one line each.
    let claims = narrow
        .lines()
        .filter(|line| line.starts_with("              "));
    let claims: Vec<&str> = claims
        .filter(|line| line.split_whitespace().count() > 8)
        .collect();
    ensure!(!claims.is_empty(), "{narrow}");
    for line in claims {
        ensure!(line.chars().count() <= 80, "{line}");
    }
    // In less than it takes it is as if there were more.
    let (least, narrowest) = (lines_at(40)?, lines_at(72)?);
    ensure!(
        incidents(&least) == incidents(&narrowest),
        "of 40 columns as of 72"
    );
    Ok(())
}

test!(
    &[Need::Tracer],
    colours_are_for_terminals_and_who_wants_them
);
fn colours_are_for_terminals_and_who_wants_them() -> anyhow::Result<()> {
    let coloured = |line: &mut Command| -> anyhow::Result<bool> {
        let output = line.output().context("the tracer")?;
        Ok(output.stdout.contains(&0x1b) || output.stderr.contains(&0x1b))
    };
    ensure!(!coloured(&mut replay(&[])?)?, "a pipe");
    ensure!(
        !coloured(&mut command(&["trace", "--help"])?)?,
        "help, into a pipe"
    );
    ensure!(
        !coloured(&mut command(&["trace", "--nonsense"])?)?,
        "an error"
    );
    ensure!(coloured(&mut replay(&["--color", "always"])?)?, "always");
    ensure!(
        coloured(replay(&[])?.env("CLICOLOR_FORCE", "1"))?,
        "CLICOLOR_FORCE"
    );
    ensure!(
        !coloured(replay(&[])?.env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1"))?,
        "NO_COLOR before CLICOLOR_FORCE"
    );
    ensure!(
        !coloured(replay(&["-o", "json", "--color", "always"])?.env("CLICOLOR_FORCE", "1"))?,
        "JSON"
    );
    let shown = |options: &[&str], set: Option<(&str, &str)>| {
        let terminal = Terminal::open(110)?;
        let mut line = Command::new("env");
        // Set behind what the terminal itself sets.
        line.args(set.map(|(name, value)| format!("{name}={value}")));
        line.arg(node_tracer_tests::tracer::binary()?).arg("replay");
        line.args(options).arg(log()).stdin(Stdio::null());
        let shown = terminal.run(&mut line, Out::Terminal, SOON, nothing)?;
        Ok::<_, anyhow::Error>(shown.is_coloured())
    };
    ensure!(shown(&[], None)?, "a terminal has colours");
    ensure!(!shown(&[], Some(("NO_COLOR", "1")))?, "NO_COLOR");
    ensure!(!shown(&[], Some(("TERM", "dumb")))?, "TERM=dumb");
    ensure!(!shown(&[], Some(("CLICOLOR", "0")))?, "CLICOLOR=0");
    ensure!(!shown(&["--color", "never"], None)?, "never");
    Ok(())
}

test!(
    apart & [Need::Tracer],
    quiet_says_what_was_found_and_nothing_else
);
fn quiet_says_what_was_found_and_nothing_else() -> anyhow::Result<()> {
    let text = |line: &mut Command| -> anyhow::Result<(String, String)> {
        let output = line.output().context("the tracer")?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Ok((text(&output.stdout), text(&output.stderr)))
    };
    let (usual, _) = text(&mut replay(&[])?)?;
    let (quiet, stderr) = text(&mut replay(&["-q"])?)?;
    ensure!(stderr.is_empty(), "{stderr}");
    for words in ["sees ", "BLIND ", " seen, ", "sandbox-added"] {
        ensure!(!quiet.contains(words), "{words:?} in {quiet}");
    }
    ensure!(
        usual.contains("sees ") && usual.contains(" seen, "),
        "{usual}"
    );
    let claims = |text: &str| {
        text.lines()
            .filter(|line| line.contains("certain "))
            .count()
    };
    ensure!(
        claims(&quiet) > 0 && claims(&quiet) == claims(&usual),
        "findings are the same: {quiet}"
    );
    // JSON is for programs, which say themselves what they want.
    let (json, _) = text(&mut replay(&["-o", "json"])?)?;
    let (quiet, _) = text(&mut replay(&["-o", "json", "--quiet"])?)?;
    ensure!(json == quiet, "JSON has all of it");
    // Where nothing is wrong there is nothing to say; what cannot be done is.
    let folder = Scratch::create()?;
    let calm = folder.path().join("calm.log");
    std::fs::write(
        &calm,
        "time=\"2026-11-21T05:53:10Z\" level=info msg=\"containerd successfully booted in 0.1s\"\n",
    )?;
    let output = command(&["-q", "replay"])?.arg(&calm).output()?;
    ensure!(
        output.stdout.is_empty() && output.stderr.is_empty() && output.status.code() == Some(0),
        "{output:?}"
    );
    let missing = run(&["replay", "-q", "/no/such.log"])?;
    ensure!(missing.status.code() == Some(2) && !missing.stderr.is_empty());
    Ok(())
}

test!(super::ROOT, quiet_trace_shows_no_single_events);
fn quiet_trace_shows_no_single_events() -> anyhow::Result<()> {
    let trace = |options: &[&str]| -> anyhow::Result<String> {
        let args = ["trace", "--cri", "none", "--pods", "none"];
        let mut line = command(&args)?;
        line.args(options).args(["--duration", "3s"]);
        let child = line.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        wait::pause(Duration::from_millis(1_500))?;
        drop(Netns::create()?);
        let output = child.wait_with_output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let usual = trace(&[])?;
    ensure!(
        usual.contains("netns-created") && usual.contains("sees "),
        "{usual}"
    );
    let quiet = trace(&["--quiet"])?;
    ensure!(
        !quiet.contains("netns-created") && !quiet.contains("sees "),
        "{quiet}"
    );
    Ok(())
}

/// A log that comes in two parts, with some time in between.
fn in_two_parts(child: &mut Child) -> anyhow::Result<()> {
    let log = std::fs::read(log())?;
    let (first, second) = log.split_at(log.len() / 2);
    let mut stdin = child.stdin.take().context("no pipe")?;
    stdin.write_all(first)?;
    wait::pause(Duration::from_millis(2_500))?;
    stdin.write_all(second)?;
    Ok(())
}

test!(
    apart & [Need::Tracer],
    progress_of_a_slow_replay_is_shown_and_goes
);
fn progress_of_a_slow_replay_is_shown_and_goes() -> anyhow::Result<()> {
    let slow = |options: &[&str], columns, out| {
        let mut line = command(&["replay"])?;
        line.args(options).arg("-").stdin(Stdio::piped());
        Terminal::open(columns)?.run(&mut line, out, SOON, in_two_parts)
    };
    let progress = "standard input: 0.";
    let whole = slow(&[], 100, Out::Terminal)?;
    ensure!(whole.screen.contains(progress), "{:?}", whole.screen);
    ensure!(whole.screen.contains("so far"), "{:?}", whole.screen);
    let left = plain(&whole.left());
    ensure!(
        !left.contains(progress) && !left.contains("so far"),
        "{left}"
    );
    ensure!(left.contains("certain "), "the findings stay: {left}");

    let narrow = slow(&[], 24, Out::Null)?;
    ensure!(narrow.screen.contains(progress), "{:?}", narrow.screen);
    let lines = narrow
        .screen
        .split('\r')
        .map(|line| line.replace("\x1b[K", ""));
    let widest = lines.map(|line| line.chars().count()).max();
    ensure!(widest < Some(24), "{widest:?}: {:?}", narrow.screen);

    for (options, out) in [
        (&["-q"][..], Out::Terminal),
        (&["-o", "json"], Out::Pipe),
        (&[], Out::Pipe),
    ] {
        let none = slow(options, 110, out)?;
        ensure!(
            !none.screen.contains(progress),
            "{options:?} {out:?}: {:?}",
            none.screen
        );
    }
    Ok(())
}

test!(
    apart & [Need::Tracer],
    nobody_waits_for_a_stopped_terminal_to_take_progress_away
);
fn nobody_waits_for_a_stopped_terminal_to_take_progress_away() -> anyhow::Result<()> {
    let terminal = Terminal::open(110)?;
    let flow = terminal.flow()?;
    let mut line = command(&["replay", "-"])?;
    line.stdin(Stdio::piped());
    // Only progress goes to the terminal.
    let shown = terminal.run(&mut line, Out::Null, SOON, move |child| {
        let mut stdin = child.stdin.take().context("no pipe")?;
        stdin.write_all(&std::fs::read(log())?)?;
        wait::pause(Duration::from_millis(2_500))?;
        flow.stop()?;
        drop(stdin);
        // It ends with the terminal still stopped.
        wait::until("the replay to end", SOON, || {
            Ok(child.try_wait().context("wait for it")?.map(drop))
        })
    })?;
    ensure!(shown.screen.contains("so far"), "{:?}", shown.screen);
    ensure!(shown.status.code() == Some(1), "{:?}", shown.status);
    Ok(())
}

test!(apart super::ROOT, progress_names_what_is_waited_for);
fn progress_names_what_is_waited_for() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let socket = folder.path().join("cri.sock");
    let cri = ScriptedCri::start(&socket)?;
    cri.be(Mood::Silent);
    let endpoint = format!("unix://{}", socket.display());
    // A repair is the one that waits long enough for a busy machine as well.
    let look = |options: &[&str]| {
        let mut line = command(&["repair", "--pods", "none", "--cri", &endpoint])?;
        line.args(options);
        let terminal = Terminal::open(100)?;
        terminal.run(&mut line, Out::Terminal, Duration::from_secs(60), nothing)
    };
    let usual = look(&[])?;
    ensure!(
        usual.screen.contains("waiting for CRI ("),
        "{:?}",
        usual.screen
    );
    let left = plain(&usual.left());
    ensure!(!left.contains("waiting for"), "{left}");
    let quiet = look(&["--quiet"])?;
    ensure!(!quiet.screen.contains("waiting for"), "{:?}", quiet.screen);
    Ok(())
}
