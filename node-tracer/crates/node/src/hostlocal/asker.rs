//! Asks the stores without waiting long for them: a folder of theirs can be on a
//! disk that hangs (NFS, FUSE), and who asks has more to do.
//!
//! Each question has a thread that can be left behind. Once there was no answer,
//! the stores are left alone: for as long as that thread hangs, and for some
//! time after. A disk that hangs thus costs one wait and one thread, however
//! often is asked, and one that is only slow costs a wait now and then.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Lookup, Stores};
use crate::{
    cni::Configuration,
    procfs::{Bounded, NoAnswer},
};
use event::fault;

/// How long one address may take; a healthy store takes well below a
/// millisecond.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long the first look at the configuration and the folders may take, which
/// nothing else waits for yet.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);
/// How long the stores are left alone after that.
const REST: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Asker {
    stores: Arc<Stores>,
    /// Of these stores alone: what else hangs says nothing about them.
    reads: Bounded,
    silence: Option<Silence>,
    rest: Duration,
}

/// The stores do not answer.
#[derive(Debug)]
struct Silence {
    /// The same until they answer, so that it is told once.
    why: String,
    /// They are not asked before.
    until: Instant,
}

impl Asker {
    pub fn new(stores: Stores) -> Self {
        Self {
            stores: Arc::new(stores),
            reads: Bounded::default(),
            silence: None,
            rest: REST,
        }
    }

    /// Who has reserved an address.
    ///
    /// # Errors
    /// The stores do not answer, and why.
    pub fn holder(&mut self, address: IpAddr) -> Result<Lookup, String> {
        self.ask(PATIENCE, move |stores| stores.holder(address))
    }

    /// The configuration, and whether there is neither that nor a folder with
    /// reservations.
    ///
    /// # Errors
    /// The stores do not answer, and why.
    pub fn overview(&mut self) -> Result<(bool, Arc<Configuration>), String> {
        self.ask(FIRST_PATIENCE, |stores| {
            (stores.is_bare(), stores.configuration())
        })
    }

    fn ask<T, F>(&mut self, patience: Duration, read: F) -> Result<T, String>
    where
        T: Send + 'static,
        F: FnOnce(&Stores) -> T + Send + 'static,
    {
        if let Some(silence) = &self.silence
            && (self.reads.abandoned() > 0 || Instant::now() < silence.until)
        {
            return Err(silence.why.clone());
        }
        let stores = Arc::clone(&self.stores);
        match self.reads.read(patience, move || read(&stores)) {
            Ok(answer) => {
                self.silence = None;
                Ok(answer)
            }
            Err(error) => Err(self.fall_silent(&error)),
        }
    }

    fn fall_silent(&mut self, error: &NoAnswer) -> String {
        let why = format!("the reservations of host-local: {}", fault::chain(error));
        self.silence = Some(Silence {
            why: why.clone(),
            until: Instant::now() + self.rest,
        });
        why
    }

    /// Has the stores hang, of which nothing was asked yet, until what is
    /// returned is dropped; then they are not left alone any longer.
    #[cfg(any(test, feature = "testing"))]
    pub fn hang(&mut self) -> std::sync::mpsc::Sender<()> {
        use std::{sync::mpsc, thread};

        self.rest = Duration::ZERO;
        let (release, wait) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel::<()>();
        let stores = Arc::clone(&self.stores);
        // Whoever else wants the configuration waits for this.
        thread::spawn(move || {
            let _config = stores.config.lock();
            drop(begun);
            let _ = wait.recv();
        });
        let _ = begins.recv();
        release
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(20);

    fn asker() -> (tempfile::TempDir, Asker) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("var/lib/cni/networks/pods");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("10.0.0.5"), "aaa").unwrap();
        let asker = Asker::new(Stores::discover(root.path()).unwrap());
        (root, asker)
    }

    fn holder(asker: &mut Asker) -> Result<Option<String>, String> {
        let lookup = asker.holder("10.0.0.5".parse().unwrap())?;
        Ok(lookup.holder.map(|holder| holder.container_id))
    }

    /// Asks until there is an answer.
    fn wait_for_answer(asker: &mut Asker) -> Option<String> {
        let started = Instant::now();
        while started.elapsed() < LONG {
            if let Ok(answer) = holder(asker) {
                return answer;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no answer in 20 s");
    }

    #[test]
    fn stores_that_hang_cost_one_wait_and_one_thread_and_are_asked_again_once_they_answer() {
        let (_root, mut asker) = asker();
        let release = asker.hang();
        let first = holder(&mut asker).unwrap_err();
        assert!(first.contains("no answer within 250 ms"), "{first}");
        let started = Instant::now();
        for _ in 0..200 {
            assert_eq!(holder(&mut asker).unwrap_err(), first);
        }
        assert_eq!(asker.overview().unwrap_err(), first);
        assert!(started.elapsed() < 40 * PATIENCE, "each has waited");
        assert_eq!(asker.reads.abandoned(), 1);
        drop(release);
        assert_eq!(wait_for_answer(&mut asker).as_deref(), Some("aaa"));
        assert_eq!(asker.reads.abandoned(), 0);
    }

    #[test]
    fn stores_that_are_slow_are_left_alone_for_some_time() {
        let (_root, mut asker) = asker();
        asker.rest = LONG;
        let slow = asker.ask(SOON, |_| std::thread::sleep(10 * SOON));
        let why = slow.unwrap_err();
        let started = Instant::now();
        while asker.reads.abandoned() > 0 && started.elapsed() < LONG {
            std::thread::sleep(SOON);
        }
        assert_eq!(holder(&mut asker).unwrap_err(), why);
        if let Some(silence) = &mut asker.silence {
            silence.until = Instant::now();
        }
        assert_eq!(wait_for_answer(&mut asker).as_deref(), Some("aaa"));
        assert!(asker.silence.is_none());
    }

    #[test]
    fn the_overview_is_of_the_configuration_and_the_folders() {
        let (_root, mut asker) = asker();
        let (bare, config) = asker.overview().unwrap();
        assert!(!bare && config.networks.is_empty());
        let root = tempfile::tempdir().unwrap();
        let mut asker = Asker::new(Stores::discover(root.path()).unwrap());
        assert!(asker.overview().unwrap().0);
    }
}
