//! Debian's packages, by apt, without a change of this machine: apt gets a
//! configuration, lists and a cache of its own, and nothing is installed.
//!
//! The archive is the one that this machine's apt has already; on a machine
//! without one (Ubuntu, say) `--archive` names it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::arch::Arch;

/// Which of Debian's archives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Archive {
    Main,
    Security,
}

pub(crate) const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Where Debian's packages are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mirror {
    main: String,
    security: String,
}

impl Mirror {
    /// The one that was named, or that of this machine's apt.
    pub(crate) fn find(named: Option<&str>) -> anyhow::Result<Self> {
        if let Some(named) = named {
            return Self::parse(&format!("{}/", named.trim_end_matches('/'))).with_context(|| {
                format!("--archive {named}: the URL of a Debian archive ends in /debian")
            });
        }
        let output = Command::new("apt-get")
            .args(["indextargets", "--format", "$(REPO_URI)"])
            .arg("Created-By: Packages")
            .stdin(Stdio::null())
            .output()
            .context("start apt-get")?;
        Self::parse(&String::from_utf8_lossy(&output.stdout)).context(
            "this machine's apt has no Debian archive (or no lists: apt-get update); give one with --archive",
        )
    }

    /// Out of the archives' URLs, one a line.
    fn parse(urls: &str) -> Option<Self> {
        let find = |end: &str| urls.lines().map(str::trim).find(|url| url.ends_with(end));
        let main = find("/debian/")?;
        let beside = || Some(format!("{}-security/", main.strip_suffix('/')?));
        Some(Self {
            main: main.to_owned(),
            security: find("/debian-security/").map_or_else(beside, |url| Some(url.to_owned()))?,
        })
    }

    /// The URL of the main archive.
    pub(crate) fn main(&self) -> &str {
        &self.main
    }

    /// A line for apt's list of sources, of the main archive.
    pub(crate) fn main_line(&self, suite: &str) -> String {
        self.line(Archive::Main, suite)
    }

    fn line(&self, archive: Archive, suite: &str) -> String {
        let url = match archive {
            Archive::Main => &self.main,
            Archive::Security => &self.security,
        };
        format!("deb [signed-by={KEYS}] {url} {suite} main\n")
    }
}

/// The folder of this name in which things are kept between runs.
pub(crate) fn cache(name: &str) -> anyhow::Result<PathBuf> {
    let folder = match std::env::var_os("XDG_CACHE_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => {
            let home =
                std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?;
            Path::new(&home).join(".cache")
        }
    };
    Ok(folder.join(name))
}

/// Makes an empty folder.
pub(crate) fn remake(folder: &Path) -> anyhow::Result<()> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())
}

