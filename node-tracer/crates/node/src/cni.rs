//! CNI's own state: which pod networks the node's configuration names, and
//! which attachments libcni remembers.
//!
//! Read-only and bounded in size; a caller that must not wait for a hanging
//! file system runs these in a thread that it can leave behind.

pub use self::{cache::attachments, config::Configuration};

mod cache;
mod config;
mod flannel;
mod ranges;
pub mod running;
#[cfg(test)]
mod tests;

/// host-local's `dataDir` if the configuration has none.
pub const DEFAULT_DATA_DIR: &str = "/var/lib/cni/networks";

/// Entries of a folder that are looked at; a /16 full of reservations fits.
pub const MAX_ENTRIES: usize = 65_536;

/// What the CNI specification allows in the name of a network and in a
/// container ID. Longer ones than a file name can be are not allowed here.
pub fn is_name(text: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'-');
    text.len() <= 255
        && text.bytes().all(allowed)
        && text
            .as_bytes()
            .first()
            .is_some_and(u8::is_ascii_alphanumeric)
}

/// What the kernel, and libcni, allow as the name of an interface.
pub fn is_ifname(text: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_graphic() && !matches!(c, b'/' | b':');
    (1..16).contains(&text.len()) && text.bytes().all(allowed) && !matches!(text, "." | "..")
}

/// A file of libcni's cache.
#[cfg(feature = "testing")]
pub fn fuzz_cache(data: &[u8]) {
    cache::fuzz(data);
}

#[cfg(feature = "testing")]
pub fn fuzz_config(data: &[u8]) {
    config::fuzz(data);
}
