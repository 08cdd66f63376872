//! What leads where is tested on made folders, the whole on the running
//! machine.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::Path,
};

use super::*;
use crate::netlink::{NetlinkError, Way};
use event::{FdHolder, Task, UserNs, forwarding::Forwarding};

fn task(pid: u32, tid: u32, state: char, netns: Option<u32>) -> TaskEntry {
    TaskEntry {
        task: Task {
            pid,
            tid,
            state: Some(state),
            ..Task::default()
        },
        netns,
        kernel: false,
    }
}

fn ways(places: &Places<'_>, inode: u32) -> Vec<String> {
    let procfs = Procfs::new(Path::new("/h"), Bounded::default());
    let targets = places.targets(&procfs, &BTreeSet::new());
    let target = targets.iter().find(|target| target.inode == inode).unwrap();
    let plain = |way: &Way| match way {
        Way::File(path) => path.display().to_string(),
        Way::Mount { root, path } => format!("{} {}", root.display(), path.display()),
        Way::Socket { tid, fd } => format!("socket {tid} {fd}"),
    };
    target.ways.iter().map(plain).collect()
}

fn holder(pid: u32, fd: u32) -> FdHolder {
    FdHolder {
        pid,
        fd,
        comm: None,
    }
}

#[test]
fn a_namespace_is_reached_by_few_of_its_tasks_then_by_what_else_holds_it() {
    let tasks = [
        task(7, 7, 'Z', None),
        task(7, 9, 'D', Some(100)),
        task(10, 10, 'S', Some(100)),
        task(11, 11, 'S', Some(100)),
        task(12, 12, 'S', Some(100)),
    ];
    let mut places = Places::of(&tasks);
    places.fds.insert(200, vec![holder(7, 3), holder(10, 4)]);
    places.sockets.insert(300, vec![holder(10, 5)]);
    assert_eq!(
        ways(&places, 100),
        ["/h/proc/9/ns/net", "/h/proc/10/ns/net", "/h/proc/11/ns/net"]
    );
    assert_eq!(
        ways(&places, 200),
        ["/h/proc/9/fd/3", "/h/proc/10/fd/4"],
        "through the thread that lives"
    );
    assert_eq!(ways(&places, 300), ["socket 10 5"]);
    assert_eq!(places.known(), BTreeSet::from([100, 200, 300]));
}

#[test]
fn a_process_is_the_hosts_if_any_of_its_threads_is() {
    let kernel = TaskEntry {
        kernel: true,
        ..task(2, 2, 'S', Some(5))
    };
    let tasks = [
        kernel,
        task(7, 7, 'Z', None),
        task(7, 9, 'S', Some(5)),
        task(8, 8, 'S', Some(100)),
        task(9, 9, 'Z', None),
    ];
    let processes = places::processes(&tasks, &BTreeSet::from([5]));
    assert_eq!(processes, BTreeMap::from([(7, true), (8, false)]));
}

#[test]
fn what_cannot_be_entered_is_said_and_hides_nothing() {
    let root = tempfile::tempdir().unwrap();
    let process = |pid: u32, comm: &str, netns: u32| {
        let folder = root.path().join(format!("proc/{pid}"));
        fs::create_dir_all(folder.join("ns")).unwrap();
        let zeros = " 0".repeat(30);
        let stat = format!("{pid} ({comm}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711{zeros}\n");
        fs::write(folder.join("stat"), stat).unwrap();
        // A link that leads nowhere: by now the process is gone.
        symlink(format!("net:[{netns}]"), folder.join("ns/net")).unwrap();
    };
    process(1, "systemd", 5);
    process(70, "containerd-shim", 5);
    process(80, "app", 100);
    let procfs = Procfs::new(root.path(), Bounded::default());
    let found = survey(&procfs, Duration::from_secs(5), None, None).unwrap();
    assert_eq!((found.tasks, found.netns), (3, 0));
    assert!(found.events.is_empty(), "namespaces that end are ordinary");
    assert_eq!(found.shims, [70]);
    let said = |what: &str| found.unread.iter().any(|text| text.contains(what));
    assert!(said("PID namespace"), "{:?}", found.unread);
}

