use super::super::btf::build::Builder;
use super::*;

/// The structs the layout is read from, as 6.18 names their members.
const STRUCTS: &[(&str, &[&str])] = &[
    (
        "task_struct",
        &[
            "__state",
            "flags",
            "pid",
            "tgid",
            "comm",
            "nsproxy",
            "mm",
            "exit_code",
            "real_parent",
            "group_leader",
            "start_boottime",
            "signal",
            "real_cred",
            "files",
            "thread_pid",
        ],
    ),
    ("signal_struct", &["live", "group_exit_code"]),
    ("cred", &["uid", "euid", "user_ns", "cap_effective"]),
    ("user_namespace", &["parent", "owner", "level"]),
    ("pid", &["level", "numbers"]),
    ("upid", &["nr", "ns"]),
    (
        "nsproxy",
        &["count", "net_ns", "mnt_ns", "pid_ns_for_children"],
    ),
    (
        "net_device",
        &[
            "dev_list",
            "nd_net",
            "name",
            "ifindex",
            "flags",
            "rtnl_link_ops",
            "ip_ptr",
            "ip6_ptr",
        ],
    ),
    ("rtnl_link_ops", &["kind"]),
    ("in_device", &["dev", "ifa_list"]),
    (
        "in_ifaddr",
        &["ifa_next", "ifa_dev", "ifa_local", "ifa_prefixlen"],
    ),
    ("inet6_dev", &["dev", "addr_list"]),
    (
        "inet6_ifaddr",
        &["if_list", "idev", "addr", "prefix_len", "flags"],
    ),
    ("mm_struct", &["env_start", "env_end"]),
    ("linux_binprm", &["filename"]),
    ("files_struct", &["fdt"]),
    ("fdtable", &["max_fds", "fd"]),
    ("file", &["f_inode"]),
    ("inode", &["i_mode", "i_pipe"]),
    (
        "pipe_inode_info",
        &[
            "head",
            "tail",
            "ring_size",
            "bufs",
            "tmp_page",
            "fasync_readers",
        ],
    ),
    ("pipe_buffer", &["page", "offset", "len"]),
    ("page", &["flags"]),
    ("work_struct", &["func"]),
    ("pt_regs", &[REGS.0, REGS.1]),
];

/// A kernel's BTF in which every member is 8 bytes, except that `missing`
/// (`struct.member`) are left out, `ns_common` has `common` and `net` has
/// `net` besides.
fn kernel(missing: &[&str], common: &[&str], net: &[&str]) -> Vec<u8> {
    fn members<'a>(names: &[&'a str], ty: u32) -> Vec<(&'a str, u32, u32)> {
        let at = |(index, &name): (usize, &&'a str)| (name, ty, 64 * index as u32);
        names.iter().enumerate().map(at).collect()
    }
    let mut b = Builder::new();
    let int = b.int();
    let entity = b.structure("sched_entity", &[("exec_start", int, 0)]);
    let inum = members(&[&["inum"], common].concat(), int);
    let common = b.structure("ns_common", &inum);
    let kept = b.structure("anon_pipe_prealloc", &members(&["pages", "count"], int));
    for (name, fields) in STRUCTS {
        let fields: Vec<&str> = fields
            .iter()
            .copied()
            .filter(|field| !missing.contains(&format!("{name}.{field}").as_str()))
            .collect();
        let mut fields = members(&fields, int);
        if *name == "task_struct" {
            fields.push(("se", entity, 64 * fields.len() as u32));
            fields.push(("cpu", int, 64 * fields.len() as u32));
            let bits = b.flags("", int, &[("sched_contributes_to_load", 5, 1)]);
            fields.push(("", bits, 64 * fields.len() as u32));
        }
        if *name == "pipe_inode_info" && !missing.contains(&"pipe_inode_info.prealloc") {
            fields.push(("prealloc", kept, 64 * fields.len() as u32));
        }
        if *name == "user_namespace" {
            fields.push(("ns", common, 64 * 2));
        }
        b.structure(name, &fields);
    }
    b.structure("mnt_namespace", &[("ns", common, 64)]);
    b.structure("pid_namespace", &[("ns", common, 64)]);
    let names = [&["net_cookie", "list", "dev_base_head", "user_ns"], net].concat();
    let mut fields = members(&names, int);
    fields.push(("ns", common, 64 * fields.len() as u32));
    b.structure("net", &fields);
    for (name, params) in [
        ("copy_net_ns", 3),
        ("__put_net", 1),
        ("bpf_iter_task", 2),
        ("bpf_iter_bpf_map", 2),
    ] {
        b.func(name, params);
    }
    b.tracepoint("sched_switch", 4);
    b.tracepoint("sched_waking", 1);
    b.finish()
}

