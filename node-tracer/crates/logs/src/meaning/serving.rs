//! Which pod a network's daemon serves: it names the pod in one line, and what
//! goes wrong in another.
//!
//! ```text
//! Received AddNetwork for NS ..., Pod web-0, NameSpace shop, ...      AWS
//! AddNetworkRequest: K8S_POD_NAME:"web-0" K8S_POD_NAMESPACE:"shop"    AWS, newer
//! add port request: {kube-ovn web-0 shop ID /var/run/netns/... eth0   Kube-OVN
//! Beginning IPAM for ContainerID: ID - podRef: shop/web-0 - ifName    Whereabouts
//! ```

use std::time::Duration;

use super::tokens::{after, between, id, pod, slashed};
use crate::entry::Entry;
use event::{PodRef, clock::Timestamp};

/// Words of which one is in each of their lines that count.
pub(super) const NEEDLES: &[&str] = &[
    "Received AddNetwork",
    "AddNetworkRequest",
    "AddNetworkReply",
    "add port request",
    "Beginning IPAM for ",
];

/// What is said so much later is of another request.
const LONG: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Serving {
    pod: Option<(Timestamp, PodRef)>,
    /// Another pod is served as well: lines that name none are of either.
    several: bool,
}

impl Serving {
    /// Takes a message in.
    pub(super) fn entry(&mut self, time: Timestamp, entry: &Entry<'_>) {
        let text = &*entry.message;
        if text.contains("Send AddNetworkReply") || text.contains("POST /api/v1/add with") {
            *self = Self::default();
            return;
        }
        let Some(served) = served(text) else {
            return;
        };
        let before = self.pod.replace((time, served));
        let still = before.filter(|(at, _)| time.since(*at) <= LONG);
        let (Some((_, before)), Some((_, now))) = (still, &self.pod) else {
            self.several = false;
            return;
        };
        self.several |= (&before.namespace, &before.name) != (&now.namespace, &now.name);
    }

    /// The only pod that is being served.
    pub(super) fn only(&self, time: Timestamp) -> Option<&PodRef> {
        let (at, pod) = self.pod.as_ref()?;
        let is_now = time.since(*at).max(at.since(time)) <= LONG;
        (is_now && !self.several).then_some(pod)
    }
}

fn served(text: &str) -> Option<PodRef> {
    if let Some(rest) = after(text, "Received AddNetwork for NS ") {
        return pod(
            between(rest, "NameSpace ", ",")?,
            between(rest, "Pod ", ",")?,
        );
    }
    if let Some(rest) = after(text, "AddNetworkRequest: ") {
        return pod(
            between(rest, "K8S_POD_NAMESPACE:\"", "\"")?,
            between(rest, "K8S_POD_NAME:\"", "\"")?,
        );
    }
    if let Some(rest) = after(text, "add port request: {").or(after(text, "add port request {")) {
        // The provider comes first in newer versions; the ID tells.
        let words: Vec<&str> = rest.split([' ', '}']).take(4).collect();
        let at = words.iter().position(|word| id(word).is_some())?;
        return pod(
            words.get(at.checked_sub(1)?)?,
            words.get(at.checked_sub(2)?)?,
        );
    }
    let rest = after(text, "Beginning IPAM for ")?;
    slashed(after(rest, "podRef: ")?.split(' ').next()?)
}
