//! A stale DEL, in words.

use crate::{
    detect::{
        View, cordon, crictl, evidence,
        facts::command::is_plain,
        fitting, joined, kubectl_words, logged_of, named, netns_of, shell_word,
        stale_del::{Missed, Reach, Stale, Verdict, WATCH, Why},
        uncordon,
    },
    model::{
        calls::{Call, PluginCalls},
        lost::{Kind, LONGEST},
    },
};
use event::order::Order as _;
use event::{
    PodRef,
    clock::Timestamp,
    finding::{Detail, Effect, Evidence, Finding, Rule, Severity, finding_id},
    wording::{
        advice::commented,
        subjects::{pod_word, short_id},
    },
};

/// What the newer sandbox had and was not looked at for so long before the DEL
/// may have been lost before it.
const STALE_LOOK: std::time::Duration = std::time::Duration::from_secs(60);
/// Losses that are named in one sentence.
const TITLED: usize = 3;
/// Characters of a plugin's message that are quoted.
const QUOTED: usize = 300;

const KERNEL: &str = "kernel";

impl Stale<'_, '_> {
    pub(super) fn finding(&self, verdict: Verdict) -> Finding {
        let newer = self.newer;
        let pod = named(self.view.model, &newer.pod);
        let subject = format!("{} {} {}", label(&pod), self.old, newer.id);
        let blamed = self.losses.iter();
        let blamed = blamed.filter(|missed| missed.reach > Reach::Cannot);
        let blamed = blamed.map(|missed| missed.del.started);
        let plugins = self.dels.iter().map(|(plugin, _)| *plugin);
        Finding {
            rule: Rule::StaleDel,
            severity: match verdict {
                Verdict::Harmful => Severity::Critical,
                Verdict::Unknown(_) | Verdict::Harmless | Verdict::Pending => Severity::Info,
            },
            id: finding_id(&self.view.settings.boot_id, Rule::StaleDel, &subject),
            since: blamed.chain(self.started()).min().unwrap_or(newer.added),
            title: self.title(verdict, &pod),
            pod: Some(pod.clone()),
            sandbox_id: Some(newer.id.to_owned()),
            netns: Some(netns_of(newer.entry)),
            addresses: newer.ips.clone(),
            holders: Vec::new(),
            evidence: self.evidence(verdict),
            unknown: self.unknown(verdict),
            advice: advice(
                self.view,
                verdict.effect(),
                &pod,
                plugins,
                (self.old, newer.id),
            ),
            detail: Detail {
                effect: Some(verdict.effect()),
                old_container_id: Some(self.old.to_owned()),
                new_container_id: Some(newer.id.to_owned()),
                ..Detail::default()
            },
        }
    }

    fn title(&self, verdict: Verdict, pod: &PodRef) -> String {
        let says = |whose: &str| match verdict {
            Verdict::Harmful => {
                format!(
                    "{whose} lost {} to a stale CNI DEL",
                    self.titled(Reach::Can)
                )
            }
            Verdict::Unknown(Why::Cause) => {
                let lost = self.titled(Reach::Perhaps);
                format!("{whose} lost {lost}, perhaps to a stale CNI DEL")
            }
            Verdict::Harmless => format!("stale CNI DEL of {whose} did no harm"),
            Verdict::Pending => format!("stale CNI DEL of {whose}: its sandbox is watched"),
            Verdict::Unknown(_) => format!("stale CNI DEL of {whose}: harm unknown"),
        };
        fitting(says(&pod_word(pod)), || says("a pod"))
    }

    /// The first loss of a kind of reach, and how many more there are.
    fn titled(&self, reach: Reach) -> String {
        let mut things = self.taken(reach);
        let first = things.next().map(|missed| thing(missed.kind, missed.name));
        let first = first.unwrap_or_default();
        match things.count() {
            0 => first,
            more => format!("{first} and {more} more"),
        }
    }

    /// The first losses of a kind of reach.
    fn named(&self, reach: Reach) -> String {
        let things = self.taken(reach).take(TITLED);
        let named = joined(things.map(|missed| thing(missed.kind, missed.name)));
        match self.taken(reach).count().saturating_sub(TITLED) {
            0 => named,
            more => format!("{named} and {more} more"),
        }
    }