fn layout_of(bytes: &[u8]) -> Layout {
    layout(&Btf::parse(bytes).unwrap())
}

fn learned(bytes: &[u8]) -> Facts {
    let mut facts = Facts::UNKNOWN;
    facts.learn_types(&Btf::parse(bytes).unwrap());
    facts
}

impl Facts {
    /// A kernel that offers everything, to take single facts away from.
    pub fn capable() -> Self {
        let functions = FUNCTIONS.iter().map(|&name| {
            let params = match name {
                "copy_net_ns" => 3,
                "__inet_insert_ifa" | "ipv6_add_addr" => 4,
                _ => 1,
            };
            (name, params)
        });
        Self {
            layout: layout_of(&kernel(&[], &["__ns_ref"], &[])),
            functions: Some(functions.collect()),
            tracepoints: Some(TRACEPOINTS.iter().map(|&name| (name, 4)).collect()),
            symbols: Some(FUNCTIONS.iter().copied().collect()),
            raw_tracepoints: Some(TRACEPOINTS.iter().copied().collect()),
            switch_has_state: Some(true),
            contributes_mask: Some(1 << 5),
            proxy_exec: Some(false),
            kprobes: Some(true),
            fentry: Some(true),
            iterators: Some(true),
            bpf_loop: Some(true),
            cleanup_net: Some(0xffff_ffff_81e5_0240),
            fib_inetaddr_event: Some(0xffff_ffff_8206_1470),
            inetdev_event: Some(0xffff_ffff_8205_42e0),
            lockdown: Some("none".to_owned()),
            refused: BTreeMap::new(),
            no_programs: None,
            may_enter: Some(true),
            may_look: Some(true),
        }
    }
}

#[test]
fn a_capable_kernel_has_every_member() {
    let layout = format!("{:?}", Facts::capable().layout);
    assert!(!layout.contains(&ABSENT.to_string()), "{layout}");
}

#[test]
fn the_reference_count_is_found_wherever_a_kernel_keeps_it() {
    let count = |common: &[&str], net: &[&str]| layout_of(&kernel(&[], common, net)).net_refs;
    // 4 members of `net`, then `ns` with `inum` and the count.
    assert_eq!(count(&["__ns_ref"], &[]), 32 + 8);
    assert_eq!(count(&["count"], &[]), 32 + 8);
    assert_eq!(count(&[], &["count"]), 32);
    assert_eq!(count(&[], &[]), ABSENT);
}

#[test]
fn the_pages_that_a_pipe_keeps_are_counted_only_by_a_newer_kernel() {
    let of = |missing: &[&str]| {
        let layout = layout_of(&kernel(missing, &["count"], &[]));
        let places = layout.pipe_kept_end - layout.pipe_kept;
        (places / 8, layout.pipe_kept_count != ABSENT)
    };
    assert_eq!(of(&[]), (1, true));
    assert_eq!(of(&["pipe_inode_info.prealloc"]), (1, false));
}

#[test]
fn the_task_state_has_two_names() {
    let mut b = Builder::new();
    let long = b.int();
    b.structure("task_struct", &[("state", long, 128)]);
    assert_eq!(layout_of(&b.finish()).task_state, 16);
}

#[test]
fn a_missing_member_is_absent_and_takes_nothing_with_it() {
    let full = layout_of(&kernel(&[], &["count"], &[]));
    let less = layout_of(&kernel(&["user_namespace.level"], &["count"], &[]));
    assert_eq!(less.user_ns_level, ABSENT);
    assert_eq!(
        Layout {
            user_ns_level: full.user_ns_level,
            ..less
        },
        full
    );
}

#[test]
fn a_device_whose_ipv6_list_cannot_be_followed_leads_to_none() {
    for missing in ["inet6_dev.addr_list", "inet6_ifaddr.if_list"] {
        let layout = layout_of(&kernel(&[missing], &[], &[]));
        assert_eq!(layout.dev_ip6_ptr, ABSENT, "{missing}");
    }
    let layout = layout_of(&kernel(&["inet6_ifaddr.idev"], &[], &[]));
    assert_ne!(layout.dev_ip6_ptr, ABSENT);
}

#[test]
fn types_tell_functions_tracepoints_and_iterators() {
    let facts = learned(&kernel(&[], &["count"], &[]));
    assert_eq!(facts.functions.as_ref().unwrap()["copy_net_ns"], 3);
    let functions = facts.functions.unwrap();
    assert!(functions.contains_key("__put_net"));
    assert!(!functions.contains_key("cleanup_net"));
    let tracepoints = facts.tracepoints.unwrap();
    assert_eq!(tracepoints.get("sched_waking"), Some(&1));
    assert!(!tracepoints.contains_key("notifier_run"));
    assert_eq!(facts.switch_has_state, Some(true));
    assert_eq!(facts.contributes_mask, Some(1 << 5));
    assert_eq!(facts.iterators, Some(true));
}

