//! From JSON to pods, in one pass and without keeping more than the pods.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Read},
    net::IpAddr,
};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};

use super::{MAX_PODS, MAX_SIZE, PodsError, object::Object};
use crate::{clock::Timestamp, event::Pod};

/// Reads one or more JSON documents and the pods in them, by UID.
pub(super) fn pods(input: impl Read, from: &str) -> Result<Vec<Pod>, PodsError> {
    let mut input = Limited {
        input,
        left: MAX_SIZE,
        exceeded: false,
    };
    let mut found = Found {
        from,
        pods: BTreeMap::new(),
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
    Ok(found.pods.into_values().collect())
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
}

impl Found<'_> {
    fn take(&mut self, document: Option<Document>) -> Result<(), PodsError> {
        let Some(document) = document else {
            return Err(self.not_pods("a JSON value that is no object"));
        };
        match (document.event.as_deref(), document.object) {
            (Some(event), Some(object)) => self.take_event(event, *object),
            _ if document.items.is_some() => {
                self.take_list(document.kind, document.metadata, document.items)
            }
            (_, object) => self.put(Document { object, ..document }),
        }
    }

    fn take_event(&mut self, event: &str, object: Object<Document>) -> Result<(), PodsError> {
        let object = object.0.unwrap_or_default();
        match event {
            "ADDED" | "MODIFIED" => self.put(object),
            "DELETED" => {
                self.pods.remove(&object.metadata().uid.unwrap_or_default());
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
        if metadata.next_page.is_some_and(|token| !token.is_empty()) {
            return Err(PodsError::Partial {
                from: self.from.to_owned(),
            });
        }
        let items = items.unwrap_or_default();
        if let Some(at) = items.without_uid {
            return Err(self.not_pods(&format!("a list whose item {} has no metadata.uid", at + 1)));
        }
        if items.too_many || self.pods.len() + items.pods.len() > MAX_PODS {
            return Err(self.too_large());
        }
        // Next to the pods there may be other things; without any pod they are
        // what was listed.
        if let Some(kind) = items.other_kind.filter(|_| items.pods.is_empty()) {
            return Err(self.not_pods(&format!("a list of kind {}", name(&kind))));
        }
        self.pods.extend(items.pods);
        Ok(())
    }

    fn put(&mut self, document: Document) -> Result<(), PodsError> {
        match document.kind.as_deref() {
            Some("Pod") => {}
            Some(kind @ ("List" | "PodList")) => {
                return Err(self.not_pods(&format!("a {kind} without items")));
            }
            Some(kind) => return Err(self.not_pods(&format!("a {}", name(kind)))),
            None => return Err(self.not_pods("an object without kind and items")),
        }
        let Some((uid, pod)) = document.pod() else {
            return Err(self.not_pods("a Pod without metadata.uid"));
        };
        self.pods.insert(uid, pod);
        if self.pods.len() > MAX_PODS {
            return Err(self.too_large());
        }
        Ok(())
    }

    fn not_pods(&self, what: &str) -> PodsError {
        PodsError::NotPods {
            from: self.from.to_owned(),
            what: what.to_owned(),
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
        PodsError::Json {
            from,
            source: Box::new(error),
        }
    }
}

/// A name out of the input, fit for a message.
fn name(text: &str) -> String {
    text.chars()
        .take(64)
        .flat_map(char::escape_default)
        .collect()
}

/// Any document, and any item of a list.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Document {
    kind: Option<String>,
    metadata: Object<Metadata>,
    spec: Object<Spec>,
    status: Object<Status>,
    #[serde(deserialize_with = "present")]
    items: Option<Items>,
    /// Of an event in a watch stream.
    #[serde(rename = "type")]
    event: Option<String>,
    object: Option<Box<Object<Document>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    annotations: Object<Annotations>,
    deletion_timestamp: Option<Timestamp>,
    #[serde(rename = "continue")]
    next_page: Option<String>,
}

/// Both hold the UID under which kubelet runs a static pod.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "kubernetes.io/config.hash")]
    hash: Option<String>,
    #[serde(rename = "kubernetes.io/config.mirror")]
    mirror: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    host_network: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    #[serde(rename = "podIPs")]
    pod_ips: Option<Vec<PodIp>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodIp {
    ip: Option<String>,
}

impl Document {
    fn metadata(self) -> Metadata {
        self.metadata.0.unwrap_or_default()
    }

    /// The pod and its UID; `None` if it has none.
    fn pod(self) -> Option<(String, Pod)> {
        let spec = self.spec.0.unwrap_or_default();
        let status = self.status.0.unwrap_or_default();
        let metadata = self.metadata.0.unwrap_or_default();
        let uid = metadata.uid.filter(|uid| !uid.is_empty())?;
        let annotations = metadata.annotations.0.unwrap_or_default();
        let own = [Some(uid.clone()), annotations.hash, annotations.mirror];
        let listed = status
            .pod_ips
            .unwrap_or_default()
            .into_iter()
            .map(|each| each.ip);
        let mut ips: Vec<IpAddr> = Vec::new();
        for ip in listed.chain([status.pod_ip]).flatten() {
            // Empty until the pod has one.
            ips.extend(ip.parse().ok().filter(|ip| !ips.contains(ip)));
        }
        let pod = Pod {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            uids: own
                .into_iter()
                .flatten()
                .filter(|uid| !uid.is_empty())
                .collect(),
            node: spec.node_name.filter(|node| !node.is_empty()),
            host_network: spec.host_network.unwrap_or_default(),
            phase: status.phase,
            deletion: metadata.deletion_timestamp,
            ips,
        };
        Some((uid, pod))
    }
}

/// The pods of a list, taken out of each item as it comes.
#[derive(Default)]
struct Items {
    pods: Vec<(String, Pod)>,
    /// Index of the first item that has no UID.
    without_uid: Option<usize>,
    /// Kind of the first item that is no pod.
    other_kind: Option<String>,
    too_many: bool,
}

/// `null` is what Go makes of an empty list; it differs from no list.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Items>, D::Error> {
    Items::deserialize(deserializer).map(Some)
}

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ItemsVisitor;

        impl<'de> Visitor<'de> for ItemsVisitor {
            type Value = Items;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of pods")
            }

            fn visit_unit<E>(self) -> Result<Items, E> {
                Ok(Items::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Items, A::Error> {
                let mut items = Items::default();
                let mut at = 0;
                while let Some(item) = seq.next_element::<Object<Document>>()? {
                    items.take(at, item.0.unwrap_or_default());
                    at += 1;
                    if items.pods.len() > MAX_PODS {
                        items.too_many = true;
                        while seq.next_element::<IgnoredAny>()?.is_some() {}
                    }
                }
                Ok(items)
            }
        }

        deserializer.deserialize_any(ItemsVisitor)
    }
}

impl Items {
    fn take(&mut self, at: usize, mut item: Document) {
        // The items of a PodList have no kind of their own.
        match item.kind.take().filter(|kind| kind != "Pod") {
            Some(kind) => self.other_kind = self.other_kind.take().or(Some(kind)),
            None => match item.pod() {
                Some(pod) => self.pods.push(pod),
                None => self.without_uid = self.without_uid.or(Some(at)),
            },
        }
    }
}

#[cfg(test)]
mod tests;
