//! Parts of messages: what stands between words, names of pods, IDs,
//! addresses.

use std::{borrow::Cow, net::IpAddr};

use crate::entry::Entry;
use event::PodRef;

/// The shortest beginning of a container's ID that is taken for one.
const MIN_ID: usize = 12;
const MAX_ID: usize = 128;
/// The longest name of an object in Kubernetes.
const MAX_NAME: usize = 253;
/// Addresses that are taken of one message.
const MAX_IPS: usize = 16;

/// What follows some words.
pub(super) fn after<'t>(text: &'t str, words: &str) -> Option<&'t str> {
    let at = text.find(words)?;
    text.get(at + words.len()..)
}

/// What stands between two of them.
pub(super) fn between<'t>(text: &'t str, from: &str, to: &str) -> Option<&'t str> {
    let rest = after(text, from)?;
    rest.get(..rest.find(to)?)
}

/// A message in which quotes of quotes are plain quotes: writers quote each
/// other's errors.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    match text.contains("\\\"") {
        true => Cow::Owned(text.replace('\\', "")),
        false => Cow::Borrowed(text),
    }
}

/// A container's ID at the beginning of a text, in quotes or not.
pub(super) fn id(text: &str) -> Option<&str> {
    let text = text.trim_start_matches(['"', '\\', ' ', '\'']);
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let end = text.find(|c| !is_hex(c)).unwrap_or(text.len());
    let id = text.get(..end)?;
    let ends = text.get(end..)?.chars().next();
    let whole = ends.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '-');
    (whole && (MIN_ID..=MAX_ID).contains(&id.len())).then_some(id)
}

/// A field of a message: beside it, or at its end as `key="value"`.
pub(super) fn field<'e>(entry: &'e Entry<'_>, key: &str) -> Option<&'e str> {
    entry.field(key).or_else(|| inline(&entry.message, key))
}

/// The same in the message alone.
pub(super) fn inline<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let mut from = 0;
    loop {
        let rest = text.get(from..)?;
        let at = rest.find(key)?;
        let before = rest.get(..at)?.chars().next_back();
        let begins = match before {
            None => from == 0,
            Some(c) => c == ' ' || c == '{' || c == '(',
        };
        let value = rest.get(at + key.len()..)?.strip_prefix('=');
        match value.filter(|_| begins) {
            Some(value) => return Some(value_of(value)),
            None => from += at + key.len(),
        }
    }
}

fn value_of(text: &str) -> &str {
    let quoted = text.strip_prefix('"');
    let end = match quoted {
        Some(inner) => inner.find('"'),
        None => text.find([' ', ',']),
    };
    let inner = quoted.unwrap_or(text);
    inner.get(..end.unwrap_or(inner.len())).unwrap_or_default()
}

/// Whether a text can be a namespace's or a pod's name.
pub(super) fn is_name(text: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-.".contains(&c);
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(plain)
}

/// Whether a text can be a pod's UID; a static pod's has no hyphens.
pub(super) fn is_uid(text: &str) -> bool {
    let plain = |c: u8| c.is_ascii_hexdigit() || c == b'-';
    (MIN_ID..=64).contains(&text.len()) && text.bytes().all(plain)
}

pub(super) fn pod(namespace: &str, name: &str) -> Option<PodRef> {
    let good = is_name(namespace) && is_name(name);
    good.then(|| PodRef {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: None,
    })
}

/// `namespace/name`
pub(super) fn slashed(text: &str) -> Option<PodRef> {
    let (namespace, name) = text.trim_matches('"').split_once('/')?;
    pod(namespace, name)
}

/// `namespace.name`: Calico's workload. A namespace's name has no full stop.
pub(super) fn dotted(text: &str) -> Option<PodRef> {
    let (namespace, name) = text.split_once('.')?;
    pod(namespace, name)
}

/// `name_namespace(uid)`, or without the UID: how the kubelet named pods.
pub(super) fn kubelet_pod(text: &str) -> Option<PodRef> {
    let (names, uid) = match text.split_once('(') {
        Some((names, uid)) => (names, uid.split_once(')').map(|(uid, _)| uid)),
        None => (text, None),
    };
    let (name, namespace) = names.split_once('_')?;
    let uid = uid.filter(|uid| is_uid(uid)).map(str::to_owned);
    Some(PodRef {
        uid,
        ..pod(namespace, name)?
    })
}

/// All such pods in a text: `"a_b(uid), c_d(uid)"`.
pub(super) fn kubelet_pods(text: &str) -> impl Iterator<Item = PodRef> {
    let parts = text.split([',', '"', ' ']);
    parts.filter_map(kubelet_pod)
}

/// All pods in a list of the newer form: `[a/b c/d]`, `["a/b","c/d"]`.
pub(super) fn slashed_pods(text: &str) -> impl Iterator<Item = PodRef> {
    let parts = text.split(['[', ']', ',', '"', ' ']);
    parts.filter_map(slashed)
}