#[test]
fn with_proxy_execution_a_run_queue_has_a_donor_of_its_own() {
    let proxy = |members: &[(&str, u32)]| {
        let mut b = Builder::new();
        let int = b.int();
        let members: Vec<_> = members
            .iter()
            .map(|&(name, bits)| (name, int, bits))
            .collect();
        b.structure("rq", &members);
        learned(&b.finish()).proxy_exec
    };
    assert_eq!(proxy(&[("donor", 64), ("curr", 128)]), Some(true));
    assert_eq!(proxy(&[("donor", 64), ("curr", 64)]), Some(false));
    assert_eq!(proxy(&[("curr", 64)]), Some(false));
    assert_eq!(Facts::UNKNOWN.proxy_exec, None);
}

#[test]
fn a_kernel_without_sched_switch_in_btf_leaves_its_arguments_unknown() {
    let mut b = Builder::new();
    b.int();
    let facts = learned(&b.finish());
    assert_eq!(facts.switch_has_state, None);
    assert_eq!(facts.iterators, Some(false));
}

#[test]
fn the_symbol_table_tells_functions_tracepoints_and_addresses() {
    let mut facts = Facts::UNKNOWN;
    let table = "\
ffffffff81000100 T __put_net
ffffffff81000200 t cleanup_net
ffffffff81000300 T __traceiter_notifier_run
ffffffff81000400 t ipv6_add_addr.isra.0
ffffffff81000500 t inetdev_event.cold
ffffffff81000600 t inetdev_event
ffffffffc0000100 t fib_inetaddr_event\t[other]
";
    facts.learn_symbols(table.as_bytes()).unwrap();
    assert_eq!(facts.cleanup_net, Some(0xffff_ffff_8100_0200));
    assert_eq!(facts.fib_inetaddr_event, None);
    assert_eq!(facts.inetdev_event, Some(0xffff_ffff_8100_0600));
    assert_eq!(
        facts.symbols,
        Some(["__put_net", "cleanup_net", "inetdev_event"].into())
    );
    assert_eq!(
        facts.raw_tracepoints,
        Some(["notifier_run"].into_iter().collect())
    );
}

#[test]
fn hidden_and_ambiguous_addresses_are_not_known() {
    let address = |table: &str| {
        let mut facts = Facts::UNKNOWN;
        facts.learn_symbols(table.as_bytes()).unwrap();
        assert!(facts.symbols.unwrap().contains("cleanup_net"));
        facts.cleanup_net
    };
    assert_eq!(address("0000000000000000 t cleanup_net\n"), None);
    assert_eq!(address("10 t cleanup_net\n20 t cleanup_net\n"), None);
    assert_eq!(address("10 t cleanup_net\n10 t cleanup_net\n"), Some(0x10));
}

#[test]
fn the_lockdown_mode_is_the_one_in_brackets() {
    let mode = |modes| lockdown(modes);
    assert_eq!(
        mode("none [integrity] confidentiality\n").as_deref(),
        Some("integrity")
    );
    assert_eq!(mode("none integrity\n"), None);
    assert_eq!(mode(""), None);
}

#[test]
fn where_nothing_can_be_read_nothing_is_known() {
    let nowhere = Path::new("/nonexistent");
    let (facts, errors) = Facts::probe(nowhere, nowhere, None, None);
    assert_eq!(facts, Facts::UNKNOWN);
    assert_eq!(errors.len(), 2);
    assert!(errors[0].to_string().contains("btf/vmlinux"));
}

#[test]
fn unknown_addresses_are_settings_of_zero() {
    let settings = Facts::UNKNOWN.settings(
        Duration::from_secs(5),
        Host {
            pid_ns: 7,
            ..Host::default()
        },
    );
    assert_eq!(settings.cleanup_net, 0);
    assert_eq!(settings.fib_inetaddr_event, 0);
    assert_eq!(settings.inetdev_event, 0);
    assert_eq!(settings.switch_has_state, 0);
    assert_eq!(settings.stall_threshold_ns, 5_000_000_000);
    let settings = Facts::capable().settings(Duration::MAX, Host::default());
    assert_ne!(settings.cleanup_net, 0);
    assert_ne!(settings.fib_inetaddr_event, 0);
    assert_ne!(settings.inetdev_event, 0);
    assert_eq!(settings.switch_has_state, 1);
    assert_eq!(settings.stall_threshold_ns, u64::MAX);
}
