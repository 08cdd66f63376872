//! Lists in JSON of which no more than [`MAX_RESERVATIONS`] elements are kept,
//! however many there are.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};

use super::MAX_RESERVATIONS;

/// The first elements of a list.
pub(super) struct FirstOf<T> {
    /// `None` for an element that is no `T`.
    pub(super) read: Vec<Option<T>>,
    /// There are more.
    pub(super) has_more: bool,
}

impl<T> Default for FirstOf<T> {
    fn default() -> Self {
        Self {
            read: Vec::new(),
            has_more: false,
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for FirstOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Elements(PhantomData))
    }
}

struct Elements<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Elements<T> {
    type Value = FirstOf<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<FirstOf<T>, A::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Element<T> {
            One(T),
            Other(IgnoredAny),
        }
        let mut list = FirstOf::default();
        while list.read.len() < MAX_RESERVATIONS {
            match all.next_element()? {
                Some(Element::One(one)) => list.read.push(Some(one)),
                Some(Element::Other(IgnoredAny)) => list.read.push(None),
                None => return Ok(list),
            }
        }
        while all.next_element::<IgnoredAny>()?.is_some() {
            list.has_more = true;
        }
        Ok(list)
    }
}
