//! The messages of CRI v1 that are used, with the field numbers of the
//! published `runtime/v1/api.proto`. Fields that are not used are left out:
//! what is not here is skipped while an answer is decoded.

use std::{cmp::Ordering, collections::HashMap};

use prost::{
    DecodeError, Message,
    bytes::{Buf, BufMut},
    encoding::{self, DecodeContext, WireType},
};

/// A method of the runtime service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Method {
    pub(super) name: &'static str,
    pub(super) path: &'static str,
}

/// `Version`
pub(super) const VERSION: Method = Method {
    name: "Version",
    path: "/runtime.v1.RuntimeService/Version",
};

/// `ListPodSandbox`
pub(super) const LIST_POD_SANDBOX: Method = Method {
    name: "ListPodSandbox",
    path: "/runtime.v1.RuntimeService/ListPodSandbox",
};

/// `PodSandboxStatus`
pub(super) const POD_SANDBOX_STATUS: Method = Method {
    name: "PodSandboxStatus",
    path: "/runtime.v1.RuntimeService/PodSandboxStatus",
};

/// `ListContainers`
pub(super) const LIST_CONTAINERS: Method = Method {
    name: "ListContainers",
    path: "/runtime.v1.RuntimeService/ListContainers",
};

/// `NamespaceMode.NODE`
pub(super) const NAMESPACE_NODE: i32 = 2;

/// `VersionRequest`
#[derive(Clone, PartialEq, Message)]
pub(super) struct VersionRequest {
    /// Of the kubelet's side.
    #[prost(string, tag = "1")]
    pub(super) version: String,
}

/// `VersionResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct VersionResponse {
    /// `containerd`, `cri-o`, `docker`, …
    #[prost(string, tag = "2")]
    pub(super) runtime_name: String,
    /// As the runtime writes it.
    #[prost(string, tag = "3")]
    pub(super) runtime_version: String,
}

/// `ListPodSandboxRequest`, without a filter.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListPodSandboxRequest {}

/// What an answer lists, all in field 1, of which so many are kept. An item is
/// two bytes if nothing is in it, and a hundred once it is decoded: what is too
/// much is dropped while the answer is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Items<T, const MOST: usize> {
    pub(super) items: Vec<T>,
    /// There were more.
    pub(super) cut: bool,
}

/// One of a list.
pub(super) trait Item: Message + Default {
    /// Which is kept if there are too many: the lesser one.
    fn rank(&self, other: &Self) -> Ordering;
}

impl<T: Item, const MOST: usize> Items<T, MOST> {
    /// Keeps those that rank first, whatever order they came in.
    fn cut(&mut self) {
        if self.items.len() > MOST {
            self.items.sort_unstable_by(T::rank);
            self.items.truncate(MOST);
            self.cut = true;
        }
    }

    /// At most so many as are kept.
    pub(super) fn into_kept(mut self) -> (Vec<T>, bool) {
        self.cut();
        (self.items, self.cut)
    }
}

impl<T: Item, const MOST: usize> Message for Items<T, MOST> {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        encoding::message::encode_repeated(1, &self.items, buffer);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        if tag != 1 {
            return encoding::skip_field(wire_type, tag, buffer, context);
        }
        // Not at each one: that would sort as often.
        if self.items.len() >= 2 * MOST {
            self.cut();
        }
        encoding::message::merge_repeated(wire_type, &mut self.items, buffer, context)
    }

    fn encoded_len(&self) -> usize {
        encoding::message::encoded_len_repeated(1, &self.items)
    }

    fn clear(&mut self) {
        *self = Self {
            items: Vec::new(),
            cut: false,
        };
    }
}

/// Sandboxes that are kept; a kubelet has 110 pods, unless told otherwise.
pub(super) const MAX_SANDBOXES: usize = 16_384;

/// Containers that are kept.
const MAX_CONTAINERS: usize = 65_536;

/// Addresses of a sandbox that are kept besides the first.
const MAX_IPS: usize = 16;

/// `ListPodSandboxResponse`: sandboxes in any state.
pub(super) type ListPodSandboxResponse = Items<PodSandbox, MAX_SANDBOXES>;

/// Those that are ready come first, then the newest: the same are kept each time.
impl Item for PodSandbox {
    fn rank(&self, other: &Self) -> Ordering {
        let ready = |item: &Self| item.state == 0;
        let first = ready(other).cmp(&ready(self));
        first
            .then(other.created_at.cmp(&self.created_at))
            .then_with(|| self.id.cmp(&other.id))
    }
}

/// `PodSandbox`
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandbox {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(message, optional, tag = "2")]
    pub(super) metadata: Option<PodSandboxMetadata>,
    /// `PodSandboxState`: 0 is ready, 1 is not.
    #[prost(int32, tag = "3")]
    pub(super) state: i32,
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub(super) created_at: i64,
}

/// `PodSandboxMetadata`
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) uid: String,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
    /// Counts the sandboxes of the pod.
    #[prost(uint32, tag = "4")]
    pub(super) attempt: u32,
}

/// `PodSandboxStatusRequest`
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxStatusRequest {
    #[prost(string, tag = "1")]
    pub(super) pod_sandbox_id: String,
    /// With `info`.
    #[prost(bool, tag = "2")]
    pub(super) verbose: bool,
}

