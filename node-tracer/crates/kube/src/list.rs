//! The pods of one node: out of the server's cache, or as of now.

use std::{collections::BTreeMap, fmt, time::Duration};

use kube_core::params::ListParams;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor},
};

use super::{MAX_KEPT, client::Client, error::Problem};
use event::{Pod, clock::Timestamp};
use node::pods::{
    document::{Item, Metadata, Name},
    object::Object,
    weight,
};

/// Pods on a page: a few megabytes. Who makes pods can make them much larger;
/// then there are ever fewer on it, down to one.
pub(super) const PAGE: u32 = 500;
/// All pages together; what is kept of them is much less. Whoever makes pods can
/// make each of some 9 MB, and a node has 110.
const MAX_LIST: usize = 1 << 30;

/// Pods by UID, of which no more are kept than fit.
#[derive(Debug, Default)]
pub(super) struct Pods {
    by_uid: BTreeMap<String, Pod>,
    /// Bytes, about.
    weight: usize,
}

impl Pods {
    /// Whether the mirror is there that took this one's place: of the same name,
    /// whatever UID other pods write that they are the mirror of.
    pub(super) fn has_next_of(&self, other: &Pod) -> bool {
        let is_next = |pod: &Pod| {
            (&pod.namespace, &pod.name) == (&other.namespace, &other.name)
                && !pod.uids.is_disjoint(&other.uids)
        };
        self.by_uid.values().any(is_next)
    }

    pub(super) fn get(&self, uid: &str) -> Option<&Pod> {
        self.by_uid.get(uid)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Pod> {
        self.by_uid.values()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_uid.is_empty()
    }

    /// Bytes that they take, about: in memory, and in an event.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// Returns what was there before.
    pub(super) fn put(&mut self, uid: String, pod: Pod) -> Result<Option<Pod>, Problem> {
        self.weight += weight(&pod);
        let before = self.by_uid.insert(uid, pod);
        self.weight -= before.as_ref().map_or(0, weight);
        match self.is_full() {
            true => Err(Problem::TooLarge),
            false => Ok(before),
        }
    }

    pub(super) fn remove(&mut self, uid: &str) -> Option<Pod> {
        let removed = self.by_uid.remove(uid)?;
        self.weight -= weight(&removed);
        Some(removed)
    }

    fn is_full(&self) -> bool {
        self.weight > MAX_KEPT
    }
}

/// The pods of a node at a time.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) pods: Pods,
    /// What a watch goes on from.
    pub(super) version: String,
    /// A moment before the server was asked.
    pub(super) at: Timestamp,
    /// They are all that had been agreed on by then. A cache may be older.
    pub(super) is_of_now: bool,
    /// Why these need not be all of this node's.
    pub(super) doubt: Option<String>,
}

impl Listed {
    /// None yet, from now on.
    fn none(is_of_now: bool) -> Self {
        Self {
            pods: Pods::default(),
            version: String::new(),
            at: sys::clock::now(),
            is_of_now,
            doubt: None,
        }
    }
}

/// Selects a node's pods.
pub(super) fn selector(node: &str) -> Result<String, Problem> {
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-');
    if node.is_empty() || node.len() > 253 || !node.chars().all(valid) {
        return Err(Problem::NodeName(node.chars().take(64).collect()));
    }
    Ok(format!("spec.nodeName={node}"))
}

/// How true a list has to be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Age<'a> {
    /// As of now. Before Kubernetes 1.31 the server reads all pods of the cluster
    /// for it.
    Now,
    /// Not older than this version; `0` is any. The server has it in its cache.
    NotOlder(&'a str),
}

/// As [`list`], or no later than this.
pub(super) async fn list_within(
    client: &Client,
    node: &str,
    age: Age<'_>,
    most: Duration,
) -> Result<Listed, Problem> {
    let listed = tokio::time::timeout(most, list(client, node, age)).await;
    listed.unwrap_or(Err(Problem::TimedOut { after: most }))
}

