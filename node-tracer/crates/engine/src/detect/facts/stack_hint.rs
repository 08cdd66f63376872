//! What a task waits for, by the functions on its kernel stack, in words for
//! the engineer who has to end the wait.
//!
//! The first row of [`HINTS`] that any frame matches counts, so what says more
//! stands above what says less: a FUSE wait inside a page fault is a FUSE wait.

use event::sleep::{self, has_any};

/// A plain-language reading of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// What the task does: completes "the task ...".
    pub waits: &'static str,
    /// How that ends, in a sentence.
    pub ends: &'static str,
    /// Commands that show what is in the way and then end it, each with what it
    /// is good for or costs; the dangerous ones last. `TID` stands for the task's
    /// thread ID, other words in capitals are to be filled in.
    pub commands: &'static [(&'static str, &'static str)],
}

/// Shows the FUSE connections where the host does not. It is short enough for a
/// block of 100 columns.
pub(in crate::detect) const MOUNT_CONTROL: &str =
    "findmnt /sys/fs/fuse/connections || mount -t fusectl none /sys/fs/fuse/connections";

/// The disks, and what the kernel says of them.
const DISKS: &[(&str, &str)] = &[
    ("dmesg -T | tail -n 50", "errors of disks and links"),
    ("iostat -x 1 3", "which disk does not answer"),
];

/// Function names (exact, or a beginning if they end in `_`), then the hint.
const HINTS: &[(&[&str], Hint)] = &[
    (
        &["cleanup_net"],
        Hint {
            waits: "takes network namespaces down for the kernel",
            ends: "killing pods does not help; see the netns-teardown-stall finding",
            commands: &[],
        },
    ),
    (
        &["copy_net_ns", "setup_net"],
        Hint {
            waits: "waits to create a network namespace, behind one that is being taken down",
            ends: "it goes on when that teardown does",
            commands: &[],
        },
    ),
    (
        &["virtio_fs_"],
        Hint {
            waits: "waits for virtiofs, that is for the host of this virtual machine",
            ends: "have virtiofsd checked on this machine's host",
            commands: &[],
        },
    ),
    (
        sleep::FUSE,
        Hint {
            waits: "waits for a FUSE daemon (JuiceFS, s3fs, CSI driver, lxcfs, ...)",
            ends: "restart the daemon of its FUSE mount; if that does not end the wait, abort the mount",
            commands: &[
                (
                    "grep ' fuse' /proc/TID/mountinfo",
                    "its FUSE mounts, field 3 is 0:MINOR, field 5 the mount point",
                ),
                (MOUNT_CONTROL, "shows the FUSE connections, needed once"),
                (
                    "echo 1 > /sys/fs/fuse/connections/MINOR/abort",
                    "fill in MINOR, all users of the mount get I/O errors",
                ),
            ],
        },
    ),
    (
        &["rpc_", "nfs_", "nfs3_", "nfs4_", "nlmclnt_"],
        Hint {
            waits: "waits for an NFS server",
            ends: "it goes on when the server answers",
            commands: &[
                (
                    "grep ' nfs' /proc/TID/mountinfo",
                    "its NFS mounts and servers",
                ),
                ("rpcinfo -p SERVER", "fill in SERVER, it must answer"),
                (
                    "umount -f MOUNTPOINT",
                    "fill in MOUNTPOINT, all its users get I/O errors",
                ),
            ],
        },
    ),
    (
        &["cifs_", "smb2_", "smb3_", "SMB2_"],
        Hint {
            waits: "waits for an SMB server",
            ends: "it goes on when the server answers",
            commands: &[(
                "grep ' cifs' /proc/TID/mountinfo",
                "its SMB mounts and servers",
            )],
        },
    ),
    (
        &["ceph_", "rbd_"],
        Hint {
            waits: "waits for Ceph",
            ends: "ask the storage team whether the cluster answers this node",
            commands: &[(
                "grep -r . /sys/kernel/debug/ceph/*/osdc",
                "requests without an answer",
            )],
        },
    ),
    (
        &["p9_client_rpc", "v9fs_"],
        Hint {
            waits: "waits for a 9p server",
            ends: "it goes on when the server answers",
            commands: &[(
                "grep ' 9p' /proc/TID/mountinfo",
                "its 9p mounts and servers",
            )],
        },
    ),
    (
        &["nbd_"],
        Hint {
            waits: "waits for a network block device (nbd)",
            ends: "it goes on when the server answers",
            commands: &[
                ("grep nbd /proc/TID/mountinfo", "its nbd devices"),
                (
                    "umount -f MOUNTPOINT",
                    "fill in MOUNTPOINT, all its users get I/O errors",
                ),
            ],
        },
    ),
    (
        &["mem_cgroup_oom_synchronize"],
        Hint {
            waits: "waits for memory: its cgroup is at its limit and has the OOM killer turned off",
            ends: "raise memory.limit_in_bytes of its memory cgroup, or end something in it",
            commands: &[("grep memory /proc/TID/cgroup", "its memory cgroup")],
        },
    ),
    (
        &["handle_userfault"],
        Hint {
            waits: "waits for memory that another process delivers (userfaultfd: a virtual machine, a checkpoint being restored)",
            ends: "find the process that has the userfaultfd; once that delivers the memory or ends, the task goes on",
            commands: &[(
                "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -B99 userfaultfd",
                "the process that has it",
            )],
        },
    ),
    (
        &["zap_pid_ns_processes"],
        Hint {
            waits: "is a container's first process and waits for the others in it to end",
            ends: "find the process in it that does not end, and what that one waits for",
            commands: &[
                ("lsns -t pid", "PID namespaces and their first processes"),
                ("ps -eLo pid,tid,stat,wchan:32,comm", "who sleeps where"),
            ],
        },
    ),
    (
        &["do_coredump", "vfs_coredump", "coredump_wait"],
        Hint {
            waits: "writes a core dump",
            ends: "see where core dumps go, and whether that hangs",
            commands: &[("cat /proc/sys/kernel/core_pattern", "where core dumps go")],
        },
    ),
    (
        &[
            "sb_start_write",
            "percpu_rwsem_wait",
            "__percpu_down_read",
            "freeze_super",
        ],
        Hint {
            waits: "waits to write to a file system that is frozen (fsfreeze, a snapshot)",
            ends: "find the backup or snapshot job that froze it, and have that thaw it",
            commands: &[(
                "fsfreeze -u MOUNTPOINT",
                "fill in MOUNTPOINT, the snapshot that is being made is lost",
            )],
        },
    ),
    (
        &["dm_"],
        Hint {
            waits: "waits for a device-mapper device",
            ends: "see whether a device is suspended, and with multipath whether a path is left",
            commands: &[
                ("dmsetup info", "which device is SUSPENDED"),
                (
                    "dmsetup resume DEVICE",
                    "fill in DEVICE, only if nobody works on it",
                ),
            ],
        },
    ),
    (
        &[
            "balance_dirty_pages",
            "wbt_wait",
            "rq_qos_wait",
            "blk_throtl_",
            "rwb_",
        ],
        Hint {
            waits: "is held back because writes to the disk do not keep up",
            ends: "see the disk's load, and io.max of the task's cgroup",
            commands: &[
                ("iostat -x 1 3", "the load of each disk"),
                ("cat /proc/TID/cgroup", "its cgroup"),
            ],
        },
    ),
    (
        &["ovl_"],
        Hint {
            waits: "waits in overlayfs, that is in the file system under the container's image",
            ends: "see whether the disk under the container runtime answers",
            commands: DISKS,
        },
    ),
    (
        &["jbd2_", "ext4_", "xfs_", "btrfs_", "f2fs_"],
        Hint {
            waits: "waits for a local file system's journal or disk",
            ends: "see whether the disk answers, and which task of that file system is stuck longest",
            commands: DISKS,
        },
    ),
    (
        &[
            "submit_bio_wait",
            "bio_await",
            "blk_mq_",
            "blkdev_",
            "io_schedule",
            "scsi_",
            "nvme_",
            "folio_wait_bit_common",
            "wait_on_page_bit",
            "__wait_on_buffer",
            "do_swap_page",
        ],
        Hint {
            waits: "waits for a block device",
            ends: "see which device does not answer",
            commands: DISKS,
        },
    ),
    (
        &["rtnl_lock", "rtnl_lock_killable", "rtnetlink_rcv_msg"],
        Hint {
            waits: "waits for RTNL, the kernel's lock of network configuration",
            ends: "find the task that holds RTNL: its stack has rtnl or unregister_netdevice, and is longer",
            commands: &[(
                "grep -ls -e rtnl -e unregister_netdevice /proc/[0-9]*/task/[0-9]*/stack",
                "who has such a stack",
            )],
        },
    ),
    (
        &[
            "mutex_lock",
            "__mutex_lock",
            "rwsem_down_",
            "down_read",
            "down_write",
            "__down",
        ],
        Hint {
            waits: "waits for a lock that another task holds",
            ends: "find the holder: another stuck task with a longer stack",
            commands: &[(
                "dmesg -T | grep 'blocked by'",
                "the kernel may name the holder",
            )],
        },
    ),
];

