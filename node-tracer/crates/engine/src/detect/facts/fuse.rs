//! How a task is released that waits for a FUSE daemon: the mounts it may wait
//! for, the processes that serve them, and the connections to abort.

use event::{FuseMount, FuseServer, sleep, wording::advice::commented};

use crate::{
    detect::facts::{command::Command, common::joined, stack_hint::MOUNT_CONTROL},
    model::task::Blocked,
};

/// The steps, if it is known which mounts the task may wait for. `effect` says
/// what SIGKILL does to it.
pub(in crate::detect) fn steps(blocked: &Blocked, effect: &str) -> Option<Vec<String>> {
    if let Some(connection) = written_to(blocked) {
        return Some(steps_of_worker(blocked, connection, effect));
    }
    steps_of(&blocked.fuse, effect)
}

/// The connection that a worker of the kernel writes back to, which is the minor
/// number in its name: `kworker/u8:0+flush-0:42`. A process can have any name.
fn written_to(blocked: &Blocked) -> Option<u32> {
    let Blocked {
        task, stack, wchan, ..
    } = blocked;
    let is_worker = task.kernel_thread && sleep::is_fuse(stack, wchan.as_deref());
    let (_, minor) = task.comm.split_once("flush-0:").filter(|_| is_worker)?;
    minor.parse().ok()
}

/// A worker sees the host's mounts alone: the one that it waits for may be in a
/// container.
fn steps_of_worker(blocked: &Blocked, connection: u32, effect: &str) -> Vec<String> {
    let mut mounts = blocked.fuse.iter();
    if let Some(mount) = mounts.find(|mount| mount.connection == connection) {
        return steps_of(std::slice::from_ref(mount), effect).unwrap_or_default();
    }
    let mut steps = vec![
        format!("restart the daemon of the FUSE mount with device 0:{connection}{effect}"),
        commented(
            format!("grep -sm1 ' 0:{connection} ' /proc/[0-9]*/mountinfo"),
            "who sees it, field 5 is the mount point",
        ),
        show_connections(),
    ];
    steps.push(abort(connection, "else: I/O errors for all its users"));
    steps
}

fn steps_of(mounts: &[FuseMount], effect: &str) -> Option<Vec<String>> {
    // Else the kernel has said that it has a request without an answer.
    let is_guessed = |mount: &FuseMount| !mount.has_control;
    let mut steps = vec![match mounts {
        [] => return None,
        [only] if is_guessed(only) => match only.servers.as_slice() {
            [server] if only.is_served_surely => format!(
                "restart {} if its FUSE mount {} hangs{effect}",
                named(server),
                only.path.display()
            ),
            _ => format!("restart {}, if it hangs{effect}", daemon(only)),
        },
        [only] => format!("restart {}{effect}", daemon(only)),
        [..] => format!(
            "restart the one that does not answer{effect}: {}",
            joined(mounts.iter().map(daemon)),
        ),
    }];
    if !mounts.iter().any(|mount| mount.has_control) {
        steps.push(show_connections());
    }
    let comment = |mount: &FuseMount| match mounts.len() {
        _ if is_guessed(mount) => "if waiting is not 0: its I/O fails",
        1 => "else: I/O errors for all its users",
        _ => "else, if it is that one: I/O errors for all its users",
    };
    let abort = |mount: &FuseMount| abort(mount.connection, comment(mount));
    steps.extend(mounts.iter().map(abort));
    Some(steps)
}

fn show_connections() -> String {
    commented(MOUNT_CONTROL, "shows the FUSE connections, needed once")
}

/// Ends all waits for a connection.
fn abort(connection: u32, comment: &str) -> String {
    let file = format!("/sys/fs/fuse/connections/{connection}/abort");
    commented(Command::new("echo 1 >").word(file), comment)
}

fn named(server: &FuseServer) -> String {
    format!("{} ({})", server.comm, server.pid)
}

