//! CNI calls out of plugin starts and ends. No I/O but what the caller hands
//! in.
//!
//! Not every program with `CNI_COMMAND` in its environment is a plugin: what a
//! plugin runs (iptables, ip, modprobe) inherits its environment. A plugin is
//! a program that was found in `CNI_PATH`, as libcni and the plugins look for
//! each other; a wrapper that executes the real plugin is one call with it.
//! What a plugin runs beside may be the real plugin behind a wrapper, and call
//! plugins in its turn: these are the wrapper's delegates.

use std::collections::HashMap;

use node_tracer_ebpf::record::{self, Task as KernelTask};

use self::payload::{NetworkConfig, PluginOutput};
use crate::ebpf::records::{CniExec, CniExit};
use event::{CniCall, PodRef};

mod payload;
mod unseen;

/// Programs that call CNI plugins, by the name of their executable.
const RUNTIMES: [&str; 13] = [
    "containerd",
    "crio",
    "dockerd",
    "cri-dockerd",
    "kubelet",
    "k3s",
    "k3s-server",
    "k3s-agent",
    "k0s",
    "rke2",
    "microk8s",
    "nerdctl",
    "podman",
];

/// Plugins that run at once; beyond, calls are counted as lost.
const MAX_RUNNING: usize = 4096;
/// The same for those that are not trusted; beyond, their ends are not told.
const MAX_STRANGERS: usize = 256;
/// Programs run by plugins, at once; what those beyond call is not trusted. Of
/// plugins that are not trusted, [`MAX_STRANGERS`].
const MAX_HELPERS: usize = 4096;
/// Environment values are cut at this length; longer ones are no names.
const MAX_VALUE: usize = 4096;

/// The host as the tracer sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Host {
    /// Inode number of the host's PID namespace.
    pub pid_ns: u32,
    /// Inode number of the host's mount namespace.
    pub mnt_ns: u32,
}

/// What is known of a plugin's parent beyond the kernel's record.
#[derive(Clone, Debug, Default)]
pub(super) struct Parent {
    /// Name of its executable; `None` if that cannot be read, or if the process is
    /// not root's alone.
    pub exe: Option<String>,
    /// It is in a pod's cgroup; `None` if that cannot be told.
    pub in_pod: Option<bool>,
    /// It still lived when that had been read: what is read of one that has
    /// ended may be another's, or nobody's. `None` if that cannot be read.
    pub lives: Option<bool>,
    /// It listens on the runtime's socket, as the kernel says.
    pub listens: bool,
    /// It is a service of the node's first process.
    pub is_service: bool,
}

/// A call that has ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub call: CniCall,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// From exec to exit, ns.
    pub duration: u64,
    pub answer: PluginOutput,
}

/// What a plugin start means.
#[derive(Debug)]
pub(super) enum Started {
    Call(Box<CniCall>),
    /// No plugin, or a part of a call that is known.
    Nothing,
    /// There is no room to follow it.
    TableFull,
}

#[derive(Debug)]
struct Running {
    call: CniCall,
    started: u64,
    /// Start of the process: with its number it names it for good.
    start_boottime: u64,
    /// Since when it is gone, if its end was not seen.
    gone: Option<u64>,
}

/// A program that a plugin runs and that is none itself.
#[derive(Debug)]
struct Helper {
    /// Why its plugin is not trusted.
    distrust: Option<String>,
    started: u64,
    start_boottime: u64,
}

/// Plugins that run, by process ID.
#[derive(Debug)]
pub(super) struct CniTable {
    host: Host,
    running: HashMap<u32, Running>,
    helpers: HashMap<u32, Helper>,
}

impl CniTable {
    pub(super) fn new(host: Host) -> Self {
        Self {
            host,
            running: HashMap::new(),
            helpers: HashMap::new(),
        }
    }

    fn has_room_for_helper(&self, trusted: bool) -> bool {
        let helpers = self.helpers.values();
        let most = if trusted { MAX_HELPERS } else { MAX_STRANGERS };
        self.helpers.len() < most
            || helpers
                .filter(|it| it.distrust.is_none() == trusted)
                .count()
                < most
    }

