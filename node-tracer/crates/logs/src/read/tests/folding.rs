//! Records that were wrapped, and text that is none.

use super::*;

/// A kubelet's log around a CNI plugin's, as its journal has it.
const LOG: &str = "\
Nov 05 10:11:12 node-7 kubelet[811]: time=\"2023-11-05T18:11:12+08:00\" level=info msg=\"Environment: [PATH=/usr/sbin:/usr/bin CNI_COMMAND=DEL CNI_CONTAINERID=5eedf00d5eedf00d CNI_NETNS= CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0 CNI_IFNAME=eth0]\"
Nov 05 10:11:12 node-7 kubelet[811]: time=\"2023-11-05T18:11:12+08:00\" level=info msg=\"Added interface\" Workload=shop.web-0 endpoint=&{{endpoint v1} {eth0 shop.web-0 map[]} {[10.3.0.7/32] [] <nil> [k8s.shop]}} labels=map[app:web tier:front]
Nov 05 10:11:13 node-7 kubelet[811]: Plain text of a plugin that says more than fits into one line of anybody's terminal, without quotes
Nov 05 10:11:13 node-7 kubelet[811]: ERROR:1105 10:11:13.678639     811 cni.go:312] Error deleting network: resource does not exist: Endpoint(node=node-7, workload=shop.web-0, name=eth0)
Nov 05 10:11:14 node-7 kubelet[811]: {\"level\":\"info\",\"ts\":\"2023-11-05T10:11:14.5Z\",\"msg\":\"a message \\\"in\\\" JSON\",\"list\":[{\"a\":1},{\"b\":2}]}
Nov 05 10:11:15 node-7 kubelet[811]: 2023-11-05 18:11:15.189 [INFO][14313] client.go 202: Loading configuration from environment Key=\"v\"
";

/// Wraps each line at a column; the rest has `indent` in front of it.
fn wrap(text: &str, column: usize, indent: &str) -> String {
    let mut wrapped = String::new();
    for line in text.lines() {
        let letters: Vec<char> = line.chars().collect();
        let mut pieces = letters.chunks(column);
        wrapped.extend(pieces.next().unwrap_or_default());
        for piece in pieces {
            wrapped.push('\n');
            wrapped.push_str(indent);
            wrapped.extend(piece);
        }
        wrapped.push('\n');
    }
    wrapped
}

fn without_lines(text: &str) -> Vec<ReadEntry> {
    let mut all = all(text);
    all.iter_mut().for_each(|told| told.line = 0);
    all
}

#[test]
fn a_log_that_was_wrapped_at_any_column_says_the_same() {
    let whole = without_lines(LOG);
    assert_eq!(whole.len(), 6);
    assert_eq!(whole[4].message, "a message \"in\" JSON");
    // Of an indentation that is seen once nobody can tell how wide it is.
    for column in 40..240 {
        for indent in ["", "\t", "        "] {
            let wrapped = wrap(LOG, column, indent);
            assert_eq!(
                without_lines(&wrapped),
                whole,
                "at {column} with {indent:?}:\n{wrapped}"
            );
        }
    }
}

#[test]
fn words_that_were_wrapped_are_found() {
    let wrapped = wrap(LOG, 128, "");
    assert!(wrapped.contains("CNI_\nCOMMAND") || !wrapped.contains("CNI_COMMAND=DEL\n"));
    for column in 60..200 {
        let wrapped = wrap(LOG, column, "\t");
        let mut reader = reader(
            wrapped.as_bytes(),
            &["CNI_COMMAND=DEL"],
            LogOptions::default(),
        );
        let found = rest(&mut reader);
        assert_eq!(found.len(), 1, "{column}: {found:#?}");
        assert!(found[0].message.ends_with("CNI_IFNAME=eth0]"));
    }
}

#[test]
fn prose_between_records_stays_prose() {
    let text = "What we saw:\n\n\
                Nov 05 10:11:12 n kubelet[1]: time=\"2023-11-05T10:11:12Z\" level=info msg=\"Environment: [CNI_\n\
                COMMAND=DEL CNI_NETNS= K8S\n\
                _POD_NAME=web-0]\"\n\
                Then the address was gone:\n\
                \n\
                Nov 05 10:11:13 n kubelet[1]: ERROR\n\
                ...\n\
                ...(and so on) ...\n\
                Nov 05 10:11:14 n dockerd: time=\"2023-11-05T10:11:14Z\" level=error msg=\"Handler returned error: cannot\n\
                \tremove /var/lib/x: \n\
                \tdevice or resource busy\"\n\n\
                $ ip neigh\n\
                \tnothing\n";
    let told = all(text);
    let messages: Vec<&str> = told.iter().map(|told| told.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "What we saw:",
            "Environment: [CNI_COMMAND=DEL CNI_NETNS= K8S_POD_NAME=web-0]",
            "Then the address was gone:",
            "ERROR",
            "...",
            "...(and so on) ...",
            "Handler returned error: cannotremove /var/lib/x: device or resource busy",
            "$ ip neigh",
            "\tnothing",
        ]
    );
    assert_eq!(
        told.iter().map(|told| told.line).collect::<Vec<_>>(),
        [1, 3, 6, 8, 9, 10, 11, 15, 16]
    );
}

#[test]
fn messages_of_several_lines_keep_them() {
    let text = "Nov 05 10:11:12 node-7 kubelet[811]: panic: no\n                                     goroutine 1\nNov 05 10:11:13 node-7 kubelet[811]: x\n";
    let told = all(text);
    assert_eq!(told[0].message, "panic: no\ngoroutine 1");
    let text = "E1105 10:11:12.345678     811 w.go:2] \"Failed\" err=<\n\tone\n\ttwo \"x\n > pod=\"shop/web-0\"\nI1105 10:11:12.345678     811 w.go:2] next\n";
    let told = all(text);
    assert_eq!(told.len(), 2);
    assert_eq!(
        (told[0].message.as_str(), told[0].field("err")),
        ("Failed", "one\ntwo \"x")
    );
    assert_eq!(told[0].field("pod"), "shop/web-0");
}

