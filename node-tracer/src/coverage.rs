//! What is seen, by which mechanism, and what is therefore unknown.

use crate::config::Pods;
use engine::detect::ghost_sandbox;
use event::record::CoverageItem;
use kernel::ebpf::plan::{Choice, Mechanism, Plan};

/// One item for each signal of the kernel.
pub(crate) fn of_plan(plan: &Plan) -> Vec<CoverageItem> {
    plan.choices.iter().map(of_choice).collect()
}

fn of_choice(choice: &Choice) -> CoverageItem {
    // What speaks against several in a row is said once.
    let mut reasons: Vec<(String, String)> = Vec::new();
    for refused in &choice.refused {
        let reason = refused.reason.to_string();
        match reasons.last_mut() {
            Some((mechanisms, same)) if *same == reason => {
                mechanisms.push_str(&format!(", {}", refused.mechanism));
            }
            _ => reasons.push((refused.mechanism.to_string(), reason)),
        }
    }
    let reasons: Vec<String> = reasons
        .into_iter()
        .map(|(mechanisms, reason)| format!("no {mechanisms}: {reason}"))
        .collect();
    CoverageItem {
        signal: choice.signal.to_string(),
        mechanism: (choice.mechanism != Mechanism::None).then(|| choice.mechanism.to_string()),
        reason: (!reasons.is_empty()).then(|| reasons.join("; ")),
        unknown: choice
            .unknown
            .iter()
            .map(|text| (*text).to_owned())
            .collect(),
    }
}

/// What a list does not tell that shows of no pod that it is gone.
pub(crate) fn doubted(doubt: Option<&str>) -> Vec<String> {
    doubt.map(ghost_sandbox::unlisted).into_iter().collect()
}

/// The pods' item. `source` names the list that was read, `doubt` says why that
/// one shows of no pod that it is gone.
pub(crate) fn of_pods(
    pods: &Pods,
    source: Option<&str>,
    missing: Option<&str>,
    doubt: Option<&str>,
) -> CoverageItem {
    let reason = match (pods, source) {
        (_, Some(_)) => None,
        (Pods::None, None) => Some(String::from("--pods none")),
        (_, None) => Some(format!(
            "{}; or give a list: kubectl get pods -A -o json > pods.json, then --pods pods.json",
            missing.unwrap_or("the API server was not asked"),
        )),
    };
    CoverageItem {
        signal: String::from("pods"),
        mechanism: source.map(str::to_owned),
        reason,
        unknown: match source {
            Some(_) => doubted(doubt),
            None => vec![String::from(
                "whether a pod still exists, and so which sandboxes are ghosts",
            )],
        },
    }
}
