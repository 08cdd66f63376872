//! Takes secrets out of what plugins and logs say: an error of the API server's client
//! can quote the token or the certificate that was refused.
//!
//! The text is read once as symbols, whatever way they are written ([`symbols`]).
//! Four rules look at these, each by itself, and say which ranges are secrets:
//! PEM, who asks in a URL, the form of a token ([`forms`]), and the name before a
//! value. The name says how sure it is ([`names`]), and how its value is written
//! says where that ends ([`values`]). Each rule takes a time that grows with the
//! text's length alone.

mod forms;
mod names;
mod symbols;
mod values;

#[cfg(feature = "testing")]
mod fuzz;
#[cfg(feature = "testing")]
pub mod secret;

use event::order::Order as _;
use std::ops::Range;

#[cfg(feature = "testing")]
pub use self::fuzz::fuzz;
use self::symbols::{Form, Symbols};

/// What stands in a secret's place.
const REDACTED: &str = "[redacted]";

/// The text without what looks like a token, a key or a certificate.
pub fn redact(text: &str) -> String {
    let symbols = Symbols::of(text);
    let mut secrets = values::of_names(&symbols);
    secrets.extend(user_infos(&symbols));
    secrets.extend(refused_ports(&symbols));
    secrets.extend(forms::tokens(&symbols));
    let mut secrets: Vec<_> = secrets.into_iter().map(|it| symbols.bytes(it)).collect();
    secrets.extend(pem_blocks(text));
    without(text, secrets)
}

/// The same where it stands.
pub fn redact_in(text: &mut String) {
    let hidden = redact(text);
    if hidden != *text {
        *text = hidden;
    }
}

/// The text without these ranges of bytes, which may overlap.
fn without(text: &str, mut secrets: Vec<Range<usize>>) -> String {
    secrets.retain(|secret| !secret.is_empty());
    secrets.order_by_key(|secret| secret.start);
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for secret in secrets {
        if secret.start >= done {
            out.push_str(text.get(done..secret.start).unwrap_or_default());
            out.push_str(REDACTED);
        }
        done = done.max(secret.end);
    }
    out.push_str(text.get(done..).unwrap_or_default());
    out
}

/// PEM (RFC 7468): a block that does not end goes to the text's end.
fn pem_blocks(text: &str) -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    let mut from = 0;
    while let Some(begin) = find(text, from, "-----BEGIN ") {
        let end = find(text, begin, "-----END ");
        from = end.map_or(text.len(), |end| text.len() - after_pem(text, end).len());
        blocks.push(begin..from);
    }
    blocks
}

fn find(text: &str, from: usize, what: &str) -> Option<usize> {
    Some(from + text.get(from..)?.find(what)?)
}

/// What follows `-----END LABEL-----`.
fn after_pem(text: &str, end: usize) -> &str {
    let end = text.get(end..).unwrap_or_default();
    let label = end.strip_prefix("-----END ").unwrap_or_default();
    let after = label.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == ' ');
    // If its dashes are not there, it is no label, and the next may be another
    // block's.
    let closed = after.strip_prefix("-----");
    closed
        .filter(|it| !it.starts_with("BEGIN "))
        .unwrap_or(label)
}

/// Who asks (RFC 3986): `//`**`user:secret`**`@host`, and `user:`**`secret`**`@host`
/// where no URL is.
fn user_infos(symbols: &Symbols) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut begin = 0;
    while begin < symbols.len() {
        let is_url = symbols.ends_with(begin, "//");
        let form = symbols.form(begin.saturating_sub(1));
        let ends = |at: &usize| {
            let c = symbols.char(*at);
            let begins_url = c == '/' && (symbols.char(at + 1) == c || symbols.ends_with(*at, "/"));
            let is_plain = symbols.form(*at) != Form::Percent;
            let counts = is_plain || begins_url || (is_url && symbols.form(*at) == form);
            let is_of_list = !is_url && ",;=&|([{<".contains(c);
            counts && (c.is_whitespace() || "/?\"'`\\".contains(c) || is_of_list)
        };
        let end = (begin..symbols.len()).find(ends).unwrap_or(symbols.len());
        // What is no port is a password's beginning, which holds any sign.
        let end = match is_url && !has_port(symbols, begin..end) {
            true => symbols.skip(end, |c| !c.is_whitespace() && !"\"'`\\".contains(c)),
            false => end,
        };
        let asks = (begin..end).rfind(|at| symbols.char(*at) == '@');
        if let Some(at) = asks {
            let colon = (begin..at).find(|at| symbols.char(*at) == ':');
            let is_name = |from: Range<usize>| {
                !from.is_empty() && from.into_iter().all(|at| names::is_part(symbols.char(at)))
            };
            if is_url {
                found.push(begin..at);
            } else if let Some(colon) = colon
                && is_name(begin..colon)
                && is_host(&symbols.text(at + 1..end))
            {
                found.push(colon + 1..at);
            }
        }
        begin = end + 1;
    }
    found
}

/// Whether `host:port` has a port that is one, or none, or says who asks.
fn has_port(symbols: &Symbols, authority: Range<usize>) -> bool {
    let text = symbols.text(authority);
    let Some((_, port)) = text.rsplit_once(':') else {
        return true;
    };
    let is_host = port.ends_with(']') || text.contains('@');
    is_host || port.bytes().all(|c| c.is_ascii_digit())
}

/// The port that Go's URL parser refuses is a password's beginning: `invalid port
/// ":`**`secret`**`" after host`.
fn refused_ports(symbols: &Symbols) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < symbols.len() {
        let begin = symbols.skip(at, |c| c != ':');
        let quote = begin.saturating_sub(1);
        let is_one = symbols.before(begin).is_some_and(|c| "\"'`".contains(c))
            && symbols.ends_with(quote, "invalid port ");
        if is_one {
            let end = symbols.skip(begin + 1, |c| !"\"'`\n".contains(c));
            found.push(begin + 1..end);
        }
        at = begin + 1;
    }
    found
}

/// Neither the digest of an image nor the peer of a device (`eth0@if7`).
fn is_host(name: &str) -> bool {
    let peer = name.strip_prefix("if");
    let is_peer = peer.is_some_and(|peer| peer.starts_with(|c: char| c.is_ascii_digit()));
    let is_digest = name.starts_with("sha256:") || name.starts_with("sha512:");
    !is_peer && !is_digest && name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[')
}

#[cfg(test)]
mod tests;
