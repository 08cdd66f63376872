//! What libcni remembers of each ADD until a DEL of the same attachment: a
//! file named `network-container-interface` in its cache.
//!
//! Taken are names, the pod and the addresses. The network's configuration is
//! in there, too, encoded: it can hold tokens and is never decoded.

use std::{io, net::IpAddr, path::Path};

use serde::{Deserialize, Deserializer};

use super::{MAX_ENTRIES, is_ifname, is_name};
use crate::root::{Content, Found, Root, Unread, UnreadList};
use event::{Attachment, Event, Netns, PodRef, What, clock::Timestamp};

/// libcni's own place, and that of builds that say `/var/lib/cni/cache`.
const CACHE_DIRS: &[&str] = &["/var/lib/cni/results", "/var/lib/cni/cache/results"];

/// Largest file that is read at first; real ones have 1 to 5 kB.
const MAX_FILE: usize = 256 << 10;

/// Largest file that is read once all of these are. containerd has libcni keep the
/// annotations of the pod: 256 KiB, of which each byte can be an escape of six, and
/// who makes pods writes them.
const MAX_LARGE: usize = 4 << 20;

/// All that is read of one folder: of small files, and of large ones, which take a
/// fraction of a second.
const MAX_TOTAL: usize = 256 << 20;
const MAX_TOTAL_LARGE: usize = 64 << 20;

/// Addresses that are kept of one attachment.
const MAX_IPS: usize = 64;

/// `kind` of the files that libcni has written since version 0.7.1.
const KIND: &str = "cniCacheV1";

/// Devices on the host that are kept of one attachment.
const MAX_HOST_DEVICES: usize = 8;

/// Length of a MAC address in writing; InfiniBand's has 20 bytes.
const MAX_MAC: usize = 59;

/// Length of a container ID of every runtime that speaks CRI.
const ID_LEN: usize = 64;

/// A file; those of old hold only the result.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cached {
    kind: Option<String>,
    #[serde(default)]
    container_id: String,
    #[serde(default)]
    if_name: String,
    #[serde(default)]
    network_name: String,
    #[serde(default)]
    netns: String,
    #[serde(default, deserialize_with = "or_default")]
    cni_args: Vec<(String, String)>,
    result: Option<AddResult>,
    #[serde(flatten)]
    old: AddResult,
}

/// What a plugin answered, of versions 0.1 to 1.1.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AddResult {
    cni_version: Option<String>,
    #[serde(deserialize_with = "or_default")]
    ips: Vec<IpConfig>,
    ip4: Option<OldIpConfig>,
    ip6: Option<OldIpConfig>,
    #[serde(deserialize_with = "or_default")]
    interfaces: Vec<Interface>,
}

/// A device that the plugin has made: in the sandbox, or on the host.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Interface {
    name: String,
    mac: String,
    sandbox: String,
}

#[derive(Debug, Deserialize)]
struct IpConfig {
    address: String,
}

#[derive(Debug, Deserialize)]
struct OldIpConfig {
    ip: String,
}

/// A value, which can be `null`.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The attachments of each cache that there is. `resolve` says which network
/// namespace is at a path of the host now.
pub fn attachments(
    root: &Root,
    resolve: &dyn Fn(&str) -> Option<Netns>,
    now: Timestamp,
) -> Vec<Event> {
    let mut events = Vec::new();
    let mut seen = Vec::new();
    for path in CACHE_DIRS.iter().map(Path::new) {
        let folder = match root.folder(path) {
            Ok(Some(folder)) => folder,
            Ok(None) => continue,
            Err(error) => {
                events.push(listed(path, Vec::new(), [Unread::read(path, error)], now));
                continue;
            }
        };
        // One can be a link to the other.
        if let Ok(identity) = folder.identity() {
            if seen.contains(&identity) {
                continue;
            }
            seen.push(identity);
        }
        let mut unread = Vec::new();
        let mut attachments = Vec::new();
        let listing = folder.list(MAX_ENTRIES).unwrap_or_else(|error| {
            unread.push(Unread::read(path, error));
            Default::default()
        });
        if listing.cut {
            let what = format!("has more than {MAX_ENTRIES} files; the rest was not read");
            unread.push(Unread::content(path, what));
        }
        let (mut room, mut room_for_large, mut large) = (MAX_TOTAL, MAX_TOTAL_LARGE, Vec::new());
        let mut take = |file: &Path, found: Result<Found, io::Error>, room: &mut usize| {
            let found = match found {
                Ok(Found::File(content)) => {
                    *room -= content.bytes.len().min(*room);
                    attachment(file, &content)
                }
                Ok(Found::Missing) => return,
                Ok(Found::Folder) => Err(Unread::content(file, "is a folder")),
                Err(error) => Err(Unread::read(file, error)),
            };
            match found {
                Ok(mut found) => {
                    found.netns = Some(found.netns_path.as_str())
                        .filter(|path| path.starts_with('/'))
                        .and_then(resolve);
                    attachments.push(found);
                }
                Err(error) => unread.push(error),
            }
        };
        for entry in &listing.entries {
            match folder.read(entry, MAX_FILE.min(room)) {
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => large.push(entry),
                found => take(&path.join(&entry.name), found, &mut room),
            }
        }
        for entry in large {
            let found = folder.read(entry, MAX_LARGE.min(room_for_large));
            take(&path.join(&entry.name), found, &mut room_for_large);
        }
        events.push(listed(path, attachments, unread, now));
    }
    events
}

fn listed(
    folder: &Path,
    attachments: Vec<Attachment>,
    unread: impl IntoIterator<Item = Unread>,
    time: Timestamp,
) -> Event {
    let mut list = UnreadList::default();
    unread.into_iter().for_each(|each| list.push(each));
    let what = What::AttachmentsListed {
        folder: folder.to_owned(),
        attachments,
        unread: list.texts(),
    };
    Event { time, what }
}

