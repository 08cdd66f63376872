//! Tests that hold what is packaged to what the tracer is: the unit's and the
//! manifest's privileges, the roles, the image.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Container, Namespace, PodSpec, ServiceAccount, Volume},
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use sys::privileges::{ATTACH, CapabilitySet, LOOK};

const MANIFEST: &str = include_str!("../packaging/kubernetes/node-tracer.yaml");
const KUBE_EVENTS: &str = include_str!("../packaging/kubernetes/node-tracer-kube-events.yaml");
const NODE_CONDITION: &str =
    include_str!("../packaging/kubernetes/node-tracer-node-condition.yaml");
const UNIT: &str = include_str!("../packaging/systemd/node-tracer.service");

/// Capabilities as they are written, without what only old kernels take, and
/// not where locked memory is not limited.
fn needed() -> BTreeSet<String> {
    let all = (ATTACH | LOOK) - CapabilitySet::SYS_RESOURCE;
    let names = all.iter_names().map(|(name, _)| name.to_owned());
    names.collect()
}

/// The objects of the manifest.
fn objects() -> Vec<Value> {
    serde_saphyr::from_multiple(MANIFEST).unwrap()
}

/// The one object of this type. What the type does not know, a misspelt field
/// say, is not in what it writes.
fn the<T: Serialize + DeserializeOwned + k8s_openapi::Resource>() -> T {
    let all = objects();
    let mut of_kind = all.iter().filter(|object| object["kind"] == T::KIND);
    let object = of_kind.next().unwrap();
    assert!(of_kind.next().is_none(), "two of {}", T::KIND);
    assert_eq!(object["apiVersion"], T::API_VERSION);
    let typed: T = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(serde_json::to_value(&typed).unwrap(), *object);
    typed
}

fn pod() -> PodSpec {
    let template = the::<DaemonSet>().spec.unwrap().template;
    template.spec.unwrap()
}

fn container() -> Container {
    let mut containers = pod().containers;
    assert_eq!(containers.len(), 1);
    containers.remove(0)
}

#[test]
fn every_object_of_the_manifest_is_what_the_api_takes() {
    the::<Namespace>();
    the::<ServiceAccount>();
    the::<ClusterRole>();
    the::<ClusterRoleBinding>();
    the::<DaemonSet>();
    assert_eq!(objects().len(), 5);
}

#[test]
fn objects_refer_to_each_other() {
    let namespace = the::<Namespace>().metadata.name;
    let account = the::<ServiceAccount>().metadata;
    assert_eq!(account.namespace, namespace);
    let binding = the::<ClusterRoleBinding>();
    assert_eq!(
        Some(binding.role_ref.name),
        the::<ClusterRole>().metadata.name
    );
    let subject = &binding.subjects.unwrap()[0];
    assert_eq!(Some(&subject.name), account.name.as_ref());
    assert_eq!(subject.namespace, namespace);
    assert_eq!(pod().service_account_name, account.name);
    let set = the::<DaemonSet>();
    assert_eq!(set.metadata.namespace, namespace);
    let spec = set.spec.unwrap();
    let labels = spec.template.metadata.unwrap().labels;
    assert_eq!(spec.selector.match_labels, labels);
}

#[test]
fn the_pod_has_the_capabilities_that_are_needed_and_no_others() {
    let security = container().security_context.unwrap();
    assert_eq!(security.privileged, Some(false));
    let capabilities = security.capabilities.unwrap();
    assert_eq!(capabilities.drop.unwrap(), ["ALL"]);
    let added = capabilities.add.unwrap();
    assert_eq!(added.iter().cloned().collect::<BTreeSet<_>>(), needed());
    assert_eq!(added.len(), needed().len());
}

#[test]
fn the_service_has_the_capabilities_that_are_needed_and_no_others() {
    let lines = UNIT
        .lines()
        .filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = lines.flat_map(str::split_whitespace);
    let names: BTreeSet<String> = names
        .map(|name| name.strip_prefix("CAP_").unwrap().to_owned())
        .collect();
    assert_eq!(names, needed());
    // In place of CAP_SYS_RESOURCE.
    assert!(UNIT.contains("\nLimitMEMLOCK=infinity\n"));
}

