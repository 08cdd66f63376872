use super::*;

/// A proc file system with the given files below `proc`.
fn fixture(files: &[(&str, &str)]) -> (tempfile::TempDir, Procfs) {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = root.path().join("proc").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let procfs = Procfs::new(root.path(), Bounded::default());
    (root, procfs)
}

#[test]
fn a_stack_is_its_functions_innermost_first() {
    let (_root, procfs) = fixture(&[(
        "7/stack",
        "[<0>] request_wait_answer+0x12a/0x210 [fuse]\n\
         [<0>] __x64_sys_read+0x1f/0x30\n\
         [<ffffffff81c000ca>] entry_SYSCALL_64_after_hwframe+0x6e/0xd8\n\
         [<ffffffffffffffff>] 0xffffffffffffffff\n",
    )]);
    assert_eq!(
        procfs.kernel_stack(7).unwrap(),
        [
            "request_wait_answer+0x12a",
            "__x64_sys_read+0x1f",
            "entry_SYSCALL_64_after_hwframe+0x6e"
        ]
    );
}

#[test]
fn a_task_that_is_awake_has_no_wait_channel() {
    let (_root, procfs) = fixture(&[("7/wchan", "0"), ("8/wchan", "request_wait_answer")]);
    assert_eq!(procfs.wchan(7).unwrap(), None);
    assert_eq!(
        procfs.wchan(8).unwrap().as_deref(),
        Some("request_wait_answer")
    );
}

#[test]
fn a_task_that_is_gone_is_no_error() {
    let (_root, procfs) = fixture(&[]);
    assert_eq!(procfs.task_owners(vec![7]), [Owner::Unknown]);
    assert_eq!(procfs.wchan(7).unwrap(), None);
    assert!(procfs.kernel_stack(7).unwrap().is_empty());
    assert_eq!(procfs.exe_name(7).unwrap(), None);
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_with_its_path() {
    let (root, procfs) = fixture(&[]);
    fs::create_dir_all(root.path().join("proc/7/wchan")).unwrap();
    let error = procfs.wchan(7).unwrap_err();
    assert!(matches!(error, ProcfsError::Read { .. }));
    assert!(error.to_string().ends_with("proc/7/wchan"), "{error}");
}

#[test]
fn the_owner_is_read_from_the_tasks_cgroups() {
    let uid = "2d3b9f5e-7a07-4c1b-9a51-0c6f2e8a4b11";
    let text = format!("1:name=systemd:/kubepods/pod{uid}\n0::/\n");
    let first = ("1/cgroup", "1:name=systemd:/init.scope\n0::/\n");
    let (_root, procfs) = fixture(&[first, ("7/cgroup", &text), ("8/cgroup", "0::/\n")]);
    let owners = procfs.task_owners(vec![8, 7, 9]);
    assert!(matches!(
        owners.as_slice(),
        [Owner::NoPod, Owner::Pod(owner), Owner::Unknown] if owner.pod_uid == uid
    ));
}

#[test]
fn a_pods_cgroup_that_somebody_else_than_root_has_made_is_no_pods() {
    let uid = "2d3b9f5e-7a07-4c1b-9a51-0c6f2e8a4b11";
    let cgroup = format!("/lab/kubepods/pod{uid}");
    let text = format!("0::{cgroup}/{}\n", "0".repeat(64));
    let (root, procfs) = fixture(&[("1/cgroup", "0::/\n"), ("7/cgroup", &text)]);
    let by_name_alone = || match &procfs.task_owners(vec![7])[..] {
        [Owner::Pod(owner)] => Some(owner.by_name_alone),
        _ => None,
    };
    assert_eq!(by_name_alone(), Some(true), "nobody has made it");
    let mount = root.path().join("sys/fs/cgroup");
    fs::create_dir_all(mount.join(&cgroup[1..])).unwrap();
    assert_eq!(by_name_alone(), Some(false));
    // Without root there is nobody else.
    if std::os::unix::fs::chown(mount.join("lab"), Some(65_534), None).is_ok() {
        assert_eq!(by_name_alone(), None);
    }
}

/// As a tracer with a cgroup namespace of its own sees the node, by kubelet's
/// cgroupfs driver. `own` is the folder that lists the tracer's process.
fn from_a_container(own: Option<&str>) -> (tempfile::TempDir, Procfs) {
    let (root, procfs) = fixture(&[
        ("1/cgroup", "0::/../../../../init.scope\n"),
        ("self/cgroup", "0::/\n"),
        ("7/cgroup", "0::/../../pod7/c\n"),
        ("8/cgroup", "0::/../../../../system.slice/web.service\n"),
    ]);
    let write = |folder: &str, pid: u32| {
        let folder = root.path().join("sys/fs/cgroup").join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("cgroup.procs"), format!("0\n{pid}\n")).unwrap();
    };
    write("", 1);
    write("kubepods/burstable/pod7/c", 7);
    if let Some(own) = own {
        write(own, std::process::id());
    }
    (root, procfs)
}

