//! What was said without who says it and how often it was passed on: the same
//! failure has the same key whoever tells it, in each of its tries.

use diagnosis::phrase::unquoted;

/// How much of a text tells failures apart. Events are cut off, and what
/// stands at the end differs from try to try more than what stands before.
const MAX_KEY: usize = 240;
/// Runs of hexadecimal digits that are IDs.
const MIN_ID: usize = 12;

/// What stands before the words of who really failed.
const WRAPPERS: [&str; 8] = [
    "desc = ",
    "returned error: ",
    "Error response from daemon: ",
    "failed, error: ",
    "\" : ",
    ") : ",
    "CreatePodSandboxError: ",
    "failed with error: ",
];

/// What was said, from where the caller's own words end.
pub fn gist(message: &str) -> String {
    let text = unquoted(message);
    let after = |word: &str| text.find(word).map(|at| at + word.len());
    let from = after("desc = ").or_else(|| {
        let callers = [
            "failed, error: ",
            "returned error: ",
            "CreatePodSandboxError: ",
        ];
        callers.into_iter().filter_map(after).max()
    });
    let mut rest = text.get(from.unwrap_or(0)..).unwrap_or(&text).trim();
    // The quotes that were opened before it.
    while rest.matches('"').count() % 2 == 1
        && let Some(less) = rest.strip_suffix('"')
    {
        rest = less;
    }
    rest.to_owned()
}

/// What makes a failure the same.
pub fn key(message: &str) -> String {
    let text = unquoted(message);
    let ends = WRAPPERS.iter().filter_map(|wrapper| {
        let at = text.rfind(wrapper)?;
        Some(at + wrapper.len())
    });
    let from = ends.max().unwrap_or(0);
    let core = text.get(from..).unwrap_or_default();
    // What is nothing but a wrapper is itself what was said.
    let core = match core.trim_matches(['"', ' ', '.']) {
        "" => text.as_str(),
        core => core,
    };
    let mut key = String::with_capacity(MAX_KEY);
    let mut word = String::new();
    for c in core.chars().chain([' ']) {
        if c.is_ascii_alphanumeric() {
            word.push(c.to_ascii_lowercase());
            continue;
        }
        let is_id = word.len() >= MIN_ID && word.bytes().all(|c| c.is_ascii_hexdigit());
        let is_number = word.bytes().any(|c| c.is_ascii_digit());
        match is_id || is_number {
            true => key.push('#'),
            false => key.push_str(&word),
        }
        word.clear();
        key.push(c);
        if key.len() >= MAX_KEY {
            break;
        }
    }
    key.trim_end_matches(['"', ' ', '.', ',', ']', '\''])
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "5f3c9a1be07d4c2288aa01f6b3d9e4470c1a2b3c4d5e6f708192a3b4c5d6e7f8";

    #[test]
    fn one_failure_has_one_key_whoever_tells_it() {
        let error = format!(
            "failed to setup network for sandbox \"{ID}\": plugin type=\"bridge\" failed (add): \
             no route to 10.1.0.1"
        );
        let runtime =
            format!("RunPodSandbox for &PodSandboxMetadata{{Name:a,}} failed, error: {error}");
        let manager =
            format!("Failed to create sandbox for pod: rpc error: code = Unknown desc = {error}");
        let worker = format!(
            "Error syncing pod, skipping: failed to \"CreatePodSandbox\" for \"a_b(1-2)\" with \
             CreatePodSandboxError: \"Failed to create sandbox for pod \\\"a_b(1-2)\\\": rpc \
             error: code = Unknown desc = {}\"",
            error.replace('"', "\\\"")
        );
        assert_eq!(key(&runtime), key(&manager));
        assert_eq!(key(&worker), key(&manager));
        let next = manager
            .replace("5f3c", "77aa")
            .replace("10.1.0.1", "10.1.0.2");
        assert_eq!(key(&next), key(&manager));
        let other = manager.replace("no route", "no way");
        assert_ne!(key(&other), key(&manager));
        assert!(gist(&worker).starts_with("failed to setup network"));
        assert!(gist(&worker).ends_with("10.1.0.1"));
    }

    #[test]
    fn what_is_short_is_its_own_key() {
        for text in ["", "\"", "desc = ", "ä", "a : "] {
            assert_eq!(key(text), key(text), "{text}");
        }
        assert_ne!(key("desc = a"), key("desc = b"));
        assert_eq!(key("Error: desc = \"\""), key("Error: desc = \"\" "));
    }
}
