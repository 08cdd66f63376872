//! `explain X`: everything that is known about one address, pod, sandbox,
//! container, network namespace or process.
//!
//! The model was filled by the same look at the node that `scan` takes, and the
//! findings are the same. Here is only what leads from a word to what belongs
//! to it: [`subject`] reads the word, [`resolve`] finds what it names,
//! [`related`] follows the relations, and the other modules put what they found
//! into the record [`explanation`](event::explanation). Nothing is read and no verdict is made:
//! what was not read is named, and "nobody holds it" is said only if all was.

mod answer;
mod cni;
mod findings;
mod index;
mod netns;
mod not_read;
mod path;
mod phrases;
mod pods;
mod related;
mod resolve;
mod subject;
#[cfg(test)]
mod tests;
mod timeline;

pub use self::subject::{Asked, SubjectError, parse};
use event::explanation::{Explanation, Subject};

use self::{
    index::Index,
    related::Related,
    resolve::{Resolved, Seeds},
    timeline::Parts,
};
use crate::{
    Engine,
    detect::{View, stuck_holder, stuck_in, task_holder},
    eni,
};
use event::{
    Netns, Task, clock::Timestamp, eni::Eni, finding::Holder, wording::subjects::pod_word,
};

/// What was looked up for one question besides the look at the node.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// The namespace that [`Asked::pid`] is in.
    pub netns_of_pid: Option<Netns>,
    /// [`Asked::pid`] itself.
    pub task: Option<Task>,
    /// The namespace that is at [`Asked::path`].
    pub netns_of_path: Option<Netns>,
    /// What the look could not read.
    pub unread: Vec<String>,
}

/// All that is known of what was asked about.
///
/// # Errors
/// It can mean several things.
pub fn explain(
    asked: &Asked,
    engine: &Engine,
    hints: &Hints,
    now: Timestamp,
) -> Result<Explanation, SubjectError> {
    let model = engine.model();
    let view = View::new(model, engine.settings(), now);
    let index = Index::new(model);
    let Resolved {
        kind,
        value,
        seeds,
        also,
    } = resolve::resolve(asked, &view, &index, hints)?;
    let related = related::related(&seeds, &index);
    let look = not_read::look(engine, hints, seeds.address);

    let mut all = Explanation {
        subject: Subject {
            asked: asked.text.clone(),
            kind,
            value,
            found: seeds.found,
            complete: look.not_read.is_empty(),
            also,
        },
        answer: String::new(),
        netns: netns::parts(&view, &related),
        tasks: tasks(&view, &seeds, &related),
        path: path::parts(&view, &related),
        eni: enis(asked, engine, now),
        reservations: cni::reservations(&view, &index, &related),
        stores: cni::stores(model, &related),
        cni_calls: cni::calls(&view, &related),
        sandboxes: pods::sandboxes(&related),
        pods: pods::pods(&view, &seeds, &related),
        findings: findings::findings(engine, &view, &seeds, &related),
        timeline: Vec::new(),
        unknown: Vec::new(),
        not_checked: engine.not_checked().to_vec(),
        looked_at: look.at,
        advice: Vec::new(),
    };
    let own: Vec<u32> = related.own().map(|entry| entry.id.inode).collect();
    let unvisited = related
        .netns
        .values()
        .filter(|entry| entry.wiring.is_none());
    let unvisited: Vec<u32> = unvisited.map(|entry| entry.id.inode).collect();
    let basis = answer::Basis {
        own: &own,
        uids: &related.uids,
        taker: seeds.taker.map(|netns| netns.inode),
        unvisited: &unvisited,
        not_read: &look.not_read,
        blind: look.blind,
        now,
    };
    all.answer = answer::answer(&all, &basis);
    // What others have to do with it says nothing of the subject, but of its
    // addresses.
    let other_owners = related.other_owners(&index);
    for other_owner in &other_owners {
        all.cni_calls.extend(cni::calls(&view, other_owner));
        all.sandboxes.extend(pods::sandboxes(other_owner));
        all.pods
            .extend(pods::pods(&view, &Seeds::default(), other_owner));
    }
    if let Some(shared) = answer::shared(&all, &basis) {
        all.answer = shared;
    }
    let everybody: Vec<Related<'_>> = std::iter::once(related).chain(other_owners).collect();
    let related = &everybody[0];
    all.timeline = timeline::timeline(&Parts {
        related: &everybody,
        netns: &all.netns,
        tasks: &all.tasks,
        reservations: &all.reservations,
        calls: &all.cni_calls,
        sandboxes: &all.sandboxes,
        pods: &all.pods,
        findings: &all.findings,
    });
    all.unknown = unknown(engine, &seeds, related, &all, &look.not_read);
    all.advice = findings::advice(&all.findings);
    if all.advice.is_empty() && seeds.found {
        let partial = !all.unknown.is_empty();
        all.advice = findings::otherwise(&all.findings, &all.netns, &all.tasks, partial);
    }
    Ok(all)
}

