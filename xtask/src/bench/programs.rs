//! Kernel programs: those that a process has attached, how often and for how
//! long they ran, and an empty one to compare them with.
//!
//! How long they ran is what the kernel counts itself (`kernel.bpf_stats_enabled`):
//! the time between two readings of its clock around each run, of which the
//! reading is a part.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use aya::Ebpf;
use aya::programs::{RawTracePoint, loaded_programs};
use object::write::{Object, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
};

/// While it exists, the kernel counts how long programs run.
#[derive(Debug)]
pub(crate) struct Counting {
    before: String,
}

const COUNTING: &str = "/proc/sys/kernel/bpf_stats_enabled";

impl Counting {
    /// Begins, and remembers what was set.
    pub(crate) fn begin() -> anyhow::Result<Self> {
        let before = fs::read_to_string(COUNTING).context(COUNTING)?;
        fs::write(COUNTING, "1").context(COUNTING)?;
        Ok(Self { before })
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        if let Err(error) = fs::write(COUNTING, &self.before) {
            eprintln!("bench: {COUNTING} stays 1: {error}");
        }
    }
}

/// What a program has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    /// Nanoseconds, while they were counted.
    pub(crate) time: u64,
    /// Runs, while they were counted.
    pub(crate) count: u64,
}

impl Runs {
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            time: self.time.saturating_sub(before.time),
            count: self.count.saturating_sub(before.count),
        }
    }

    /// Nanoseconds of one run; none if there was none.
    pub(crate) fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.time as f64 / self.count as f64)
    }
}

/// A program that a process holds.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// As the kernel knows it.
    pub(crate) id: u32,
    /// As its author calls it (15 letters at most).
    pub(crate) name: String,
    /// The tracepoint that it is attached to, if it is by a link.
    pub(crate) tracepoint: Option<String>,
    pub(crate) runs: Runs,
}

impl Program {
    /// What runs it. Without a link to say it, its name: bpftrace names its
    /// programs by their tracepoints.
    pub(crate) fn hook(&self) -> &str {
        self.tracepoint.as_deref().unwrap_or(&self.name)
    }
}

/// The texts of a process's descriptors of this kind, as /proc/PID/fdinfo has them.
fn descriptors(pid: u32, kind: &str) -> anyhow::Result<Vec<String>> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let mut texts = Vec::new();
    let names = fs::read_dir(process.join("fd"));
    for entry in names.with_context(|| format!("/proc/{pid}/fd"))?.flatten() {
        let is_kind = |target: PathBuf| target == Path::new(kind);
        if fs::read_link(entry.path()).is_ok_and(is_kind) {
            let info = process.join("fdinfo").join(entry.file_name());
            // It may be closed by now.
            texts.extend(fs::read_to_string(info));
        }
    }
    Ok(texts)
}

/// A line's value of such a text.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.strip_prefix(':')?.trim())
}

fn number<T: std::str::FromStr>(text: &str, key: &str) -> Option<T> {
    value(text, key)?.parse().ok()
}

/// How many attachments a process has: links, and perf events, which older
/// programs attach by.
pub(crate) fn attachments(pid: u32) -> anyhow::Result<usize> {
    let kinds = ["anon_inode:bpf_link", "anon_inode:[perf_event]"];
    let counts = kinds.map(|kind| Ok(descriptors(pid, kind)?.len()));
    counts.into_iter().sum()
}

/// All programs that a process holds.
pub(crate) fn of(pid: u32) -> anyhow::Result<Vec<Program>> {
    let hooks: BTreeMap<u32, String> = descriptors(pid, "anon_inode:bpf_link")?
        .iter()
        .filter_map(|text| Some((number(text, "prog_id")?, value(text, "tp_name")?.to_owned())))
        .collect();
    let names: BTreeMap<u32, String> = loaded_programs()
        .flatten()
        .filter_map(|program| Some((program.id(), program.name_as_str()?.to_owned())))
        .collect();
    let program = |text: &String| {
        let id = number(text, "prog_id")?;
        Some(Program {
            id,
            name: names.get(&id).cloned().unwrap_or_default(),
            tracepoint: hooks.get(&id).cloned(),
            runs: runs(text)?,
        })
    };
    let mut programs: Vec<Program> = descriptors(pid, "anon_inode:bpf-prog")?
        .iter()
        .filter_map(program)
        .collect();
    programs.sort_by_key(|program| program.id);
    programs.dedup_by_key(|program| program.id);
    Ok(programs)
}

fn runs(text: &str) -> Option<Runs> {
    Some(Runs {
        time: number(text, "run_time_ns")?,
        count: number(text, "run_cnt")?,
    })
}

/// A program that does nothing, attached to a tracepoint of the kernel by this
/// process until it is dropped.
///
/// Its type is `raw_tp`. The kernel runs `tp_btf` and `raw_tp` programs in the
/// same way; the types differ in what the verifier lets them read.
#[derive(Debug)]
pub(crate) struct Empty {
    _loaded: Ebpf,
}

/// Name of the empty programs, by which [`of`] tells them from others.
pub(crate) const EMPTY: &str = "bench_empty";

impl Empty {
    pub(crate) fn attach(tracepoint: &str) -> anyhow::Result<Self> {
        let mut loaded = Ebpf::load(&object_file()?).context("load an empty program")?;
        let program = loaded.program_mut(EMPTY).context(EMPTY)?;
        let program: &mut RawTracePoint = program.try_into()?;
        program.load().context("load an empty program")?;
        program
            .attach(tracepoint)
            .with_context(|| format!("attach an empty program to {tracepoint}"))?;
        Ok(Self { _loaded: loaded })
    }
}

/// What a compiler makes of `return 0`.
fn object_file() -> anyhow::Result<Vec<u8>> {
    /// mov64 r0, 0; exit: opcode, registers, offset (16 bits), immediate (32 bits).
    const RETURN_0: [u8; 16] = [0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
    let endianness = match cfg!(target_endian = "big") {
        true => Endianness::Big,
        false => Endianness::Little,
    };
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, endianness);
    let section = object.add_section(Vec::new(), b"raw_tp".to_vec(), SectionKind::Text);
    let symbol = object.add_symbol(Symbol {
        name: EMPTY.as_bytes().to_vec(),
        value: 0,
        size: 0,
        kind: SymbolKind::Text,
        scope: SymbolScope::Linkage,
        weak: false,
        section: SymbolSection::Undefined,
        flags: SymbolFlags::None,
    });
    object.add_symbol_data(symbol, section, &RETURN_0, 8);
    let license = object.add_section(Vec::new(), b"license".to_vec(), SectionKind::Data);
    object.append_section_data(license, b"GPL\0", 1);
    object.write().context("write an object file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_descriptor_is_read() {
        let text = "pos:\t0\nprog_type:\t26\nprog_id:\t101\nrun_time_ns:\t900\nrun_cnt:\t3\n";
        assert_eq!(number(text, "prog_id"), Some(101));
        let runs = runs(text).unwrap();
        assert_eq!(runs.mean(), Some(300.0));
        assert_eq!(runs.since(runs).mean(), None);
        assert_eq!(value(text, "tp_name"), None);
    }

    #[test]
    fn the_empty_program_is_an_object_file_that_has_it() {
        use object::{Object as _, ObjectSymbol as _};
        let file = object_file().unwrap();
        let file = object::File::parse(file.as_slice()).unwrap();
        assert_eq!(file.architecture(), Architecture::Bpf);
        assert!(file.section_by_name("raw_tp").is_some());
        assert!(file.symbols().any(|symbol| symbol.name() == Ok(EMPTY)));
    }
}
