//! The subnets that flannel gives to this node, as flanneld writes them for
//! its plugin when it starts.

use std::path::Path;

use super::ranges::Subnet;
use crate::root::{Found, Root, Unread};

/// flannel's `subnetFile` if the configuration has none.
pub(super) const DEFAULT_SUBNET_FILE: &str = "/run/flannel/subnet.env";

/// Real ones have some 100 bytes.
const MAX_FILE: usize = 4 << 10;

/// The node's networks, of IPv4 and IPv6.
pub(super) fn subnets(root: &Root, path: &Path) -> Result<Vec<String>, Unread> {
    let content = match root.read(path, MAX_FILE) {
        Ok(Found::File(content)) => content,
        Ok(Found::Missing) => {
            let what = "is not there: flannel's range is unknown until flanneld has written it";
            return Err(Unread::content(path, what));
        }
        Ok(Found::Folder) => return Err(Unread::content(path, "is a folder")),
        Err(error) => return Err(Unread::read(path, error)),
    };
    let text = String::from_utf8_lossy(&content.bytes);
    let mut subnets = Vec::new();
    for key in ["FLANNEL_SUBNET=", "FLANNEL_IPV6_SUBNET="] {
        let Some(value) = text.lines().find_map(|line| line.strip_prefix(key)) else {
            continue;
        };
        // What is written is the gateway's address.
        match Subnet::parse(value.trim()) {
            Some(subnet) => subnets.push(subnet.to_string()),
            None => return Err(Unread::content(path, "has a subnet that is none")),
        }
    }
    if subnets.is_empty() {
        return Err(Unread::content(path, "has no FLANNEL_SUBNET"));
    }
    Ok(subnets)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use event::fault;

    fn of(content: &str) -> Result<Vec<String>, String> {
        let host = tempfile::tempdir().unwrap();
        fs::write(host.path().join("subnet.env"), content).unwrap();
        let root = Root::open(host.path()).unwrap();
        subnets(&root, Path::new("/subnet.env")).map_err(|error| fault::chain(&error))
    }

    #[test]
    fn the_subnet_is_that_of_the_gateway() {
        let both = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_IPV6_SUBNET=fd00:1::1/64\nFLANNEL_MTU=1450\n";
        assert_eq!(of(both).unwrap(), ["10.244.1.0/24", "fd00:1::/64"]);
        assert_eq!(
            of("FLANNEL_SUBNET=10.244.1.1/24").unwrap(),
            ["10.244.1.0/24"]
        );
    }

    #[test]
    fn what_says_no_subnet_is_told() {
        assert!(of("FLANNEL_SUBNET=").unwrap_err().contains("none"));
        assert!(of("FLANNEL_MTU=1").unwrap_err().contains("has no"));
        assert!(of(&"x".repeat(MAX_FILE + 1)).unwrap_err().contains("large"));
        let host = tempfile::tempdir().unwrap();
        let root = Root::open(host.path()).unwrap();
        let missing = subnets(&root, Path::new(DEFAULT_SUBNET_FILE)).unwrap_err();
        assert!(missing.to_string().contains("is not there"));
    }
}
