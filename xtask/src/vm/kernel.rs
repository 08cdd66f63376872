//! Debian's kernels, by apt, without a change of this machine: apt gets a
//! configuration, lists and a cache of its own, and nothing is installed.
//!
//! The archive is the one that this machine's apt has already; on a machine
//! without one (Ubuntu, say) `--archive` names it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// A kernel that can be asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// What it is called here: the version's beginning.
    pub(crate) name: &'static str,
    /// (archive, suite); the newest version in them is taken.
    suites: &'static [(Archive, &'static str)],
}

/// Which of Debian's archives.
#[derive(Clone, Copy, Debug)]
enum Archive {
    Main,
    Security,
}

/// All of them, oldest first.
pub(crate) const ALL: [Wanted; 4] = [
    Wanted {
        name: "5.10",
        suites: &[(Archive::Security, "bullseye-security")],
    },
    Wanted {
        name: "6.1",
        suites: &[
            (Archive::Main, "bookworm"),
            (Archive::Security, "bookworm-security"),
        ],
    },
    Wanted {
        name: "6.12",
        suites: &[
            (Archive::Main, "trixie"),
            (Archive::Security, "trixie-security"),
        ],
    },
    Wanted {
        name: "7.2",
        suites: &[(Archive::Main, "forky")],
    },
];

/// The flavour without drivers of real machines: a quarter of the size.
const PACKAGE: &str = "linux-image-cloud-amd64";
pub(crate) const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A kernel that is unpacked.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// As in [`Wanted`].
    pub(crate) name: &'static str,
    /// What `uname -r` says in it.
    pub(crate) release: String,
    pub(crate) image: PathBuf,
    /// `lib/modules/RELEASE`
    pub(crate) modules: PathBuf,
}

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

impl Wanted {
    /// The kernel of this name.
    pub(crate) fn of(name: &str) -> anyhow::Result<Self> {
        ALL.into_iter()
            .find(|wanted| wanted.name == name)
            .with_context(|| {
                format!(
                    "no kernel {name}: there are {}",
                    ALL.map(|wanted| wanted.name).join(", ")
                )
            })
    }

    /// Fetches and unpacks it into `cache`, unless it is there.
    pub(crate) fn bring(self, cache: &Path, mirror: Option<&str>) -> anyhow::Result<Kernel> {
        let folder = cache.join(self.name);
        let root = folder.join("root");
        if let Ok(kernel) = self.unpacked(&root) {
            return Ok(kernel);
        }
        println!("vm: {}: fetching Debian's kernel", self.name);
        let mirror = Mirror::find(mirror)?;
        let apt = Apt::prepare(&folder.join("apt"), &mirror, self.suites)?;
        apt.run("apt-get", &["-q", "update"], &folder)?;
        let mut packages = vec![PACKAGE.to_owned()];
        let mut next = 0;
        while let Some(package) = packages.get(next) {
            next += 1;
            let shown = apt.run(
                "apt-cache",
                &["show", "--no-all-versions", package],
                &folder,
            )?;
            for name in kernel_packages(&shown) {
                if !packages.contains(&name) {
                    packages.push(name);
                }
            }
        }
        // The first is empty: it only names the newest.
        let names: Vec<&str> = packages.iter().skip(1).map(String::as_str).collect();
        anyhow::ensure!(!names.is_empty(), "{PACKAGE} names no kernel");
        let debs = folder.join("debs");
        remake(&debs)?;
        apt.run(
            "apt-get",
            &[&["-q", "download"], &names[..]].concat(),
            &debs,
        )?;
        // Unpacked beside and then renamed: what is there is whole.
        let beside = folder.join("root.new");
        remake(&beside)?;
        for deb in fs::read_dir(&debs)?.flatten() {
            run(
                Command::new("dpkg-deb")
                    .arg("-x")
                    .arg(deb.path())
                    .arg(&beside),
                "dpkg-deb",
            )?;
        }
        // Newer packages have /usr/lib only, and depmod looks in /lib.
        if !beside.join("lib").exists() {
            std::os::unix::fs::symlink("usr/lib", beside.join("lib"))?;
        }
        let kernel = self.unpacked(&beside)?;
        run(
            Command::new("depmod")
                .arg("-b")
                .arg(&beside)
                .arg(&kernel.release),
            "depmod",
        )?;
        let _ = fs::remove_dir_all(&root);
        fs::rename(&beside, &root).with_context(|| root.display().to_string())?;
        for done in [debs, folder.join("apt")] {
            fs::remove_dir_all(&done).with_context(|| done.display().to_string())?;
        }
        self.unpacked(&root)
    }

