//! What of Kubernetes' objects is needed: pods, lists of them, and the events
//! of a watch stream. All else is skipped while it is read.

use std::{collections::BTreeSet, fmt, marker::PhantomData, net::IpAddr};

use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

use super::{MAX_KEPT, object::Object, weight};
use event::{Pod, clock::Timestamp};

/// A name out of the input, fit for a message.
pub fn name(text: &str) -> String {
    text.chars()
        .take(64)
        .flat_map(char::escape_default)
        .collect()
}

/// A text of at most so many bytes: a longer one is an error, and is not kept.
#[derive(Default)]
pub struct Text<const MOST: usize>(pub String);

impl<'de, const MOST: usize> Deserialize<'de> for Text<MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor<const MOST: usize>;

        impl<const MOST: usize> Visitor<'_> for TextVisitor<MOST> {
            type Value = Text<MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a text of at most {MOST} bytes")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<MOST>, E> {
                match text.len() <= MOST {
                    true => Ok(Text(text.to_owned())),
                    false => Err(E::invalid_length(text.len(), &self)),
                }
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

/// A name of Kubernetes: a DNS subdomain, or shorter.
pub type Name = Text<253>;
/// Longest UID: 36 bytes, or what a static pod's file says.
const MAX_UID: usize = 128;
type Uid = Text<MAX_UID>;
/// Tells the server where the next page begins.
type Token = Text<4096>;
type Address = Text<64>;

/// Addresses of a pod that are kept; Kubernetes gives two.
const MAX_IPS: usize = 16;

/// A document of a file: an object, a list of objects, or an event of a watch
/// stream.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Document {
    pub(super) kind: Option<Name>,
    pub(super) metadata: Object<Metadata>,
    spec: Object<Spec>,
    status: Object<Status>,
    #[serde(deserialize_with = "present")]
    pub(super) items: Option<Items>,
    /// Of an event in a watch stream.
    #[serde(rename = "type")]
    pub(super) event: Option<Name>,
    /// Of an event in a watch stream.
    pub(super) object: Option<Object<Item>>,
}

impl Document {
    /// As an object alone.
    pub(super) fn into_item(self) -> Item {
        Item {
            kind: self.kind,
            metadata: self.metadata,
            spec: self.spec,
            status: self.status,
        }
    }
}

/// An object by itself, in a list, or in an event.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Item {
    /// `kind`
    pub kind: Option<Name>,
    /// `metadata`
    pub metadata: Object<Metadata>,
    spec: Object<Spec>,
    status: Object<Status>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    namespace: Option<Name>,
    name: Option<Name>,
    /// `uid`
    pub uid: Option<Uid>,
    /// `resourceVersion`: of an object, of a list.
    pub resource_version: Option<Name>,
    annotations: Object<Annotations>,
    creation_timestamp: Time,
    deletion_timestamp: Option<Timestamp>,
    /// `continue`: there is more of the list.
    #[serde(rename = "continue")]
    pub next_page: Option<Token>,
}

/// Both hold the UID under which kubelet runs a static pod. Whoever makes a pod
/// can write anything there.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "kubernetes.io/config.hash")]
    hash: StaticUid,
    #[serde(rename = "kubernetes.io/config.mirror")]
    mirror: StaticUid,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: Option<Name>,
    host_network: Option<bool>,
    termination_grace_period_seconds: Seconds,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: Option<Name>,
    #[serde(rename = "podIP")]
    pod_ip: Option<Address>,
    #[serde(rename = "podIPs")]
    pod_ips: PodIps,
    start_time: Time,
    conditions: ConditionTimes,
    container_statuses: ContainerTimes,
    init_container_statuses: ContainerTimes,
}

/// One of `conditions`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    kind: OwnCondition,
    last_transition_time: Time,
}

/// One of `containerStatuses`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerStatus {
    state: Object<ContainerState>,
    last_state: Object<ContainerState>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    running: Object<Run>,
    terminated: Object<Run>,
}

/// When a container ran.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Run {
    started_at: Time,
    finished_at: Time,
}

