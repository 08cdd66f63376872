//! What is built for the guests, and what they start from.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use node_tracer_tests::kube::assets::FOLDER;
use node_tracer_tests::scratch::Scratch;

use super::initramfs::Archive;
use super::modules::Modules;
use super::suite::Suite;
use super::tools::Tools;
use crate::arch::Arch;
use crate::{cargo, dist};

/// What is built for the guests.
#[derive(Debug)]
pub(crate) struct Programs {
    arch: Arch,
    tracer: PathBuf,
    guest: PathBuf,
    /// The integration tests, where a suite runs them.
    integration: Option<PathBuf>,
}

impl Programs {
    /// Builds what these suites need. A tracer that `NODE_TRACER_BIN` names, a released one say,
    /// is taken as it is; the guests have no C library for it.
    pub(crate) fn build(arch: Arch, suites: &[Suite]) -> anyhow::Result<Self> {
        let profile = ["--profile", "guest", "--target", arch.target(), "--package"];
        let program = |package, name| [&profile[..], &[package, "--bin", name]].concat();
        let (guest, tests) = ("node-tracer-guest", "integration");
        let integration = || {
            let args = [&profile[..], &["node-tracer-tests", "--test", tests]].concat();
            cargo::build_tests(&args, tests)
        };
        let is_wanted = suites.contains(&Suite::Cluster);
        Ok(Self {
            arch,
            tracer: cargo::build_tracer(&program("node-tracer", "node-tracer"))?,
            guest: cargo::build(&program("node-tracer-tests", guest), guest)?,
            integration: is_wanted.then(integration).transpose()?,
        })
    }
}

/// What the guest puts on its disk.
const NODE: &str = "/node";

/// The guest's file system.
pub(crate) fn pack(
    programs: &Programs,
    tools: &Tools,
    modules: &Modules,
    suite: Suite,
) -> anyhow::Result<Archive> {
    let mut archive = Archive::default();
    for folder in ["/proc", "/sys", "/dev", "/run", "/tmp", "/etc", "/root"] {
        archive.folder(Path::new(folder));
    }
    archive.copy(&programs.guest, Path::new("/init"))?;
    archive.copy(&programs.tracer, Path::new("/bin/node-tracer"))?;
    // Loaded in the order of their names.
    for (at, module) in modules.load.iter().enumerate() {
        let path = format!("/modules/{at:02}-{}.ko", module.name);
        archive.file(Path::new(&path), 0o644, &module.content);
    }
    if suite.has_disk() {
        let node = Path::new(NODE);
        let package = dist::debian_package(&programs.tracer, programs.arch)?;
        archive.file(&node.join("node-tracer.deb"), 0o644, &package);
        if let Some(tests) = programs
            .integration
            .as_ref()
            .filter(|_| suite == Suite::Cluster)
        {
            archive.copy(tests, &node.join("integration"))?;
            let packages = Scratch::create()?;
            dist::pack_into(&programs.tracer, packages.path()).context("the packages")?;
            archive.files(packages.path(), &node.join("packages"))?;
            let kube = std::env::var_os(FOLDER).with_context(|| format!("{FOLDER} is not set"))?;
            archive.files(Path::new(&kube), &node.join("kube"))?;
        }
        return Ok(archive);
    }
    for (name, package) in [("ip", "iproute2"), ("busybox", "busybox-static")] {
        let missing = || format!("no {name} (Debian: {package}); cargo xtask setup brings it");
        let from = tools.program(name).with_context(missing)?;
        archive.program(tools, &from, &Path::new("/bin").join(name))?;
    }
    for applet in ["sh", "cat", "ls", "stat", "true", "unshare"] {
        archive.link(Path::new(&format!("/bin/{applet}")), "busybox");
    }
    archive.link(Path::new("/opt/cni/bin/nt-plugin"), "/init");
    if let Some(folder) = tools.plugins() {
        for plugin in ["bridge", "host-local", "loopback"] {
            let to = Path::new("/usr/lib/cni").join(plugin);
            archive.program(tools, &folder.join(plugin), &to)?;
        }
    }
    Ok(archive)
}