/// `hangfs (77), the daemon of FUSE mount /hang`, as far as that is known.
fn daemon(mount: &FuseMount) -> String {
    let path = mount.path.display();
    match (mount.servers.as_slice(), mount.is_served_surely) {
        ([], _) => format!("the daemon of FUSE mount {path} (which one is unknown)"),
        ([only], true) => format!("{}, the daemon of FUSE mount {path}", named(only)),
        ([only], false) => format!("the daemon of FUSE mount {path}, maybe {}", named(only)),
        (many, _) => format!(
            "the daemon of FUSE mount {path}, maybe one of {}",
            joined(many.iter().map(named)),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Node;
    use event::{
        What,
        finding::{Rule, State},
        testing::*,
        wording::advice::command,
    };

    fn mount(path: &str, connection: u32) -> FuseMount {
        FuseMount {
            path: path.into(),
            connection,
            has_control: true,
            servers: vec![FuseServer {
                pid: 77,
                comm: "s3fs".into(),
            }],
            is_served_surely: true,
        }
    }

    /// What is advised for a task that waits for one of these.
    fn advice(mounts: &[FuseMount]) -> Vec<String> {
        let mut event = stuck(3, 9, 1);
        if let What::TaskBlocked { fuse, .. } = &mut event.what {
            *fuse = mounts.to_vec();
        }
        let mut node = Node::of(&[host(0), event]);
        node.only(10, Rule::BlockedTask, State::Open).0.advice
    }

    fn commands(advice: &[String]) -> Vec<&str> {
        advice
            .iter()
            .filter_map(|step| Some(command(step)?.command))
            .collect()
    }

    #[test]
    fn one_mount_is_named_with_its_daemon_and_its_connection() {
        let advice = advice(&[mount("/data", 58)]);
        assert_eq!(
            advice[0],
            "restart s3fs (77), the daemon of FUSE mount /data"
        );
        assert_eq!(
            commands(&advice),
            ["echo 1 > /sys/fs/fuse/connections/58/abort"]
        );
    }

    #[test]
    fn the_kernels_list_of_connections_is_mounted_where_it_is_not() {
        let hidden = FuseMount {
            has_control: false,
            ..mount("/data", 58)
        };
        let advice = advice(std::slice::from_ref(&hidden));
        assert_eq!(advice[0], "restart s3fs (77) if its FUSE mount /data hangs");
        let first = commands(&advice)[0].to_owned();
        assert!(first.starts_with("findmnt /sys/fs/fuse/connections || mount -t fusectl"));
        assert!(first.len() <= 85, "a block of 100 columns has all of it");
    }

    #[test]
    fn where_it_is_not_known_which_mount_it_is_each_has_its_command() {
        let both = [mount("/a", 58), mount("/b", 59)];
        let advice = advice(&both);
        assert!(advice[0].contains("FUSE mount /a") && advice[0].contains("FUSE mount /b"));
        assert_eq!(commands(&advice).len(), 2);
    }

    /// What is advised for a worker that writes back to connection 58, and sees
    /// these mounts.
    fn advice_for_worker(is_kernels: bool, mounts: &[FuseMount]) -> Vec<String> {
        let mut event = stuck(3, 9, 1);
        if let What::TaskBlocked { fuse, task, .. } = &mut event.what {
            *fuse = mounts.to_vec();
            (task.kernel_thread, task.comm) = (is_kernels, "kworker/u8:0+flush-0:58".into());
        }
        let mut node = Node::of(&[host(0), event]);
        node.only(10, Rule::BlockedTask, State::Open).0.advice
    }

    #[test]
    fn a_worker_of_the_kernel_names_the_connection_that_it_waits_for() {
        let abort = "echo 1 > /sys/fs/fuse/connections/58/abort";
        let unseen = advice_for_worker(true, &[mount("/other", 60)]);
        assert!(unseen[0].contains("0:58"), "{unseen:?}");
        assert_eq!(commands(&unseen).last(), Some(&abort));
        let seen = advice_for_worker(true, &[mount("/other", 60), mount("/data", 58)]);
        assert_eq!(commands(&seen), [abort]);
        let by_name = advice_for_worker(false, &[mount("/other", 60)]);
        assert!(commands(&by_name)[0].contains("/60/"), "{by_name:?}");
    }

    #[test]
    fn a_process_that_may_serve_another_mount_is_not_said_to_serve_this_one() {
        let unsure = FuseMount {
            is_served_surely: false,
            ..mount("/data", 58)
        };
        assert!(advice(&[unsure])[0].contains("maybe s3fs (77)"));
    }
}
