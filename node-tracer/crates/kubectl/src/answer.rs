//! What the API and the nodes answered, in one.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

/// What one node may say.
const MAX_TEXT: usize = 4 << 20;
/// What the records of one node may take in memory.
const MAX_NODE: usize = 16 << 20;
/// What each node's records may take in any case.
const OWN: usize = 64 << 10;
/// What those of all nodes may take beyond that.
const MAX_ALL: usize = 256 << 20;

/// Memory for the records of all nodes, so that a few that say very much leave
/// some for the others.
#[derive(Debug)]
pub(crate) struct Room(AtomicUsize);

impl Default for Room {
    fn default() -> Self {
        Self(AtomicUsize::new(MAX_ALL))
    }
}

impl Room {
    fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .is_ok()
    }
}

/// At most what a line of JSON takes once it is read: a number in a list is 2
/// bytes and then 32, a map of one entry 7 and then 700.
fn cost(line: &[u8]) -> usize {
    let of = |byte: &u8| match byte {
        b'{' => 700,
        b',' | b'[' => 64,
        _ => 1,
    };
    line.iter().map(of).sum()
}

/// Reads what a node's tracer prints as JSON lines, as it comes, and keeps what is
/// asked for.
pub(crate) struct Reader<'a> {
    node: &'a str,
    room: &'a Room,
    /// Of explanations.
    keep: fn(&Value) -> bool,
    line: Vec<u8>,
    read: usize,
    kept: usize,
    reply: Reply,
}

/// What is kept of one node's answer.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    findings: Vec<Value>,
    explanations: Vec<Value>,
    /// Rules that the node could not evaluate.
    not_checked: Vec<String>,
    /// It came to its end.
    pub(crate) is_whole: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(node: &'a str, room: &'a Room, keep: fn(&Value) -> bool) -> Self {
        let (line, reply) = (Vec::new(), Reply::default());
        Self {
            node,
            room,
            keep,
            line,
            read: 0,
            kept: 0,
            reply,
        }
    }

    /// Takes a piece. Returns whether there may be more.
    pub(crate) fn take(&mut self, piece: &[u8]) -> bool {
        self.read += piece.len();
        if self.read > MAX_TEXT {
            return false;
        }
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") && !self.end_line() {
                return false;
            }
        }
        true
    }

    /// What was kept, at the end.
    pub(crate) fn end(mut self) -> Reply {
        self.end_line();
        self.reply
    }

    /// Whether there was room for the line.
    fn end_line(&mut self) -> bool {
        let line = std::mem::take(&mut self.line);
        let mut cost = cost(&line);
        if self.kept + cost > MAX_NODE {
            return false;
        }
        let Ok(record) = serde_json::from_slice::<Value>(&line) else {
            return true;
        };
        if !self.reply.is_of_use(&record) {
            return true;
        }
        // Its findings are kept twice: in it, and among all.
        if text(&record, "/type") == "explanation" {
            cost *= 2;
        }
        let free = OWN.saturating_sub(self.kept);
        if !self.room.take(cost.saturating_sub(free)) {
            return false;
        }
        self.kept += cost;
        self.reply.keep(self.node, record, self.keep);
        true
    }
}

impl Reply {
    fn is_of_use(&self, record: &Value) -> bool {
        match text(record, "/type") {
            "finding" => record["state"] != "resolved",
            // There is one of them.
            "explanation" | "summary" => !self.is_whole,
            _ => false,
        }
    }

    fn keep(&mut self, node: &str, mut record: Value, is_kept: fn(&Value) -> bool) {
        // The node is named by who was asked, not by who answers.
        record["node"] = node.into();
        match text(&record, "/type") {
            "finding" => self.findings.push(record),
            "explanation" => {
                self.is_whole = true;
                let found = record["findings"].as_array().cloned().unwrap_or_default();
                let objects = found.into_iter().filter(Value::is_object);
                self.findings.extend(objects.map(|mut finding| {
                    finding["node"] = node.into();
                    finding
                }));
                if is_kept(&record) {
                    self.explanations.push(record);
                }
            }
            _ => {
                self.is_whole = true;
                let rules = record["not_checked"].as_array().into_iter().flatten();
                let names = rules.filter_map(|rule| rule.pointer("/rule").unwrap_or(rule).as_str());
                self.not_checked = names.map(str::to_owned).collect();
            }
        }
    }
}

