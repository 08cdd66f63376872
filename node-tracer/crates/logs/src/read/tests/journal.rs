//! What journalctl prints for machines.

use super::*;

const MESSAGE: &str =
    "time=\"2023-11-05T10:11:12.5Z\" level=info msg=\"StopPodSandbox for \\\"abc\\\"\"";

fn is_the_one(told: &ReadEntry) {
    assert_eq!(told.message, "StopPodSandbox for \"abc\"");
    assert_eq!(told.time.as_deref(), Some("2023-11-05T10:11:12.500000Z"));
    assert_eq!(told.host.as_deref(), Some("node-7"));
    assert_eq!(told.ident.as_deref(), Some("containerd"));
    assert_eq!((told.pid, told.level), (Some(77), Some(Level::Info)));
}

fn json(message: &str, space: &str) -> String {
    [
        format!("{{{space}\"__CURSOR\"{space}:{space}\"s=1\""),
        String::from("\"__REALTIME_TIMESTAMP\" : \"1699179073000000\""),
        String::from("\"_BOOT_ID\":\"0123456789abcdef0123456789abcdef\""),
        String::from("\"_HOSTNAME\":\"node-7\",\"_SYSTEMD_UNIT\":\"containerd.service\""),
        String::from("\"_PID\":\"77\",\"PRIORITY\":\"3\",\"SYSLOG_IDENTIFIER\":null"),
        format!("\"MESSAGE\"{space}:{space}{message}{space}}}"),
    ]
    .join(",")
}

#[test]
fn json_in_all_its_shapes() {
    let text = serde_json::to_string(MESSAGE).unwrap();
    let bytes = serde_json::to_string(MESSAGE.as_bytes()).unwrap();
    let pretty = |line: &str| {
        format!(
            "{{\n\t{}\n}}",
            line.trim_matches(['{', '}']).replace(",\"", ",\n\t\"")
        )
    };
    for line in [
        json(&text, ""),
        json(&text, " "),
        json(&bytes, ""),
        json(&bytes, " "),
        pretty(&json(&text, "")),
        format!("\u{1e}{}", json(&text, "")),
        format!("data: {}\n", json(&text, "")),
    ] {
        let log = format!("{line}\n{}\n", json("\"nothing\"", ""));
        let mut reader = reader(log.as_bytes(), &["StopPodSandbox"], LogOptions::default());
        let found = rest(&mut reader);
        assert_eq!(found.len(), 1, "{log}\n{found:#?}");
        is_the_one(&found[0]);
        assert_eq!(reader.boot_id(), Some("0123456789abcdef0123456789abcdef"));
        let [seen] = reader.formats().try_into().unwrap();
        assert_eq!((seen.form, seen.records), (Form::JournalJson, 2), "{log}");
    }
}