impl ContainerStatus {
    fn newest(self) -> Option<Timestamp> {
        let states = [self.state, self.last_state].into_iter();
        let runs = states.filter_map(|state| state.0);
        let runs = runs.flat_map(|state| [state.running, state.terminated]);
        let times = runs.filter_map(|run| run.0);
        let times = times.flat_map(|run| [run.started_at, run.finished_at]);
        times.filter_map(|time| time.0).max()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodIp {
    ip: Option<Address>,
}

/// `podIPs`, as far as they are kept.
#[derive(Default)]
struct PodIps(Vec<IpAddr>);

impl<'de> Deserialize<'de> for PodIps {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IpsVisitor;

        impl<'de> Visitor<'de> for IpsVisitor {
            type Value = PodIps;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of addresses")
            }

            fn visit_unit<E>(self) -> Result<PodIps, E> {
                Ok(PodIps::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<PodIps, A::Error> {
                let mut ips = PodIps::default();
                while let Some(PodIp { ip }) = seq.next_element()? {
                    ips.add(ip);
                }
                Ok(ips)
            }
        }

        deserializer.deserialize_any(IpsVisitor)
    }
}

impl PodIps {
    /// Each once. It is empty until the pod has one.
    fn add(&mut self, text: Option<Address>) {
        let parsed = text.and_then(|text| text.0.parse::<IpAddr>().ok());
        let parsed = parsed.map(|ip| ip.to_canonical());
        let is_new = |ip: &IpAddr| self.0.len() < MAX_IPS && !self.0.contains(ip);
        self.0.extend(parsed.filter(is_new));
    }
}

impl Item {
    pub fn metadata(self) -> Metadata {
        self.metadata.0.unwrap_or_default()
    }

    /// The latest that is known to have happened to it. Only times count that
    /// Kubernetes writes: whoever owns a pod writes what its containers leave as
    /// messages, its annotations, and `managedFields` with the times in them.
    pub fn newest(&self) -> Option<Timestamp> {
        let metadata = self.metadata.0.iter().map(|it| it.creation_timestamp.0);
        let status = self.status.0.iter().flat_map(|it| {
            [
                it.start_time.0,
                it.conditions.0,
                it.container_statuses.0,
                it.init_container_statuses.0,
            ]
        });
        metadata.chain(status).flatten().max()
    }

    /// The pod and its UID; `None` if it has none.
    pub fn pod(self) -> Option<(String, Pod)> {
        let spec = self.spec.0.unwrap_or_default();
        let status = self.status.0.unwrap_or_default();
        let metadata = self.metadata.0.unwrap_or_default();
        let text = |name: Option<Name>| name.map(|name| name.0);
        let uid = metadata.uid.map(|uid| uid.0);
        let uid = uid.filter(|uid| !uid.is_empty())?;
        let annotations = metadata.annotations.0.unwrap_or_default();
        // Anybody who makes a pod can write annotations. A UID with hyphens is the
        // API server's, of another pod, unless this one is the mirror of a static
        // pod whose file has such a UID. The kubelet removes mirrors of none, but
        // not at once.
        let (hash, mirror) = (annotations.hash.0, annotations.mirror.0);
        let is_mirror = hash.is_some() && hash == mirror;
        let said = [hash, mirror].into_iter().flatten();
        let said = said.filter(|said| !said.is_empty() && *said != uid);
        let (mut claims, mut uids): (BTreeSet<_>, BTreeSet<_>) =
            said.partition(|said| said.contains('-'));
        uids.insert(uid.clone());
        if !is_mirror {
            claims.clear();
        }
        let mut ips = status.pod_ips;
        ips.add(status.pod_ip);
        // A container that kubelet lost sight of has no time of its own end, but
        // that of an earlier run.
        let ended = [
            status.container_statuses.0,
            status.init_container_statuses.0,
            status.conditions.0,
        ];
        let ended = ended.into_iter().flatten().max();
        let phase = text(status.phase).filter(|phase| PHASES.contains(&phase.as_str()));
        let has_finished = matches!(phase.as_deref(), Some("Succeeded" | "Failed"));
        let pod = Pod {
            namespace: text(metadata.namespace).unwrap_or_default(),
            name: text(metadata.name).unwrap_or_default(),
            uids,
            claims,
            node: text(spec.node_name).filter(|node| !node.is_empty()),
            host_network: spec.host_network.unwrap_or_default(),
            phase,
            deletion: metadata.deletion_timestamp,
            grace_seconds: spec.termination_grace_period_seconds.0,
            finished: ended.filter(|_| has_finished),
            ips: ips.0,
        };
        Some((uid, pod))
    }
}

/// What `status.phase` can be.
const PHASES: [&str; 5] = ["Pending", "Running", "Succeeded", "Failed", "Unknown"];

/// Conditions that Kubernetes' own parts set. Those of readiness gates have names
/// and times of others.
const OWN_CONDITIONS: [&str; 7] = [
    "PodScheduled",
    "PodHasNetwork",
    "PodReadyToStartContainers",
    "Initialized",
    "ContainersReady",
    "Ready",
    "DisruptionTarget",
];

/// What can be taken out of any value, whatever that is: what else is there must
/// not make it unreadable, and is not built.
trait Pick: Default {
    fn text(_: &str) -> Self {
        Self::default()
    }

    fn number(_: u64) -> Self {
        Self::default()
    }

    fn object<'de, A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }

    /// With what the next of an array has.
    fn and(self, _: Self) -> Self {
        Self::default()
    }
}

fn pick<'de, D: Deserializer<'de>, T: Pick + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    struct PickVisitor<T>(PhantomData<T>);

    impl<'de, T: Pick + Deserialize<'de>> Visitor<'de> for PickVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("anything")
        }

