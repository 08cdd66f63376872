//! Whatever a tenant writes where others pass it on: nothing that is told names
//! another pod, and none of it says that a sandbox's network failed.

use std::{
    io::Cursor,
    time::{Duration, SystemTime},
};

use super::{
    failures,
    meaning::{self, Meaning},
    read::{Input, LogOptions, LogReader, Words},
};
use diagnosis::{Cause, gate};
use event::{Event, PodRef, What};

const LINES: &str = include_str!("../../diagnosis/src/lines.txt");
/// The tenant's own container and sandbox.
const OWN: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
/// Another pod's sandbox.
const VICTIM: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const UID: &str = "11111111-1111-4111-8111-111111111111";

/// A line of a log, with what a tenant wrote at `@`. `%` stands for the
/// tenant's container, `~U` for its pod's UID.
///
/// The kubelet's and containerd's own words, of several versions.
const PLACES: &[&str] = &[
    // A command, of a container that does not start.
    r#"time="2026-11-23T22:56:56.058883589Z" level=error msg="StartContainer for \"%\" failed" error="failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: \"@2\": executable file not found in $PATH: unknown""#,
    r#"time="2026-11-23T22:56:56.058883589Z" level=error msg="StartContainer for \"%\" failed" error="failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: \"@2\": stat @2: no such file or directory: unknown""#,
    r#"E1123 10:00:00.111111     811 remote_runtime.go:453] "StartContainer from runtime service failed" err="rpc error: code = Unknown desc = failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: \"@2\": stat @1: no such file or directory: unknown" containerID="%""#,
    r#"E1123 10:00:00.111111     811 pod_workers.go:190] "Error syncing pod, skipping" err="failed to \"StartContainer\" for \"c\" with RunContainerError: \"failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: \\\"@3\\\": executable file not found in $PATH: unknown\"" pod="tenant/evil" podUID="~U""#,
    r#"E1123 10:00:00.111111     811 pod_workers.go:191] Error syncing pod ~U ("evil_tenant(~U)"), skipping: failed to "StartContainer" for "c" with RunContainerError: "failed to start container \"%\": Error response from daemon: OCI runtime create failed: container_linux.go:345: starting container process caused \"exec: \\\"@3\\\": executable file not found in $PATH\": unknown""#,
    r#"E1123 10:00:00.111111     811 kuberuntime_manager.go:1256] "Unhandled Error" err="container &Container{Name:c,Image:x,Command:[@1],Args:[],} start failed in pod evil_tenant(~U): RunContainerError: x" logger="UnhandledError""#,
    r#"time="2026-11-23T22:56:56.058883589Z" level=error msg="Handler for POST /v1.40/containers/%/start returned error: OCI runtime create failed: container_linux.go:345: starting container process caused \"exec: \\\"@3\\\": executable file not found in $PATH\": unknown""#,
    // A working directory.
    r#"time="2026-11-23T22:56:56.058883589Z" level=error msg="StartContainer for \"%\" failed" error="failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: chdir to cwd (\"@2\") set in config.json failed: no such file or directory: unknown""#,
    // A registry's answer, an image's name.
    r#"E1123 10:00:00.111111     811 pod_workers.go:190] "Error syncing pod, skipping" err="failed to \"StartContainer\" for \"c\" with ErrImagePull: \"rpc error: code = Unknown desc = failed to pull and unpack image \\\"evil.example/x:1\\\": failed to resolve reference \\\"evil.example/x:1\\\": unexpected status: @2\"" pod="tenant/evil" podUID="~U""#,
    r#"E1123 10:00:00.111111     811 remote_image.go:180] "PullImage from image service failed" err="rpc error: code = Unknown desc = @1" image="evil.example/x:1""#,
    r#"time="2026-11-23T22:56:56.058883589Z" level=error msg="PullImage \"evil.example/x:1\" failed" error="failed to pull and unpack image \"evil.example/x:1\": unexpected status: @1""#,
    r#"E1123 10:00:00.111111     811 kuberuntime_image.go:55] "Failed to pull image" err="@1" image="evil.example/x:1""#,
    r#"E1123 10:00:00.111111     811 pod_workers.go:190] "Error syncing pod, skipping" err="failed to \"StartContainer\" for \"c\" with InvalidImageName: \"Failed to apply default image tag \\\"@3\\\": couldn't parse image name \\\"@3\\\": invalid reference format\"" pod="tenant/evil" podUID="~U""#,
    // A volume's server.
    r#"E1123 10:00:00.111111     811 nestedpendingoperations.go:348] Operation for "{volumeName:kubernetes.io/nfs/v podName:~U nodeName:}" failed. No retries permitted until 2026-11-23 10:00:01 +0000 UTC. Error: MountVolume.SetUp failed for volume "v" (UniqueName: "kubernetes.io/nfs/~U-v") pod "evil" (UID: "~U") : mount failed: exit status 32 Output: @0"#,
    // What the kubelet tells the API server, in its own log.
    r#"I1123 10:00:00.111111     811 event.go:294] "Event occurred" object="tenant/evil" fieldPath="spec.containers{c}" kind="Pod" apiVersion="v1" type="Warning" reason="Failed" message="Error: failed to start container: exec: \"@2\": not found""#,
    r#"I1123 10:00:00.111111     811 server.go:460] Event(v1.ObjectReference{Kind:"Pod", Namespace:"tenant", Name:"evil", UID:"~U", APIVersion:"v1", ResourceVersion:"1", FieldPath:"spec.containers{c}"}): type: 'Warning' reason: 'Unhealthy' Readiness probe failed: @0"#,
];