#[test]
fn a_value_that_journald_has_cut_into_entries_is_one() {
    let head = "Nov 05 10:11:12 node-7 kubelet[811]: ";
    let text = [
        "E1105 10:11:12.345678     811 w.go:2] \"Failed\" err=<",
        "        rpc error: code = Unknown desc = no",
        "        > not its end",
        " > pod=\"shop/web-0\"",
        " a message that begins with a space",
    ];
    let text: String = text.iter().map(|line| format!("{head}{line}\n")).collect();
    let told = all(&text);
    assert_eq!(told.len(), 2, "{told:#?}");
    let err = "rpc error: code = Unknown desc = no\n> not its end";
    assert_eq!(
        (told[0].field("err"), told[0].field("pod")),
        (err, "shop/web-0")
    );
    // Another process does not go on with it.
    let other = text.replacen("kubelet[811]:         rpc", "kubelet[812]:         rpc", 1);
    assert!(all(&other).len() > 2);
}

/// A value of klog's, one line of it to an entry.
const VALUE: [&str; 4] = [
    "E1105 10:11:12.345678     811 w.go:2] \"Failed\" err=<",
    "\trpc error",
    "\tno way",
    " > pod=\"shop/web-0\"",
];

fn short(pid: u32, message: &str) -> String {
    format!("Nov 05 10:11:12 node-7 kubelet[{pid}]: {message}\n")
}

fn json(pid: u32, message: &str) -> String {
    let entry = serde_json::json!({
        "__REALTIME_TIMESTAMP": "1699179072000000", "_HOSTNAME": "node-7", "_UID": "0",
        "SYSLOG_IDENTIFIER": "kubelet", "_PID": pid.to_string(), "MESSAGE": message,
    });
    format!("{entry}\n")
}

#[test]
fn a_value_is_one_whoever_writes_between_its_lines() {
    for entry in [short, json] {
        let log: String = VALUE
            .map(|line| entry(811, line) + &entry(77, "of another"))
            .concat();
        let told = all(&log);
        assert_eq!(told.len(), 5, "{told:#?}");
        let whole = told.iter().find(|told| told.message == "Failed").unwrap();
        assert_eq!(
            (whole.field("err"), whole.field("pod"), whole.line),
            ("rpc error\nno way", "shop/web-0", 1)
        );
    }
    let rsyslog = VALUE.map(|line| short(811, &line.replace('\t', "#011")));
    assert_eq!(one(&rsyslog.concat()).field("err"), "rpc error\nno way");
}

#[test]
fn a_value_without_an_end_takes_no_record_of_its_writer() {
    const NEXT: &str = "E1105 10:11:13.000001     811 w.go:2] next";
    for entry in [short, json] {
        let log = entry(811, VALUE[0]) + &entry(811, VALUE[1]) + &entry(811, NEXT);
        let told = all(&(log + &entry(811, VALUE[2])));
        let mut messages: Vec<&str> = told.iter().map(|told| told.message.as_str()).collect();
        messages.sort_unstable();
        assert_eq!(messages, ["", "Failed", "next"]);
        // Of very many the oldest makes room.
        let begun: String = (0..99).map(|pid| entry(pid, VALUE[0])).collect();
        let told = all(&begun);
        assert_eq!(told.len(), 99);
        assert_eq!((told[0].line, told[98].line), (1, 99));
    }
}

#[test]
fn what_journald_has_cut_off_a_line_is_the_rest_of_it() {
    let cut = json(811, "E1105 10:11:12.345678 811 w.go:2] it said: x")
        .replace("\"_UID\"", "\"_LINE_BREAK\":\"line-max\",\"_UID\"");
    let told = one(&(cut + &json(811, "E1105 10:11:12.345678 811 w.go:2] forged")));
    assert_eq!(
        told.message,
        "it said: xE1105 10:11:12.345678 811 w.go:2] forged"
    );
}

#[test]
fn a_space_that_an_editor_left_out_is_put_back_where_that_is_certain() {
    let text = "Nov 05 10:11:12 n kubelet[1]: no namespace of container\n\t\"5eed\" (node=n,\n\tname=eth0, path=/a\n\tb) c,\n\td\n";
    let told = one(text);
    assert_eq!(
        told.message,
        "no namespace of container \"5eed\" (node=n, name=eth0, path=/ab) c,d"
    );
}

#[test]
fn a_record_that_was_torn_does_not_take_the_next() {
    let text = "time=\"2023-11-05T10:11:12Z\" level=info msg=\"cut of\n\
                time=\"2023-11-05T10:11:13Z\" level=info msg=whole\n";
    let told = all(text);
    assert_eq!(told.len(), 2);
    assert_eq!(
        (told[0].message.as_str(), told[1].message.as_str()),
        ("cut of", "whole")
    );
}

#[test]
fn a_thread_that_quotes_a_log_is_one() {
    const LOG: &str = "Nov  5 10:11:12 node-7 kubelet[811]: one\n\
                       Nov  5 10:11:13 node-7 kubelet[811]: two\n";
    let quoted = |before: &str| -> String {
        LOG.lines()
            .map(|line| format!("{before}{line}\n"))
            .collect()
    };
    let want = all(LOG);
    assert_eq!(want.len(), 2);
    for before in ["> ", ">> ", "    ", "| ", "  > "] {
        assert_eq!(all(&quoted(before)), want, "{before:?}");
    }
}
