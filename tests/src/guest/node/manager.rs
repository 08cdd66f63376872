//! Laws about the service's life in systemd's hands: it is hardened, it gives
//! signs of life, and it is started again when it hangs or is killed.

use anyhow::{Context as _, ensure};

use super::machine::{expect_restarts, property, run};
use super::output::UNIT;
use super::{SOON, Stage};
use crate::wait;

/// What systemd-analyze may say of it, in tenths; as in the test of the unit,
/// by this system's systemd.
const EXPOSURE: &str = "52";

/// Its score, by what systemd really made of the unit.
pub(super) fn hardened(stage: &mut Stage) -> anyhow::Result<()> {
    let args = ["security", "--no-pager", "--threshold", EXPOSURE, UNIT];
    let said = run("systemd-analyze", &args)?;
    let score = said.lines().last().context("it says nothing")?;
    stage.remarks.push(score.trim().to_owned());
    Ok(())
}

/// Its main process, which there is.
fn process() -> anyhow::Result<String> {
    let pid = property(UNIT, "MainPID")?;
    ensure!(pid != "0", "{UNIT} has no process");
    Ok(pid)
}

/// systemd hears from it again and again.
pub(super) fn alive(_: &mut Stage) -> anyhow::Result<()> {
    let heard = || property(UNIT, "WatchdogTimestampMonotonic");
    let before = heard()?;
    ensure!(before != "0", "systemd has never heard from it");
    wait::until("a sign of life", SOON, || {
        Ok((heard()? != before).then_some(()))
    })
}

/// Sends a signal to its main process, and waits until systemd has started it
/// once more and it watches.
fn ended_by(stage: &mut Stage, signal: &str) -> anyhow::Result<()> {
    let before = process()?;
    // What it has told before is none of the story that follows.
    stage.output.begin_anew()?;
    run("kill", &["-s", signal, &before])?;
    wait::until("systemd to start it again", SOON, || {
        // In this order: it counts as active for a moment after its end.
        let main = property(UNIT, "MainPID")?;
        let again = main != "0" && main != before && property(UNIT, "ActiveState")? == "active";
        Ok(again.then_some(()))
    })?;
    stage.restarts += 1;
    expect_restarts(stage.restarts)?;
    let status = property(UNIT, "StatusText")?;
    ensure!(status.starts_with("Watching"), "its status: {status:?}");
    stage.output.wait_for("a coverage record", SOON, |record| {
        record["type"] == "coverage"
    })?;
    Ok(())
}

/// Stopped in its tracks it gives no sign of life, and systemd ends it.
pub(super) fn hung(stage: &mut Stage) -> anyhow::Result<()> {
    ended_by(stage, "STOP")?;
    let args = ["-u", UNIT, "--no-pager", "-o", "cat"];
    let said = run("journalctl", &args)?;
    ensure!(
        said.contains("Watchdog timeout"),
        "why it was ended: {said}"
    );
    Ok(())
}

/// As the kernel does where memory is short.
pub(super) fn killed(stage: &mut Stage) -> anyhow::Result<()> {
    ended_by(stage, "KILL")
}