/// What all nodes and the API server answer to one question.
#[derive(Debug, Default)]
pub(crate) struct ClusterAnswer {
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

impl ClusterAnswer {
    /// Takes what a node said.
    pub(crate) fn take(&mut self, node: &str, reply: Reply) {
        self.answered += usize::from(reply.is_whole);
        self.findings.extend(reply.findings);
        self.explanations.extend(reply.explanations);
        if !reply.not_checked.is_empty() {
            let reason = format!("could not evaluate {}", reply.not_checked.join(", "));
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

    pub(crate) fn into_json(self) -> Value {
        let holders = self.holders.as_ref();
        let unknown = self.unknown.iter();
        json!({
            "schema": "node-tracer/1",
            "type": "cluster",
            "subject": self.subject,
            "holders": holders.map(|all| all.iter().map(Holder::json).collect::<Vec<_>>()),
            "nodes_answered": self.answered,
            "unknown": unknown
                .map(|(node, reason)| json!({"node": node, "reason": reason}))
                .collect::<Vec<_>>(),
            // Moved: they can be large.
            "explanations": Value::Array(self.explanations),
            "findings": Value::Array(self.findings),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMMARY: &str = r#"{"type":"summary"}"#;

    /// What is kept of an answer, and whether there was room for all of it.
    fn reply(node: &str, text: &str, room: &Room) -> (Reply, bool) {
        let mut reader = Reader::new(node, room, |_| true);
        // As a pipe has it: in pieces that end anywhere.
        let fits = text.as_bytes().chunks(7).all(|piece| reader.take(piece));
        (reader.end(), fits)
    }

    fn take(answer: &mut ClusterAnswer, node: &str, text: &str) -> bool {
        let (reply, _) = reply(node, text, &Room::default());
        let is_whole = reply.is_whole;
        answer.take(node, reply);
        is_whole
    }

    fn finding(rule: &str, severity: &str, id: &str, incident: &str) -> String {
        let state = "open";
        json!({"type": "finding", "rule": rule, "severity": severity, "id": id,
               "incident": incident, "state": state, "node": "a-lie"})
        .to_string()
    }

    #[test]
    fn incidents_of_all_nodes_are_one_each_the_worst_first() {
        let mut answer = ClusterAnswer::default();
        let warning = finding("blocked-task", "warning", "1", "1");
        assert!(take(&mut answer, "n1", &format!("{warning}\n{SUMMARY}\n")));
        let duplicate = finding("duplicate-address", "critical", "2", "3");
        let ghost = finding("ghost-sandbox", "critical", "3", "3");
        assert!(take(
            &mut answer,
            "n2",
            &format!("{duplicate}\n{ghost}\n{SUMMARY}")
        ));
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
        let mut answer = ClusterAnswer::default();
        let text = "{\"type\":\"coverage\"}\n{\"type\":\"find";
        assert!(!take(&mut answer, "n1", text));
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
        let mut answer = ClusterAnswer::default();
        assert_eq!(answer.exit_code(), 0);
        answer.unknown.insert("n2".into(), "no tracer".into());
        assert_eq!(answer.exit_code(), 3);
    }

    #[test]
    fn a_node_that_says_very_much_takes_no_room_from_others() {
        let room = Room::default();
        let list = format!(
            "{{\"type\":\"finding\",\"x\":[{}0]}}\n",
            "0,".repeat(100_000)
        );
        let maps = format!(
            "{{\"type\":\"finding\",\"x\":[{}0]}}\n",
            "{\"\":0},".repeat(1_000)
        );
        for large in [list, maps] {
            let (reply, fits) = reply("liar", &large.repeat(90), &room);
            assert!(
                !fits && reply.findings.len() < 25,
                "{}",
                reply.findings.len()
            );
        }
        let (_, fits) = reply("liar", &"x".repeat(MAX_TEXT + 1), &room);
        assert!(!fits);
        // What is not kept takes nothing, and when nothing is left each has its own.
        let (reply_of_one, fits) = reply("n1", &"{\"type\":\"coverage\"}\n".repeat(9_000), &room);
        assert!(fits && !reply_of_one.is_whole);
        assert!(room.take(room.0.load(Ordering::Relaxed)));
        let warning = finding("blocked-task", "warning", "1", "1");
        let (reply, fits) = reply("n1", &format!("{warning}\n{SUMMARY}\n"), &room);
        assert!(fits && reply.is_whole && reply.findings.len() == 1);
    }

    #[test]
    fn an_answer_of_any_form_is_read() {
        for text in [
            "[]",
            "7",
            "{\"type\":\"explanation\",\"findings\":[7,[]]}",
            "{\"type\":7}",
        ] {
            let (reply, fits) = reply("n1", text, &Room::default());
            assert!(fits && reply.findings.is_empty(), "{text}");
        }
    }
}