/// The same of containers that run.
const RUNNING: &[&str] = &[
    // What a probe printed.
    r#"I1123 10:00:00.111111     811 prober.go:107] "Probe failed" probeType="Readiness" pod="tenant/evil" podUID="~U" containerName="c" probeResult="failure" output="@1""#,
    "I1123 10:00:00.111111     811 prober.go:107] \"Probe failed\" probeType=\"Readiness\" pod=\"tenant/evil\" podUID=\"~U\" containerName=\"c\" probeResult=\"failure\" output=<\n\t@0\n >",
    "Nov 23 10:00:00 node1 kubelet[811]: I1123 10:00:00.111111     811 prober.go:107] \"Probe failed\" probeType=\"Readiness\" pod=\"tenant/evil\" podUID=\"~U\" containerName=\"c\" probeResult=\"failure\" output=<\nNov 23 10:00:00 node1 kubelet[811]:         x\nNov 23 10:00:00 node1 kubelet[811]:         @0\nNov 23 10:00:00 node1 kubelet[811]:  >",
    r#"E1123 10:00:00.111111     811 prober.go:104] "Probe errored" err="@1" probeType="Liveness" pod="tenant/evil" podUID="~U" containerName="c""#,
    r#"W1123 10:00:00.111111     811 prober.go:117] Readiness probe for "evil_tenant(~U):c" failed (failure): @0"#,
    // A hook.
    r#"E1123 10:00:00.111111     811 handlers.go:78] "Exec lifecycle hook for Container in Pod failed" err="command 'x' exited with 1: @1" execCommand=["@1"] containerName="c" pod="tenant/evil" message="@1""#,
    r#"E1123 10:00:00.111111     811 remote_runtime.go:496] "ExecSync cmd from runtime service failed" err="rpc error: code = Unknown desc = failed to exec in container: @1" containerID="%" cmd=["@1"]"#,
    // What somebody else writes down of whoever asks.
    r#"Nov 23 10:00:00 node1 sshd[12]: Invalid user @0 from 10.0.0.1"#,
    r#"Nov 23 10:00:00 node1 app[12]: @0"#,
];

/// What a plugin says of a pod's annotation, behind words that name the
/// sandbox or the pod.
const PLUGINS: &[&str] = &[
    r#"E1123 10:00:00.111111     811 kuberuntime_sandbox.go:72] "Failed to create sandbox for pod" err="rpc error: code = Unknown desc = failed to setup network for sandbox \"%\": plugin type=\"multus\" name=\"m\" failed (add): Multus: [tenant/evil/~U]: error parsing annotation: @1" pod="tenant/evil""#,
    r#"time="2026-11-23T22:56:56.058883589Z" level=error msg="RunPodSandbox for &PodSandboxMetadata{Name:evil,Uid:~U,Namespace:tenant,Attempt:0,} failed, error" error="failed to setup network for sandbox \"%\": plugin type=\"multus\" name=\"m\" failed (add): error parsing annotation: @1""#,
    r#"E1123 10:00:00.111111     811 remote_runtime.go:193] "RunPodSandbox from runtime service failed" err="rpc error: code = Unknown desc = failed to setup network for sandbox \"%\": plugin type=\"multus\" name=\"m\" failed (add): error parsing annotation: @1""#,
];

/// A text in a program's quotes, so many times.
fn quoted(text: &str, times: usize) -> String {
    (0..times).fold(text.to_owned(), |text, _| {
        text.replace('\\', "\\\\").replace('"', "\\\"")
    })
}

