//! `--node-condition`: what `kubectl describe node` shows of the incident.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use node_tracer_tests::kube::incident::KubeIncident;
use node_tracer_tests::kube::{Account, Kube};
use node_tracer_tests::snapshot_run::KUBE;
use node_tracer_tests::tracer::SOON as END;
use node_tracer_tests::{test, wait};
use serde_json::Value;

use super::{SOON, address_of, trace};

/// A tracer that starts leaves what is there alone for so long: a minute, and some
/// seconds more.
const LOOKED: Duration = Duration::from_secs(90);
/// The server counts for so long that nothing is written.
const QUIET: Duration = Duration::from_secs(20);

fn conditions(kube: &Kube) -> anyhow::Result<Vec<Value>> {
    let node = kube.expect("GET", &format!("/api/v1/nodes/{}", kube.name()), None)?;
    let conditions = node["status"]["conditions"].as_array();
    Ok(conditions.context("no conditions")?.clone())
}

fn ours(kube: &Kube) -> anyhow::Result<Option<Value>> {
    let mut all = conditions(kube)?.into_iter();
    Ok(all.find(|it| it["type"] == "PodAddressConflict"))
}

/// Waits until the condition has this status, and its message these words.
fn wait_for(kube: &Kube, status: &str, words: &str, limit: Duration) -> anyhow::Result<Value> {
    wait::until(&format!("{status}, {words:?}"), limit, || {
        let is = |it: &Value| {
            let message = it["message"].as_str().unwrap_or_default();
            it["status"] == status && message.contains(words)
        };
        Ok(ours(kube)?.filter(is))
    })
}

test!(KUBE, kube_node_condition_follows_the_incident);
/// Set while the address can be given out and while it is, cleared when that is
/// over, also if the tracer was killed meanwhile; written when it changes and
/// never else, and gone with the tracer. Without the right that is said once.
fn kube_node_condition_follows_the_incident() -> anyhow::Result<()> {
    let mut incident = KubeIncident::new()?;
    let account = Account::create(incident.kube())?;
    account.grant(incident.kube())?;
    let config = account.kubeconfig().display().to_string();
    let args = ["--kubeconfig", &config, "--node-condition"];

    let refused = trace(incident.kube(), &args)?;
    wait::pause(Duration::from_secs(2))?;
    let ended = refused.stop()?;
    let told = "do not allow to patch nodes/status";
    ensure!(
        ended.code == Some(0) && ended.stderr.matches(told).count() == 1,
        "{:?}: {}",
        ended.code,
        ended.stderr
    );

    account.grant_condition(incident.kube())?;
    wait::until("the right to come into force", SOON, || {
        Ok(account.may_set_condition(incident.kube())?.then_some(()))
    })?;
    let killed = trace(incident.kube(), &args)?;
    let old = incident.start_old_pod("stuck")?;
    let address = address_of(&old)?;
    incident.force_delete()?;
    incident.garbage_collect()?;
    let set = wait_for(incident.kube(), "True", "but free for the next pod", SOON)?;
    println!("        {}: {}", set["reason"], set["message"]);
    let message = set["message"].as_str().context("no message")?;
    let named = format!("{address} of pod {}/{}", old.pod.namespace, old.pod.name);
    ensure!(
        set["reason"] == "GhostSandbox" && message.contains(&named),
        "{set:#}"
    );
    incident.start_new_pod("reborn")?;
    let worse = wait_for(incident.kube(), "True", "in use twice", SOON)?;
    let since = |it: &Value| it["lastTransitionTime"].clone();
    ensure!(since(&worse) == since(&set), "it has been True: {worse:#}");

    killed.signal(libc::SIGKILL);
    killed.wait_for_end(END)?;
    incident.release()?;
    let again = trace(incident.kube(), &args)?;
    wait::pause(Duration::from_secs(5))?;
    let left = ours(incident.kube())?;
    ensure!(left.as_ref() == Some(&worse), "{left:#?}");
    let cleared = wait_for(incident.kube(), "False", "", LOOKED)?;
    ensure!(cleared["reason"] == "NoConflict", "{cleared:#}");
    ensure!(since(&cleared) != since(&set), "{cleared:#}");

    // kubelet writes its own conditions all the time.
    incident.kill_kubelet();
    let kube = incident.kube();
    let of_nodes = || kube.requests(&["resource=\"nodes\"", "verb=\"PATCH\""]);
    wait::pause(Duration::from_secs(2))?;
    let before = of_nodes()?;
    wait::pause(QUIET)?;
    let written = of_nodes()? - before;
    println!("        patches of nodes that the server counts in {QUIET:?}: {written}");
    ensure!(written == 0, "{written}");

    let others = conditions(kube)?.len() - 1;
    let ended = again.stop()?;
    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.stderr);
    ensure!(of_nodes()? == before + 1, "one patch removes it");
    ensure!(ours(kube)?.is_none(), "{:#?}", ours(kube)?);
    ensure!(others >= 4 && conditions(kube)?.len() == others, "{others}");
    Ok(())
}
