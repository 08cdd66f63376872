//! CNI calls that failed, in the words of runtimes and the kubelet.

use super::{
    calls::{Verb, unnamed},
    tokens::{after, between, id, kubelet_pod, plain, pod},
};
use diagnosis::speaker;
use event::PodRef;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) verb: Verb,
    /// For which sandbox, if that is told.
    pub(crate) container_id: Option<String>,
    /// The pod, as far as it is named.
    pub(crate) pod: PodRef,
    /// The plugin's type, if that is told.
    pub(crate) plugin: Option<String>,
    pub(crate) message: String,
}

/// What stands between a plugin's type and that it failed, at most.
const MAX_SUBJECT: usize = 160;

/// Each form's own words, what they mean, and where the plugin's begin.
const FORMS: &[(&str, Verb, &str)] = &[
    // containerd
    ("failed to setup network for sandbox ", Verb::Add, ": "),
    ("failed to destroy network for sandbox ", Verb::Del, ": "),
    ("Failed to destroy network for sandbox ", Verb::Del, ": "),
    ("failed to destroy network for container ", Verb::Del, ": "),
    // CRI-O
    ("failed to create pod network sandbox ", Verb::Add, "): "),
    (
        "failed to destroy network for pod sandbox ",
        Verb::Del,
        "): ",
    ),
    // the kubelet with its own dockershim
    ("failed to set up pod ", Verb::Add, " network: "),
    ("failed to teardown pod ", Verb::Del, " network: "),
];

/// The one that a message tells of. `sandbox` is told beside it, in a field.
pub(crate) fn read(text: &str, sandbox: Option<&str>) -> Option<Failure> {
    let text = &*plain(speaker::of_sandbox(text));
    let found = FORMS
        .iter()
        .filter_map(|form| Some((text.find(form.0)?, form)));
    let (at, (words, verb, end)) = found.min_by_key(|(at, _)| *at)?;
    let (before, rest) = (text.get(..at)?, text.get(at + words.len()..)?);
    let (subject, said) = rest.split_once(end)?;
    let own = id(subject).or_else(|| id(subject.rsplit_once('(')?.1));
    let named = || {
        let words = ["StopPodSandbox ", "sandbox container "];
        let earlier = words.iter().find_map(|words| id(after(before, words)?));
        earlier.or_else(|| id(after(subject, " in sandbox ")?))
    };
    let container_id = own.or_else(named).or_else(|| sandbox.and_then(id));
    let (plugin, message) = said_by(said);
    Some(Failure {
        verb: *verb,
        container_id: container_id.map(str::to_owned),
        pod: whose(subject).or_else(|| adding(said)).unwrap_or_default(),
        plugin,
        message,
    })
}

/// `"name_namespace"`, or CRI-O's `k8s_name_namespace_uid_attempt(id)`.
fn whose(subject: &str) -> Option<PodRef> {
    let subject = subject.trim_matches(['"', ' ']);
    let Some(parts) = subject.strip_prefix("k8s_") else {
        return kubelet_pod(subject);
    };
    let mut parts = parts.split('_');
    let (name, namespace, uid) = (parts.next()?, parts.next()?, parts.next()?);
    Some(PodRef {
        uid: Some(uid.to_owned()),
        ..pod(namespace, name)?
    })
}

/// `error adding pod namespace_name to CNI network "x"`
fn adding(text: &str) -> Option<PodRef> {
    let words = ["error adding pod ", "error removing pod "];
    let rest = words.iter().find_map(|words| text.strip_prefix(words))?;
    let (namespace, name) = rest.split(' ').next()?.split_once('_')?;
    pod(namespace, name)
}

/// The plugin's own words, and its type where the library that called it has
/// put that before them.
pub(super) fn said_by(text: &str) -> (Option<String>, String) {
    let mut text = text;
    for words in ["error adding pod ", "error removing pod "] {
        if let Some(rest) = text.strip_prefix(words)
            && let Some((_, said)) = rest.split_once(": ")
        {
            text = said;
        }
    }
    let plugin = between(text, "plugin type=\"", "\"");
    let plugin = plugin.filter(|_| text.starts_with("plugin type="));
    for words in ["failed (add): ", "failed (delete): "] {
        if let Some(said) = after(text, words)
            && plugin.is_some()
        {
            text = said;
            break;
        }
    }
    // What was tried next, and failed as well, is another failure.
    for next in [
        ", failed to clean up sandbox container",
        "], failed to clean",
    ] {
        text = text.split(next).next().unwrap_or_default();
    }
    (plugin.map(str::to_owned), unquoted(text.trim()).to_owned())
}

/// Without a quote at the end that was opened before the beginning.
fn unquoted(text: &str) -> &str {
    match text.matches('"').count() % 2 {
        1 => text.strip_suffix('"').unwrap_or(text),
        _ => text,
    }
}

/// `plugin type="x" failed (delete): said`, without anything around it that
/// says for which sandbox.
pub(super) fn of_plugin(text: &str) -> Option<Failure> {
    let text = &*plain(speaker::of_sandbox(text));
    let at = text
        .find("plugin type=")
        .filter(|_| !text.contains("(add)"))?;
    let said = text.get(at..)?;
    let (before, _) = said.split_once("failed (delete): ")?;
    let (plugin, message) = said_by(said);
    (before.len() < MAX_SUBJECT).then(|| Failure {
        verb: Verb::Del,
        container_id: Some(unnamed(&PodRef::default())),
        pod: PodRef::default(),
        plugin,
        message,
    })
}