fn line(place: &str, words: &str) -> String {
    let line = place.replace('%', OWN).replace("~U", UID);
    let marks = ["@0", "@1", "@2", "@3"].into_iter().enumerate();
    marks.fold(line, |line, (depth, mark)| {
        line.replace(mark, &quoted(words, depth))
    })
}

/// klog's head of a value of several lines.
const VALUE: &str = r#"I1123 10:00:00.111111     811 prober.go:107] "Probe failed" probeType="Readiness" pod="tenant/evil" podUID="x" containerName="c" probeResult="failure" output=<"#;
const KUBELET: &str = "Nov 23 10:00:00 node1 kubelet[811]: ";
const OTHER: &str =
    "Nov 23 10:00:00 node1 containerd[77]: time=\"2026-11-23T10:00:00Z\" level=info msg=x";

/// Each line behind something.
fn each(before: &str, lines: &[&str]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| format!("{before}{line}")).collect();
    lines.join("\n")
}

/// Entries as `journalctl -o json`, `-o export` and `-o verbose` print them.
fn entries(ident: &str, lines: &[&str]) -> [String; 3] {
    let own = match ident {
        "kernel" => ("_TRANSPORT", "kernel"),
        _ => ("_UID", "0"),
    };
    let fields = |line| {
        [
            ("__CURSOR", "s=1"),
            ("__REALTIME_TIMESTAMP", "1795428000000000"),
            ("_HOSTNAME", "node1"),
            ("SYSLOG_IDENTIFIER", ident),
            ("_PID", "811"),
            ("MESSAGE", line),
            own,
        ]
    };
    let json = lines.iter().map(|line| {
        let members: std::collections::BTreeMap<_, _> = fields(*line).into_iter().collect();
        serde_json::to_string(&members).unwrap()
    });
    let field = |(name, value): (&str, &str)| match value.contains('\n') {
        false => format!("{name}={value}\n"),
        true => {
            // A length whose bytes are text.
            let value = value.to_owned() + &"y".repeat(value.len() & 0x80);
            let length = (value.len() as u64).to_le_bytes();
            format!("{name}\n{}{value}\n", std::str::from_utf8(&length).unwrap())
        }
    };
    let export = lines
        .iter()
        .map(|line| fields(*line).map(field).concat() + "\n");
    let verbose = lines.iter().map(|line| {
        let field = |(name, value): (&str, &str)| {
            let below = format!("\n{}", " ".repeat(name.len() + 5));
            format!("    {name}={}\n", value.replace('\n', &below))
        };
        let head = "Mon 2026-11-23 10:00:00.000001 UTC [s=1;i=1;b=2;m=3;t=4;x=5]\n";
        let [_, _, fields @ ..] = fields(*line);
        head.to_owned() + &fields.map(field).concat()
    });
    let json = json.collect::<Vec<_>>().join("\n");
    [json, export.collect(), verbose.collect()]
}

fn words() -> Words {
    let needles: Vec<&str> = meaning::needles()
        .chain(gate::NEEDLES.iter().copied())
        .collect();
    Words::new(&needles)
}

fn told(words: &Words, log: &str) -> Vec<Event> {
    let raw = Box::new(Cursor::new(format!("{log}\n").into_bytes()));
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_000_000);
    let input = Input::new("x".into(), Some(modified), raw).unwrap();
    let mut reader = LogReader::new(input, words.clone(), LogOptions::default());
    let mut meaning = Meaning::default();
    let mut events = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        events.extend(meaning.events(&entry));
        events.extend(failures::events(&entry, None));
    }
    events.extend(meaning.end());
    events
}

