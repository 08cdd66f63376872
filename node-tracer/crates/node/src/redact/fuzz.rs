//! Text of chance around a secret in each of its forms.

use super::{REDACTED, redact, secret};

/// What can stand right before and right behind one.
const BEFORE: [&str; 10] = [
    "",
    "x:",
    "x=",
    "\"",
    "'",
    "[",
    "{\"x\":\"",
    "(",
    ",",
    "x=y:",
];
const BEHIND: [&str; 10] = ["", "]", "\"", "'", "\"}", ")", ",", ":", "=x", ", x"];

/// Of the forms, one in so many is tried with an input.
const SHARE: usize = 3;

/// None comes out, and what does is not much longer.
pub fn fuzz(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    secret::assert_hidden(&bounded(&text));
    let middle = text.char_indices().nth(text.chars().count() / 2);
    let (before, after) = text.split_at(middle.map_or(0, |(at, _)| at));
    // Any input may choose any of them.
    let chosen = data.iter().fold(0_usize, |all, byte| {
        all.wrapping_mul(31).wrapping_add(usize::from(*byte))
    });
    let pick = |of: &[&'static str], by: usize| of.get(by % of.len()).copied().unwrap_or_default();
    let opens = pick(&BEFORE, chosen);
    let closes = pick(&BEHIND, chosen / BEFORE.len());
    let secret = absent(&text);
    // Some at a time, so that more is tried of all else.
    for form in forms(&secret).iter().skip(chosen % SHARE).step_by(SHARE) {
        let around = format!("{before} {opens}{form}{closes} {after}");
        let out = bounded(&around);
        assert!(!out.contains(&secret), "{around:?} is {out:?}");
    }
}

fn bounded(text: &str) -> String {
    let out = redact(text);
    assert!(
        out.len() <= (REDACTED.len() + 1) * (text.len() + 1),
        "{out:?}"
    );
    out
}

/// One that the text does not contain by itself: there it may stand where no
/// secret does, and stays.
fn absent(text: &str) -> String {
    // None that is known by itself.
    let mut all = (0_u32..).map(|number| format!("sesame-open-sesame{number}"));
    all.find(|secret| !text.contains(secret))
        .expect("a text has an end")
}

fn forms(secret: &str) -> [String; 32] {
    [
        format!("eyJ{secret}.e30.{secret}"),
        format!("eyJ{secret}.eyJ{secret}."),
        format!("Bearer {secret}"),
        format!("Authorization:Bearer {secret}"),
        format!("Authorization=basic {secret}"),
        format!("Bearer:{secret}"),
        format!("password={secret}"),
        format!("password: a!{secret}"),
        format!("--set=token={secret}"),
        format!("token == {secret}"),
        format!("apiKey={secret}"),
        format!("client-secret: {secret}"),
        format!("AWS_SECRET_ACCESS_KEY:{secret}"),
        format!("private_key={secret}"),
        format!("\"token\": \"{secret}\""),
        format!("\"api-key\":\"a phrase, {secret}\""),
        format!("\\\"apikey\\\":\\\"a phrase {secret}\\\""),
        format!("https://user:{secret}@10.0.0.1/x"),
        format!("https://10.0.0.1/https://user:a@{secret}@10.0.0.1/x"),
        format!("-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----"),
        format!("LS0tLS1CRUdJTi{secret}"),
        format!("k8s-aws-v1.{secret}"),
        format!("sha256~{secret}"),
        format!("ghp_{secret}"),
        format!("github_pat_{secret}"),
        format!("glpat-{secret}"),
        format!("https://h/x?X-Amz-Signature={secret}"),
        format!("https://h/x?sv=1&sig={secret}%3D"),
        format!("--password {secret}"),
        format!("Cookie: a={secret}; b={secret}"),
        format!("Set-Cookie:a={secret}; Path=/"),
        format!("Token{{Value:{secret}}}"),
    ]
}
