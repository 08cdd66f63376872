//! CNI calls as fast as they can be made, by runtimes that the tracer believes:
//! of those that it does not believe it tells but a number.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;

use crate::netns::Netns;
use crate::runtime::Runtime;
use crate::scratch::Scratch;
use crate::stage;

/// A program with a plugin's variables, which are long: each run of it is an
/// event of more than a KiB. It is called to check, which changes nothing.
#[derive(Debug)]
pub struct Calls {
    /// They make one call at a time.
    runtimes: [Mutex<Runtime>; 2],
    folder: Scratch,
    _node: Netns,
}

impl Calls {
    /// Puts the program into a folder of its own, and starts who calls it.
    pub fn create() -> anyhow::Result<Self> {
        let (folder, node) = (Scratch::create()?, Netns::create()?);
        let source = stage::in_path("true").context("no `true`")?;
        fs::copy(source, folder.path().join("plugin"))?;
        let start = |name: &str| {
            let own = folder.path().join(name);
            fs::create_dir(&own)?;
            Runtime::start(&node, &own).map(Mutex::new)
        };
        Ok(Self {
            runtimes: [start("one")?, start("other")?],
            folder,
            _node: node,
        })
    }

    fn call(&self, runtime: &Mutex<Runtime>) -> anyhow::Result<()> {
        let long = |letter: &str| letter.repeat(190);
        let environment = [
            String::from("CNI_COMMAND=CHECK"),
            format!("CNI_CONTAINERID={}", long("c")),
            format!("CNI_NETNS=/{}", long("n")),
            String::from("CNI_IFNAME=eth0"),
            format!("CNI_PATH={}", self.folder.path().display()),
            format!(
                "CNI_ARGS=K8S_POD_NAMESPACE={};K8S_POD_NAME={}",
                long("s"),
                long("p")
            ),
        ];
        let plugin = self.folder.path().join("plugin");
        let mut runtime = runtime.lock().unwrap_or_else(PoisonError::into_inner);
        let run = runtime.run_exactly(&plugin, &environment)?;
        anyhow::ensure!(run.code == Some(0), "{run:?}");
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
        let calls = |runtime| -> anyhow::Result<usize> {
            let mut count = 0;
            while more() {
                self.call(runtime)?;
                count += 1;
            }
            Ok(count)
        };
        std::thread::scope(|scope| {
            let all = self.runtimes.each_ref();
            let all = all.map(|runtime| scope.spawn(move || calls(runtime)));
            let ends = all.map(|one| match one.join() {
                Ok(end) => end,
                Err(_) => Err(anyhow::anyhow!("panicked")),
            });
            ends.into_iter().sum()
        })
    }
}
