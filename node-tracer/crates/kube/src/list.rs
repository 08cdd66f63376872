//! The pods of one node, page by page.

use std::{collections::BTreeMap, time::Duration};

use kube::core::params::ListParams;

use super::{MAX_PODS, client::Client, error::Problem};
use event::{Pod, clock::Timestamp};
use node::pods::document::{Document, Metadata};

/// Pods on a page: a few megabytes.
const PAGE: u32 = 500;

/// The pods of a node at a time.
#[derive(Debug)]
pub(super) struct Listed {
    /// By UID.
    pub(super) pods: BTreeMap<String, Pod>,
    /// What a watch goes on from.
    pub(super) version: String,
    /// A moment before the server was asked. It answers with what has been
    /// agreed on by then, not out of a cache.
    pub(super) at: Timestamp,
    /// Why these need not be all of this node's.
    pub(super) doubt: Option<String>,
}

/// Selects a node's pods.
pub(super) fn selector(node: &str) -> Result<String, Problem> {
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-');
    if node.is_empty() || node.len() > 253 || !node.chars().all(valid) {
        return Err(Problem::NodeName(node.chars().take(64).collect()));
    }
    Ok(format!("spec.nodeName={node}"))
}

/// As [`list`], or no later than this.
pub(super) async fn list_within(
    client: &Client,
    node: &str,
    most: Duration,
) -> Result<Listed, Problem> {
    let listed = tokio::time::timeout(most, list(client, node)).await;
    listed.unwrap_or(Err(Problem::TimedOut { after: most }))
}

/// All pages. Pages expire; then it starts over, once.
async fn list(client: &Client, node: &str) -> Result<Listed, Problem> {
    let listed = match pages(client, node).await {
        Err(Problem::Expired) => pages(client, node).await?,
        other => other?,
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

async fn pages(client: &Client, node: &str) -> Result<Listed, Problem> {
    let mut params = ListParams::default().fields(&selector(node)?).limit(PAGE);
    let mut listed = Listed {
        pods: BTreeMap::new(),
        version: String::new(),
        at: sys::clock::now(),
        doubt: None,
    };
    loop {
        let body = client.pods(&params).await?;
        let metadata = take_page(&body, &mut listed.pods)?;
        listed.version = metadata.resource_version.unwrap_or_default();
        let next = metadata.next_page.filter(|token| !token.is_empty());
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
fn take_page(body: &[u8], pods: &mut BTreeMap<String, Pod>) -> Result<Metadata, Problem> {
    let page: Document = serde_json::from_slice(body).map_err(|_| GARBAGE)?;
    let (Some("PodList"), Some(items)) = (page.kind.as_deref(), page.items) else {
        return Err(GARBAGE);
    };
    if items.without_uid.is_some() || items.other_kind.is_some() {
        return Err(GARBAGE);
    }
    pods.extend(items.pods);
    if pods.len() > MAX_PODS {
        return Err(Problem::TooLarge);
    }
    Ok(page.metadata.0.unwrap_or_default())
}
