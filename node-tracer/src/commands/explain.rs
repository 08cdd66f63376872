//! `node-tracer explain X`: one look at the node, one answer.

use crate::{config::Config, nearest, outcome::Outcome, output, scan::Scan, snapshot::NodeReader};
use engine::{
    explain::{Asked, Hints, explain, parse},
    model::Model,
};
use event::{
    Netns, Task,
    explanation::Kind,
    record::{CoverageItem, Record},
};
use node::procfs::{Owner, TaskEntry};

/// Looks, and answers. The outcome is about the subject alone.
///
/// # Errors
/// The word names nothing that could be looked up, or too many things; or the
/// node cannot be looked at.
pub(crate) fn run(subject: &str, config: &Config) -> anyhow::Result<Outcome> {
    // Before the node is looked at: what is not understood costs nothing.
    let asked = parse(subject)?;
    let mut sinks = output::sinks(config, true)?;
    let mut looker = NodeReader::new(config)?.about(asked.pid());
    let mut scan = Scan::new(config, &looker, None)?.about(asked.address());
    let mut items = scan.look(&mut looker)?;
    let is_nowhere = |address| {
        let mut with = scan.looks.engine().model().netns.with_address(address);
        with.next().is_none()
    };
    if asked.address().is_some_and(is_nowhere) {
        // Nothing that was looked at leads there.
        looker.read_kernels_list();
        items = scan.look(&mut looker)?;
    }
    let hints = hints(&asked, &looker, &items);
    let now = sys::clock::now();
    let engine = scan.looks.engine();
    let mut explanation = explain(&asked, engine, &hints, now)?;
    if explanation.subject.kind == Kind::Pod && !explanation.subject.found {
        let meant = meant(&explanation.subject.value, engine.model());
        explanation.answer += &nearest::said(meant.as_deref());
    }
    let record = Record::explanation(&config.node.name, now, &explanation);
    for sink in &mut sinks {
        output::quietly(sink.write(&record).map(drop))?;
        output::quietly(sink.flush())?;
    }
    let worst = explanation
        .findings
        .iter()
        .map(|part| part.finding.severity);
    Ok(Outcome::of(worst.max(), &explanation.not_checked))
}

/// The pod of this node that was meant by a name that none has.
fn meant(name: &str, model: &Model) -> Option<String> {
    let listed = model.pods.list().into_iter().flat_map(|list| list.pods());
    let listed = listed.map(|pod| (&*pod.namespace, &*pod.name));
    let sandboxes = model.netns.live().filter_map(|entry| {
        let pod = entry.sandbox.pod.as_ref()?;
        Some((pod.namespace.as_deref()?, pod.name.as_deref()?))
    });
    let all: Vec<(&str, &str)> = listed.chain(sandboxes).collect();
    let whole: Vec<String> = all
        .iter()
        .map(|(space, pod)| format!("{space}/{pod}"))
        .collect();
    let words = all
        .iter()
        .zip(&whole)
        .map(|((_, pod), whole)| match name.contains('/') {
            true => whole.as_str(),
            false => *pod,
        });
    let word = nearest::of(name, words)?;
    let at = all.iter().zip(&whole);
    let mut at = at.filter(|((_, pod), whole)| *pod == word || *whole == word);
    at.next().map(|(_, whole)| whole.clone())
}

/// What the model does not have because nobody asked about it so far.
fn hints(asked: &Asked, looker: &NodeReader<'_>, items: &[CoverageItem]) -> Hints {
    // What else is missing shows in the model.
    let partly = |item: &&CoverageItem| {
        let signal = item.signal.as_str();
        matches!(
            signal,
            "kernel" | "cri" | "bundles" | "cgroup" | "shim" | "second look"
        ) && (item.mechanism.is_some() || signal == "second look")
    };
    let partly = items.iter().filter(partly);
    let mut hints = Hints {
        netns_of_path: asked.path().and_then(|path| looker.netns_at(path)),
        unread: partly.flat_map(|item| item.unknown.clone()).collect(),
        ..Hints::default()
    };
    if let Some(TaskEntry { task, netns, .. }) =
        asked.pid().and_then(|pid| looker.procfs().task(pid))
    {
        hints.netns_of_pid = netns.map(|inode| Netns {
            inode,
            cookie: None,
        });
        hints.task = Some(owned(task, looker));
    }
    hints
}

/// The task with its pod and container.
fn owned(task: Task, looker: &NodeReader<'_>) -> Task {
    match looker.procfs().task_owners(vec![task.tid]).pop() {
        Some(Owner::Pod(owner)) => Task {
            pod_uid: Some(owner.pod_uid),
            container_id: owner.container_id,
            by_name_alone: owner.by_name_alone,
            ..task
        },
        _ => task,
    }
}
