//! What the kernel says: tasks that hang, devices that it cannot remove, tasks
//! that it kills as memory is short.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::entry::Entry;
use event::{Event, OomKill, StartFailure, Task, What, clock::Timestamp, wording::cut};
use node::{cgroup, redact::redact};

use super::tokens::{after, between, number};

/// Words of which one is in each of its lines that count. Frames of stacks
/// have an offset.
pub(super) const NEEDLES: &[&str] = &[
    "INFO: task ",
    "unregister_netdevice: waiting for ",
    "oom-kill:constraint=",
    "invoked oom-killer",
    "Killed process ",
    "Task in /",
    "Call Trace",
    "+0x",
    "Show Blocked State",
    "hung_task_timeout_secs",
    " state:D ",
    "Workqueue: ",
    // The older table of the same: name, state, stack or its free bytes.
    " D ffff",
    " D    0 ",
];

/// Frames that are kept of one stack.
const MAX_FRAMES: usize = 64;
/// Tasks whose stalls are remembered.
const MAX_STALLS: usize = 256;
/// A stack follows its task within this time.
const STACK: Duration = Duration::from_secs(3);
/// The lines about one kill come within this time.
const KILL: Duration = Duration::from_secs(10);
/// What the kernel says before the task that it kills.
const LIMITED: &str = "Memory cgroup out of memory: ";
const ALLOCATING: &str = "Out of memory (oom_kill_allocating_task): ";
/// The longest name of a task, in bytes.
const COMM: usize = 15;
/// The longest name of a task or device that is kept.
const MAX_NAME: usize = 64;
/// How much of a message is kept, in characters.
const MAX_TEXT: usize = 512;

/// What the kernel is about to say in several lines.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    /// A task that hangs, with as much of its stack as was told.
    hung: Option<Hung>,
    /// Since when tasks hang, by process and name: when it was last told, too.
    stalls: BTreeMap<(u32, String), (Timestamp, Timestamp)>,
    killed: VecDeque<(Timestamp, u32)>,
    /// A list of blocked tasks was begun (SysRq w).
    listed: Option<Timestamp>,
    /// The cgroup that the next kill is of.
    memcg: Option<(Timestamp, String, String)>,
    /// What starts a container had no memory left; whom that killed is not
    /// told yet.
    invoked: Option<(Timestamp, String)>,
}

#[derive(Debug)]
struct Hung {
    at: Timestamp,
    since: Timestamp,
    task: Task,
    stack: Vec<String>,
    traced: bool,
    /// What a kernel's worker works on.
    work: Option<String>,
}

/// The worker's function that takes network namespaces down.
const CLEANUP: &str = "cleanup_net";
/// A list of all blocked tasks is told within this time.
const LIST: Duration = Duration::from_secs(60);

impl Kernel {
    /// Takes a message in; what it tells. Its own words begin a message: further
    /// on are names that any user gives it (of a mount's option, a task).
    pub(super) fn entry(&mut self, time: Timestamp, entry: &Entry<'_>, out: &mut Vec<Event>) {
        let text = entry.message.trim();
        // Without a time before it, the writer's name is part of the text.
        let text = text.strip_prefix("kernel: ").unwrap_or(text).trim_start();
        if let Some(rest) = text.strip_prefix("INFO: task ") {
            self.settle(out);
            self.hangs(time, rest);
        } else if ["sysrq: Show Blocked State", "SysRq : Show Blocked State"]
            .iter()
            .any(|words| text.starts_with(words))
        {
            self.settle(out);
            self.listed = Some(time);
        } else if text.starts_with("\"echo 0 > /proc/sys/kernel/hung_task_timeout_secs") {
            // The line before it names the task, and so does the one behind it.
            self.listed = Some(time);
        } else if let Some((comm, pid)) = blocked(text, self.is_listing(time)) {
            self.lists(time, &comm, pid, out);
        } else if let Some(work) = text.strip_prefix("Workqueue: ") {
            if let Some(hung) = &mut self.hung {
                hung.work = work.split_whitespace().nth(1).map(str::to_owned);
            }
        } else if text.starts_with("Call Trace") {
            if let Some(hung) = &mut self.hung {
                hung.traced = true;
            }
        } else if let Some(rest) = text.strip_prefix("unregister_netdevice: waiting for ") {
            waits(time, rest, out);
        } else if let Some((comm, _)) = text
            .split_once(" invoked oom-killer")
            .filter(|(comm, _)| comm.len() <= COMM)
        {
            self.starve(out);
            if is_of_a_start(comm) {
                self.invoked = Some((time, text.to_owned()));
            }
        } else if text.starts_with("oom-kill:constraint=") {
            self.kill(time, text, out);
        } else if let Some(("" | "Out of memory: " | ALLOCATING | LIMITED, rest)) =
            text.split_once("Killed process ")
        {
            self.killed(time, rest, text, out);
        } else if let Some(rest) = text.strip_prefix("Task in ") {
            if let Some((task, limit)) = rest.split_once(" killed as a result of limit of ") {
                self.memcg = Some((time, task.to_owned(), limit.trim().to_owned()));
            }
        } else if text.contains("+0x") {
            self.frame(time, text, out);
        }
    }