    fn evidence(&self, verdict: Verdict) -> Vec<Evidence> {
        let newer = self.newer;
        let mut claims = Vec::new();
        if let Some((at, source)) = self.old_add() {
            let claim = format!("CNI ADD of the old sandbox {}", short_id(self.old));
            claims.push(evidence(claim, source, at));
        }
        let gave = match newer.ips.as_slice() {
            [] => String::new(),
            ips => format!(", which has {}", joined(ips)),
        };
        let claim = format!(
            "CNI ADD of the newer sandbox {} of the same pod name{gave}",
            short_id(newer.id)
        );
        claims.push(evidence(claim, newer.source, newer.added));
        let mut dels = self.dels.clone();
        dels.order_by_key(|(_, del)| del.started);
        for (plugin, del) in dels {
            claims.push(self.called(plugin, del));
        }
        for missed in &self.losses {
            let Missed {
                kind, name, item, ..
            } = *missed;
            let claim = format!("the newer sandbox lost {}", thing(kind, name));
            let claim = match kind {
                Kind::Address => claim,
                _ => format!("{claim}, last seen at {}", item.seen.time_of_day()),
            };
            let claim = match missed.reach {
                Reach::Cannot => {
                    format!("{claim}; this DEL cannot have taken it")
                }
                Reach::Perhaps | Reach::Can => claim,
            };
            claims.push(evidence(claim, missed.loss.source, missed.loss.at));
        }
        if let (Verdict::Harmless, Some(at)) = (verdict, self.looked()) {
            let items = self.view.model.lost.of(newer.entry.id);
            let there = items.filter(|(_, _, item)| item.loss.is_none());
            let there = joined(there.map(|(kind, name, _)| thing(kind, name)));
            let there = match there.as_str() {
                "" => "all that its CNI ADD gave it",
                there => there,
            };
            let claim = format!("the newer sandbox still has {there}");
            claims.push(evidence(claim, KERNEL, at));
        }
        claims
    }

    fn called(&self, plugin: &PluginCalls, del: &Call) -> Evidence {
        let with = match del.with_netns {
            true => "",
            false => ", with an empty CNI_NETNS",
        };
        let ended = match &del.end {
            None if self.view.passed(del.started.plus(LONGEST)) => {
                String::from("its end was not seen")
            }
            None => String::from("it still runs"),
            Some(end) => {
                let how = match (end.exit_code, end.signal) {
                    (Some(0), _) => String::from("it succeeded"),
                    (Some(code), _) => format!("it failed with exit status {code}"),
                    (None, Some(signal)) => format!("signal {signal} ended it"),
                    (None, None) => String::from("it ended, exit status unknown"),
                };
                let said = end.error.as_ref().map(|error| {
                    let msg: String = error.msg.chars().take(QUOTED).collect();
                    format!(": {msg}")
                });
                format!("{how}{}", said.unwrap_or_default())
            }
        };
        let times = match plugin.dels {
            0 | 1 => String::new(),
            times => format!(" (the last of {times} that were seen)"),
        };
        let claim = format!(
            "CNI DEL of the old sandbox by {}{with}{times}; {ended}",
            plugin.plugin
        );
        evidence(claim, "cni", del.started)
    }

    /// When the old sandbox's ADD started, or had ended.
    fn old_add(&self) -> Option<(Timestamp, &'static str)> {
        let chain = self.calls.iter().flat_map(|calls| calls.chain());
        let seen = chain.filter_map(|plugin| Some(plugin.add.as_ref()?.started));
        let cached = self.view.model.cni.of_container(self.old);
        let cached = cached.map(|cached| (cached.written, "libcni"));
        let seen = seen.min().map(|at| (at, "cni"));
        seen.or_else(|| cached.min_by_key(|(at, _)| *at))
    }

