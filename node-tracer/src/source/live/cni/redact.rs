//! Takes secrets out of what plugins say: an error of the API server's client
//! can quote the token or the certificate that was refused.

/// What stands in a secret's place.
const REDACTED: &str = "[redacted]";
/// Shorter words are no tokens.
const MIN_TOKEN: usize = 16;

/// The text without what looks like a token, a key or a certificate.
pub(super) fn redact(text: &str) -> String {
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
    label.split_once("-----").map_or("", |(_, after)| after)
}

fn words(text: &str, out: &mut String) {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "._-+/=~".contains(c);
    let mut after_bearer = false;
    let mut rest = text;
    while let Some(start) = rest.find(is_word) {
        let (gap, word) = rest.split_at(start);
        out.push_str(gap);
        let end = word.find(|c| !is_word(c)).unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        let secret = is_token(word) || (after_bearer && word.len() >= MIN_TOKEN);
        out.push_str(if secret { REDACTED } else { word });
        after_bearer = word.eq_ignore_ascii_case("bearer");
        rest = after;
    }
    out.push_str(rest);
}

/// A JSON Web Token (RFC 7519): base64url of `{"`, dots, no spaces; also if
/// its end was cut off, or behind `token=`.
fn is_token(word: &str) -> bool {
    let value = word.rsplit('=').find(|part| !part.is_empty());
    let value = value.unwrap_or_default();
    [word, value]
        .iter()
        .any(|word| word.starts_with("eyJ") && word.len() >= MIN_TOKEN)
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
            (format!("\"{jwt}\""), "\"[redacted]\""),
            (
                String::from(
                    "bad -----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY----- key",
                ),
                "bad [redacted] key",
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
        ] {
            assert_eq!(redact(text), text);
        }
    }
}