fn export(message: &[u8]) -> Vec<u8> {
    let mut entry = Vec::from(
        "__CURSOR=s=1;i=2\n__REALTIME_TIMESTAMP=1699179073000000\n__MONOTONIC_TIMESTAMP=5\n\
         _BOOT_ID=0123456789abcdef0123456789abcdef\n_HOSTNAME=node-7\n_COMM=containerd\n_PID=77\n\
         PRIORITY=6\nSYSLOG_IDENTIFIER=containerd\n",
    );
    entry.extend_from_slice(b"MESSAGE");
    if message.contains(&b'\n') {
        entry.push(b'\n');
        entry.extend_from_slice(&(message.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend_from_slice(message);
    entry.extend_from_slice(b"\n_TRANSPORT=stdout\n_UID=0\n\n");
    entry
}

#[test]
fn verbose_entries_are_read() {
    let entry = format!(
        "Sun 2023-11-05 10:11:13.000000 UTC [s=1;i=2;b=3;m=4;t=5;x=6]\n    _HOSTNAME=node-7\n    \
         _PID=77\n    PRIORITY=6\n    SYSLOG_IDENTIFIER=containerd\n    MESSAGE={MESSAGE}\n    \
         _UID=0\n"
    );
    is_the_one(&one(&entry));
    let other = entry.replace("_UID=0", "_UID=1000");
    assert_eq!(all(&(entry + &other)).len(), 1);
}

#[test]
fn export_with_texts_and_with_bytes() {
    let several = format!("{MESSAGE}\n\nlast line");
    let mut log = export(b"nothing");
    log.extend(export(MESSAGE.as_bytes()));
    log.extend(export(several.as_bytes()));
    for step in [1, 9, 1 << 20] {
        let raw = Slowly(io::Cursor::new(log.clone()), step);
        let input = Input::new(String::from("a log"), None, Box::new(raw)).unwrap();
        let mut reader = LogReader::new(
            input,
            Words::new(&["StopPodSandbox"]),
            LogOptions::default(),
        );
        let found = rest(&mut reader);
        assert_eq!(found.len(), 2, "{found:#?}");
        found.iter().for_each(is_the_one);
        assert_eq!(reader.boot_id(), Some("0123456789abcdef0123456789abcdef"));
        assert_eq!(reader.gaps(), Gaps::default());
        let [seen] = reader.formats().try_into().unwrap();
        assert_eq!((seen.form, seen.records), (Form::Export, 3));
        assert!(seen.first.is_some() && seen.first == seen.last);
    }
}

#[test]
fn an_export_that_is_torn_anywhere_is_read_as_far_as_it_goes() {
    let mut log = export(MESSAGE.as_bytes());
    log.extend(export(b"two\nlines StopPodSandbox"));
    for length in 0..log.len() {
        let mut reader = reader(&log[..length], &["StopPodSandbox"], LogOptions::default());
        let found = rest(&mut reader);
        assert!(found.len() <= 2);
    }
    // A length that cannot be.
    let mut log = Vec::from("__CURSOR=s=1\n__REALTIME_TIMESTAMP=1699179073000000\nMESSAGE\n");
    log.extend([0xff; 8]);
    log.extend(b"\n\n");
    log.extend(export(MESSAGE.as_bytes()));
    let mut reader = reader(&log, &["StopPodSandbox"], LogOptions::default());
    assert_eq!(rest(&mut reader).len(), 1);
    assert!(reader.gaps().damaged > 0);
}

#[test]
fn separators_of_journalctl_are_no_text() {
    let text = "-- Boot 0123456789abcdef0123456789abcdef --\nNov 05 10:11:12 n kubelet[1]: a\n-- Reboot --\n";
    let mut reader = reader(text.as_bytes(), &[], LogOptions::default());
    assert_eq!(rest(&mut reader).len(), 1);
    assert_eq!(reader.boot_id(), Some("0123456789abcdef0123456789abcdef"));
}

/// A record of the journal, with these fields of journald's.
fn written(fields: &[(&str, &str)]) -> (Vec<ReadEntry>, Gaps) {
    let own = [
        ("__REALTIME_TIMESTAMP", "1699179073000000"),
        ("MESSAGE", "StopPodSandbox"),
        ("_HOSTNAME", "node-7"),
    ];
    let fields = own.iter().chain(fields);
    let fields = fields.map(|(name, value)| format!("\"{name}\":\"{value}\""));
    let log = format!("{{{}}}\n", fields.collect::<Vec<_>>().join(","));
    let mut reader = reader(log.as_bytes(), &["StopPodSandbox"], LogOptions::default());
    (rest(&mut reader), reader.gaps())
}

#[test]
fn nobody_speaks_in_the_journal_in_the_name_of_the_node_but_the_kernel_and_roots_daemons() {
    let container = "/kubepods/burstable/pod1/5f3c";
    for fields in [
        &[
            ("SYSLOG_IDENTIFIER", "kernel"),
            ("_TRANSPORT", "syslog"),
            ("_UID", "1000"),
        ][..],
        &[
            ("SYSLOG_IDENTIFIER", "kernel"),
            ("_TRANSPORT", "syslog"),
            ("_UID", "0"),
        ],
        &[("SYSLOG_IDENTIFIER", "kernel"), ("_TRANSPORT", "journal")],
        &[
            ("SYSLOG_IDENTIFIER", "kubelet"),
            ("_TRANSPORT", "syslog"),
            ("_UID", "1000"),
        ],
        &[
            ("SYSLOG_IDENTIFIER", "kubelet"),
            ("_SYSTEMD_UNIT", "user@1000.service"),
        ],
        &[
            ("SYSLOG_IDENTIFIER", "kubelet"),
            ("_UID", "0"),
            ("_SYSTEMD_CGROUP", container),
        ],
        &[
            ("_UID", "0"),
            ("_SYSTEMD_UNIT", "cri-containerd-5f3c.scope"),
        ],
        &[
            ("_UID", "0"),
            ("_SYSTEMD_UNIT", "docker.service"),
            ("CONTAINER_NAME", "k8s_c_web-0_shop_u_0"),
        ],
    ] {
        let (told, gaps) = written(fields);
        assert!(told.is_empty(), "{fields:?} {told:?}");
        assert_eq!(gaps.others, 1, "{fields:?}");
    }
    for fields in [
        &[("SYSLOG_IDENTIFIER", "kernel"), ("_TRANSPORT", "kernel")][..],
        &[
            ("SYSLOG_IDENTIFIER", "kubelet"),
            ("_UID", "0"),
            ("_SYSTEMD_UNIT", "kubelet.service"),
        ],
        &[("_SYSTEMD_UNIT", "containerd.service")],
        &[
            ("_UID", "0"),
            ("_SYSTEMD_UNIT", "docker.service"),
            ("CONTAINER_NAME", "k8s_c_calico-node-x_kube-system_u_0"),
        ],
    ] {
        let (told, gaps) = written(fields);
        assert_eq!(told.len(), 1, "{fields:?}");
        assert!(!gaps.unvouched && gaps.others == 0, "{fields:?} {gaps:?}");
    }
}

#[test]
fn where_nothing_vouches_for_a_writer_it_is_said_so() {
    let (told, gaps) = written(&[("SYSLOG_IDENTIFIER", "kubelet")]);
    assert_eq!(told.len(), 1);
    assert!(gaps.unvouched && gaps.texts().iter().any(|text| text.contains("any user")));
    let log = "Dec 12 20:21:27 node-7 kubelet[811]: StopPodSandbox\n";
    let mut short = reader(log.as_bytes(), &["StopPodSandbox"], LogOptions::default());
    assert_eq!(rest(&mut short).len(), 1);
    assert!(short.gaps().unvouched);
}

#[test]
fn what_a_tenants_container_prints_is_no_word_of_the_node() {
    let uid = "0a1b2c3d-0000-4000-8000-000000000001";
    let line = b"2023-11-05T10:11:12.123456789Z stdout F StopPodSandbox\n";
    for (namespace, records) in [("shop", 0), ("kube-system", 1)] {
        let name = format!("/var/log/pods/{namespace}_web-0_{uid}/c/0.log");
        let raw = Box::new(io::Cursor::new(line.to_vec()));
        let input = Input::new(name, None, raw).unwrap();
        let words = Words::new(&["StopPodSandbox"]);
        let mut reader = LogReader::new(input, words, LogOptions::default());
        assert_eq!(rest(&mut reader).len(), records, "{namespace}");
        assert_eq!(reader.gaps().others, 1 - records as u64, "{namespace}");
    }
    let mut copied = reader(line, &["StopPodSandbox"], LogOptions::default());
    assert_eq!(rest(&mut copied).len(), 1);
    assert!(copied.gaps().of_container);
}
