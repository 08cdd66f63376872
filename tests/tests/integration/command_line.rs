//! Bad input and a node that lacks something: one clear message, exit code 2.

mod terminal;

use std::fs;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, ensure};
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use node_tracer_tests::tracer::{SOON, Tracer, binary, command};

const ROOT: &[Need] = &[Need::Root, Need::Tracer];

/// Runs to the end. A tracer that accepts what it should refuse would run for
/// ever, so `trace` is given a duration.
pub(crate) fn run(args: &[&str]) -> anyhow::Result<Output> {
    command(args)?
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .output()
        .context("the tracer")
}

/// Exit code 2, and one clear message on stderr that has all of `words`.
pub(crate) fn refused(output: &Output, words: &[&str]) -> anyhow::Result<()> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(2),
        "exit {}: {stderr}",
        output.status
    );
    ensure!(
        !stderr.contains("panicked") && !stderr.contains("RUST_BACKTRACE"),
        "{stderr}"
    );
    for word in words {
        ensure!(
            stderr.to_lowercase().contains(&word.to_lowercase()),
            "no {word:?} in: {stderr}"
        );
    }
    ensure!(
        output.stdout.is_empty(),
        "stdout: {}",
        String::from_utf8_lossy(&output.stdout)
    );
    Ok(())
}

test!(
    apart & [Need::Tracer],
    without_a_standard_output_nothing_is_done
);
/// `node-tracer scan >&-`: what is found would be told to nobody.
fn without_a_standard_output_nothing_is_done() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let log = folder.path().join("kubelet.log");
    fs::write(
        &log,
        "I1121 05:00:00.000000 1 kubelet.go:1] \"SyncLoop ADD\"\n",
    )?;
    let log = log.display().to_string();
    let scan = ["scan", "--pods", "none", "--cri", "none"];
    let commands: [&[&str]; 4] = [
        &scan,
        &["explain", "10.0.0.1"],
        &["explain-rule"],
        &["replay", &log],
    ];
    for arguments in commands {
        let mut shell = Command::new("sh");
        shell.args(["-c", r#"exec "$0" "$@" >&-"#]).arg(binary()?);
        let output = shell.args(arguments).stderr(Stdio::piped()).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code();
        ensure!(code == Some(2), "{arguments:?}: {code:?}, {stderr}");
        ensure!(stderr.contains("standard output is closed"), "{stderr}");
    }
    Ok(())
}

test!(apart & [Need::Tracer], unknown_option_is_refused);
fn unknown_option_is_refused() -> anyhow::Result<()> {
    refused(&run(&["trace", "--no-such-option"])?, &["--no-such-option"])
}

test!(apart & [Need::Tracer], unknown_command_is_refused);
fn unknown_command_is_refused() -> anyhow::Result<()> {
    refused(&run(&["no-such-command"])?, &["no-such-command"])
}

test!(apart & [Need::Tracer], bad_durations_are_refused);
fn bad_durations_are_refused() -> anyhow::Result<()> {
    for bad in ["x", "-1s", "5 parsecs", ""] {
        refused(
            &run(&[
                "trace",
                "--duration",
                "1s",
                &format!("--stall-threshold={bad}"),
            ])?,
            &["--stall-threshold"],
        )?;
    }
    Ok(())
}

test!(apart & [Need::Tracer], every_listed_rule_has_its_page);
fn every_listed_rule_has_its_page() -> anyhow::Result<()> {
    let list = run(&["explain-rule"])?;
    ensure!(list.status.code() == Some(0), "exit {}", list.status);
    let list = String::from_utf8(list.stdout)?;
    let rules: Vec<&str> = list
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    ensure!(rules.contains(&"ghost-sandbox"), "{list}");
    for rule in rules {
        let page = run(&["explain-rule", rule])?;
        let text = String::from_utf8(page.stdout)?;
        ensure!(text.starts_with(&format!("# {rule}\n")), "{rule}: {text}");
    }
    refused(
        &run(&["explain-rule", "no-such-rule"])?,
        &["no-such-rule", "node-tracer explain-rule"],
    )
}

test!(ROOT, unreadable_pods_file_is_named);
fn unreadable_pods_file_is_named() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let path = folder
        .path()
        .join("no-such-file.json")
        .display()
        .to_string();
    refused(
        &run(&[
            "trace",
            "--duration",
            "1s",
            "--cri",
            "none",
            "--pods",
            &path,
        ])?,
        &[&path],
    )?;
    let path = folder.path().display().to_string();
    refused(
        &run(&[
            "trace",
            "--duration",
            "1s",
            "--cri",
            "none",
            "--pods",
            &path,
        ])?,
        &[&path],
    )
}

