//! What a name says of the value behind it.

/// How sure a name is of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// Of anything.
    Other,
    /// Of a secret, if the value looks like one: `key`, `tokenCount`.
    Doubtful,
    /// Of one behind `=` only: `X-Amz-Signature=`, `sig=`. With any other sign
    /// it is as doubtful.
    Parameter,
    /// Of one, whatever it looks like.
    Secret,
    /// Of many, or of how many there are: `tokens: 5`.
    Secrets,
    /// A scheme of HTTP (RFC 7235).
    Scheme,
    /// A header of HTTP that is a secret to the line's end.
    Header,
    /// The same of cookies (RFC 6265), which are pairs.
    Cookies,
    /// Of a user, whose password may follow: `user:secret`.
    User,
}

/// How the words end that are called a secret.
const SECRETS: [&str; 10] = [
    "token",
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "passwort",
    "kennwort",
    "secret",
    "credential",
    "dockerconfigjson",
];
/// The same, as whole words.
const SHORT: [&str; 8] = [
    "pw",
    "pwd",
    "cred",
    "psk",
    "jwt",
    "assertion",
    "sas",
    "bearer",
];
/// Of anything as often as of a secret.
const DOUBTFUL: [&str; 8] = [
    "auth", "pass", "hmac", "pin", "otp", "secrets", "cookie", "cookies",
];
/// What makes two words one secret: a key is one of these, or it is a key of a map.
const KINDS_OF_KEYS: [&str; 30] = [
    "access",
    "account",
    "admin",
    "api",
    "app",
    "auth",
    "bearer",
    "certificate",
    "client",
    "consumer",
    "cookie",
    "crypt",
    "data",
    "encryption",
    "host",
    "ipsec",
    "licence",
    "license",
    "master",
    "material",
    "private",
    "routing",
    "secret",
    "secretbox",
    "session",
    "shared",
    "signing",
    "ssh",
    "storage",
    "tls",
];
/// What stands behind a secret's name and says which, or in what form.
const WHICH: [&str; 18] = [
    "b64",
    "backup",
    "base64",
    "contents",
    "current",
    "data",
    "dev",
    "hash",
    "material",
    "new",
    "old",
    "plain",
    "prod",
    "primary",
    "raw",
    "secondary",
    "string",
    "value",
];
/// Schemes of HTTP that stand before a secret, wherever that is.
const SCHEMES: [&str; 4] = ["bearer", "basic", "negotiate", "digest"];

/// What stands in a name.
pub(super) fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-".contains(c)
}

/// What a name says; `before` is the word before it, as a key can have one of
/// two words. `assigned` is whether a `=` follows: what has dots and has none is
/// a host or a file.
pub(super) fn meaning(name: &str, before: &str, assigned: bool) -> Name {
    let is_flag = name.starts_with('-');
    let last = if assigned {
        name
    } else {
        name.rsplit('.').next().unwrap_or_default()
    };
    let all = words(last);
    let tail = all.iter().rev().take_while(|word| is_which(word)).count();
    let own = all.get(..all.len() - tail).filter(|own| !own.is_empty());
    let own = own.unwrap_or(&all);
    let Some((word, rest)) = own.split_last() else {
        return Name::Other;
    };
    let one = word.strip_suffix('s').unwrap_or(word);
    let is_kind = |kind: &str| {
        let mut kinds = KINDS_OF_KEYS.iter();
        kinds.any(|it| kind.ends_with(it))
    };
    let said = || all.iter().map(String::as_str).chain([before]);
    let is_header = word.ends_with("authorization");
    match word.as_str() {
        _ if is_header => Name::Header,
        "u" | "user" if is_flag => Name::User,
        "cookie" if matches!(rest, [] | [_]) && all.len() == own.len() && is_cookies(name) => {
            Name::Cookies
        }
        word if rest.is_empty() && SCHEMES.contains(&word) => Name::Scheme,
        "sig" | "signature" => Name::Parameter,
        // `pass: 5, fail: 2` counts, `DB_PASS: a` does not.
        "pass" if !rest.is_empty() => Name::Secret,
        _ if DOUBTFUL.contains(&word.as_str()) => Name::Doubtful,
        "tokens" => Name::Secrets,
        _ if is_secret(one) => Name::Secret,
        // Of Secrets alone.
        "auths" => Name::Secret,
        "data" if rest.last().is_some_and(|it| it == "string") => Name::Secret,
        "phrase" if said().any(|it| it == "pass") => Name::Secret,
        "connection" if all.last().is_some_and(|it| it == "string") => Name::Secret,
        "connectionstring" => Name::Secret,
        _ => match one.strip_suffix("key") {
            Some("") if all.iter().any(|word| is_kind(word)) => Name::Secret,
            // Two words are of a sentence as often: `no such secret key: a`.
            Some("") if is_kind(before) && assigned => Name::Secret,
            Some("") => Name::Doubtful,
            Some(kind) if is_kind(kind) => Name::Secret,
            _ if rest.iter().any(|word| is_secret(word) || word == "key") => Name::Doubtful,
            _ => Name::Other,
        },
    }
}

