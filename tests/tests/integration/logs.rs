//! `replay` of logs that nobody traced: what they tell, whatever form they
//! come in.

mod forms;
mod writers;

use std::path::{Path, PathBuf};

use anyhow::ensure;
use node_tracer_tests::harness::Test;
use node_tracer_tests::look::{Look, run as look};
use node_tracer_tests::stage::Need;
use node_tracer_tests::tracer::{command, is_finding};
use serde_json::Value;

const TRACER: &[Need] = &[Need::Tracer];

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "logs_of_a_dockershim_night_tell_of_the_stale_del",
        needs: TRACER,
        run: writers::dockershim_night,
    },
    Test {
        name: "logs_that_are_folded_packed_or_piped_say_the_same",
        needs: &[
            Need::Tracer,
            Need::Program("gzip", "gzip"),
            Need::Program("zstd", "zstd"),
        ],
        run: forms::other_forms,
    },
    Test {
        name: "logs_of_a_containerd_night_tell_each_failure_once",
        needs: TRACER,
        run: writers::containerd_night,
    },
    Test {
        name: "logs_of_the_kubelet_alone_raise_no_false_alarm",
        needs: TRACER,
        run: writers::kubelet_alone,
    },
    Test {
        name: "logs_of_a_newer_calico_tell_that_it_did_no_harm",
        needs: TRACER,
        run: writers::newer_calico,
    },
    Test {
        name: "logs_of_crio_tell_requests_apart",
        needs: TRACER,
        run: writers::crio,
    },
    Test {
        name: "logs_of_the_kernel_tell_of_stalls",
        needs: TRACER,
        run: writers::kernel,
    },
    Test {
        name: "logs_of_one_node_in_two_files_are_one_story",
        needs: TRACER,
        run: forms::two_files,
    },
    Test {
        name: "logs_of_two_hosts_are_two_stories",
        needs: TRACER,
        run: forms::two_hosts,
    },
    Test {
        name: "logs_that_say_things_twice_and_backwards_are_put_right",
        needs: TRACER,
        run: forms::twice_and_backwards,
    },
    Test {
        name: "logs_need_not_name_host_year_or_zone",
        needs: TRACER,
        run: forms::unnamed,
    },
    Test {
        name: "logs_that_show_nothing_wrong_are_no_error",
        needs: TRACER,
        run: forms::nothing_wrong,
    },
    Test {
        name: "logs_of_which_nothing_is_understood_are_refused",
        needs: TRACER,
        run: forms::nothing_understood,
    },
];

/// What no output may hold: it stands in the fixtures' tokens.
const SECRET: &str = "made-up-for-a-test";
const DOCKERSHIM: &str = "dockershim-calico.log";

fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/logs");
    fixtures.join(name)
}

/// Replays files, and sees that the frame is right and no secret is told.
fn replay(paths: &[&Path], args: &[&str]) -> anyhow::Result<Look> {
    let mut line = command(&["replay", "-o", "json"])?;
    let look = look(line.args(args).args(paths))?;
    whole(look)
}

fn whole(look: Look) -> anyhow::Result<Look> {
    let records = &look.ended.records;
    ensure!(
        matches!(look.ended.code, Some(0 | 1)),
        "{}",
        look.ended.stderr
    );
    let kind = |record: Option<&Value>| record.map(|record| record["type"].clone());
    ensure!(kind(records.first()).is_some_and(|kind| kind == "coverage"));
    ensure!(kind(records.last()).is_some_and(|kind| kind == "summary"));
    let all = serde_json::to_string(records)?;
    ensure!(!all.contains(SECRET), "a secret came out");
    Ok(look)
}

fn replayed(name: &str) -> anyhow::Result<Look> {
    replay(&[&fixture(name)], &[])
}

/// The findings of a rule as they were first told.
fn opened<'l>(look: &'l Look, rule: &str) -> Vec<&'l Value> {
    let all = look.ended.records.iter();
    all.filter(|record| is_finding(record, rule) && record["state"] == "open")
        .collect()
}

/// All rules that found something, sorted.
fn rules(look: &Look) -> Vec<String> {
    let all = look.ended.records.iter();
    let findings = all.filter(|record| record["type"] == "finding" && record["state"] == "open");
    let mut rules: Vec<String> = findings
        .filter_map(|record| record["rule"].as_str().map(str::to_owned))
        // What keeps a pod from starting is another group's affair.
        .filter(|rule| rule != "sandbox-create-failed")
        .collect();
    rules.sort_unstable();
    rules
}
