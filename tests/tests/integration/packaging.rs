//! What is released, as those take it who use it: dpkg, systemd, journald, man,
//! shells, containerd, Helm, kubectl.

pub(crate) mod helm;
mod plugin;
mod systemd;
mod terminal;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, ensure};
use node_tracer_tests::containerd::Containerd;
use node_tracer_tests::containerd::image::architecture;
use node_tracer_tests::scratch::Scratch;
use node_tracer_tests::stage::{IP, Need, PACKAGES};
use node_tracer_tests::test;

const DPKG_DEB: Need = Need::Program("dpkg-deb", "dpkg");
const SYSTEMD: Need = Need::Program("systemd-analyze", "systemd");

const IMAGE: &[Need] = &[
    Need::Root,
    Need::Packages,
    IP,
    Need::Cgroup,
    Need::Cni,
    Need::StaticBusybox,
    Need::Program("containerd", "containerd"),
    Need::Program("ctr", "containerd"),
    Need::Program("runc", "runc"),
];

fn folder() -> anyhow::Result<PathBuf> {
    std::env::var_os(PACKAGES)
        .map(PathBuf::from)
        .with_context(|| format!("{PACKAGES} is not set"))
}

/// The end of the name of the DaemonSet's manifest.
pub(crate) const MANIFEST: &str = concat!("-", env!("CARGO_PKG_VERSION"), ".yaml");

/// The released file whose name ends so.
pub(crate) fn released(end: &str) -> anyhow::Result<PathBuf> {
    let folder = folder()?;
    let mut entries = fs::read_dir(&folder)?.filter_map(Result::ok);
    entries
        .find(|entry| entry.file_name().to_string_lossy().ends_with(end))
        .map(|entry| entry.path())
        .with_context(|| format!("no file *{end} in {}", folder.display()))
}

/// Runs a command to its end; what it said, or an error with that.
fn run(command: &mut Command) -> anyhow::Result<Output> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output)
}

fn said(command: &mut Command) -> anyhow::Result<String> {
    Ok(String::from_utf8(run(command)?.stdout)?)
}

/// The package's files, below a folder.
fn unpacked() -> anyhow::Result<Scratch> {
    let scratch = Scratch::create()?;
    run(Command::new("dpkg-deb")
        .arg("-x")
        .args([released(".deb")?.as_path(), scratch.path()]))?;
    Ok(scratch)
}

test!(
    apart & [Need::Packages, Need::Program("sha256sum", "coreutils")],
    released_files_have_the_sums_that_are_released_with_them
);
fn released_files_have_the_sums_that_are_released_with_them() -> anyhow::Result<()> {
    let folder = folder()?;
    let output = said(
        Command::new("sha256sum")
            .args(["--check", "--strict", "SHA256SUMS"])
            .current_dir(&folder),
    )?;
    // All but the sums themselves; beside them dist's build has a folder.
    let entries = fs::read_dir(&folder)?;
    let is_file = |entry: std::io::Result<fs::DirEntry>| Ok(entry?.file_type()?.is_file());
    let files: Vec<bool> = entries.map(is_file).collect::<std::io::Result<_>>()?;
    let files = files.into_iter().filter(|is_file| *is_file).count();
    ensure!(output.lines().count() + 1 == files, "of {files}: {output}");
    Ok(())
}

test!(
    apart & [Need::Packages, DPKG_DEB],
    dpkg_understands_the_package
);
fn dpkg_understands_the_package() -> anyhow::Result<()> {
    let package = released(".deb")?;
    let field = |name: &str| -> anyhow::Result<String> {
        let said = said(Command::new("dpkg-deb").arg("-f").arg(&package).arg(name))?;
        Ok(said.trim().to_owned())
    };
    ensure!(field("Package")? == "node-tracer");
    let architecture = architecture()?;
    ensure!(field("Architecture")? == architecture);
    let version = field("Version")?;
    ensure!(
        package.ends_with(format!("node-tracer_{version}_{architecture}.deb")),
        "{version} in {}",
        package.display()
    );
    // It brings all that it takes.
    ensure!(field("Depends")?.is_empty());
    let settings = said(
        Command::new("dpkg-deb")
            .arg("-I")
            .args([package.as_path(), Path::new("conffiles")]),
    )?;
    ensure!(settings == "/etc/default/node-tracer\n", "{settings}");
    let files = said(Command::new("dpkg-deb").arg("-c").arg(&package))?;
    for line in files.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [mode, owner, .., path] = fields.as_slice() else {
            anyhow::bail!("{line}");
        };
        ensure!(*owner == "root/root", "{line}");
        let wanted = match () {
            () if path.ends_with('/') => "drwxr-xr-x",
            () if path.starts_with("./usr/bin/") => "-rwxr-xr-x",
            () if path.starts_with("./usr/lib/node-tracer/") => "-rwxr-xr-x",
            () => "-rw-r--r--",
        };
        ensure!(*mode == wanted, "{line}");
    }
    Ok(())
}