fn told(failed: Result<Option<Visit>, NetlinkError>) -> Survey {
    let tasks = [task(7, 7, 'S', Some(100))];
    let places = Places::of(&tasks);
    let procfs = Procfs::new(Path::new("/h"), Bounded::default());
    let holders = Holders {
        owners: Owners::look_up(&procfs, [].into_iter()).0,
        places: &places,
        clock: KernelClock::now(),
    };
    let (inode, cookie) = (100, None);
    let blocked = What::TaskBlocked {
        task: Task::default(),
        since: sys::clock::now(),
        found: false,
        netns: Some(Netns { inode, cookie }),
        wchan: None,
        stack: Vec::new(),
        killable: None,
        sigkill_pending: None,
        fuse: Vec::new(),
    };
    let event = Event {
        time: sys::clock::now(),
        what: blocked,
    };
    let mut found = Survey::default();
    let host = Host {
        all: BTreeSet::new(),
        node: None,
    };
    let host = (&host, procfs.host_users());
    found.tell_all(vec![(100, failed)], host, &holders, vec![event]);
    found
}

fn empty_visit() -> Visit {
    Visit {
        netns: Netns {
            inode: 100,
            cookie: Some(9),
        },
        user_ns: None,
        addresses: Vec::new(),
        devices: Vec::new(),
        routes: Vec::new(),
        neighbours: Vec::new(),
        home_nsid: None,
        forwarding: Forwarding::default(),
        addresses_cut: false,
        cut: false,
    }
}

#[test]
fn a_namespace_with_more_addresses_than_are_kept_is_not_read_whole_unless_a_users() {
    let cut = |user_ns| {
        let visit = Visit {
            user_ns,
            addresses_cut: true,
            ..empty_visit()
        };
        let found = told(Ok(Some(visit)));
        assert!(found.read.contains(&100) && found.unread.len() == 1);
        found.addresses_cut.contains(&100)
    };
    assert!(cut(None));
    let (inode, uid) = (7, 1000);
    assert!(!cut(Some(UserNs { inode, uid })));
}

#[test]
fn a_namespace_that_cannot_be_read_is_told_with_its_holders() {
    let path = Path::new("/proc/7/ns/net").to_owned();
    let found = told(Err(NetlinkError::NotTried { path }));
    let netns = Netns {
        inode: 100,
        cookie: None,
    };
    let events: Vec<&What> = found.events.iter().map(|event| &event.what).collect();
    assert!(
        matches!(
            events.as_slice(),
            [
                What::NetnsFound { netns: found, host: false, node: false, user_ns: None },
                What::NetnsHolders { netns: held, task_count: 1, .. },
                What::TaskBlocked { netns: Some(blocked), .. },
            ] if [found, held, blocked] == [&netns; 3]
        ),
        "{events:?}"
    );
    assert_eq!((found.netns, found.unread.len()), (0, 1));
    assert!(found.unread[0].contains("in 1 network namespaces"));
}

#[test]
fn a_users_namespace_is_told_as_such_where_the_hosts_own_was_not_read() {
    let user_ns = |inode| {
        let found = told(Ok(Some(Visit {
            user_ns: Some(UserNs { inode, uid: 1_000 }),
            ..empty_visit()
        })));
        match found.events[0].what {
            What::NetnsFound { user_ns, .. } => user_ns.map(|user_ns| user_ns.inode),
            ref other => panic!("{other:?}"),
        }
    };
    assert_eq!(user_ns(9), Some(9));
    assert_eq!(user_ns(0xEFFF_FFFD), None);
}

#[test]
fn a_stuck_task_gets_the_cookie_of_the_namespace_that_was_read() {
    let visit = empty_visit();
    let netns = visit.netns;
    let found = told(Ok(Some(visit)));
    let last = &found.events.last().unwrap().what;
    assert!(matches!(last, What::TaskBlocked { netns: Some(found), .. } if *found == netns));
    assert!(found.unread.is_empty());
}

#[test]
fn silence_of_many_namespaces_is_said_once() {
    let mut failures = Failures::default();
    for inode in 0..2000 {
        let path = Path::new("/n").to_owned();
        failures.add(inode, &NetlinkError::NotTried { path });
        let (path, source) = (Path::new("/n").to_owned(), std::io::ErrorKind::Other.into());
        failures.add(inode, &NetlinkError::Enter { path, source });
    }
    let said = failures.problems();
    assert_eq!(said.len(), 10, "{said:?}");
    assert!(said[0].contains("in 2000 network"), "{said:?}");
    assert_eq!(said[9], "1992 more network namespaces");
}

