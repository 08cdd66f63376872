use super::build::Builder;
use super::*;

/// The shapes the kernel uses: nested, anonymous, qualified, bit-fields.
fn sample() -> Vec<u8> {
    let mut b = Builder::new();
    let int = b.int();
    let common = b.structure("ns_common", &[("ops", int, 0), ("inum", int, 128)]);
    let alias = b.modifier(kind::TYPEDEF, "ns_common_t", common);
    let tagged = b.modifier(kind::TYPE_TAG, "tag", alias);
    let constant = b.modifier(kind::CONST, "", tagged);
    let deepest = b.structure("", &[("deepest", int, 32)]);
    let either = b.aggregate(kind::UNION, "", &[("left", int, 0), ("", deepest, 64)]);
    let pointer = b.modifier(kind::PTR, "", common);
    b.structure(
        "net",
        &[
            ("passive", int, 0),
            ("", either, 256),
            ("ns", constant, 1024),
            ("parent", pointer, 2048),
        ],
    );
    b.flags(
        "flags",
        int,
        &[
            ("odd", 3, 1),
            ("even", 8, 1),
            ("plain", 16, 0),
            ("far", 67, 1),
            ("two", 68, 2),
        ],
    );
    b.func("copy_net_ns", 3);
    b.tracepoint("sched_switch", 4);
    b.raw("array", kind::ARRAY << 24, 0, &[int, int, 4]);
    b.raw("e", kind::ENUM << 24 | 2, 4, &[0; 4]);
    b.raw("e64", kind::ENUM64 << 24 | 2, 8, &[0; 6]);
    b.raw("v", kind::VAR << 24, int, &[0]);
    b.raw("sec", kind::DATASEC << 24 | 1, 0, &[0; 3]);
    b.raw("f", kind::FLOAT << 24, 8, &[]);
    b.raw("d", kind::DECL_TAG << 24, int, &[0]);
    b.structure("last", &[("end", int, 64)]);
    b.finish()
}

#[test]
fn a_path_adds_the_offsets_of_its_members() {
    let bytes = sample();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.offset_of("net", "ns"), Some(128));
    assert_eq!(btf.offset_of("net", "ns.inum"), Some(144));
}

#[test]
fn members_of_anonymous_aggregates_belong_to_the_outer_one() {
    let bytes = sample();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.offset_of("net", "left"), Some(32));
    assert_eq!(btf.offset_of("net", "deepest"), Some(32 + 8 + 4));
}

#[test]
fn a_pointer_ends_a_path() {
    let bytes = sample();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.offset_of("net", "parent"), Some(256));
    assert_eq!(btf.offset_of("net", "parent.inum"), None);
    assert_eq!(btf.offset_of("net", "passive.inum"), None);
}

#[test]
fn a_bit_field_has_an_offset_only_on_a_byte_boundary() {
    let bytes = sample();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.offset_of("flags", "odd"), None);
    assert_eq!(btf.offset_of("flags", "even"), Some(1));
    assert_eq!(btf.offset_of("flags", "plain"), Some(2));
}

#[test]
fn a_single_bit_lies_in_an_aligned_word() {
    let bytes = sample();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.bit_of("flags", "odd"), Some((0, 1 << 3)));
    assert_eq!(btf.bit_of("flags", "even"), Some((0, 1 << 8)));
    assert_eq!(btf.bit_of("flags", "far"), Some((8, 1 << 3)));
    for no_bit in ["plain", "two", "absent"] {
        assert_eq!(btf.bit_of("flags", no_bit), None, "{no_bit}");
    }
}

#[test]
fn what_is_not_there_is_none() {
    let bytes = sample();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.offset_of("net", "count"), None);
    assert_eq!(btf.offset_of("net", "ns.count"), None);
    assert_eq!(btf.offset_of("nett", "ns"), None);
    assert_eq!(btf.func_params("cleanup_net"), None);
    assert_eq!(btf.tracepoint_params("notifier_run"), None);
    // A typedef is no struct tag.
    assert_eq!(btf.offset_of("ns_common_t", "inum"), None);
}