async fn list(client: &Client, node: &str, age: Age<'_>) -> Result<Listed, Problem> {
    let cached = match age {
        Age::Now => None,
        Age::NotOlder(version) => match cached(client, node, version).await {
            // In pages, which are not read out of the cache.
            Err(Problem::TooLarge) => None,
            other => Some(other?),
        },
    };
    let listed = match cached {
        Some(listed) => listed,
        // Pages expire; then it starts over, once.
        None => match pages(client, node).await {
            Err(Problem::Expired) => pages(client, node).await?,
            other => other?,
        },
    };
    if !listed.pods.is_empty() {
        return Ok(listed);
    }
    // No pods: an idle node, or no node at all, of which nothing is known.
    match client.has_node(node).await? {
        Some(true) => Ok(listed),
        Some(false) => Err(Problem::NoNode(node.to_owned())),
        None => Ok(Listed {
            doubt: Some(format!(
                "the API server has no pod of node {node}, and does not tell whether it knows that \
                 node: the account may not get it; grant get on nodes in a ClusterRole, or see that \
                 --node-name is as in kubectl get nodes"
            )),
            ..listed
        }),
    }
}

/// All at once: a cache knows no pages.
async fn cached(client: &Client, node: &str, version: &str) -> Result<Listed, Problem> {
    let params = ListParams::default().fields(&selector(node)?).at(version);
    let mut listed = Listed::none(false);
    let body = client.pods(&params).await?;
    let metadata = take_page(&body, &mut listed.pods)?;
    listed.version = metadata.resource_version.unwrap_or_default().0;
    Ok(listed)
}

async fn pages(client: &Client, node: &str) -> Result<Listed, Problem> {
    let mut params = ListParams::default().fields(&selector(node)?).limit(PAGE);
    let mut listed = Listed::none(true);
    let mut size = 0;
    loop {
        let body = match client.pods(&params).await {
            Err(Problem::TooLarge) if params.limit > Some(1) => {
                params.limit = params.limit.map(|limit| (limit / 10).max(1));
                continue;
            }
            body => body?,
        };
        size += body.len();
        if size > MAX_LIST {
            return Err(Problem::TooLarge);
        }
        let metadata = take_page(&body, &mut listed.pods)?;
        listed.version = metadata.resource_version.unwrap_or_default().0;
        let next = metadata.next_page.map(|token| token.0);
        let next = next.filter(|token| !token.is_empty());
        if next.is_some() && next == params.continue_token {
            return Err(GARBAGE);
        }
        match next {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(listed),
        }
    }
}

const GARBAGE: Problem = Problem::Garbage {
    what: "list of pods",
};

/// Takes the pods off a page; what else it says.
pub(super) fn take_page(body: &[u8], pods: &mut Pods) -> Result<Metadata, Problem> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let page = Page(pods).deserialize(&mut json);
    match page.and_then(|page| json.end().map(|()| page)) {
        Ok(Some(metadata)) => Ok(metadata),
        Err(_) if pods.is_full() => Err(Problem::TooLarge),
        Ok(None) | Err(_) => Err(GARBAGE),
    }
}

/// A page, of which each pod is taken as it comes: the page ends where no more
/// are kept. Gives what it says of itself, if it is one of pods.
struct Page<'a>(&'a mut Pods);

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    Kind,
    Metadata,
    Items,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for Page<'_> {
    type Value = Option<Metadata>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Page<'_> {
    type Value = Option<Metadata>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of pods")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut kind, mut metadata, mut has_items) = (None::<Name>, Object(None), false);
        while let Some(key) = map.next_key()? {
            match key {
                Key::Kind => kind = map.next_value()?,
                Key::Metadata => metadata = map.next_value()?,
                Key::Items => {
                    map.next_value_seed(Items(&mut *self.0))?;
                    has_items = true;
                }
                Key::Other => {
                    map.next_value::<serde::de::IgnoredAny>()?;
                }
            }
        }
        let is_list = has_items && kind.is_some_and(|kind| kind.0 == "PodList");
        Ok(is_list.then(|| metadata.0.unwrap_or_default()))
    }
}

struct Items<'a>(&'a mut Pods);

impl<'de> DeserializeSeed<'de> for Items<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of pods")
    }

    /// `null` is what Go makes of an empty list.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(item) = seq.next_element::<Object<Item>>()? {
            let item = item.0.unwrap_or_default();
            // The items of a PodList have no kind of their own.
            let is_pod = item.kind.as_ref().is_none_or(|kind| kind.0 == "Pod");
            let pod = item.pod().filter(|_| is_pod);
            let (uid, pod) = pod.ok_or_else(|| A::Error::custom("no pod"))?;
            self.0.put(uid, pod).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}
