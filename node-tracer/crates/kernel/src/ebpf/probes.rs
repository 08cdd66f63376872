//! Loads the kernel programs, attaches what the plan says, and takes the plan
//! one rung down where the kernel refuses.

use std::{
    io::{self, Read as _},
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

use aya::{
    Btf as AyaBtf, Ebpf, EbpfLoader, VerifierLogLevel,
    maps::{Array, HashMap, MapData, MapError, PerCpuArray, RingBuf},
    programs::{FEntry, Program, ProgramError, ProgramType},
    sys::{BpfHelper, is_helper_supported},
};
use aya_log::EbpfLogger;
use flate2::read::ZlibDecoder;
use node_tracer_ebpf::{
    layout::{Layout, Settings},
    map,
    record::{Blocked, Calls, Owner, PageProbe, WalkRequest, lost},
};

use super::{
    asleep::Asleep,
    attached::Wanted,
    callers::Callers,
    facts::{FactError, Facts, Host},
    missed::{self, Counts, Missed},
    plan::{Attach, AttachKind, Mechanism, Plan, Signal},
};

/// Why the kernel programs are not to be had at all.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The object was built without the programs.
    #[error(
        "this node-tracer was built without its kernel programs (AYA_BUILD_SKIP); build it with \
         `cargo xtask setup` and `cargo build`"
    )]
    NoObject,
    /// The programs cannot be unpacked.
    #[error("the kernel programs in this node-tracer are damaged; install it once more")]
    Damaged(#[source] io::Error),
    #[error(
        "the kernel's type information cannot be read; node-tracer needs a kernel with \
         CONFIG_DEBUG_INFO_BTF=y (uname -r; ls /sys/kernel/btf/vmlinux)"
    )]
    NoBtf(#[source] FactError),
    /// BTF that aya cannot read.
    #[error("the kernel's type information is not understood")]
    Btf(#[source] aya::BtfError),
    /// The kernel refuses maps or the object as a whole.
    #[error(
        "the kernel refuses the eBPF object; it takes CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN), and before \
         Linux 5.11 CAP_SYS_RESOURCE or a RLIMIT_MEMLOCK of some 16 MB"
    )]
    Object(#[source] aya::EbpfError),
    /// A map of the object is missing or not what it should be.
    #[error("map {name} of the eBPF object cannot be used")]
    Map {
        name: &'static str,
        /// What is wrong with it.
        #[source]
        source: Option<MapError>,
    },
}

/// Records of untrusted callers that are taken at once.
const STRANGERS: usize = 256;

/// As a global of the object; see [`Layout`].
#[repr(transparent)]
#[derive(Clone, Copy)]
struct LayoutGlobal(Layout);
/// As a global of the object; see [`Settings`].
#[repr(transparent)]
#[derive(Clone, Copy)]
struct SettingsGlobal(Settings);

// SAFETY: repr(C) structs of integers without padding (asserted in the ABI).
unsafe impl aya::Pod for LayoutGlobal {}
// SAFETY: as above.
unsafe impl aya::Pod for SettingsGlobal {}

/// A map value as aya wants it.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<T>(pub T);

// SAFETY: repr(C), integers only, no padding (asserted in the ABI).
unsafe impl aya::Pod for Value<Blocked> {}
// SAFETY: as above.
unsafe impl aya::Pod for Value<WalkRequest> {}
// SAFETY: as above.
unsafe impl aya::Pod for Value<PageProbe> {}
// SAFETY: as above.
unsafe impl aya::Pod for Value<Owner> {}
// SAFETY: as above.
unsafe impl aya::Pod for Value<Calls> {}

/// The loaded programs. They are detached when this is dropped.
pub struct Probes {
    pub(super) ebpf: Ebpf,
    events: RingBuf<MapData>,
    strangers: RingBuf<MapData>,
    pub(super) callers: Callers,
    pub(super) walk: RingBuf<MapData>,
    pub(super) walk_request: Array<MapData, Value<WalkRequest>>,
    pub(super) pages: Array<MapData, Value<PageProbe>>,
    pub(super) blocked: HashMap<MapData, u32, Value<Blocked>>,
    pub(super) asleep: Asleep,
    pub(super) crowd_seed: u32,
    lost: PerCpuArray<MapData, u64>,
    lost_reported: [u64; lost::CAUSES as usize],
    counts: Counts,
    missed: Missed,
    log: Option<EbpfLogger<&'static dyn log::Log>>,
}

