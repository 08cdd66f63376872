//! What the API server streams, and kubeconfigs, of chance.

use super::{error, kubeconfig, watch};

/// A watch's lines, and a kubeconfig: what is said of them is short and acts on
/// no terminal.
pub fn fuzz(data: &[u8]) {
    for line in data.split(|byte| *byte == b'\n') {
        watch::fuzz(line);
    }
    kubeconfig::fuzz(data);
    let text = String::from_utf8_lossy(data);
    for (said, most) in [(error::words(&text), 241), (error::quoted(&text), 64 * 10)] {
        assert!(
            said.chars().count() <= most && !said.contains(char::is_control),
            "{said:?}"
        );
    }
}