/// dpkg, for another root; its scripts run out here, told where that is.
fn dpkg(root: &Path, args: &[&str]) -> anyhow::Result<Output> {
    run(Command::new("dpkg")
        .arg(format!("--root={}", root.display()))
        .args(["--force-script-chrootless", "--log=/dev/null"])
        .args(args))
}

/// The files below a folder, without what is dpkg's or the catalog's.
fn files(root: &Path) -> anyhow::Result<Vec<String>> {
    let listed = said(
        Command::new("find")
            .arg(root)
            .args(["-not", "-type", "d", "-not", "-path", "*/var/lib/dpkg/*"])
            .args([
                "-not",
                "-path",
                "*/var/lib/systemd/catalog/*",
                "-printf",
                "%P\n",
            ]),
    )?;
    Ok(listed.lines().map(str::to_owned).collect())
}

test!(
    &[
        Need::Root,
        Need::Packages,
        DPKG_DEB,
        SYSTEMD,
        Need::Journald,
    ],
    the_package_installs_switched_off_and_purges_without_a_trace
);
fn the_package_installs_switched_off_and_purges_without_a_trace() -> anyhow::Result<()> {
    const LINK: &str = "etc/systemd/system/multi-user.target.wants/node-tracer.service";
    let root = Scratch::create()?;
    let root = root.path();
    let database = root.join("var/lib/dpkg");
    for folder in ["info", "updates", "triggers"] {
        fs::create_dir_all(database.join(folder))?;
    }
    fs::write(database.join("status"), "")?;
    let package = released(".deb")?;
    let package = package.to_str().context("a path in UTF-8")?;

    dpkg(root, &["-i", package])?;
    let state = said(
        Command::new("dpkg-query")
            .arg(format!("--admindir={}", database.display()))
            .args(["-W", "-f", "${db:Status-Status}", "node-tracer"]),
    )?;
    ensure!(state == "installed", "{state}");
    ensure!(
        fs::symlink_metadata(root.join(LINK)).is_err(),
        "it is started without being asked for"
    );
    let tracer = root.join("usr/bin/node-tracer");
    let version = said(Command::new(&tracer).arg("--version"))?;
    ensure!(version.starts_with("node-tracer "), "{version}");
    let listed = said(
        Command::new("journalctl")
            .arg(format!("--root={}", root.display()))
            .arg("--list-catalog"),
    )?;
    ensure!(listed.contains("node-tracer:"), "{listed}");

    // Where the machine's presets ask for it, it is. What was set stays.
    dpkg(root, &["--purge", "node-tracer"])?;
    let presets = root.join("etc/systemd/system-preset");
    fs::create_dir_all(&presets)?;
    let preset = presets.join("00-site.preset");
    fs::write(&preset, "enable node-tracer.service\n")?;
    dpkg(root, &["-i", package])?;
    ensure!(fs::symlink_metadata(root.join(LINK)).is_ok(), "it is off");
    let settings = root.join("etc/default/node-tracer");
    fs::write(&settings, "NODE_TRACER_OPTIONS=--metrics 9464\n")?;
    dpkg(root, &["-i", package])?;
    ensure!(fs::read_to_string(&settings)?.contains("9464"));
    ensure!(fs::symlink_metadata(root.join(LINK)).is_ok(), "it is off");
    dpkg(root, &["--remove", "node-tracer"])?;
    ensure!(settings.exists() && !tracer.exists());

    // What only a backup can put back stays; a recording goes.
    const BACKUP: &str = "var/lib/node-tracer/backup/20261123T000000.000000Z/manifest.jsonl";
    let backup = root.join(BACKUP);
    fs::create_dir_all(backup.parent().context("its folder")?)?;
    fs::write(&backup, "{}\n")?;
    fs::write(root.join("var/lib/node-tracer/run.jsonl"), "{}\n")?;
    dpkg(root, &["--purge", "node-tracer"])?;
    fs::remove_file(preset)?;
    let left = files(root)?;
    ensure!(left == [BACKUP], "left behind: {left:?}");
    fs::remove_dir_all(root.join("var/lib/node-tracer/backup"))?;
    fs::remove_dir(root.join("var/lib/node-tracer"))?;
    dpkg(root, &["-i", package])?;
    fs::create_dir_all(root.join("var/lib/node-tracer/run"))?;
    dpkg(root, &["--purge", "node-tracer"])?;
    ensure!(
        !root.join("var/lib/node-tracer").exists(),
        "a folder is left"
    );
    Ok(())
}

