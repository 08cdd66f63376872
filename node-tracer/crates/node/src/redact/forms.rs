//! Tokens that are known by their own form.

use std::ops::Range;

use super::symbols::Symbols;

/// Shorter words are no tokens.
pub(super) const MIN_TOKEN: usize = 16;
/// Shorter words are no tokens without a name.
const MIN_UNNAMED: usize = 20;

/// How tokens begin: a JSON Web Token (RFC 7519: base64url of `{"`), PEM in
/// base64, and those of clouds, forges, registries and vaults. A path or a name
/// may stand before them, but no other letter: hashes can hold any three.
const BEGINNINGS: [&str; 56] = [
    "eyJ",
    "sha256~",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "gldt-",
    "glrt-",
    "glcbt-",
    "ya29.",
    "AIza",
    "GOCSPX-",
    "hvs.",
    "hvb.",
    "hvr.",
    "npm_",
    "pypi-",
    "rubygems_",
    "dckr_pat_",
    "dckr_oat_",
    "xoxa-",
    "xoxb-",
    "xoxe-",
    "xoxp-",
    "xoxr-",
    "xoxs-",
    "xapp-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "rk_test_",
    "SG.",
    "dop_v1_",
    "doo_v1_",
    "AGE-SECRET-KEY-",
    "shpat_",
    "sk-proj-",
    "sk-ant-",
    "sk-svcacct-",
    "hf_",
    "tskey-",
    "glsa_",
    "glc_",
    "SWMTKN-1-",
    "LTAI",
    "ATATT",
    "AKCp",
    "dp.pt.",
    "whsec_",
    "NRAK-",
    "pul-",
    "atlasv1.",
    "sntrys_",
];

/// The same, long enough to stand anywhere.
const UNMISTAKABLE: [&str; 2] = ["LS0tLS1CRUdJTi", "k8s-aws-v1."];

/// Every word that is one.
pub(super) fn tokens(symbols: &Symbols) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < symbols.len() {
        let end = end_of_word(symbols, at);
        let is_long = end - at >= MIN_TOKEN;
        if is_long && let Some(whole) = end_of_k3s(symbols, at, end) {
            found.push(at..whole);
        } else if is_long && is_token(&symbols.text(at..end)) {
            let whole = symbols.skip(end, |c| c == '=');
            found.push(at..whole);
        }
        at = end + 1;
    }
    found
}

/// Where the word ends that begins here, without the signs that stand between
/// others.
pub(super) fn end_of_word(symbols: &Symbols, at: usize) -> usize {
    symbols.skip(at, |c| c.is_ascii_alphanumeric() || "._-+/~".contains(c))
}

fn is_token(word: &str) -> bool {
    let long = |at: usize| {
        let rest = word.get(at..).unwrap_or_default();
        let mixed = |c: u8| c.is_ascii_digit() || c.is_ascii_uppercase();
        rest.len() >= MIN_TOKEN && rest.bytes().any(mixed)
    };
    let mut ends = BEGINNINGS.iter();
    let begins = ends.any(|begin| {
        let mut found = word.match_indices(begin);
        found.any(|(at, _)| is_at_a_boundary(word, at) && long(at))
    });
    let mut parts = word.split(|c: char| !c.is_ascii_alphanumeric());
    begins
        || UNMISTAKABLE
            .iter()
            .any(|begin| word.find(begin).is_some_and(long))
        || parts.any(is_key_id)
        || is_of_kubeadm(word)
        || (word.len() >= MIN_UNNAMED && !is_symbol(word) && pieces(word).any(is_chance))
}

fn is_at_a_boundary(word: &str, at: usize) -> bool {
    let before = word.get(..at).and_then(|before| before.chars().next_back());
    before.is_none_or(|c| !c.is_ascii_alphanumeric())
}

/// The ID of a key of AWS, a lasting or a temporary one.
fn is_key_id(word: &str) -> bool {
    let begins = ["AKIA", "ASIA"].iter().find_map(|it| word.strip_prefix(it));
    let plain = |c: u8| c.is_ascii_uppercase() || c.is_ascii_digit();
    begins.is_some_and(|rest| rest.len() == MIN_TOKEN && rest.bytes().all(plain))
}

/// A token that nodes join with, in its form: `abcdef.0123456789abcdef`.
fn is_of_kubeadm(word: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let (id, secret) = word.split_once('.').unwrap_or_default();
    (id.len(), secret.len()) == (6, MIN_TOKEN)
        && id.bytes().chain(secret.bytes()).all(plain)
        // Names of hosts are words.
        && secret.bytes().any(|c| c.is_ascii_digit())
}

/// Where a token of k3s ends: `K10`, the hash of a certificate, `::user:`**`password`**.
fn end_of_k3s(symbols: &Symbols, at: usize, end: usize) -> Option<usize> {
    let word = symbols.text(at..end);
    let hash = word.strip_prefix("K10")?;
    let is_hash = hash.len() == 64 && hash.bytes().all(|c| c.is_ascii_hexdigit());
    let is_one = is_hash && symbols.char(end) == ':' && symbols.char(end + 1) == ':';
    is_one.then(|| symbols.skip(end, |c| !c.is_whitespace() && !"\"'`".contains(c)))
}

/// A function of a kernel's Rust, whose name is mangled.
fn is_symbol(word: &str) -> bool {
    word.starts_with("_R") || word.starts_with("_ZN")
}

fn pieces(word: &str) -> impl Iterator<Item = &str> {
    word.split(|c: char| !c.is_ascii_alphanumeric() && c != '+')
}

/// Whether a word is mixed as no name is: IDs of Kubernetes, of runtimes and of
/// clouds have letters of one case, names of errors few digits.
fn is_chance(piece: &str) -> bool {
    let kinds = piece.bytes().map(kind);
    let turns = kinds.clone().zip(kinds.skip(1));
    // A capital and a small letter are a word's beginning.
    let turns = turns
        .filter(|(a, b)| a != b && (*a, *b) != (b'A', b'a'))
        .count();
    let many = |of: u8| piece.bytes().filter(|c| kind(*c) == of).count() > 2;
    is_mixed(piece) && many(b'A') && many(b'a') && turns > 4 && turns * 5 >= piece.len()
}

/// Whether a word is long and has all three kinds, as no name in Kubernetes does.
fn is_mixed(piece: &str) -> bool {
    piece.len() >= MIN_TOKEN
        && [b'A', b'a', b'0']
            .iter()
            .all(|it| piece.bytes().any(|c| kind(c) == *it))
}

fn kind(byte: u8) -> u8 {
    match byte {
        b'A'..=b'Z' => b'A',
        b'a'..=b'z' => b'a',
        b'0'..=b'9' => b'0',
        other => other,
    }
}

/// Whether a word behind a name that may be a secret's is one.
pub(super) fn is_likely(word: &str) -> bool {
    is_token(word) || pieces(word).any(is_mixed)
}

/// Whether a word behind a scheme of HTTP is no word of a sentence.
pub(super) fn is_of_scheme(word: &str) -> bool {
    let encoded = |c: u8| c.is_ascii_digit() || c == b'=' || c == b'+';
    word.ends_with('=') || (word.len() >= MIN_TOKEN && word.bytes().any(encoded)) || is_likely(word)
}
