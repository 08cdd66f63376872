//! Questions, and whom they are put to.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::answer::{Answer, Holder, text};
use crate::kubectl::{Kubectl, progress, side_by_side};

/// Nodes that are asked at once: each is a stream through the API server.
const AT_A_TIME: usize = 50;

/// What each node printed, and why that may be not all; or why nothing.
pub(crate) type Answers = Vec<(String, Result<(String, String), String>)>;

/// The tracers of a cluster.
pub(crate) struct Tracers<'a> {
    pub(crate) kubectl: &'a Kubectl,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) selector: &'a str,
    pub(crate) timeout: Duration,
}

/// One tracer's pod.
struct Tracer {
    namespace: String,
    pod: String,
    is_running: bool,
}

impl Tracers<'_> {
    /// Who has an address: the API's word, and each node's.
    pub(crate) fn who(&self, subject: &str) -> anyhow::Result<Answer> {
        let holders = self.holders(subject)?;
        // What is on the nodes is found by the pod's address: others may have it.
        let mut addresses = holders.iter().flat_map(|holder| &holder.addresses);
        let asked = match subject.parse::<IpAddr>() {
            Ok(address) => address.to_string(),
            Err(_) => addresses.next().cloned().unwrap_or(subject.to_owned()),
        };
        let mut answer = self.ask(&[], &["explain", "-o", "json", "--", &asked])?;
        answer.explanations.retain(is_about);
        answer.subject = Some(asked);
        answer.holders = Some(holders);
        Ok(answer)
    }

    pub(crate) fn ghosts(&self) -> anyhow::Result<Answer> {
        self.ask(&[], &["scan", "-o", "json"])
    }

    /// What these nodes know; without any, all that know something.
    /// `in_words` has the named nodes' own text as well.
    pub(crate) fn explain(
        &self,
        subject: &str,
        nodes: &[String],
        in_words: bool,
    ) -> anyhow::Result<Answer> {
        let mut answer = self.ask(nodes, &["explain", "-o", "json", "--", subject])?;
        if nodes.is_empty() {
            answer.explanations.retain(is_about);
        } else if in_words {
            let tracers = self.tracers()?;
            let question = ["explain", "--", subject];
            for node in nodes.iter().filter(|it| !answer.unknown.contains_key(*it)) {
                let printed = tracers.get(node).map(|it| self.ask_one(it, &question));
                if let Some(Ok((text, _))) = printed {
                    answer.pages.push((node.clone(), text));
                }
            }
        }
        answer.subject = Some(subject.to_owned());
        Ok(answer)
    }

    /// Pods that have the address, or are the pod, in the API.
    fn holders(&self, subject: &str) -> anyhow::Result<Vec<Holder>> {
        let pods = match subject.split_once('/') {
            Some((namespace, name)) => {
                let field = format!("metadata.name={name}");
                let args = ["pods", "-n", namespace, "--field-selector", &field];
                self.kubectl.get(&args)?
            }
            None if subject.parse::<IpAddr>().is_ok() => {
                let field = format!("status.podIP={subject}");
                let args = ["pods", "-A", "--field-selector", &field];
                self.kubectl.get(&args)?
            }
            // A MAC address is in no object of the API.
            None if subject.contains(':') => return Ok(Vec::new()),
            None => {
                let field = format!("metadata.name={subject}");
                let args = ["pods", "-A", "--field-selector", &field];
                self.kubectl.get(&args)?
            }
        };
        let holders = items(&pods).filter_map(Holder::of);
        Ok(holders.filter(|holder| !holder.has_ended()).collect())
    }

    /// Puts a question to the tracers of these nodes, or of all.
    fn ask(&self, nodes: &[String], question: &[&str]) -> anyhow::Result<Answer> {
        let mut answer = Answer::default();
        for (node, answered) in self.each(nodes, question)? {
            let failed = match answered {
                Ok((lines, _)) if answer.take(&node, &lines) => continue,
                Ok((_, why)) => why,
                Err(why) => why,
            };
            answer.unknown.insert(node, failed);
        }
        answer.sort();
        Ok(answer)
    }

    /// What each printed, and why that may be not all; or why it printed nothing.
    pub(crate) fn each(&self, nodes: &[String], question: &[&str]) -> anyhow::Result<Answers> {
        let tracers = self.tracers().context("find the tracers' pods")?;
        let nodes = match nodes {
            [] => self.nodes(&tracers).context("list the nodes")?,
            nodes => nodes.to_vec(),
        };
        if nodes.is_empty() {
            bail!("there are no nodes");
        }
        let all = nodes.len();
        let ask = |node: &String| match tracers.get(node) {
            None => Err(format!("no tracer runs there ({})", self.selector)),
            Some(tracer) if !tracer.is_running => {
                Err(format!("its tracer {} does not run", tracer.pod))
            }
            Some(tracer) => self.ask_one(tracer, question),
        };
        let show = |done| progress(&format!("{done} of {all} nodes"));
        let answers = side_by_side(&nodes, AT_A_TIME, ask, show);
        progress("");
        Ok(nodes.into_iter().zip(answers).collect())
    }

    /// What one printed, and why that may be not all.
    fn ask_one(&self, tracer: &Tracer, question: &[&str]) -> Result<(String, String), String> {
        let to = ["exec", "-n", &tracer.namespace, &tracer.pod, "--"];
        let args = [&to, &["node-tracer"][..], question].concat();
        match self.kubectl.run(&args, self.timeout) {
            Ok(printed) => {
                let why = printed.why();
                Ok((printed.stdout, why))
            }
            Err(error) => Err(format!("{error:#}")),
        }
    }

    /// By node.
    fn tracers(&self) -> anyhow::Result<BTreeMap<String, Tracer>> {
        let place = match self.namespace {
            Some(namespace) => vec!["-n", namespace],
            None => vec!["-A"],
        };
        let args = [&["pods"][..], &place, &["-l", self.selector]].concat();
        let pods = self.kubectl.get(&args)?;
        let mut tracers = BTreeMap::new();
        for pod in items(&pods) {
            let tracer = Tracer {
                namespace: text(pod, "/metadata/namespace").to_owned(),
                pod: text(pod, "/metadata/name").to_owned(),
                is_running: text(pod, "/status/phase") == "Running",
            };
            let node = text(pod, "/spec/nodeName").to_owned();
            // While it is updated a node has two.
            match tracers.get(&node) {
                Some(Tracer {
                    is_running: true, ..
                }) => {}
                _ => drop(tracers.insert(node, tracer)),
            }
        }
        Ok(tracers)
    }

    /// All nodes of the cluster: also those that have no tracer.
    fn nodes(&self, tracers: &BTreeMap<String, Tracer>) -> anyhow::Result<Vec<String>> {
        // As a table: whole nodes are 20 kB each.
        let table = self.kubectl.table(&["nodes", "--no-headers"])?;
        let named = table.lines().filter_map(|line| line.split(' ').next());
        let mut nodes: Vec<String> = named.map(str::to_owned).collect();
        nodes.extend(tracers.keys().filter(|node| !node.is_empty()).cloned());
        nodes.sort_unstable();
        nodes.dedup();
        Ok(nodes)
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    let items = list.get("items").and_then(Value::as_array);
    items.into_iter().flatten()
}

/// Whether a node knows anything of what was asked.
fn is_about(explanation: &Value) -> bool {
    let has = |key: &str| {
        explanation[key]
            .as_array()
            .is_some_and(|all| !all.is_empty())
    };
    explanation["subject"]["found"] == true
        || ["netns", "reservations", "findings"]
            .iter()
            .any(|key| has(key))
}
