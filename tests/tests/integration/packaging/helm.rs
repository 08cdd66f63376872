//! The Helm chart: what it makes of which values, by the oldest and the newest
//! Helm that is here.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use node_tracer_tests::kube::clients::{self, Clients};
use node_tracer_tests::stage::Need;
use node_tracer_tests::test;
use node_tracer_tests::tracer::command;

use super::{MANIFEST, released};

pub(crate) const CHART: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../node-tracer/packaging/helm");

/// All that can be switched on.
pub(crate) const ALL: &str = "kubeEvents=all,nodeCondition=true,metrics.findings=true,\
    metrics.podMonitor=true,rootPath=/node,extraArgs={-o,journald},\
    extraCapabilities={SYS_RESOURCE},image.pullSecrets[0].name=a,nodeSelector.b=c";

/// (end of the manifest's name, what it is made with)
const MANIFESTS: [(&str, &[&str]); 3] = [
    (".yaml", &["--set", "createNamespace=true"]),
    (
        "-kube-events.yaml",
        &[
            "--set",
            "kubeEvents=all",
            "-s",
            "templates/kube-events.yaml",
        ],
    ),
    (
        "-node-condition.yaml",
        &[
            "--set",
            "nodeCondition=true",
            "-s",
            "templates/node-condition.yaml",
        ],
    ),
];

/// What a chart makes for a version of Kubernetes. Versions of Helm differ in the
/// empty lines at an object's end.
pub(crate) fn rendered(
    of: &Clients,
    chart: &str,
    kubernetes: &str,
    args: &[&str],
) -> anyhow::Result<String> {
    let template = ["template", "node-tracer", chart, "-n", "node-tracer"];
    let made = of.helm_says(&[&template[..], &["--kube-version", kubernetes], args].concat())?;
    let objects = made.split("\n---\n").map(str::trim_end);
    Ok(objects.collect::<Vec<_>>().join("\n---\n") + "\n")
}

/// The same of the chart in the repository.
fn made(of: &Clients, values: &str) -> anyhow::Result<String> {
    rendered(of, CHART, "1.30.0", &["--set", values])
}

test!(
    apart & [Need::KubeClients],
    manifests_are_what_helm_makes_of_the_chart
);
fn manifests_are_what_helm_makes_of_the_chart() -> anyhow::Result<()> {
    for (end, args) in MANIFESTS {
        let path = PathBuf::from(format!("{CHART}/../kubernetes/node-tracer{end}"));
        for of in clients::all() {
            let made = rendered(&of, CHART, "1.30.0", args)?;
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                fs::write(&path, &made)?;
            }
            let there = fs::read_to_string(&path).context(end)?;
            let name = of.name();
            ensure!(there == made, "{end} is not what {name} makes: {made}");
        }
    }
    Ok(())
}

test!(
    apart & [Need::KubeClients, Need::Packages],
    released_chart_makes_the_released_manifests
);
fn released_chart_makes_the_released_manifests() -> anyhow::Result<()> {
    let chart = released(".tgz")?;
    let chart = chart.to_str().context("a path in UTF-8")?;
    let version = MANIFEST.trim_end_matches(".yaml");
    for (end, args) in MANIFESTS {
        let there = fs::read_to_string(released(&format!("{version}{end}"))?)?;
        for of in clients::all() {
            let made = rendered(&of, chart, "1.30.0", args)?;
            ensure!(there == made, "{end}, {}: {made}", of.name());
        }
    }
    Ok(())
}

test!(
    apart & [Need::KubeClients],
    helm_lint_finds_nothing_in_the_chart
);
fn helm_lint_finds_nothing_in_the_chart() -> anyhow::Result<()> {
    for of in clients::all() {
        for values in ["kubeEvents=off", "metrics.enabled=false", ALL] {
            of.helm_says(&["lint", "--strict", CHART, "--set", values])?;
        }
    }
    Ok(())
}

/// The objects of a rendered chart, as KIND/NAME.
fn objects(made: &str) -> Vec<String> {
    let object = |document: &str| {
        let mut lines = document.lines();
        let kind = lines.find_map(|line| line.strip_prefix("kind: "))?;
        let name = lines.find_map(|line| line.strip_prefix("  name: "))?;
        Some(format!("{kind}/{name}"))
    };
    let mut objects: Vec<String> = made.split("\n---\n").filter_map(object).collect();
    objects.sort();
    objects
}

