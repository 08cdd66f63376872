//! Parts of sentences.

use std::time::Duration;

use event::explanation::{NetnsPart, NetnsState, PodState};
use event::{clock::Timestamp, finding::Holder, sleep, wording::subjects::pod_word};

pub(super) fn list<T: ToString>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    items.join(", ")
}

/// `netns 4026532246 of the deleted pod shop/checkout-1`
pub(super) fn netns(part: &NetnsPart) -> String {
    let inode = part.id.inode;
    if part.host {
        let names: Vec<&str> = part.addresses.iter().map(|a| a.ifname.as_str()).collect();
        return match names.as_slice() {
            [] => format!("the host's netns {inode}"),
            names => format!("the host itself, on {}", list(names)),
        };
    }
    let state = match part.state {
        NetnsState::Living => "",
        NetnsState::Dying => "dying ",
    };
    match whose(part) {
        Some(whose) => format!("{state}netns {inode} of {whose}"),
        None => match part.paths.first() {
            Some(path) => format!(
                "{state}netns {inode} ({}), which is no pod's",
                path.display()
            ),
            None => format!("{state}netns {inode}, of which no pod is known"),
        },
    }
}

/// `the deleted pod shop/checkout-1`
pub(super) fn whose(part: &NetnsPart) -> Option<String> {
    let pod = part.pod.as_ref()?;
    Some(match part.pod_state {
        Some(PodState::Gone) => format!("the deleted pod {}", pod_word(pod)),
        Some(PodState::Finished) => format!("the finished pod {}", pod_word(pod)),
        Some(PodState::Terminating) => format!("the terminating pod {}", pod_word(pod)),
        Some(PodState::Listed | PodState::Exempt) | None => pod.label(),
    })
}

/// What keeps a namespace that should not be, or is stuck in one that may be:
/// `checkout-api (26310), stuck in request_wait_answer since 08:53:37 (2 h)`.
pub(super) fn keeper(part: &NetnsPart, now: Timestamp) -> Option<String> {
    let stuck: Vec<&Holder> = part
        .holders
        .iter()
        .filter(|holder| super::findings::is_stuck(holder))
        .collect();
    if let Some(first) = stuck.first() {
        let others = match stuck.len() {
            1 => String::new(),
            2 => String::from(", and 1 more stuck task"),
            many => format!(", and {} more stuck tasks", many - 1),
        };
        return Some(format!("{}{others}", stuck_holder(first, now)?));
    }
    if part.pod_state != Some(PodState::Gone) {
        return None;
    }
    let first = part.holders.first().and_then(holder_name)?;
    Some(match part.holders.len().max(part.task_count) {
        1 => first,
        2 => format!("{first} and 1 more"),
        many => format!("{first} and {} more", many - 1),
    })
}

/// A stuck task with where and since when.
pub(super) fn stuck_holder(holder: &Holder, now: Timestamp) -> Option<String> {
    let Holder::Task {
        since, first_seen, ..
    } = holder
    else {
        return None;
    };
    let name = holder_name(holder)?;
    let since = (*since)?;
    let how = sleeps(holder)?;
    Some(format!(
        "{name}, stuck{how} {} {} ({})",
        if *first_seen {
            "when first seen"
        } else {
            "since"
        },
        clock(since, now),
        age(now.since(since)),
    ))
}

/// `checkout-api (26310) in state D for 2 h`, of a stuck task.
pub(super) fn state(holder: &Holder, now: Timestamp) -> Option<String> {
    let Holder::Task { since, .. } = holder else {
        return None;
    };
    let name = holder_name(holder)?;
    Some(format!(
        "{name} in state D for {}",
        age(now.since((*since)?))
    ))
}

/// `a`, `a and b`, `a, b and c`
pub(super) fn and(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// ` in request_wait_answer`; empty if it is not known where.
pub(super) fn sleeps(holder: &Holder) -> Option<String> {
    let Holder::Task { wchan, stack, .. } = holder else {
        return None;
    };
    let function = sleep::function(stack, wchan.as_deref());
    Some(
        function
            .map(|name| format!(" in {name}"))
            .unwrap_or_default(),
    )
}

/// `checkout-api (26310)`, `the mount /run/netns/cni-1`
pub(super) fn holder_name(holder: &Holder) -> Option<String> {
    Some(match holder {
        Holder::Task { pid, tid, comm, .. } if pid == tid => format!("{comm} ({pid})"),
        Holder::Task { pid, tid, comm, .. } => format!("{comm} ({pid}, thread {tid})"),
        Holder::Mount { path } => format!("the mount {}", path.display()),
        Holder::Fd { pid, fd, comm } | Holder::Socket { pid, fd, comm } => {
            let kind = match holder {
                Holder::Socket { .. } => "socket",
                _ => "descriptor",
            };
            match comm {
                Some(comm) => format!("{kind} {fd} of {comm} ({pid})"),
                None => format!("{kind} {fd} of process {pid}"),
            }
        }
    })
}

/// A time of day, with the date if it is another one.
pub(super) fn clock(time: Timestamp, now: Timestamp) -> String {
    let (text, today) = (time.to_string(), now.to_string());
    let day = text.get(..10).filter(|day| today.get(..10) != Some(day));
    let time = text.get(11..19).unwrap_or(&text);
    match day {
        Some(day) => format!("{day} {time}"),
        None => time.to_owned(),
    }
}

/// How long, in one unit: the exact time stands beside it.
pub(super) fn age(time: Duration) -> String {
    match time.as_secs() {
        0 => String::from("just now"),
        seconds @ ..60 => format!("{seconds} s"),
        seconds @ ..3_600 => format!("{} min", seconds / 60),
        seconds @ ..86_400 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_told_in_one_unit() {
        let told = |seconds| age(Duration::from_secs(seconds));
        assert_eq!(told(0), "just now");
        assert_eq!(told(59), "59 s");
        assert_eq!(told(61), "1 min");
        assert_eq!(told(7_300), "2 h");
        assert_eq!(told(200_000), "2 d");
    }

    #[test]
    fn a_time_of_another_day_has_its_date() {
        let time = |text| Timestamp::parse(text).unwrap();
        let now = time("2026-11-21T08:00:00Z");
        assert_eq!(clock(time("2026-11-21T07:59:59.9Z"), now), "07:59:59");
        assert_eq!(
            clock(time("2026-11-20T23:00:00Z"), now),
            "2026-11-20 23:00:00"
        );
    }
}
