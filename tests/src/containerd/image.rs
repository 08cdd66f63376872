//! Two container images, made here: `pause`, and `box` with a busybox.
//!
//! In the form of `docker save`, which `ctr images import` takes: a tar with a
//! manifest, a configuration and one layer. So nothing is pulled from anywhere.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use serde_json::json;

/// Only waits, as the first process of every sandbox.
pub(crate) const PAUSE: &str = "localhost/nt-test-pause:1";
/// A shell and the usual small programs.
pub const BOX: &str = "localhost/nt-test-box:1";

/// Names of busybox in the box, all in /bin.
const APPLETS: [&str; 14] = [
    "sh", "cat", "dd", "sleep", "ls", "ip", "ping", "arping", "nc", "wget", "ps", "kill", "mount",
    "true",
];
/// Folders that a container's mounts go to.
const FOLDERS: [&str; 6] = ["bin", "dev", "etc", "proc", "sys", "tmp"];

/// What is at a name in a tar.
#[derive(Clone, Copy)]
enum Entry<'a> {
    File(&'a [u8]),
    Link(&'a str),
    Folder,
}

/// A tar (POSIX ustar) being written.
#[derive(Default)]
struct Tar(Vec<u8>);

impl Tar {
    const BLOCK: usize = 512;

    fn add(mut self, name: &str, entry: Entry<'_>) -> Self {
        let (kind, link, data): (u8, &str, &[u8]) = match entry {
            Entry::File(data) => (b'0', "", data),
            Entry::Link(target) => (b'2', target, &[]),
            Entry::Folder => (b'5', "", &[]),
        };
        let mut header = [0; Self::BLOCK];
        let mut put = |at: usize, bytes: &[u8]| {
            header[at..at + bytes.len()].copy_from_slice(bytes);
        };
        put(0, name.as_bytes());
        put(100, b"0000755\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", data.len()).as_bytes());
        put(136, b"00000000000\0");
        put(156, &[kind]);
        put(157, link.as_bytes());
        put(257, b"ustar\x0000");
        // The sum is over the header with blanks where the sum goes.
        put(148, b"        ");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend(header);
        self.0.extend(data);
        self.0.resize(self.0.len().next_multiple_of(Self::BLOCK), 0);
        self
    }

    fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 2 * Self::BLOCK]);
        self.0
    }
}

/// By the program of coreutils: one hash at a time needs no library.
fn sha256(data: &[u8]) -> anyhow::Result<String> {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start sha256sum")?;
    child
        .stdin
        .take()
        .context("no pipe")?
        .write_all(data)
        .context("sha256sum")?;
    let output = child.wait_with_output().context("sha256sum")?;
    let text = String::from_utf8(output.stdout)?;
    let sum = text.split(' ').next().filter(|sum| sum.len() == 64);
    Ok(sum.context("sha256sum printed no sum")?.to_owned())
}

/// This machine's architecture, as images and packages have it.
///
/// # Errors
/// There are none for it.
pub fn architecture() -> anyhow::Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => anyhow::bail!("no images for {other}"),
    }
}

/// The archive of an image with this one layer.
fn archive(reference: &str, entrypoint: &str, layer: &[u8]) -> anyhow::Result<Vec<u8>> {
    let layer_sum = sha256(layer)?;
    let config = json!({
        "architecture": architecture()?,
        "os": "linux",
        "config": { "Entrypoint": [entrypoint], "Env": ["PATH=/bin"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer_sum}")] },
    })
    .to_string();
    let (config_name, layer_name) = (
        format!("{}.json", sha256(config.as_bytes())?),
        format!("{layer_sum}.tar"),
    );
    let manifest =
        json!([{ "Config": config_name, "RepoTags": [reference], "Layers": [layer_name] }])
            .to_string();
    Ok(Tar::default()
        .add(&config_name, Entry::File(config.as_bytes()))
        .add(&layer_name, Entry::File(layer))
        .add("manifest.json", Entry::File(manifest.as_bytes()))
        .end())
}

/// Machine code of "wait for a signal, for ever".
fn wait_for_ever() -> anyhow::Result<(u16, Vec<u8>)> {
    let little_endian = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    match std::env::consts::ARCH {
        // mov eax, SYS_pause; syscall; jmp to the start
        "x86_64" => Ok((62, vec![0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7])),
        // x0..x4 = 0; x8 = SYS_ppoll; svc 0; b to the start
        "aarch64" => Ok((
            183,
            little_endian(&[
                0xd280_0000,
                0xd280_0001,
                0xd280_0002,
                0xd280_0003,
                0xd280_0004,
                0xd280_0928,
                0xd400_0001,
                0x17ff_fff9,
            ]),
        )),
        other => anyhow::bail!("no pause program for {other}"),
    }
}

/// The pause program: the smallest ELF file that the kernel runs.
fn pause_program() -> anyhow::Result<Vec<u8>> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u16 = 64 + 56;
    let (machine, code) = wait_for_ever()?;
    let size = u64::from(HEADERS) + code.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(16, 0);
    let halves = |elf: &mut Vec<u8>, values: &[u16]| {
        values
            .iter()
            .for_each(|value| elf.extend(value.to_le_bytes()));
    };
    let words = |elf: &mut Vec<u8>, values: &[u32]| {
        values
            .iter()
            .for_each(|value| elf.extend(value.to_le_bytes()));
    };
    let longs = |elf: &mut Vec<u8>, values: &[u64]| {
        values
            .iter()
            .for_each(|value| elf.extend(value.to_le_bytes()));
    };
    // ELF header: executable, entry behind the headers, one program header at 64.
    halves(&mut elf, &[2, machine]);
    words(&mut elf, &[1]);
    longs(&mut elf, &[BASE + u64::from(HEADERS), 64, 0]);
    words(&mut elf, &[0]);
    halves(&mut elf, &[64, 56, 1, 0, 0, 0]);
    // Program header: load the whole file, readable and executable.
    words(&mut elf, &[1, 5]);
    longs(&mut elf, &[0, BASE, BASE, size, size, 0x1_0000]);
    elf.extend(code);
    Ok(elf)
}