/// `Error adding namespace_name/ID to network type/name: said` of dockershim,
/// and `Error deleting ... from network ...`. The older form names nothing.
pub(super) fn of_dockershim(text: &str) -> Option<Failure> {
    let (verb, rest) = match after(text, "Error adding ") {
        Some(rest) => (Verb::Add, rest),
        None => match after(text, "Error while adding to cni ") {
            Some(rest) => (Verb::Add, rest),
            None => (Verb::Del, after(text, "Error deleting ")?),
        },
    };
    let bare = rest.strip_prefix("network: ");
    if let Some(said) = bare.or_else(|| rest.strip_prefix("lo network: ")) {
        let (plugin, message) = said_by(said);
        return Some(Failure {
            verb,
            container_id: None,
            pod: PodRef::default(),
            plugin,
            message,
        });
    }
    let (subject, said) = rest.split_once(": ")?;
    let (whose, network) = subject.split_once(" network ")?;
    let (names, container) = whose.split(' ').next()?.split_once('/')?;
    // Whoever publishes a log takes names out.
    let named = names
        .split_once('_')
        .and_then(|(namespace, name)| pod(namespace, name));
    let named = named.unwrap_or_default();
    let kind = network.split('/').next().filter(|kind| !kind.is_empty());
    let (plugin, message) = said_by(said);
    Some(Failure {
        verb,
        container_id: Some(id(container)?.to_owned()),
        pod: named,
        plugin: plugin.or_else(|| kind.map(str::to_owned)),
        message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "5a0f3c2e9b71d4860c1f2e3d4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a6978";

    fn told(failure: Option<Failure>) -> String {
        let failure = failure.unwrap();
        assert!(failure.container_id.as_deref().is_none_or(|id| id == ID));
        format!(
            "{:?} {} {} {} {}",
            failure.verb,
            failure.container_id.is_some(),
            failure.pod.label(),
            failure.plugin.unwrap_or_default(),
            failure.message
        )
    }

    #[test]
    fn a_failure_is_read_in_each_runtimes_words() {
        let cases = [
            (
                format!(
                    "failed to setup network for sandbox \"{ID}\": plugin type=\"bridge\" failed \
                     (add): no addresses: left"
                ),
                "Add true unknown pod bridge no addresses: left",
            ),
            (
                format!(
                    "rpc error: code = Unknown desc = failed to destroy network for sandbox \
                     \\\"{ID}\\\": plugin type=\\\"multus\\\" name=\\\"m\\\" failed (delete): gone"
                ),
                "Del true unknown pod multus gone",
            ),
            (
                format!(
                    "failed to destroy network for container k-infra in sandbox {ID}: cni config \
                     uninitialized"
                ),
                "Del true unknown pod  cni config uninitialized",
            ),
            (
                format!("failed to setup network for sandbox \"{ID}\": cni plugin not initialized"),
                "Add true unknown pod  cni plugin not initialized",
            ),
            (
                format!(
                    "rpc error: failed to create pod network sandbox k8s_db-0_shop_u-1_2({ID}): \
                     error adding pod shop_db-0 to CNI network \"net\": plugin type=\"ovn\" failed \
                     (add): timed out"
                ),
                "Add true shop/db-0 ovn timed out",
            ),
            (
                format!(
                    "failed to destroy network for pod sandbox k8s_db-0_shop_u-1_2({ID}): error \
                     removing pod shop_db-0 from CNI network \"net\": no way"
                ),
                "Del true shop/db-0  no way",
            ),
            (
                format!(
                    "StopPodSandbox \"{ID}\" from runtime service failed: rpc error: code = 2 desc \
                     = NetworkPlugin cni failed to teardown pod \"db-0_shop\" network: no such \
                     thing: X(a=b)"
                ),
                "Del true shop/db-0  no such thing: X(a=b)",
            ),
            (
                format!(
                    "rpc error: [failed to set up sandbox container \"{ID}\" network for pod \
                     \"db-0\": networkPlugin cni failed to set up pod \"db-0_shop\" network: bad, \
                     failed to clean up sandbox container \"{ID}\" network for pod"
                ),
                "Add true shop/db-0  bad",
            ),
        ];
        for (text, expected) in &cases {
            assert_eq!(told(read(text, None)), *expected, "{text}");
        }
        assert_eq!(read("failed to stop container", None), None);
        let text = "NetworkPlugin cni failed to teardown pod \"a_b\" network: x";
        assert!(read(text, Some(ID)).unwrap().container_id.is_some());
    }

    #[test]
    fn dockershims_own_lines_name_the_sandbox_or_nothing() {
        let newer = format!("Error adding shop_db-0/{ID} to network calico/net: no route");
        assert_eq!(
            told(of_dockershim(&newer)),
            "Add true shop/db-0 calico no route"
        );
        let newer = format!("Error deleting shop_db-0/{ID} from network calico/net: no");
        assert_eq!(told(of_dockershim(&newer)), "Del true shop/db-0 calico no");
        let older = "Error deleting network: it is gone: X(a=b)";
        assert_eq!(
            told(of_dockershim(older)),
            "Del false unknown pod  it is gone: X(a=b)"
        );
        let older = "Error adding network: no";
        assert_eq!(told(of_dockershim(older)), "Add false unknown pod  no");
        assert_eq!(of_dockershim("Error deleting pod \"x\""), None);
    }
}
