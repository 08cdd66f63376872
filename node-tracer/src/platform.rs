//! The platforms that the tests have run on. `check` names any other one as
//! untested; doc/platforms.md says what ran on each.

use event::record::CoverageItem;

/// Kernels on which every signal was seen.
const KERNELS: [&str; 9] = [
    "Linux 5.10 on x86_64",
    "Linux 6.1 on x86_64",
    "Linux 6.12 on x86_64",
    "Linux 6.18 on x86_64",
    "Linux 7.2 on x86_64",
    "Linux 7.3 on x86_64",
    "Linux 6.1 on aarch64",
    "Linux 6.12 on aarch64",
    "Linux 7.2 on aarch64",
];

/// Container runtimes on which the incident was staged. Those whose answers are
/// only recorded are none of them.
const RUNTIMES: [&str; 3] = ["containerd 1.6", "containerd 1.7", "containerd 2.1"];

/// What is untested on this node. `runtimes` are the names and versions that
/// CRI's `VersionResponse` has, with commas between them.
pub(crate) fn coverage(runtimes: Option<&str>) -> CoverageItem {
    let kernel = rustix::system::uname();
    let [release, machine] = [kernel.release(), kernel.machine()].map(|it| it.to_string_lossy());
    of(&release, &machine, runtimes)
}

fn of(release: &str, machine: &str, runtimes: Option<&str>) -> CoverageItem {
    let kernel = format!("Linux {} on {machine}", series(release));
    let runtimes = runtimes.into_iter().flat_map(|all| all.split(", "));
    let runtimes: Vec<String> = runtimes.map(runtime).collect();
    let untested = |name: &str, tested: &[&str]| {
        let is_tested = tested.contains(&name);
        (!is_tested).then(|| format!("{name} is untested (tested: {})", tested.join(", ")))
    };
    let unknown = untested(&kernel, &KERNELS).into_iter();
    let others = runtimes.iter().filter_map(|it| untested(it, &RUNTIMES));
    CoverageItem {
        signal: String::from("platform"),
        unknown: unknown.chain(others).collect(),
        mechanism: Some([vec![kernel], runtimes.clone()].concat().join(", ")),
        reason: None,
    }
}

/// `containerd v2.1.9` as `containerd 2.1`.
fn runtime(named: &str) -> String {
    match named.rsplit_once(' ') {
        Some((name, version)) => format!("{name} {}", series(version.trim_start_matches('v'))),
        None => named.to_owned(),
    }
}

/// The first two numbers of a version.
fn series(version: &str) -> &str {
    let second = version.find('.').map_or(0, |dot| dot + 1);
    let rest = &version[second..];
    let end = rest.find(|it: char| !it.is_ascii_digit());
    &version[..second + end.unwrap_or(rest.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn only_what_no_test_ran_on_is_untested() {
        let tested = of(
            "6.12.117+deb13-cloud-amd64",
            "x86_64",
            Some("containerd v2.1.9"),
        );
        assert!(tested.unknown.is_empty(), "{tested:?}");
        assert_eq!(
            tested.mechanism.as_deref(),
            Some("Linux 6.12 on x86_64, containerd 2.1")
        );
        let none = of("6.1.0-56-cloud-arm64", "aarch64", None);
        assert!(none.unknown.is_empty(), "{none:?}");
        // The second has its answers recorded, and never ran.
        let both = Some("containerd 1.6.20~ds1, cri-o 1.36.3");
        let [kernel, runtime] = &of("6.6-rc1", "x86_64", both).unknown[..] else {
            panic!()
        };
        assert!(kernel.starts_with("Linux 6.6 on x86_64 is untested"));
        assert!(runtime.starts_with("cri-o 1.36 is untested"));
        for odd in ["", "x", "6", "6.", "unknown"] {
            assert_eq!(of(odd, odd, Some(odd)).unknown.len(), 2, "{odd:?}");
        }
    }

    #[test]
    fn the_document_tells_of_each_tested_platform() {
        let document = include_str!("../doc/platforms.md");
        let (ran, _) = document.split_once("## By recorded answers").unwrap();
        let rows = ran.lines();
        let told: BTreeSet<&str> = rows
            .filter_map(|row| row.strip_prefix("| ")?.split(" |").next())
            .filter(|name| name.starts_with("Linux ") || name.starts_with("containerd "))
            .collect();
        let tested = KERNELS.iter().chain(&RUNTIMES).copied().collect();
        assert_eq!(told, tested);
    }
}
