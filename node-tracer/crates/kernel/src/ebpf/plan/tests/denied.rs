//! A kernel that takes no program at all.

use super::*;

#[test]
fn without_any_program_all_is_compared_and_the_reason_is_said() {
    let facts = Facts {
        no_programs: Some(String::from("not allowed")),
        ..Facts::capable()
    };
    let plan = Plan::from_facts(&facts, None);
    assert!(plan.attachments().is_empty());
    for choice in &plan.choices {
        let last = match choice.signal {
            CniCall | CniResult | OomKill => Mechanism::None,
            _ => Comparison,
        };
        assert_eq!(choice.mechanism, last, "{}", choice.signal);
        assert!(!choice.unknown.is_empty(), "{}", choice.signal);
        for refused in &choice.refused {
            let reason = Obstacle::NoPrograms(String::from("not allowed"));
            assert_eq!(refused.reason, reason);
        }
    }
}

#[test]
fn who_may_not_enter_namespaces_compares_no_addresses() {
    let facts = Facts {
        no_programs: Some(String::from("not allowed")),
        may_enter: Some(false),
        ..Facts::capable()
    };
    let plan = Plan::from_facts(&facts, None);
    let address = plan.choice(Address);
    assert_eq!(address.mechanism, Mechanism::None);
    assert_eq!(
        address.refused.last().unwrap().reason,
        Obstacle::MayNotEnter
    );
    let inventory = plan.choice(Inventory);
    assert_eq!(inventory.mechanism, Comparison);
    assert!(inventory.unknown.contains(&"addresses"));
}

#[test]
fn who_may_not_look_at_processes_trusts_no_cni_call() {
    let said = |may_look| {
        let facts = Facts {
            may_look: Some(may_look),
            ..Facts::capable()
        };
        Plan::from_facts(&facts, None).choice(CniCall).unknown.len()
    };
    assert_eq!((said(true), said(false)), (0, 1));
}
