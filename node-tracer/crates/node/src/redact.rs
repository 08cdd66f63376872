//! Takes secrets out of what plugins and logs say: an error of the API server's client
//! can quote the token or the certificate that was refused.
//!
//! A secret is known by its own form (a JSON Web Token, PEM, a token of a
//! cloud), by its place in a URL, or by the name before it ([`names`]).

mod names;

#[cfg(feature = "testing")]
mod fuzz;
#[cfg(feature = "testing")]
pub mod secret;

#[cfg(feature = "testing")]
pub use self::fuzz::fuzz;
use self::names::{
    After, is_cookie, is_cookies_name, is_key_id, is_parameters_name, is_scheme, is_secrets_name,
};

/// What stands in a secret's place.
const REDACTED: &str = "[redacted]";
/// Shorter words are no tokens.
const MIN_TOKEN: usize = 16;
/// What stands between a name and its value.
const SIGNS: [char; 2] = [':', '='];
const QUOTES: [char; 3] = ['"', '\'', '`'];

/// The text without what looks like a token, a key or a certificate.
pub fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // PEM (RFC 7468) first, as it spans words and lines.
    while let Some(begin) = rest.find("-----BEGIN ") {
        let (before, block) = rest.split_at(begin);
        words(before, &mut out);
        out.push_str(REDACTED);
        rest = match block.find("-----END ") {
            Some(end) => after_pem(block.get(end..).unwrap_or_default()),
            None => "",
        };
    }
    words(rest, &mut out);
    out
}

/// The same where it stands.
pub fn redact_in(text: &mut String) {
    let hidden = redact(text);
    if hidden != *text {
        *text = hidden;
    }
}

/// What follows `-----END LABEL-----`.
fn after_pem(end: &str) -> &str {
    let label = end.strip_prefix("-----END ").unwrap_or_default();
    let after = label.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == ' ');
    // If its dashes are not there, it is no label, and the next may be another
    // block's.
    let closed = after.strip_prefix("-----");
    closed
        .filter(|it| !it.starts_with("BEGIN "))
        .unwrap_or(label)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-+/=~:@%".contains(c)
}

/// What a password can have besides; what ends a value in a list, a URL or a
/// structure is not among it.
fn is_value(c: char) -> bool {
    is_word(c) || "!#$^*?".contains(c)
}

fn words(text: &str, out: &mut String) {
    let mut after = After::Anything;
    let mut before = "";
    let mut rest = text;
    while let Some(start) = rest.find(is_word) {
        let (gap, word) = rest.split_at(start);
        out.push_str(gap);
        after = after.across(gap);
        if after.is_sign() && begins_with_nothing(gap) {
            after = After::Anything;
        }
        let quoted = gap.ends_with(QUOTES);
        let (word, mut more) = split_where(word, |c| !is_word(c));
        let named = after.is_followed_by_a_secret(word, quoted);
        if let Some(name) = name_of_value(word).filter(|_| after.is_name() && gap.contains('{')) {
            // `Token{Value:...}`: from here on the value is the token's.
            let (name, value) = word.split_at(name);
            out.push_str(name);
            if !value.is_empty() {
                hide(value, out);
                (_, more) = split_where(more, |c| !is_value(c));
            }
            after = match (value, name.ends_with(SIGNS)) {
                ("", true) => After::Name,
                ("", false) => After::Bare,
                _ => After::Anything,
            };
            before = word;
            rest = more;
            continue;
        }
        if after == After::Cookies && named {
            hide(word, out);
            more = behind_cookies(more);
        } else if named && after.is_sign() {
            let whole = value(rest, start, gap).max(word.len());
            let (secret, behind) = rest.get(start..).unwrap_or_default().split_at(whole);
            hide(secret, out);
            more = behind;
        } else if named {
            hide(word, out);
            (_, more) = split_where(more, |c| !is_value(c));
        } else if is_token(word) {
            hide(word, out);
        } else if without_credentials(word, out) {
            (_, more) = split_where(more, |c| !is_value(c));
            let is_header = word.split(SIGNS).any(is_cookies_name);
            more = if is_header {
                behind_cookies(more)
            } else {
                more
            };
        }
        let ends = more.trim_start_matches('\\').starts_with(QUOTES);
        after = After::of(word, after, (quoted && ends).then_some(before));
        before = word;
        rest = more;
    }
    out.push_str(rest);
}

/// Where the value begins of a field that is called `value`: behind its sign, if
/// that is in the same word.
fn name_of_value(word: &str) -> Option<usize> {
    const NAME: &str = "value";
    let name = word.get(..NAME.len())?;
    let rest = word.get(NAME.len()..)?;
    let ends = rest.is_empty() || rest.starts_with(SIGNS);
    let sign = usize::from(!rest.is_empty());
    (ends && name.eq_ignore_ascii_case(NAME)).then_some(NAME.len() + sign)
}

/// What follows the cookies behind the first one.
fn behind_cookies(text: &str) -> &str {
    let mut rest = text;
    while let Some(next) = rest.strip_prefix(';') {
        let next = next.trim_start_matches(' ');
        (_, rest) = split_where(next, |c| !is_value(c));
        if rest.len() == next.len() {
            break;
        }
    }
    rest
}

