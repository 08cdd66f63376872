//! A node's log, as long as one likes and the same each time: what a kubelet
//! and containerd chatter, pods coming and going, and one incident in it.

use std::fmt::Write as _;

/// The sandbox whose DEL comes too late.
pub(super) const GHOST: &str = "9d05700d9d05700d9d05700d9d05700d9d05700d9d05700d9d05700d9d05700d";
/// The sandbox whose endpoint it deletes.
const NEW: &str = "4e4b0d1e4e4b0d1e4e4b0d1e4e4b0d1e4e4b0d1e4e4b0d1e4e4b0d1e4e4b0d1e";
const HOST: &str = "worker-7";
/// Lines between two pods that come or go.
const EACH: u64 = 4_000;
/// Lines in a second.
const RATE: u64 = 40;

pub(super) struct Log {
    bytes: u64,
    written: u64,
    lines: u64,
    random: u64,
    /// Lines that come next.
    waiting: std::collections::VecDeque<String>,
    told: bool,
}

impl Log {
    /// Of about so many bytes.
    pub(super) fn new(bytes: u64) -> Self {
        Self {
            bytes,
            written: 0,
            lines: 0,
            random: 0x9e37_79b9_7f4a_7c15,
            waiting: std::collections::VecDeque::new(),
            told: false,
        }
    }

    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// The next line, with its end; `false` at the end.
    pub(super) fn next(&mut self, line: &mut String) -> bool {
        if self.written >= self.bytes && self.waiting.is_empty() {
            return false;
        }
        line.clear();
        if let Some(next) = self.waiting.pop_front() {
            line.push_str(&next);
        } else if !self.told && self.written > self.bytes / 2 {
            self.told = true;
            self.incident();
            return self.next(line);
        } else if self.lines % EACH == EACH - 1 {
            self.pod();
            return self.next(line);
        } else {
            self.chatter(line);
        }
        line.push('\n');
        self.written += line.len() as u64;
        self.lines += 1;
        true
    }

