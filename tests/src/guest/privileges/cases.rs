//! What is taken away, and what must be said of it.

use std::fs;

use crate::guest::release;
use crate::rights::{
    BPF, BPF_LOOP, Capability, DAC_READ_SEARCH, DOCUMENTED, KEPT, NET_ADMIN, PERFMON, Rights,
    SYS_ADMIN, SYS_PTRACE, SYS_RESOURCE, SYSLOG, mask, without,
};

/// What `check` must say, against what it says where nothing is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Same,
    /// But for these: (signal, mechanism, a part of the reason).
    SameBut(&'static [(&'static str, &'static str, &'static str)]),
    /// What rests on the addresses of functions is heard in another way.
    Hidden,
    /// No program can be loaded: all is compared that can be, for this reason.
    Compared {
        why: &'static str,
        addresses: bool,
    },
    /// It is not done at all.
    Refused,
}

pub(super) struct Case {
    pub(super) name: &'static str,
    /// The best mechanism that is allowed.
    pub(super) limit: &'static str,
    /// Capabilities that are not there, of those documented; `None` for full
    /// root.
    without: Option<&'static [Capability]>,
    /// As the tracer must name them: one that another does as well is not
    /// missing, nor one that this kernel does not ask for.
    pub(super) missing: &'static [Capability],
    pub(super) sysctls: &'static [(&'static str, &'static str)],
    memlock: Option<u64>,
    hidden: &'static [&'static str],
    no_bpf: bool,
    no_helper: Option<i32>,
    /// Every signal is made, not only those that tell whether it works at all.
    pub(super) rung: bool,
    pub(super) expected: Expected,
}

const PLAIN: Case = Case {
    name: "",
    limit: "fentry",
    without: None,
    missing: &[],
    sysctls: &[],
    memlock: None,
    hidden: &[],
    no_bpf: false,
    no_helper: None,
    rung: false,
    expected: Expected::Same,
};

const REFUSED: Expected = Expected::Compared {
    why: "refuses",
    addresses: true,
};
const REFUSED_OUTSIDE: Expected = Expected::Compared {
    why: "refuses",
    addresses: false,
};
const ALL: &[Capability] = &DOCUMENTED;
const SMALL: u64 = 64 << 10;
/// Why nothing walks the kernel's list of namespaces.
const NO_WALK: &str = "no bpf_loop helper";

impl Case {
    /// What the tracer is started with.
    pub(super) fn rights(&self) -> Rights {
        Rights {
            capabilities: self.without.map(without),
            memlock: self.memlock,
            hidden: self.hidden.to_vec(),
            no_bpf: self.no_bpf,
            no_helper: self.no_helper,
        }
    }

    /// What a trace may keep.
    pub(super) fn kept(&self) -> u64 {
        let missing = self.without.unwrap_or_default();
        let asks = release() < (5, 19) && missing.contains(&SYS_ADMIN);
        mask(&KEPT) | if asks { mask(&[BPF]) } else { 0 }
    }

    /// Whether the functions in a stack are told, if stalls are heard so: by an
    /// iterator and the kernel's symbols, or else by /proc.
    pub(super) fn shows_stacks(&self, mechanism: &str) -> bool {
        let by_proc = !self.without.unwrap_or_default().contains(&SYS_ADMIN);
        by_proc || mechanism != "comparison" && !self.hides_addresses()
    }

    /// Whether processes with other rights can be looked at.
    pub(super) fn may_look(&self) -> bool {
        !self.without.unwrap_or_default().contains(&SYS_PTRACE)
    }

    /// Whether addresses of the kernel's functions cannot be read.
    pub(super) fn hides_addresses(&self) -> bool {
        let missing = self.without.unwrap_or_default();
        missing.contains(&SYSLOG) || self.sysctls.iter().any(|(name, _)| name.contains("kptr"))
    }
}

/// Whether this boot was to be locked down.
fn asked_for(mode: &str) -> bool {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    line.contains(&format!("lockdown={mode}"))
}

