//! A plan as it is read again, and what speaks against carrying it out before
//! the node is even looked at.

use crate::repair::release::OnDisk as _;
use std::{
    collections::BTreeSet,
    fs::{File, Metadata},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
};
use serde_json::Value;

use crate::config::{Applying, LEAST_GRACE, Node};
use event::repair::plan::{Plan, VERSION};
use event::{clock::Timestamp, record::SCHEMA};
use node::root::Root;
use sys::clock::uptime;

/// Largest plan that is read: a /16 full of leaks fits.
const MAX_PLAN: u64 = 256 << 20;
/// The wall clock may have been corrected by so much since.
const CLOCK_ERROR: Duration = Duration::from_secs(1);

/// Why a plan, or a backup, is not carried out. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Others could have written it.
    #[error("{} {why}: make the plan anew, as root and where nobody else can write", path.display())]
    Untrusted {
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// It is none, or is damaged.
    #[error(
        "{} is no plan, or is damaged: {why}; a plan is what `node-tracer repair --plan FILE` \
         writes, or prints with -o json",
        path.display()
    )]
    NoPlan { path: PathBuf, why: String },
    /// It was written by another version.
    #[error(
        "the plan is of version {found}, and this program carries out version {VERSION}: make the \
         plan with the program that is to carry it out"
    )]
    Version { found: u64 },
    /// No look at a node can have brought it.
    #[error("the plan has been changed in a way that no look at a node gives: {0}; make it anew")]
    Impossible(String),
    /// It is another node's.
    #[error("the plan is of node {planned}, and this is {this}: carry it out there")]
    OtherNode { planned: String, this: String },
    #[error(
        "the node was started again since the plan was made, and nothing that was seen then is \
         so now: make the plan anew"
    )]
    OtherBoot,
    /// The root is another folder.
    #[error(
        "the plan was made for the root {planned}, which is not {}: give the same --root",
        this.display()
    )]
    OtherRoot {
        planned: String,
        /// The one that was given.
        this: PathBuf,
    },
    /// It is too old.
    #[error(
        "the plan is {} old and was valid for {} (--valid-for): make it anew",
        rounded(*age),
        rounded(*valid_for)
    )]
    Expired {
        age: Duration,
        /// How old it may be.
        valid_for: Duration,
    },
    /// It is younger than now.
    #[error(
        "the plan is from the future ({made}, and it is {now}): the clock was set; make it anew"
    )]
    Future { made: Timestamp, now: Timestamp },
    /// It cannot be written.
    #[error(
        "stores of reservations belong to root, and only root may change them: run it with sudo \
         (in a pod: as root, securityContext.privileged)"
    )]
    NotRoot,
    /// The node does not answer.
    #[error("nothing was released: {}", .0.join("; "))]
    Hindered(Vec<String>),
}

fn rounded(time: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(time.as_secs()))
}

/// Reads a plan and refuses what cannot be carried out here and now.
///
/// # Errors
/// See [`Refusal`].
pub(crate) fn load(node: &Node, applying: &Applying) -> Result<Plan, Refusal> {
    let (frame, plan) = parse(&applying.plan, &read(&applying.plan)?)?;
    check(&plan, &frame, node, applying)?;
    Ok(plan)
}

/// What is around a plan's own keys.
#[derive(Debug)]
struct Frame {
    node: String,
}

fn read(path: &Path) -> Result<Vec<u8>, Refusal> {
    let failed = |source| Refusal::Read {
        path: path.to_owned(),
        source,
    };
    let untrusted = |why| Refusal::Untrusted {
        path: path.to_owned(),
        why,
    };
    let file = match own_file(path).map_err(failed)? {
        Ok(file) => file,
        Err(why) => return Err(untrusted(why)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_PLAN)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}

/// Opens a regular file that nobody but root, or who runs this, can have
/// written; what is wrong with any other. Waits for nobody, should it be a FIFO.
pub(crate) fn own_file(path: &Path) -> io::Result<Result<File, &'static str>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
    let file = match openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP) => return Ok(Err("is a symbolic link")),
        // A socket.
        Err(Errno::NXIO) => return Ok(Err("is no regular file")),
        Err(error) => return Err(error.into()),
    };
    let found = file.metadata()?;
    Ok(match () {
        () if !found.is_file() => Err("is no regular file"),
        () => others_cannot_write(&found).map(|()| file),
    })
}

/// Whether nobody but root, or who runs this, can write what is there; why not.
pub(crate) fn others_cannot_write(found: &Metadata) -> Result<(), &'static str> {
    let own = rustix::process::geteuid().as_raw();
    match found.mode() {
        _ if found.uid() != 0 && found.uid() != own => Err("belongs to another user"),
        mode if mode & 0o002 != 0 => Err("can be written by everybody"),
        mode if mode & 0o020 != 0 => Err("can be written by its group"),
        _ => Ok(()),
    }
}

