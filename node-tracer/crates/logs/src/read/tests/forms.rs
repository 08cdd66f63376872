//! A table of forms, one line each, and what is to come out.

use super::*;

/// Text; time; host, writer, process; level; message; fields.
type Row = (
    &'static str,
    &'static str,
    (&'static str, &'static str, u32),
    Option<Level>,
    &'static str,
    &'static [(&'static str, &'static str)],
);

const INFO: Option<Level> = Some(Level::Info);
const WARNING: Option<Level> = Some(Level::Warning);
const ERROR: Option<Level> = Some(Level::Error);
const DEBUG: Option<Level> = Some(Level::Debug);

const NODE: (&str, &str, u32) = ("node-7", "kubelet", 811);
const NOBODY: (&str, &str, u32) = ("", "", 0);
/// `2023-11-05T10:11:12Z`, more or less precise.
const WHOLE: &str = "2023-11-05T10:11:12.000000Z";
const FINE: &str = "2023-11-05T10:11:12.345678Z";
const MILLIS: &str = "2023-11-05T10:11:12.345000Z";

const ROWS: &[Row] = &[
    // The journal and syslog.
    (
        "Nov  5 10:11:12 node-7 kubelet[811]: hello",
        WHOLE,
        NODE,
        None,
        "hello",
        &[],
    ),
    (
        "Nov 5 10:11:12 node-7 kubelet[811]: hello",
        WHOLE,
        NODE,
        None,
        "hello",
        &[],
    ),
    (
        "Nov 05 10:11:12.345678 node-7 kubelet[811]: hello",
        FINE,
        NODE,
        None,
        "hello",
        &[],
    ),
    (
        "Nov 05 10:11:12 node-7 kubelet.service[811]: hello",
        WHOLE,
        NODE,
        None,
        "hello",
        &[],
    ),
    (
        "2023-11-05T10:11:12+0000 node-7 kubelet[811]: hello",
        WHOLE,
        NODE,
        None,
        "hello",
        &[],
    ),
    (
        "2023-11-05T12:11:12.345678+02:00 node-7 kubelet[811]: hello",
        FINE,
        NODE,
        None,
        "hello",
        &[],
    ),
    (
        "2023-11-05T10:11:12.345678Z node-7 dockerd: hello",
        FINE,
        ("node-7", "dockerd", 0),
        None,
        "hello",
        &[],
    ),
    (
        "Sun 2023-11-05 10:11:12 UTC node-7 kubelet[811]: hello",
        WHOLE,
        NODE,
        None,
        "hello",
        &[],
    ),
    (
        "Sun 2023-11-05 11:11:12.345678 CET node-7 kubelet.service[811]: hello",
        FINE,
        NODE,
        None,
        "hello",
        &[],
    ),
    (
        "1699179072.345678 node-7 kubelet[811]: hello",
        FINE,
        NODE,
        None,
        "hello",
        &[],
    ),
    (
        "<30>Nov  5 10:11:12 node-7 kubelet[811]: hello",
        WHOLE,
        NODE,
        INFO,
        "hello",
        &[],
    ),
    (
        "<27>1 2023-11-05T10:11:12.345Z node-7 kubelet 811 ID47 [a@1 b=\"c\"][d@1 e=\"f\"] hello",
        MILLIS,
        NODE,
        ERROR,
        "hello",
        &[],
    ),
    (
        "<27>1 2023-11-05T10:11:12.345Z node-7 kubelet 811 - - hello",
        MILLIS,
        NODE,
        ERROR,
        "hello",
        &[],
    ),
    (
        "Nov  5 10:11:12 node-7 last message repeated 2 times",
        WHOLE,
        ("node-7", "", 0),
        None,
        "last message repeated 2 times",
        &[],
    ),
    // The kernel.
    (
        "Nov  5 10:11:12 node-7 kernel: [81234.567890] INFO: task sh:7 blocked",
        WHOLE,
        ("node-7", "kernel", 0),
        None,
        "INFO: task sh:7 blocked",
        &[],
    ),
    (
        "Nov  5 10:11:12 node-7 kernel: INFO: task sh:7 blocked",
        WHOLE,
        ("node-7", "kernel", 0),
        None,
        "INFO: task sh:7 blocked",
        &[],
    ),
    (
        "[81234.567890] eth0: link up",
        "",
        ("", "kernel", 0),
        None,
        "eth0: link up",
        &[],
    ),
    (
        "<4>[   34.567890] eth0: link up",
        "",
        ("", "kernel", 0),
        WARNING,
        "eth0: link up",
        &[],
    ),
    (
        "kern  :warn  : [   34.567890] eth0: link up",
        "",
        ("", "kernel", 0),
        WARNING,
        "eth0: link up",
        &[],
    ),
    (
        "[Sun Nov  5 10:11:12 2023] eth0: link up",
        WHOLE,
        ("", "kernel", 0),
        None,
        "eth0: link up",
        &[],
    ),
    (
        "2023-11-05T10:11:12,345678+00:00 eth0: link up",
        FINE,
        ("", "kernel", 0),
        None,
        "eth0: link up",
        &[],
    ),
    (
        "[   34.567890] node-7 kubelet[811]: hello",
        "",
        NODE,
        None,
        "hello",
        &[],
    ),
    // klog.
    (
        "E1105 10:11:12.345678     811 cni.go:312] teardown: no such thing",
        FINE,
        ("", "", 811),
        ERROR,
        "teardown: no such thing",
        &[("caller", "cni.go:312")],
    ),
    (
        "WARNING:1105 10:11:12.345678   811 a_b.go:4] hm",
        FINE,
        ("", "", 811),
        WARNING,
        "hm",
        &[("caller", "a_b.go:4")],
    ),
    (
        "I1105 10:11:12.345678     811 kubelet.go:2] \"SyncLoop DELETE\" source=\"api\" pods=[\"shop/web-0\"]",
        FINE,
        ("", "", 811),
        INFO,
        "SyncLoop DELETE",
        &[
            ("caller", "kubelet.go:2"),
            ("source", "api"),
            ("pods", "[\"shop/web-0\"]"),
        ],
    ),
    (
        "E1105 10:11:12.345678     811 w.go:2] \"Error syncing pod\" err=\"failed to \\\"KillPodSandbox\\\" for \\\"u-1\\\": \\\"desc = \\\\\\\"x\\\\\\\"\\\"\" pod=\"shop/web-0\" podUID=a-b",
        FINE,
        ("", "", 811),
        ERROR,
        "Error syncing pod",
        &[
            ("caller", "w.go:2"),
            (
                "err",
                "failed to \"KillPodSandbox\" for \"u-1\": \"desc = \\\"x\\\"\"",
            ),
            ("pod", "shop/web-0"),
            ("podUID", "a-b"),
        ],
    ),
    (
        "E1105 10:11:12.345678 811 w.go:2] \"m\" err=\"\\\"twice\\\"\"",
        FINE,
        ("", "", 811),
        ERROR,
        "m",
        &[("caller", "w.go:2"), ("err", "twice")],
    ),
    (
        "E1105 10:11:12.345678 811 w.go:2] \"web-0\" is no name",
        FINE,
        ("", "", 811),
        ERROR,
        "\"web-0\" is no name",
        &[("caller", "w.go:2")],
    ),
    // logrus, slog, zap.
    (
        "time=\"2023-11-05T10:11:12.345678901Z\" level=info msg=\"StopPodSandbox for \\\"abc\\\"\" runtime=io.containerd.runc.v2",
        FINE,
        NOBODY,
        INFO,
        "StopPodSandbox for \"abc\"",
        &[("runtime", "io.containerd.runc.v2")],
    ),
    (
        "time=2023-11-05T10:11:12.345Z level=WARN source=/a.go:1 msg=hello x=1",
        MILLIS,
        NOBODY,
        WARNING,
        "hello",
        &[("source", "/a.go:1"), ("x", "1")],
    ),
    (
        "ts=2023-11-05T10:11:12.345Z caller=main.go:1 level=error msg=\"no way\"",
        MILLIS,
        NOBODY,
        ERROR,
        "no way",
        &[("caller", "main.go:1")],
    ),
    (
        "level=debug msg=\"endpoint gone\" subsys=daemon",
        "",
        NOBODY,
        DEBUG,
        "endpoint gone",
        &[("subsys", "daemon")],
    ),
    (
        "{\"ts\":1699179072.345678,\"level\":\"info\",\"msg\":\"hello\",\"n\":1}",
        FINE,
        NOBODY,
        INFO,
        "hello",
        &[("n", "1")],
    ),
    (
        "{\"ts\":1699179072345.678,\"caller\":\"a.go:1\",\"msg\":\"m\",\"pod\":{\"name\":\"web-0\",\"namespace\":\"shop\"}}",
        FINE,
        NOBODY,
        None,
        "m",
        &[("caller", "a.go:1"), ("pod", "shop/web-0")],
    ),
    (
        "{\"level\":\"error\",\"ts\":\"2023-11-05T10:11:12.345Z\",\"msg\":\"say \\\"no\\\"\",\"error\":\"e\"}",
        MILLIS,
        NOBODY,
        ERROR,
        "say \"no\"",
        &[("error", "e")],
    ),
    (
        "{\"time\":\"2023-11-05T10:11:12.345Z\",\"level\":\"WARN\",\"msg\":\"m\",\"list\":[1,{\"a\":null}]}",
        MILLIS,
        NOBODY,
        WARNING,
        "m",
        &[("list", "[1,{\"a\":null}]")],
    ),
    (
        "2023-11-05T10:11:12.345Z\tERROR\tcontroller\tpkg/a.go:7\tno answer\t{\"node\": \"n\"}",
        MILLIS,
        NOBODY,
        ERROR,
        "no answer",
        &[("caller", "pkg/a.go:7"), ("node", "n")],
    ),
    // Container logs.
    (
        "{\"log\":\"hello\\n\",\"stream\":\"stderr\",\"time\":\"2023-11-05T10:11:12.345678901Z\"}",
        FINE,
        NOBODY,
        None,
        "hello",
        &[],
    ),
    (
        "2023-11-05T10:11:12.345678901Z stderr F hello",
        FINE,
        NOBODY,
        None,
        "hello",
        &[],
    ),
    (
        "2023-11-05T18:11:12.345678901+08:00 stdout F hello",
        FINE,
        NOBODY,
        None,
        "hello",
        &[],
    ),
    // Others.
    (
        "2023-11-05 10:11:12.345 [INFO][14313] cni-plugin/k8s.go 313: Releasing IP ContainerID=\"c0ffee\" Workload=\"w-eth0\"",
        MILLIS,
        ("", "", 14313),
        INFO,
        "Releasing IP",
        &[
            ("caller", "cni-plugin/k8s.go 313"),
            ("ContainerID", "c0ffee"),
            ("Workload", "w-eth0"),
        ],
    ),
    (
        "2023-11-05 10:11:12.345678 I | etcdserver: hello",
        FINE,
        NOBODY,
        INFO,
        "etcdserver: hello",
        &[],
    ),
    (
        "2023/11/05 10:11:12 hello",
        WHOLE,
        NOBODY,
        None,
        "hello",
        &[],
    ),
    (
        "2023-11-05T10:11:12Z [error] Multus: no delegate",
        WHOLE,
        NOBODY,
        ERROR,
        "Multus: no delegate",
        &[],
    ),
    (
        "2023-11-05T10:11:12.345Z INFO hello",
        MILLIS,
        NOBODY,
        INFO,
        "hello",
        &[],
    ),
    (
        "2023-11-05T10:11:12Z Error syncing: it failed",
        WHOLE,
        NOBODY,
        None,
        "Error syncing: it failed",
        &[],
    ),
    // No form at all.
    (
        "  Warning  FailedMount  5s  kubelet  no",
        "",
        NOBODY,
        None,
        "  Warning  FailedMount  5s  kubelet  no",
        &[],
    ),
    // What others have put before a record, and into it.
    (
        "> kubelet[811]: E1105 10:11:12.345678     811 x.go:7] hello",
        FINE,
        ("", "", 811),
        ERROR,
        "hello",
        &[("caller", "x.go:7")],
    ),
    (
        "10.0.0.3: user: warning: [2023-11-05T10:11:12.345Z]: hello",
        MILLIS,
        NOBODY,
        None,
        "hello",
        &[],
    ),
    (
        "\x1b[31mERRO\x1b[0m[2023-11-05T10:11:12.345678Z] hello  id=1",
        FINE,
        NOBODY,
        ERROR,
        "hello",
        &[("id", "1")],
    ),
    (
        "<pre>time=&quot;2023-11-05T10:11:12Z&quot; level=error msg=&quot;hello&quot;</pre>",
        WHOLE,
        NOBODY,
        ERROR,
        "hello",
        &[],
    ),
    (
        "10.0.0.3: {&quot;level&quot;:&quot;error&quot;,&quot;ts&quot;:&quot;2023-11-05T10:11:12Z&quot;,&quot;msg&quot;:&quot;hello&quot;}",
        WHOLE,
        NOBODY,
        ERROR,
        "hello",
        &[],
    ),
    (
        "11\u{6708} 05 10:11:12 node-7 kubelet[811]: hello",
        WHOLE,
        NODE,
        None,
        "hello",
        &[],
    ),
    (
        "nov. 05 10:11:12 node-7 kubelet[811]: hello",
        WHOLE,
        NODE,
        None,
        "hello",
        &[],
    ),
];