/// Why nothing can be tested: the kernel does not do as its command line says.
pub(super) fn not_locked_down() -> Option<String> {
    let path = "/sys/kernel/security/lockdown";
    let modes = fs::read_to_string(path).unwrap_or_default();
    let mut all = ["integrity", "confidentiality"].into_iter();
    let mode = all.find(|mode| asked_for(mode))?;
    (!modes.contains(&format!("[{mode}]")))
        .then(|| format!("this kernel is not locked down: {path}: {modes:?}"))
}

pub(super) fn of_this_boot() -> Vec<Case> {
    if asked_for("integrity") {
        return vec![
            Case {
                name: "lockdown=integrity",
                rung: true,
                ..PLAIN
            },
            Case {
                name: "lockdown=integrity, kprobes",
                limit: "kprobe",
                ..PLAIN
            },
            Case {
                name: "lockdown=integrity, the documented capabilities",
                without: Some(&[]),
                ..PLAIN
            },
        ];
    }
    if asked_for("confidentiality") {
        let expected = Expected::Compared {
            why: "lockdown (confidentiality)",
            addresses: true,
        };
        return vec![
            Case {
                name: "lockdown=confidentiality",
                expected,
                ..PLAIN
            },
            Case {
                name: "lockdown=confidentiality, the documented capabilities",
                without: Some(&[]),
                expected,
                ..PLAIN
            },
        ];
    }
    [rungs(), capabilities(), settings(), system()]
        .into_iter()
        .flatten()
        .collect()
}

/// The documented capabilities are enough for every mechanism.
fn rungs() -> Vec<Case> {
    let of = |name, limit| Case {
        name,
        limit,
        without: Some(&[]),
        rung: true,
        ..PLAIN
    };
    vec![
        of("the documented capabilities", "fentry"),
        of("the documented capabilities, kprobe", "kprobe"),
        of("the documented capabilities, tp_btf", "tp_btf"),
        of("the documented capabilities, raw_tp", "raw_tp"),
        of("the documented capabilities, iterator", "iterator"),
        of("the documented capabilities, comparison", "comparison"),
    ]
}

fn capabilities() -> Vec<Case> {
    vec![
        Case {
            name: "full root",
            ..PLAIN
        },
        Case {
            name: "CAP_SYS_ADMIN for CAP_BPF and CAP_PERFMON",
            without: Some(&[BPF, PERFMON]),
            ..PLAIN
        },
        Case {
            name: "no CAP_SYS_ADMIN",
            without: Some(&[SYS_ADMIN]),
            missing: &[SYS_ADMIN],
            expected: Expected::SameBut(&[("cni-result", "", "CAP_SYS_ADMIN")]),
            ..PLAIN
        },
        Case {
            name: "no CAP_BPF, no CAP_SYS_ADMIN",
            without: Some(&[BPF, SYS_ADMIN]),
            missing: &[BPF, SYS_ADMIN],
            expected: REFUSED_OUTSIDE,
            ..PLAIN
        },
        Case {
            name: "no CAP_PERFMON, no CAP_SYS_ADMIN",
            without: Some(&[PERFMON, SYS_ADMIN]),
            missing: &[PERFMON, SYS_ADMIN],
            expected: REFUSED_OUTSIDE,
            ..PLAIN
        },
        Case {
            name: "no CAP_SYSLOG",
            without: Some(&[SYSLOG]),
            missing: &[SYSLOG],
            ..PLAIN
        },
        Case {
            name: "no CAP_SYSLOG, tp_btf",
            limit: "tp_btf",
            without: Some(&[SYSLOG]),
            missing: &[SYSLOG],
            expected: Expected::Hidden,
            ..PLAIN
        },
        Case {
            name: "no CAP_SYS_PTRACE",
            without: Some(&[SYS_PTRACE]),
            missing: &[SYS_PTRACE],
            ..PLAIN
        },
        Case {
            name: "no CAP_DAC_READ_SEARCH",
            without: Some(&[DAC_READ_SEARCH]),
            missing: &[DAC_READ_SEARCH],
            ..PLAIN
        },
        Case {
            name: "no CAP_NET_ADMIN",
            without: Some(&[NET_ADMIN]),
            missing: &[NET_ADMIN],
            ..PLAIN
        },
        Case {
            name: "no capabilities",
            without: Some(ALL),
            expected: Expected::Refused,
            ..PLAIN
        },
    ]
}

