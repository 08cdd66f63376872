//! Many stuck tasks of a pod or a user: what hangs for one of them hangs for
//! all, and who has thousands may want to have them told.

use event::order::Order as _;
use event::{
    PodRef, Task,
    clock::Timestamp,
    finding::{Detail, Finding, Holder, Rule, Severity, finding_id},
    sleep,
    wording::{
        advice::commented,
        plural::{AT_LEAST, round},
    },
};
use std::collections::BTreeMap;

use super::super::{View, evidence, named, release_advice, stuck_holder};
use crate::model::task::{Blocked, Crowd as Counted};

/// Tasks of one owner that have a finding each.
const SINGLY: usize = 16;
/// Tasks that are named of those that have none.
const NAMED: usize = 3;
/// The number of the crowd of all who cannot be told apart.
const OTHERS: u32 = 0;

/// Whose tasks are. The kernel's threads and root's own programs are nobody's,
/// and always told singly; but a user can have any number of the kernel's workers
/// wait for file systems of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// A pod, by UID.
    Pod(String),
    /// A user of the host, not root.
    User(u32),
    /// Root's in a container of which no pod is known, by the crowd's number.
    Container(u32),
    /// Of all who cannot be told apart.
    Others,
}

/// What is told as one.
#[derive(Debug)]
pub(super) struct Crowd<'a> {
    owner: Owner,
    /// Tasks of which each is known.
    tasks: Vec<&'a Blocked>,
    /// Those of which only the number is.
    counted: Vec<&'a Counted>,
}

/// Which tasks are told singly, and which together.
pub(super) fn divide<'a>(view: &View<'a>) -> (Vec<&'a Blocked>, Vec<Crowd<'a>>) {
    let blocked = &view.model.blocked;
    let mut singly = Vec::new();
    let mut crowds: BTreeMap<Owner, Crowd<'a>> = BTreeMap::new();
    for (number, counted) in blocked.crowds() {
        let owner = match (&counted.pod_uid, counted.uid) {
            (Some(pod), _) => Owner::Pod(pod.clone()),
            (None, Some(uid @ 1..)) => Owner::User(uid),
            (None, _) if number == OTHERS => Owner::Others,
            (None, _) => Owner::Container(number),
        };
        of(&mut crowds, owner).counted.push(counted);
    }
    for each in blocked.iter() {
        match owner(each) {
            Some(owner) => of(&mut crowds, owner).tasks.push(each),
            None => singly.push(each),
        }
    }
    for crowd in crowds.values_mut() {
        // Who came later is not told in the place of who came first.
        crowd.tasks.order_by_key(|each| (each.since, each.task.tid));
        let first = crowd.tasks.len().min(SINGLY);
        singly.extend(crowd.tasks.drain(..first));
    }
    singly.order_by_key(|each| each.task.tid);
    (singly, crowds.into_values().collect())
}

fn of<'a, 'b>(crowds: &'b mut BTreeMap<Owner, Crowd<'a>>, owner: Owner) -> &'b mut Crowd<'a> {
    crowds.entry(owner.clone()).or_insert_with(|| Crowd {
        owner,
        tasks: Vec::new(),
        counted: Vec::new(),
    })
}

fn owner(Blocked { task, stack, .. }: &Blocked) -> Option<Owner> {
    if task.kernel_thread {
        let user = task.uid.map_or(Owner::Others, Owner::User);
        return sleep::is_fuse_worker(&task.comm, stack).then_some(user);
    }
    let pod = task.pod_uid.clone().map(Owner::Pod);
    pod.or(task.uid.map(Owner::User))
}