#[test]
fn each_form_is_read() {
    for (text, time, (host, ident, pid), level, message, fields) in ROWS {
        let told = one(text);
        let fields: Vec<(String, String)> = fields
            .iter()
            .map(|(key, value)| (String::from(*key), String::from(*value)))
            .collect();
        let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let want = ReadEntry {
            time: known(time),
            host: known(host),
            ident: known(ident),
            pid: Some(*pid).filter(|pid| *pid > 0),
            level: *level,
            message: String::from(*message),
            fields,
            line: 1,
        };
        assert_eq!(told, want, "{text}");
    }
}

/// All forms that can stand in others; what they say is `inner`.
const ENVELOPES: [&str; 6] = [
    "Nov  5 10:11:12 node-7 kubelet[811]: ",
    "2023-11-05T10:11:12+0000 node-7 kubelet[811]: ",
    "2023-11-05T10:11:12.000000000Z stderr F ",
    "<30>Nov  5 10:11:12 node-7 kubelet[811]: ",
    "Sun 2023-11-05 10:11:12 UTC node-7 kubelet[811]: ",
    "1699179072.000000 node-7 kubelet[811]: ",
];

#[test]
fn envelopes_nest() {
    for outer in ENVELOPES {
        for (inner, _, (_, _, pid), level, message, fields) in ROWS {
            // What names a host is an outermost envelope.
            if inner.contains("node-7") || inner.starts_with(' ') || message.starts_with("eth0") {
                continue;
            }
            // Others put these before whole lines.
            if inner.starts_with(['>', '\x1b', '<']) || inner.starts_with("10.0.0.3") {
                continue;
            }
            let text = format!("{outer}{inner}");
            let told = one(&text);
            assert_eq!(told.message, *message, "{text}");
            let keys: Vec<&str> = told.fields.iter().map(|(key, _)| key.as_str()).collect();
            let want: Vec<&str> = fields.iter().map(|(key, _)| *key).collect();
            assert_eq!(keys, want, "{text}");
            if level.is_some() {
                assert_eq!(told.level, *level, "{text}");
            }
            let time = told.time.unwrap();
            assert!(time.starts_with("2023-11-05T10:11:12."), "{text}: {time}");
            if outer.contains("node-7") {
                assert_eq!(told.host.as_deref(), Some("node-7"), "{text}");
                assert_eq!(
                    (told.ident.as_deref(), told.pid),
                    (Some("kubelet"), Some(811))
                );
            } else {
                assert_eq!(told.pid, Some(*pid).filter(|pid| *pid > 0), "{text}");
            }
        }
    }
}

#[test]
fn structs_without_quotes_are_values() {
    let told = one(
        "time=\"2023-11-05T10:11:12Z\" level=info msg=\"Populated endpoint\" Workload=shop.web-0 \
         endpoint=&{{workloadEndpoint v1} {} eth0 shop.web-0 k8s node-7 map[]} \
         {[10.3.0.7/32] [] <nil> <nil> [k8s_ns.shop]  <nil>}} next=1",
    );
    assert_eq!(told.message, "Populated endpoint");
    assert_eq!(told.field("Workload"), "shop.web-0");
    assert!(
        told.field("endpoint")
            .starts_with("&{{workloadEndpoint v1}")
    );
    assert!(told.field("endpoint").ends_with("[k8s_ns.shop]  <nil>}}"));
    assert_eq!(told.field("next"), "1");
}

#[test]
fn a_rival_of_a_form_is_plain_text() {
    for text in [
        "Decorated 12 times",
        "2023-11-05 was a Sunday",
        "[12] is a footnote",
        "{ a block",
        "time is short",
        "E11 is no klog",
        "<html>",
        "__init__",
        "Sun shines",
        "1699179072 seconds",
    ] {
        let told = one(text);
        assert_eq!((told.time, told.message.as_str()), (None, text));
    }
}
