//! Who speaks: which words of a chain of errors are whose.
//!
//! ```text
//! StartContainer for "5f3c" failed: failed to create containerd task: ... exec: "WORDS OF A TENANT": ...
//! ^ a container's: no network of a sandbox fails behind this
//! failed to setup network for sandbox "5f3c": plugin type="x" failed (add): WORDS OF A PLUGIN
//! ^ names the sandbox                                                        ^ names nobody
//! ```
//!
//! Whoever passes an error on puts its own words in front of it. So the
//! outermost words decide what may follow. What is said of a container, an
//! image, a volume or a probe ends in what a tenant has written (a command, a
//! file's name, a registry's answer, what a probe printed), and nothing in it
//! is about a sandbox's network. What a plugin says may hold a tenant's words,
//! too (annotations): it does not say whose sandbox it is.

use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};

use Subject::{Container, Image, Running, Volume};

/// What the words behind a wrapper are about, where that is no sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// A container that is made or started.
    Container,
    Image,
    Volume,
    /// A container that runs: what a probe, a hook or a command in it printed.
    Running,
}

/// Words behind which nobody speaks of a sandbox's network. Each has something
/// in it that no label of a name (RFC 1123) can have.
const WRAPPERS: &[(&str, Subject)] = &[
    ("startcontainer\"", Container),
    ("startcontainer\\", Container),
    ("startcontainer for", Container),
    ("startcontainer from", Container),
    ("startcontainer failed", Container),
    ("createcontainer\"", Container),
    ("createcontainer\\", Container),
    ("createcontainer for", Container),
    ("createcontainer within", Container),
    ("createcontainer in sandbox", Container),
    ("createcontainer failed", Container),
    ("createcontainererror:", Container),
    ("createcontainerconfigerror:", Container),
    ("runcontainererror:", Container),
    ("start container", Container),
    ("starting container", Container),
    ("create container", Container),
    ("creating container", Container),
    ("container create failed", Container),
    ("container creation error", Container),
    ("container process", Container),
    ("containerd task", Container),
    ("shim task", Container),
    ("oci runtime", Container),
    ("runc create failed", Container),
    ("runc run failed", Container),
    ("/start returned error", Container),
    ("container &container{", Container),
    ("pullimage ", Image),
    ("pull image", Image),
    ("pulling image", Image),
    ("pull and unpack image", Image),
    ("errimagepull:", Image),
    ("imagepullbackoff:", Image),
    ("invalidimagename:", Image),
    ("imageinspecterror:", Image),
    ("inspect image", Image),
    ("default image tag", Image),
    ("parse image", Image),
    ("resolve reference", Image),
    ("mountvolume.", Volume),
    ("attachvolume.", Volume),
    ("mapvolume.", Volume),
    ("mountdevice failed", Volume),
    ("mount volumes", Volume),
    ("unmounted volumes", Volume),
    ("mounting arguments", Volume),
    ("preparing volume", Volume),
    ("prepare subpath", Volume),
    ("probe failed", Running),
    ("probe errored", Running),
    ("probe warning", Running),
    ("probe for ", Running),
    ("probe already", Running),
    ("execsync ", Running),
    ("exec for \"", Running),
    ("exec'd ", Running),
    ("lifecycle hook", Running),
    ("poststarthookerror:", Running),
    ("prestophookerror:", Running),
    ("prestop hook", Running),
    ("poststart hook", Running),
    ("portforward ", Running),
];

/// Behind these a plugin speaks.
const PLUGINS: &[&str] = &["(add): ", "(delete): ", " network: "];

/// What passes on what others say, and says itself whose it is. Each goes on
/// until its colon.
const DESIGNATIONS: &[&str] = &[
    "plugin type=",
    "multus: [",
    "[",
    "error adding pod ",
    "error removing pod ",
    "rpc error: code = ",
    "failed to reserve container name ",
    "failed to reserve sandbox name ",
    "error reserving ctr name ",
    "error response from daemon: conflict. the container name ",
    "open /var/lib/kubelet/pods/",
    "write /var/lib/kubelet/pods/",
    "mkdir /var/lib/kubelet/pods/",
    "name \"k8s_",
    "name \\\"k8s_",
];

/// Reasons of events whose messages are about no sandbox.
const REASONS: &[&str] = &[
    "BackOff",
    "ErrImageNeverPull",
    "ErrImagePull",
    "Failed",
    "FailedAttachVolume",
    "FailedMapVolume",
    "FailedMount",
    "FailedPostStartHook",
    "FailedPreStopHook",
    "ImageInspectError",
    "ImagePullBackOff",
    "InspectFailed",
    "InvalidImageName",
    "Unhealthy",
];

/// The first wrapper that is no sandbox's.
#[derive(Clone, Copy, Debug)]
struct Wrapper {
    begin: usize,
    end: usize,
    subject: Subject,
}

fn wrapper(text: &str) -> Option<Wrapper> {
    static FINDER: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let finder = FINDER.get_or_init(|| {
        AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::LeftmostFirst)
            .build(WRAPPERS.iter().map(|(words, _)| words))
            .ok()
    });
    let found = finder.as_ref()?.find(text)?;
    let (_, subject) = WRAPPERS.get(found.pattern().as_usize())?;
    Some(Wrapper {
        begin: found.start(),
        end: found.end(),
        subject: *subject,
    })
}

/// What of a text may be about a sandbox and its network: all that stands
/// before the words that are about something else.
pub fn of_sandbox(text: &str) -> &str {
    match wrapper(text) {
        Some(wrapper) => text.get(..wrapper.begin).unwrap_or_default(),
        None => text,
    }
}

