//! Which containers live, as tasks and runtimes show it, and which attachments are
//! left over of those that do not.

use std::{collections::HashSet, net::IpAddr};

use crate::{
    detect::{View, answering, heard},
    model::{Model, runtime::CRI},
};
use event::Attachment;

/// The containers of the namespaces that exist.
pub(in crate::detect) fn containers(model: &Model) -> HashSet<&str> {
    let own = model.netns.live().flat_map(|entry| {
        let sandbox = &entry.sandbox;
        let tasks = entry.tasks.iter();
        let tasks = tasks.filter_map(|task| task.container_id.as_deref());
        let known = sandbox.containers.iter().map(String::as_str);
        sandbox.id.as_deref().into_iter().chain(known).chain(tasks)
    });
    own.collect()
}

/// Whether a namespace that tells of a pod has an address.
pub(in crate::detect) fn has_address(view: &View<'_>, address: IpAddr) -> bool {
    let mut with = view.model.netns.with_address(address);
    with.any(|entry| entry.dying.is_none() && !view.is_bystander(entry))
}

/// Whether libcni's cache has an attachment of a sandbox that is certainly gone:
/// its namespace is, and the runtime, asked since, does not have it.
pub(in crate::detect) fn is_left_over(view: &View<'_>, attachment: &Attachment) -> bool {
    let Attachment {
        container_id: id,
        netns,
        netns_path,
        ..
    } = attachment;
    let is_disowned = || {
        let list = answering(view.model).filter(|list| list.at > attachment.written);
        list.is_some_and(|list| list.of_container(id).is_none())
    };
    netns.is_none()
        && !netns_path.is_empty()
        && !view.containers().contains(id.as_str())
        && is_disowned()
        && !is_running(view, id)
}

/// Whether something shows that a sandbox runs although its namespace was not
/// found: the path may lead nowhere only for who looks, as in a container into
/// which the host's mounts are not propagated.
pub(in crate::detect) fn is_running(view: &View<'_>, id: &str) -> bool {
    let runtime = &view.model.runtime;
    let ready = heard(view.model)
        .and_then(|list| list.of_container(id))
        .is_some_and(|sandbox| sandbox.ready == Some(true));
    let mut sources = runtime.container_sources();
    ready || sources.any(|(source, ids)| source != CRI && ids.contains(id))
}