test!(
    apart & [Need::KubeClients],
    chart_grants_and_makes_what_is_switched_on_and_nothing_else
);
fn chart_grants_and_makes_what_is_switched_on_and_nothing_else() -> anyhow::Result<()> {
    const ALWAYS: [&str; 4] = [
        "ClusterRole/node-tracer",
        "ClusterRoleBinding/node-tracer",
        "DaemonSet/node-tracer",
        "ServiceAccount/node-tracer",
    ];
    let events = [
        "ClusterRole/node-tracer-kube-events",
        "ClusterRoleBinding/node-tracer-kube-events",
    ];
    let condition = [
        "ClusterRole/node-tracer-node-condition",
        "ClusterRoleBinding/node-tracer-node-condition",
    ];
    let cases: [(&str, &[&str], &str); 8] = [
        (
            "kubeEvents=off",
            &[],
            " json, --metrics, \"0.0.0.0:9464\", --seal",
        ),
        ("kubeEvents=false", &[], " \"0.0.0.0:9464\", --seal-root"),
        ("kubeEvents=all", &events, ", --kube-events, "),
        ("kubeEvents=critical", &events, ", --kube-events=critical, "),
        ("nodeCondition=true", &condition, ", --node-condition, "),
        (
            "metrics.podMonitor=true",
            &["PodMonitor/node-tracer"],
            "9464",
        ),
        (
            "metrics.enabled=false,metrics.findings=true,metrics.podMonitor=true",
            &[],
            " json, --seal-root",
        ),
        (
            "metrics.findings=true,extraArgs={--cri,none}",
            &[],
            "--metrics-findings, --seal-root, --heartbeat, /run/node-tracer/alive, \"--cri\", \"none\"]",
        ),
    ];
    for of in clients::all() {
        for (values, more, args) in cases {
            let made = made(&of, values)?;
            let mut expected = [&ALWAYS[..], more].concat();
            expected.sort_unstable();
            ensure!(objects(&made) == expected, "{values}: {made}");
            let mut lines = made.lines().map(str::trim_start);
            let line = lines.find(|line| line.starts_with("args: [trace,"));
            let line = line.context("no arguments")?;
            ensure!(line.contains(args), "{values}: {line}");
        }
        let made = made(&of, "metrics.enabled=false")?;
        ensure!(
            !made.contains("9464") && !made.contains("prometheus.io"),
            "{made}"
        );
    }
    Ok(())
}

test!(
    apart & [Need::KubeClients, Need::Tracer],
    tracer_knows_each_argument_of_the_chart
);
fn tracer_knows_each_argument_of_the_chart() -> anyhow::Result<()> {
    let of = clients::all().pop().context("no Helm")?;
    let made = made(
        &of,
        "kubeEvents=critical,nodeCondition=true,metrics.findings=true",
    )?;
    let line = made
        .lines()
        .find_map(|it| it.trim().strip_prefix("args: ["));
    let line = line.and_then(|it| it.strip_suffix(']')).context("args")?;
    let args: Vec<&str> = line.split(", ").map(|it| it.trim_matches('"')).collect();
    let output = command(&[&args[..], &["--help"]].concat())?.output()?;
    ensure!(output.status.success(), "{args:?}: {output:?}");
    Ok(())
}

test!(
    apart & [Need::KubeClients],
    helm_refuses_values_that_the_chart_does_not_know
);
fn helm_refuses_values_that_the_chart_does_not_know() -> anyhow::Result<()> {
    for of in clients::all() {
        for values in [
            "kubeEvent=all",
            "kubeEvents=warning",
            "image.digest=sha256:1",
            "rootPath=host",
        ] {
            ensure!(made(&of, values).is_err(), "{} takes {values}", of.name());
        }
    }
    Ok(())
}

test!(
    apart & [Need::KubeClients],
    chart_asks_each_kubernetes_for_what_it_knows
);
/// Servers before 1.30 do not know the field, and refuse it where they validate.
fn chart_asks_each_kubernetes_for_what_it_knows() -> anyhow::Result<()> {
    for of in clients::all() {
        for (kubernetes, knows) in [
            ("1.20.0", false),
            ("v1.29.9-gke.100", false),
            ("v1.30.0-eks-1", true),
            ("1.37.1", true),
        ] {
            let made = rendered(&of, CHART, kubernetes, &[])?;
            let has = made.contains("\n            appArmorProfile:\n");
            ensure!(has == knows, "{} for {kubernetes}: {made}", of.name());
        }
    }
    Ok(())
}
