//! What the API and the nodes answered, in one.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};

/// An answer to one question.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// What was asked for, if anything.
    pub(crate) subject: Option<String>,
    /// Who has it as the API says, if that was asked.
    pub(crate) holders: Option<Vec<Holder>>,
    /// What nodes know of it: `explanation` records.
    pub(crate) explanations: Vec<Value>,
    /// What nodes say in their own words.
    pub(crate) pages: Vec<(String, String)>,
    /// Open findings, worst first: `finding` records.
    pub(crate) findings: Vec<Value>,
    /// Nodes that have answered.
    pub(crate) answered: usize,
    /// What is not known, by node.
    pub(crate) unknown: BTreeMap<String, String>,
}

/// A pod that has an address in the API.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) node: String,
    pub(crate) phase: String,
    pub(crate) addresses: Vec<String>,
}

pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

impl Holder {
    /// Of a pod that has addresses of its own: none of the host network has.
    pub(crate) fn of(pod: &Value) -> Option<Self> {
        if pod.pointer("/spec/hostNetwork") == Some(&Value::Bool(true)) {
            return None;
        }
        let ips = pod.pointer("/status/podIPs").and_then(Value::as_array);
        let of_list = |ip: &Value| Some(ip.get("ip")?.as_str()?.to_owned());
        let mut addresses: Vec<String> = ips.into_iter().flatten().filter_map(of_list).collect();
        let first = text(pod, "/status/podIP");
        if !first.is_empty() && !addresses.iter().any(|it| it == first) {
            addresses.insert(0, first.to_owned());
        }
        Some(Self {
            namespace: text(pod, "/metadata/namespace").to_owned(),
            name: text(pod, "/metadata/name").to_owned(),
            uid: text(pod, "/metadata/uid").to_owned(),
            node: text(pod, "/spec/nodeName").to_owned(),
            phase: text(pod, "/status/phase").to_owned(),
            addresses,
        })
    }

    /// A pod that has ended keeps its address in the API, and has it no more.
    pub(crate) fn has_ended(&self) -> bool {
        ["Succeeded", "Failed"].contains(&self.phase.as_str())
    }

    fn json(&self) -> Value {
        json!({
            "namespace": self.namespace, "name": self.name, "uid": self.uid,
            "node": self.node, "phase": self.phase, "addresses": self.addresses,
        })
    }
}

fn worth(finding: &Value) -> u8 {
    match text(finding, "/severity") {
        "critical" => 0,
        "warning" => 1,
        _ => 2,
    }
}

impl Answer {
    /// Takes what a node's tracer printed as JSON lines; whether that was all.
    pub(crate) fn take(&mut self, node: &str, lines: &str) -> bool {
        let mut is_whole = false;
        for line in lines.lines() {
            let Ok(mut record) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            // The node is named by who was asked, not by who answers.
            record["node"] = node.into();
            match text(&record, "/type") {
                "finding" if record["state"] != "resolved" => self.findings.push(record),
                "explanation" => {
                    is_whole = true;
                    let found = record["findings"].as_array().cloned().unwrap_or_default();
                    self.findings.extend(found.into_iter().map(|mut finding| {
                        finding["node"] = node.into();
                        finding
                    }));
                    self.explanations.push(record);
                }
                "summary" => {
                    is_whole = true;
                    self.not_checked(node, &record);
                }
                _ => {}
            }
        }
        self.answered += usize::from(is_whole);
        is_whole
    }

    /// Rules that a node could not evaluate.
    fn not_checked(&mut self, node: &str, record: &Value) {
        let rules = record["not_checked"].as_array().into_iter().flatten();
        let names: Vec<&str> = rules
            .filter_map(|rule| rule["rule"].as_str().or(rule.as_str()))
            .collect();
        if !names.is_empty() {
            let reason = format!("could not evaluate {}", names.join(", "));
            self.unknown.insert(node.to_owned(), reason);
        }
    }

