//! Calico's blocks of a real API server: each node asks for its own.

use anyhow::ensure;
use node_tracer_tests::kube::{Account, Kube, calico};
use node_tracer_tests::snapshot_run::{KUBE, SnapshotRun};
use node_tracer_tests::test;
use node_tracer_tests::wait;

use super::{SOON, scan, trace};

fn requests(kube: &Kube, verb: &str) -> anyhow::Result<u64> {
    kube.requests(&["resource=\"ipamblocks\"", &format!("verb=\"{verb}\"")])
}

fn says_what_is_reserved(run: &SnapshotRun) -> anyhow::Result<bool> {
    Ok(run
        .coverage()?
        .to_string()
        .contains("1 reservation in crd.projectcalico.org"))
}

test!(KUBE, kube_blocks_of_other_nodes_are_asked_for_by_nobody);
/// The node has a route for its block, as Calico makes it.
fn kube_blocks_of_other_nodes_are_asked_for_by_nobody() -> anyhow::Result<()> {
    let kube = Kube::start(&[])?;
    let account = Account::create(&kube)?;
    account.grant(&kube)?;
    account.grant_blocks(&kube)?;
    calico::define(&kube)?;
    calico::configure(&kube.node().root())?;
    let pod = [("c".repeat(64), "shop".to_owned(), "gone".to_owned())];
    for (first, node) in [([10, 9, 0, 64], kube.name()), ([10, 9, 1, 0], "other")] {
        let block = calico::block(first, node, &pod);
        kube.expect("POST", calico::BLOCKS, Some(&block))?;
    }
    let route = ["route", "add", "blackhole", "10.9.0.64/26"];
    let added = kube.node().command("ip")?.args(route).status()?;
    ensure!(added.success(), "ip route add: {added}");
    let (lists, gets) = (requests(&kube, "LIST")?, requests(&kube, "GET")?);
    let config = account.kubeconfig().display().to_string();
    let args = ["--kubeconfig", &config];

    let run = scan(&kube, &args)?;
    ensure!(says_what_is_reserved(&run)?, "{}", run.brief());
    let got = requests(&kube, "GET")? - gets;
    ensure!(
        got == 1,
        "{got} requests for one block, {} lists",
        requests(&kube, "LIST")? - lists
    );
    let tracer = trace(&kube, &args)?;
    wait::until("the question of trace", SOON, || {
        Ok((requests(&kube, "GET")? == gets + 2).then_some(()))
    })?;
    let ended = tracer.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    ensure!(requests(&kube, "LIST")? == lists, "all blocks were listed");
    Ok(())
}
