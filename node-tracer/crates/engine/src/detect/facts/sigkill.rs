//! Whether SIGKILL ends a task in uninterruptible sleep, as far as its state, the
//! place where it sleeps and its pending signals tell.

use crate::model::task::Blocked;
use event::sleep;

/// What is known of a SIGKILL.
pub(in crate::detect) enum Sigkill {
    /// It would end the sleep.
    Ends(String),
    /// It would not.
    Not(String),
    Unknown(String),
}

/// What a SIGKILL would do to a stuck task.
pub(in crate::detect) fn sigkill(blocked: &Blocked) -> Sigkill {
    let Blocked {
        task,
        wchan,
        stack,
        killable,
        sigkill_pending,
        ..
    } = blocked;
    let tid = task.tid;
    if task.kernel_thread {
        return Sigkill::Not(String::from("it is a kernel thread: SIGKILL has no effect"));
    }
    let by_place = || sleep::is_killable(stack, wchan.as_deref()).then_some(true);
    let by_fuse = sleep::function(stack, wchan.as_deref()) == Some("request_wait_answer");
    let pending = format!("SigPnd and ShdPnd in /proc/{tid}/status");
    match (sigkill_pending, killable.or_else(by_place)) {
        (Some(true), _) => Sigkill::Not(String::from(
            "a SIGKILL is pending and has no effect: another one changes nothing",
        )),
        (_, Some(false)) => {
            Sigkill::Not(String::from("SIGKILL has no effect (TASK_UNINTERRUPTIBLE)"))
        }
        (Some(false), Some(true)) if by_fuse => Sigkill::Unknown(String::from(
            "whether SIGKILL ends it: none is pending; it works only if the FUSE daemon has not read the request",
        )),
        (Some(false), Some(true)) => Sigkill::Ends(String::from(
            "no SIGKILL is pending; SIGKILL ends it (TASK_KILLABLE)",
        )),
        (None, Some(true)) => Sigkill::Unknown(format!(
            "whether a SIGKILL is pending ({pending}); if not, one would wake it"
        )),
        (Some(false), None) => Sigkill::Unknown(String::from(
            "whether SIGKILL ends it: none is pending; TASK_KILLABLE is state D as well",
        )),
        (None, None) => Sigkill::Unknown(format!(
            "whether a SIGKILL is pending ({pending}), and whether SIGKILL ends it"
        )),
    }
}
