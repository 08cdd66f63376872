//! Questions, and whom they are put to.

use std::io::{self, Write as _};
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use event::wording::escape::Printable;
use serde_json::Value;

use crate::answer::{ClusterAnswer, Holder, Reader, Room};
use crate::kubectl::{Kubectl, progress, side_by_side};
use crate::tracers::{DaemonSet, List, Pod, Speakers, Tracer};

/// Nodes that are asked at once: each is a stream through the API server.
const AT_A_TIME: usize = 50;

/// What each node said; or why it did not.
pub(crate) type Answers<T> = Vec<(String, Result<T, String>)>;

/// The tracers of a cluster.
pub(crate) struct Tracers<'a> {
    pub(crate) kubectl: &'a Kubectl,
    pub(crate) namespace: &'a str,
    pub(crate) selector: &'a str,
    pub(crate) timeout: Duration,
}

/// A node's own text that is printed.
const MAX_PAGE: usize = 1 << 20;
/// Pods that are named as not asked.
const MAX_NAMED: usize = 10;

impl Tracers<'_> {
    /// Who has an address: the API's word, and each node's.
    pub(crate) fn who(&self, subject: &str) -> anyhow::Result<ClusterAnswer> {
        let holders = self.holders(subject)?;
        // What is on the nodes is found by the pod's address: others may have it.
        let mut addresses = holders.iter().flat_map(|holder| &holder.addresses);
        let asked = match subject.parse::<IpAddr>() {
            Ok(address) => address.to_string(),
            Err(_) => addresses.next().cloned().unwrap_or(subject.to_owned()),
        };
        let question = ["explain", "-o", "json", "--", &asked];
        let mut answer = self.ask(&self.speakers()?, &[], &question, is_about)?;
        answer.subject = Some(asked);
        answer.holders = Some(holders);
        Ok(answer)
    }

    pub(crate) fn ghosts(&self) -> anyhow::Result<ClusterAnswer> {
        self.ask(&self.speakers()?, &[], &["scan", "-o", "json"], |_| true)
    }

    /// What these nodes know; without any, all that know something.
    /// `in_words` has the named nodes' own text as well.
    pub(crate) fn explain(
        &self,
        subject: &str,
        nodes: &[String],
        in_words: bool,
    ) -> anyhow::Result<ClusterAnswer> {
        let speakers = self.speakers()?;
        let question = ["explain", "-o", "json", "--", subject];
        let keep = if nodes.is_empty() {
            is_about
        } else {
            |_: &Value| true
        };
        let mut answer = self.ask(&speakers, nodes, &question, keep)?;
        if in_words {
            let question = ["explain", "--", subject];
            for node in nodes.iter().filter(|it| !answer.unknown.contains_key(*it)) {
                let mut page = Vec::new();
                let take = |piece: &[u8]| {
                    page.extend_from_slice(piece);
                    page.len() <= MAX_PAGE
                };
                let asked = speakers.of.get(node).and_then(|it| it.as_ref().ok());
                let asked = asked.map(|tracer| self.ask_one(tracer, &question, take));
                if asked.is_some_and(|it| it.is_ok()) {
                    let page = String::from_utf8_lossy(&page).into_owned();
                    answer.pages.push((node.clone(), page));
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
                self.kubectl.get::<Value>(&args)?
            }
            None if subject.parse::<IpAddr>().is_ok() => {
                let field = format!("status.podIP={subject}");
                let args = ["pods", "-A", "--field-selector", &field];
                self.kubectl.get::<Value>(&args)?
            }
            // A MAC address is in no object of the API.
            None if subject.contains(':') => return Ok(Vec::new()),
            None => {
                let field = format!("metadata.name={subject}");
                let args = ["pods", "-A", "--field-selector", &field];
                self.kubectl.get::<Value>(&args)?
            }
        };
        let holders = items(&pods).filter_map(Holder::of);
        Ok(holders.filter(|holder| !holder.has_ended()).collect())
    }

    /// Puts a question to the tracers of these nodes, or of all.
    fn ask(
        &self,
        speakers: &Speakers,
        nodes: &[String],
        question: &[&str],
        keep: fn(&Value) -> bool,
    ) -> anyhow::Result<ClusterAnswer> {
        let room = Room::default();
        let ask = |node: &str, tracer: &Tracer| {
            let mut reader = Reader::new(node, &room, keep);
            let why = self.ask_one(tracer, question, |piece| reader.take(piece));
            Ok((reader.end(), why))
        };
        let mut answer = ClusterAnswer::default();
        for (node, answered) in self.each(speakers, nodes, ask)? {
            let why = match answered {
                Ok((mut reply, why)) => {
                    reply.is_whole &= why.is_ok();
                    let is_whole = reply.is_whole;
                    answer.take(&node, reply);
                    match why {
                        Ok(_) if is_whole => continue,
                        Ok(why) | Err(why) => why,
                    }
                }
                Err(why) => why,
            };
            answer.unknown.insert(node, why);
        }
        answer.sort();
        Ok(answer)
    }

    /// Asks the tracers of these nodes, or of all, many at a time.
    pub(crate) fn each<T: Send>(
        &self,
        speakers: &Speakers,
        nodes: &[String],
        ask: impl Fn(&str, &Tracer) -> Result<T, String> + Sync,
    ) -> anyhow::Result<Answers<T>> {
        let nodes = match nodes {
            [] => self.nodes(speakers).context("list the nodes")?,
            nodes => nodes.to_vec(),
        };
        if nodes.is_empty() {
            bail!("there are no nodes");
        }
        let all = nodes.len();
        let ask = |node: &String| match speakers.of.get(node) {
            None => Err(format!("no tracer runs there ({})", self.selector)),
            Some(Err(why)) => Err(why.clone()),
            Some(Ok(tracer)) => ask(node, tracer),
        };
        let show = |done| progress(&format!("{done} of {all} nodes"));
        let answers = side_by_side(&nodes, AT_A_TIME, ask, show);
        progress("");
        Ok(nodes.into_iter().zip(answers).collect())
    }

    /// Has one's words as they come. Returns why these may be not all, should they
    /// turn out not to be; or why they are not.
    pub(crate) fn ask_one(
        &self,
        tracer: &Tracer,
        question: &[&str],
        take: impl FnMut(&[u8]) -> bool,
    ) -> Result<String, String> {
        let to = ["exec", "-n", &tracer.namespace, &tracer.pod];
        let container = ["-c", &tracer.container, "--", "node-tracer"];
        let args = [&to, &container, question].concat();
        match self.kubectl.run(&args, self.timeout, take) {
            Ok(ended) if ended.is_cut => Err("it says more than is kept".into()),
            Ok(ended) => Ok(ended.why()),
            Err(error) => Err(format!("{error:#}")),
        }
    }

    /// Who speaks for the nodes. Who does not, though it has the labels, is named on
    /// standard error.
    pub(crate) fn speakers(&self) -> anyhow::Result<Speakers> {
        let (namespace, selector) = (self.namespace, self.selector);
        let args = ["daemonsets.apps", "-n", namespace, "-l", selector];
        let sets: List<DaemonSet> = self.kubectl.get(&args).context("find the tracers")?;
        if sets.items.is_empty() {
            bail!("no DaemonSet in namespace {namespace} has {selector}: see -n and -l");
        }
        let pods = |place: &[&str]| -> anyhow::Result<List<Pod>> {
            let args = [&["pods"][..], place, &["-l", selector]].concat();
            self.kubectl.get(&args).context("find the tracers' pods")
        };
        // In all namespaces, to name those that pretend; not everybody may see them.
        let (pods, rest) = match pods(&["-A"]) {
            Ok(pods) => (pods, None),
            Err(error) => (pods(&["-n", namespace])?, Some(error)),
        };
        let speakers = Speakers::among(namespace, &sets.items, &pods.items);
        for one in speakers.not_asked.iter().take(MAX_NAMED) {
            say(&format!("not asked: {one}"));
        }
        let more = speakers.not_asked.len().saturating_sub(MAX_NAMED);
        if more > 0 {
            say(&format!("not asked: {more} more pods with {selector}"));
        }
        if let Some(error) = rest {
            say(&format!(
                "pods of other namespaces are not known: {error:#}"
            ));
        }
        Ok(speakers)
    }

    /// All nodes of the cluster: also those that have no tracer.
    fn nodes(&self, speakers: &Speakers) -> anyhow::Result<Vec<String>> {
        // As a table: whole nodes are 20 kB each.
        let table = self.kubectl.table(&["nodes", "--no-headers"])?;
        let named = table.lines().filter_map(|line| line.split(' ').next());
        let mut nodes: Vec<String> = named.map(str::to_owned).collect();
        nodes.extend(speakers.of.keys().cloned());
        nodes.sort_unstable();
        nodes.dedup();
        Ok(nodes)
    }
}

/// A line on standard error.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{}", Printable(text));
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