    /// What is unpacked below `root`.
    fn unpacked(self, root: &Path) -> anyhow::Result<Kernel> {
        let folder = root.join("lib/modules");
        let release = fs::read_dir(&folder)
            .with_context(|| folder.display().to_string())?
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .max()
            .with_context(|| format!("no kernel in {}", folder.display()))?;
        let modules = folder.join(&release);
        let images = [
            root.join(format!("boot/vmlinuz-{release}")),
            modules.join("vmlinuz"),
        ];
        let image = images.into_iter().find(|image| image.is_file());
        Ok(Kernel {
            name: self.name,
            image: image.with_context(|| format!("no vmlinuz below {}", root.display()))?,
            release,
            modules,
        })
    }
}

/// Packages of the kernel itself that a package depends on: not the tools that
/// an installed one needs.
fn kernel_packages(shown: &str) -> Vec<String> {
    const KINDS: [&str; 4] = [
        "linux-image-",
        "linux-binary-",
        "linux-modules-",
        "linux-base-",
    ];
    let depends = shown
        .lines()
        .filter_map(|line| line.strip_prefix("Depends: "));
    depends
        .flat_map(|line| line.split(','))
        .filter_map(|one| one.split_whitespace().next())
        .filter(|name| {
            // `linux-base-cloud-amd64` is empty, as the first one is.
            KINDS.iter().any(|kind| {
                name.strip_prefix(kind)
                    .is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
            })
        })
        .map(str::to_owned)
        .collect()
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

/// apt with folders of its own.
#[derive(Debug)]
struct Apt {
    config: PathBuf,
}

impl Apt {
    fn prepare(folder: &Path, mirror: &Mirror, suites: &[(Archive, &str)]) -> anyhow::Result<Self> {
        for below in ["lists/partial", "cache/archives/partial"] {
            let below = folder.join(below);
            fs::create_dir_all(&below).with_context(|| below.display().to_string())?;
        }
        let sources: String = suites
            .iter()
            .map(|(archive, suite)| mirror.line(*archive, suite))
            .collect();
        fs::write(folder.join("sources.list"), sources)?;
        fs::write(folder.join("status"), "")?;
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
        let at = folder.display();
        let config = folder.join("apt.conf");
        fs::write(
            &config,
            format!(
                "{acquire}\
                 Dir::Etc::main \"/dev/null\";\nDir::Etc::parts \"/dev/null\";\n\
                 Dir::Etc::sourcelist \"{at}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
                 Dir::Etc::preferences \"/dev/null\";\nDir::Etc::preferencesparts \"/dev/null\";\n\
                 Dir::State::lists \"{at}/lists\";\nDir::State::status \"{at}/status\";\n\
                 Dir::Cache \"{at}/cache\";\n\
                 APT::Architecture \"amd64\";\nAPT::Sandbox::User \"root\";\n\
                 Acquire::Languages \"none\";\n"
            ),
        )?;
        Ok(Self { config })
    }

    fn run(&self, program: &str, args: &[&str], folder: &Path) -> anyhow::Result<String> {
        run(
            Command::new(program)
                .args(args)
                .current_dir(folder)
                .env("APT_CONFIG", &self.config),
            &format!("{program} {}", args.join(" ")),
        )
    }
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
    fn only_packages_of_the_kernel_are_followed() {
        let shown = "Package: x\nDepends: dracut | initramfs-tools (>= 0.1), \
                     linux-base-7.2.12+deb14-cloud-amd64 (= 7.2.12-1), linux-base (>= 4.3~), \
                     linux-base-cloud-amd64 (= 7), linux-binary-7.2.12+deb14-cloud-amd64 (= 7.2.12-1)\n";
        assert_eq!(
            kernel_packages(shown),
            [
                "linux-base-7.2.12+deb14-cloud-amd64",
                "linux-binary-7.2.12+deb14-cloud-amd64"
            ]
        );
        assert_eq!(
            kernel_packages("Depends: kmod, linux-base (>= 4.3~)\n"),
            [""; 0]
        );
    }
}