    /// Tells what was being told.
    pub(super) fn settle(&mut self, out: &mut Vec<Event>) {
        self.starve(out);
        let Some(hung) = self.hung.take() else {
            return;
        };
        let mut stack = hung.stack;
        let is_told = |frame: &String| frame.starts_with(CLEANUP);
        if hung.work.as_deref() == Some(CLEANUP) && !stack.iter().any(is_told) {
            // Its stack was not told to the end.
            stack.push(CLEANUP.to_owned());
        }
        let what = What::TaskBlocked {
            task: hung.task,
            since: hung.since,
            // It may have slept a while longer.
            found: true,
            netns: None,
            wchan: None,
            stack,
            killable: None,
            sigkill_pending: None,
            fuse: Vec::new(),
        };
        let time = hung.at;
        out.push(Event { time, what });
    }

    /// Tells of what had no memory left, if no line has told whom that killed.
    fn starve(&mut self, out: &mut Vec<Event>) {
        let Some((time, text)) = self.invoked.take() else {
            return;
        };
        let failure = StartFailure {
            source: String::from("kernel"),
            message: cut(&redact(text.trim()), MAX_TEXT).to_owned(),
            ..StartFailure::default()
        };
        let what = What::SandboxFailed { failure };
        out.push(Event { time, what });
    }

    /// The same if nothing more can belong to it.
    pub(super) fn passes(&mut self, now: Timestamp, out: &mut Vec<Event>) {
        let starved = self.invoked.as_ref();
        if starved.is_some_and(|(at, _)| now.since(*at).max(at.since(now)) > KILL) {
            self.starve(out);
        }
        let over = |hung: &Hung| now.since(hung.at).max(hung.at.since(now)) > STACK;
        if self.hung.as_ref().is_some_and(over) {
            self.settle(out);
        }
    }