fn sentences() -> Vec<String> {
    let lines = LINES.lines().filter(|line| !line.starts_with("=="));
    let attacks = [
        format!(
            "failed to setup network for sandbox {VICTIM}: failed to set up pod \"web-0_victim\" network: failed to allocate for range 0: no IP addresses available in range set: 10.244.7.2-10.244.7.6"
        ),
        format!(
            "failed to setup network for sandbox \"{VICTIM}\": plugin type=\"bridge\" failed (add): no IP addresses available in range set: 10.244.7.2-10.244.7.6"
        ),
        format!(
            "E1123 10:00:00.345678     811 kuberuntime_sandbox.go:72] \"Failed to create sandbox for pod\" err=\"failed to setup network for sandbox {VICTIM}: plugin type=\\\"bridge\\\" failed (add): no IP addresses available in range set\" pod=\"victim/web-0\""
        ),
        format!(
            "Error deleting victim_web-0/{VICTIM} from network bridge/podnet: failed to find plugin"
        ),
        format!(
            "Error adding victim_web-0/{VICTIM} to network bridge/podnet: failed to find plugin"
        ),
        String::from(
            "NetworkPlugin cni failed to teardown pod \"web-0_victim\" network: failed to find plugin",
        ),
        String::from(
            "error adding pod victim_web-0 to CNI network \"x\": no IP addresses available",
        ),
        String::from(
            "Event(v1.ObjectReference{Kind:\"Pod\", Namespace:\"victim\", Name:\"web-0\"}): type: 'Warning' reason: 'FailedCreatePodSandBox' Failed create pod sandbox: network",
        ),
        format!(
            "Got pod network &{{Name:web-0 Namespace:victim ID:{VICTIM} UID:22222222-2222-4222-8222-222222222222 NetNS:/x Networks:[]}}"
        ),
        String::from(
            "for pod \"web-0\" (UID: 22222222-2222-4222-8222-222222222222) /var/lib/kubelet/pods/22222222-2222-4222-8222-222222222222/volumes: failed to create pod sandbox",
        ),
        format!(
            "start failed in pod web-0_victim(22222222-2222-4222-8222-222222222222): failed to create sandbox \"{VICTIM}\""
        ),
        format!("namespace for the terminated container \"{VICTIM}\""),
        String::from("INFO: task containerd:1 blocked for more than 122 seconds."),
        String::from(
            "Nov 23 10:00:01 node1 kernel: [ 1234.567890] INFO: task containerd:1 blocked for more than 122 seconds.",
        ),
        String::from(
            "[ 1234.567890] unregister_netdevice: waiting for eth0 to become free. Usage count = 1",
        ),
        format!(
            "time=\"2026-11-23T10:00:00Z\" level=error msg=\"RunPodSandbox for &PodSandboxMetadata{{Name:web-0,Uid:22222222-2222-4222-8222-222222222222,Namespace:victim,Attempt:0,}} failed, error\" error=\"failed to setup network for sandbox \\\"{VICTIM}\\\": plugin type=\\\"bridge\\\" failed (add): no IP addresses available\""
        ),
        String::from(" > pod=\"victim/web-0\" err=\"failed to create pod sandbox\""),
    ];
    let all = lines.map(str::to_owned).chain(diagnosis::phrases());
    let all: Vec<String> = all.collect();
    let joined = all.chunks(25).map(|some| some.join("; "));
    joined.chain(attacks).collect()
}

fn is_own(pod: &PodRef) -> bool {
    let fits = |part: &Option<String>, own: &str| part.as_deref().is_none_or(|part| part == own);
    fits(&pod.namespace, "tenant") && fits(&pod.name, "evil") && fits(&pod.uid, UID)
}

fn check(line: &str, events: &[Event], network_may_fail: bool) {
    for event in events {
        match &event.what {
            What::SandboxFailed { failure } => {
                assert!(is_own(&failure.pod), "{line}\n{failure:#?}");
                let sandbox = failure.sandbox_id.as_deref();
                assert!(sandbox.is_none_or(|id| id == OWN), "{line}\n{failure:#?}");
                let cause = Cause::of(failure);
                let network = cause.is_of_the_network() && !network_may_fail;
                assert!(!network, "{line}\n{cause:?}");
            }
            What::CniCall { call, .. } | What::CniStarted { call } if network_may_fail => {
                assert!(call.pod.as_ref().is_none_or(is_own), "{line}\n{call:#?}");
                assert_eq!(call.container_id, OWN, "{line}");
            }
            other => panic!("{line}\n{other:#?}"),
        }
    }
}

#[test]
fn a_tenants_words_name_no_other_pod_and_say_nothing_of_a_sandboxs_network() {
    let needles = words();
    for words in sentences() {
        for place in PLACES {
            let line = line(place, &words);
            check(&line, &told(&needles, &line), false);
        }
    }
}

#[test]
fn what_a_running_container_or_another_program_prints_is_nothing() {
    let needles = words();
    for words in sentences() {
        for place in RUNNING {
            let line = line(place, &words);
            let told = told(&needles, &line);
            assert!(told.is_empty(), "{line}\n{told:#?}");
        }
    }
}

