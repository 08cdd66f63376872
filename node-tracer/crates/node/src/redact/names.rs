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
    /// `--token`: its value follows without a sign.
    Flag,
    /// `Cookie:`, of HTTP (RFC 6265): names and values follow.
    Cookies,
    /// The ID of a key of AWS, which its secret may follow.
    KeyId,
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
            _ if is_key_id(last) => Self::KeyId,
            _ if word.ends_with(':') && is_cookies_name(last) => Self::Cookies,
            _ if word.ends_with('=') && is_parameters_name(last) => Self::Name,
            // What is in a path is no name: `.../token: no such file`,
            // `secret "kube-system/my-token": not found`.
            _ if last.contains('/') || !is_secrets_name(last) => Self::Anything,
            _ if signed => Self::Name,
            _ if last.starts_with("--") => Self::Flag,
            _ if kind.is_some_and(is_kind) => Self::Object,
            _ => Self::Bare,
        }
    }

    /// A sign has been there, so that a value is to follow.
    pub(super) fn is_sign(self) -> bool {
        matches!(self, Self::Name | Self::OfObject | Self::Flag)
    }

    /// What it says of a word behind `gap`.
    pub(super) fn across(self, gap: &str) -> Self {
        let ends = match self {
            Self::Flag => !gap.chars().all(|c| " ,\"'\\".contains(c)),
            Self::Cookies => gap.contains('\n'),
            Self::KeyId => !gap.chars().all(|c| " \t,;|\"'".contains(c)),
            _ => false,
        };
        if ends { Self::Anything } else { self }
    }

    /// Whether a structure that follows is a secret: `Token{Value:...}`.
    pub(super) fn is_name(self) -> bool {
        matches!(self, Self::Bare | Self::Name)
    }

    /// Whether the next word is one, which may stand in quotes.
    pub(super) fn is_followed_by_a_secret(self, word: &str, quoted: bool) -> bool {
        let is_value = !word.trim_matches(SIGNS).is_empty();
        match self {
            Self::Anything | Self::Object => false,
            Self::Scheme => word.len() >= MIN_TOKEN || word.ends_with('='),
            Self::Name => is_value,
            Self::Bare => is_value && (word.starts_with(SIGNS) || is_of_chance(word)),
            Self::OfObject => is_value && quoted,
            Self::Flag => is_value && !word.starts_with('-') && (quoted || !is_of_sentences(word)),
            Self::Cookies => is_cookie(word),
            Self::KeyId => word.len() == AWS_SECRET && !word.contains(['.', '~', '@']),
        }
    }
}

/// A scheme of HTTP that is followed by a secret.
pub(super) fn is_scheme(word: &str) -> bool {
    ["bearer", "basic"]
        .iter()
        .any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// Whether a word is long and mixed as no name in Kubernetes is.
fn is_of_chance(word: &str) -> bool {
    let has = |kind: fn(&u8) -> bool| word.as_bytes().iter().any(kind);
    word.len() >= MIN_TOKEN
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_digit)
        && !word.contains(['/', '.', ':'])
}

/// How long the secret is that belongs to a key of AWS.
const AWS_SECRET: usize = 40;

/// The ID of a key of AWS, a lasting or a temporary one.
pub(super) fn is_key_id(word: &str) -> bool {
    let rest = word
        .strip_prefix("AKIA")
        .or_else(|| word.strip_prefix("ASIA"));
    let plain = |c: u8| c.is_ascii_uppercase() || c.is_ascii_digit();
    rest.is_some_and(|rest| rest.len() == MIN_TOKEN && rest.bytes().all(plain))
}

/// Whether it is followed by what signs a URL: `X-Amz-Signature=`, `sig=`. With
/// any other sign behind it, it is a word like others.
pub(super) fn is_parameters_name(name: &str) -> bool {
    ends_with(name, "signature") || name.eq_ignore_ascii_case("sig")
}

/// A header of HTTP.
pub(super) fn is_cookies_name(name: &str) -> bool {
    ["cookie", "set-cookie"]
        .iter()
        .any(|own| name.eq_ignore_ascii_case(own))
}

/// `name=value`
pub(super) fn is_cookie(word: &str) -> bool {
    let (name, value) = word.split_once('=').unwrap_or_default();
    !name.is_empty() && !value.is_empty()
}

/// What a sentence about an option goes on with.
fn is_of_sentences(word: &str) -> bool {
    const WORDS: [&str; 34] = [
        "and",
        "argument",
        "are",
        "can",
        "cannot",
        "flag",
        "for",
        "has",
        "in",
        "is",
        "must",
        "needs",
        "not",
        "option",
        "or",
        "requires",
        "should",
        "to",
        "was",
        "with",
        "deprecated",
        "does",
        "empty",
        "expired",
        "file",
        "have",
        "ignored",
        "invalid",
        "missing",
        "set",
        "unset",
        "value",
        "will",
        "wrong",
    ];
    WORDS.contains(&word)
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
