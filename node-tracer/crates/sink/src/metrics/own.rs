//! The tracer's own memory, processor time and start, read when asked for.

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};

use event::clock::Timestamp;

/// The process, since a moment.
#[derive(Debug)]
pub(super) struct Process {
    started: Timestamp,
}

impl Process {
    /// Of this process, from now on.
    pub(super) fn new() -> Self {
        Self {
            started: sys::clock::now(),
        }
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let started = ConstGauge::new(self.started.seconds());
        let metric = encoder.encode_descriptor(
            "process_start_time",
            "When it was started, since 1970",
            Some(&Unit::Seconds),
            started.metric_type(),
        )?;
        started.encode(metric)?;
        // What cannot be read is not told.
        let Ok(stat) = procfs::process::Process::myself().and_then(|own| own.stat()) else {
            return Ok(());
        };
        let bytes = i64::try_from(stat.rss.saturating_mul(procfs::page_size())).unwrap_or(i64::MAX);
        let resident = ConstGauge::new(bytes);
        let metric = encoder.encode_descriptor(
            "process_resident_memory",
            "Memory that it has in use",
            Some(&Unit::Bytes),
            resident.metric_type(),
        )?;
        resident.encode(metric)?;
        let ticks = stat.utime.saturating_add(stat.stime) as f64;
        let used = ConstCounter::new(ticks / procfs::ticks_per_second() as f64);
        let metric = encoder.encode_descriptor(
            "process_cpu",
            "Processor time that it has used",
            Some(&Unit::Seconds),
            used.metric_type(),
        )?;
        used.encode(metric)
    }
}
