//! Programs that look like CNI plugins to who sees only their environment.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Context as _;

use crate::scratch::Scratch;
use crate::{helper, stage};

/// A program with a plugin's variables, which are long: each run of it is an
/// event of more than a KiB. Nobody should believe it: its parent is no
/// container runtime.
#[derive(Debug)]
pub struct Calls {
    folder: Scratch,
}

impl Calls {
    /// Puts the program into a folder of its own.
    pub fn create() -> anyhow::Result<Self> {
        let folder = Scratch::create()?;
        let source = stage::in_path("true").context("no `true`")?;
        fs::copy(source, folder.path().join("plugin"))?;
        Ok(Self { folder })
    }

    fn call(&self) -> anyhow::Result<()> {
        let long = |letter: &str| letter.repeat(190);
        let mut command = Command::new(self.folder.path().join("plugin"));
        command
            .env_clear()
            .env("CNI_COMMAND", "ADD")
            .env("CNI_CONTAINERID", long("c"))
            .env("CNI_NETNS", format!("/{}", long("n")))
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", self.folder.path())
            .env(
                "CNI_ARGS",
                format!("K8S_POD_NAMESPACE={};K8S_POD_NAME={}", long("s"), long("p")),
            );
        let status = helper::spawn_copy(&mut command)?.wait()?;
        anyhow::ensure!(status.success(), "{status}");
        Ok(())
    }

    /// So many of them, as fast as can be.
    pub fn make(&self, count: usize) -> anyhow::Result<()> {
        let next = AtomicUsize::new(0);
        self.both(|| next.fetch_add(1, Ordering::Relaxed) < count)?;
        Ok(())
    }

    /// Until it is told to stop; how many there were.
    pub fn make_until(&self, stop: &AtomicBool) -> anyhow::Result<usize> {
        self.both(|| !stop.load(Ordering::Relaxed))
    }

    /// Two at a time.
    fn both(&self, more: impl Fn() -> bool + Sync) -> anyhow::Result<usize> {
        let calls = || -> anyhow::Result<usize> {
            let mut count = 0;
            while more() {
                self.call()?;
                count += 1;
            }
            Ok(count)
        };
        std::thread::scope(|scope| {
            let all = [(); 2].map(|()| scope.spawn(calls));
            let ends = all.map(|one| match one.join() {
                Ok(end) => end,
                Err(_) => Err(anyhow::anyhow!("panicked")),
            });
            ends.into_iter().sum()
        })
    }
}
