//! Names of kernel code addresses, from `/proc/kallsyms`.
//!
//! A table of about 60,000 functions has to stay resident while stacks are
//! named, so it is two arrays and one string, not a map of strings. Data
//! symbols are not in it. Which frames of a stack are worth showing is decided
//! elsewhere, except for the tracer's own ([`is_bpf_frame`]).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// An address further than this behind the last symbol is not in that
/// function: it lies in a gap, or in code loaded after the table was read.
const MAX_FUNCTION: u64 = 1 << 20;

/// One line of the kernel's symbol table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// 0 if the kernel hides addresses from this process.
    pub address: u64,
    /// Without the module.
    pub name: &'a str,
    /// `None` for the kernel proper.
    pub module: Option<&'a str>,
}

/// Calls `each` with every text symbol, in the file's order. Lines that do not
/// look like symbols are passed over. Returns whether any address was shown:
/// under `kptr_restrict`, and without `CAP_SYSLOG`, all of them read as zero.
pub fn scan(source: impl Read, mut each: impl FnMut(Symbol<'_>)) -> io::Result<bool> {
    let mut source = BufReader::with_capacity(1 << 16, source);
    let mut line = Vec::with_capacity(256);
    let mut shown = false;
    while source.read_until(b'\n', &mut line)? > 0 {
        if let Some(symbol) = parse(&line) {
            shown |= symbol.address != 0;
            each(symbol);
        }
        line.clear();
    }
    Ok(shown)
}

/// `ffffffff81000000 t name` or `ffffffffc0000000 t name\t[module]`; `None`
/// for data and for the padding before functions.
fn parse(line: &[u8]) -> Option<Symbol<'_>> {
    let line = str::from_utf8(line).ok()?.trim_end();
    let (address, rest) = line.split_once(' ')?;
    let (class, rest) = rest.split_once(' ')?;
    if !matches!(class, "t" | "T" | "w" | "W") {
        return None;
    }
    let (name, module) = match rest.split_once('\t') {
        Some((name, module)) => (name, Some(module.trim_matches(['[', ']']))),
        None => (rest, None),
    };
    // Space for call depth tracking and kCFI, one before each function: never
    // in a stack, and half of the table.
    if name.is_empty() || name.starts_with("__pfx_") || name.starts_with("__cfi_") {
        return None;
    }
    Some(Symbol {
        address: u64::from_str_radix(address, 16).ok()?,
        name,
        module,
    })
}

/// Text symbols, sorted by address: 12 bytes each and their names.
pub struct Symbols {
    addresses: Vec<u64>,
    /// Where each name begins in `names`, in the order of `addresses`.
    starts: Vec<u32>,
    /// Names in the file's order, each ended by a line feed.
    names: String,
}

impl Symbols {
    /// Reads the table. [`io::ErrorKind::PermissionDenied`] if the kernel
    /// hides the addresses.
    pub fn load(path: &Path) -> io::Result<Self> {
        Self::read(File::open(path)?)
    }

    fn read(source: impl Read) -> io::Result<Self> {
        let mut table = Self {
            addresses: Vec::new(),
            starts: Vec::new(),
            names: String::new(),
        };
        let shown = scan(source, |symbol| {
            // A table of 4 GB of names is not a table.
            if let Ok(start) = u32::try_from(table.names.len()) {
                table.addresses.push(symbol.address);
                table.starts.push(start);
                table.names.push_str(symbol.name);
                table.names.push('\n');
            }
        })?;
        if !shown {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "kernel addresses are hidden (kernel.kptr_restrict, CAP_SYSLOG)",
            ));
        }
        table.sort();
        table.addresses.shrink_to_fit();
        table.starts.shrink_to_fit();
        table.names.shrink_to_fit();
        Ok(table)
    }

    /// Modules come after the kernel in the file, whatever their addresses.
    fn sort(&mut self) {
        if self.addresses.is_sorted() {
            return;
        }
        let mut pairs: Vec<(u64, u32)> = self
            .addresses
            .iter()
            .copied()
            .zip(self.starts.iter().copied())
            .collect();
        // The start orders aliases as the file has them.
        pairs.sort_unstable();
        for (at, (address, start)) in pairs.into_iter().enumerate() {
            self.addresses[at] = address;
            self.starts[at] = start;
        }
    }

    /// The function an address lies in, and how far into it. Of several names
    /// for one address the first in the kernel's order, as the kernel itself
    /// prints it.
    pub fn resolve(&self, address: u64) -> Option<(&str, u64)> {
        let after = self.addresses.partition_point(|&start| start <= address);
        let start = *self.addresses.get(after.checked_sub(1)?)?;
        let offset = address - start;
        if start == 0 || offset > MAX_FUNCTION {
            return None;
        }
        let first = self.addresses.partition_point(|&other| other < start);
        Some((self.name(first)?, offset))
    }

    /// The address of a function, the first in memory where several modules
    /// have one of that name. A linear search: not for hot paths.
    #[cfg(test)]
    pub fn address(&self, name: &str) -> Option<u64> {
        let at = (0..self.addresses.len()).find(|&at| self.name(at) == Some(name))?;
        self.addresses.get(at).copied().filter(|&found| found != 0)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Bytes held on the heap.
    #[cfg(test)]
    fn memory(&self) -> usize {
        size_of::<u64>() * self.addresses.capacity()
            + size_of::<u32>() * self.starts.capacity()
            + self.names.capacity()
    }

    fn name(&self, at: usize) -> Option<&str> {
        let rest = self.names.get(*self.starts.get(at)? as usize..)?;
        rest.split('\n').next()
    }
}

