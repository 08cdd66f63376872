//! Cilium's queue of deletions: what its CNI plugin was told to delete while
//! the agent was down, and the agent does once it is back. Which addresses that
//! keeps is known to the agent alone; it keeps all allocations in its memory.

use std::path::Path;

use serde::Deserialize;

use event::{Store, StoreKind, wording::plural::counted};
use node::{
    cni::is_name,
    root::{Found, Root, Unread, UnreadList},
};

pub(super) const FOLDER: &str = "/var/run/cilium/deleteQueue";
/// The plugin stops at 256 files.
const MAX_FILES: usize = 1_024;
/// Largest file that is read; real ones have about 100 bytes.
const MAX_FILE: usize = 4 << 10;
/// Containers that are named.
const NAMED: usize = 8;

/// Why nothing is known of addresses.
pub(super) const IN_MEMORY: &str = "which addresses Cilium has given out: its agent keeps that in its memory \
                         (cilium-dbg status --verbose shows it)";

/// What a newer plugin writes; an older one writes `container-id:ID`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Request {
    container_id: Option<String>,
}

/// Reads the queue; `None` if there is none.
///
/// # Errors
/// It is there and cannot be listed.
pub(super) fn read(root: &Root) -> Result<Option<Store>, Unread> {
    let path = Path::new(FOLDER);
    let folder = match root.folder(path) {
        Ok(Some(folder)) => folder,
        Ok(None) => return Ok(None),
        Err(error) => return Err(Unread::read(path, error)),
    };
    let listing = folder
        .list(MAX_FILES)
        .map_err(|error| Unread::read(path, error))?;
    let mut unread = UnreadList::default();
    let (mut containers, mut waiting) = (Vec::new(), 0);
    for entry in &listing.entries {
        if !entry.text().is_some_and(|name| name.ends_with(".delete")) {
            continue;
        }
        let file = path.join(&entry.name);
        match folder.read(entry, MAX_FILE) {
            Ok(Found::File(content)) => {
                waiting += 1;
                containers.extend(container(&content.bytes));
            }
            Ok(Found::Missing) => {}
            Ok(Found::Folder) => unread.push(Unread::content(&file, "is a folder")),
            Err(error) => unread.push(Unread::read(&file, error)),
        }
    }
    if listing.cut {
        let what = format!("has more than {MAX_FILES} files; the rest was not read");
        unread.push(Unread::content(path, what));
    }
    let mut texts = vec![IN_MEMORY.to_owned()];
    if waiting > 0 {
        containers.sort_unstable();
        let named = containers.iter().take(NAMED).map(String::as_str);
        let named: Vec<&str> = named.collect();
        let of = match named.is_empty() {
            true => String::new(),
            false => format!(" (of {})", named.join(", ")),
        };
        texts.push(format!(
            "which addresses {} that wait for the agent would give back{of}",
            counted(waiting, "deletion")
        ));
    }
    texts.extend(unread.texts());
    Ok(Some(Store {
        path: path.to_owned(),
        kind: StoreKind::Cilium,
        unread: texts,
        ..Store::default()
    }))
}

/// Whose deletion a file asks for.
fn container(content: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(content).ok()?.trim();
    let id = match text.strip_prefix("container-id:") {
        Some(id) => id.to_owned(),
        None => {
            serde_json::from_slice::<Request>(text.as_bytes())
                .ok()?
                .container_id?
        }
    };
    (is_name(&id) && !id.is_empty()).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::{super::tests::host, *};

    fn queue(files: &[(&str, &str)]) -> Store {
        let files: Vec<_> = files
            .iter()
            .map(|(name, content)| (format!("{FOLDER}/{name}"), *content))
            .collect();
        let files: Vec<_> = files
            .iter()
            .map(|(name, content)| (name.as_str(), *content))
            .collect();
        let host = host(&files);
        read(&Root::open(host.path()).unwrap()).unwrap().unwrap()
    }

    #[test]
    fn deletions_that_wait_are_named_as_far_as_they_say_whose_they_are() {
        let store = queue(&[
            ("a.delete", "container-id:aaa"),
            ("b.delete", r#"{"container-id":"bbb"}"#),
            ("c.delete", "\u{1b}[31m"),
            ("lock", ""),
        ]);
        assert_eq!(
            (store.kind, store.reservations.len()),
            (StoreKind::Cilium, 0)
        );
        assert_eq!(
            store.unread[1],
            "which addresses 3 deletions that wait for the agent would give back (of aaa, bbb)"
        );
    }

    #[test]
    fn an_empty_queue_does_not_make_addresses_known() {
        assert_eq!(queue(&[("lock", "")]).unread, [IN_MEMORY]);
        let bare = host::<&str>(&[]);
        assert_eq!(read(&Root::open(bare.path()).unwrap()).unwrap(), None);
    }
}
