//! What this process asks the API server, and how much it is answered.

use std::sync::LazyLock;

use prometheus_client::metrics::counter::Counter;

static REQUESTS: LazyLock<Counter> = LazyLock::new(Counter::default);
static BYTES: LazyLock<Counter> = LazyLock::new(Counter::default);

/// Requests since the process has started. A watch is one.
pub fn requests() -> Counter {
    REQUESTS.clone()
}

/// Bytes of the answers to them, without headers.
pub fn received() -> Counter {
    BYTES.clone()
}

pub(super) fn asked() {
    REQUESTS.inc();
}

pub(super) fn answered(bytes: usize) {
    BYTES.inc_by(bytes as u64);
}
