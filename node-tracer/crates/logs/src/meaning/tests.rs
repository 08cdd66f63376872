mod kernel;
mod plugins;
mod runtimes;

use std::borrow::Cow;

use super::*;
use event::{CniCall, What, testing::s};

const OLD: &str = "5a0f3c2e9b71d4860c1f2e3d4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a6978";
const NEW: &str = "c0de3c2e9b71d4860c1f2e3d4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a6978";
const UID: &str = "0d3c9a52-1111-4a4a-8f8f-aaaaaaaaaaaa";

/// A log being told.
#[derive(Default)]
struct Log {
    meaning: Meaning,
    events: Vec<Event>,
}

impl Log {
    fn say(&mut self, seconds: i64, ident: &str, message: &str) -> &mut Self {
        self.with(seconds, ident, message, &[])
    }

    fn with(
        &mut self,
        seconds: i64,
        ident: &str,
        message: &str,
        fields: &[(&str, &str)],
    ) -> &mut Self {
        let entry = Entry {
            time: Some(s(seconds)),
            host: Some("n1"),
            ident: Some(ident).filter(|ident| !ident.is_empty()),
            pid: None,
            level: None,
            own_level: None,
            message: Cow::Borrowed(message),
            fields: fields
                .iter()
                .map(|(key, value)| (Cow::Borrowed(*key), Cow::Borrowed(*value)))
                .collect(),
            line: 1,
        };
        self.events.extend(self.meaning.events(&entry));
        self
    }

    /// All calls that ended, in words.
    fn calls(&mut self) -> Vec<String> {
        self.events.extend(self.meaning.end());
        let calls = self.events.iter().filter_map(|event| match &event.what {
            What::CniCall {
                call,
                exit_code,
                error,
                result,
                ..
            } => {
                assert!(call.log && call.trusted, "{call:?}");
                let ips = result.iter().flat_map(|result| &result.ips);
                let ips: Vec<String> = ips.map(ToString::to_string).collect();
                let how = match (exit_code, error) {
                    (Some(0), None) => format!("ok {}", ips.join(" ")),
                    (None, Some(error)) => format!("failed: {}", error.msg),
                    (None, None) => String::from("?"),
                    other => format!("{other:?}"),
                };
                Some(format!("{} {}", named(call), how.trim()))
            }
            _ => None,
        });
        calls.collect()
    }

    fn kinds(&mut self) -> Vec<String> {
        self.events.extend(self.meaning.end());
        let names = self.events.iter().map(|event| {
            let json = serde_json::to_value(event).unwrap();
            json["event"].as_str().unwrap().to_owned()
        });
        names.collect()
    }
}

fn named(call: &CniCall) -> String {
    let pod = call.pod.as_ref().map(PodRef::label);
    let which = match call.container_id.as_str() {
        OLD => "old",
        NEW => "new",
        other => other,
    };
    let pod = pod.unwrap_or_default();
    format!("{} {} {which} {pod}", call.command, call.plugin)
}

fn environment(command: &str, id: &str, netns: &str) -> String {
    format!(
        "Configured environment: [LANG=C K8S_API_TOKEN=eyJhbGciOiJub25lIn0.a-secret \
         CNI_COMMAND={command} CNI_CONTAINERID={id} CNI_NETNS={netns} \
         CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=db-0; CNI_IFNAME=eth0 \
         ETCD_KEY=LS0tLS1CRUdJTiBSU0EgUFJJVkFURQ]"
    )
}

#[test]
fn what_others_say_in_the_same_words_is_nothing() {
    let mut log = Log::default();
    for text in [
        "INFO: task is done",
        "StopPodSandbox for \"x\"",
        "RunPodSandbox for somebody",
        "Error deleting pod \"x\": no",
        "Configured environment: [CNI_COMMAND=VERSION]",
        "SyncLoop",
        "SyncLoop (housekeeping, skipped): sources aren't ready yet.",
        "Delete Key: /calico/ipam/v2/handle/shop.db-0",
        "Killed process in the night",
        "Got pod network &{",
        "unregister_netdevice: waiting for a while",
    ] {
        for ident in ["kubelet", "containerd", "crio", "kernel", ""] {
            log.say(1, ident, text);
        }
    }
    assert_eq!(log.kinds(), Vec::<String>::new());
}

#[test]
fn calls_that_never_end_do_not_pile_up() {
    let mut log = Log::default();
    for number in 0..5_000_u32 {
        let id = format!("{number:064x}");
        log.say(1, "kubelet", &environment("ADD", &id, "/proc/1/ns/net"));
    }
    let ended = log.events.iter();
    let ended = ended.filter(|event| matches!(event.what, What::CniCall { .. }));
    assert!(ended.count() >= 4_000);
}

#[test]
fn what_stands_where_a_name_should_is_no_way_out_for_a_secret() {
    let text = environment("ADD", NEW, "").replace(
        "CNI_IFNAME=eth0",
        "CNI_IFNAME=S_API_TOKEN=eyJhbGciOiJub25lIn0.a-secret",
    );
    let mut log = Log::default();
    log.say(1, "kubelet", &text);
    log.calls();
    let told = serde_json::to_string(&log.events).unwrap();
    assert!(
        told.contains("[redacted]") && !told.contains("eyJ"),
        "{told}"
    );
}

/// Where each of them writes what it takes for a name.
#[test]
fn no_kind_of_event_is_a_way_out_for_a_secret() {
    let token = "eyJhbGciOiJub25lIn0.eyJzZWNyZXQiOiJ0cnVlIn0.";
    let lines = [
        (
            "kubelet",
            format!("Delete Key: /calico/v1/host/a/workload/k8s/shop.db-0/endpoint/TOKEN={token}]"),
        ),
        (
            "kubelet",
            format!(
                "failed to setup network for sandbox \"{NEW}\": plugin type=\"A_TOKEN={token}]\" \
                 failed (add): no"
            ),
        ),
        (
            "crio",
            format!(
                "failed to create pod network sandbox k8s_db-0_shop_{token}_2({NEW}): error adding \
                 pod shop_db-0 to CNI network \"net\": plugin type=\"{token}\" failed (add): no"
            ),
        ),
        (
            "crio",
            format!("Ran pod sandbox {NEW} with infra container: shop/db-0/POD"),
        ),
        (
            "kernel",
            format!("INFO: task {token}:7 blocked for more than 120 seconds."),
        ),
        ("kernel", String::from("Call Trace:")),
        ("kernel", format!(" {token}+0x12/0x34")),
        (
            "kernel",
            format!("unregister_netdevice: waiting for {token} to become free. Usage count = 1"),
        ),
        (
            "kernel",
            format!(
                "oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/{token},task_memcg=/a,task={token},pid=7"
            ),
        ),
    ];
    let mut log = Log::default();
    for (at, (ident, text)) in (1..).step_by(10).zip(&lines) {
        log.say(at, ident, text);
    }
    log.calls();
    let mut kinds = log.kinds();
    kinds.sort_unstable();
    kinds.dedup();
    let told = serde_json::to_string(&log.events).unwrap();
    assert!(!told.contains("eyJ"), "{told}");
    let hidden = told.matches("[redacted]").count();
    assert!(kinds.len() >= 7 && hidden >= 9, "{kinds:?}: {told}");
}