    /// The plugin that a process is, or runs for: why it is not trusted, if so.
    fn caller(&self, task: &KernelTask) -> Option<Option<String>> {
        let plugin = self.running.get(&task.tgid);
        let plugin = plugin.map(|it| (it.start_boottime, &it.call.distrust));
        let helper = self.helpers.get(&task.tgid);
        let helper = helper.map(|it| (it.start_boottime, &it.distrust));
        let of_task = |(start, _): &(u64, _)| *start == task.start_boottime;
        let found = plugin.filter(of_task).or(helper.filter(of_task))?;
        Some(found.1.clone())
    }

    /// A program with CNI variables was executed. `netns` looks up the
    /// namespace at a trusted call's `CNI_NETNS`.
    pub(super) fn exec(&mut self, exec: &CniExec, parent: impl FnOnce() -> Parent) -> Started {
        let env = Environment::parse(&exec.env);
        let path = lossy(&exec.path);
        let parent_pid = exec.parent.tgid;
        if let Some(running) = self.running.get(&exec.task.tgid) {
            if running.start_boottime == exec.task.start_boottime {
                return Started::Nothing; // a wrapper becomes the plugin
            }
            // The end of the one that had this number before got lost.
            self.running.remove(&exec.task.tgid);
        }
        let delegated = self.caller(&exec.parent);
        if !env.finds(&path) {
            // A plugin runs a helper; or a helper becomes another.
            if let Some(distrust) = delegated
                && self.has_room_for_helper(distrust.is_none())
            {
                let helper = Helper {
                    distrust,
                    started: exec.time,
                    start_boottime: exec.task.start_boottime,
                };
                self.helpers.insert(exec.task.tgid, helper);
            }
            return Started::Nothing;
        }
        let distrust = match &delegated {
            Some(distrust) => distrust
                .clone()
                .or_else(|| distrust_task(&exec.task, self.host)),
            None => distrust_task(&exec.task, self.host)
                .or_else(|| distrust_parent(&exec.parent, &parent(), self.host)),
        };
        let distrust = distrust.or_else(|| distrust_mounts(&exec.task, &exec.parent, self.host));
        let call = CniCall {
            command: env.get("CNI_COMMAND").into(),
            container_id: env.get("CNI_CONTAINERID"),
            ifname: env.get("CNI_IFNAME"),
            netns_path: env.get("CNI_NETNS"),
            netns: None,
            plugin: path.rsplit('/').next().unwrap_or_default().to_owned(),
            plugin_path: path,
            pid: exec.task.tgid,
            parent_pid,
            parent_comm: lossy(record::text(&exec.parent.comm)),
            delegated: delegated.is_some(),
            network: None,
            ipam: None,
            cni_version: None,
            pod: pod_of(&env.get("CNI_ARGS")),
            infra_container_id: argument(&env.get("CNI_ARGS"), "K8S_POD_INFRA_CONTAINER_ID"),
            trusted: distrust.is_none(),
            distrust,
            log: false,
        };
        let same = self
            .running
            .values()
            .filter(|running| running.call.trusted == call.trusted);
        match (same.count(), call.trusted) {
            (count, true) if count >= MAX_RUNNING => return Started::TableFull,
            (count, false) if count >= MAX_STRANGERS => return Started::Call(Box::new(call)),
            _ => {}
        }
        let running = Running {
            call: call.clone(),
            started: exec.time,
            start_boottime: exec.task.start_boottime,
            gone: None,
        };
        self.running.insert(exec.task.tgid, running);
        Started::Call(Box::new(call))
    }

    /// Whether a process is a trusted call's plugin, or runs for one.
    pub(super) fn believes(&self, pid: u32) -> bool {
        let plugin = self.running.get(&pid);
        let helper = self.helpers.get(&pid);
        plugin.is_some_and(|it| it.call.trusted) || helper.is_some_and(|it| it.distrust.is_none())
    }

    /// Does not follow a process any longer.
    pub(super) fn forget(&mut self, pid: u32) {
        self.running.remove(&pid);
    }