/// The reading of a stack, or of the function alone where there is no stack.
pub fn hint(stack: &[String], wchan: Option<&str>) -> Option<Hint> {
    let function: Vec<String> = wchan.into_iter().map(str::to_owned).collect();
    let functions = match stack {
        [] => &function,
        frames => frames,
    };
    HINTS
        .iter()
        .find(|(patterns, _)| has_any(patterns, functions))
        .map(|(_, hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(frames: &[&str]) -> &'static str {
        let stack: Vec<String> = frames
            .iter()
            .map(|frame| format!("{frame}+0x1f/0x80"))
            .collect();
        hint(&stack, None).map_or("unknown", |hint| hint.waits)
    }

    #[test]
    fn what_says_more_counts_more() {
        let fuse = [
            "request_wait_answer",
            "fuse_simple_request",
            "folio_wait_bit_common",
        ];
        assert!(waits(&fuse).contains("FUSE"));
        assert!(waits(&["io_schedule", "rpc_wait_bit_killable", "nfs4_do_close"]).contains("NFS"));
        assert!(waits(&["percpu_rwsem_wait", "vfs_write"]).contains("frozen"));
        assert!(waits(&["handle_userfault", "dev_ethtool"]).contains("userfaultfd"));
        assert!(waits(&["submit_bio_wait", "blkdev_direct_IO"]).contains("block device"));
        assert!(waits(&["msleep", "netdev_run_todo", "cleanup_net"]).contains("namespaces"));
        assert!(waits(&["rwsem_down_read_slowpath", "copy_net_ns"]).contains("create"));
    }

    #[test]
    fn fusectl_is_mounted_before_the_step_that_needs_it() {
        let hint = hint(&[], Some("request_wait_answer")).unwrap();
        let place = |part: &str| {
            let mut commands = hint.commands.iter();
            commands
                .position(|(command, _)| command.contains(part))
                .unwrap()
        };
        assert!(place("mount -t fusectl") < place("/abort"));
    }

    #[test]
    fn an_unknown_stack_has_no_hint() {
        assert_eq!(waits(&["msleep", "some_driver_ioctl"]), "unknown");
        assert_eq!(hint(&[], None), None);
    }

    #[test]
    fn without_a_stack_the_wait_channel_counts() {
        assert!(hint(&[], Some("request_wait_answer")).is_some());
    }
}
