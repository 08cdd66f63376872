//! How leaked allocations are given back where the store is not host-local's:
//! by those whose store it is, never by hand in the store.

use super::{
    Leak, TOLD,
    advice::{find_out_why, look_once_more},
};
use crate::detect::{kubectl_words, of_its_pods};
use event::{StoreKind, wording::advice::commented};

impl Leak<'_, '_> {
    /// In order.
    pub(super) fn advice_of_others(&self) -> Vec<String> {
        if self.is_left_over() {
            return vec![String::from(
                "nothing to do: no configured network gives these IPs out",
            )];
        }
        let first = self.first_id();
        let mut advice: Vec<String> = first
            .map(|id| look_once_more(self.view.model, id))
            .into_iter()
            .flatten()
            .collect();
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
                "do not change the file: Terway's daemon holds it open and has a copy in memory",
            ),
            String::from(
                "wait 5 min and look again: Terway frees what belongs to pods that are not in the \
                 API, by namespace and name",
            ),
            commented(
                "terway-cli mapping",
                "in the terway pod of this node: what its daemon has",
            ),
            String::from(
                "what stays has the name of a pod that exists again, or Terway's collection fails: \
                 see the log of the terway pod",
            ),
        ];
        let mut pods = self
            .leaked
            .iter()
            .filter_map(|each| each.holder.pod.as_ref());
        if let Some(pod) = pods.find_map(kubectl_words) {
            let command = format!("kubectl get pod {pod}");
            advice.push(commented(command, "whether the pod exists again"));
        }
        advice
    }

    fn aws(&self) -> Vec<String> {
        let command = "kubectl -n kube-system delete pod -l k8s-app=aws-node";
        vec![
            String::from("do not change the file: ipamd rewrites it with every allocation"),
            String::from("restart ipamd: at its start it drops what has no host-side veth"),
            self.of_its_pods(command, "running pods keep their network"),
        ]
    }

    fn calico(&self) -> Vec<String> {
        let mut advice = vec![
            String::from(
                "wait 15 min and look again: calico-kube-controllers frees what belongs to pods \
                 that are not in the API",
            ),
            commented(
                "calicoctl ipam check --show-problem-ips",
                "whether Calico calls what stays leaked",
            ),
            String::from("then free single IPs, and only those:"),
        ];
        let leaked = self.leaked.iter().take(TOLD);
        advice.extend(leaked.map(|each| {
            let command = format!("calicoctl ipam release --ip={}", each.address);
            commented(command, "a pod that still uses it will share it")
        }));
        if self.leaked.len() > TOLD {
            advice.push(format!(
                "the same with the other {}: -o json lists them under reservations",
                self.leaked.len() - TOLD
            ));
        }
        advice
    }

    /// A command that is about the node's pods alone.
    pub(super) fn of_its_pods(&self, command: &'static str, comment: &str) -> String {
        of_its_pods(self.view, command, |whole| whole, comment)
    }
}

fn whereabouts() -> Vec<String> {
    vec![
        String::from(
            "do not change the pool: Whereabouts' reconciler frees what belongs to pods that are \
             not in the API",
        ),
        String::from("see that the reconciler runs, and why it left these:"),
        commented(
            "kubectl get cronjobs,pods -A | grep -i -e whereabouts -e reconcil",
            "whether it runs",
        ),
    ]
}