#[test]
fn the_pod_sees_the_node_and_keeps_none_of_its_mounts() {
    let spec = pod();
    assert_eq!(spec.host_pid, Some(true));
    let volumes = spec.volumes.unwrap();
    let of_host = |volume: &&Volume| volume.host_path.is_some();
    let volume = volumes.iter().find(of_host).unwrap();
    assert_eq!(volume.host_path.as_ref().unwrap().path, "/");
    let container = container();
    let mount = &container.volume_mounts.unwrap()[0];
    assert_eq!(mount.name, volume.name);
    assert_eq!(mount.read_only, Some(true));
    assert_eq!(mount.mount_propagation.as_deref(), Some("HostToContainer"));
    let args = container.args.unwrap();
    let root = args.iter().position(|arg| arg == "--root").unwrap();
    assert_eq!(args[root + 1], mount.mount_path);
}

#[test]
fn the_pods_command_line_is_one_and_its_probes_ask_for_its_sign_of_life() {
    use clap::Parser as _;
    let container = container();
    let args = container.args.unwrap();
    let typed = std::iter::once("node-tracer").chain(args.iter().map(String::as_str));
    let cli = cli::Cli::try_parse_from(typed).unwrap();
    let cli::Command::Trace(trace) = cli.command else {
        panic!("{args:?}");
    };
    let served = i32::from(trace.metrics.unwrap().port());
    let port = &container.ports.unwrap()[0];
    assert_eq!(port.container_port, served);
    // Not at the port, which anybody can keep busy.
    let heartbeat = trace.heartbeat.unwrap();
    for probe in [container.liveness_probe, container.readiness_probe] {
        let asked = probe.unwrap().exec.unwrap().command.unwrap();
        let cli::Command::Check(check) = cli::Cli::try_parse_from(&asked).unwrap().command else {
            panic!("{asked:?}");
        };
        assert_eq!(check.heartbeat.as_ref(), Some(&heartbeat));
    }
    let mounts = container.volume_mounts.unwrap();
    let mut above = mounts.iter();
    let mount = above.find(|mount| heartbeat.starts_with(&mount.mount_path));
    let name = &mount.unwrap().name;
    let volumes = pod().volumes.unwrap();
    let volume = volumes.iter().find(|volume| volume.name == *name).unwrap();
    let folder = volume.empty_dir.as_ref().unwrap();
    assert_eq!(folder.medium.as_deref(), Some("Memory"));
    let annotations = the::<DaemonSet>().spec.unwrap().template.metadata;
    let annotations = annotations.unwrap().annotations.unwrap();
    assert_eq!(annotations["prometheus.io/port"], served.to_string());
}

#[test]
fn the_image_is_of_this_version() {
    let image = container().image.unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(image.ends_with(&format!(":{version}")), "{image}");
}

/// What the roles of a manifest allow.
fn allowed(manifest: &str) -> BTreeSet<String> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(manifest).unwrap();
    let mut allowed = BTreeSet::new();
    for object in objects {
        if object["kind"] != "ClusterRole" {
            continue;
        }
        let role: ClusterRole = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(serde_json::to_value(&role).unwrap(), object);
        for rule in role.rules.unwrap() {
            for group in rule.api_groups.unwrap() {
                for resource in rule.resources.iter().flatten() {
                    for verb in &rule.verbs {
                        allowed.insert(format!("{verb} {resource}.{group}"));
                    }
                }
            }
        }
    }
    allowed
}

#[test]
fn the_role_allows_to_look_and_nothing_else() {
    let ipam = ipam::resources();
    let mut expected: BTreeSet<String> = ipam.map(|name| format!("list {name}")).collect();
    expected.extend(ipam::resources_by_name().map(|name| format!("get {name}")));
    let core = ["list pods.", "watch pods.", "get nodes."];
    expected.extend(core.map(str::to_owned));
    assert_eq!(allowed(MANIFEST), expected);
}

#[test]
fn what_is_written_to_the_api_is_a_role_of_its_own_each_for_the_same_account() {
    let events = kube::events::EVENTS.name;
    let nodes = format!("{}.", kube::condition::NODES.name);
    for (manifest, expected) in [
        (
            KUBE_EVENTS,
            vec![format!("create {events}"), format!("patch {events}")],
        ),
        (NODE_CONDITION, vec![format!("patch {nodes}")]),
    ] {
        assert_eq!(allowed(manifest), expected.into_iter().collect());
        let objects: Vec<Value> = serde_saphyr::from_multiple(manifest).unwrap();
        let binding: ClusterRoleBinding = serde_json::from_value(objects[1].clone()).unwrap();
        assert_eq!(binding.role_ref.name, objects[0]["metadata"]["name"]);
        assert_eq!(binding.subjects, the::<ClusterRoleBinding>().subjects);
    }
}

#[test]
fn the_service_leaves_no_core() {
    assert!(UNIT.contains("\nLimitCORE=0\n"));
}
