//! Debian's package (deb(5)): an ar archive of a version, of what dpkg is to
//! know, and of the files.

use anyhow::Context as _;
use md5::{Digest as _, Md5};

use super::archive::{FILE, PROGRAM, Tree, gzip, tar};
use super::contents::{Contents, source};
use super::{Release, hex};
use crate::arch::Arch;

const DESCRIPTION: &str = "\
finds pod sandboxes whose network namespace outlives the pod
 On a Kubernetes node, an older sandbox can keep an address that the API server
 and the address pool have forgotten: its pod was force-deleted, but a process
 in uninterruptible sleep holds its network namespace. node-tracer says who
 holds the address, why, since when, and which pod will suffer: when asked, and
 as a service that writes what it finds into the journal.
 .
 It looks, by eBPF, /proc, netlink and CRI, and changes nothing on its own.";

/// The package's file name.
pub(super) fn name(arch: Arch, release: &Release) -> String {
    format!("node-tracer_{}_{}.deb", release.version, arch.name())
}

pub(super) fn package(contents: &Contents, release: &Release) -> anyhow::Result<Vec<u8>> {
    let files = contents.installed();
    let mut members = Vec::new();
    for (name, content) in [
        ("debian-binary", b"2.0\n".to_vec()),
        (
            "control.tar.gz",
            gzip(&tar(
                &control(&files, contents.arch, release)?,
                "./",
                release.time,
            )?)?,
        ),
        ("data.tar.gz", gzip(&tar(&files, "./", release.time)?)?),
    ] {
        members.push((name, content));
    }
    Ok(ar(&members, release.time))
}

/// What dpkg is to know.
fn control(files: &Tree, arch: Arch, release: &Release) -> anyhow::Result<Tree> {
    let size: usize = files.values().map(|(_, content)| content.len()).sum();
    let fields = [
        ("Package", "node-tracer"),
        ("Version", &release.version),
        ("Architecture", arch.name()),
        // Debian wants an address.
        (
            "Maintainer",
            "The node-tracer authors <node-tracer@localhost>",
        ),
        ("Installed-Size", &size.div_ceil(1024).to_string()),
        ("Section", "admin"),
        ("Priority", "optional"),
        ("Homepage", "https://github.com/node-tracer/node-tracer"),
        ("Description", DESCRIPTION),
    ];
    let fields: String = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect();
    let sums: String = files
        .iter()
        .map(|(path, (_, content))| format!("{}  {path}\n", hex(&Md5::digest(content))))
        .collect();
    let settings: String = files
        .keys()
        .filter(|path| path.starts_with("etc/"))
        .map(|path| format!("/{path}\n"))
        .collect();
    let mut control = Tree::from([
        (String::from("control"), (FILE, fields.into_bytes())),
        (String::from("md5sums"), (FILE, sums.into_bytes())),
        (String::from("conffiles"), (FILE, settings.into_bytes())),
    ]);
    for script in ["postinst", "prerm", "postrm"] {
        let content = source(&format!("debian/{script}")).context("a script of the package")?;
        control.insert(script.to_owned(), (PROGRAM, content));
    }
    Ok(control)
}

/// An archive in the form that deb(5) asks for.
fn ar(members: &[(&str, Vec<u8>)], time: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, content) in members {
        let (owner, group, mode) = (0, 0, "100644");
        let size = content.len();
        let header = format!("{name:<16}{time:<12}{owner:<6}{group:<6}{mode:<8}{size:<10}`\n");
        archive.extend(header.into_bytes());
        archive.extend(content);
        // Every member begins at an even place.
        if size % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_a_header_of_60_bytes_and_the_content_padded() {
        let archive = ar(&[("one", b"123".to_vec()), ("two", b"12".to_vec())], 7);
        assert_eq!(archive.len(), 8 + 60 + 4 + 60 + 2);
        let text = String::from_utf8(archive).unwrap();
        assert!(text.starts_with("!<arch>\none             7           0     0     100644  3"));
        assert_eq!(&text[66..72], "`\n123\n");
        assert!(text[72..].starts_with("two "));
    }

    #[test]
    fn settings_are_dpkgs_to_keep_and_every_file_has_a_sum() {
        let files = Tree::from([
            (String::from("etc/default/x"), (FILE, b"1".to_vec())),
            (String::from("usr/bin/x"), (PROGRAM, vec![0; 1025])),
        ]);
        let release = Release {
            version: String::from("1.2.3"),
            time: 0,
        };
        let control = control(&files, Arch::Arm64, &release).unwrap();
        let text = |name: &str| String::from_utf8(control[name].1.clone()).unwrap();
        assert_eq!(text("conffiles"), "/etc/default/x\n");
        assert_eq!(
            text("md5sums").lines().next(),
            Some("c4ca4238a0b923820dcc509a6f75849b  etc/default/x")
        );
        assert!(text("control").contains("\nVersion: 1.2.3\nArchitecture: arm64\n"));
        assert!(text("control").contains("\nInstalled-Size: 2\n"));
        // One line of a summary, and no empty line in the description.
        let (_, description) = text("control")
            .split_once("Description: ")
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .unwrap();
        let mut lines = description.lines();
        assert!(lines.next().unwrap().len() < 80);
        assert!(lines.all(|line| line.starts_with(' ') && line.len() <= 80));
        assert_eq!(control["postinst"].0, PROGRAM);
    }
}
