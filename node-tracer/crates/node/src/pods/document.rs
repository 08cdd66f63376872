//! What of Kubernetes' objects is needed: pods, lists of them, and the events
//! of a watch stream. All else is skipped while it is read.

use std::{fmt, net::IpAddr};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::{MAX_PODS, object::Object};
use event::{Pod, clock::Timestamp};

/// A name out of the input, fit for a message.
pub fn name(text: &str) -> String {
    text.chars()
        .take(64)
        .flat_map(char::escape_default)
        .collect()
}

/// Any document, and any item of a list.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Document {
    /// `kind`
    pub kind: Option<String>,
    /// `metadata`
    pub metadata: Object<Metadata>,
    spec: Object<Spec>,
    status: Object<Status>,
    /// Of a list.
    #[serde(deserialize_with = "present")]
    pub items: Option<Items>,
    /// Of an event in a watch stream.
    #[serde(rename = "type")]
    pub event: Option<String>,
    /// Of an event in a watch stream.
    pub object: Option<Box<Object<Document>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    namespace: Option<String>,
    name: Option<String>,
    /// `uid`
    pub uid: Option<String>,
    /// `resourceVersion`: of an object, of a list.
    pub resource_version: Option<String>,
    annotations: Object<Annotations>,
    creation_timestamp: Newest,
    deletion_timestamp: Option<Timestamp>,
    /// `continue`: there is more of the list.
    #[serde(rename = "continue")]
    pub next_page: Option<String>,
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
    termination_grace_period_seconds: Seconds,
}

/// A number of seconds, or anything else, which is none.
#[derive(Default, Deserialize)]
#[serde(from = "serde_json::Value")]
struct Seconds(Option<u64>);

impl From<serde_json::Value> for Seconds {
    fn from(value: serde_json::Value) -> Self {
        Self(value.as_u64())
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    #[serde(rename = "podIPs")]
    pod_ips: Option<Vec<PodIp>>,
    start_time: Newest,
    conditions: Newest,
    container_statuses: Newest,
    init_container_statuses: Newest,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodIp {
    ip: Option<String>,
}

impl Document {
    /// Its metadata alone.
    pub fn metadata(self) -> Metadata {
        self.metadata.0.unwrap_or_default()
    }

    /// The latest that is known to have happened to it.
    pub fn newest(&self) -> Option<Timestamp> {
        let metadata = self.metadata.0.iter().map(|it| it.creation_timestamp);
        let status = self.status.0.iter().flat_map(|it| {
            [
                it.start_time,
                it.conditions,
                it.container_statuses,
                it.init_container_statuses,
            ]
        });
        metadata.chain(status).filter_map(|it| it.0).max()
    }

    /// The pod and its UID; `None` if it has none.
    pub fn pod(self) -> Option<(String, Pod)> {
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
        // A container that kubelet lost sight of has no time of its own end, but
        // that of an earlier run.
        let ended = [
            status.container_statuses.0,
            status.init_container_statuses.0,
            status.conditions.0,
        ];
        let ended = ended.into_iter().flatten().max();
        let has_finished = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
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
            grace_seconds: spec.termination_grace_period_seconds.0,
            finished: ended.filter(|_| has_finished),
            ips,
        };
        Some((uid, pod))
    }
}

/// The newest point in time that is anywhere in a value, whatever that is: what
/// else is in a list must not make it unreadable.
#[derive(Clone, Copy, Default)]
struct Newest(Option<Timestamp>);

impl<'de> Deserialize<'de> for Newest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NewestVisitor;

        impl<'de> Visitor<'de> for NewestVisitor {
            type Value = Newest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            fn visit_str<E>(self, text: &str) -> Result<Newest, E> {
                Ok(Newest(Timestamp::parse(text)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Newest, A::Error> {
                let mut newest = None;
                while let Some(next) = seq.next_element::<Newest>()? {
                    newest = newest.max(next.0);
                }
                Ok(Newest(newest))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Newest, A::Error> {
                let mut newest = None;
                while let Some((_, next)) = map.next_entry::<IgnoredAny, Newest>()? {
                    newest = newest.max(next.0);
                }
                Ok(Newest(newest))
            }

            fn visit_unit<E>(self) -> Result<Newest, E> {
                Ok(Newest(None))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Newest, E> {
                Ok(Newest(None))
            }

            fn visit_i64<E>(self, _: i64) -> Result<Newest, E> {
                Ok(Newest(None))
            }

            fn visit_u64<E>(self, _: u64) -> Result<Newest, E> {
                Ok(Newest(None))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Newest, E> {
                Ok(Newest(None))
            }
        }

        deserializer.deserialize_any(NewestVisitor)
    }
}

/// The pods of a list, taken out of each item as it comes.
#[derive(Default)]
pub struct Items {
    /// By UID.
    pub pods: Vec<(String, Pod)>,
    /// Index of the first item that has no UID.
    pub without_uid: Option<usize>,
    /// Kind of the first item that is no pod.
    pub other_kind: Option<String>,
    /// The newest time that one of the pods has.
    pub newest: Option<Timestamp>,
    /// There are more than [`MAX_PODS`], which are not kept.
    pub too_many: bool,
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
            None => {
                self.newest = self.newest.max(item.newest());
                match item.pod() {
                    Some(pod) => self.pods.push(pod),
                    None => self.without_uid = self.without_uid.or(Some(at)),
                }
            }
        }
    }
}
