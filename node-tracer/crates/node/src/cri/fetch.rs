//! The calls that make a list, and how their answers become one.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, UNIX_EPOCH},
};

use tokio::task::JoinSet;

use super::{
    CriError, Endpoint, Listing, SandboxesById,
    api::{
        Container, LIST_CONTAINERS, LIST_POD_SANDBOX, ListContainersRequest,
        ListContainersResponse, ListPodSandboxRequest, ListPodSandboxResponse, MAX_SANDBOXES,
        POD_SANDBOX_STATUS, PodSandbox, PodSandboxStatusRequest, PodSandboxStatusResponse, VERSION,
        VersionRequest, VersionResponse,
    },
    client::{CallError, Client, Socket},
    info::Details,
};
use crate::bundles::spec::{is_id, text};
use event::order::Order as _;
use event::{PodRef, RuntimeContainer, RuntimeSandbox, clock::Timestamp, fault};

/// Sandboxes that are asked about at the same time.
const CONCURRENCY: usize = 8;

/// One sandbox may take this part of the whole time: eight that hang must not
/// keep the others from being told.
const SHARE: u32 = 4;

/// Containers of a sandbox that are kept.
const MAX_CONTAINERS: usize = 256;

/// Asks for everything. Returns within `patience`.
pub(super) async fn fetch(
    endpoint: &Endpoint,
    socket: Socket,
    patience: Duration,
    known: &SandboxesById,
) -> Result<Listing, CriError> {
    let mut client = Client::start(endpoint, socket).await?;
    // These two go on while the sandboxes are told.
    let containers = tokio::spawn(containers(client.clone(), patience));
    let version = tokio::spawn(version(client.clone(), patience));

    let question = ListPodSandboxRequest {};
    let listed = client.call(LIST_POD_SANDBOX, question, patience).await;
    let listed: ListPodSandboxResponse = listed.map_err(|error| error.into_error(endpoint))?;
    let (items, cut) = listed.into_kept();
    let mut partial = Vec::new();
    if cut {
        partial.push(format!("more than {MAX_SANDBOXES} sandboxes"));
    }
    let items = items.into_iter();
    let mut sandboxes: BTreeMap<String, RuntimeSandbox> = items
        .filter(|item| is_id(&item.id))
        .map(|item| (item.id.clone(), sandbox(item)))
        .collect();

    let undescribed = describe(&client, &mut sandboxes, known, patience, &mut partial).await;
    let with_containers = match containers.await {
        Ok(Ok(listed)) => {
            let (containers, cut) = listed.into_kept();
            if cut {
                partial.push(format!("more than {} containers", containers.len()));
            }
            add_containers(&mut sandboxes, containers);
            !cut
        }
        Ok(Err(error)) => {
            partial.push(fault::chain(&error.into_error(endpoint)));
            false
        }
        // The task panicked.
        Err(_) => false,
    };
    Ok(Listing {
        endpoint: endpoint.clone(),
        listener: client.listener,
        runtime: version.await.ok().flatten(),
        sandboxes: sandboxes.into_values().collect(),
        partial: (!partial.is_empty()).then(|| partial.join("; ")),
        cut,
        undescribed,
        with_containers,
    })
}

impl CallError {
    /// For a call that asked for nothing in particular.
    fn into_error(self, endpoint: &Endpoint) -> CriError {
        match self {
            Self::Other(error) => error,
            Self::NotFound => CriError::TooOld {
                endpoint: endpoint.clone(),
                message: String::from("not found"),
            },
        }
    }
}

async fn version(mut client: Client, patience: Duration) -> Option<String> {
    let version = VersionRequest::default();
    let answer = client.call(VERSION, version, patience).await;
    let answer: VersionResponse = answer.ok()?;
    let name = format!("{} {}", answer.runtime_name, answer.runtime_version);
    Some(text(name.trim())).filter(|name| !name.is_empty())
}

async fn containers(
    mut client: Client,
    patience: Duration,
) -> Result<ListContainersResponse, CallError> {
    let question = ListContainersRequest {};
    client.call(LIST_CONTAINERS, question, patience).await
}

