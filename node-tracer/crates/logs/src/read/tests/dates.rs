//! Years and zones that logs leave out.

use super::*;

fn times(text: &str, options: LogOptions) -> (Vec<String>, Gaps) {
    let mut reader = reader(text.as_bytes(), &[], options);
    let times = rest(&mut reader);
    let times = times.into_iter().map(|told| told.time.unwrap_or_default());
    (times.collect(), reader.gaps())
}

#[test]
fn a_full_time_beside_a_short_one_tells_year_and_zone_of_all() {
    let text = "Dec 12 20:00:00 n kubelet[1]: before\n\
                Dec 12 20:21:27 n kubelet[1]: time=\"2017-12-12T20:21:27+08:00\" level=info msg=a\n\
                Dec 12 20:21:28 n kubelet[1]: E1212 20:21:28.250000 1 a.go:1] after\n";
    let (times, gaps) = times(text, LogOptions::default());
    let want = [
        "2017-12-12T12:00:00.000000Z",
        "2017-12-12T12:21:27.000000Z",
        "2017-12-12T12:21:28.250000Z",
    ];
    assert_eq!(times, want);
    assert!(gaps.unvouched && !gaps.assumed_zone && gaps.assumed_year.is_none());
}

#[test]
fn lines_of_one_second_stay_in_their_order() {
    let text = "Dec 12 20:21:27 n kubelet[1]: E1212 20:21:27.750000 1 a.go:1] one\n\
                Dec 12 20:21:27 n kubelet[1]: two\n\
                Dec 12 20:21:28 n kubelet[1]: three\n";
    let (times, _) = times(text, LogOptions::default());
    let want = [
        "2022-12-12T20:21:27.750000Z",
        "2022-12-12T20:21:27.750000Z",
        "2022-12-12T20:21:28.000000Z",
    ];
    assert_eq!(times, want);
}

#[test]
fn a_full_time_in_another_zone_tells_them_too() {
    let text = "Dec 12 20:21:26 n kubelet[1]: before\n\
                Dec 12 20:21:27 n containerd[1]: time=\"2017-12-12T14:51:27.5Z\" level=info msg=a\n";
    let (times, gaps) = times(text, LogOptions::default());
    let want = ["2017-12-12T14:51:26.000000Z", "2017-12-12T14:51:27.500000Z"];
    assert_eq!(times, want);
    assert!(gaps.unvouched && !gaps.assumed_zone && gaps.assumed_year.is_none());
}

#[test]
fn without_one_the_files_own_time_tells_the_year() {
    // It was last written on 1 December 2023.
    let text =
        "Dec 31 23:59:59 n a[1]: one\nJan  1 00:00:01 n a[1]: two\nNov  5 10:00:00 n a[1]: x\n";
    let (times, gaps) = times(text, LogOptions::default());
    let want = ["2022-12-31T23:59:59.000000Z", "2023-01-01T00:00:01.000000Z"];
    assert_eq!(times.get(..2).unwrap(), want);
    assert_eq!(gaps.assumed_year, Some(2022));
    assert!(gaps.assumed_zone);
    assert!(gaps.texts().iter().any(|text| text.contains("2022")));
}

#[test]
fn what_is_given_holds() {
    let options = LogOptions {
        year: Some(2019),
        offset: Some(-5 * 3_600),
    };
    let text = "Dec 31 23:59:59 n a[1]: one\nJan  1 00:00:01 n a[1]: two\n";
    let (times, gaps) = times(text, options);
    let want = ["2020-01-01T04:59:59.000000Z", "2020-01-01T05:00:01.000000Z"];
    assert_eq!(times, want);
    assert_eq!(gaps, Gaps::default());
}

#[test]
fn a_year_turns_in_records_that_do_not_matter_too() {
    let mut text = String::from("Feb  1 00:00:00 n a[1]: needle\n");
    for month in ["May", "Aug", "Nov", "Dec"] {
        text += &format!("{month}  1 00:00:00 n a[1]: no\n");
    }
    text += "Jan  1 00:00:00 n a[1]: no\nMar  1 00:00:00 n a[1]: needle\n";
    let options = LogOptions {
        year: Some(2021),
        offset: Some(0),
    };
    let mut reader = reader(text.as_bytes(), &["needle"], options);
    let times: Vec<Option<String>> = rest(&mut reader)
        .into_iter()
        .map(|told| told.time)
        .collect();
    let want = ["2021-02-01T00:00:00.000000Z", "2022-03-01T00:00:00.000000Z"];
    assert_eq!(times, want.map(|time| Some(String::from(time))));
}

#[test]
fn uptimes_are_times_once_the_kernel_says_when_it_started() {
    let text = "[    0.000000] Linux version\n\
                [    2.500000] rtc_cmos 00:00: setting system clock to 2023-11-05T10:11:12 UTC (1699179072)\n\
                [   12.500000] INFO: task sh:7 blocked for more than 120 seconds.\n";
    let (times, _) = times(text, LogOptions::default());
    let want = [
        "2023-11-05T10:11:09.500000Z",
        "2023-11-05T10:11:12.000000Z",
        "2023-11-05T10:11:22.000000Z",
    ];
    assert_eq!(times, want);
}

#[test]
fn what_journalctl_says_first_tells_the_year() {
    let text = "-- Logs begin at Mon 2017-12-11 20:13:11 UTC, end at Wed 2017-12-13 01:00:00 UTC. --\n\
                Dec 12 20:21:26 n kubelet[1]: a\n";
    let (times, gaps) = times(text, LogOptions::default());
    assert_eq!(times, ["2017-12-12T20:21:26.000000Z"]);
    assert_eq!(gaps.assumed_year, None);
}

#[test]
fn a_leap_day_is_in_a_leap_year() {
    let (times, _) = times("Feb 29 12:00:00 n a[1]: x\n", LogOptions::default());
    assert_eq!(times, ["2020-02-29T12:00:00.000000Z"]);
}