impl Crowd<'_> {
    fn count(&self) -> u64 {
        let counted = self.counted.iter().map(|counted| counted.count);
        self.tasks.len() as u64 + counted.sum::<u64>()
    }

    fn since(&self) -> Option<Timestamp> {
        let known = self.tasks.iter().map(|each| each.since);
        let counted = self.counted.iter().map(|counted| counted.since);
        known.chain(counted).min()
    }

    /// `None` if all of them are told singly.
    pub(super) fn finding(&self, view: &View<'_>) -> Option<Finding> {
        let since = self.since()?;
        let tasks = self.number();
        let pod = match &self.owner {
            Owner::Pod(uid) => {
                let bare = PodRef {
                    uid: Some(uid.clone()),
                    ..PodRef::default()
                };
                Some(named(view.model, &bare))
            }
            _ => None,
        };
        let (key, whose) = match (&self.owner, &pod) {
            (Owner::Pod(uid), pod) => {
                let label = pod.as_ref().map(PodRef::label).unwrap_or_default();
                (format!("pod/{uid}"), label)
            }
            (Owner::User(uid), _) => (format!("user/{uid}"), format!("user {uid}")),
            (Owner::Others, _) => (String::from("others"), String::from("others")),
            (Owner::Container(number), _) => {
                (format!("container/{number}"), String::from("a container"))
            }
        };
        let told = self.tasks.iter().take(NAMED).map(|each| stuck_holder(each));
        let examples = self.counted.iter().flat_map(|counted| &counted.examples);
        let holders: Vec<Holder> = told.chain(examples.map(example)).take(NAMED).collect();
        let mut unknown = Vec::new();
        if self.counted.iter().any(|counted| counted.count > 0) {
            unknown.push(String::from(
                "where in the kernel those wait that were only counted",
            ));
        }
        let advice = match (self.tasks.first(), holders.first()) {
            (Some(first), _) => release_advice(first),
            (None, Some(Holder::Task { pid, .. })) => vec![commented(
                format!("node-tracer explain {pid}"),
                "where it waits",
            )],
            (None, _) => Vec::new(),
        };
        Some(Finding {
            rule: Rule::BlockedTask,
            severity: Severity::Warning,
            id: finding_id(
                &view.settings.boot_id,
                Rule::BlockedTask,
                &format!("crowd/{key}"),
            ),
            since,
            title: match tasks.as_str() {
                "1" => format!("one more task of {whose} is stuck in state D"),
                _ => format!("{tasks} more tasks of {whose} are stuck in state D"),
            },
            pod,
            sandbox_id: None,
            netns: None,
            addresses: Vec::new(),
            holders,
            evidence: vec![evidence(
                format!("{tasks} more of its tasks are in state D"),
                "kernel",
                since,
            )],
            unknown,
            advice,
            detail: Detail {
                uid: match self.owner {
                    Owner::User(uid) => Some(uid),
                    _ => None,
                },
                ..Detail::default()
            },
        })
    }

    fn number(&self) -> String {
        let number = round(self.count());
        let uncounted = self.counted.iter().any(|counted| counted.at_least);
        match uncounted && !number.starts_with(AT_LEAST) {
            true => format!("{AT_LEAST}{number}"),
            false => number,
        }
    }
}

