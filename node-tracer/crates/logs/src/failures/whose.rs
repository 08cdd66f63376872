//! Whose a message is: pod and sandbox, in whatever form it names them.

use std::borrow::Cow;

use crate::entry::Entry;
use diagnosis::{phrase::unquoted, speaker};
use event::{PodRef, StartFailure};

/// What a message names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whose {
    pub(crate) pod: PodRef,
    pub(crate) sandbox_id: Option<String>,
    pub(crate) attempt: Option<u32>,
}

/// The length of a container's ID.
const ID: usize = 64;

impl Whose {
    /// Of a pod as a text names it: what cannot be a name may be anything, a
    /// secret, too.
    pub(crate) fn of_pod(pod: PodRef) -> Self {
        let pod = PodRef {
            namespace: pod.namespace.filter(|name| is_name(name)),
            name: pod.name.filter(|name| is_name(name)),
            uid: pod.uid.filter(|uid| is_uid(uid)),
        };
        Self {
            pod,
            ..Self::default()
        }
    }

    /// A failure that is told of these.
    pub(crate) fn failure(self) -> StartFailure {
        StartFailure {
            pod: self.pod,
            sandbox_id: self.sandbox_id,
            attempt: self.attempt,
            ..StartFailure::default()
        }
    }

    /// By the fields beside a message.
    pub(super) fn of_fields(entry: &Entry<'_>) -> Self {
        let mut whose = Self::default();
        for (key, value) in &entry.fields {
            let value: Cow<'_, str> = match value.contains('"') {
                true => unquoted(value).replace('"', "").into(),
                false => Cow::Borrowed(value.as_ref()),
            };
            match key.as_ref() {
                "pod" | "object" | "podName" | "pod_name" | "k8s.pod.name" => {
                    whose.reference(&value);
                }
                "podUID" | "poduid" | "UID" | "uid" | "pod_uid" => whose.uid(&value),
                "podNamespace" | "namespace" | "pod_namespace" => whose.namespace(&value),
                "podSandboxID" | "podsandboxid" | "sandboxID" | "sandboxId" | "ContainerID"
                | "containerID" | "container_id" => whose.sandbox(&value),
                _ => {}
            }
        }
        whose
    }

    /// By the message. What is known already stays. What others say in it, who
    /// may say anything, names nobody; where nothing else names anybody, a
    /// plugin's word is taken.
    pub(crate) fn read(&mut self, text: &str) {
        let text = unquoted(text);
        self.naming(speaker::naming(&text));
        if *self == Self::default() && !speaker::turns_elsewhere(&text) {
            self.naming(&text);
        }
    }

    /// By what says whose it is.
    fn naming(&mut self, text: &str) {
        self.metadata(text);
        for word in text.split(|c: char| c.is_whitespace() || "\"'`,;<>|".contains(c)) {
            self.word(word);
        }
        self.after(text);
        self.sandbox_of(text);
        self.path(text);
    }

    fn name(&mut self, text: &str) {
        if self.pod.name.is_none() && is_name(text) {
            self.pod.name = Some(text.to_owned());
        }
    }

    fn namespace(&mut self, text: &str) {
        if self.pod.namespace.is_none() && is_name(text) && !text.contains('.') {
            self.pod.namespace = Some(text.to_owned());
        }
    }

    fn uid(&mut self, text: &str) {
        if self.pod.uid.is_none() && is_uid(text) {
            self.pod.uid = Some(text.to_owned());
        }
    }

    fn sandbox(&mut self, text: &str) {
        if self.sandbox_id.is_none() && is_id(text) {
            self.sandbox_id = Some(text.to_owned());
        }
    }

    /// Both, if none is known: a second pair is of another pod.
    fn both(&mut self, namespace: &str, name: &str) -> bool {
        let known = self.pod.name.as_deref();
        let fits = is_name(name) && is_name(namespace) && known.is_none_or(|known| known == name);
        if fits {
            self.name(name);
            self.namespace(namespace);
        }
        fits
    }

    /// `namespace/name`, or a name.
    pub(crate) fn reference(&mut self, text: &str) {
        match text.split_once('/') {
            Some(("pod" | "pods" | "Pod", name)) => self.name(name),
            Some((namespace, name)) => {
                self.both(namespace, name);
            }
            None => match text.split_once('_') {
                Some((name, namespace)) => self.kubelets(name, namespace),
                None => self.name(text),
            },
        }
    }

    /// `name`, `namespace` or `namespace(uid)`
    fn kubelets(&mut self, name: &str, rest: &str) {
        let (namespace, uid) = rest.split_once('(').unwrap_or((rest, ""));
        if self.both(namespace, name) {
            self.uid(uid.trim_end_matches([')', ':', '.', ']']));
        }
    }

    /// What containerd logs of a sandbox: `PodSandboxMetadata{Name:web,...}`,
    /// `name:"web"  uid:"..."`; and an event's object:
    /// `ObjectReference{Kind:"Pod", Namespace:"shop", Name:"web", ...}`.
    fn metadata(&mut self, text: &str) {
        const BEFORE: [&str; 4] = [
            "PodSandboxMetadata{",
            "ObjectReference{",
            "RunPodSandbox for name:",
            "podsandbox metadata",
        ];
        let Some(at) = BEFORE.iter().filter_map(|before| text.find(before)).min() else {
            return;
        };
        let rest = text.get(at..).unwrap_or_default();
        let value = |keys: [&str; 2]| {
            let found = keys.iter().filter_map(|key| {
                let at = rest.find(key)?;
                let before = rest.get(..at)?.chars().next_back();
                let value = rest.get(at + key.len()..)?.trim_start_matches('"');
                let end = value.find(['"', ',', '}', ' ']).unwrap_or(value.len());
                before
                    .is_none_or(|c| !c.is_alphanumeric())
                    .then(|| value.get(..end))?
            });
            found.map(str::to_owned).next()
        };
        if let Some(name) = value(["Name:", "name:"]) {
            self.name(&name);
        }
        if let Some(namespace) = value(["Namespace:", "namespace:"]) {
            self.namespace(&namespace);
        }
        if let Some(uid) = value(["Uid:", "uid:"]).or_else(|| value(["UID:", "UID:"])) {
            self.uid(&uid);
        }
        let attempt = value(["Attempt:", "attempt:"]);
        self.attempt = self.attempt.or(attempt.and_then(|text| text.parse().ok()));
    }

    /// Forms that are one word.
    fn word(&mut self, word: &str) {
        let word = word.trim_start_matches(['[', '(', '/', '{', '&', '=']);
        let word = word.trim_end_matches(['.', ':', ']', '}', ',']);
        let place = |word: &str| word.find("k8s_");
        if let Some(at) = place(word) {
            self.containers(word.get(at..).unwrap_or_default());
        } else if word.contains('(') && word.contains('_') {
            // name_namespace(uid)
            if let Some((name, rest)) = word.split_once('_')
                && rest.contains('(')
            {
                self.kubelets(name, rest);
            }
        } else if word.contains("K8S_POD_") {
            for pair in word.split(';') {
                self.pair(pair);
            }
        } else if word.ends_with("/POD") {
            // CRI-O: namespace/name/POD
            let mut parts = word.split('/');
            if let (Some(namespace), Some(name), Some(_), None) =
                (parts.next(), parts.next(), parts.next(), parts.next())
            {
                self.both(namespace, name);
            }
        } else if word.matches('_').count() >= 3 {
            self.containers(word);
        } else if let Some((reference, _)) = word.split_once(':')
            && reference.matches('/').count() == 2
        {
            // Multus: namespace/name/uid:network
            let mut parts = reference.split('/');
            if let (Some(namespace), Some(name), Some(uid)) =
                (parts.next(), parts.next(), parts.next())
                && is_uid(uid)
                && self.both(namespace, name)
            {
                self.uid(uid);
            }
        }
    }

    fn pair(&mut self, pair: &str) {
        match pair.split_once('=') {
            Some(("K8S_POD_NAMESPACE", value)) => self.namespace(value),
            Some(("K8S_POD_NAME", value)) => self.name(value),
            Some(("K8S_POD_UID", value)) => self.uid(value),
            Some(("K8S_POD_INFRA_CONTAINER_ID", value)) => self.sandbox(value),
            _ => {}
        }
    }

    /// The names that runtimes give: `k8s_CONTAINER_name_namespace_uid_attempt`
    /// of dockershim, `k8s_name_namespace_uid_attempt` of CRI-O's sandboxes,
    /// the same without `k8s_` of containerd.
    fn containers(&mut self, word: &str) {
        let (word, id) = word.split_once('(').unwrap_or((word, ""));
        let parts: Vec<&str> = word
            .split('_')
            .filter(|part| *part != "k8s" && !part.is_empty())
            .collect();
        // The last that is a UID; before it the namespace and the name.
        let Some(at) = parts.iter().rposition(|part| is_uid(part)) else {
            return;
        };
        let (Some(name), Some(namespace)) = (
            at.checked_sub(2).and_then(|at| parts.get(at)),
            at.checked_sub(1).and_then(|at| parts.get(at)),
        ) else {
            return;
        };
        if !self.both(namespace, name) {
            return;
        }
        if let Some(uid) = parts.get(at) {
            self.uid(uid);
        }
        let is_sandbox = at == 2 || parts.first() == Some(&"POD");
        if is_sandbox {
            let attempt = parts.get(at + 1).and_then(|text| text.parse().ok());
            self.attempt = self.attempt.or(attempt);
            self.sandbox(id.trim_end_matches([')', ':']));
        }
    }

    /// What stands after a word that says what it is.
    fn after(&mut self, text: &str) {
        // CRI-O has the namespace first.
        if let Some(word) = next_word(text, "adding pod ")
            && let Some((namespace, name)) = word.split_once('_')
        {
            self.both(namespace, name);
        }
        for before in [
            "for pod ",
            "set up pod ",
            "setup pod ",
            "pod ",
            "pod=",
            "Pod ",
        ] {
            let Some(word) = next_word(text, before) else {
                continue;
            };
            if is_name(word) && !is_common(word) && quoted_after(text, before) {
                self.name(word);
            } else if word.contains(['/', '_']) {
                self.reference(word);
            }
        }
        if let Some(word) = next_word(text, "(UID: ") {
            self.uid(word.trim_end_matches(')'));
        }
        if let Some(word) = next_word(text, "podName:") {
            self.uid(word);
        }
        // MountVolume.SetUp ... (UniqueName: "kubernetes.io/configmap/UID-name")
        if let Some(word) = next_word(text, "(UniqueName: ")
            && let Some(uid) = word.rsplit('/').next().and_then(|last| last.get(..36))
        {
            self.uid(uid);
        }
    }

    /// An ID of which it is said that it is a sandbox's. That of what has a
    /// name already is another's.
    fn sandbox_of(&mut self, text: &str) {
        const BEFORE: [&str; 8] = [
            "sandbox \"",
            "sandbox container \"",
            "sandbox ",
            "sandbox id ",
            "sandbox container ",
            "for id ",
            "podSandboxID=\"",
            "podsandboxid=",
        ];
        const OTHERS: [&str; 4] = ["reserved for", "in use by", "used by", "removing"];
        for before in BEFORE {
            let mut from = 0;
            while let Some(at) = text.get(from..).and_then(|rest| rest.find(before)) {
                let begin = from + at + before.len();
                from = begin;
                let rest = text.get(begin..).unwrap_or_default();
                let end = rest.find(|c: char| !c.is_ascii_hexdigit());
                let id = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
                let mut near = text.get(..begin).unwrap_or_default();
                while near.len() > 40 {
                    let cut = near.len() - 40;
                    let cut = (cut..near.len()).find(|at| near.is_char_boundary(*at));
                    near = near.get(cut.unwrap_or(near.len())..).unwrap_or_default();
                }
                if !OTHERS.iter().any(|other| near.contains(other)) {
                    self.sandbox(id);
                }
            }
        }
    }

    /// Paths and cgroups have a pod's UID.
    fn path(&mut self, text: &str) {
        for before in ["/pods/", "kubepods/pod", "/pod", "-pod"] {
            let Some(at) = text.find(before) else {
                continue;
            };
            let rest = text.get(at + before.len()..).unwrap_or_default();
            if let Some(uid) = rest.get(..36) {
                self.uid(&uid.replace('_', "-"));
            }
        }
    }
}