/// A sandbox's metadata, as containerd prints it:
/// `&PodSandboxMetadata{Name:a,Uid:b,Namespace:c,Attempt:0,}`, or the newer
/// `name:"a" uid:"b" namespace:"c" attempt:1`. With the attempt.
pub(super) fn metadata(text: &str) -> Option<(PodRef, u32)> {
    let part = |old: &str, new: &str| {
        let found = between(text, old, ",");
        found.or_else(|| between(text, new, "\""))
    };
    let name = part("{Name:", "name:\"")?;
    let namespace = part(",Namespace:", "namespace:\"")?;
    let uid = part(",Uid:", "uid:\"").filter(|uid| is_uid(uid));
    let attempt = after(text, "Attempt:").or_else(|| after(text, "attempt:"));
    let pod = PodRef {
        uid: uid.map(str::to_owned),
        ..pod(namespace, name)?
    };
    Some((pod, attempt.and_then(number).unwrap_or(0)))
}

/// The number at the beginning of a text.
pub(super) fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let signed = usize::from(text.starts_with('-'));
    let digits = text.get(signed..)?;
    let end = digits.find(|c: char| !c.is_ascii_digit());
    let end = end.map_or(text.len(), |end| end + signed);
    text.get(..end)?.parse().ok()
}

/// The addresses in a list, with or without the length of their prefix.
pub(super) fn ips(text: &str) -> Vec<IpAddr> {
    let is_part = |c: char| c.is_ascii_hexdigit() || c == '.' || c == ':';
    let words = text.split(|c: char| !is_part(c) && c != '/');
    let bare = words.map(|word| word.split('/').next().unwrap_or_default());
    let mut all: Vec<IpAddr> = Vec::new();
    for ip in bare.filter_map(|word| word.parse().ok()) {
        if !all.contains(&ip) && all.len() < MAX_IPS {
            all.push(ip);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "5a0f3c2e9b71d4860c1f2e3d4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a6978";

    #[test]
    fn an_id_is_hexadecimal_long_and_ends() {
        assert_eq!(id(&format!("\"{ID}\" returns")), Some(ID));
        assert_eq!(id(&format!("\\\"{ID}\\\": x")), Some(ID));
        assert_eq!(id(ID), Some(ID));
        for other in ["", "abc", "deadbeef-dead-beef", "\"5a0f3c2e9b71d4zz\""] {
            assert_eq!(id(other), None, "{other}");
        }
    }

    #[test]
    fn a_field_may_stand_in_the_message_itself() {
        let text = r#"Releasing address ContainerID="abc" HandleID="k8s.x" Workload="""#;
        assert_eq!(inline(text, "ContainerID"), Some("abc"));
        assert_eq!(inline(text, "Workload"), Some(""));
        assert_eq!(
            inline("x MyContainerID=1 ContainerID=2", "ContainerID"),
            Some("2")
        );
        assert_eq!(inline("nothing", "ContainerID"), None);
    }

    #[test]
    fn pods_are_read_in_every_form() {
        let told = |pod: Option<PodRef>| {
            let pod = pod?;
            Some(format!("{} {}", pod.label(), pod.uid.unwrap_or_default()))
        };
        let uid = "0d3c9a52-1111-4a4a-8f8f-aaaaaaaaaaaa";
        assert_eq!(told(dotted("shop.db-0")).unwrap(), "shop/db-0 ");
        assert_eq!(told(dotted("shop.a.b")).unwrap(), "shop/a.b ");
        assert_eq!(told(slashed("\"shop/db-0\"")).unwrap(), "shop/db-0 ");
        let text = format!("db-0_shop({uid})");
        assert_eq!(
            told(kubelet_pod(&text)).unwrap(),
            format!("shop/db-0 {uid}")
        );
        assert_eq!(told(kubelet_pod("db-0_shop")).unwrap(), "shop/db-0 ");
        let many = format!("\"db-0_shop({uid}), web_shop({uid})\"");
        assert_eq!(kubelet_pods(&many).count(), 2);
        assert_eq!(slashed_pods("[shop/a shop/b]").count(), 2);
        assert_eq!(slashed_pods(r#"["shop/a","shop/b"]"#).count(), 2);
        let old = format!("&PodSandboxMetadata{{Name:db-0,Uid:{uid},Namespace:shop,Attempt:3,}} x");
        let new = format!("name:\"db-0\" uid:\"{uid}\" namespace:\"shop\" attempt:3 failed");
        for text in [old, new] {
            let (pod, attempt) = metadata(&text).unwrap();
            assert_eq!(told(Some(pod)).unwrap(), format!("shop/db-0 {uid}"));
            assert_eq!(attempt, 3);
        }
        assert_eq!(dotted("Some sentence. With more"), None);
    }

    #[test]
    fn addresses_are_taken_once_each() {
        let all = ips("[10.9.8.7/32 fd00::7] and 10.9.8.7");
        assert_eq!(
            all,
            [
                "10.9.8.7".parse::<IpAddr>().unwrap(),
                "fd00::7".parse().unwrap()
            ]
        );
        assert!(ips("[]").is_empty());
    }
}