/// The node's network device that has the hardware that was asked about.
fn enis(asked: &Asked, engine: &Engine, now: Timestamp) -> Vec<Eni> {
    let Some(hardware) = asked.hardware() else {
        return Vec::new();
    };
    let is_it = |text: &Option<String>| {
        let text = text.as_deref();
        text.is_some_and(|text| text.eq_ignore_ascii_case(hardware))
    };
    let all = eni::enis(engine, now).interfaces.into_iter();
    all.filter(|it| is_it(&it.mac) || is_it(&it.pci)).collect()
}

/// The task that was asked about, and stuck tasks of the subject's pods and
/// containers that are in none of its namespaces: on the host's network, or
/// somewhere that could not be read.
fn tasks(view: &View<'_>, seeds: &Seeds, related: &Related<'_>) -> Vec<Holder> {
    let blocked = &view.model.blocked;
    let asked = seeds.task.as_ref();
    let first = asked.map(|task| match blocked.get(task) {
        Some(blocked) => stuck_holder(blocked),
        None => task_holder(task),
    });
    let inside = |tid: u32| {
        let mut guests = related.netns.values().filter(|entry| !entry.host);
        guests.any(|entry| {
            let stuck = stuck_in(view.model, entry);
            stuck.iter().any(|blocked| blocked.task.tid == tid)
        })
    };
    let its = blocked.iter().filter(|blocked| {
        let Task {
            tid,
            pod_uid,
            container_id,
            ..
        } = &blocked.task;
        let of_pod = pod_uid
            .as_ref()
            .is_some_and(|uid| related.uids.contains(uid));
        let of_container = container_id
            .as_ref()
            .is_some_and(|id| related.containers.contains(id));
        let asked = asked.is_some_and(|task| task.tid == *tid);
        (of_pod || of_container) && !asked && !inside(*tid)
    });
    first.into_iter().chain(its.map(stuck_holder)).collect()
}

/// What is not known, each thing once: of this subject first, then of the node.
fn unknown(
    engine: &Engine,
    seeds: &Seeds,
    related: &Related<'_>,
    all: &Explanation,
    not_read: &[String],
) -> Vec<String> {
    let mut unknown: Vec<String> = Vec::new();
    if seeds.cut > 0 {
        let more = seeds.cut;
        unknown.push(format!("{more} more network namespaces have this address"));
    }
    for entry in related.netns.values().filter(|entry| !entry.host) {
        let inode = entry.id.inode;
        if entry.held_at.is_none() && entry.dying.is_none() {
            unknown.push(format!("what holds netns {inode} open: it was not read"));
        } else if entry.is_held_by_nothing_found() && entry.dying.is_none() {
            unknown.push(format!("what holds netns {inode} open: no holder found"));
        }
        if entry.wiring.is_none() && entry.dying.is_none() {
            unknown.push(format!("the devices and routes of netns {inode}"));
        }
    }
    for pod in all.pods.iter().filter(|pod| pod.listed.is_none()) {
        let name = pod_word(&pod.reference());
        let why = engine.model().pods.silence();
        unknown.push(format!("whether the pod {name} still exists: {why}"));
    }
    let said = all.findings.iter();
    let said = said.flat_map(|part| &part.finding.unknown);
    let said = said.chain(engine.gaps()).chain(not_read);
    for each in said {
        if !unknown.contains(each) {
            unknown.push(each.clone());
        }
    }
    unknown
}
