//! What a task waits for, by the functions on its kernel stack, in words for
//! the engineer who has to end the wait.
//!
//! The first row of [`HINTS`] that any frame matches counts, so what says more
//! stands above what says less: a FUSE wait inside a page fault is a FUSE wait.

use event::sleep::name;

/// A plain-language reading of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// What the task does: completes "the task ...".
    pub waits: &'static str,
    /// How that ends, step by step. `TID` stands for the task's thread ID.
    pub release: &'static [&'static str],
}

/// Function names (exact, or a beginning if they end in `_`), then the hint.
const HINTS: &[(&[&str], Hint)] = &[
    (
        &["cleanup_net"],
        Hint {
            waits: "takes network namespaces down for the kernel",
            release: &["see the netns-teardown-stall finding; killing pods does not help"],
        },
    ),
    (
        &["copy_net_ns", "setup_net"],
        Hint {
            waits: "waits to create a network namespace, behind one that is being taken down",
            release: &["it goes on when the teardown does; look for what holds that up"],
        },
    ),
    (
        &["virtio_fs_"],
        Hint {
            waits: "waits for virtiofs, that is for the host of this virtual machine",
            release: &["have the host's virtiofsd for this machine checked"],
        },
    ),
    (
        &["request_wait_answer", "fuse_"],
        Hint {
            waits: "waits for a FUSE daemon (JuiceFS, s3fs, CSI driver, lxcfs, ...)",
            release: &[
                "find the mount (grep ' fuse' /proc/TID/mountinfo) and its daemon; ending that \
                 daemon releases it",
                "or fail the I/O of all who use the mount (MINOR: the number after the colon in \
                 the mountinfo line): echo 1 > /sys/fs/fuse/connections/MINOR/abort",
                "if /sys/fs/fuse/connections is empty: \
                 mount -t fusectl none /sys/fs/fuse/connections",
            ],
        },
    ),
    (
        &["rpc_", "nfs_", "nfs3_", "nfs4_", "nlmclnt_"],
        Hint {
            waits: "waits for an NFS server",
            release: &[
                "find the mount (grep ' nfs' /proc/TID/mountinfo) and see whether the server \
                 answers (rpcinfo -p SERVER); it goes on when the server does",
                "or fail the I/O: umount -f of the mount",
            ],
        },
    ),
    (
        &["cifs_", "smb2_", "smb3_", "SMB2_"],
        Hint {
            waits: "waits for an SMB server",
            release: &[
                "find the mount (grep ' cifs' /proc/TID/mountinfo) and see whether the server \
                      answers",
            ],
        },
    ),
    (
        &["ceph_", "rbd_"],
        Hint {
            waits: "waits for Ceph",
            release: &[
                "ask the storage team whether the cluster answers this node (ceph status; \
                      /sys/kernel/debug/ceph/*/osdc lists what is outstanding)",
            ],
        },
    ),
    (
        &["p9_client_rpc", "v9fs_"],
        Hint {
            waits: "waits for a 9p server",
            release: &["find the mount (grep ' 9p' /proc/TID/mountinfo) and its server"],
        },
    ),
    (
        &["nbd_"],
        Hint {
            waits: "waits for a network block device (nbd)",
            release: &[
                "find the device (grep nbd /proc/TID/mountinfo) and see whether its server \
                      answers; nbd-client -d DEVICE fails the I/O",
            ],
        },
    ),
    (
        &["mem_cgroup_oom_synchronize"],
        Hint {
            waits: "waits for memory: its cgroup is at its limit and has the OOM killer turned off",
            release: &[
                "raise memory.limit_in_bytes of its memory cgroup (see /proc/TID/cgroup), or end \
                 something in it",
            ],
        },
    ),
    (
        &["handle_userfault"],
        Hint {
            waits: "waits for memory that another process is to deliver (userfaultfd: a virtual \
                    machine, a checkpoint being restored)",
            release: &[
                "find the process that has the userfaultfd (it reads anon_inode:[userfaultfd]); once \
                 it delivers the memory or has ended, the task goes on",
            ],
        },
    ),
    (
        &["zap_pid_ns_processes"],
        Hint {
            waits: "is a container's first process and waits for the others in it to end",
            release: &[
                "find the one that does not end (lsns -t pid; ps -eLo pid,stat,wchan:32,comm) \
                      and see what that one waits for",
            ],
        },
    ),
    (
        &["do_coredump", "vfs_coredump", "coredump_wait"],
        Hint {
            waits: "writes a core dump",
            release: &[
                "see where /proc/sys/kernel/core_pattern sends it and whether that is stuck",
            ],
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
            release: &[
                "find what froze it (a backup or snapshot job) and have it thawed: \
                      fsfreeze -u MOUNTPOINT",
            ],
        },
    ),
    (
        &["dm_"],
        Hint {
            waits: "waits for a device-mapper device",
            release: &[
                "see whether one is suspended (dmsetup info); dmsetup resume NAME; with \
                      multipath, whether a path is left (multipath -ll)",
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
            release: &["see the disk's load (iostat -x 1) and io.max of its cgroup"],
        },
    ),
    (
        &["ovl_"],
        Hint {
            waits: "waits in overlayfs, that is in the file system under the container's image",
            release: &[
                "see whether the disk under the container runtime answers (dmesg; iostat -x 1)",
            ],
        },
    ),
    (
        &["jbd2_", "ext4_", "xfs_", "btrfs_", "f2fs_"],
        Hint {
            waits: "waits for a local file system's journal or disk",
            release: &[
                "see whether the disk answers (dmesg; iostat -x 1) and which other task of \
                      that file system is stuck longest",
            ],
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
            release: &[
                "see which device does not answer (dmesg; iostat -x 1; /proc/TID/mountinfo)",
            ],
        },
    ),
    (
        &["rtnl_lock", "rtnl_lock_killable", "rtnetlink_rcv_msg"],
        Hint {
            waits: "waits for the kernel's network configuration lock",
            release: &[
                "find the task that holds it: the one with rtnl or unregister_netdevice on a \
                      longer stack",
            ],
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
            release: &[
                "find the holder: another stuck task with a longer stack; dmesg may name it \
                      (\"blocked by\")",
            ],
        },
    ),
];

/// The reading of a stack, or of the function alone where there is no stack.
pub fn hint(stack: &[String], wchan: Option<&str>) -> Option<Hint> {
    let functions: Vec<&str> = match stack {
        [] => wchan.into_iter().map(name).collect(),
        frames => frames.iter().map(|frame| name(frame)).collect(),
    };
    let matching = |patterns: &[&str]| {
        functions.iter().any(|function| {
            patterns.iter().any(|pattern| {
                function == pattern || (pattern.ends_with('_') && function.starts_with(pattern))
            })
        })
    };
    HINTS
        .iter()
        .find(|(patterns, _)| matching(patterns))
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
    fn the_way_out_of_a_fuse_wait_is_told_where_fusectl_is_not_mounted() {
        let hint = hint(&[], Some("request_wait_answer")).unwrap();
        let command = "mount -t fusectl none /sys/fs/fuse/connections";
        assert!(hint.release.iter().any(|step| step.ends_with(command)));
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