/// Whether a frame belongs to the way into a BPF program rather than to what
/// the task was doing: such frames at the top of a stack are dropped. Some of
/// the names are ordinary functions further down (`bpf_prog_load`), so this is
/// for the top only.
pub fn is_bpf_frame(name: &str) -> bool {
    const PREFIXES: [&str; 8] = [
        "bpf_prog_",
        "bpf_trampoline",
        "bpf_trace_run",
        "bpf_get_stack",
        "bpf_dispatcher_",
        "__bpf_",
        "__traceiter_",
        "__probestub_",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
0000000000001000 D current_task
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000100 t __pfx_schedule
ffffffff81000110 T schedule
ffffffff81000200 W weak_one
ffffffff81000300 d some_data
this is not a symbol
ffffffff
ffffffff81000400 t cleanup_net
ffffffffc0200000 t veth_xmit\t[veth]
ffffffffc0100000 t bridge_input\t[bridge]
";

    fn table() -> Symbols {
        Symbols::read(TABLE.as_bytes()).unwrap()
    }

    #[test]
    fn an_address_resolves_to_the_function_it_lies_in() {
        let table = table();
        assert_eq!(table.resolve(0xffff_ffff_8100_0110), Some(("schedule", 0)));
        assert_eq!(
            table.resolve(0xffff_ffff_8100_01ff),
            Some(("schedule", 0xef))
        );
        assert_eq!(table.resolve(0xffff_ffff_8100_0200), Some(("weak_one", 0)));
    }

    #[test]
    fn data_and_padding_are_not_in_the_table() {
        let table = table();
        assert_eq!(table.len(), 7);
        assert_eq!(table.address("some_data"), None);
        assert_eq!(table.address("__pfx_schedule"), None);
        assert_eq!(
            table.resolve(0xffff_ffff_8100_0300),
            Some(("weak_one", 0x100))
        );
    }

    #[test]
    fn the_first_of_several_names_is_taken() {
        let table = table();
        assert_eq!(table.resolve(0xffff_ffff_8100_0004), Some(("_stext", 4)));
        assert_eq!(table.address("_text"), Some(0xffff_ffff_8100_0000));
    }

    #[test]
    fn modules_are_sorted_in_and_lose_their_suffix() {
        let table = table();
        assert_eq!(
            table.resolve(0xffff_ffff_c010_0010),
            Some(("bridge_input", 0x10))
        );
        assert_eq!(
            table.resolve(0xffff_ffff_c020_0010),
            Some(("veth_xmit", 0x10))
        );
        assert_eq!(table.address("veth_xmit"), Some(0xffff_ffff_c020_0000));
    }

    #[test]
    fn an_address_outside_every_function_has_no_name() {
        let table = table();
        assert_eq!(table.resolve(0), None);
        assert_eq!(table.resolve(0xffff_ffff_80ff_ffff), None);
        assert_eq!(table.resolve(0xffff_ffff_9000_0000), None);
        assert_eq!(table.resolve(u64::MAX), None);
    }

    #[test]
    fn hidden_addresses_are_an_error_and_not_an_empty_table() {
        let hidden = "0000000000000000 T schedule\n0000000000000000 t cleanup_net\n";
        let error = Symbols::read(hidden.as_bytes()).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        // The names can still be read.
        let mut names = Vec::new();
        let shown = scan(hidden.as_bytes(), |symbol| {
            names.push(symbol.name.to_owned());
        });
        assert!(!shown.unwrap());
        assert_eq!(names, ["schedule", "cleanup_net"]);
    }

    #[test]
    fn bytes_that_are_not_text_are_passed_over() {
        let table = Symbols::read(&b"\xff\xfe T x\nffffffff81000000 T y"[..]).unwrap();
        assert_eq!(table.len(), 1);
        assert_eq!(table.address("y"), Some(0xffff_ffff_8100_0000));
    }

    #[test]
    fn only_the_way_into_a_program_counts_as_a_bpf_frame() {
        assert!(is_bpf_frame("bpf_prog_1f2e_task_switch"));
        assert!(is_bpf_frame("bpf_trampoline_6442"));
        assert!(is_bpf_frame("bpf_trace_run4"));
        assert!(is_bpf_frame("__bpf_prog_enter"));
        assert!(is_bpf_frame("__traceiter_sched_switch"));
        assert!(!is_bpf_frame("__schedule"));
        assert!(!is_bpf_frame("do_bpf_thing"));
    }

    #[test]
    fn the_running_kernel_takes_less_than_five_megabytes() {
        match Symbols::load(Path::new("/proc/kallsyms")) {
            Ok(table) => {
                assert!(table.memory() < 5 << 20, "{} bytes", table.memory());
                let address = table.address("cleanup_net").unwrap();
                assert_eq!(table.resolve(address), Some(("cleanup_net", 0)));
            }
            Err(error) => skip(&error),
        }
    }

    #[expect(clippy::print_stderr, reason = "tells why a test did nothing")]
    fn skip(error: &io::Error) {
        eprintln!("skipped: /proc/kallsyms: {error}");
    }
}
