//! What CNI's stores and calls, the runtime and the API server say.

use super::{LISTED, Page};
use crate::text::style::short_id;
use event::{
    RuntimeSandbox,
    explanation::{CallPart, Explanation, Kind, PodPart, ReservationPart, SandboxPart},
    wording::{escape::Printable, subjects::pod_word},
};

impl Page {
    pub(super) fn reservations(&mut self, all: &Explanation) {
        let addresses = all.netns.iter().filter(|part| !part.host);
        let addresses = addresses.flat_map(|part| &part.addresses);
        let asked = all.subject.kind == Kind::Address || addresses.count() > 0;
        let blocked = || all.stores.iter().flat_map(|store| &store.blocked).count() > 0;
        // In the rest of a store that was read in part it may be reserved.
        let whole = all.stores.iter().filter(|store| !store.partial);
        let stores: Vec<String> = whole
            .take(LISTED)
            .map(|store| Printable(store.path.display()).to_string())
            .collect();
        if asked && all.reservations.is_empty() && !stores.is_empty() && !blocked() {
            let text = format!("for nobody, in {}", stores.join(", "));
            self.line("reserved", 0, &text);
        }
        for store in all.stores.iter().take(LISTED) {
            for address in &store.blocked {
                let path = Printable(store.path.display());
                let text = format!("{address}  by something in {path} that cannot be read");
                self.line("reserved", 0, &text);
            }
        }
        self.each("reserved", &all.reservations, Self::reservation);
    }

    pub(super) fn reservation(&mut self, label: &str, part: &ReservationPart) {
        let ReservationPart {
            store: _,
            network,
            path,
            address,
            container_id,
            ifname,
            modified,
            whose,
            live,
            shown_by,
        } = part;
        let mut text = format!("{address}");
        if !container_id.is_empty() {
            text += &format!("  for {}", short_id(container_id));
        }
        if let Some(ifname) = ifname {
            text += &format!(" {}", Printable(ifname));
        }
        if let Some(at) = modified {
            text += &format!("  since {}", self.time(*at));
        }
        if let Some(network) = network {
            text += &format!("  network {}", Printable(network));
        }
        self.line(label, 0, &text);
        let state = match (live, shown_by) {
            (Some(true), Some(source)) => format!("; in use, says {}", Printable(source)),
            (Some(true), None) => String::from("; in use"),
            (Some(false), _) => String::from("; leaked"),
            (None, _) => String::from("; whether it is in use is not known"),
        };
        let state = if container_id.is_empty() { "" } else { &state };
        self.line("", 2, &format!("{}{state}", Printable(whose)));
        self.line("", 2, &Printable(path.display()).to_string());
    }

    pub(super) fn call(&mut self, label: &str, part: &CallPart) {
        let CallPart {
            command,
            container_id,
            ifname,
            network,
            netns_path,
            netns,
            pod,
            result,
            started,
            ended,
            exit_code,
            source,
            path: _,
        } = part;
        let at = ended.or(*started).map(|at| self.time(at));
        let mut text = format!("{}  {}", at.unwrap_or_default(), Printable(command));
        for word in [network, ifname].into_iter().flatten() {
            text += &format!(" {}", Printable(word));
        }
        text += &format!("  sandbox {}", short_id(container_id));
        if let Some(pod) = pod {
            text += &format!("  pod {}", Printable(pod_word(pod)));
        }
        match (netns, netns_path) {
            (Some(netns), _) => text += &format!("  netns {}", netns.inode),
            (None, Some(path)) => text += &format!("  netns {} (gone)", Printable(path)),
            (None, None) => {}
        }
        if let Some(result) = result.as_ref().filter(|result| !result.ips.is_empty()) {
            text += &format!("  → {}", words(&result.ips));
        }
        match (ended, exit_code) {
            (None, _) => text += "  begun",
            (Some(_), Some(code)) if *code != 0 => text += &format!("  → exit {code}"),
            (Some(_), _) => {}
        }
        text += &format!("  ({})", Printable(source));
        self.line(label, 0, &text);
    }