/// Fills in what only the status of each sandbox tells, and drops those that
/// have gone meanwhile. Returns those that were not told.
async fn describe(
    client: &Client,
    sandboxes: &mut BTreeMap<String, RuntimeSandbox>,
    known: &SandboxesById,
    patience: Duration,
    partial: &mut Vec<String>,
) -> BTreeSet<String> {
    let mut undescribed = BTreeSet::new();
    for sandbox in sandboxes.values_mut() {
        match known.get(&sandbox.id) {
            Some(before) if before.ready == sandbox.ready => copy_details(sandbox, before),
            _ => drop(undescribed.insert(sandbox.id.clone())),
        }
    }
    let mut waiting: Vec<String> = undescribed.iter().rev().cloned().collect();
    let mut asked = JoinSet::new();
    let mut first_error = None;
    loop {
        while asked.len() < CONCURRENCY
            && let Some(id) = waiting.pop()
        {
            asked.spawn(status(client.clone(), id, patience / SHARE));
        }
        let Some(answer) = asked.join_next().await else {
            break;
        };
        match answer {
            Ok((id, Ok(answer))) => {
                undescribed.remove(&id);
                if let Some(sandbox) = sandboxes.get_mut(&id) {
                    set_details(sandbox, Details::new(&answer));
                }
            }
            Ok((id, Err(CallError::NotFound))) => {
                undescribed.remove(&id);
                sandboxes.remove(&id);
            }
            // cri-dockerd goes on listing one by the name that it has written down
            // when Docker has lost the container. There is no more to be told.
            Ok((id, Err(CallError::Other(CriError::Refused { message, .. }))))
                if message.contains("No such container") =>
            {
                undescribed.remove(&id);
            }
            Ok((_, Err(CallError::Other(error)))) => {
                first_error.get_or_insert(error);
            }
            // The task panicked.
            Err(_) => {}
        }
    }
    if !undescribed.is_empty() {
        let (missing, all) = (undescribed.len(), sandboxes.len());
        let why = first_error
            .map(|error| fault::chain(&error))
            .unwrap_or_default();
        partial.push(format!(
            "{missing} of {all} sandboxes are not described: {why}"
        ));
    }
    undescribed
}

async fn status(
    mut client: Client,
    id: String,
    patience: Duration,
) -> (String, Result<PodSandboxStatusResponse, CallError>) {
    let question = PodSandboxStatusRequest {
        pod_sandbox_id: id.clone(),
        verbose: true,
    };
    let answer = client.call(POD_SANDBOX_STATUS, question, patience).await;
    (id, answer)
}

fn set_details(sandbox: &mut RuntimeSandbox, details: Details) {
    let Details {
        pid,
        netns_path,
        host_network,
        ips,
    } = details;
    sandbox.pid = pid;
    sandbox.netns_path = netns_path;
    sandbox.host_network = host_network;
    sandbox.ips = ips;
}

/// Takes over what was told earlier.
pub(super) fn copy_details(sandbox: &mut RuntimeSandbox, before: &RuntimeSandbox) {
    let details = Details {
        pid: before.pid,
        netns_path: before.netns_path.clone(),
        host_network: before.host_network,
        ips: before.ips.clone(),
    };
    set_details(sandbox, details);
}

fn sandbox(item: PodSandbox) -> RuntimeSandbox {
    let metadata = item.metadata.unwrap_or_default();
    let named = |value: &str| (!value.is_empty()).then(|| text(value));
    let created = u64::try_from(item.created_at)
        .ok()
        .filter(|nanos| *nanos > 0);
    RuntimeSandbox {
        id: item.id,
        pod: PodRef {
            namespace: named(&metadata.namespace),
            name: named(&metadata.name),
            uid: named(&metadata.uid),
        },
        attempt: metadata.attempt,
        ready: Some(item.state == 0),
        created: created.map(|nanos| Timestamp::from(UNIX_EPOCH + Duration::from_nanos(nanos))),
        ..RuntimeSandbox::default()
    }
}

fn add_containers(sandboxes: &mut BTreeMap<String, RuntimeSandbox>, containers: Vec<Container>) {
    for container in containers {
        if let Some(sandbox) = sandboxes.get_mut(&container.pod_sandbox_id)
            && sandbox.containers.len() < MAX_CONTAINERS
            && is_id(&container.id)
        {
            sandbox.containers.push(RuntimeContainer {
                state: Some(container.state_name().to_owned()),
                name: text(&container.metadata.unwrap_or_default().name),
                id: container.id,
                pid: None,
            });
        }
    }
    for sandbox in sandboxes.values_mut() {
        sandbox.containers.order_by(|a, b| a.id.cmp(&b.id));
    }
}

/// Lists of a runtime.
#[cfg(feature = "testing")]
pub(super) fn fuzz(data: &[u8]) {
    use prost::Message as _;

    if let Ok(listed) = ListPodSandboxResponse::decode(data) {
        let items = listed.into_kept().0.into_iter();
        let items = items.filter(|item| is_id(&item.id));
        let mut all: BTreeMap<_, _> = items.map(|item| (item.id.clone(), sandbox(item))).collect();
        if let Ok(answer) = ListContainersResponse::decode(data) {
            add_containers(&mut all, answer.into_kept().0);
        }
        assert!(
            all.values()
                .all(|each| each.containers.len() <= MAX_CONTAINERS)
        );
    }
}
