//! A pod of another node that has a ghost's address, as the API server says.

use std::net::IpAddr;

use crate::{
    detect::{
        Command, View, evidence,
        facts::{command::node_word, ghosts::Ghost},
        fitting,
        ghost_sandbox::finding::GhostReport,
        joined, kubectl_words,
    },
    model::{netns::NetnsEntry, pods::reference},
};
use event::{
    Pod, PodRef,
    clock::Timestamp,
    finding::{Evidence, TakenBy},
    wording::{advice::commented, subjects::pod_word},
};

/// The source that fails while the server does not tell who has an address.
pub const PODS_BY_IP: &str = "pods-by-ip";

/// A pod of another node with one of a ghost's addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taker<'a> {
    pub(super) pod: &'a Pod,
    pub(super) node: &'a str,
    pub(super) at: Timestamp,
}

impl<'a> Taker<'a> {
    pub(super) fn of(view: &View<'a>, entry: &NetnsEntry, address: IpAddr) -> Option<Self> {
        // Without this node's name in Kubernetes nobody is another one's. Who vouches for
        // its pods knows it by that name.
        let list = view.model.pods.list();
        let is_named = node_word(view).is_some() || list.is_some_and(|list| list.vouched);
        let here = view.settings.node.as_str();
        if !is_named {
            return None;
        }
        let known = view.model.cluster.get(address)?;
        let mut pods = known.pods.iter();
        let is_own = |pod: &Pod| {
            let uid = entry.sandbox.uid();
            uid.is_some_and(|uid| pod.uids.contains(uid)) || is_migrated(entry, pod)
        };
        pods.find_map(|pod| {
            let node = pod.node.as_deref().filter(|node| *node != here)?;
            let ended = matches!(pod.phase.as_deref(), Some("Succeeded" | "Failed"));
            (!pod.host_network && !ended && !is_own(pod)).then_some(Self {
                pod,
                node,
                at: known.at,
            })
        })
    }

    /// Where the address is, in one line; the finding has the pod's name.
    pub(super) fn title(&self, address: IpAddr, state: &str) -> String {
        let title =
            |whose: &str| format!("{address} is used by {state} pod and a running one on {whose}");
        fitting(title(&format!("node {}", self.node)), || {
            title("another node")
        })
    }
}

/// Whether a pod runs the virtual machine that a namespace's pod ran: it keeps its
/// address when it is moved to another node.
fn is_migrated(entry: &NetnsEntry, pod: &Pod) -> bool {
    let own = entry.sandbox.pod.as_ref();
    let vm = own.and_then(|own| machine(own.name.as_deref()?));
    let namespace = own.and_then(|own| own.namespace.as_deref());
    vm.is_some() && vm == machine(&pod.name) && namespace == Some(pod.namespace.as_str())
}

/// The virtual machine of one of KubeVirt's pods, `virt-launcher-NAME-SUFFIX`.
fn machine(pod: &str) -> Option<&str> {
    let (name, _) = pod.strip_prefix("virt-launcher-")?.rsplit_once('-')?;
    Some(name)
}

impl<'a> GhostReport<'_, 'a> {
    /// The first of the addresses that a pod of another node has, and that pod.
    pub(super) fn taker(&self) -> Option<(IpAddr, Taker<'a>)> {
        let mut cases = self.cases.iter();
        cases.find_map(|case| Some((case.address, case.taker?)))
    }

    pub(super) fn taken_by(&self) -> Option<TakenBy> {
        let (_, Taker { pod, node, .. }) = self.taker()?;
        Some(TakenBy {
            node: node.to_owned(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: reference(pod).uid,
        })
    }

    pub(super) fn taker_claims(&self) -> Vec<Evidence> {
        let cases = self.cases.iter();
        let claims = cases.filter_map(|case| {
            let Taker { pod, node, at } = case.taker?;
            let phase = pod.phase.as_deref().unwrap_or("no phase");
            let whose = pod_word(&reference(pod));
            let claim = format!("{whose} on node {node} has {} ({phase})", case.address);
            Some(evidence(claim, "pods", at))
        });
        claims.collect()
    }

    /// That the server does not tell, of the addresses of which it has not told.
    pub(super) fn taker_unknown(&self) -> Option<String> {
        let model = self.view.model;
        let failure = model.failure(PODS_BY_IP)?;
        let Ghost { addresses, .. } = self.ghost;
        let untold = addresses
            .iter()
            .filter(|it| model.cluster.get(**it).is_none());
        let untold: Vec<_> = untold.collect();
        (!untold.is_empty()).then(|| {
            format!(
                "whether a pod of another node has {}: {}",
                joined(untold),
                failure.error
            )
        })
    }

    /// The advice, with what the people of both nodes are to know: after what stops
    /// the harm, before what ends it.
    pub(super) fn advice_with_taker(&self) -> Vec<String> {
        let mut advice = self.advice();
        let is_first = |step: &String| step.starts_with("kubectl cordon");
        let place = usize::from(advice.first().is_some_and(is_first));
        advice.splice(place..place, self.taker_advice());
        advice
    }

    fn taker_advice(&self) -> Vec<String> {
        let Some((address, Taker { pod, node, .. })) = self.taker() else {
            return Vec::new();
        };
        let pod: PodRef = reference(pod);
        let whose = pod_word(&pod);
        let mut advice = vec![
            format!(
                "do not delete {whose} on {node}: that frees {address} for a third pod while the \
                 ghost still uses it"
            ),
            format!(
                "tell who runs {node}: {whose} shares {address} with this ghost until that is \
                 released on this node"
            ),
        ];
        if kubectl_words(&pod).is_some() {
            let who = Command::new("kubectl get pods -A -o wide | grep -wF");
            advice.push(commented(
                who.word(address.to_string()),
                "the API does not show the ghost",
            ));
        }
        advice
    }
}