/// A made process that sleeps uninterruptibly since nobody knows when.
fn asleep(root: &Path, pid: u32) {
    let folder = root.join(format!("proc/{pid}"));
    fs::create_dir_all(folder.join("ns")).unwrap();
    let zeros = " 0".repeat(30);
    let stat = format!("{pid} (app) D 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711{zeros}\n");
    fs::write(folder.join("stat"), stat).unwrap();
    let status = "voluntary_ctxt_switches:\t1\n";
    fs::write(folder.join("status"), status).unwrap();
    symlink("net:[100]", folder.join("ns/net")).unwrap();
}

#[test]
fn a_sleep_without_a_beginning_is_a_doubt_and_no_finding() {
    let root = tempfile::tempdir().unwrap();
    asleep(root.path(), 80);
    let procfs = Procfs::new(root.path(), Bounded::default());
    let found = survey(&procfs, Duration::from_secs(5), None, None).unwrap();
    assert!(found.events.is_empty(), "{:?}", found.events);
    assert!(!found.stalls_whole && !found.nets_whole);
    let missed = &found.nets_missed;
    let said = |text: &String| text.contains("PID namespace");
    assert!(missed.iter().any(said), "{missed:?}");
    assert_eq!(found.seen, BTreeSet::from([100]), "although it is gone");
    let said = |text: &&String| text.contains("since when task 80");
    assert_eq!(found.unread.iter().filter(said).count(), 1);

    let found = survey(&procfs, Duration::from_millis(50), None, None).unwrap();
    assert!(found.stalls_whole);
    let blocked = |event: &Event| matches!(event.what, What::TaskBlocked { found: true, .. });
    assert!(matches!(found.events.as_slice(), [event] if blocked(event)));
}

#[test]
fn a_search_for_who_holds_a_mounted_namespace_that_breaks_off_is_said() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("proc/8")).unwrap();
    // No folder, as if it were guarded.
    fs::write(root.path().join("proc/8/fd"), "").unwrap();
    let procfs = Procfs::new(root.path(), Bounded::default());
    let is_said = |pinned: BTreeSet<u32>| {
        let stray = Stray::find(&procfs, &BTreeMap::new(), &BTreeSet::new(), &pinned);
        let mut unread = stray.unread.iter();
        unread.any(|text| text.starts_with("descriptors of mounted network namespaces"))
    };
    assert!(is_said(BTreeSet::from([100])));
    assert!(!is_said(BTreeSet::new()), "there is none");
    fs::remove_file(root.path().join("proc/8/fd")).unwrap();
    assert!(!is_said(BTreeSet::from([100])), "it has ended");
}

#[test]
fn owners_that_cannot_be_read_are_said() {
    let root = tempfile::tempdir().unwrap();
    asleep(root.path(), 80);
    fs::create_dir(root.path().join("proc/80/cgroup")).unwrap();
    let procfs = Procfs::new(root.path(), Bounded::default());
    let found = survey(&procfs, Duration::from_secs(3600), None, None).unwrap();
    let said = |text: &String| text.starts_with("the pods of 1 processes");
    assert!(found.unread.iter().any(said), "{:?}", found.unread);
}

#[test]
fn the_running_machine_is_looked_at() {
    let procfs = Procfs::new(Path::new("/"), Bounded::default());
    let found = survey(&procfs, Duration::from_secs(3600), None, None).unwrap();
    assert!(found.tasks > 0);
    let own = fs::metadata("/proc/self/ns/net").unwrap().ino() as u32;
    let is_own = |what: &What| matches!(what, What::NetnsFound { netns, .. } if netns.inode == own);
    if found.events.iter().any(|event| is_own(&event.what)) {
        assert!(found.netns > 0);
    } else {
        assert!(!rustix::process::geteuid().is_root(), "{:?}", found.unread);
        assert!(!found.unread.is_empty(), "without rights this is said");
    }
}

#[test]
fn of_many_errors_of_a_kind_a_few_are_told_and_the_rest_counted() {
    let all = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
    assert_eq!(some(all(3).into_iter()), all(3));
    let told = some(all(90).into_iter());
    assert_eq!(told[..3], all(3));
    assert_eq!(told[3..], ["87 more of this kind"]);
}
