//! Kernel stacks in one line.

use crate::wording::escape::Printable;

/// Stack frames that are listed.
const FRAMES: usize = 6;

/// A stack in one line: the innermost frames that tell one stack from another.
pub fn folded(stack: &[String]) -> String {
    let names = stack
        .iter()
        .map(|frame| frame.split('+').next().unwrap_or(frame));
    let shown: Vec<_> = names
        .filter(|name| !is_common(name))
        .take(FRAMES)
        .map(|name| Printable(name).to_string())
        .collect();
    match stack.len() - shown.len() {
        0 => shown.join(" < "),
        more => format!("{} … {more} more", shown.join(" < ")),
    }
}

/// Whether a function is at the end of every sleeping task's stack.
fn is_common(function: &str) -> bool {
    const COMMON: [&str; 11] = [
        "__schedule",
        "schedule",
        "io_schedule",
        "schedule_timeout",
        "__switch_to",
        "preempt_schedule_common",
        "do_syscall_64",
        "x64_sys_call",
        "do_el0_svc",
        "invoke_syscall",
        "ret_from_fork",
    ];
    const BEGINNINGS: [&str; 3] = ["entry_SYSCALL", "el0", "ret_from_fork"];
    COMMON.contains(&function) || BEGINNINGS.iter().any(|one| function.starts_with(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[&str]) -> Vec<String> {
        frames
            .iter()
            .map(|frame| format!("{frame}+0x1/0x2"))
            .collect()
    }

    #[test]
    fn a_stack_is_folded_to_what_is_its_own() {
        let frames = [
            "__schedule",
            "schedule",
            "a",
            "b",
            "do_syscall_64",
            "entry_SYSCALL_64",
        ];
        assert_eq!(folded(&stack(&frames)), "a < b … 4 more");
        let frames = [
            "a",
            "__arm64_sys_read",
            "invoke_syscall",
            "el0_svc_common.constprop.0",
            "do_el0_svc",
            "el0_svc",
            "el0t_64_sync_handler",
            "el0t_64_sync",
        ];
        assert_eq!(folded(&stack(&frames)), "a < __arm64_sys_read … 6 more");
        assert_eq!(folded(&stack(&["a", "b"])), "a < b");
        let deep = ["1", "2", "3", "4", "5", "6", "7", "8"];
        assert_eq!(folded(&stack(&deep)), "1 < 2 < 3 < 4 < 5 < 6 … 2 more");
    }

    #[test]
    fn a_stack_of_common_frames_alone_is_a_number() {
        assert_eq!(folded(&stack(&["schedule"])).trim(), "… 1 more");
    }
}