#[test]
fn functions_and_tracepoints_count_their_parameters() {
    let bytes = sample();
    let btf = Btf::parse(&bytes).unwrap();
    assert!(btf.has_func("copy_net_ns"));
    assert_eq!(btf.func_params("copy_net_ns"), Some(3));
    assert_eq!(btf.tracepoint_params("sched_switch"), Some(4));
}

#[test]
fn every_kind_is_stepped_over() {
    let bytes = sample();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.offset_of("last", "end"), Some(8));
}

#[test]
fn a_header_may_be_longer_than_ours() {
    let mut bytes = sample();
    bytes.splice(4..8, 32_u32.to_ne_bytes());
    bytes.splice(24..24, [0; 8]);
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.offset_of("net", "ns.inum"), Some(144));
}

#[test]
fn another_byte_order_and_other_files_are_refused() {
    let mut bytes = sample();
    bytes.swap(0, 1);
    let swapped = MAGIC.swap_bytes();
    assert_eq!(
        Btf::parse(&bytes).err(),
        Some(BtfError::Magic { found: swapped })
    );
    assert!(Btf::parse(b"\x7fELF").is_err());
    assert!(Btf::parse(b"").is_err());
}

#[test]
fn an_unknown_kind_is_an_error_that_names_it() {
    let mut b = Builder::new();
    b.int();
    b.raw("new", 31 << 24, 0, &[]);
    let bytes = b.finish();
    let error = Btf::parse(&bytes).err();
    assert_eq!(error, Some(BtfError::Kind { id: 2, kind: 31 }));
}

#[test]
fn cycles_end() {
    let mut b = Builder::new();
    // Typedef 1 and 2 refer to each other; struct 3 holds itself, twice
    // and without a name.
    b.modifier(kind::TYPEDEF, "a", 2);
    b.modifier(kind::TYPEDEF, "b", 1);
    b.structure("self", &[("", 3, 0), ("", 3, 0), ("loop", 1, 0)]);
    let bytes = b.finish();
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.offset_of("self", "missing"), None);
    assert_eq!(btf.offset_of("self", "loop.x"), None);
}

#[test]
fn no_truncation_and_no_flipped_byte_panics() {
    let bytes = sample();
    let ask = |bytes: &[u8]| {
        if let Ok(btf) = Btf::parse(bytes) {
            btf.offset_of("net", "ns.inum");
            btf.offset_of("net", "deepest");
            btf.func_params("copy_net_ns");
            btf.tracepoint_params("sched_switch");
        }
    };
    for end in 0..bytes.len() {
        assert!(Btf::parse(&bytes[..end]).is_err());
    }
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut broken = bytes.clone();
            broken[at] = value;
            ask(&broken);
        }
    }
}

#[test]
fn the_running_kernel_is_understood() {
    let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else {
        skip();
        return;
    };
    let btf = Btf::parse(&bytes).unwrap();
    let pid = btf.offset_of("task_struct", "pid").unwrap();
    assert_eq!(btf.offset_of("task_struct", "tgid"), Some(pid + 4));
    let ns = btf.offset_of("net", "ns").unwrap();
    let common = btf.offset_of("ns_common", "inum").unwrap();
    assert_eq!(btf.offset_of("net", "ns.inum"), Some(ns + common));
    assert!(
        btf.bit_of("task_struct", "sched_contributes_to_load")
            .is_some()
    );
    // In an anonymous struct since 2.6.
    assert!(btf.offset_of("mm_struct", "env_start").is_some());
    assert_eq!(btf.func_params("copy_net_ns"), Some(3));
    assert!(matches!(btf.tracepoint_params("sched_switch"), Some(3 | 4)));
}

#[expect(clippy::print_stderr, reason = "tells why a test did nothing")]
fn skip() {
    eprintln!("skipped: no /sys/kernel/btf/vmlinux");
}