/// Runs to the end; what it said is the result, or the error.
pub(crate) fn run(command: &mut Command, what: &str) -> anyhow::Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {what}; cargo xtask setup brings it"))?;
    anyhow::ensure!(
        output.status.success(),
        "{what}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// apt with folders of its own, and what it is to unpack.
#[derive(Debug)]
pub(crate) struct Apt {
    /// What is unpacked goes into `root` there.
    folder: PathBuf,
    own: PathBuf,
}

impl Apt {
    /// Makes it ready to fetch packages for `arch` out of these suites.
    pub(crate) fn prepare(
        folder: &Path,
        mirror: Option<&str>,
        arch: Arch,
        suites: &[(Archive, &str)],
    ) -> anyhow::Result<Self> {
        let mirror = Mirror::find(mirror)?;
        let own = folder.join("apt");
        remake(&own)?;
        for below in ["lists/partial", "cache/archives/partial"] {
            let below = own.join(below);
            fs::create_dir_all(&below).with_context(|| below.display().to_string())?;
        }
        let sources: String = suites
            .iter()
            .map(|(archive, suite)| mirror.line(*archive, suite))
            .collect();
        fs::write(own.join("sources.list"), sources)?;
        fs::write(own.join("status"), "")?;
        // How the archive is reached (proxies) is as this machine has it; its
        // other settings, such as commands to run, are not taken.
        let acquire = run(
            Command::new("apt-config").args(["dump", "--format", "%f \"%v\";%n", "Acquire"]),
            "apt-config",
        )?;
        let acquire: String = acquire
            .lines()
            .filter(|line| !line.contains("IndexTargets") && !line.contains("::: "))
            .map(|line| format!("{line}\n"))
            .collect();
        let at = own.display();
        fs::write(
            own.join("apt.conf"),
            format!(
                "{acquire}\
                 Dir::Etc::main \"/dev/null\";\nDir::Etc::parts \"/dev/null\";\n\
                 Dir::Etc::sourcelist \"{at}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
                 Dir::Etc::preferences \"/dev/null\";\nDir::Etc::preferencesparts \"/dev/null\";\n\
                 Dir::State::lists \"{at}/lists\";\nDir::State::status \"{at}/status\";\n\
                 Dir::Cache \"{at}/cache\";\n\
                 APT::Architecture \"{}\";\nAPT::Sandbox::User \"root\";\n\
                 Acquire::Languages \"none\";\n",
                arch.name()
            ),
        )?;
        let apt = Self {
            folder: folder.to_owned(),
            own,
        };
        apt.run("apt-get", &["-q", "update"])?;
        Ok(apt)
    }

    /// What a program of apt's says.
    pub(crate) fn run(&self, program: &str, args: &[&str]) -> anyhow::Result<String> {
        run(
            Command::new(program)
                .args(args)
                .current_dir(&self.own)
                .env("APT_CONFIG", self.own.join("apt.conf")),
            &format!("{program} {}", args.join(" ")),
        )
    }

    /// These packages and all that they depend on.
    pub(crate) fn with_dependencies(&self, packages: &[&str]) -> anyhow::Result<Vec<String>> {
        let install = ["-qs", "--no-install-recommends", "install"];
        let planned = self.run("apt-get", &[&install, packages].concat())?;
        Ok(installed(&planned).map(str::to_owned).collect())
    }

    /// Downloads these packages and unpacks them; `ready` has the last word, so
    /// what is there is whole. Returns the folder.
    pub(crate) fn unpack(
        self,
        packages: &[String],
        ready: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<PathBuf> {
        let names = packages.iter().map(String::as_str);
        let args: Vec<&str> = ["-q", "download"].into_iter().chain(names).collect();
        self.run("apt-get", &args)?;
        // Beside, and then renamed.
        let beside = self.folder.join("root.new");
        remake(&beside)?;
        for entry in fs::read_dir(&self.own)?.flatten() {
            if entry.path().extension().is_some_and(|end| end == "deb") {
                let mut unpack = Command::new("dpkg-deb");
                unpack.arg("-x").arg(entry.path()).arg(&beside);
                run(&mut unpack, "dpkg-deb")?;
            }
        }
        // Newer packages have /usr/lib only, and depmod and programs look in /lib.
        if !beside.join("lib").exists() {
            std::os::unix::fs::symlink("usr/lib", beside.join("lib"))?;
        }
        ready(&beside)?;
        let root = self.folder.join("root");
        let _ = fs::remove_dir_all(&root);
        fs::rename(&beside, &root).with_context(|| root.display().to_string())?;
        fs::remove_dir_all(&self.own).with_context(|| self.own.display().to_string())?;
        Ok(root)
    }
}

/// The packages in a plan of apt's.
fn installed(planned: &str) -> impl Iterator<Item = &str> {
    let plans = planned
        .lines()
        .filter_map(|line| line.strip_prefix("Inst "));
    plans.filter_map(|line| line.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_security_archive_is_beside_the_main_one() {
        let both = "http://a/debian/\nhttp://b/x/debian-security/\n";
        let mirror = Mirror::parse(both).unwrap();
        assert_eq!(mirror.main, "http://a/debian/");
        assert_eq!(mirror.security, "http://b/x/debian-security/");
        let one = Mirror::parse("http://other/repo/\nhttp://a/debian/\n").unwrap();
        assert_eq!(one.security, "http://a/debian-security/");
        assert_eq!(Mirror::parse("http://a/ubuntu/\n"), None);
    }

    #[test]
    fn a_plan_names_what_comes() {
        let planned = "Reading package lists...\n\
                       Inst libc6 (2.41-12 Debian:13/stable [arm64])\n\
                       Conf libc6 (2.41-12 Debian:13/stable [arm64])\n";
        assert_eq!(installed(planned).collect::<Vec<_>>(), ["libc6"]);
    }
}
