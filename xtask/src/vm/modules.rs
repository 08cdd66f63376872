//! The modules that a guest loads, with what they depend on, in order.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use super::kernel::Kernel;

/// A module, uncompressed.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
}

/// What is to be loaded, in order, and the names of those that the kernel has
/// neither as modules nor built in.
#[derive(Debug)]
pub(crate) struct Modules {
    pub(crate) load: Vec<Module>,
    pub(crate) missing: Vec<&'static str>,
}

/// `path/of/a-b.ko.xz` is module `a_b`.
fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    let name = file.split(".ko").next().unwrap_or(file);
    name.replace('-', "_")
}

/// `modules.dep`: each module with those that it needs, the nearest first.
fn parse(dependencies: &str) -> Vec<(&str, Vec<&str>)> {
    dependencies
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(path, needs)| (path, needs.split_whitespace().collect()))
        .collect()
}

/// Paths in the order in which they can be loaded.
fn order<'a>(dependencies: &[(&'a str, Vec<&'a str>)], wanted: &[&str]) -> Vec<&'a str> {
    let mut order = Vec::new();
    for name in wanted {
        let found = dependencies.iter().find(|(path, _)| name_of(path) == *name);
        let Some((path, needs)) = found else { continue };
        for path in needs.iter().rev().chain([path]) {
            if !order.contains(path) {
                order.push(*path);
            }
        }
    }
    order
}

/// Reads the modules that are wanted of this kernel.
pub(crate) fn of(kernel: &Kernel, wanted: &[&'static str]) -> anyhow::Result<Modules> {
    let read = |name: &str| {
        let path = kernel.modules.join(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let (dependencies, builtin) = (read("modules.dep")?, read("modules.builtin")?);
    let dependencies = parse(&dependencies);
    let has = |name: &str| {
        dependencies.iter().any(|(path, _)| name_of(path) == name)
            || builtin.lines().any(|path| name_of(path) == name)
    };
    let load = order(&dependencies, wanted).into_iter();
    let load = load.map(|path| {
        Ok(Module {
            name: name_of(path),
            content: plain(&kernel.modules.join(path))?,
        })
    });
    Ok(Modules {
        load: load.collect::<anyhow::Result<_>>()?,
        missing: wanted.iter().copied().filter(|name| !has(name)).collect(),
    })
}

/// The file, or what is compressed in it: the guest has no use for less.
fn plain(path: &Path) -> anyhow::Result<Vec<u8>> {
    let program = match path.extension().and_then(|end| end.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(path).with_context(|| path.display().to_string()),
    };
    let output = Command::new(program)
        .arg("-dc")
        .arg(path)
        .output()
        .with_context(|| format!("start {program}; cargo xtask setup brings it"))?;
    anyhow::ensure!(
        output.status.success(),
        "{program} {}: {}",
        path.display(),
        output.status
    );
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_needs_comes_before_it() {
        let text = "kernel/net/bridge/bridge.ko.xz: kernel/net/802/stp.ko.xz kernel/net/llc/llc.ko.xz\n\
                    kernel/net/802/stp.ko.xz: kernel/net/llc/llc.ko.xz\n\
                    kernel/net/llc/llc.ko.xz:\n\
                    kernel/net/af-packet.ko:\n";
        let dependencies = parse(text);
        let names = |wanted: &[&str]| -> Vec<String> {
            order(&dependencies, wanted)
                .into_iter()
                .map(name_of)
                .collect()
        };
        assert_eq!(names(&["bridge"]), ["llc", "stp", "bridge"]);
        assert_eq!(names(&["stp", "bridge", "none"]), ["llc", "stp", "bridge"]);
        assert_eq!(names(&["af_packet"]), ["af_packet"]);
    }
}
