//! What is measured on, and whether it is idle.

use std::fmt;
use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use node_tracer_tests::wait;

/// Percent of all cores that others may use while something is measured.
const IDLE: f64 = 5.0;
/// How long they are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// A machine as it was before.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    cores: usize,
    processor: String,
    kernel: String,
    memory: f64,
    /// Load average of the last minute.
    load: f64,
    /// Percent of all cores that were in use when nothing was measured yet.
    busy: f64,
}

fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| path.to_owned())
}

/// (in use, all) of /proc/stat, in ticks of all cores.
fn ticks() -> anyhow::Result<(u64, u64)> {
    let stat = read("/proc/stat")?;
    let line = stat.lines().next().unwrap_or_default();
    let numbers: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .map(str::parse)
        .collect::<Result<_, _>>()
        .context("/proc/stat")?;
    // user, nice, system, idle, iowait, irq, softirq, steal; a guest's time is user time.
    let all: u64 = numbers.iter().take(8).sum();
    let idle: u64 = numbers.iter().skip(3).take(2).sum();
    Ok((all - idle, all))
}

impl Machine {
    /// Looks at this one for a moment.
    pub(crate) fn look() -> anyhow::Result<Self> {
        let (busy, all) = ticks()?;
        wait::pause(LOOK)?;
        let (busy_now, all_now) = ticks()?;
        let (busy, all) = (busy_now - busy, (all_now - all).max(1));
        let value = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key));
            let value = line.and_then(|line| line.split_once(':'));
            value.map_or(String::new(), |(_, value)| value.trim().to_owned())
        };
        let memory = value(&read("/proc/meminfo")?, "MemTotal");
        let memory: f64 = memory.trim_end_matches(" kB").parse().unwrap_or(0.0);
        let load = read("/proc/loadavg")?;
        Ok(Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: value(&read("/proc/cpuinfo")?, "model name"),
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            memory: memory / f64::from(1 << 20),
            load: load.split(' ').next().unwrap_or_default().parse()?,
            busy: busy as f64 / all as f64 * 100.0,
        })
    }

    /// What is to be said where others use it, too.
    pub(crate) fn warning(&self) -> Option<String> {
        (self.busy > IDLE).then(|| {
            format!(
                "NOT IDLE: others use {:.0} % of this machine; what is measured now means little",
                self.busy
            )
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cores,
            kernel,
            memory,
            load,
            busy,
            ..
        } = self;
        let processor = match self.processor.as_str() {
            "" => String::new(),
            name => format!(" ({name})"),
        };
        write!(
            f,
            "{cores} cores{processor}, {memory:.0} GiB, Linux {kernel}; before: load average \
             {load:.2}, {busy:.0} % in use"
        )
    }
}