/// The word behind, without quotes.
fn next_word<'t>(text: &'t str, before: &str) -> Option<&'t str> {
    let at = text.find(before)?;
    let rest = text
        .get(at + before.len()..)?
        .trim_start_matches(['"', '\'', '[']);
    let end = rest.find(|c: char| c.is_whitespace() || "\"',;]".contains(c));
    let word = rest.get(..end.unwrap_or(rest.len()))?;
    Some(word.trim_end_matches([':', '.', ')']))
}

fn quoted_after(text: &str, before: &str) -> bool {
    let at = text.find(before).map(|at| at + before.len());
    let next = at.and_then(|at| text.get(at..)?.chars().next());
    matches!(next, Some('"' | '\'' | '\u{201c}'))
}

/// Words that stand behind "pod" and name none.
fn is_common(word: &str) -> bool {
    [
        "sandbox",
        "network",
        "name",
        "container",
        "worker",
        "changed",
        "with",
    ]
    .contains(&word)
}

/// A name of Kubernetes: a DNS subdomain (RFC 1123).
fn is_name(text: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-.".contains(&c);
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 253
        && text.bytes().all(plain)
        && edge(text.chars().next())
        && edge(text.chars().next_back())
}

/// A UUID, or the hash that a static pod has instead.
fn is_uid(text: &str) -> bool {
    let hex = |text: &str| text.bytes().all(|c| c.is_ascii_hexdigit());
    match text.len() {
        32 => hex(text),
        36 => {
            let mut parts = text.split('-');
            let lengths = [8, 4, 4, 4, 12];
            lengths.iter().all(|length| {
                parts
                    .next()
                    .is_some_and(|part| part.len() == *length && hex(part))
            }) && parts.next().is_none()
        }
        _ => false,
    }
}

fn is_id(text: &str) -> bool {
    text.len() == ID && text.bytes().all(|c| c.is_ascii_hexdigit())
}
