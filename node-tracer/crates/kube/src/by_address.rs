//! Pods of the whole cluster by their address.
//!
//! The server selects them by a scan of its cache: it is asked rarely, about few
//! addresses. What the cache says of another pod is asked once more, of that pod
//! alone and not out of the cache, before anybody is told: it may have gone.

use std::{
    io,
    net::IpAddr,
    sync::mpsc::{self, Receiver},
    time::Duration,
};

use kube_core::params::ListParams;

use super::{
    Client, Credentials, MAX_PAGE, Problem, failed,
    list::{Pods, take_page},
    on_this_thread,
};
use event::{Pod, clock::Timestamp, fault};
use sys::privileges::start_bare;

const PODS: &str = "/api/v1/pods";
/// The first address of a pod, and all of a dual-stack pod's. Older servers take the
/// second selector and never match it, or refuse it.
const FIRST: &str = "status.podIP";
const ALL: &str = "status.podIPs";

/// Addresses that are asked about at once.
pub const AT_ONCE: usize = 8;
/// Pods of one address that are asked for once more.
const MOST_VERIFIED: usize = 4;

/// Who has some addresses.
#[derive(Debug, PartialEq)]
pub struct ByAddress {
    /// A moment before the server was asked.
    pub at: Timestamp,
    /// Those of which the server told.
    pub found: Vec<(IpAddr, Vec<Pod>)>,
    /// Why it does not tell of the others.
    pub failure: Option<String>,
}

/// Asks about addresses, within a time. The answer comes by itself; if none does,
/// the thread has ended.
///
/// # Errors
/// There is no thread to do so.
pub fn find_by_address(
    credentials: &Credentials,
    addresses: impl IntoIterator<Item = IpAddr>,
    timeout: Duration,
) -> io::Result<Receiver<ByAddress>> {
    let (send, receive) = mpsc::sync_channel(1);
    let asked = credentials.clone();
    let addresses: Vec<IpAddr> = addresses.into_iter().take(AT_ONCE).collect();
    let ask = move || {
        let mut answer = ByAddress {
            at: sys::clock::now(),
            found: Vec::new(),
            failure: None,
        };
        let found = &mut answer.found;
        let result = on_this_thread(async {
            let client = Client::new(&asked)?;
            let all = async {
                for address in addresses {
                    found.push((address, pods_with(&client, address).await?));
                }
                Ok(())
            };
            let all = tokio::time::timeout(timeout, all).await;
            let all = all.unwrap_or(Err(Problem::TimedOut { after: timeout }));
            all.map_err(|problem| failed(&asked, problem, timeout))
        });
        let failure = result.and_then(|result| result).err();
        answer.failure = failure.map(|error| fault::chain(&error));
        // Nobody may wait for it any more.
        let _unheard = send.send(answer);
    };
    start_bare("pods-by-ip", ask)?;
    Ok(receive)
}

/// The pods that have an address now. Those on a node's own network are as the cache
/// has them.
async fn pods_with(client: &Client, address: IpAddr) -> Result<Vec<Pod>, Problem> {
    let by = |field: &str| {
        let selector = format!("{field}={address}");
        // No pages: they are not read out of the cache.
        ListParams::default().fields(&selector).at("0")
    };
    let has = |pod: &Pod| pod.ips.contains(&address);
    let mut cached = list(client, PODS, &by(FIRST)).await?;
    if !cached.all().any(has) {
        cached = match list(client, PODS, &by(ALL)).await {
            Err(Problem::Status { code: 400, .. }) => Pods::default(),
            other => other?,
        };
    }
    let (on_host, own): (Vec<Pod>, Vec<Pod>) = cached
        .all()
        .filter(|pod| has(pod))
        .cloned()
        .partition(|pod| pod.host_network);
    let mut pods = on_host;
    for pod in own.into_iter().take(MOST_VERIFIED) {
        let path = format!("/api/v1/namespaces/{}/pods", pod.namespace);
        let by_name = ListParams::default().fields(&format!("metadata.name={}", pod.name));
        let now = match is_name(&pod.namespace) && is_name(&pod.name) {
            true => list(client, &path, &by_name).await?,
            false => continue,
        };
        pods.extend(now.all().filter(|pod| has(pod)).cloned());
    }
    Ok(pods)
}

async fn list(client: &Client, path: &str, params: &ListParams) -> Result<Pods, Problem> {
    let body = client.list(path, params, MAX_PAGE).await?;
    let mut pods = Pods::default();
    take_page(&body, &mut pods)?;
    Ok(pods)
}