fn parse(path: &Path, bytes: &[u8]) -> Result<(Frame, Plan), Refusal> {
    let no_plan = |why: String| Refusal::NoPlan {
        path: path.to_owned(),
        why,
    };
    let value: Value = serde_json::from_slice(bytes).map_err(|error| no_plan(error.to_string()))?;
    let Value::Object(mut object) = value else {
        return Err(no_plan(String::from("it is no JSON object")));
    };
    let mut take = |key: &str| object.remove(key).unwrap_or_default();
    let (schema, kind) = (take("schema"), take("type"));
    let (node, _time) = (take("node"), take("time"));
    if schema != SCHEMA || kind != "plan" {
        return Err(no_plan(format!("it is of schema {schema} and type {kind}")));
    }
    match object.get("version").and_then(Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        Some(found) => return Err(Refusal::Version { found }),
        None => return Err(no_plan(String::from("it has no version"))),
    }
    let Value::String(node) = node else {
        return Err(no_plan(String::from("it names no node")));
    };
    let plan = serde_json::from_slice(Value::Object(object).to_string().as_bytes());
    let plan = plan.map_err(|error| no_plan(error.to_string()))?;
    Ok((Frame { node }, plan))
}

fn check(plan: &Plan, frame: &Frame, node: &Node, applying: &Applying) -> Result<(), Refusal> {
    if frame.node != node.name {
        return Err(Refusal::OtherNode {
            planned: frame.node.clone(),
            this: node.name.clone(),
        });
    }
    if plan.boot_id != node.boot_id {
        return Err(Refusal::OtherBoot);
    }
    same_root(&plan.root, node)?;
    possible(plan, applying)?;
    in_time(plan, sys::clock::now(), uptime())
}

/// Whether a root is the one that something was made for.
pub(crate) fn same_root(
    planned: &event::repair::plan::RootFolder,
    node: &Node,
) -> Result<(), Refusal> {
    let this = Root::open(&node.root)
        .ok()
        .and_then(|root| root.identity().ok());
    match this == Some((planned.device, planned.inode)) {
        true => Ok(()),
        false => Err(Refusal::OtherRoot {
            planned: planned.path.clone(),
            this: node.root.clone(),
        }),
    }
}

fn possible(plan: &Plan, applying: &Applying) -> Result<(), Refusal> {
    let not = |why: String| Err(Refusal::Impossible(why));
    let [first, second] = plan.observed;
    let valid_for = Duration::from_millis(plan.valid_for_ms);
    if plan.expires != second.plus(valid_for) {
        return not(String::from("expires and valid_for_ms do not fit"));
    }
    if plan.grace() < LEAST_GRACE && !applying.hurried {
        return not(format!("grace_ms is less than {}", LEAST_GRACE.as_millis()));
    }
    if plan.releases.is_empty() {
        return Ok(());
    }
    if second.since(first) < plan.grace() {
        return not(String::from("its two looks are less than the grace apart"));
    }
    if !plan.refused.is_empty() {
        return not(String::from(
            "it has releases, although nothing could be released",
        ));
    }
    let mut paths = BTreeSet::new();
    for release in &plan.releases {
        if let Some(why) = release.impossible() {
            return not(why);
        }
        if !paths.insert(&release.path) {
            return not(format!("{} is in it twice", release.path.display()));
        }
        if first < release.modified.plus(plan.grace()) {
            return not(format!(
                "{} is younger than the grace",
                release.path.display()
            ));
        }
    }
    Ok(())
}

/// By the wall clock, and by the node's own, which nobody sets.
fn in_time(plan: &Plan, now: Timestamp, up: Duration) -> Result<(), Refusal> {
    let made = plan.observed[1];
    let valid_for = Duration::from_millis(plan.valid_for_ms);
    let since = Duration::from_millis(plan.uptime_ms);
    if now.plus(CLOCK_ERROR) < made || up < since {
        return Err(Refusal::Future { made, now });
    }
    let age = now.since(made).max(up.saturating_sub(since));
    if age > valid_for {
        return Err(Refusal::Expired { age, valid_for });
    }
    Ok(())
}

/// A plan of chance: what is possible is in a store, and the plan is the same
/// when it is written again.
#[cfg(feature = "testing")]
pub fn fuzz(data: &[u8]) {
    let Ok((_, plan)) = parse(Path::new("plan.json"), data) else {
        return;
    };
    let text = serde_json::to_string(&plan).expect("a plan is written");
    assert_eq!(
        serde_json::from_str::<Plan>(&text).ok().as_ref(),
        Some(&plan)
    );
    for release in &plan.releases {
        if release.impossible().is_none() {
            assert!(release.path.starts_with(&release.store) && release.path.is_absolute());
            assert_eq!(release.size, release.content.len() as u64);
        }
    }
    let _ = in_time(
        &plan,
        plan.observed[1],
        Duration::from_millis(plan.uptime_ms),
    );
}

#[cfg(test)]
mod tests;
