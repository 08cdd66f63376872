//! The word that was typed, as the kinds of things that it can name.

use std::{
    net::IpAddr,
    path::{Component, Path, PathBuf},
};

/// The kernel numbers namespaces from 0xF0000000 on, and those that it is born
/// with from a little before; process IDs end at 2^22.
const FIRST_INODE: u64 = 0xEFFF_F000;
/// `PID_MAX_LIMIT`
const LAST_PID: u64 = 4_194_304;
/// The shortest beginning of an ID.
const SHORTEST: usize = 3;
/// The longest word, in bytes: that of a path.
const LONGEST: usize = 4_096;
/// As much of a word as an error repeats, in characters.
const REPEATED: usize = 80;

/// What was asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// As it was typed.
    pub(super) text: String,
    /// What it can be, likeliest first; at least one.
    pub(super) forms: Vec<Form>,
}

/// One thing that a word can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An IP address.
    Address(IpAddr),
    /// A pod by namespace and name.
    Pod(String, String),
    /// A pod by UID.
    Uid(String),
    /// A sandbox or container by the beginning of its ID.
    Container(String),
    /// A network namespace by its inode number.
    Inode(u32),
    /// A network namespace by a path.
    Path(PathBuf),
    /// A process or thread.
    Pid(u32),
}

/// Why a question has no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SubjectError {
    /// It is nothing that can be looked up.
    #[error(
        "{asked:?} {why}; give an IP address (10.0.3.7), a pod (shop/checkout-1) or its UID, a \
         sandbox's or container's ID or at least {SHORTEST} characters of its beginning, a network \
         namespace's inode number (4026532246) or path (/run/netns/NAME, /proc/PID/ns/net), or a \
         process ID (26310); to be explicit, put ip:, pod:, uid:, container:, netns: or pid: \
         before it"
    )]
    Malformed {
        /// As much of it as can be repeated.
        asked: String,
        /// What is wrong.
        why: String,
    },
    /// It is the beginning of several IDs.
    #[error(
        "{asked} is the beginning of {} IDs: {}; give more of the one that is meant",
        .candidates.len() + .more,
        listed(.candidates, *.more)
    )]
    Ambiguous {
        /// The prefix.
        asked: String,
        /// The first of them.
        candidates: Vec<Candidate>,
        /// How many there are besides.
        more: usize,
    },
}

/// One thing that an ambiguous word can mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The ID in full.
    pub(crate) id: String,
    /// What it is.
    pub(crate) what: String,
}

fn listed(candidates: &[Candidate], more: usize) -> String {
    let listed: Vec<String> = candidates
        .iter()
        .map(|Candidate { id, what }| format!("{id} ({what})"))
        .collect();
    let more = match more {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    listed.join(", ") + &more
}

impl Asked {
    /// The process or thread that is to be looked up in `/proc`: its namespace
    /// and itself, for [`Hints`](super::Hints).
    pub(crate) fn pid(&self) -> Option<u32> {
        self.forms.iter().find_map(|form| match form {
            Form::Pid(pid) => Some(*pid),
            Form::Path(path) => pid_of_path(path),
            _ => None,
        })
    }

    /// The path that is to be looked up below the host's root, for
    /// [`Hints`](super::Hints).
    pub(crate) fn path(&self) -> Option<&Path> {
        self.forms.iter().find_map(|form| match form {
            Form::Path(path) => Some(path.as_path()),
            _ => None,
        })
    }
}

/// Reads a word.
///
/// # Errors
/// It is nothing that can be looked up.
pub(crate) fn parse(text: &str) -> Result<Asked, SubjectError> {
    let word = text.trim();
    let malformed = |why: String| SubjectError::Malformed {
        asked: match word.char_indices().nth(REPEATED) {
            Some((end, _)) => format!("{}…", word.get(..end).unwrap_or_default()),
            None => word.to_owned(),
        },
        why,
    };
    if word.is_empty() {
        return Err(malformed(String::from("is empty")));
    }
    if word.len() > LONGEST || word.contains('\0') {
        return Err(malformed(String::from("is no name of anything")));
    }
    let forms = explicit(word)
        .unwrap_or_else(|| forms(word))
        .map_err(malformed)?;
    Ok(Asked {
        text: word.to_owned(),
        forms,
    })
}

type Forms = Result<Vec<Form>, String>;

/// `kind:word`; `None` if there is no kind before it.
fn explicit(word: &str) -> Option<Forms> {
    if address(word).is_some() {
        return None;
    }
    let (kind, rest) = word.split_once(':')?;
    // containerd://ID, docker://ID, cri-o://ID
    if let Some(id) = rest.strip_prefix("//") {
        let is_scheme = !kind.is_empty()
            && kind
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || b"-.+".contains(&c));
        return is_scheme.then(|| one(container(id), "is followed by no container ID"));
    }
    Some(match kind {
        "ip" | "address" => match address(rest) {
            Some(found) => found.map(|ip| vec![Form::Address(ip)]),
            None => Err(String::from("is followed by no IP address")),
        },
        "pod" => match rest.contains('/') {
            true => one(pod(rest), "is followed by no namespace/name"),
            false => one(uid(rest), "is followed by neither namespace/name nor a UID"),
        },
        "uid" => one(uid(rest), "is followed by no UID"),
        "container" | "sandbox" => one(container(rest), "is followed by no container ID"),
        // net:[4026532246], as readlink(1) shows it
        "netns" | "net" | "inode" | "ns" => {
            let number = rest
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix(']'))
                .unwrap_or(rest);
            match path(rest) {
                Some(path) => Ok(vec![path]),
                None => one(
                    number.parse().ok().map(Form::Inode),
                    "is followed by no inode number",
                ),
            }
        }
        "path" => one(path(rest), "is followed by no absolute path"),
        "pid" | "tid" => one(rest.parse().ok().map(Form::Pid), "is followed by no number"),
        _ => return None,
    })
}

