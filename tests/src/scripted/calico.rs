//! A plugin with Calico's ways, as it was when it kept a pod's endpoint under
//! the pod's name alone; or as it is since it looks whose endpoint it is.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{Folder, pods};
use crate::pods::Pod;

/// What DEL goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyed {
    /// The pod's name: a DEL for an old sandbox takes down the new one.
    ByName,
    /// The name, if the endpoint is the container's of this DEL.
    Guarded,
}

/// The plugin and its endpoints.
#[derive(Debug)]
pub struct Calico {
    folder: Folder,
}

/// An endpoint as the plugin keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub container_id: String,
    pub address: Ipv4Addr,
    /// The host-side end of its cable.
    pub device: String,
}

impl Calico {
    /// One that gives out addresses of this subnet (three bytes of it).
    pub fn create(keyed: Keyed, subnet: [u8; 3]) -> anyhow::Result<Self> {
        let folder = Folder::create("calico", |state| script(keyed, subnet, state))?;
        fs::write(folder.state().join("last"), "1\n")?;
        Ok(Self { folder })
    }

    /// The folder with the plugin in it.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    pub fn network() -> Value {
        json!({
            "cniVersion": "0.4.0",
            "name": "k8s-pod-network",
            "plugins": [{
                "type": "calico",
                "datastore_type": "kubernetes",
                "ipam": { "type": "calico-ipam" },
                "policy": { "type": "k8s" },
            }],
        })
    }

    /// From now on the datastore cannot be reached by DEL, or can be again.
    pub fn set_datastore(&self, reachable: bool) -> anyhow::Result<()> {
        let mark = self.folder.state().join("unreachable");
        match reachable {
            true => fs::remove_file(&mark),
            false => fs::write(&mark, ""),
        }
        .with_context(|| mark.display().to_string())
    }

    fn record(&self, pod: &Pod) -> PathBuf {
        let name = format!("endpoint.{}.{}", pod.namespace, pod.name);
        self.folder.state().join(name)
    }

    /// The endpoint of the pods of this name, if there is one.
    pub fn endpoint(&self, pod: &Pod) -> anyhow::Result<Option<Endpoint>> {
        let Ok(text) = fs::read_to_string(self.record(pod)) else {
            return Ok(None);
        };
        let mut words = text.split_whitespace().map(str::to_owned);
        let mut next = || words.next().context("half an endpoint");
        Ok(Some(Endpoint {
            container_id: next()?,
            address: next()?.parse()?,
            device: next()?,
        }))
    }
}

fn script(keyed: Keyed, [a, b, c]: [u8; 3], state: &Path) -> String {
    let functions = pods::FUNCTIONS;
    let state = state.display();
    let guard = match keyed {
        Keyed::ByName => "",
        Keyed::Guarded => r#"[ "$1" = "$CNI_CONTAINERID" ] || exit 0"#,
    };
    format!(
        r#"{functions}
cd '{state}' || exit 1
endpoint=endpoint.$pod
case $CNI_COMMAND in
ADD)
    exec 9>lock && flock 9
    read -r last <last
    address={a}.{b}.{c}.$((last + 1))
    echo $((last + 1)) >last
    flock -u 9
    wire "$address" 9>&- || fail 999 "cannot set the cable up"
    echo "$CNI_CONTAINERID $address $device" >"$endpoint"
    answer "$address"
    ;;
DEL)
    [ ! -e unreachable ] || fail 11 "connection is unauthorized: Unauthorized"
    [ -e "$endpoint" ] || exit 0
    read -r line <"$endpoint"
    set -- $line
    {guard}
    rm -f "$endpoint"
    unwire "$2" "$3"
    ;;
esac
exit 0"#
    )
}