    /// xorshift: the same numbers each time.
    fn number(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Seconds since the log's first day began.
    fn second(&self) -> u64 {
        self.lines / RATE
    }

    /// `Nov 05 10:11:12`, so many seconds later.
    fn stamp(&self, later: u64) -> String {
        let second = self.second() + later;
        let (day, second) = (second / 86_400, second % 86_400);
        let (hour, minute) = (second / 3_600, second / 60 % 60);
        let second = second % 60;
        format!("Nov {:02} {hour:02}:{minute:02}:{second:02}", day % 28 + 1)
    }

    /// The same as RFC 3339.
    fn full(&self, later: u64) -> String {
        let short = self.stamp(later);
        format!("2025-11-{}T{}Z", &short[4..6], &short[7..])
    }

    fn chatter(&mut self, line: &mut String) {
        let (number, micros) = (self.number(), self.lines % RATE * 25_000 + 17);
        let stamp = self.stamp(0);
        let day = &stamp[4..6];
        let clock = &stamp[7..];
        let klog = format!("I11{day} {clock}.{micros:06}");
        let pod = format!("web-{}", number % 200);
        let uid = format!("{number:08x}-1c2d-4e3f-9a4b-{:012x}", number >> 16);
        let head = format!("{stamp} {HOST} kubelet[811]: {klog}     811");
        // Writing into a text does not fail.
        let _ = match number % 8 {
            0 => write!(
                line,
                "{head} prober.go:107] \"Probe succeeded\" probeType=\"Readiness\" \
                 pod=\"shop/{pod}\" podUID={uid} containerName=\"app\""
            ),
            1 => write!(
                line,
                "{head} operation_generator.go:637] \"MountVolume.SetUp succeeded for volume \
                 \\\"kube-api-access-{:05x}\\\" (UniqueName: \\\"kubernetes.io/projected/{uid}\\\") \
                 pod \\\"{pod}\\\" (UID: \\\"{uid}\\\") \" pod=\"shop/{pod}\"",
                number % 0xfffff
            ),
            2 => write!(
                line,
                "{head} kubelet.go:2457] \"SyncLoop (PLEG): event for pod\" pod=\"shop/{pod}\" \
                 event={{\"ID\":\"{uid}\",\"Type\":\"ContainerStarted\",\"Data\":\"{number:064x}\"}}"
            ),
            3 => write!(
                line,
                "{stamp} {HOST} containerd[702]: time=\"{}\" level=info msg=\"ImageUpdate event \
                 name:\\\"registry.example/shop/app@sha256:{number:064x}\\\" labels:{{key:\\\"managed\\\" \
                 value:\\\"true\\\"}}\"",
                self.full(0)
            ),
            4 => write!(
                line,
                "{head} kubelet_getters.go:187] \"Pod status updated\" pod=\"kube-system/{pod}\" \
                 status=\"Running\""
            ),
            5 => write!(
                line,
                "{stamp} {HOST} containerd[702]: time=\"{}\" level=debug msg=\"Stats of container \
                 {number:016x}: cpu {} memory {}\" module=stats",
                self.full(0),
                number % 100_000,
                number % 10_000_000
            ),
            6 => write!(
                line,
                "{head} kuberuntime_manager.go:1041] \"Computed container actions\" pod=\"shop/{pod}\" \
                 actions={{\"KillPod\":false,\"Attempt\":0,\"ContainersToStart\":[],\"ID\":\"{number:032x}\"}}"
            ),
            _ => write!(
                line,
                "{head} generic.go:334] \"Generic (PLEG): container finished\" podID=\"{uid}\" \
                 containerID=\"{number:064x}\" exitCode=0"
            ),
        };
    }

    /// A line of a CNI plugin in the kubelet's, so many seconds from now.
    fn plugin(&mut self, later: u64, text: &str) {
        let (stamp, full) = (self.stamp(later), self.full(later));
        self.waiting.push_back(format!(
            "{stamp} {HOST} kubelet[811]: time=\"{full}\" level=info msg={text}"
        ));
    }

    /// A CNI call of a pod `shop/NAME`.
    fn call(&mut self, later: u64, command: &str, sandbox: &str, netns: &str, name: &str) {
        let text = format!(
            "\"Configured environment: [PATH=/usr/sbin:/usr/bin CNI_COMMAND={command} \
             CNI_CONTAINERID={sandbox} CNI_NETNS={netns} CNI_ARGS=IgnoreUnknown=1;\
             K8S_POD_NAMESPACE=shop;K8S_POD_NAME={name};K8S_POD_INFRA_CONTAINER_ID={sandbox} \
             CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin]\""
        );
        self.plugin(later, &text);
    }

    /// An ADD to its end.
    fn add(&mut self, later: u64, sandbox: &str, name: &str, ip: &str) {
        let netns = format!("/proc/{}/ns/net", 1_000 + self.lines % 30_000);
        self.call(later, "ADD", sandbox, &netns, name);
        let assigned = format!(
            "{} {HOST} kubelet[811]: Calico CNI IPAM assigned addresses IPv4=[{ip}] IPv6=[]",
            self.stamp(later)
        );
        self.waiting.push_back(assigned);
        let using = format!(
            "{} {HOST} kubelet[811]: Calico CNI using IPs: [{ip}/32]",
            self.stamp(later)
        );
        self.waiting.push_back(using);
        let wrote = format!("\"Wrote updated endpoint to datastore\" Workload=shop.{name}");
        self.plugin(later, &wrote);
    }

    /// A DEL that deletes the endpoint of its pod.
    fn delete(&mut self, later: u64, sandbox: &str, name: &str) {
        self.call(later, "DEL", sandbox, "", name);
        let released = format!("\"Released address using workloadID\" Workload=shop.{name}");
        self.plugin(later, &released);
        let key = format!("/calico/v1/host/{HOST}/workload/k8s/shop.{name}/endpoint");
        self.plugin(later, &format!("\"Delete Key: {key}/eth0\""));
        self.plugin(later, &format!("\"Delete empty Key: {key}\""));
    }

    /// A pod comes and goes.
    fn pod(&mut self) {
        let (number, more) = (self.number(), self.number());
        let sandbox = format!("{number:016x}{more:016x}{number:016x}{more:016x}");
        let name = format!("batch-{}", self.lines / EACH);
        let ip = format!("10.3.{}.{}", number % 4, more % 250 + 2);
        self.add(0, &sandbox, &name, &ip);
        self.delete(1, &sandbox, &name);
    }

    /// A sandbox's DEL comes when its pod has a newer one, whose endpoint it
    /// deletes.
    fn incident(&mut self) {
        self.add(0, GHOST, "db-0", "10.3.7.7");
        self.add(20, NEW, "db-0", "10.3.7.8");
        self.delete(40, GHOST, "db-0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_the_same_each_time_and_as_long_as_asked() {
        let write = || {
            let (mut log, mut all, mut line) = (Log::new(2_000_000), String::new(), String::new());
            while log.next(&mut line) {
                all.push_str(&line);
            }
            (all, log.lines())
        };
        let (all, lines) = write();
        assert_eq!(write().0, all);
        assert!((2_000_000..2_010_000).contains(&all.len()));
        assert_eq!(all.lines().count() as u64, lines);
        assert!(all.matches(GHOST).count() >= 4);
        assert!(all.matches("CNI_COMMAND").count() < 20);
    }
}