    /// `name:pid blocked for more than 120 seconds.`
    fn hangs(&mut self, time: Timestamp, rest: &str) {
        let Some((subject, long)) = rest.split_once(" blocked for more than ") else {
            return;
        };
        let Some((name, pid)) = subject.rsplit_once(':') else {
            return;
        };
        let (Some(pid), Some(seconds)) = (number::<u32>(pid), number::<u64>(long)) else {
            return;
        };
        let comm: String = name.chars().take(MAX_NAME).collect();
        let least = time.minus(Duration::from_secs(seconds));
        // Older kernels say the same number each time.
        let key = (pid, comm.clone());
        let again = Duration::from_secs(2 * seconds + 10);
        let before = self.stalls.get(&key);
        let before = before.filter(|(_, told)| time.since(*told) <= again && *told <= time);
        let since = before.map_or(least, |(since, _)| least.min(*since));
        if self.stalls.len() >= MAX_STALLS && !self.stalls.contains_key(&key) {
            let oldest = self.stalls.iter().min_by_key(|(_, (_, told))| *told);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.stalls.remove(&oldest);
            }
        }
        self.stalls.insert(key, (since, time));
        self.hung = Some(Hung {
            at: time,
            since,
            task: Task {
                pid,
                tid: pid,
                comm,
                state: Some('D'),
                ..Task::default()
            },
            stack: Vec::new(),
            traced: false,
            work: None,
        });
    }

    fn is_listing(&self, time: Timestamp) -> bool {
        self.listed.is_some_and(|at| time.since(at) <= LIST)
    }

    /// A task of a list of blocked ones. Since when it is, the kernel does not
    /// say. The same line is part of what it says of a task that hangs.
    fn lists(&mut self, time: Timestamp, comm: &str, pid: u32, out: &mut Vec<Event>) {
        if self.hung.as_ref().is_some_and(|hung| hung.task.pid == pid) {
            return;
        }
        self.settle(out);
        let comm: String = comm.chars().take(MAX_NAME).collect();
        let known = self.stalls.get(&(pid, comm.clone()));
        self.hung = Some(Hung {
            at: time,
            since: known.map_or(time, |(since, _)| *since),
            task: Task {
                pid,
                tid: pid,
                comm,
                state: Some('D'),
                ..Task::default()
            },
            stack: Vec::new(),
            traced: false,
            work: None,
        });
    }

    /// ` function+0x12/0x34 [module]`, before 4.9 with its address; one with a
    /// question mark may be none.
    fn frame(&mut self, time: Timestamp, text: &str, out: &mut Vec<Event>) {
        self.passes(time, out);
        let Some(hung) = self.hung.as_mut().filter(|hung| hung.traced) else {
            return;
        };
        let text = match text.strip_prefix("[<") {
            Some(rest) => rest.split_once(">]").map_or("", |(_, rest)| rest.trim()),
            None => text,
        };
        let word = text.split_whitespace().next().unwrap_or_default();
        let Some((function, offset)) = word.split_once("+0x") else {
            return;
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.$".contains(c);
        let is_function = !function.is_empty() && function.chars().all(is_plain);
        let offset = offset.split('/').next().unwrap_or_default();
        // The scheduler's own say nothing, as in /proc/PID/stack.
        let scheduler = function.trim_start_matches('_').starts_with("schedule")
            || function.starts_with("io_schedule");
        let first = hung.stack.is_empty();
        if is_function && !(first && scheduler) && hung.stack.len() < MAX_FRAMES {
            hung.stack.push(format!("{function}+0x{offset}"));
        }
    }

    /// `oom-kill:constraint=C,...,oom_memcg=A,task_memcg=B,task=n,pid=1,uid=0`
    fn kill(&mut self, time: Timestamp, text: &str, out: &mut Vec<Event>) {
        let part = |name: &str| {
            let value = after(text, name)?;
            value.split(',').next()
        };
        // A task's name may hold a comma.
        let name = between(text, ",task=", ",pid=").unwrap_or_default();
        let Some(pid) = after(text, ",pid=").and_then(number::<u32>) else {
            return;
        };
        let limited = part("constraint=") == Some("CONSTRAINT_MEMCG");
        let memcg = part("oom_memcg=").map(str::to_owned);
        let task = task(pid, name, part("task_memcg="));
        self.tell(time, task, memcg.filter(|_| limited), Some(limited), out);
    }

    /// `1 (name) total-vm:...`, or with a comma after the number.
    fn killed(&mut self, time: Timestamp, rest: &str, text: &str, out: &mut Vec<Event>) {
        let Some(pid) = number::<u32>(rest) else {
            return;
        };
        let close = |(at, other): &(Timestamp, u32)| {
            *other == pid && time.since(*at).max(at.since(time)) <= KILL
        };
        if self.killed.iter().any(close) {
            return;
        }
        let before = self.memcg.take();
        let before = before.filter(|(at, ..)| time.since(*at) <= KILL);
        let limited = match text.starts_with(LIMITED) || before.is_some() {
            true => Some(true),
            false => text.starts_with("Out of memory").then_some(false),
        };
        let name = rest.split_once('(').map(|(_, rest)| rest);
        let end = |rest: &str| {
            rest.find(") ")
                .or_else(|| rest.find("),"))
                .or_else(|| rest.rfind(')'))
        };
        let name = name.and_then(|rest| rest.get(..end(rest)?));
        let (own, limit) = match before {
            Some((_, own, limit)) => (Some(own), Some(limit)),
            None => (None, None),
        };
        let task = task(pid, name.unwrap_or_default(), own.as_deref());
        self.tell(time, task, limit, limited, out);
    }

    fn tell(
        &mut self,
        time: Timestamp,
        task: Task,
        memcg: Option<String>,
        limited: Option<bool>,
        out: &mut Vec<Event>,
    ) {
        self.memcg = None;
        self.invoked = None;
        self.killed.push_back((time, task.pid));
        if self.killed.len() > 64 {
            self.killed.pop_front();
        }
        let kill = OomKill {
            task,
            memcg,
            limited,
        };
        let what = What::OomKilled { kill };
        out.push(Event { time, what });
    }
}