    /// Writes the namespace at `CNI_NETNS` into a running call.
    pub(super) fn set_netns(&mut self, pid: u32, netns: event::Netns) {
        if let Some(running) = self.running.get_mut(&pid) {
            running.call.netns = Some(netns);
        }
    }

    /// The namespace at a path, if a plugin that runs was called for that one: what
    /// it calls in its turn may outlive it.
    pub(super) fn netns_at(&self, caller: u32, path: &str) -> Option<event::Netns> {
        let call = &self.running.get(&caller)?.call;
        call.netns
            .filter(|_| call.trusted && call.netns_path == path)
    }

    /// Whether the configuration of some trusted plugin that runs since before
    /// `time` is not known.
    pub(super) fn lacks_config(&self, time: u64) -> bool {
        let mut running = self.running.values();
        running.any(|running| {
            running.started < time && running.call.trusted && running.call.network.is_none()
        })
    }

    /// What lies in the pipes of a plugin that runs. Returns its call if that
    /// tells something new.
    pub(super) fn peek(&mut self, peek: &CniExit) -> Option<&CniCall> {
        let running = self.running.get_mut(&peek.record.tgid)?;
        // Later if a wrapper has become the plugin.
        let same = peek.record.started >= running.started;
        (same && running.learn(&peek.config)).then_some(&running.call)
    }

    /// A process that was executed with CNI variables has ended.
    pub(super) fn exit(&mut self, exit: &CniExit) -> Option<Ended> {
        let CniExit {
            record,
            config,
            output,
        } = exit;
        if let Some(helper) = self.helpers.get(&record.tgid)
            && record.started >= helper.started
        {
            self.helpers.remove(&record.tgid);
        }
        let running = self.running.get(&record.tgid)?;
        if record.started < running.started {
            return None; // the end of an earlier process of this number
        }
        let mut running = self.running.remove(&record.tgid)?;
        running.learn(config);
        let Running { call, started, .. } = running;
        let signal = (record.wait_status & 0x7f) as i32;
        let (exit_code, signal) = match signal {
            0 => (Some((record.wait_status >> 8 & 0xff) as i32), None),
            signal => (None, Some(signal)),
        };
        // Nobody reads what strangers say.
        let answer = match call.trusted {
            true => PluginOutput::parse(
                &call.command,
                exit_code == Some(0),
                record.output_state,
                output,
            ),
            false => PluginOutput::default(),
        };
        let duration = record.header.time.saturating_sub(started);
        Some(Ended {
            call,
            exit_code,
            signal,
            duration,
            answer,
        })
    }
}

impl Running {
    /// Takes the names in a configuration. Returns whether there was one that
    /// was not known.
    fn learn(&mut self, config: &[u8]) -> bool {
        if !self.call.trusted || config.is_empty() || self.call.network.is_some() {
            return false;
        }
        let NetworkConfig {
            network,
            version,
            ipam,
        } = NetworkConfig::parse(config);
        let new = network.is_some();
        self.call.network = network;
        self.call.cni_version = version;
        self.call.ipam = ipam;
        new
    }
}

fn distrust_task(task: &KernelTask, host: Host) -> Option<String> {
    if task.euid != 0 || task.user_level != 0 {
        return Some(format!(
            "it runs as user {} in user namespace level {}",
            task.euid, task.user_level
        ));
    }
    if task.pid_inum == 0 || task.pid_inum != host.pid_ns {
        return Some(String::from("it runs in a PID namespace of its own"));
    }
    None
}

/// A plugin runs where its runtime runs, which need not be the host's mount
/// namespace (containerd can be a container itself); a container's is another.
fn distrust_mounts(task: &KernelTask, parent: &KernelTask, host: Host) -> Option<String> {
    let with_runtime = task.mnt_inum == parent.mnt_inum || task.mnt_inum == host.mnt_ns;
    (task.mnt_inum == 0 || !with_runtime)
        .then(|| String::from("it runs in a mount namespace of its own"))
}