test!(
    apart & [Need::Packages, DPKG_DEB, Need::Program("tar", "tar")],
    the_archive_holds_what_the_package_does
);
fn the_archive_holds_what_the_package_does() -> anyhow::Result<()> {
    let package = unpacked()?;
    let other = Scratch::create()?;
    run(Command::new("tar")
        .args(["--strip-components=1", "-xzf"])
        .arg(released("-linux-musl.tar.gz")?)
        .arg("-C")
        .arg(other.path()))?;
    run(Command::new("diff")
        .arg("-r")
        .args([package.path(), other.path()]))?;
    Ok(())
}

test!(IMAGE, containerd_takes_the_image_by_its_name);
fn containerd_takes_the_image_by_its_name() -> anyhow::Result<()> {
    let node = Containerd::start()?;
    let ctr = |args: &[&str]| -> anyhow::Result<String> {
        let mut command = node.command("ctr")?;
        let socket = node.socket();
        command.arg("-a").arg(socket).args(["-n", "k8s.io"]);
        said(command.args(args))
    };
    let file = released("-image.tar")?;
    let file = file.to_str().context("a path in UTF-8")?;
    ctr(&["images", "import", file])?;
    // The manifest names it by what containerd has it by.
    let manifest = fs::read_to_string(released(MANIFEST)?)?;
    let name = manifest
        .lines()
        .find_map(|line| line.trim().strip_prefix("image: "))
        .context("no image in the manifest")?;
    let (name, digest) = name.split_once('@').context("no digest")?;
    let checked = ctr(&["images", "check", &format!("name=={name}")])?;
    let complete =
        |line: &str| line.starts_with(name) && line.contains(digest) && line.contains("complete");
    ensure!(checked.lines().any(complete), "{name} {digest}: {checked}");
    Ok(())
}

test!(
    apart
        & [
            Need::Packages,
            DPKG_DEB,
            Need::Program("promtool", "prometheus"),
        ],
    prometheus_raises_each_alert_when_it_should
);
fn prometheus_raises_each_alert_when_it_should() -> anyhow::Result<()> {
    let package = unpacked()?;
    let rules = package
        .path()
        .join("usr/share/doc/node-tracer/examples/alerts.yaml");
    let output = said(
        Command::new("promtool")
            .args(["check", "rules"])
            .arg(&rules),
    )?;
    println!("{}", output.trim());
    // And each is raised when it should be.
    let folder = rules_folder(&rules)?;
    let folder = folder.path();
    said(
        Command::new("promtool")
            .args(["test", "rules", "alerts.test.yaml"])
            .current_dir(folder),
    )?;
    Ok(())
}

/// The rules and the tests of them, in one folder.
fn rules_folder(rules: &Path) -> anyhow::Result<Scratch> {
    const TESTS: &str = include_str!("../../fixtures/prometheus/alerts.test.yaml");
    let folder = Scratch::create()?;
    fs::copy(rules, folder.path().join("alerts.yaml"))?;
    fs::write(folder.path().join("alerts.test.yaml"), TESTS)?;
    Ok(folder)
}
