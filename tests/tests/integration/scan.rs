//! `scan`: what it finds in one look, what it leaves alone, and what it says of
//! what it could not see.

mod contained;
mod holders;
mod incident;
mod options;
mod quiet;
mod stores;

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use node_tracer_tests::harness::Test;
use node_tracer_tests::look::{INCIDENT, NODE};
use node_tracer_tests::pods::Pod;
use node_tracer_tests::stage::{IP, Need};
use serde_json::Value;

const TRACER: &[Need] = &[Need::Root, Need::Tracer];

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "scan_tells_the_incident_whoever_does_not_answer",
        needs: INCIDENT,
        run: incident::whoever_answers,
    },
    Test {
        name: "scan_and_trace_give_a_finding_the_same_id",
        needs: INCIDENT,
        run: incident::same_as_trace,
    },
    Test {
        name: "scan_does_not_call_a_short_uninterruptible_sleep_running",
        needs: INCIDENT,
        run: incident::below_threshold,
    },
    Test {
        name: "scan_says_nothing_of_a_healthy_node_and_leaves_it_so",
        needs: NODE,
        run: quiet::healthy,
    },
    Test {
        name: "scan_says_nothing_of_ordinary_deletions",
        needs: NODE,
        run: quiet::deletions,
    },
    Test {
        name: "scan_waits_for_a_forced_deletion_as_long_as_it_is_told",
        needs: NODE,
        run: quiet::forced_deletion,
    },
    Test {
        name: "scan_says_nothing_of_namespaces_that_are_no_pods",
        needs: NODE,
        run: quiet::no_pods,
    },
    Test {
        name: "scan_keeps_no_namespace_alive_and_makes_none",
        needs: &[Need::Root, Need::Tracer, IP],
        run: quiet::keeps_nothing,
    },
    Test {
        name: "scan_tells_a_running_pods_missing_reservation_and_how_to_put_it_back",
        needs: NODE,
        run: stores::unreserved,
    },
    Test {
        name: "scan_tells_leaked_reservations_from_live_ones",
        needs: NODE,
        run: stores::leaked,
    },
    Test {
        name: "scan_tells_a_range_that_leaks_have_filled",
        needs: NODE,
        run: stores::exhausted,
    },
    Test {
        name: "scan_follows_and_believes_no_bad_file",
        needs: NODE,
        run: stores::bad_files,
    },
    Test {
        name: "scan_tells_a_pinned_netns",
        needs: NODE,
        run: holders::pinned,
    },
    Test {
        name: "scan_tells_a_mount_that_a_removed_sandbox_has_left",
        needs: NODE,
        run: holders::left_over,
    },
    Test {
        name: "scan_and_explain_tell_all_that_holds_a_pinned_netns",
        needs: NODE,
        run: holders::pinned_thrice,
    },
    Test {
        name: "explain_tells_a_netns_that_only_a_descriptor_or_a_socket_holds",
        needs: NODE,
        run: holders::nameless,
    },
    Test {
        name: "scan_finds_a_stuck_thread_under_a_zombie_leader",
        needs: &[Need::Root, Need::Tracer, Need::Fuse, Need::Cgroup],
        run: holders::zombie_leader,
    },
    Test {
        name: "scan_tells_pods_beside_its_own_from_a_cgroup_namespace",
        needs: &[Need::Root, Need::Tracer, Need::Fuse, Need::Cgroup, IP],
        run: contained::scanned,
    },
    Test {
        name: "scan_judges_no_pod_of_a_node_in_a_container",
        needs: &[Need::Root, Need::Tracer, Need::Fuse, Need::Cgroup, IP],
        run: contained::nested,
    },
    Test {
        name: "trace_tells_pods_beside_its_own_from_a_cgroup_namespace",
        needs: &[Need::Root, Need::Tracer, Need::Fuse, Need::Cgroup, IP],
        run: contained::traced,
    },
    Test {
        name: "scan_records_private_replayable_lines",
        needs: TRACER,
        run: options::record,
    },
    Test {
        name: "scan_refuses_what_it_does_not_understand",
        needs: TRACER,
        run: options::refuses,
    },
    Test {
        name: "scan_that_is_blind_ends_with_3_and_says_so_however_quiet",
        needs: TRACER,
        run: options::blind,
    },
    Test {
        name: "scan_sends_findings_to_journald",
        needs: &[Need::Root, Need::Tracer, IP, Need::Journald],
        run: options::journald,
    },
];

/// Changes one pod's object in a list of pods, until the list is next written.
fn patch(list: &Path, pod: &Pod, change: impl FnOnce(&mut Value)) -> anyhow::Result<()> {
    let mut all: Value = serde_json::from_slice(&fs::read(list)?)?;
    let items = all["items"].as_array_mut().context("items")?;
    let mut items = items.iter_mut();
    let item = items.find(|item| item["metadata"]["uid"] == pod.uid.as_str());
    change(item.context("the pod is not listed")?);
    Ok(fs::write(list, all.to_string())?)
}