test!(ROOT, malformed_pods_file_is_named);
fn malformed_pods_file_is_named() -> anyhow::Result<()> {
    let folder = Scratch::create()?;
    let path = folder.path().join("pods.json");
    let named = path.display().to_string();
    for content in [
        "",
        "{",
        "[]",
        "null",
        r#"{"kind":"List","items":7}"#,
        "No resources found\n",
    ] {
        fs::write(&path, content)?;
        refused(
            &run(&[
                "trace",
                "--duration",
                "1s",
                "--cri",
                "none",
                "--pods",
                &named,
            ])?,
            &[&named],
        )
        .with_context(|| format!("with the content {content:?}"))?;
    }
    Ok(())
}

test!(
    &[
        Need::Root,
        Need::Tracer,
        Need::Program("setpriv", "util-linux"),
    ],
    trace_without_root_says_so
);
fn trace_without_root_says_so() -> anyhow::Result<()> {
    // The build folder may be closed to other users.
    let folder = Scratch::create()?;
    let copy = folder.path().join("node-tracer");
    fs::copy(binary()?, &copy)?;
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path(), open)?;
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&copy)
        .args([
            "trace",
            "--duration",
            "1s",
            "--cri",
            "none",
            "--pods",
            "none",
        ])
        .stdin(Stdio::null())
        .current_dir("/")
        .output()?;
    refused(&output, &["root"])
}

test!(
    &[
        Need::Root,
        Need::Tracer,
        Need::Program("unshare", "util-linux"),
    ],
    no_btf_is_told
);
/// A kernel without BTF has no such folder or an empty one.
fn no_btf_is_told() -> anyhow::Result<()> {
    const COVERED: &str = r#"test ! -d /sys/kernel/btf || mount --bind "$1" /sys/kernel/btf
        shift
        exec "$@""#;
    let empty = Scratch::create()?;
    let bare = ["--cri", "none", "--pods", "none"];
    for command in [&["trace", "--duration", "1s"][..], &["check"]] {
        let output = Command::new("unshare")
            .args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-ec",
                COVERED,
                "sh",
            ])
            .arg(empty.path())
            .arg(binary()?)
            .args(command)
            .args(bare)
            .stdin(Stdio::null())
            .output()
            .context("unshare")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let stdout = String::from_utf8_lossy(&output.stdout);
        // A trace goes on without; for `check` that is a node not seen whole.
        let code = i32::from(command == ["check"]);
        ensure!(
            output.status.code() == Some(code)
                && stderr.contains("type information")
                && stderr.contains("CONFIG_DEBUG_INFO_BTF")
                && stdout.contains("type information"),
            "{command:?}: {}: {stderr}\n{stdout}",
            output.status
        );
    }
    Ok(())
}

test!(ROOT, second_instance_is_told_of_the_first);
fn second_instance_is_told_of_the_first() -> anyhow::Result<()> {
    let first = Tracer::trace(&[])?;
    let second = run(&[
        "trace",
        "--duration",
        "1s",
        "--cri",
        "none",
        "--pods",
        "none",
    ])?;
    refused(&second, &["already"])?;
    let ended = first.stop()?;
    ensure!(
        ended.code == Some(0),
        "the first goes on: {:?} {}",
        ended.code,
        ended.stderr
    );
    // And the place is free again.
    let third = Tracer::trace(&["--duration", "1s"])?.wait_for_end(SOON)?;
    ensure!(
        third.code == Some(0),
        "a third: {:?} {}",
        third.code,
        third.stderr
    );
    Ok(())
}

test!(ROOT, check_tells_each_signal);
fn check_tells_each_signal() -> anyhow::Result<()> {
    let output = run(&["check"])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let code = output.status.code();
    ensure!(
        matches!(code, Some(0 | 1)),
        "exit {code:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(
        text.lines().count() > 3 && text.to_lowercase().contains("netns"),
        "{text}"
    );
    Ok(())
}
