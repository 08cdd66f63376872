//! A secret that is put where secrets can stand, and must not come out again.

use serde_json::Value;

/// A JSON Web Token. Seeds of what is logged and answered have it, so that it
/// gets everywhere.
pub const TOKEN: &str = "eyJhbGciOiJub25lIn0.eyJzZWNyZXQiOiJ0cnVlIn0.";

/// Panics if the token is in a text, whatever stands around it.
pub fn assert_hidden(text: &str) {
    assert!(!text.contains(TOKEN), "a token came out: {text:?}");
}

/// The same of each text in a document, as it is read from there.
pub fn assert_hidden_in(document: &Value) {
    match document {
        Value::String(text) => assert_hidden(text),
        Value::Array(all) => all.iter().for_each(assert_hidden_in),
        Value::Object(all) => {
            for (key, value) in all {
                assert_hidden(key);
                assert_hidden_in(value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