/// The kernel programs, unpacked; nothing if they were not built.
fn object() -> io::Result<Vec<u8>> {
    let packed = include_bytes!(concat!(env!("OUT_DIR"), "/node-tracer-probes.zlib"));
    let mut object = Vec::new();
    ZlibDecoder::new(packed.as_slice()).read_to_end(&mut object)?;
    Ok(object)
}

impl Probes {
    /// Probes the kernel, loads the object and attaches the programs.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub(crate) fn load(
        proc: &Path,
        wanted: &Wanted,
    ) -> Result<(Self, Plan, Vec<String>), LoadError> {
        let Wanted {
            stall_threshold,
            limit,
            may_enter,
            may_look,
        } = *wanted;
        let object = object().map_err(LoadError::Damaged)?;
        if object.is_empty() {
            return Err(LoadError::NoObject);
        }
        // Every type has it or none; this one needs nothing to attach to.
        let bpf_loop =
            is_helper_supported(ProgramType::SocketFilter, BpfHelper::BPF_FUNC_loop).ok();
        let (mut facts, errors) = Facts::probe(proc, Path::new("/sys"), None, bpf_loop);
        facts.may_enter = Some(may_enter);
        facts.may_look = Some(may_look);
        if facts.functions.is_none() {
            return Err(match errors.into_iter().next() {
                Some(error) => LoadError::NoBtf(error),
                None => LoadError::NoObject,
            });
        }
        let mut warnings: Vec<String> = errors.iter().map(ToString::to_string).collect();

        // A new loader reads the type information on its own; without this it
        // would be in memory twice.
        let mut loader = EbpfLoader::new();
        loader.btf(None);
        let btf = AyaBtf::from_sys_fs().map_err(LoadError::Btf)?;
        let layout = LayoutGlobal(facts.layout);
        let settings = SettingsGlobal(facts.settings(stall_threshold, Host::read(proc)));
        let mut ebpf = loader
            .btf(Some(&btf))
            .verifier_log_level(verifier_log_level())
            .override_global("LAYOUT", &layout, true)
            .override_global("SETTINGS", &settings, true)
            .load(&object)
            .map_err(LoadError::Object)?;
        facts.fentry = Some(fentry_works(&mut ebpf, &btf));

        let mut plan = attach(&mut ebpf, &btf, &mut facts, limit);

        // An object without log statements has no log.
        let log = EbpfLogger::init(&mut ebpf).ok();
        let mut probes = Self {
            events: take_map(&mut ebpf, map::EVENTS, RingBuf::try_from)?,
            strangers: take_map(&mut ebpf, map::STRANGERS, RingBuf::try_from)?,
            callers: Callers::new(&mut ebpf)?,
            walk: take_map(&mut ebpf, map::WALK, RingBuf::try_from)?,
            walk_request: take_map(&mut ebpf, map::WALK_REQUEST, Array::try_from)?,
            pages: take_map(&mut ebpf, map::PAGES, Array::try_from)?,
            blocked: take_map(&mut ebpf, map::BLOCKED, HashMap::try_from)?,
            asleep: {
                let crowds = take_map(&mut ebpf, map::CROWDS, Ok)?;
                take_map(&mut ebpf, map::ASLEEP, |all| Asleep::new(all, crowds))?
            },
            lost: take_map(&mut ebpf, map::LOST, PerCpuArray::try_from)?,
            lost_reported: [0; lost::CAUSES as usize],
            counts: Counts::of(&ebpf),
            crowd_seed: settings.0.crowd_seed,
            missed: Missed::default(),
            log,
            ebpf,
        };
        drop(btf);
        if plan.mechanism(Signal::CniResult) != Mechanism::None
            && let Err(error) = probes.find_pages()
        {
            let reason = event::fault::chain(&error);
            facts.refused.insert("page_probe", reason);
            // Nothing else needs it, and what is attached stays attached.
            plan = Plan::from_facts(&facts, limit);
        }
        for (program, reason) in &facts.refused {
            warnings.push(format!("the kernel refuses {program}: {reason}"));
        }
        Ok((probes, plan, warnings))
    }

    /// Hands each waiting record to `each`, at most `limit` of them. Before
    /// these some of untrusted callers, so that what runs a plugin comes before
    /// it. Returns how many there were but for those.
    pub fn drain(&mut self, limit: usize, mut each: impl FnMut(&[u8])) -> usize {
        for _ in 0..STRANGERS {
            match self.strangers.next() {
                Some(record) => each(&record),
                None => break,
            }
        }
        for count in 0..limit {
            match self.events.next() {
                Some(record) => each(&record),
                None => return count,
            }
        }
        limit
    }

    /// How many sleeps there were, since the last call, that the table has no
    /// entry of as it has enough of their crowd.
    pub fn unfollowed(&mut self) -> u64 {
        self.lost_since(lost::CROWD_FULL)
    }

    /// How many changes of namespaces were not told since the last call, as
    /// there were too many.
    pub fn withheld_changes(&mut self) -> u64 {
        self.lost_since(lost::WITHHELD)
    }

    /// How many tasks that were chosen to be killed were not told since the last
    /// call, as there were too many of one owner's.
    pub fn withheld_victims(&mut self) -> u64 {
        self.lost_since(lost::VICTIM_WITHHELD)
    }

    fn lost_since(&mut self, cause: u32) -> u64 {
        let counts = self.lost.get(&cause, 0);
        let total = counts.map_or(0, |counts| counts.iter().sum::<u64>());
        let reported = &mut self.lost_reported[cause as usize];
        let new = total.saturating_sub(*reported);
        *reported = total.max(*reported);
        new
    }

    /// What was lost since the last call, by cause; nothing at all, with a
    /// count of zero, if it is only to be looked for anew.
    pub fn lost(&mut self) -> Vec<(&'static str, u64)> {
        let mut new = Vec::new();
        let missed = self.counts.read();
        if missed != self.missed {
            tracing::debug!(?missed, "programs were passed over");
            new.push((missed::CAUSE, missed.lost.saturating_sub(self.missed.lost)));
            self.missed = missed;
        }
        for (index, name) in (0..lost::CAUSES).zip(lost::NAMES) {
            if !lost::MADE_UP_FOR.contains(&index) {
                let count = self.lost_since(index);
                if count > 0 {
                    new.push((name, count));
                }
            }
        }
        new
    }

    /// Passes on what the programs have logged (aya-log).
    pub fn flush_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }
}

