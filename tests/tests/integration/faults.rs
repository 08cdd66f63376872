//! What goes wrong around a tracer that runs: readers that stop, disks that
//! are full, runtimes and servers that come and go, signals at a bad moment.

mod api;
mod clock;
mod journal;
mod machine;
mod output;
mod piped;
mod runtime;
mod signals;
mod stalls;
mod stopped;

use anyhow::{Context as _, ensure};
use node_tracer_tests::harness::Test;
use node_tracer_tests::look;
use node_tracer_tests::stage::{IP, Need};
use serde_json::Value;

const NEEDS: &[Need] = &[Need::Root, Need::Tracer];
const FROZEN: &[Need] = &[Need::Root, Need::StaticBusybox, Need::Loop, Need::Tracer];
const JOURNALD: &[Need] = &[Need::Root, Need::Tracer, IP, Need::Journald];

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "faults_reader_that_stops_stops_nobody_else",
        needs: NEEDS,
        run: output::stopped_reader,
    },
    Test {
        name: "faults_reader_that_reads_again_is_told_of_the_gap",
        needs: NEEDS,
        run: output::slow_reader,
    },
    Test {
        name: "faults_stopped_reader_of_stderr_too_does_not_keep_it_from_ending",
        needs: NEEDS,
        run: output::stopped_reader_of_both,
    },
    Test {
        name: "faults_reader_that_goes_is_counted_as_loss_where_others_read_on",
        needs: NEEDS,
        run: output::gone_reader,
    },
    Test {
        name: "faults_start_without_standard_output_is_said",
        needs: NEEDS,
        run: output::no_stdout,
    },
    Test {
        name: "faults_full_disk_costs_records_and_no_line",
        needs: NEEDS,
        run: output::full_disk,
    },
    Test {
        name: "faults_full_disk_ends_a_recording_with_a_whole_line",
        needs: NEEDS,
        run: output::full_recording,
    },
    Test {
        name: "faults_sigterm_in_a_burst_leaves_nothing_half_written",
        needs: NEEDS,
        run: signals::terminated,
    },
    Test {
        name: "faults_sigkill_in_a_burst_tears_the_last_line_at_most",
        needs: NEEDS,
        run: signals::killed,
    },
    Test {
        name: "faults_hangup_ends_the_stream_but_not_under_nohup",
        needs: NEEDS,
        run: signals::hangup,
    },
    Test {
        name: "faults_journald_stopped_in_its_tracks_gets_all_when_it_goes_on",
        needs: JOURNALD,
        run: journal::stopped_and_continued,
    },
    Test {
        name: "faults_journald_stopped_for_good_does_not_keep_it_from_ending",
        needs: JOURNALD,
        run: journal::stopped_for_good,
    },
    Test {
        name: "faults_runtime_that_comes_later_or_moves_is_found",
        needs: look::NODE,
        run: runtime::comes_later,
    },
    Test {
        name: "faults_runtime_that_hangs_is_told_and_asked_again",
        needs: look::NODE,
        run: runtime::hangs,
    },
    Test {
        name: "faults_api_server_that_refuses_and_expires_is_told_and_asked_again",
        needs: NEEDS,
        run: api::refuses,
    },
    Test {
        name: "faults_api_server_that_goes_and_comes_back_is_no_deletion",
        needs: NEEDS,
        run: api::gone_and_back,
    },
    Test {
        name: "faults_clock_step_in_a_recording_changes_no_verdict",
        needs: &[Need::Root, Need::Tracer, IP],
        run: clock::step_in_a_recording,
    },
    Test {
        name: "faults_little_memory_is_enough",
        needs: &[
            Need::Root,
            Need::Tracer,
            Need::Cgroup,
            Need::StaticBusybox,
            Need::Loop,
        ],
        run: machine::little_memory,
    },
    Test {
        name: "faults_thousand_tasks_stuck_at_once_are_told_once_each",
        needs: FROZEN,
        run: stalls::at_once,
    },
    Test {
        name: "faults_thousand_tasks_that_flap_are_not_stuck",
        needs: FROZEN,
        run: stalls::flapping,
    },
    Test {
        name: "faults_tracer_stopped_in_its_tracks_tells_the_true_times",
        needs: FROZEN,
        run: stopped::times,
    },
    Test {
        name: "faults_documented_memory_limits_are_no_less_than_is_tested",
        needs: &[],
        run: machine::documented_limits,
    },
    Test {
        name: "faults_tracer_killed_for_memory_leaves_a_usable_recording",
        needs: &[Need::Root, Need::Tracer, Need::Cgroup],
        run: machine::killed_for_memory,
    },
    Test {
        name: "faults_links_that_others_detach_are_missed_by_nobody",
        needs: NEEDS,
        run: machine::detached,
    },
];

/// The records of a text that holds whole lines only.
pub(crate) fn whole_lines(text: &str) -> anyhow::Result<Vec<Value>> {
    ensure!(
        text.is_empty() || text.ends_with('\n'),
        "the last line is torn: {:?}",
        text.lines().last()
    );
    let parse = |line: &str| serde_json::from_str(line).with_context(|| format!("torn: {line}"));
    text.lines().map(parse).collect()
}

/// The events of a recording that are printed, too.
pub(crate) fn recorded(lines: &[Value]) -> impl Iterator<Item = &Value> {
    let printed = |line: &&Value| line["event"].is_string() && line["event"] != "tick";
    lines.iter().filter(printed)
}