/// What Kubernetes allows in a name: nothing that is more than a part of a path or
/// of a selector.
fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-');
    !text.is_empty() && text.chars().all(plain) && !text.starts_with('.')
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::server::{Reply, Server, TOKEN, page, status};

    const SOON: Duration = Duration::from_secs(5);

    fn ip() -> IpAddr {
        IpAddr::from([10, 0, 0, 5])
    }

    /// A page with one pod that has an address.
    fn one(address: &str, host_network: bool) -> Value {
        let mut page = page(&["a"], 7, "");
        let pod = &mut page["items"][0];
        pod["spec"] = json!({ "nodeName": "n2", "hostNetwork": host_network });
        pod["status"] =
            json!({ "phase": "Running", "podIP": address, "podIPs": [{"ip": address}] });
        page
    }

    fn ask(server: &Server) -> ByAddress {
        let asked = find_by_address(&server.credentials(), [ip()], SOON).unwrap();
        asked.recv_timeout(SOON).unwrap()
    }

    fn names(answer: &ByAddress) -> Vec<&str> {
        let pods = answer.found.iter().flat_map(|(_, pods)| pods);
        pods.map(|pod| pod.name.as_str()).collect()
    }

    #[test]
    fn a_pod_is_found_in_the_cache_and_asked_for_once_more() {
        let server = Server::listing(Reply::Json(200, one("10.0.0.5", false)));
        let answer = ask(&server);
        assert_eq!((names(&answer), &answer.failure), (vec!["a"], &None));
        let [first, second] = server.requests().try_into().unwrap();
        assert!(first.starts_with("/api/v1/pods?"), "{first}");
        assert!(
            first.contains("fieldSelector=status.podIP%3D10.0.0.5"),
            "{first}"
        );
        assert!(first.contains("resourceVersion=0"), "{first}");
        assert!(
            second.contains("fieldSelector=metadata.name%3Da"),
            "{second}"
        );
        assert!(
            !second.contains("resourceVersion"),
            "not out of a cache: {second}"
        );
    }

    #[test]
    fn what_only_the_cache_has_is_not_there() {
        let server = Server::new(|path, _| match path.contains("metadata.name") {
            false => Reply::Json(200, one("10.0.0.5", false)),
            true => Reply::Json(200, page(&[], 9, "")),
        });
        let answer = ask(&server);
        assert_eq!(answer.found, [(ip(), Vec::new())]);
    }

    #[test]
    fn a_second_address_is_found_where_the_server_selects_by_all_of_them() {
        let found = |selects: u16| {
            let server = Server::new(move |path, _| match path.contains("podIPs") {
                true if selects == 400 => Reply::Json(400, status(400, "not supported")),
                true => Reply::Json(200, one("10.0.0.5", false)),
                false if path.contains("metadata.name") => Reply::Json(200, one("10.0.0.5", false)),
                false => Reply::Json(200, page(&[], 7, "")),
            });
            let answer = ask(&server);
            assert_eq!(answer.failure, None);
            names(&answer).len()
        };
        assert_eq!(found(200), 1);
        assert_eq!(found(400), 0, "it has answered by the first");
    }

    #[test]
    fn a_server_that_selects_nothing_makes_nobody_a_holder() {
        let server = Server::listing(Reply::Json(200, one("10.0.0.9", false)));
        assert_eq!(ask(&server).found, [(ip(), Vec::new())]);
        assert_eq!(server.requests().len(), 2);
    }

    #[test]
    fn a_refusal_is_told_and_is_no_answer() {
        for code in [400, 403, 500] {
            let server = Server::listing(Reply::Json(code, status(code, "no")));
            let answer = ask(&server);
            assert_eq!(answer.found, []);
            let text = answer.failure.unwrap();
            assert!(
                text.contains(&code.to_string()) && !text.contains(TOKEN),
                "{text}"
            );
        }
    }

    #[test]
    fn a_server_that_does_not_answer_is_waited_for_no_longer_than_said() {
        let server = Server::listing(Reply::Hang);
        let most = Duration::from_millis(100);
        let asked = find_by_address(&server.credentials(), [ip()], most).unwrap();
        let answer = asked.recv_timeout(SOON).unwrap();
        assert!(answer.failure.unwrap().contains("no answer"));
    }

    #[test]
    fn pods_on_a_nodes_own_network_are_not_asked_for_one_by_one() {
        let server = Server::listing(Reply::Json(200, one("10.0.0.5", true)));
        let answer = ask(&server);
        assert!(answer.found[0].1[0].host_network);
        assert_eq!(server.requests().len(), 1);
    }
}