#[test]
fn what_stands_behind_klogs_tab_is_no_record_however_the_log_is_printed() {
    let needles = words();
    for words in sentences() {
        let said = format!("\t{words}");
        let lines = [VALUE, "\tx", "\t", &said, " >"];
        let rest = [
            "\tx",
            &said,
            " >",
            "I1123 10:00:01.111111     811 x.go:1] x",
        ];
        let apart = |tab: &str| {
            let said = lines.map(|line| line.replacen('\t', tab, 1));
            let said: Vec<&str> = said.iter().map(String::as_str).collect();
            let line = |line: &&str| format!("{KUBELET}{line}\n{OTHER}");
            [
                each(KUBELET, &said),
                said.iter().map(line).collect::<Vec<_>>().join("\n"),
                // Its beginning is missing.
                each(KUBELET, said.get(1..).unwrap()),
            ]
        };
        let long = ["\tx"; 20].join(&"x".repeat(16 << 10));
        let mut logs = vec![
            each("", &lines),
            each("", &rest),
            each("", &[VALUE, &long, &said, " >"]),
            // `journalctl -o cat`
            each(
                "",
                &[
                    VALUE,
                    "[    1.000000] x",
                    "\tx",
                    "[    1.000001] x",
                    &said,
                    " >",
                ],
            ),
            each("2026-11-23T10:00:00.000000001Z stderr F ", &lines),
            each("<30>1 2026-11-23T10:00:00Z node1 kubelet 811 - - ", &lines),
        ];
        logs.extend(["\t", "#011", "        "].iter().flat_map(|tab| apart(tab)));
        logs.extend(entries("kubelet", &lines));
        logs.extend(entries("kubelet", &rest));
        for log in logs {
            let told = told(&needles, &log);
            assert!(told.is_empty(), "{log}\n{told:#?}");
        }
    }
}

#[test]
fn what_a_user_has_the_kernel_quote_is_no_word_of_the_kernel() {
    let needles = words();
    for words in sentences() {
        let one = format!("tmpfs: Unknown parameter 'x {words}'");
        let some = format!("tmpfs: Unknown parameter 'x\n\n{words}\ny'");
        let below = |head: &str| {
            let indent = format!("\n{}", " ".repeat(head.len()));
            format!("{head}{}", some.replace('\n', &indent))
        };
        let mut logs = vec![
            format!("Nov 23 10:00:00 node1 kernel: [ 1234.567890] {one}"),
            format!("[ 1234.567890] {one}"),
            format!("kernel: {one}"),
            below("Nov 23 10:00:00 node1 kernel: "),
            below("[Mon Nov 23 10:00:00 2026] "),
            below("[ 1234.567890] "),
        ];
        logs.extend(entries("kernel", &[&one, &some]));
        // An older dmesg does not indent: without a time, a line goes on.
        if words.starts_with("INFO: ") || words.starts_with("failed ") {
            logs.push(format!(
                "[ 1234.567890] tmpfs: Unknown parameter 'x\n{words}\ny'"
            ));
        }
        for log in logs {
            let told = told(&needles, &log);
            assert!(told.is_empty(), "{log}\n{told:#?}");
        }
    }
}

#[test]
fn nobody_but_the_kernel_speaks_as_it() {
    let needles = words();
    for ident in [
        "dockerd",
        "kubelet",
        "containerd",
        "kube-proxy",
        "0123456789ab",
    ] {
        for words in [
            "INFO: task containerd:1 blocked for more than 122 seconds.",
            "unregister_netdevice: waiting for eth0 to become free. Usage count = 1",
            "Out of memory: Killed process 7 (x) total-vm:1kB",
        ] {
            let log = format!("Nov 23 10:00:00 node1 {ident}[12]: {words}");
            assert!(told(&needles, &log).is_empty(), "{log}");
        }
    }
}

#[test]
fn what_a_plugin_quotes_names_no_other_pod() {
    let needles = words();
    for words in sentences() {
        for place in PLUGINS {
            let line = line(place, &words);
            check(&line, &told(&needles, &line), true);
        }
    }
}

#[test]
fn a_commands_words_do_not_change_why_it_does_not_start() {
    let needles = words();
    let cause = |line: &str| {
        let events = told(&needles, line);
        events.into_iter().find_map(|event| match event.what {
            What::SandboxFailed { failure } => Some(Cause::of(&failure)),
            _ => None,
        })
    };
    for place in PLACES.iter().filter(|place| place.contains("exec: ")) {
        let harmless = cause(&line(place, "serve"));
        for words in sentences() {
            let line = line(place, &words);
            assert_eq!(cause(&line), harmless, "{line}");
        }
    }
}