/// Whether a value is there, an empty one: `"token": "", ...`.
fn begins_with_nothing(gap: &str) -> bool {
    let gap = gap.trim_start();
    let behind = ["\"\"", "''", "\\\"\\\""].map(|nothing| gap.strip_prefix(nothing));
    behind.into_iter().flatten().any(|rest| !rest.is_empty())
}

fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// A secret, but not what ends a sentence's part behind it.
fn hide(secret: &str, out: &mut String) {
    out.push_str(REDACTED);
    let bare = secret.trim_end_matches(':');
    out.push_str(secret.get(bare.len()..).unwrap_or_default());
}

/// How long the value is that begins at `start`, behind `gap`: in quotes, it
/// ends where they do.
fn value(text: &str, start: usize, gap: &str) -> usize {
    let text = text.get(start..).unwrap_or_default();
    let quote = gap.chars().next_back().filter(|c| QUOTES.contains(c));
    let end = quote.and_then(|quote| {
        // Quotes of quotes end with such.
        let escaped = gap.get(..gap.len() - quote.len_utf8())?.ends_with('\\');
        let mut ends = text.match_indices(quote).map(|(at, _)| at);
        let ends = ends.find(|at| {
            let inner = text.get(..*at).unwrap_or_default();
            inner.ends_with('\\') == escaped
        });
        let inner = text.get(..ends?)?;
        Some(inner.trim_end_matches('\\').len())
    });
    end.unwrap_or_else(|| split_where(text, |c| !is_value(c)).0.len())
}

/// How tokens begin, wherever in the word, as a path or a name may stand before
/// them: a JSON Web Token (RFC 7519: base64url of `{"`), PEM in base64, those of
/// EKS, OpenShift, GitHub and GitLab. With it, whether another letter may stand
/// right before: hashes can hold any three letters.
const BEGINNINGS: [(&str, bool); 11] = [
    ("eyJ", false),
    ("LS0tLS1CRUdJTi", true),
    ("k8s-aws-v1.", true),
    ("sha256~", false),
    ("ghp_", false),
    ("gho_", false),
    ("ghu_", false),
    ("ghs_", false),
    ("ghr_", false),
    ("github_pat_", false),
    ("glpat-", false),
];

/// Whether a word has a token in it, by its form.
fn is_token(word: &str) -> bool {
    let begins = BEGINNINGS.iter().any(|(begin, anywhere)| {
        word.match_indices(begin).any(|(at, _)| {
            word.len() - at >= MIN_TOKEN && (*anywhere || is_at_a_boundary(word, at))
        })
    });
    let mut parts = word.split(|c: char| !c.is_ascii_alphanumeric());
    begins || parts.any(is_key_id) || is_of_kubeadm(word)
}

/// A token that nodes join with, in its form: `abcdef.0123456789abcdef`.
fn is_of_kubeadm(word: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let word = word.rsplit(SIGNS).find(|part| !part.is_empty());
    let (id, secret) = word
        .and_then(|word| word.split_once('.'))
        .unwrap_or_default();
    (id.len(), secret.len()) == (6, MIN_TOKEN)
        && id.bytes().chain(secret.bytes()).all(plain)
        // Names of hosts are words.
        && secret.bytes().any(|c| c.is_ascii_digit())
}

fn is_at_a_boundary(word: &str, at: usize) -> bool {
    let before = word.get(..at).and_then(|before| before.chars().next_back());
    before.is_none_or(|c| !c.is_ascii_alphanumeric())
}

/// A word that is no secret as a whole: `name=secret`, `scheme://user:secret@host`.
/// Returns whether it ends with a secret.
fn without_credentials(word: &str, out: &mut String) -> bool {
    let mut rest = word;
    loop {
        let user = user_info(rest);
        let before = user.map_or(rest.len(), |(begin, _)| begin);
        if let Some(at) = named_value(rest, before) {
            out.push_str(rest.get(..at).unwrap_or_default());
            hide(rest.get(at..).unwrap_or_default(), out);
            return true;
        }
        let Some((begin, end)) = user else {
            out.push_str(rest);
            return false;
        };
        out.push_str(rest.get(..begin).unwrap_or_default());
        out.push_str(REDACTED);
        rest = rest.get(end..).unwrap_or_default();
    }
}

/// Where a URL (RFC 3986) says who asks: `//`**`user:secret`**`@host`.
fn user_info(word: &str) -> Option<(usize, usize)> {
    word.match_indices("://").find_map(|(at, sign)| {
        let begin = at + sign.len();
        let authority = word.get(begin..)?.split('/').next()?;
        Some((begin, begin + authority.rfind('@')?))
    })
}

/// Where the value of a secret's name begins, if that is no later than `until`.
fn named_value(word: &str, until: usize) -> Option<usize> {
    let mut begin = 0;
    for (at, sign) in word.get(..until)?.match_indices(SIGNS) {
        let name = word.get(begin..at)?;
        begin = at + sign.len();
        let value = word.get(begin..)?;
        let is_name = is_secrets_name(name)
            || (is_scheme(name) && value.len() >= MIN_TOKEN)
            || (sign == "=" && is_parameters_name(name))
            || (sign == ":" && is_cookies_name(name) && is_cookie(value));
        if is_name && !value.trim_matches(SIGNS).is_empty() {
            return Some(begin);
        }
    }
    None
}

#[cfg(test)]
mod tests;