fn example(task: &Task) -> Holder {
    Holder::Task {
        pid: task.pid,
        tid: task.tid,
        comm: task.comm.clone(),
        state: task.state,
        since: None,
        wchan: None,
        stack: Vec::new(),
        container_id: task.container_id.clone(),
        not_stuck: None,
        first_seen: false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::testing::Node;
    use event::{Event, What, finding::State, testing::*};

    fn of_user(tid: u32, uid: Option<u32>) -> Event {
        let mut event = stuck(3, tid, 1);
        if let What::TaskBlocked { task, .. } = &mut event.what {
            (task.uid, task.pod_uid) = (uid, None);
            task.comm = String::from("reader");
        }
        event
    }

    fn told(events: impl Iterator<Item = Event>) -> Vec<Finding> {
        let events: Vec<Event> = std::iter::once(host(0)).chain(events).collect();
        let mut node = Node::of(&events);
        let told = node.tick(10).into_iter();
        told.filter(|(finding, state)| finding.rule == Rule::BlockedTask && *state == State::Open)
            .map(|(finding, _)| finding)
            .collect()
    }

    fn named_more(findings: &[Finding]) -> Vec<&str> {
        let titles = findings.iter().map(|finding| finding.title.as_str());
        titles
            .filter(|title| title.contains("more tasks"))
            .collect()
    }

    #[test]
    fn many_of_one_owner_are_one_finding_and_others_keep_theirs() {
        let many = (1_000..4_000).map(|tid| of_user(tid, Some(1000)));
        let root = (5_000..5_003).map(|tid| of_user(tid, None));
        let findings = told(many.chain(root));
        assert_eq!(findings.len(), SINGLY + 1 + 3);
        let title = "at least 2900 more tasks of user 1000 are stuck in state D";
        assert_eq!(named_more(&findings), [title]);
        let crowd = findings.iter().find(|finding| finding.title == title);
        assert_eq!(crowd.unwrap().holders.len(), NAMED);
    }

    #[test]
    fn the_ids_of_those_that_are_told_singly_are_what_they_were() {
        let ids = |count: u32| -> BTreeSet<String> {
            let many = (1_000..1_000 + count).map(|tid| of_user(tid, Some(1000)));
            told(many).into_iter().map(|finding| finding.id).collect()
        };
        let few = ids(3);
        assert_eq!(few.len(), 3);
        assert!(ids(100).is_superset(&few));
    }

    #[test]
    fn kernel_threads_and_roots_programs_are_told_each() {
        let threads = (1_000..1_100).map(|tid| {
            let mut event = of_user(tid, None);
            if let What::TaskBlocked { task, .. } = &mut event.what {
                task.kernel_thread = true;
            }
            event
        });
        let programs = (2_000..2_100).map(|tid| of_user(tid, None));
        assert_eq!(told(threads.chain(programs)).len(), 200);
    }

    #[test]
    fn workers_that_wait_for_file_systems_of_users_are_told_as_these_users_tasks() {
        let worker = |uid: Option<u32>| {
            move |tid: u32| {
                let mut event = of_user(tid, uid);
                if let What::TaskBlocked { task, stack, .. } = &mut event.what {
                    (task.kernel_thread, task.comm) = (true, String::from("kworker/u8:1"));
                    *stack = vec![String::from("request_wait_answer+0xaa")];
                }
                event
            }
        };
        let users = (1_000..1_040).map(worker(Some(1000)));
        let unknown = (2_000..2_040).map(worker(None));
        let findings = told(users.chain(unknown));
        assert_eq!(findings.len(), 2 * (SINGLY + 1));
        let mut titles = named_more(&findings);
        titles.sort_unstable();
        let stuck = "are stuck in state D";
        let expected = ["others", "user 1000"].map(|who| format!("24 more tasks of {who} {stuck}"));
        assert_eq!(titles, expected);
    }

    #[test]
    fn a_number_that_was_told_is_a_finding_until_it_is_none() {
        let crowd = |seconds: i64, count: u64| {
            let what = What::TasksBlocked {
                crowd: 7,
                pod_uid: Some(OLD.into()),
                uid: Some(0),
                count,
                at_least: count > 50,
                ended: 0,
                since: s(2),
                examples: vec![task(9, "dd")],
            };
            at(seconds, what)
        };
        let mut node = Node::of(&[host(0), crowd(3, 50)]);
        let (open, _) = node.only(10, Rule::BlockedTask, State::Open);
        assert!(
            open.title.starts_with("50 more tasks of "),
            "{}",
            open.title
        );
        assert_eq!((open.since, open.holders.len()), (s(2), 1));
        node.tell(crowd(15, 60));
        let (more, _) = node.only(16, Rule::BlockedTask, State::Updated);
        let title = "at least 60 more tasks of ";
        assert!(more.title.starts_with(title), "{}", more.title);
        node.tell(crowd(20, 0));
        let (over, _) = node.only(21, Rule::BlockedTask, State::Resolved);
        assert_eq!(over.id, open.id);
    }
}