fn one(form: Option<Form>, otherwise: &str) -> Forms {
    form.map(|form| vec![form])
        .ok_or_else(|| otherwise.to_owned())
}

/// What a word can be by its looks.
fn forms(word: &str) -> Forms {
    if let Some(found) = address(word) {
        return found.map(|ip| vec![Form::Address(ip)]);
    }
    if let Some(path) = path(word) {
        return Ok(vec![path]);
    }
    if word.contains('/') {
        return one(
            pod(word),
            "is neither an address, a pod nor an absolute path",
        );
    }
    let mut forms: Vec<Form> = number(word).into_iter().collect();
    forms.extend(uid(word));
    forms.extend(container(word));
    if !forms.is_empty() {
        return Ok(forms);
    }
    Err(match word.len() < SHORTEST {
        true => String::from("is too short"),
        false => String::from("is nothing that can be looked up"),
    })
}

/// An address, with or without a prefix length; `None` if it is none.
fn address(word: &str) -> Option<Result<IpAddr, String>> {
    let (ip, prefix) = match word.split_once('/') {
        Some((ip, prefix)) => (ip, Some(prefix)),
        None => (word, None),
    };
    let ip: IpAddr = ip.parse().ok()?;
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    let is_length = |text: &str| text.parse::<u8>().is_ok_and(|length| length <= longest);
    Some(match prefix {
        Some(prefix) if !is_length(prefix) => Err(format!(
            "has no prefix length from 0 to {longest} after its slash"
        )),
        // An IPv4 address in IPv6's form is the IPv4 address.
        _ => Ok(ip.to_canonical()),
    })
}

/// `namespace/name`, of the characters that Kubernetes allows.
fn pod(word: &str) -> Option<Form> {
    let (namespace, name) = word.split_once('/')?;
    let is_name = |text: &str, more: &[u8]| {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || more.contains(&c);
        (1..=253).contains(&text.len()) && text.bytes().all(plain)
    };
    let is_pod = is_name(namespace, b"-") && is_name(name, b"-.");
    is_pod.then(|| Form::Pod(namespace.to_owned(), name.to_owned()))
}

/// A UID as the API server makes them, or a static pod's: 32 digits.
fn uid(word: &str) -> Option<Form> {
    let is_hex = |text: &str| text.bytes().all(|c| c.is_ascii_hexdigit());
    let groups: Vec<&str> = word.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    let is_uid = matches!(lengths.as_slice(), [8, 4, 4, 4, 12] | [32]);
    (is_uid && groups.into_iter().all(is_hex)).then(|| Form::Uid(word.to_ascii_lowercase()))
}

/// The beginning of an ID.
fn container(word: &str) -> Option<Form> {
    let is_hex = word.bytes().all(|c| c.is_ascii_hexdigit());
    let is_id = is_hex && (SHORTEST..=128).contains(&word.len());
    is_id.then(|| Form::Container(word.to_ascii_lowercase()))
}

/// An inode number or a process ID, by its size.
fn number(word: &str) -> Option<Form> {
    if !word.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let number: u64 = word.parse().ok()?;
    let short = u32::try_from(number).ok()?;
    match number {
        FIRST_INODE.. => Some(Form::Inode(short)),
        1..=LAST_PID => Some(Form::Pid(short)),
        _ => None,
    }
}

fn path(word: &str) -> Option<Form> {
    word.starts_with('/')
        .then(|| Form::Path(PathBuf::from(word)))
}

/// The process of `/proc/PID/ns/net` and `/proc/PID/task/TID/ns/net`.
pub(super) fn pid_of_path(path: &Path) -> Option<u32> {
    let parts: Vec<&str> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(part) => part.to_str(),
            _ => None,
        })
        .collect();
    match parts.as_slice() {
        ["proc", pid, "ns", "net"] | ["proc", _, "task", pid, "ns", "net"] => pid.parse().ok(),
        _ => None,
    }
}