#[test]
fn from_a_cgroup_namespace_of_its_own_the_tracer_finds_its_place_on_the_node() {
    let (_root, procfs) = from_a_container(Some("kubepods/burstable/podtracer/c"));
    assert_eq!(procfs.place_unknown(), None);
    let (owners, missed) = procfs.owners_and_missed(vec![7, 8]);
    assert!(matches!(
        owners.as_slice(),
        [Owner::Pod(owner), Owner::NoPod] if owner.pod_uid == "7"
    ));
    assert_eq!(missed, Missed::default());
}

#[test]
fn without_the_nodes_cgroups_a_task_beside_the_tracer_is_not_called_no_pods() {
    // Nowhere; or where it cannot be, as process 1 would be outside the node.
    for own in [None, Some("kubepods/c")] {
        let (_root, procfs) = from_a_container(own);
        let why = procfs.place_unknown().unwrap();
        assert!(why.contains("/sys/fs/cgroup"), "{why}");
        let (owners, missed) = procfs.owners_and_missed(vec![7, 8]);
        assert_eq!(owners, [Owner::Unknown, Owner::NoPod]);
        let missed = missed.say(|n| format!("the pods of {n} processes"));
        let why = "where their cgroups are on the node is not known";
        assert_eq!(missed, Some(format!("the pods of 1 processes ({why})")));
    }
}

#[test]
fn a_read_that_hangs_ends_at_its_time_out() {
    let (root, mut procfs) = fixture(&[("7/stat", "")]);
    procfs.patience = Duration::from_millis(20);
    // Opening a FIFO waits for a writer, who never comes in time.
    let path = root.path().join("proc/7/wchan");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let error = procfs.wchan(7).unwrap_err();
    assert!(matches!(
        error,
        ProcfsError::NoAnswer {
            source: NoAnswer::TimedOut { .. },
            ..
        }
    ));
    assert_eq!(procfs.bounded.abandoned(), 1);
    fs::write(path, "").unwrap();
}

#[test]
fn the_name_of_a_program_is_that_of_its_file_also_once_it_is_deleted() {
    let (root, procfs) = fixture(&[("7/stat", ""), ("8/stat", "")]);
    let link = |target, pid| {
        let path = root.path().join(format!("proc/{pid}/exe"));
        std::os::unix::fs::symlink(target, path).unwrap();
    };
    link("/usr/local/bin/my app", 7);
    link("/opt/cni/bin/terway (deleted)", 8);
    assert_eq!(procfs.exe_name(7).unwrap().as_deref(), Some("my app"));
    assert_eq!(procfs.exe_name(8).unwrap().as_deref(), Some("terway"));
}

#[test]
fn a_program_that_a_user_has_started_is_not_roots_whoever_it_runs_as() {
    let uids = |real| format!("Name:\tx\nUid:\t{real}\t0\t0\t0\n");
    let (user, system) = (uids(1000), uids(0));
    let (root, procfs) = fixture(&[("7/status", &user), ("8/status", &system), ("9/stat", "")]);
    for pid in [7, 8, 9] {
        let path = root.path().join(format!("proc/{pid}/exe"));
        std::os::unix::fs::symlink("/usr/bin/containerd", path).unwrap();
    }
    let of_root = |pid| procfs.exe_name_of_root(pid).unwrap();
    assert_eq!((of_root(7), of_root(9)), (None, None));
    assert_eq!(of_root(8).as_deref(), Some("containerd"));
}

#[test]
fn the_running_process_finds_itself() {
    let procfs = Procfs::new(Path::new("/"), Bounded::default());
    let pid = std::process::id();
    let exe = std::env::current_exe().unwrap();
    assert_eq!(
        procfs.exe_name(pid).unwrap().as_deref(),
        exe.file_name().unwrap().to_str()
    );
}

#[test]
fn the_initial_user_namespace_is_the_nodes_and_so_is_that_of_its_first_process() {
    let other = |procfs: &Procfs, inode| {
        let users = procfs.host_users();
        users.other(UserNs { inode, uid: 0 }).is_some()
    };
    let (root, procfs) = fixture(&[("1/stat", "")]);
    assert!(!other(&procfs, 0xEFFF_FFFD));
    assert!(
        other(&procfs, 4_026_532_999),
        "not known whose: not the node's"
    );
    let path = root.path().join("proc/1/ns/user");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("user:[4026532999]", path).unwrap();
    assert!(!other(&procfs, 0xEFFF_FFFD));
    assert!(!other(&procfs, 4_026_532_999));
    assert!(other(&procfs, 4_026_533_000));
}

#[test]
fn what_hangs_of_processes_keeps_no_file_of_the_node_from_being_read() {
    let (_root, procfs) = fixture(&[("1/cgroup", "0::/init.scope\n"), ("7/stat", "")]);
    let mut hangs = Vec::new();
    for _ in 0..bounded::MAX_ABANDONED {
        let (end, wait) = std::sync::mpsc::channel::<()>();
        hangs.push(end);
        let read = move || wait.recv().is_ok();
        let hang = procfs.bounded.read(Duration::from_millis(5), read);
        assert!(matches!(hang, Err(NoAnswer::TimedOut { .. })));
    }
    assert!(procfs.wchan(7).is_err(), "there is no reader left for it");
    assert_eq!(procfs.place_unknown(), None);
    assert_eq!(procfs.bounded_reads().read(PATIENCE, || 7).unwrap(), 7);
    assert_eq!(procfs.processes().unwrap(), [1, 7]);
}