fn attachment(path: &Path, content: &Content) -> Result<Attachment, Unread> {
    let wrong = |what: &str| Unread::content(path, what);
    if content.bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(wrong("is empty"));
    }
    // serde_json's message could quote what it does not understand.
    let cached: Cached = serde_json::from_slice(&content.bytes).map_err(|error| {
        wrong(if error.is_eof() {
            "is cut off"
        } else {
            "is no cached result of libcni"
        })
    })?;
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| wrong("has a name that libcni gives to no file"))?;
    let result = match cached.kind.as_deref() {
        Some(KIND) => cached.result.unwrap_or_default(),
        Some(_) => return Err(wrong("is of a kind that is not known")),
        None if cached.old.is_result() => cached.old,
        None => return Err(wrong("is no cached result of libcni")),
    };
    let (network, container_id, ifname) = match cached.kind {
        Some(_) => (cached.network_name, cached.container_id, cached.if_name),
        None => split(name).ok_or_else(|| wrong("has a name that libcni gives to no file"))?,
    };
    if !is_name(&network) || !is_name(&container_id) || !is_ifname(&ifname) {
        return Err(wrong("names no attachment"));
    }
    if format!("{network}-{container_id}-{ifname}") != name {
        return Err(wrong("is of another attachment than its name says"));
    }
    let inside = result.interfaces.iter();
    let mut inside = inside.filter(|each| !each.sandbox.is_empty() && each.name == ifname);
    let inside = inside.next();
    let outside = result.interfaces.iter();
    let outside = outside.filter(|each| each.sandbox.is_empty() && is_ifname(&each.name));
    let outside = outside.take(MAX_HOST_DEVICES);
    // Older libcni has the path only in the plugin's answer.
    let netns_path = match (cached.netns.as_str(), inside) {
        ("", Some(inside)) => inside.sandbox.clone(),
        (path, _) => path.to_owned(),
    };
    let mac = inside.map(|inside| inside.mac.to_ascii_lowercase());
    Ok(Attachment {
        path: path.to_owned(),
        network,
        container_id,
        netns_path: Some(netns_path)
            .filter(|path| path.starts_with('/') && path.len() < libc::PATH_MAX as usize)
            .unwrap_or_default(),
        netns: None,
        mac: mac.filter(|mac| (1..=MAX_MAC).contains(&mac.len())),
        host_devices: outside.map(|each| each.name.clone()).collect(),
        ifname,
        pod: pod(cached.cni_args),
        ips: result.ips(),
        written: content.modified,
    })
}

/// Network, container and interface in the name of a file. Any of them can
/// hold the `-` that is between them; IDs of CRI are known by their form.
fn split(name: &str) -> Option<(String, String, String)> {
    let own = |network: &str, id: &str, ifname: &str| {
        let parts = (network.to_owned(), id.to_owned(), ifname.to_owned());
        (!network.is_empty() && !id.is_empty() && !ifname.is_empty()).then_some(parts)
    };
    let is_id = |part: &str| part.len() == ID_LEN && part.bytes().all(|c| c.is_ascii_hexdigit());
    for (at, _) in name.match_indices('-') {
        let rest = name.get(at + 1..)?;
        if let Some((id, ifname)) = rest.split_once('-')
            && is_id(id)
        {
            return own(name.get(..at)?, id, ifname);
        }
    }
    let (rest, ifname) = name.rsplit_once('-')?;
    let (network, id) = rest.rsplit_once('-')?;
    own(network, id, ifname)
}

/// The pod that the cached `CNI_ARGS` name. Other keys may be secrets and are
/// dropped, as is what is longer than any name in Kubernetes.
fn pod(args: Vec<(String, String)>) -> Option<PodRef> {
    let mut pod = PodRef::default();
    for (key, value) in args {
        let value = Some(value).filter(|value| (1..=253).contains(&value.len()));
        match key.as_str() {
            "K8S_POD_NAMESPACE" => pod.namespace = value,
            "K8S_POD_NAME" => pod.name = value,
            "K8S_POD_UID" => pod.uid = value,
            _ => {}
        }
    }
    (pod != PodRef::default()).then_some(pod)
}

impl AddResult {
    /// Whether a file that says no more than this is one of old.
    fn is_result(&self) -> bool {
        self.cni_version.is_some()
            || !self.ips.is_empty()
            || self.ip4.is_some()
            || self.ip6.is_some()
    }

    fn ips(&self) -> Vec<IpAddr> {
        let old = [&self.ip4, &self.ip6].into_iter().flatten();
        let texts = self.ips.iter().map(|each| each.address.as_str());
        let texts = texts.chain(old.map(|each| each.ip.as_str()));
        let address = |text: &str| {
            let (address, _) = text.split_once('/').unwrap_or((text, ""));
            address.parse::<IpAddr>().ok()
        };
        let mut ips: Vec<IpAddr> = Vec::new();
        for ip in texts.filter_map(address).map(|ip| ip.to_canonical()) {
            if ips.len() < MAX_IPS && !ips.contains(&ip) {
                ips.push(ip);
            }
        }
        ips
    }
}

/// What is in a file of the cache; its name is the first line.
#[cfg(feature = "testing")]
pub(super) fn fuzz(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n');
    let (name, bytes) = data.split_at(end.unwrap_or(0));
    let path = Path::new("/var/lib/cni/results").join(&*String::from_utf8_lossy(name));
    let content = Content {
        bytes: bytes.to_vec(),
        modified: sys::clock::now(),
    };
    let _ = attachment(&path, &content);
}
