//! Takes secrets out of what plugins and logs say: an error of the API server's client
//! can quote the token or the certificate that was refused.

/// What stands in a secret's place.
const REDACTED: &str = "[redacted]";
/// Shorter words are no tokens.
const MIN_TOKEN: usize = 16;

/// The text without what looks like a token, a key or a certificate.
pub(crate) fn redact(text: &str) -> String {
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

fn words(text: &str, out: &mut String) {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "._-+/=~:@%".contains(c);
    let mut after = After::Anything;
    let mut rest = text;
    while let Some(start) = rest.find(is_word) {
        let (gap, word) = rest.split_at(start);
        out.push_str(gap);
        let end = word.find(|c| !is_word(c)).unwrap_or(word.len());
        let (word, more) = word.split_at(end);
        let secret = is_token(word) || after.is_followed_by_a_secret(word);
        match secret {
            true => {
                out.push_str(REDACTED);
                out.push_str(
                    word.get(word.trim_end_matches(':').len()..)
                        .unwrap_or_default(),
                );
            }
            false => without_credentials(word, out),
        }
        after = After::of(word, after);
        rest = more;
    }
    out.push_str(rest);
}

/// What the word before says of the next.
#[derive(Clone, Copy)]
enum After {
    Anything,
    /// A scheme of HTTP (RFC 7235).
    Scheme,
    /// `token:`, `password=`, ...
    Name,
    /// The same without a sign: one may follow, as in `"token": "..."`.
    Bare,
}

impl After {
    fn of(word: &str, before: Self) -> Self {
        let lower = word.to_ascii_lowercase();
        // What ends a path is no name: `.../token: no such file`.
        let is_name = |name: &str| is_secrets_name(name) && !name.starts_with('/');
        match lower.strip_suffix([':', '=']) {
            Some("") if matches!(before, Self::Bare) => Self::Name,
            Some(name) if is_name(name) => Self::Name,
            None if is_name(&lower) => Self::Bare,
            _ if matches!(lower.as_str(), "bearer" | "basic") => Self::Scheme,
            _ => Self::Anything,
        }
    }

    fn is_followed_by_a_secret(self, word: &str) -> bool {
        match self {
            Self::Anything => false,
            Self::Scheme => word.len() >= MIN_TOKEN || word.ends_with('='),
            Self::Name => true,
            Self::Bare => word.len() > 1 && word.starts_with([':', '=']),
        }
    }
}

/// What is called a secret in configurations.
fn is_secrets_name(name: &str) -> bool {
    [
        "token",
        "password",
        "passwd",
        "secret",
        "key-data",
        "access_key",
    ]
    .iter()
    .any(|end| name.ends_with(end))
}

/// A JSON Web Token (RFC 7519): base64url of `{"`; PEM in base64; a token of
/// EKS. Wherever in the word, as a path or a name may stand before it.
fn is_token(word: &str) -> bool {
    ["eyJ", "LS0tLS1CRUdJTi", "k8s-aws-v1."]
        .iter()
        .flat_map(|begin| word.match_indices(begin))
        .any(|(at, _)| word.len() - at >= MIN_TOKEN && is_at_a_boundary(word, at))
}

/// Hashes can hold any three letters.
fn is_at_a_boundary(word: &str, at: usize) -> bool {
    let before = word.get(..at).and_then(|before| before.chars().next_back());
    before.is_none_or(|c| !c.is_ascii_alphanumeric())
}

/// A word that is no secret as a whole: `name=secret`, `scheme://user:secret@host`.
fn without_credentials(word: &str, out: &mut String) {
    if let Some((scheme, rest)) = word.split_once("://")
        && let Some((user, host)) = rest.split_once('@')
        && !user.contains('/')
    {
        out.push_str(scheme);
        out.push_str("://");
        out.push_str(REDACTED);
        out.push('@');
        out.push_str(host);
        return;
    }
    let value = word.split_once(['=', ':']);
    if let Some((name, value)) = value
        && !value.is_empty()
        && is_secrets_name(&name.to_ascii_lowercase())
    {
        let separator = word.get(name.len()..=name.len()).unwrap_or_default();
        out.push_str(name);
        out.push_str(separator);
        out.push_str(REDACTED);
        return;
    }
    out.push_str(word);
}

/// Text of chance around a secret in each of its forms: none comes out, and
/// what does is not much longer.
#[cfg(fuzzing)]
pub(crate) fn fuzz(data: &[u8]) {
    const SECRET: &str = "c2VjcmV0OmlzLXRydWU";
    let text = String::from_utf8_lossy(data);
    let bounded = |text: &str| {
        let out = redact(text);
        assert!(
            out.len() <= (REDACTED.len() + 1) * (text.len() + 1),
            "{out:?}"
        );
        out
    };
    crate::fuzz::secret::assert_hidden(&bounded(&text));
    let middle = text.char_indices().nth(text.chars().count() / 2);
    let (before, after) = text.split_at(middle.map_or(0, |(at, _)| at));
    for secret in [
        format!("eyJ{SECRET}.e30.{SECRET}"),
        format!("Bearer {SECRET}"),
        format!("password={SECRET}"),
        format!("\"token\": \"{SECRET}\""),
        format!("https://user:{SECRET}@10.0.0.1/x"),
        format!("-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----"),
        format!("LS0tLS1CRUdJTi{SECRET}"),
        format!("k8s-aws-v1.{SECRET}"),
    ] {
        let around = format!("{before} {secret} {after}");
        let out = bounded(&around);
        assert!(!out.contains(SECRET), "{around:?} is {out:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_keys_and_certificates_are_taken_out() {
        let jwt = "eyJhbGciOiJSUzI1NiIsImtpZCI6Ijc4In0.eyJpc3MiOiJrdWJl.c2ln";
        for (text, expected) in [
            (format!("token {jwt} refused"), "token [redacted] refused"),
            (
                format!("Authorization: Bearer {jwt}"),
                "Authorization: Bearer [redacted]",
            ),
            (
                String::from("bearer abcdef0123456789abcdef: no"),
                "bearer [redacted]: no",
            ),
            (format!("?token={jwt}&x=1"), "?[redacted]&x=1"),
            (format!("GET /api/{jwt}"), "GET [redacted]"),
            (
                String::from("Authorization: Basic dXNlcjpwYXNzd29yZA=="),
                "Authorization: Basic [redacted]",
            ),
            (
                String::from("client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURQ=="),
                "client-key-data: [redacted]",
            ),
            (
                String::from("https://admin:hunter2@10.0.0.1:6443/api"),
                "https://[redacted]@10.0.0.1:6443/api",
            ),
            (
                String::from("password=hunter2, retry"),
                "password=[redacted], retry",
            ),
            (String::from("token: abc"), "token: [redacted]"),
            (
                String::from(r#"{"token":"abc","n":1}"#),
                r#"{"token":"[redacted]","n":1}"#,
            ),
            (String::from("Password = abc d"), "Password = [redacted] d"),
            (String::from(r#""secret":123"#), r#""secret"[redacted]"#),
            // The first that looks like one need not be it.
            (format!("/a5eyJ/{jwt}"), "[redacted]"),
            (String::from("k8s-aws-v1.aHR0cHM6Ly9zdHM"), "[redacted]"),
            (format!("\"{jwt}\""), "\"[redacted]\""),
            (
                String::from(
                    "bad -----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY----- key",
                ),
                "bad [redacted] key",
            ),
            (
                String::from(
                    "-----BEGIN X-----\nMIIEow\n-----END \n-----BEGIN Y-----\nMIIEow\n-----END Y-----",
                ),
                "[redacted]\n[redacted]",
            ),
            (
                format!("-----BEGIN X-----\n-----END a {jwt}"),
                "[redacted]a [redacted]",
            ),
            (
                String::from("-----BEGIN X-----\n-----END -----BEGIN Y-----\nMIIEow"),
                "[redacted][redacted]",
            ),
            (
                String::from("cut -----BEGIN CERTIFICATE-----\nMIIEow"),
                "cut [redacted]",
            ),
        ] {
            assert_eq!(redact(&text), expected);
        }
    }

    #[test]
    fn what_is_no_secret_stays_as_it_is() {
        for text in [
            "",
            "no IP addresses available in range set: 10.0.0.1-10.0.0.6",
            "failed to find plugin \"bridge\" in path [/opt/cni/bin]",
            "standard bearer of tokens; eyJ",
            "-----END of story",
            "veth a5f3e8eyJ already exists \u{1f600} \u{e9}",
            "Get \"https://10.0.0.1:443/api/v1/pods?limit=5\": dial tcp 10.0.0.1:443: refused",
            "basic auth is off: token",
            "secret \"db-password\" not found",
            "open /var/run/secrets/token: no such file",
            "container 5f3eyJ0a1b2c3d4e5f6a7b8c9d0e1f2",
        ] {
            assert_eq!(redact(text), text);
        }
    }
}