impl AsFd for Probes {
    /// Readable when there are records.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

pub(super) fn take_map<T>(
    ebpf: &mut Ebpf,
    name: &'static str,
    convert: impl FnOnce(aya::maps::Map) -> Result<T, MapError>,
) -> Result<T, LoadError> {
    let map = ebpf
        .take_map(name)
        .ok_or(LoadError::Map { name, source: None })?;
    convert(map).map_err(|source| LoadError::Map {
        name,
        source: Some(source),
    })
}

/// Whether the kernel lets functions be hooked by fentry: found out by
/// loading one such program, for neither the configuration nor the version
/// tells (a locked-down kernel has everything and refuses).
fn fentry_works(ebpf: &mut Ebpf, btf: &AyaBtf) -> bool {
    let Some(program) = ebpf.program_mut("nsfs_put_fentry") else {
        return false;
    };
    <&mut FEntry>::try_from(program).is_ok_and(|program| program.load("netns_put", btf).is_ok())
}

/// Attaches what the plan says. A program that the kernel refuses is a fact
/// like others: the plan is made again with it, until the kernel agrees.
fn attach(ebpf: &mut Ebpf, btf: &AyaBtf, facts: &mut Facts, limit: Option<Mechanism>) -> Plan {
    let mut attached: Vec<&'static str> = Vec::new();
    let plan = 'plan: loop {
        let plan = Plan::from_facts(facts, limit);
        for Attach { program, kind } in plan.attachments() {
            if attached.contains(&program) {
                continue;
            }
            let Some(loaded) = ebpf.program_mut(program) else {
                let reason = String::from("it is not in the object");
                facts.refused.insert(program, reason);
                continue 'plan;
            };
            match load_and_attach(loaded, kind, btf) {
                Ok(()) => attached.push(program),
                Err(error) => {
                    match kind {
                        AttachKind::Fentry(_) | AttachKind::Fexit(_) if never_works(&error) => {
                            facts.fentry = Some(false);
                        }
                        _ => {
                            facts.refused.insert(program, describe(&error));
                        }
                    }
                    continue 'plan;
                }
            }
        }
        break plan;
    };
    // What a plan before the last wanted.
    let wanted = plan.attachments();
    for program in attached {
        if !wanted.iter().any(|attach| attach.program == program)
            && let Some(loaded) = ebpf.program_mut(program)
            && let Err(error) = unload(loaded)
        {
            tracing::warn!(program, %error, "cannot be unloaded");
        }
    }
    plan
}