    /// The worst first, then by node; a finding that two answers have is one.
    pub(crate) fn sort(&mut self) {
        let order = |finding: &Value| {
            let cause = text(finding, "/rule") != "ghost-sandbox";
            let node = text(finding, "/node").to_owned();
            (worth(finding), cause, node, text(finding, "/id").to_owned())
        };
        self.findings.sort_by_cached_key(order);
        self.findings
            .dedup_by_key(|finding| (finding["node"].clone(), finding["id"].clone()));
    }

    /// Findings, one for each incident of a node: the first, which is the worst.
    pub(crate) fn incidents(&self) -> Vec<&Value> {
        let mut seen = HashSet::new();
        let mut all = self.findings.iter().collect::<Vec<_>>();
        all.retain(|finding: &&Value| {
            let incident = match text(finding, "/incident") {
                "" => text(finding, "/id"),
                incident => incident,
            };
            seen.insert((text(finding, "/node").to_owned(), incident.to_owned()))
        });
        all
    }

    /// As node-tracer(1) has it: 1 something of severity warning or above, 3
    /// nothing, but not everything could be told.
    pub(crate) fn exit_code(&self) -> u8 {
        match self.findings.iter().any(|finding| worth(finding) < 2) {
            true => 1,
            false if self.unknown.is_empty() => 0,
            false => 3,
        }
    }

    pub(crate) fn json(&self) -> Value {
        let holders = self.holders.as_ref();
        let unknown = self.unknown.iter();
        json!({
            "schema": "node-tracer/1",
            "type": "cluster",
            "subject": self.subject,
            "holders": holders.map(|all| all.iter().map(Holder::json).collect::<Vec<_>>()),
            "explanations": self.explanations,
            "findings": self.findings,
            "nodes_answered": self.answered,
            "unknown": unknown
                .map(|(node, reason)| json!({"node": node, "reason": reason}))
                .collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMMARY: &str = r#"{"type":"summary"}"#;

    fn finding(rule: &str, severity: &str, id: &str, incident: &str) -> String {
        let state = "open";
        json!({"type": "finding", "rule": rule, "severity": severity, "id": id,
               "incident": incident, "state": state, "node": "a-lie"})
        .to_string()
    }

    #[test]
    fn incidents_of_all_nodes_are_one_each_the_worst_first() {
        let mut answer = Answer::default();
        let warning = finding("blocked-task", "warning", "1", "1");
        assert!(answer.take("n1", &format!("{warning}\n{SUMMARY}\n")));
        let duplicate = finding("duplicate-address", "critical", "2", "3");
        let ghost = finding("ghost-sandbox", "critical", "3", "3");
        assert!(answer.take("n2", &format!("{duplicate}\n{ghost}\n{SUMMARY}\n")));
        answer.sort();
        let incidents = answer.incidents();
        let named: Vec<_> = incidents
            .iter()
            .map(|it| (text(it, "/node"), text(it, "/rule")))
            .collect();
        assert_eq!(named, [("n2", "ghost-sandbox"), ("n1", "blocked-task")]);
        assert_eq!((answer.exit_code(), answer.answered), (1, 2));
    }

    #[test]
    fn what_ends_in_the_middle_is_no_answer() {
        let mut answer = Answer::default();
        assert!(!answer.take("n1", "{\"type\":\"coverage\"}\n{\"type\":\"find"));
        assert_eq!(answer.answered, 0);
    }

    #[test]
    fn a_pod_of_the_host_network_has_no_address_of_its_own() {
        let mut pod = json!({"metadata": {"namespace": "a", "name": "b", "uid": "c"},
            "spec": {"nodeName": "n2"}, "status": {"podIP": "10.0.0.1", "phase": "Running"}});
        let holder = Holder::of(&pod).unwrap();
        assert_eq!(holder.addresses, ["10.0.0.1"]);
        assert!(!holder.has_ended());
        pod["spec"]["hostNetwork"] = true.into();
        assert_eq!(Holder::of(&pod), None);
    }

    #[test]
    fn nothing_found_is_said_with_what_could_not_be_told() {
        let mut answer = Answer::default();
        assert_eq!(answer.exit_code(), 0);
        answer.unknown.insert("n2".into(), "no tracer".into());
        assert_eq!(answer.exit_code(), 3);
    }
}