fn settings() -> Vec<Case> {
    vec![
        Case {
            name: "kernel.kptr_restrict=2",
            sysctls: &[("kernel/kptr_restrict", "2")],
            ..PLAIN
        },
        Case {
            name: "kernel.kptr_restrict=2, tp_btf",
            limit: "tp_btf",
            sysctls: &[("kernel/kptr_restrict", "2")],
            expected: Expected::Hidden,
            ..PLAIN
        },
        Case {
            name: "kernel.perf_event_paranoid=4",
            without: Some(&[]),
            sysctls: &[("kernel/perf_event_paranoid", "4")],
            ..PLAIN
        },
        Case {
            name: "kernel.perf_event_paranoid=4, kprobe",
            limit: "kprobe",
            without: Some(&[]),
            sysctls: &[("kernel/perf_event_paranoid", "4")],
            ..PLAIN
        },
        Case {
            name: "kernel.unprivileged_bpf_disabled=0",
            without: Some(&[]),
            sysctls: &[("kernel/unprivileged_bpf_disabled", "0")],
            ..PLAIN
        },
        Case {
            name: "kernel.unprivileged_bpf_disabled=0, no CAP_BPF, no CAP_SYS_ADMIN",
            without: Some(&[BPF, SYS_ADMIN]),
            missing: &[BPF, SYS_ADMIN],
            sysctls: &[("kernel/unprivileged_bpf_disabled", "0")],
            expected: REFUSED_OUTSIDE,
            ..PLAIN
        },
    ]
}

fn system() -> Vec<Case> {
    let accounted = release() < (5, 11);
    vec![
        Case {
            name: "no BTF",
            hidden: &["/sys/kernel/btf"],
            expected: Expected::Compared {
                why: "type information",
                addresses: true,
            },
            ..PLAIN
        },
        Case {
            name: "no tracefs",
            hidden: &["/sys/kernel/tracing", "/sys/kernel/debug"],
            ..PLAIN
        },
        Case {
            name: "no /sys/fs/bpf",
            hidden: &["/sys/fs/bpf"],
            ..PLAIN
        },
        Case {
            name: "bpf(2) refused by seccomp",
            no_bpf: true,
            expected: REFUSED,
            ..PLAIN
        },
        // What Linux 5.15 does not have of 6.1.
        Case {
            name: "no bpf_loop",
            no_helper: Some(BPF_LOOP),
            rung: true,
            ..PLAIN
        },
        Case {
            name: "no bpf_loop, kprobe",
            limit: "kprobe",
            no_helper: Some(BPF_LOOP),
            rung: true,
            ..PLAIN
        },
        Case {
            name: "no bpf_loop, tp_btf",
            limit: "tp_btf",
            no_helper: Some(BPF_LOOP),
            rung: true,
            expected: Expected::SameBut(&[
                ("netns-dying", "comparison", NO_WALK),
                ("netns-destroyed", "comparison", NO_WALK),
                ("address", "comparison", NO_WALK),
            ]),
            ..PLAIN
        },
        Case {
            name: "RLIMIT_MEMLOCK of 64 KiB",
            without: Some(&[]),
            memlock: Some(SMALL),
            ..PLAIN
        },
        Case {
            name: "RLIMIT_MEMLOCK of 64 KiB, no CAP_SYS_RESOURCE",
            without: Some(&[SYS_RESOURCE]),
            memlock: Some(SMALL),
            expected: match accounted {
                true => REFUSED,
                false => Expected::Same,
            },
            ..PLAIN
        },
        // For good, so it comes last.
        Case {
            name: "kernel.unprivileged_bpf_disabled=1",
            without: Some(&[]),
            sysctls: &[("kernel/unprivileged_bpf_disabled", "1")],
            ..PLAIN
        },
        Case {
            name: "kernel.unprivileged_bpf_disabled=1, no CAP_SYS_ADMIN",
            without: Some(&[SYS_ADMIN]),
            missing: &[SYS_ADMIN],
            expected: Expected::SameBut(&[("cni-result", "", "CAP_SYS_ADMIN")]),
            ..PLAIN
        },
    ]
}