/// Whether a text is about something else than a sandbox and its network from
/// some place on.
pub fn turns_elsewhere(text: &str) -> bool {
    wrapper(text).is_some()
}

/// The same of an event's message.
pub(crate) fn of_sandbox_in_event<'t>(reason: Option<&str>, text: &'t str) -> &'t str {
    match reason.is_some_and(|reason| REASONS.contains(&reason)) {
        true => "",
        false => of_sandbox(text),
    }
}

/// What of a text can be about a pod's start: what a container that runs has
/// printed is not.
pub(crate) fn of_start(text: &str) -> &str {
    match wrapper(text) {
        Some(Wrapper {
            end,
            subject: Running,
            ..
        }) => text.get(..end).unwrap_or_default(),
        _ => text,
    }
}

/// What of a text says whose it is: the words of whoever passes errors on,
/// without those of plugins, registries, and tenants.
pub fn naming(text: &str) -> &str {
    let named = wrapper(text).map(|wrapper| {
        let rest = text.get(wrapper.end..).unwrap_or_default();
        let length = match wrapper.subject {
            // An image's name may be any text.
            Image => 0,
            Volume => {
                let end = |words: &str| Some(rest.find(words)? + words.len());
                end(" : ").or_else(|| end("\": ")).unwrap_or(colon(rest))
            }
            Container | Running => colon(rest),
        };
        wrapper.end + length
    });
    let plugin = PLUGINS
        .iter()
        .filter_map(|words| Some(text.find(words)? + words.len()));
    let sandbox = text
        .find("network for sandbox ")
        .map(|at| at + colon(text.get(at..).unwrap_or_default()));
    let Some(mut end) = plugin.chain(named).chain(sandbox).min() else {
        return text;
    };
    loop {
        let rest = text.get(end..).unwrap_or_default();
        let starts = |words: &&&str| {
            let begin = rest.get(..words.len());
            begin.is_some_and(|begin| begin.eq_ignore_ascii_case(words))
        };
        let Some(words) = DESIGNATIONS.iter().find(starts) else {
            return text.get(..end).unwrap_or_default();
        };
        let rest = rest.get(words.len()..).unwrap_or_default();
        let length = match words.starts_with("rpc error") {
            true => rest.find("desc = ").map_or(rest.len(), |at| at + 7),
            false => colon(rest),
        };
        end += words.len() + length;
    }
}

/// Where the words behind the next colon begin.
fn colon(text: &str) -> usize {
    text.find(": ").map_or(text.len(), |at| at + 2)
}

/// How a container's command fails to start, in the words of the system.
const NOT_STARTED: [&str; 12] = [
    "executable file not found in $path",
    "no such file or directory",
    "permission denied",
    "operation not permitted",
    "exec format error",
    "is a directory",
    "not a directory",
    "text file busy",
    "file name too long",
    "argument list too long",
    "too many levels of symbolic links",
    "invalid argument",
];

/// A text, unquoted and in lower case, without the command that a container
/// should have started: `exec: "WORDS": stat WORDS: no such file or directory`.
pub(crate) fn without_command(text: &str) -> Option<String> {
    let wrapper = wrapper(text).filter(|wrapper| wrapper.subject == Container)?;
    let process = wrapper.begin;
    let command = ["exec: \"", "command:["];
    let rest = text.get(process..)?;
    let begin = command.iter().filter_map(|words| rest.find(words)).min()?;
    let (before, rest) = text.split_at_checked(process + begin)?;
    // The runtime itself is missing.
    if rest.starts_with("exec: \"runc\": ") {
        return None;
    }
    let end = rest.trim_end_matches(['"', '\'', ' ', ')']);
    let end = end.strip_suffix(": unknown").unwrap_or(end);
    let said = NOT_STARTED.iter().find(|said| end.ends_with(*said));
    Some(format!(
        "{before}exec: {}",
        said.copied().unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outermost_words_decide_what_may_follow() {
        let network = "failed to setup network for sandbox \"aa\": no IP addresses available";
        for before in [
            "StartContainer for \"5f\" failed: ",
            "failed to \\\"StartContainer\\\" for \\\"c\\\" with RunContainerError: ",
            "Failed to pull image \"x\": unexpected status: ",
            "Readiness probe for \"a_b(c):d\" failed (failure): ",
            "MountVolume.SetUp failed for volume \"v\" : ",
        ] {
            let text = format!("{before}{network}");
            assert!(!of_sandbox(&text).contains("network"), "{text}");
            let text = format!("CreatePodSandbox for pod failed: {network}: {before}");
            assert!(of_sandbox(&text).contains(network), "{text}");
        }
    }

    #[test]
    fn no_pods_name_is_taken_for_words_of_others() {
        for (words, _) in WRAPPERS {
            let in_names = |c: char| c.is_ascii_alphanumeric() || c == '-';
            assert!(!words.chars().all(in_names), "{words}");
        }
    }

    #[test]
    fn a_plugins_words_name_nobody() {
        let text = "failed to setup network for sandbox \"aa\": plugin type=\"m\" failed (add): \
                    Multus: [shop/web/u]: annotation: for pod \"victim\"";
        let own = naming(text);
        assert!(own.contains("shop/web") && own.contains("\"aa\""), "{own}");
        assert!(!own.contains("victim"), "{own}");
        assert_eq!(
            naming("for pod \"web\": it fails"),
            "for pod \"web\": it fails"
        );
    }
}