fn is_cookies(name: &str) -> bool {
    ["cookie", "set-cookie"]
        .iter()
        .any(|own| name.eq_ignore_ascii_case(own))
}

fn is_secret(word: &str) -> bool {
    SHORT.contains(&word) || SECRETS.iter().any(|end| word.ends_with(end))
}

fn is_which(word: &str) -> bool {
    let number = word.strip_prefix('v').unwrap_or(word);
    WHICH.contains(&word) || number.bytes().all(|c| c.is_ascii_digit())
}

/// A name's words in small letters, whatever joins them (`apiKey`, `API_KEY`,
/// `api-key`), and without the numbers at their ends.
fn words(name: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut word = String::new();
    let mut chars = name.chars().peekable();
    let mut before = '.';
    while let Some(c) = chars.next() {
        let next_is_small = chars.peek().is_some_and(char::is_ascii_lowercase);
        let begins = c.is_ascii_uppercase() && (!before.is_ascii_uppercase() || next_is_small);
        if !c.is_ascii_alphanumeric() || begins {
            all.push(std::mem::take(&mut word));
        }
        if c.is_ascii_alphanumeric() {
            word.push(c.to_ascii_lowercase());
        }
        before = c;
    }
    all.push(word);
    for word in &mut all {
        let bare = word.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        if bare > 1 && !WHICH.contains(&word.as_str()) {
            word.truncate(bare);
        }
    }
    all.retain(|word| !word.is_empty());
    all
}

/// Schemes that are said before a header's secret.
pub(super) fn is_scheme_of_header(word: &str) -> bool {
    const MORE: [&str; 4] = ["ntlm", "token", "apikey", "aws4-hmac-sha256"];
    let mut all = SCHEMES.iter().chain(&MORE);
    all.any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// What a name in quotes is of, if it is an object's.
pub(super) fn is_kind_of_object(word: &str) -> bool {
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

/// Whether a name's value is the name of what stands beside it: `Name:A,Value:b`.
pub(super) fn is_of_a_name(name: &str) -> bool {
    ["name", "key"]
        .iter()
        .any(|it| name.eq_ignore_ascii_case(it))
}

/// How a sentence about a secret goes on, or what an error says of it.
pub(super) fn is_of_sentences(word: &str) -> bool {
    const WORDS: [&str; 59] = [
        "Delete",
        "Get",
        "Patch",
        "Post",
        "Put",
        "and",
        "authorization",
        "are",
        "argument",
        "can",
        "cannot",
        "connection",
        "context",
        "denied",
        "deprecated",
        "dial",
        "does",
        "empty",
        "error",
        "exec",
        "expired",
        "failed",
        "file",
        "flag",
        "for",
        "forbidden",
        "has",
        "have",
        "ignored",
        "in",
        "invalid",
        "is",
        "lookup",
        "missing",
        "must",
        "needs",
        "no",
        "none",
        "not",
        "open",
        "option",
        "or",
        "permission",
        "required",
        "requires",
        "rpc",
        "set",
        "should",
        "stat",
        "the",
        "to",
        "unable",
        "unauthorized",
        "unset",
        "value",
        "was",
        "will",
        "with",
        "wrong",
    ];
    WORDS.contains(&word)
}