        fn visit_str<E>(self, text: &str) -> Result<T, E> {
            Ok(T::text(text))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<T, A::Error> {
            let mut picked = T::default();
            while let Some(next) = seq.next_element()? {
                picked = picked.and(next);
            }
            Ok(picked)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::object(map)
        }

        fn visit_unit<E>(self) -> Result<T, E> {
            Ok(T::default())
        }

        fn visit_bool<E>(self, _: bool) -> Result<T, E> {
            Ok(T::default())
        }

        fn visit_i64<E>(self, number: i64) -> Result<T, E> {
            Ok(u64::try_from(number).map_or_else(|_| T::default(), T::number))
        }

        fn visit_u64<E>(self, number: u64) -> Result<T, E> {
            Ok(T::number(number))
        }

        fn visit_f64<E>(self, _: f64) -> Result<T, E> {
            Ok(T::default())
        }
    }

    deserializer.deserialize_any(PickVisitor(PhantomData))
}

/// A point in time, or anything else, which is none.
#[derive(Default)]
struct Time(Option<Timestamp>);

impl Pick for Time {
    fn text(text: &str) -> Self {
        Self(Timestamp::parse(text))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        pick(deserializer)
    }
}

/// Whether a condition is one of [`OWN_CONDITIONS`].
#[derive(Default)]
struct OwnCondition(bool);

impl Pick for OwnCondition {
    fn text(text: &str) -> Self {
        Self(OWN_CONDITIONS.contains(&text))
    }
}

impl<'de> Deserialize<'de> for OwnCondition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        pick(deserializer)
    }
}

/// When the latest of a pod's own conditions changed.
#[derive(Default)]
struct ConditionTimes(Option<Timestamp>);

impl Pick for ConditionTimes {
    fn object<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        let condition = Condition::deserialize(MapAccessDeserializer::new(map))?;
        let changed = condition.last_transition_time.0;
        Ok(Self(changed.filter(|_| condition.kind.0)))
    }

    fn and(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }
}

impl<'de> Deserialize<'de> for ConditionTimes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        pick(deserializer)
    }
}

/// When the latest of a pod's containers started or ended.
#[derive(Default)]
struct ContainerTimes(Option<Timestamp>);

impl Pick for ContainerTimes {
    fn object<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        let status = ContainerStatus::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Self(status.newest()))
    }

    fn and(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }
}

impl<'de> Deserialize<'de> for ContainerTimes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        pick(deserializer)
    }
}

/// A number of seconds, or anything else, which is none.
#[derive(Default)]
struct Seconds(Option<u64>);

impl Pick for Seconds {
    fn number(number: u64) -> Self {
        Self(Some(number))
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        pick(deserializer)
    }
}

/// The UID of a static pod, as the kubelet writes it onto its mirror.
#[derive(Default)]
struct StaticUid(Option<String>);

impl Pick for StaticUid {
    fn text(text: &str) -> Self {
        Self((text.len() <= MAX_UID).then(|| text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for StaticUid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        pick(deserializer)
    }
}

/// The pods of a list, taken out of each item as it comes.
#[derive(Default)]
pub(super) struct Items {
    pub(super) pods: Vec<(String, Pod)>,
    /// Index of the first item that has no UID.
    pub(super) without_uid: Option<usize>,
    /// Kind of the first item that is no pod.
    pub(super) other_kind: Option<String>,
    /// The newest time that one of the pods has.
    pub(super) newest: Option<Timestamp>,
    /// Bytes of the pods. If they are more than [`MAX_KEPT`], pods are missing.
    pub(super) weight: usize,
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
                while let Some(item) = seq.next_element::<Object<Item>>()? {
                    items.take(at, item.0.unwrap_or_default());
                    at += 1;
                    if items.weight > MAX_KEPT {
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
    fn take(&mut self, at: usize, mut item: Item) {
        // The items of a PodList have no kind of their own.
        match item
            .kind
            .take()
            .map(|kind| kind.0)
            .filter(|kind| kind != "Pod")
        {
            Some(kind) => self.other_kind = self.other_kind.take().or(Some(kind)),
            None => {
                self.newest = self.newest.max(item.newest());
                match item.pod() {
                    Some(pod) => {
                        self.weight += weight(&pod.1);
                        self.pods.push(pod);
                    }
                    None => self.without_uid = self.without_uid.or(Some(at)),
                }
            }
        }
    }
}
