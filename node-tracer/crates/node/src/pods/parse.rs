//! From JSON to pods, in one pass and without keeping more than the pods.

use std::{
    collections::BTreeMap,
    io::{self, Read},
};

use super::{
    MAX_KEPT, MAX_SIZE, PodsError,
    document::{Document, Item, Items, Metadata, name},
    object::Object,
    weight,
};
use crate::redact::redact;
use event::{Pod, clock::Timestamp};

/// What one or more JSON documents say of pods.
pub(super) struct Parsed {
    pub(super) pods: Vec<Pod>,
    /// The newest time that any pod has.
    pub(super) newest: Option<Timestamp>,
    /// At least one document was a list. Pods that came one by one show what is
    /// there, never that one is not.
    pub(super) has_list: bool,
}

/// Reads one or more JSON documents.
pub(super) fn pods(input: impl Read, from: &str) -> Result<Parsed, PodsError> {
    let mut input = Limited {
        input,
        left: MAX_SIZE,
        exceeded: false,
    };
    let mut found = Found {
        from,
        pods: BTreeMap::new(),
        weight: 0,
        newest: None,
        has_list: false,
    };
    let mut empty = true;
    let mut result = Ok(());
    for document in
        serde_json::Deserializer::from_reader(&mut input).into_iter::<Object<Document>>()
    {
        empty = false;
        result = match document {
            Ok(document) => found.take(document.0),
            Err(error) => Err(found.json_error(error)),
        };
        if result.is_err() {
            break;
        }
    }
    if input.exceeded {
        return Err(found.too_large());
    }
    result?;
    if empty {
        return Err(PodsError::Empty {
            from: from.to_owned(),
        });
    }
    Ok(Parsed {
        pods: found.pods.into_values().collect(),
        newest: found.newest,
        has_list: found.has_list,
    })
}

/// Ends a stream that is too long with an error, not as if it were complete.
struct Limited<R> {
    input: R,
    left: u64,
    exceeded: bool,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.input.read(buffer)?;
        match self.left.checked_sub(length as u64) {
            Some(left) => self.left = left,
            None => {
                self.exceeded = true;
                return Err(io::ErrorKind::FileTooLarge.into());
            }
        }
        Ok(length)
    }
}

/// The pods of all documents so far.
struct Found<'a> {
    from: &'a str,
    pods: BTreeMap<String, Pod>,
    /// Bytes of these, or more.
    weight: usize,
    /// The newest time that a pod has, also one that has gone.
    newest: Option<Timestamp>,
    /// At least one document was a list.
    has_list: bool,
}

impl Found<'_> {
    fn take(&mut self, document: Option<Document>) -> Result<(), PodsError> {
        let Some(mut document) = document else {
            return Err(self.not_pods("a JSON value that is no object"));
        };
        let object = document.object.take();
        match (&document.event, object) {
            (Some(event), Some(object)) => self.take_event(&event.0, object),
            _ if document.items.is_some() => {
                let kind = document.kind.map(|kind| kind.0);
                self.take_list(kind, document.metadata, document.items)
            }
            _ => self.put(document.into_item()),
        }
    }

    fn take_event(&mut self, event: &str, object: Object<Item>) -> Result<(), PodsError> {
        let object = object.0.unwrap_or_default();
        match event {
            "ADDED" | "MODIFIED" => self.put(object),
            "DELETED" => {
                self.newest = self.newest.max(object.newest());
                let uid = object.metadata().uid.unwrap_or_default();
                let gone = self.pods.remove(&uid.0);
                self.weight -= gone.as_ref().map_or(0, weight);
                Ok(())
            }
            "BOOKMARK" => Ok(()),
            other => Err(self.not_pods(&format!("a watch stream with {}", name(other)))),
        }
    }

    fn take_list(
        &mut self,
        kind: Option<String>,
        metadata: Object<Metadata>,
        items: Option<Items>,
    ) -> Result<(), PodsError> {
        if let Some(kind) = kind.filter(|kind| !matches!(kind.as_str(), "List" | "PodList")) {
            return Err(self.not_pods(&format!("a {}", name(&kind))));
        }
        let metadata = metadata.0.unwrap_or_default();
        if metadata.next_page.is_some_and(|token| !token.0.is_empty()) {
            return Err(PodsError::Partial {
                from: self.from.to_owned(),
            });
        }
        let items = items.unwrap_or_default();
        if let Some(at) = items.without_uid {
            return Err(self.not_pods(&format!("a list whose item {} has no metadata.uid", at + 1)));
        }
        self.weight += items.weight;
        if self.weight > MAX_KEPT {
            return Err(self.too_large());
        }
        // Next to the pods there may be other things; without any pod they are
        // what was listed.
        if let Some(kind) = items.other_kind.filter(|_| items.pods.is_empty()) {
            return Err(self.not_pods(&format!("a list of kind {}", name(&kind))));
        }
        self.has_list = true;
        self.pods.extend(items.pods);
        self.newest = self.newest.max(items.newest);
        Ok(())
    }

    fn put(&mut self, item: Item) -> Result<(), PodsError> {
        match item.kind.as_ref().map(|kind| kind.0.as_str()) {
            Some("Pod") => {}
            Some(kind @ ("List" | "PodList")) => {
                return Err(self.not_pods(&format!("a {kind} without items")));
            }
            Some(kind) => return Err(self.not_pods(&format!("a {}", name(kind)))),
            None => return Err(self.not_pods("an object without kind and items")),
        }
        self.newest = self.newest.max(item.newest());
        let Some((uid, pod)) = item.pod() else {
            return Err(self.not_pods("a Pod without metadata.uid"));
        };
        self.weight += weight(&pod);
        let before = self.pods.insert(uid, pod);
        self.weight -= before.as_ref().map_or(0, weight);
        if self.weight > MAX_KEPT {
            return Err(self.too_large());
        }
        Ok(())
    }

    fn not_pods(&self, what: &str) -> PodsError {
        PodsError::NotPods {
            from: self.from.to_owned(),
            what: redact(what),
        }
    }

    fn too_large(&self) -> PodsError {
        PodsError::TooLarge {
            from: self.from.to_owned(),
        }
    }

    fn json_error(&self, error: serde_json::Error) -> PodsError {
        let from = self.from.to_owned();
        if error.is_io() {
            let source = error.into();
            return PodsError::Read { from, source };
        }
        let what = without_text(&error.to_string());
        PodsError::Json { from, what }
    }
}

/// What the parser says, without the text that it quotes.
fn without_text(error: &str) -> String {
    let quoted = error.find('"').zip(error.rfind('"'));
    let (begin, end) = quoted.map_or((error.len(), error.len()), |(begin, end)| (begin, end + 1));
    let quote = if quoted.is_some() { "\"...\"" } else { "" };
    redact(&[&error[..begin], quote, &error[end..]].concat())
}

#[cfg(test)]
mod tests;
