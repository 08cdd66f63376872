//! Whatever stands in a line where a name should may be anything, a secret,
//! too: it is taken out of all that is told, here, so that it does not depend
//! on who has read it, and from where.

use event::{CniCall, Endpoint, Event, OomKill, PodRef, RuntimeSandbox, Task, What};
use node::redact::redact_in;

/// Takes secrets out of what is told.
pub(crate) fn all(events: &mut [Event]) {
    for event in events {
        match &mut event.what {
            // What the plugin said has none by now: it was cut.
            What::CniStarted { call } | What::CniCall { call, .. } => self::call(call),
            What::EndpointWritten { endpoint } | What::EndpointDeleted { endpoint } => {
                self::endpoint(endpoint);
            }
            What::EndpointKept { del, endpoint } => {
                redact_in(del);
                self::endpoint(endpoint);
            }
            What::SandboxAdded { sandbox, .. } => self::sandbox(sandbox),
            What::SandboxRemoved { id, .. } => redact_in(id),
            What::PodDeleted { pod } | What::PodStarted { pod } => self::pod(pod),
            What::TaskBlocked { task, stack, .. } => {
                self::task(task);
                stack.iter_mut().for_each(redact_in);
            }
            What::OomKilled { kill } => {
                let OomKill { task, memcg, .. } = kill;
                self::task(task);
                memcg.iter_mut().for_each(redact_in);
            }
            What::DeviceWaiting { device, .. } => redact_in(device),
            // No log's.
            _ => {}
        }
    }
}

fn call(call: &mut CniCall) {
    let names = [
        &mut call.container_id,
        &mut call.ifname,
        &mut call.netns_path,
        &mut call.plugin,
        &mut call.parent_comm,
    ];
    names.into_iter().for_each(redact_in);
    call.pod.iter_mut().for_each(pod);
}

fn endpoint(endpoint: &mut Endpoint) {
    let Endpoint {
        store,
        key,
        pod,
        ifname,
        container_id,
        ips: _,
    } = endpoint;
    redact_in(store);
    redact_in(key);
    self::pod(pod);
    let names = ifname.iter_mut().chain(container_id);
    names.for_each(redact_in);
}

fn sandbox(sandbox: &mut RuntimeSandbox) {
    redact_in(&mut sandbox.id);
    pod(&mut sandbox.pod);
    sandbox.netns_path.iter_mut().for_each(redact_in);
}

fn pod(pod: &mut PodRef) {
    let PodRef {
        namespace,
        name,
        uid,
    } = pod;
    let names = namespace.iter_mut().chain(name).chain(uid);
    names.for_each(redact_in);
}

fn task(task: &mut Task) {
    redact_in(&mut task.comm);
    let names = task.pod_uid.iter_mut().chain(&mut task.container_id);
    names.for_each(redact_in);
}