    fn unknown(&self, verdict: Verdict) -> Vec<String> {
        let mut unknown = Vec::new();
        if self.old_add().is_none() {
            unknown.push(String::from(
                "when the old sandbox was made: its CNI ADD was not seen, and libcni's cache does \
                 not have it",
            ));
        }
        match verdict {
            Verdict::Pending => unknown.push(format!(
                "whether it does harm: the newer sandbox is watched for {} s after the DEL",
                WATCH.as_secs()
            )),
            Verdict::Unknown(Why::NotBefore) => unknown.push(String::from(
                "whether it did harm: the devices and routes of the newer sandbox were not read \
                 before the DEL",
            )),
            Verdict::Unknown(Why::NotAfter) => unknown.push(String::from(
                "whether it did harm: the newer sandbox and the host could not be read afterwards",
            )),
            Verdict::Unknown(Why::Cause) => unknown.push(format!(
                "whether the DEL took {}: the plugin is not known to change another sandbox's netns; \
                 the pod, a person or an agent of the node can have removed it",
                self.named(Reach::Perhaps)
            )),
            Verdict::Unknown(Why::NoEnd) => unknown.push(String::from(
                "whether it did harm: the end of the DEL was not seen",
            )),
            Verdict::Harmful => {
                unknown.extend(self.taken(Reach::Can).filter_map(doubt));
            }
            Verdict::Harmless => {}
        }
        let mut items = self.view.model.lost.of(self.newer.entry.id);
        if !items.any(|(kind, _, _)| kind == Kind::Reservation) {
            unknown.push(String::from(
                "whether the CNI's records of the newer sandbox (reservation, endpoint) are still \
                 there: no store that was read names it",
            ));
        }
        unknown
    }
}

/// What to do about a DEL, in order: nothing is done about the pod before the
/// retries have ended, or the next DEL hits it again. `ids`: the old sandbox's,
/// the newer one's.
pub(super) fn advice<'p>(
    view: &View<'_>,
    effect: Effect,
    pod: &PodRef,
    mut plugins: impl Iterator<Item = &'p PluginCalls>,
    (old, newer): (&str, &str),
) -> Vec<String> {
    if effect == Effect::Harmless {
        return Vec::new();
    }
    let mut advice = Vec::new();
    let words = kubectl_words(pod);
    if effect == Effect::Harmful {
        advice.push(cordon(view));
    }
    if is_plain(old) {
        advice.push(commented(
            crictl(view.model, "rmp").id(old),
            "removes the old sandbox, which ends the retries",
        ));
        advice.push(commented(logged_of(old), "if that fails: why"));
    }
    let is_calico = plugins.any(|plugin| {
        let ipam = plugin.ipam.as_deref().unwrap_or_default();
        plugin.plugin.contains("calico") || ipam.contains("calico")
    });
    let namespace = words.as_deref().and_then(|words| words.split(' ').nth(1));
    if let Some(namespace) = namespace.filter(|_| is_calico) {
        let command = format!("calicoctl get workloadendpoint -n {namespace} -o yaml | grep");
        advice.push(commented(
            format!("{command} {}", shell_word(short_id(newer).as_ref())),
            "prints nothing if Calico lost the endpoint",
        ));
    }
    if effect != Effect::Harmful {
        return advice;
    }
    match &words {
        Some(words) => advice.push(commented(
            format!("kubectl delete pod {words}"),
            "recreates it, a pod without an owner is lost, one with a local volume stays Pending",
        )),
        None => advice.push(String::from(
            "recreate the pod: delete it if it has an owner; a pod without an owner is lost",
        )),
    }
    advice.push(String::from(
        "update the CNI plugin to one that checks the container ID in a DEL: Calico since 2017 \
         (projectcalico/cni-plugin#383), if the endpoint's containerID is set; Terway since 2022; \
         host-local always",
    ));
    advice.push(uncordon(view, "the retries have ended"));
    advice
}

/// Whether something was there right before a DEL.
fn doubt(missed: &Missed<'_>) -> Option<String> {
    let Missed {
        kind, name, item, ..
    } = *missed;
    let long = kind != Kind::Address && missed.del.started.since(item.seen) > STALE_LOOK;
    long.then(|| {
        format!(
            "whether {} was still there when the DEL began: it was last seen at {}",
            thing(kind, name),
            item.seen.time_of_day()
        )
    })
}

/// What is lost, with its article.
fn thing(kind: Kind, name: &str) -> String {
    match kind {
        Kind::Address => format!("its address {name}"),
        Kind::Device => format!("its device {name}"),
        Kind::Route => format!("its route {name}"),
        Kind::Neighbour => format!("its gateway's neighbour entry {name}"),
        Kind::Veth => format!("its host-side veth {name}"),
        Kind::HostRoute => format!("the host's route to {name}"),
        Kind::Reservation => format!("its reservation {name}"),
    }
}

/// `namespace/name`, without the UID that one of the sources may not have.
fn label(pod: &PodRef) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&pod.namespace), part(&pod.name))
}