fn distrust_parent(task: &KernelTask, parent: &Parent, host: Host) -> Option<String> {
    // Not by its name in `comm`, which every process chooses for itself.
    let Some(name) = parent.exe.as_deref() else {
        let comm = lossy(record::text(&task.comm));
        return Some(format!(
            "its parent {comm} cannot be looked at any more, or is not root's alone"
        ));
    };
    if !RUNTIMES.contains(&name) {
        return Some(format!("its parent {name} is no container runtime"));
    }
    match parent.lives {
        Some(true) => {}
        Some(false) => {
            return Some(format!(
                "its parent {name} has ended too soon to be looked at"
            ));
        }
        None => {
            return Some(format!(
                "whether its parent {name} still lives cannot be read"
            ));
        }
    }
    match parent.in_pod {
        Some(false) => {}
        Some(true) => return Some(format!("its parent {name} runs in a pod")),
        None => {
            return Some(format!(
                "whether its parent {name} runs in a pod cannot be told"
            ));
        }
    }
    // A container that shares the host's PID namespace still has mounts of its
    // own. A runtime that has them is the one that is asked for sandboxes, or
    // a service of the system.
    let vouched = task.mnt_inum == host.mnt_ns || parent.listens || parent.is_service;
    if task.mnt_inum == 0 || !vouched {
        return Some(format!(
            "its parent {name} runs in a mount namespace of its own, is no service of the node, and \
             does not listen on the runtime's socket"
        ));
    }
    distrust_task(task, host).map(|why| format!("its parent {name}: {why}"))
}

/// The plugin's `CNI_*` variables. Everything else stayed in the kernel.
struct Environment<'a> {
    variables: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> Environment<'a> {
    fn parse(bytes: &'a [u8]) -> Self {
        let variables = bytes
            .split(|&byte| byte == 0)
            .filter_map(|variable| {
                let equals = variable.iter().position(|&byte| byte == b'=')?;
                Some((&variable[..equals], &variable[equals + 1..]))
            })
            .collect();
        Self { variables }
    }

    fn raw(&self, name: &str) -> Option<&'a [u8]> {
        // The last one counts, as for getenv of a deduplicated environment.
        let found = self
            .variables
            .iter()
            .rev()
            .find(|(key, _)| *key == name.as_bytes());
        found.map(|(_, value)| *value)
    }

    fn get(&self, name: &str) -> String {
        let value = self.raw(name).unwrap_or_default();
        lossy(&value[..value.len().min(MAX_VALUE)])
    }

    /// Whether a program at `path` is one that `CNI_PATH` leads to.
    fn finds(&self, path: &str) -> bool {
        let Some((folder, _)) = path.rsplit_once('/') else {
            return false;
        };
        let Some(search) = self.raw("CNI_PATH") else {
            return false;
        };
        let tidy = |folder: &str| {
            folder
                .split('/')
                .filter(|part| !part.is_empty() && *part != ".")
                .collect::<Vec<_>>()
                .join("/")
        };
        let folder = tidy(folder);
        search
            .split(|&byte| byte == b':')
            .any(|entry| tidy(&lossy(entry)) == folder)
    }
}

/// The pod that `CNI_ARGS` names. Other keys may be secrets and are dropped.
fn pod_of(args: &str) -> Option<PodRef> {
    let pod = PodRef {
        namespace: argument(args, "K8S_POD_NAMESPACE"),
        name: argument(args, "K8S_POD_NAME"),
        uid: argument(args, "K8S_POD_UID"),
    };
    (pod != PodRef::default()).then_some(pod)
}

/// The last value of a key in `CNI_ARGS`, if there is one that is not empty.
fn argument(args: &str, key: &str) -> Option<String> {
    let mut pairs = args.rsplit(';').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(name, _)| *name == key)?;
    Some(value.to_owned()).filter(|value| !value.is_empty())
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What plugins are given and what they say.
#[cfg(feature = "testing")]
pub fn fuzz(data: &[u8]) {
    NetworkConfig::parse(data);
    for command in ["ADD", "DEL", "VERSION"] {
        PluginOutput::parse(&command.into(), data.len().is_multiple_of(2), 0, data);
    }
    let environment = Environment::parse(data);
    environment.finds(&environment.get("CNI_COMMAND"));
    pod_of(&environment.get("CNI_ARGS"));
    node::redact::redact(&lossy(data));
}

#[cfg(test)]
mod tests;
