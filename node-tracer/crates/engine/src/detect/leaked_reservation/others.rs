//! How leaked allocations are given back where the store is not host-local's:
//! by those whose store it is, never by hand in the store.

use super::{
    Leak, TOLD,
    advice::{find_out_why, look_once_more},
};
use crate::detect::{Command, kubectl_words};
use event::StoreKind;

impl Leak<'_, '_> {
    /// In order.
    pub(super) fn advice_of_others(&self) -> Vec<String> {
        if self.is_left_over() {
            return vec![String::from(
                "nothing has to be done: no configured network gives these addresses out",
            )];
        }
        let first = self.first_id();
        let mut advice: Vec<String> = first.map(look_once_more).into_iter().collect();
        advice.extend(match self.store().kind {
            StoreKind::Terway => self.terway(),
            StoreKind::Aws => self.aws(),
            StoreKind::Calico => self.calico(),
            StoreKind::Whereabouts => whereabouts(),
            // Their advice is elsewhere, or they have no reservations.
            StoreKind::HostLocal | StoreKind::Cilium => Vec::new(),
        });
        advice.extend(first.map(find_out_why));
        advice
    }

    fn terway(&self) -> Vec<String> {
        let mut advice = vec![
            String::from(
                "do not change the file: Terway's daemon holds it open and has its own copy in \
                 memory; see what it has: terway-cli mapping, in the node's terway pod",
            ),
            String::from(
                "wait 5 min and look again: Terway's garbage collection gives back what belongs to \
                 pods that the API server does not have, by namespace and name",
            ),
        ];
        let mut pods = self
            .leaked
            .iter()
            .filter_map(|each| each.holder.pod.as_ref());
        advice.push(match pods.find_map(kubectl_words) {
            Some(pod) => format!(
                "what stays is of a name that there is again (kubectl get pod {pod}), or the \
                 collection fails: see the log of the node's terway pod"
            ),
            None => String::from(
                "what stays is of a name that there is again, or the collection fails: see the log \
                 of the node's terway pod",
            ),
        });
        advice
    }

    fn aws(&self) -> Vec<String> {
        let command = "kubectl -n kube-system delete pod -l k8s-app=aws-node";
        vec![
            String::from("do not change the file: ipamd writes it anew with every allocation"),
            format!(
                "restart ipamd, which drops at its start what has no veth on the host any more; \
                 pods that run are not disturbed: {}",
                self.of_node(command)
            ),
        ]
    }

    fn calico(&self) -> Vec<String> {
        let mut advice = vec![
            String::from(
                "wait 15 min and look again: calico-kube-controllers gives back what belongs to \
                 pods that the API server does not have",
            ),
            String::from(
                "what stays: see whether Calico calls it leaked, too: calicoctl ipam check \
                 --show-problem-ips",
            ),
            String::from("then give back single addresses, and only those:"),
        ];
        let leaked = self.leaked.iter().take(TOLD);
        advice.extend(leaked.map(|each| format!("calicoctl ipam release --ip={}", each.address)));
        if self.leaked.len() > TOLD {
            advice.push(format!(
                "and so on with the other {}: -o json has them under reservations",
                self.leaked.len() - TOLD
            ));
        }
        advice
    }

    /// A command that is about the node's pods alone.
    pub(super) fn of_node(&self, command: &'static str) -> Command {
        let node = &self.view.settings.node;
        Command::new(command)
            .own("--field-selector")
            .value("spec.nodeName", node)
    }
}

fn whereabouts() -> Vec<String> {
    vec![
        String::from(
            "do not change the pool: Whereabouts' reconciler gives back what belongs to pods that \
             the API server does not have",
        ),
        String::from(
            "see that it runs, and why it has left these: kubectl get cronjobs,pods -A | grep -i \
             -e whereabouts -e reconcil",
        ),
    ]
}
