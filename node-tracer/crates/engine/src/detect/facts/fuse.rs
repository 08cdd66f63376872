//! How a task is released that waits for a FUSE daemon: the mounts it may wait
//! for, the processes that serve them, and the connections to abort.

use event::{FuseMount, FuseServer, wording::advice::commented};

use crate::{
    detect::facts::{command::Command, common::joined},
    model::task::Blocked,
};

/// The steps, if it is known which mounts the task may wait for. `effect` says
/// what SIGKILL does to it.
pub(in crate::detect) fn steps(blocked: &Blocked, effect: &str) -> Option<Vec<String>> {
    let mounts = blocked.fuse.as_slice();
    let mut steps = vec![match mounts {
        [] => return None,
        [only] => format!("restart {}{effect}", daemon(only)),
        [..] => format!(
            "restart the one that does not answer{effect}: {}",
            joined(mounts.iter().map(daemon)),
        ),
    }];
    if !mounts.iter().any(|mount| mount.has_control) {
        steps.push(commented(
            "mount -t fusectl none /sys/fs/fuse/connections",
            "shows the connections",
        ));
    }
    for mount in mounts {
        let file = format!("/sys/fs/fuse/connections/{}/abort", mount.connection);
        let command = Command::new("echo 1 >").word(file);
        let comment = match mounts.len() {
            1 => "else: I/O errors for all its users",
            _ => "else, if it is that one: I/O errors for all its users",
        };
        steps.push(commented(command, comment));
    }
    Some(steps)
}

/// `hangfs (77), the daemon of FUSE mount /hang`, as far as that is known.
fn daemon(mount: &FuseMount) -> String {
    let path = mount.path.display();
    let label = |server: &FuseServer| format!("{} ({})", server.comm, server.pid);
    match (mount.servers.as_slice(), mount.is_served_surely) {
        ([], _) => format!("the daemon of FUSE mount {path} (which one is unknown)"),
        ([only], true) => format!("{}, the daemon of FUSE mount {path}", label(only)),
        ([only], false) => format!("the daemon of FUSE mount {path}, maybe {}", label(only)),
        (many, _) => format!(
            "the daemon of FUSE mount {path}, maybe one of {}",
            joined(many.iter().map(label)),
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
        assert!(commands(&advice(&[hidden]))[0].starts_with("mount -t fusectl"));
    }

    #[test]
    fn where_it_is_not_known_which_mount_it_is_each_has_its_command() {
        let both = [mount("/a", 58), mount("/b", 59)];
        let advice = advice(&both);
        assert!(advice[0].contains("FUSE mount /a") && advice[0].contains("FUSE mount /b"));
        assert_eq!(commands(&advice).len(), 2);
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