fn unload(program: &mut Program) -> Result<(), ProgramError> {
    match program {
        Program::FEntry(program) => program.unload(),
        Program::FExit(program) => program.unload(),
        Program::KProbe(program) => program.unload(),
        Program::BtfTracePoint(program) => program.unload(),
        Program::RawTracePoint(program) => program.unload(),
        Program::Iter(program) => program.unload(),
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}

fn load_and_attach(
    program: &mut Program,
    kind: AttachKind,
    btf: &AyaBtf,
) -> Result<(), ProgramError> {
    /// A program that was loaded before, as a probe of the kernel, is fine.
    fn once(result: Result<(), ProgramError>) -> Result<(), ProgramError> {
        match result {
            Err(ProgramError::AlreadyLoaded) => Ok(()),
            other => other,
        }
    }
    match (kind, program) {
        (AttachKind::Fentry(function), Program::FEntry(program)) => {
            once(program.load(function, btf))?;
            program.attach()?;
        }
        (AttachKind::Fexit(function), Program::FExit(program)) => {
            once(program.load(function, btf))?;
            program.attach()?;
        }
        (
            AttachKind::Kprobe(function) | AttachKind::Kretprobe(function),
            Program::KProbe(program),
        ) => {
            once(program.load())?;
            program.attach(function, 0)?;
        }
        (AttachKind::TpBtf(tracepoint), Program::BtfTracePoint(program)) => {
            once(program.load(tracepoint, btf))?;
            program.attach()?;
        }
        (AttachKind::RawTp(tracepoint), Program::RawTracePoint(program)) => {
            once(program.load())?;
            program.attach(tracepoint)?;
        }
        // Iterators are run on demand; here they are only loaded.
        (AttachKind::Iter(target), Program::Iter(program)) => once(program.load(target, btf))?,
        (_, program) => {
            return Err(ProgramError::UnexpectedProgramType).inspect_err(|_| {
                tracing::error!(kind = ?program.prog_type(), "the plan and the object disagree");
            });
        }
    }
    Ok(())
}

/// Whether the kernel says that it cannot do this at all: before Linux 6.4, arm64
/// loads fentry programs and does not link them to functions.
fn never_works(error: &ProgramError) -> bool {
    /// In the kernel alone, so no library has it.
    const ENOTSUPP: i32 = 524;
    matches!(error, ProgramError::SyscallError(error)
        if error.io_error.raw_os_error() == Some(ENOTSUPP))
}

/// One line: what the kernel said, without the verifier's whole log.
fn describe(error: &ProgramError) -> String {
    match error {
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => {
            let log = verifier_log.to_string();
            tracing::debug!(%log, "verifier");
            match log
                .lines()
                .rev()
                .find(|line| !line.trim().is_empty() && !is_statistics(line))
            {
                Some(line) => format!("{io_error} ({})", line.trim()),
                None => io_error.to_string(),
            }
        }
        ProgramError::SyscallError(error) => format!("{}: {}", error.call, error.io_error),
        other => other.to_string(),
    }
}

/// What the verifier is to say of a program that it refuses: the reason. Each
/// of its steps, which can be more than any buffer holds, so that the kernel
/// answers "no space" and each try takes minutes, only who debugs wants.
fn verifier_log_level() -> VerifierLogLevel {
    if tracing::enabled!(tracing::Level::DEBUG) {
        VerifierLogLevel::DEBUG | VerifierLogLevel::STATS
    } else {
        VerifierLogLevel::STATS
    }
}

/// Whether a line of the verifier's log only tells of its work.
fn is_statistics(line: &str) -> bool {
    ["processed ", "verification time ", "stack depth "]
        .iter()
        .any(|begin| line.starts_with(begin))
}

/// What the iterators and maps can fail with.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// A program that the plan did not load, or the kernel refuses to run.
    #[error("iterator {name} cannot be run")]
    Iterator {
        name: &'static str,
        /// What the kernel said.
        #[source]
        source: Option<ProgramError>,
    },
    /// Its file cannot be opened.
    #[error("iterator {name} cannot be opened")]
    Link {
        name: &'static str,
        /// What the kernel said.
        #[source]
        source: aya::programs::links::LinkError,
    },
    /// Its output cannot be read.
    #[error("the output of iterator {name} cannot be read")]
    Read {
        name: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A map operation failed.
    #[error("map {name} cannot be accessed")]
    Map {
        name: &'static str,
        /// What the kernel said.
        #[source]
        source: MapError,
    },
}

#[cfg(test)]
mod tests {
    use aya::sys::SyscallError;

    use super::*;

    #[test]
    fn what_the_kernel_never_does_is_told_from_what_it_refuses_now() {
        let refused = |number| {
            ProgramError::SyscallError(SyscallError {
                call: "bpf_raw_tracepoint_open",
                io_error: io::Error::from_raw_os_error(number),
            })
        };
        assert!(never_works(&refused(524)));
        assert!(!never_works(&refused(libc::EPERM)));
        assert!(!never_works(&ProgramError::AlreadyLoaded));
    }
}