/// `PodSandboxStatusResponse`
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxStatusResponse {
    /// What every runtime tells.
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<PodSandboxStatus>,
    /// What this runtime tells besides.
    #[prost(map = "string, string", tag = "2")]
    pub(super) info: HashMap<String, String>,
}

/// `PodSandboxStatus`
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxStatus {
    #[prost(message, optional, tag = "5")]
    pub(super) network: Option<PodSandboxNetworkStatus>,
    #[prost(message, optional, tag = "6")]
    pub(super) linux: Option<LinuxPodSandboxStatus>,
}

/// `PodSandboxNetworkStatus`
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodSandboxNetworkStatus {
    /// The first address; may be empty.
    pub(super) ip: String,
    /// No more than are kept.
    pub(super) additional_ips: Vec<PodIp>,
}

impl Message for PodSandboxNetworkStatus {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        encoding::string::encode(1, &self.ip, buffer);
        encoding::message::encode_repeated(2, &self.additional_ips, buffer);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        let ips = &mut self.additional_ips;
        match tag {
            1 => encoding::string::merge(wire_type, &mut self.ip, buffer, context),
            2 if ips.len() < MAX_IPS => {
                encoding::message::merge_repeated(wire_type, ips, buffer, context)
            }
            _ => encoding::skip_field(wire_type, tag, buffer, context),
        }
    }

    fn encoded_len(&self) -> usize {
        encoding::string::encoded_len(1, &self.ip)
            + encoding::message::encoded_len_repeated(2, &self.additional_ips)
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// `PodIP`
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodIp {
    #[prost(string, tag = "1")]
    pub(super) ip: String,
}

/// `LinuxPodSandboxStatus`
#[derive(Clone, PartialEq, Message)]
pub(super) struct LinuxPodSandboxStatus {
    #[prost(message, optional, tag = "1")]
    pub(super) namespaces: Option<Namespace>,
}

/// `Namespace`
#[derive(Clone, PartialEq, Message)]
pub(super) struct Namespace {
    #[prost(message, optional, tag = "2")]
    pub(super) options: Option<NamespaceOption>,
}

/// `NamespaceOption`
#[derive(Clone, PartialEq, Message)]
pub(super) struct NamespaceOption {
    /// `NamespaceMode` of the network.
    #[prost(int32, tag = "1")]
    pub(super) network: i32,
}

/// `ListContainersRequest`, without a filter.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListContainersRequest {}

/// `ListContainersResponse`: containers in any state, without infra containers.
pub(super) type ListContainersResponse = Items<Container, MAX_CONTAINERS>;

impl Item for Container {
    fn rank(&self, other: &Self) -> Ordering {
        self.id.cmp(&other.id)
    }
}

/// `Container`
#[derive(Clone, PartialEq, Message)]
pub(super) struct Container {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) pod_sandbox_id: String,
    #[prost(message, optional, tag = "3")]
    pub(super) metadata: Option<ContainerMetadata>,
    /// `ContainerState`
    #[prost(int32, tag = "6")]
    pub(super) state: i32,
}

/// `ContainerMetadata`
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerMetadata {
    /// Its name in the pod.
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

impl Container {
    /// `ContainerState` in words.
    pub(super) fn state_name(&self) -> &'static str {
        match self.state {
            0 => "created",
            1 => "running",
            2 => "exited",
            _ => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(id: &str, state: i32, created_at: i64) -> PodSandbox {
        PodSandbox {
            id: id.to_owned(),
            metadata: None,
            state,
            created_at,
        }
    }

    #[test]
    fn of_too_many_sandboxes_the_ready_and_the_newest_are_kept_in_any_order() {
        let all = [
            sandbox("old", 1, 1),
            sandbox("new", 1, 9),
            sandbox("ready", 0, 2),
            sandbox("twin", 1, 9),
        ];
        let mut turned = all.to_vec();
        turned.reverse();
        for items in [all.to_vec(), turned] {
            let answer = Items::<PodSandbox, 2> { items, cut: false };
            let decoded = Items::<PodSandbox, 2>::decode(answer.encode_to_vec().as_slice());
            let (kept, cut) = decoded.unwrap().into_kept();
            let ids: Vec<_> = kept.iter().map(|item| item.id.as_str()).collect();
            assert_eq!((ids, cut), (vec!["ready", "new"], true));
        }
    }

    #[test]
    fn a_list_of_nothing_takes_no_more_room_than_what_is_kept() {
        // As many as an answer can have of the smallest, nearly.
        let empty = [0x0a, 0].repeat(1 << 20);
        let all = ListPodSandboxResponse::decode(empty.as_slice()).unwrap();
        assert!(all.items.capacity() <= 4 * MAX_SANDBOXES);
        assert_eq!(all.into_kept().0.len(), MAX_SANDBOXES);
        let all = ListContainersResponse::decode(empty.as_slice()).unwrap();
        assert!(all.items.capacity() <= 4 * MAX_CONTAINERS);
        let empty = [0x12, 0].repeat(1 << 20);
        let status = PodSandboxNetworkStatus::decode(empty.as_slice()).unwrap();
        assert_eq!(status.additional_ips.len(), MAX_IPS);
    }
}