    /// One sandbox once, whoever lists it.
    pub(super) fn sandboxes(&mut self, parts: &[SandboxPart]) {
        let mut once: Vec<(&RuntimeSandbox, Vec<&str>)> = Vec::new();
        for SandboxPart {
            source, sandbox, ..
        } in parts
        {
            match once.iter_mut().find(|(other, _)| other.id == sandbox.id) {
                Some((_, sources)) => sources.push(source),
                None => once.push((sandbox, vec![source])),
            }
        }
        let mut label = "runtime";
        for (sandbox, sources) in once.iter().take(LISTED) {
            self.sandbox(label, sandbox, &sources.join(", "));
            label = "";
        }
        self.more(once.len().saturating_sub(LISTED));
    }

    fn sandbox(&mut self, label: &str, sandbox: &RuntimeSandbox, sources: &str) {
        let RuntimeSandbox {
            id,
            pod,
            attempt,
            ready,
            created,
            pid,
            netns_path,
            netns,
            host_network,
            ips,
            containers,
        } = sandbox;
        let mut text = format!("{}  {}", short_id(id), Printable(pod.label()));
        text += match ready {
            Some(true) => "  ready",
            Some(false) => "  not ready",
            None => "",
        };
        if *attempt > 0 {
            text += &format!("  attempt {attempt}");
        }
        if let Some(at) = created {
            text += &format!("  made {}", self.time(*at));
        }
        if let Some(pid) = pid {
            text += &format!("  pid {pid}");
        }
        if !ips.is_empty() {
            text += &format!("  {}", words(ips));
        }
        match (netns, netns_path) {
            _ if *host_network => text += "  host's network",
            (Some(netns), _) => text += &format!("  netns {}", netns.inode),
            (None, Some(path)) => text += &format!("  netns {}", Printable(path)),
            (None, None) => {}
        }
        text += &format!("  ({})", Printable(sources));
        self.line(label, 0, &text);
        for container in containers.iter().take(LISTED) {
            let mut text = short_id(&container.id);
            for word in [Some(&container.name), container.state.as_ref()]
                .into_iter()
                .flatten()
            {
                text += &format!("  {}", Printable(word));
            }
            if let Some(pid) = container.pid {
                text += &format!("  pid {pid}");
            }
            self.line("", 2, &text);
        }
        self.more(containers.len().saturating_sub(LISTED));
    }

    pub(super) fn pod(&mut self, label: &str, part: &PodPart) {
        let PodPart {
            namespace,
            name,
            uid,
            phase,
            deletion,
            node,
            host_network,
            ips,
            source,
            at,
            listed,
            missing_since,
            doubt,
        } = part;
        let name = match (namespace, name) {
            (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
            _ => String::from("(name unknown)"),
        };
        let mut text = Printable(name).to_string();
        if let Some(uid) = uid {
            text += &format!("  uid {}", Printable(uid));
        }
        let source = source
            .as_deref()
            .map(|source| Printable(source).to_string());
        let source = source.unwrap_or_default();
        let as_of = at.map(|at| format!(" as of {}", self.time(at)));
        let as_of = as_of.unwrap_or_default();
        match listed {
            Some(true) => {
                let phase = match deletion {
                    Some(_) => "Terminating",
                    None => phase.as_deref().unwrap_or("listed"),
                };
                text += &format!("  {}", Printable(phase));
                if *host_network {
                    text += "  host's network";
                }
                if !ips.is_empty() {
                    text += &format!("  {}", words(ips));
                }
                if let Some(node) = node {
                    text += &format!("  on {}", Printable(node));
                }
                text += &format!("  ({source}{as_of})");
            }
            Some(false) => {
                text += &format!("  not on the list of {source}{as_of}");
                if let Some(since) = missing_since.filter(|since| Some(*since) != *at) {
                    text += &format!(", missing since {}", self.time(since));
                }
            }
            None => text += "  there is no list of pods",
        }
        self.line(label, 0, &text);
        if let Some(by) = deletion {
            self.line("", 2, &format!("it should be gone by {}", self.time(*by)));
        }
        if let Some(doubt) = doubt {
            self.line("", 2, &format!("but {}", Printable(doubt)));
        }
    }
}

fn words<T: ToString>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    items.join(", ")
}