/// A path as it is compared: `/var/run` is `/run` on every host.
pub(super) fn same_path(a: &Path, b: &Path) -> bool {
    let plain = |path: &Path| match path.strip_prefix("/var/run") {
        Ok(rest) => Path::new("/run").join(rest),
        Err(_) => path.components().collect(),
    };
    plain(a) == plain(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms_of(word: &str) -> Vec<Form> {
        parse(word).unwrap().forms
    }

    #[test]
    fn an_address_is_one_with_or_without_its_prefix_length() {
        for (word, ip) in [
            ("10.0.3.7", "10.0.3.7"),
            (" 10.0.3.7/24 ", "10.0.3.7"),
            ("fd00::7", "fd00::7"),
            ("FD00::7/64", "fd00::7"),
            ("::ffff:10.0.3.7", "10.0.3.7"),
            ("ip:10.0.3.7", "10.0.3.7"),
            ("dead::beef", "dead::beef"),
        ] {
            assert_eq!(
                forms_of(word),
                [Form::Address(ip.parse().unwrap())],
                "{word}"
            );
        }
    }

    #[test]
    fn a_number_is_an_inode_a_process_or_the_beginning_of_an_id() {
        let prefix = |word: &str| Form::Container(word.to_owned());
        assert_eq!(
            forms_of("4026532246"),
            [Form::Inode(4_026_532_246), prefix("4026532246")]
        );
        assert_eq!(forms_of("26310"), [Form::Pid(26_310), prefix("26310")]);
        assert_eq!(forms_of("7"), [Form::Pid(7)]);
        assert_eq!(forms_of("99999999"), [prefix("99999999")]);
        assert_eq!(forms_of("40265322460001"), [prefix("40265322460001")]);
        assert_eq!(forms_of("pid:4026532246"), [Form::Pid(4_026_532_246)]);
        for word in ["inode:100", "net:[100]", "netns:100"] {
            assert_eq!(forms_of(word), [Form::Inode(100)], "{word}");
        }
    }

    #[test]
    fn the_namespaces_that_the_kernel_is_born_with_are_no_processes() {
        assert_eq!(forms_of("4026531833")[0], Form::Inode(4_026_531_833));
        assert_eq!(forms_of("4026531840")[0], Form::Inode(4_026_531_840));
    }

    #[test]
    fn ids_are_read_in_every_spelling() {
        let uid = "0a1b2c3d-0000-4000-8000-000000000001";
        assert_eq!(forms_of(uid), [Form::Uid(uid.to_owned())]);
        assert_eq!(forms_of(&uid.to_uppercase()), [Form::Uid(uid.to_owned())]);
        let bare = uid.replace('-', "");
        let both = [Form::Uid(bare.clone()), Form::Container(bare.clone())];
        assert_eq!(forms_of(&bare), both, "a static pod's, or a container's");
        for word in [
            "d6fe7d",
            "containerd://d6fe7d",
            "cri-o://D6FE7D",
            "sandbox:d6fe7d",
        ] {
            assert_eq!(forms_of(word), [Form::Container("d6fe7d".into())], "{word}");
        }
    }

    #[test]
    fn pods_and_paths_are_told_apart() {
        let pod = Form::Pod("shop".into(), "checkout-1.x".into());
        assert_eq!(forms_of("shop/checkout-1.x"), std::slice::from_ref(&pod));
        assert_eq!(forms_of("pod:shop/checkout-1.x"), [pod]);
        let asked = parse("/proc/123/task/124/ns/net").unwrap();
        assert_eq!(asked.pid(), Some(124));
        assert_eq!(asked.path(), Some(Path::new("/proc/123/task/124/ns/net")));
        assert_eq!(parse("/run/netns/a").unwrap().pid(), None);
        assert!(same_path(
            Path::new("/var/run/netns/a"),
            Path::new("/run/netns//a")
        ));
        assert!(!same_path(Path::new("/var/run2/a"), Path::new("/run/a")));
    }

    #[test]
    fn what_is_nothing_is_refused_with_what_there_is() {
        for word in [
            "",
            "  ",
            "ab",
            "zzz",
            "10.0.0.300",
            "10.0.3.7/33",
            "fd00::7/129",
            "10.0.3.7/",
            "Shop/a",
            "a/b/c",
            "/\0",
            "pid:x",
            "inode:-1",
            "net:[12",
            "uid:abc",
            "://abc",
            "containerd://",
            "docker://xyz",
            "ip:10.0.0",
            "pod:abc",
            "shop/",
            "../../etc",
        ] {
            let error = parse(word).unwrap_err().to_string();
            assert!(error.contains("give an IP address"), "{word}: {error}");
        }
        let long = parse(&"\u{e4}".repeat(5_000)).unwrap_err().to_string();
        assert!(long.chars().count() < 700, "{long}");
    }
}
