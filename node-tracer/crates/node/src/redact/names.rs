//! What is called a secret, and what a word says of the next one.

use super::{MIN_TOKEN, SIGNS};

/// What the word before says of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Anything,
    /// A scheme of HTTP (RFC 7235).
    Scheme,
    /// `token:`, `password=`, ...
    Name,
    /// The same without a sign: one may follow, as in `"token": "..."`.
    Bare,
    /// The name of an object that is called like one: `volume "api-token"`.
    Object,
    /// The same with a sign: what an error says of it may follow, or a value,
    /// in quotes.
    OfObject,
}

impl After {
    /// `kind` is the word before it, if it stands in quotes.
    pub(super) fn of(word: &str, before: Self, kind: Option<&str>) -> Self {
        let name = word.trim_end_matches(SIGNS);
        let signed = name.len() < word.len();
        let last = name.rsplit(SIGNS).next().unwrap_or_default();
        match before {
            Self::Bare | Self::Name if name.is_empty() => Self::Name,
            Self::Object | Self::OfObject if name.is_empty() => Self::OfObject,
            _ if is_scheme(last) => Self::Scheme,
            // What is in a path is no name: `.../token: no such file`,
            // `secret "kube-system/my-token": not found`.
            _ if last.contains('/') || !is_secrets_name(last) => Self::Anything,
            _ if signed => Self::Name,
            _ if kind.is_some_and(is_kind) => Self::Object,
            _ => Self::Bare,
        }
    }

    /// A sign has been there, so that a value is to follow.
    pub(super) fn is_sign(self) -> bool {
        matches!(self, Self::Name | Self::OfObject)
    }

    /// Whether the next word is one, which may stand in quotes.
    pub(super) fn is_followed_by_a_secret(self, word: &str, quoted: bool) -> bool {
        let is_value = !word.trim_matches(SIGNS).is_empty();
        match self {
            Self::Anything | Self::Object => false,
            Self::Scheme => word.len() >= MIN_TOKEN || word.ends_with('='),
            Self::Name => is_value,
            Self::Bare => is_value && word.starts_with(SIGNS),
            Self::OfObject => is_value && quoted,
        }
    }
}

/// A scheme of HTTP that is followed by a secret.
pub(super) fn is_scheme(word: &str) -> bool {
    ["bearer", "basic"]
        .iter()
        .any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// What is called a secret in configurations: how such names end, whatever
/// joins their words (`apiKey`, `API_KEY`, `api-key`).
const ENDS: [&str; 14] = [
    "token",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "keydata",
    "accesskey",
    "apikey",
    "authkey",
    "encryptionkey",
    "privatekey",
    "secretkey",
    "signingkey",
    "sharedkey",
];

/// Whether a name is a secret's. `token_bucket`, `secretName` and
/// `imagePullSecrets` are not.
pub(super) fn is_secrets_name(name: &str) -> bool {
    ENDS.iter().any(|end| ends_with(name, end))
}

fn ends_with(name: &str, end: &str) -> bool {
    let own = name.bytes().rev().filter(|c| !b"_-".contains(c));
    let mut own = own.map(|c| c.to_ascii_lowercase());
    end.bytes().rev().all(|c| own.next() == Some(c))
}

/// What a name in quotes is of, if it is an object's.
fn is_kind(word: &str) -> bool {
    const KINDS: [&str; 7] = [
        "configmap",
        "container",
        "object",
        "pod",
        "secret",
        "serviceaccount",
        "volume",
    ];
    let one = word.strip_suffix(['s', 'S']).unwrap_or(word);
    KINDS.iter().any(|kind| one.eq_ignore_ascii_case(kind))
}