/// Writes the image of the sandboxes' first process.
pub(crate) fn write_pause(to: &Path) -> anyhow::Result<()> {
    let layer = Tar::default()
        .add("pause", Entry::File(&pause_program()?))
        .end();
    fs::write(to, archive(PAUSE, "/pause", &layer)?)
        .with_context(|| format!("write {}", to.display()))
}

/// Writes the image with this statically linked busybox.
pub(crate) fn write_box(to: &Path, busybox: &Path) -> anyhow::Result<()> {
    let program = fs::read(busybox).with_context(|| format!("read {}", busybox.display()))?;
    let mut layer = Tar::default();
    for folder in FOLDERS {
        layer = layer.add(folder, Entry::Folder);
    }
    layer = layer.add("bin/busybox", Entry::File(&program));
    for applet in APPLETS {
        layer = layer.add(&format!("bin/{applet}"), Entry::Link("busybox"));
    }
    fs::write(to, archive(BOX, "/bin/sh", &layer.end())?)
        .with_context(|| format!("write {}", to.display()))
}

/// Whether a program is an ELF file that needs no dynamic loader.
pub(crate) fn is_static(program: &Path) -> bool {
    const PT_INTERP: u32 = 3;
    let Ok(elf) = fs::read(program) else {
        return false;
    };
    let number = |at: usize, size: usize| -> Option<u64> {
        let bytes = elf.get(at..at + size)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
        )
    };
    let interpreted = || -> Option<bool> {
        let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        (0..count)
            .map(|index| number((table + index * size) as usize, 4))
            .try_fold(false, |found, kind| {
                Some(found || kind? == u64::from(PT_INTERP))
            })
    };
    elf.starts_with(b"\x7fELF\x02\x01") && interpreted() == Some(false)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::*;
    use crate::scratch::Scratch;
    use crate::wait;

    #[test]
    fn tar_reads_what_is_written_here() {
        let folder = Scratch::create().unwrap();
        let file = folder.path().join("layer.tar");
        let tar = Tar::default()
            .add("bin", Entry::Folder)
            .add("bin/a", Entry::File(&[b'x'; 700]))
            .add("bin/b", Entry::Link("a"))
            .end();
        fs::write(&file, tar).unwrap();
        let unpack = Command::new("tar")
            .args(["-x", "-f"])
            .arg(&file)
            .arg("-C")
            .arg(folder.path())
            .output()
            .unwrap();
        assert!(
            unpack.status.success() && unpack.stderr.is_empty(),
            "{unpack:?}"
        );
        assert_eq!(fs::read(folder.path().join("bin/b")).unwrap(), [b'x'; 700]);
    }

    #[test]
    fn the_pause_program_runs_and_does_not_end() {
        let folder = Scratch::create().unwrap();
        let file = folder.path().join("pause");
        fs::write(&file, pause_program().unwrap()).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(is_static(&file), "it needs no loader");
        let mut child = Command::new(&file).spawn().unwrap();
        let ended = wait::settle(Duration::from_millis(100), || {
            child.try_wait().unwrap().is_some()
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!ended);
    }

    #[test]
    fn a_program_with_a_loader_is_not_static() {
        assert!(!is_static(&std::env::current_exe().unwrap()));
        assert!(!is_static(Path::new("/dev/null")));
    }
}
