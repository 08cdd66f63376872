//! Reads a word: by what stands before a colon, or else by its looks.

use std::{net::IpAddr, path::PathBuf};

use super::{Asked, Form, SHORTEST, SubjectError};

/// The kernel numbers namespaces from 0xF0000000 on, and those that it is born
/// with from a little before; process IDs end at 2^22.
const FIRST_INODE: u64 = 0xEFFF_F000;
/// `PID_MAX_LIMIT`
const LAST_PID: u64 = 4_194_304;
/// The longest word, in bytes: that of a path.
const LONGEST: usize = 4_096;
/// As much of a word as an error repeats, in characters.
const REPEATED: usize = 80;

/// Reads a word.
///
/// # Errors
/// It is no name of anything.
pub fn parse(text: &str) -> Result<Asked, SubjectError> {
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
    if address(word).is_some() || mac(word).is_some() || pci(word).is_some() {
        return None;
    }
    let (kind, rest) = word.split_once(':')?;
    // containerd://ID, docker://ID, cri-o://ID
    if let Some(id) = rest.strip_prefix("//") {
        let is_scheme = !kind.is_empty()
            && kind
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || b"-.+".contains(&c));
        return is_scheme.then(|| one(container(id), "has no container ID behind its colon"));
    }
    Some(match kind {
        "ip" | "address" => match address(rest) {
            Some(found) => found.map(|ip| vec![Form::Address(ip)]),
            None => Err(String::from("has no IP address behind its colon")),
        },
        "pod" => match rest.contains('/') {
            true => one(pod(rest), "has no NAMESPACE/NAME behind its colon"),
            false => one(
                uid(rest).or_else(|| name(rest).map(Form::Name)),
                "has neither NAMESPACE/NAME, NAME nor a UID behind its colon",
            ),
        },
        "dev" | "if" => one(device(rest), "has no interface behind its colon"),
        "mac" => one(mac(rest), "has no MAC address behind its colon"),
        "pci" => one(pci(rest), "has no PCI address behind its colon"),
        "uid" => one(uid(rest), "has no UID behind its colon"),
        "container" | "sandbox" => one(container(rest), "has no container ID behind its colon"),
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
                    "has neither an inode nor a path behind its colon",
                ),
            }
        }
        "path" => one(path(rest), "has no absolute path behind its colon"),
        "pid" | "tid" => one(
            rest.parse().ok().map(Form::Pid),
            "has no number behind its colon",
        ),
        _ => return None,
    })
}

fn one(form: Option<Form>, otherwise: &str) -> Forms {
    form.map(|form| vec![form])
        .ok_or_else(|| otherwise.to_owned())
}

/// `0000:00:06.0`: domain, bus, device and function.
fn pci(word: &str) -> Option<Form> {
    let (rest, function) = word.rsplit_once('.')?;
    let parts: Vec<&str> = rest.split(':').collect();
    let [domain, bus, device] = parts.as_slice() else {
        return None;
    };
    let is_hex = |text: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&text.len()) && text.bytes().all(|c| c.is_ascii_hexdigit())
    };
    let is_one = is_hex(domain, 4..=8)
        && is_hex(bus, 2..=2)
        && is_hex(device, 2..=2)
        && is_hex(function, 1..=2);
    is_one.then(|| Form::Pci(word.to_ascii_lowercase()))
}

/// What a word can be by its looks.
fn forms(word: &str) -> Forms {
    if let Some(found) = address(word) {
        return found.map(|ip| vec![Form::Address(ip)]);
    }
    if let Some(mac) = mac(word) {
        return Ok(vec![mac]);
    }
    if let Some(pci) = pci(word) {
        return Ok(vec![pci]);
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
    // A number, a part of an address and one letter are nobody's name.
    let is_number = |c: u8| c.is_ascii_digit() || c == b'.';
    if word.len() > 1 && uid(word).is_none() && !word.bytes().all(is_number) {
        forms.extend(name(word).map(Form::Name));
        forms.extend(device(word));
    }
    if !forms.is_empty() {
        return Ok(forms);
    }
    Err(match word.len() < SHORTEST {
        true => String::from("is too short"),
        false if word.bytes().all(is_number) && word.contains('.') => {
            String::from("is no IP address: that has four numbers of 0 to 255")
        }
        false => String::from("is not recognised; pods: NAMESPACE/NAME"),
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
    let (namespace, rest) = word.split_once('/')?;
    let is_pod = is_name(namespace, b"-") && is_name(rest, b"-.");
    is_pod.then(|| Form::Pod(namespace.to_owned(), rest.to_owned()))
}

/// A pod's name alone.
fn name(word: &str) -> Option<String> {
    is_name(word, b"-.").then(|| word.to_owned())
}

fn is_name(text: &str, more: &[u8]) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || more.contains(&c);
    (1..=253).contains(&text.len()) && text.bytes().all(plain)
}

/// An interface's name, as the kernel allows them, as far as it is one word of
/// usual characters.
fn device(word: &str) -> Option<Form> {
    const LONGEST: usize = 15;
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.@".contains(&c);
    let is_device = (1..=LONGEST).contains(&word.len()) && word.bytes().all(plain);
    let is_dots = word.bytes().all(|c| c == b'.');
    (is_device && !is_dots).then(|| Form::Device(word.to_owned()))
}

/// `0a:58:0a:00:00:01`, or with hyphens.
fn mac(word: &str) -> Option<Form> {
    let parts: Vec<&str> = word.split([':', '-']).collect();
    let is_byte = |part: &&str| part.len() == 2 && part.bytes().all(|c| c.is_ascii_hexdigit());
    let is_mac = parts.len() == 6 && parts.iter().all(is_byte);
    is_mac.then(|| Form::Mac(parts.join(":").to_ascii_lowercase()))
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

#[cfg(test)]
mod tests;
