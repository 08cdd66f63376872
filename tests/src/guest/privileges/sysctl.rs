//! Settings of the kernel, put back afterwards.

use std::fs;

use anyhow::Context as _;

#[derive(Debug, Default)]
pub(super) struct Sysctls(Vec<(String, String)>);

impl Sysctls {
    /// Sets these (`kernel/kptr_restrict`).
    pub(super) fn set(wanted: &[(&str, &str)]) -> anyhow::Result<Self> {
        let mut before = Self::default();
        for (name, value) in wanted {
            let path = format!("/proc/sys/{name}");
            let was = fs::read_to_string(&path).with_context(|| path.clone())?;
            fs::write(&path, value).with_context(|| format!("{path}: {value}"))?;
            before.0.push((path, was));
        }
        Ok(before)
    }
}

impl Drop for Sysctls {
    fn drop(&mut self) {
        for (path, was) in self.0.drain(..).rev() {
            // kernel.unprivileged_bpf_disabled stays at 1 for good.
            if let Err(error) = fs::write(&path, was.trim())
                && was.trim() != "1"
            {
                eprintln!("guest: {path}: {error}");
            }
        }
    }
}