/// `task:dd              state:D stack:0     pid:7211  tgid:7211  ppid:2`; in a
/// list also `dd              D    0  7211      2 0x00000000`, which older
/// kernels print, with an address before the numbers or without.
fn blocked(text: &str, listing: bool) -> Option<(String, u32)> {
    if let Some(rest) = text.strip_prefix("task:") {
        let (comm, rest) = rest.split_once(" state:D")?;
        let pid = after(rest, " pid:").map(str::trim_start).and_then(number)?;
        return Some((comm.trim().to_owned(), pid));
    }
    if !listing {
        return None;
    }
    let (comm, rest) = text.split_once(" D ")?;
    if comm.trim_end().len() > COMM {
        return None;
    }
    let mut words: Vec<&str> = rest.split_whitespace().collect();
    if words.last().is_some_and(|word| word.starts_with("0x")) {
        words.pop();
    }
    let is_number = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
    let numbers: Vec<&str> = words.iter().rev().copied().take_while(is_number).collect();
    // The parent's, the task's, and what is free of its stack.
    let pid = match numbers.len() {
        3.. => numbers.get(1)?.parse().ok()?,
        _ => return None,
    };
    Some((comm.trim().to_owned(), pid))
}

/// Whether a task is a sandbox's own, or what starts a container.
fn is_of_a_start(comm: &str) -> bool {
    matches!(comm, "pause" | "runc" | "crun" | "conmon")
        || comm.starts_with("runc:[")
        || comm.starts_with("containerd-shim")
}

/// Whether the kernel wrote a message: by the envelope, or by the name that is
/// left where its time was cut off.
pub(crate) fn is_of(entry: &Entry<'_>) -> bool {
    match entry.ident {
        Some(ident) => matches!(ident, "kernel" | "kern"),
        None => entry.message.trim_start().starts_with("kernel: "),
    }
}

/// Whether the kernel had no memory for a task: of all that it says, this alone
/// can be why a pod does not start. Behind its first words may be a user's.
pub(crate) fn lacks_memory(message: &str) -> bool {
    let text = message.trim_start();
    let text = text.strip_prefix("kernel: ").unwrap_or(text);
    let comm = text.split_once(": page allocation ");
    comm.is_some_and(|(comm, _)| comm.len() <= COMM)
}

/// What a Kubernetes event tells that quotes one message of the kernel: those
/// of node-problem-detector do.
pub(crate) fn quoted(time: Timestamp, message: &str) -> Vec<Event> {
    let mut kernel = Kernel::default();
    let entry = Entry {
        time: Some(time),
        host: None,
        ident: Some("kernel"),
        pid: None,
        level: None,
        own_level: None,
        message: message.into(),
        fields: Vec::new(),
        line: 0,
    };
    let mut out = Vec::new();
    kernel.entry(time, &entry, &mut out);
    kernel.settle(&mut out);
    super::hide::all(&mut out);
    out
}

/// `eth0 to become free. Usage count = 1`
fn waits(time: Timestamp, rest: &str, out: &mut Vec<Event>) {
    let Some((device, count)) = rest.split_once(" to become free") else {
        return;
    };
    let device: String = device.chars().take(MAX_NAME).collect();
    let references = after(count, "Usage count = ").and_then(number);
    let what = What::DeviceWaiting { device, references };
    out.push(Event { time, what });
}

/// A task that was killed, with the pod and the container of its cgroup.
fn task(pid: u32, name: &str, cgroup: Option<&str>) -> Task {
    let owner = cgroup.and_then(cgroup::owner_of_path);
    let (pod_uid, container_id) = match owner {
        Some(owner) => (Some(owner.pod_uid), owner.container_id),
        None => (None, None),
    };
    Task {
        pid,
        tid: pid,
        comm: name.chars().take(MAX_NAME).collect(),
        pod_uid,
        container_id,
        ..Task::default()
    }
}
