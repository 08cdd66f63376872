//! JSON as logs have it: members in order, texts borrowed where they can be.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};

/// The members of an object.
pub(super) type Members<'a> = Vec<(Cow<'a, str>, Json<'a>)>;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json<'a> {
    Text(Cow<'a, str>),
    Whole(i64),
    Number(f64),
    /// `true`, `false`.
    Bool(bool),
    /// `null`.
    Null,
    /// `[...]`.
    List(Vec<Json<'a>>),
    /// `{...}`.
    Object(Members<'a>),
}

/// The object that a text begins with; what follows it is not looked at.
pub(super) fn object(text: &str) -> Option<Members<'_>> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    match values.next()? {
        Ok(Json::Object(members)) => Some(members),
        _ => None,
    }
}

impl<'a> Json<'a> {
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Json::Whole(number) => Some(*number as f64),
            Json::Number(number) => Some(*number),
            Json::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// As a whole number that is not negative; journald writes them as texts.
    pub(super) fn whole(&self) -> Option<u64> {
        match self {
            Json::Whole(number) => u64::try_from(*number).ok(),
            Json::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// As a text, if it is one or a list of bytes, which is how journald
    /// writes a text that is no UTF-8.
    pub(super) fn text(self) -> Option<Cow<'a, str>> {
        match self {
            Json::Text(text) => Some(text),
            Json::List(list) => {
                let byte = |value: &Json<'_>| u8::try_from(value.whole()?).ok();
                let bytes: Option<Vec<u8>> = list.iter().map(byte).collect();
                // Of a field that was given twice, the first value.
                match bytes {
                    Some(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned().into()),
                    None => list.into_iter().next()?.text(),
                }
            }
            _ => None,
        }
    }

    /// As the value of a field. An object that is nothing but a name in a
    /// namespace is what klog's text form writes for it.
    pub(super) fn shown(self) -> Cow<'a, str> {
        match self {
            Json::Text(text) => text,
            Json::Object(members) => match members.as_slice() {
                [(a, Json::Text(name)), (b, Json::Text(namespace))]
                    if a == "name" && b == "namespace" =>
                {
                    format!("{namespace}/{name}").into()
                }
                _ => Json::Object(members).to_string().into(),
            },
            other => other.to_string().into(),
        }
    }
}

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Text(text) => write!(f, "{text:?}"),
            Json::Whole(number) => write!(f, "{number}"),
            Json::Number(number) => write!(f, "{number}"),
            Json::Bool(value) => write!(f, "{value}"),
            Json::Null => f.write_str("null"),
            Json::List(list) => {
                f.write_str("[")?;
                for (at, value) in list.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    write!(f, "{comma}{value}")?;
                }
                f.write_str("]")
            }
            Json::Object(members) => {
                f.write_str("{")?;
                for (at, (key, value)) in members.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    write!(f, "{comma}{key:?}:{value}")?;
                }
                f.write_str("}")
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Json::Whole(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(i64::try_from(value).map_or(Json::Number(value as f64), Json::Whole))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Json::Number(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Json::Null)
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Json::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Json::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = values.next_element()? {
            list.push(value);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut values: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(key) = values.next_key::<Json<'de>>()? {
            let Json::Text(key) = key else {
                return Err(A::Error::custom("a key that is no text"));
            };
            members.push((key, values.next_value()?));
        }
        Ok(Json::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_order_and_their_values() {
        let members = object(r#"{"b":1,"a":"x","n":null,"f":1.5,"o":{"k":["v",true]}} rest"#);
        let shown: Vec<(Cow<'_, str>, Cow<'_, str>)> = members
            .unwrap()
            .into_iter()
            .map(|(key, value)| (key, value.shown()))
            .collect();
        let want = [
            ("b", "1"),
            ("a", "x"),
            ("n", "null"),
            ("f", "1.5"),
            ("o", r#"{"k":["v",true]}"#),
        ];
        assert_eq!(shown, want.map(|(key, value)| (key.into(), value.into())));
        assert_eq!(object("[1]"), None);
        assert_eq!(object(r#"{"a":"#), None);
    }

    #[test]
    fn a_name_in_a_namespace_is_shown_as_one() {
        let members = object(r#"{"pod":{"name":"web-0","namespace":"shop"}}"#).unwrap();
        let (_, pod) = members.into_iter().next().unwrap();
        assert_eq!(pod.shown(), "shop/web-0");
    }

    #[test]
    fn bytes_and_doubled_fields_are_texts_too() {
        let text = |json: &str| {
            let (_, value) = object(json).unwrap().into_iter().next().unwrap();
            value.text().map(Cow::into_owned)
        };
        assert_eq!(text(r#"{"M":[104,105,255]}"#).unwrap(), "hi\u{fffd}");
        assert_eq!(text(r#"{"M":["one","two"]}"#).unwrap(), "one");
        assert_eq!(text(r#"{"M":null}"#), None);
    }
}
