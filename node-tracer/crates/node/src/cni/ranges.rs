//! The ranges that host-local gives addresses out of, as it reads them from
//! its configuration (plugins/ipam/host-local/backend/allocator/range.go).
//!
//! It refuses to work if any of them is wrong; so there are all of them here,
//! or none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Deserialize;
use serde_json::Value;

use event::Range;

/// Ranges that are taken; all are compared with each other.
const MAX_RANGES: usize = 1_024;

/// What stands for a subnet that the plugin puts in when it is called.
const AT_RUN_TIME: [&str; 2] = ["usePodCidr", "usePodCidrIPv6"];

/// Why host-local gives out nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RangeError {
    /// Not a list of lists of objects.
    #[error("has ranges that are no lists of subnets")]
    Form,
    /// More than are looked at.
    #[error("has more than {MAX_RANGES} ranges")]
    TooMany,
    /// No `network/length`, or with bits set in the host's part.
    #[error("has a range whose subnet {0:?} is no network")]
    Subnet(String),
    /// It leaves nothing to give out.
    #[error("has a range whose subnet {0} is too small for host-local")]
    TooSmall(String),
    /// A field is no address.
    #[error("has a range whose {field} {text:?} is no address")]
    Address { field: &'static str, text: String },
    /// A field is an address of another network.
    #[error("has a range whose {field} {address} is outside {subnet}")]
    Outside {
        field: &'static str,
        address: IpAddr,
        subnet: String,
    },
    /// The end is before the start.
    #[error("has a range from {0} to {1}")]
    Order(IpAddr, IpAddr),
    /// A set of nothing, or of IPv4 and IPv6.
    #[error("has a range set that is empty or mixes IPv4 and IPv6")]
    Set,
    /// Two ranges have addresses in common.
    #[error("has ranges that overlap: {0} and {1}")]
    Overlap(String, String),
}

/// One range as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RangeConf {
    pub(super) subnet: Option<String>,
    pub(super) range_start: Option<String>,
    pub(super) range_end: Option<String>,
    pub(super) gateway: Option<String>,
}

/// The range sets: the one of old, which comes first, and the list. Empty if
/// they are not known before the plugin is called.
pub(super) fn ranges(old: RangeConf, list: Value) -> Result<Vec<Range>, RangeError> {
    let mut sets: Vec<Vec<RangeConf>> = match list {
        Value::Null => Vec::new(),
        list => serde_json::from_value(list).map_err(|_| RangeError::Form)?,
    };
    if old.subnet.is_some() {
        sets.insert(0, vec![old]);
    }
    if sets.iter().map(Vec::len).sum::<usize>() > MAX_RANGES {
        return Err(RangeError::TooMany);
    }
    let at_run_time = |range: &RangeConf| {
        let subnet = range.subnet.as_deref();
        subnet.is_some_and(|subnet| AT_RUN_TIME.contains(&subnet))
    };
    if sets.iter().flatten().any(at_run_time) {
        return Ok(Vec::new());
    }
    let mut ranges = Vec::new();
    for (set, members) in sets.iter().enumerate() {
        let start = ranges.len();
        for member in members {
            ranges.push(range(set, member)?);
        }
        let mut families = ranges.iter().skip(start).map(|range| range.first.is_ipv4());
        let Some(family) = families.next() else {
            return Err(RangeError::Set);
        };
        if families.any(|other| other != family) {
            return Err(RangeError::Set);
        }
    }
    for (at, one) in ranges.iter().enumerate() {
        let overlaps = |other: &&Range| one.first <= other.last && other.first <= one.last;
        if let Some(other) = ranges.iter().skip(at + 1).find(overlaps) {
            let (one, other) = (one.subnet.clone(), other.subnet.clone());
            return Err(RangeError::Overlap(one, other));
        }
    }
    Ok(ranges)
}

fn range(set: usize, conf: &RangeConf) -> Result<Range, RangeError> {
    let text = conf.subnet.as_deref().unwrap_or_default();
    let wrong = || RangeError::Subnet(brief(text));
    let subnet = Subnet::parse(text).ok_or_else(wrong)?;
    if subnet.network != subnet.base {
        return Err(wrong());
    }
    if subnet.host_bits() < 2 {
        return Err(RangeError::TooSmall(subnet.to_string()));
    }
    let field = |name: &'static str, text: &Option<String>| match text.as_deref() {
        None | Some("") => Ok(None),
        Some(text) => {
            let address: IpAddr = text.parse().map_err(|_| RangeError::Address {
                field: name,
                text: brief(text),
            })?;
            let address = address.to_canonical();
            if !subnet.contains(address) {
                return Err(RangeError::Outside {
                    field: name,
                    address,
                    subnet: subnet.to_string(),
                });
            }
            Ok(Some(address))
        }
    };
    // The first address by default, of which two cannot be.
    let next = subnet.at(1);
    let gateway = field("gateway", &conf.gateway)?.unwrap_or(next);
    let first = field("rangeStart", &conf.range_start)?.unwrap_or(next);
    let last = field("rangeEnd", &conf.range_end)?.unwrap_or(subnet.last());
    if last < first {
        return Err(RangeError::Order(first, last));
    }
    Ok(Range {
        set,
        subnet: subnet.to_string(),
        first,
        last,
        gateway: Some(gateway),
    })
}

fn brief(text: &str) -> String {
    text.chars().take(64).collect()
}

/// A network in CIDR notation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subnet {
    /// The address as it is written.
    base: u128,
    /// Without the bits of the host's part.
    network: u128,
    length: u32,
    v4: bool,
}

impl Subnet {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let (address, length): (IpAddr, u32) = (address.parse().ok()?, length.parse().ok()?);
        let (base, v4, bits) = match address {
            IpAddr::V4(address) => (u128::from(u32::from(address)), true, 32_u32),
            // Mapped IPv4 with the length of IPv6 is refused.
            IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => return None,
            IpAddr::V6(address) => (u128::from(address), false, 128),
        };
        let host_bits = bits.checked_sub(length)?;
        let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
        let network = base & mask;
        Some(Self {
            base,
            network,
            length,
            v4,
        })
    }

    fn host_bits(self) -> u32 {
        let bits = if self.v4 { 32 } else { 128 };
        bits - self.length
    }

    /// The address at an offset, which is one of the network's.
    fn at(self, offset: u128) -> IpAddr {
        let number = self.network | offset;
        if self.v4 {
            IpAddr::V4(Ipv4Addr::from_bits(number as u32))
        } else {
            IpAddr::V6(Ipv6Addr::from_bits(number))
        }
    }

    /// The last address that is given out: of IPv4 not the broadcast address.
    fn last(self) -> IpAddr {
        let all = match 1_u128.checked_shl(self.host_bits()) {
            Some(size) => size - 1,
            None => u128::MAX,
        };
        self.at(if self.v4 { all - 1 } else { all })
    }

    fn contains(self, address: IpAddr) -> bool {
        let number = match address {
            IpAddr::V4(address) => u128::from(u32::from(address)),
            IpAddr::V6(address) => u128::from(address),
        };
        let host = number.checked_shr(self.host_bits()).unwrap_or(0);
        let own = self.network.checked_shr(self.host_bits()).unwrap_or(0);
        address.is_ipv4() == self.v4 && host == own
    }
}

/// The network, whatever address of it was written.
impl std::fmt::Display for Subnet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.at(0), self.length)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(list: Value) -> Result<Vec<String>, String> {
        let found = ranges(RangeConf::default(), list).map_err(|error| error.to_string())?;
        let text = |range: &Range| {
            let gateway = range.gateway.unwrap();
            format!(
                "{} {} {}-{} via {gateway}",
                range.set, range.subnet, range.first, range.last
            )
        };
        Ok(found.iter().map(text).collect())
    }

    #[test]
    fn what_is_not_said_is_as_host_local_has_it() {
        for (range, expected) in [
            (
                json!({"subnet": "10.1.2.0/24"}),
                "0 10.1.2.0/24 10.1.2.1-10.1.2.254 via 10.1.2.1",
            ),
            (
                json!({"subnet": "10.1.2.0/30", "gateway": "10.1.2.2"}),
                "0 10.1.2.0/30 10.1.2.1-10.1.2.2 via 10.1.2.2",
            ),
            (
                json!({"subnet": "10.0.0.0/8", "rangeStart": "10.9.0.0", "rangeEnd": "10.9.0.255", "gateway": ""}),
                "0 10.0.0.0/8 10.9.0.0-10.9.0.255 via 10.0.0.1",
            ),
            (
                json!({"subnet": "0.0.0.0/0"}),
                "0 0.0.0.0/0 0.0.0.1-255.255.255.254 via 0.0.0.1",
            ),
            (
                json!({"subnet": "fd00:1::/64", "rangeStart": "fd00:1::10"}),
                "0 fd00:1::/64 fd00:1::10-fd00:1::ffff:ffff:ffff:ffff via fd00:1::1",
            ),
            (
                json!({"subnet": "::/0"}),
                "0 ::/0 ::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff via ::1",
            ),
        ] {
            assert_eq!(of(json!([[range]])).unwrap(), [expected]);
        }
    }

    #[test]
    fn the_range_of_old_comes_first() {
        let old = RangeConf {
            subnet: Some(String::from("10.2.0.0/16")),
            ..RangeConf::default()
        };
        let list = json!([[{"subnet": "fd00::/120"}, {"subnet": "fd01::/120"}]]);
        let found = ranges(old, list).unwrap();
        let sets: Vec<_> = found
            .iter()
            .map(|range| (range.set, &*range.subnet))
            .collect();
        assert_eq!(
            sets,
            [(0, "10.2.0.0/16"), (1, "fd00::/120"), (1, "fd01::/120")]
        );
    }

    #[test]
    fn one_that_is_known_only_later_leaves_all_unknown() {
        assert_eq!(of(json!([[{"subnet": "usePodCidr"}]])), Ok(Vec::new()));
        assert_eq!(of(Value::Null), Ok(Vec::new()));
        assert_eq!(of(json!([])), Ok(Vec::new()));
    }

    #[test]
    fn what_host_local_refuses_is_refused() {
        for (list, expected) in [
            (json!([{"subnet": "10.0.0.0/24"}]), "no lists of subnets"),
            (json!("10.0.0.0/24"), "no lists of subnets"),
            (json!([[{"subnet": 7}]]), "no lists of subnets"),
            (json!([[]]), "empty or mixes"),
            (
                json!([[{"subnet": "10.0.0.0/24"}, {"subnet": "fd00::/64"}]]),
                "empty or mixes",
            ),
            (json!([[{}]]), "subnet \"\" is no network"),
            (json!([[{"subnet": "10.0.0.0"}]]), "is no network"),
            (json!([[{"subnet": "10.0.0.0/33"}]]), "is no network"),
            (
                json!([[{"subnet": "10.0.0.7/24"}]]),
                "\"10.0.0.7/24\" is no network",
            ),
            (json!([[{"subnet": "010.0.0.0/24"}]]), "is no network"),
            (
                json!([[{"subnet": "::ffff:10.0.0.0/120"}]]),
                "is no network",
            ),
            (
                json!([[{"subnet": "10.0.0.0/31"}]]),
                "10.0.0.0/31 is too small",
            ),
            (json!([[{"subnet": "fd00::/127"}]]), "too small"),
            (
                json!([[{"subnet": "10.0.0.0/24", "rangeStart": "x"}]]),
                "rangeStart \"x\" is no address",
            ),
            (
                json!([[{"subnet": "10.0.0.0/24", "rangeEnd": "10.0.1.1"}]]),
                "rangeEnd 10.0.1.1 is outside 10.0.0.0/24",
            ),
            (
                json!([[{"subnet": "10.0.0.0/24", "gateway": "fd00::1"}]]),
                "gateway fd00::1 is outside",
            ),
            (
                json!([[{"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.8"}]]),
                "from 10.0.0.9 to 10.0.0.8",
            ),
            (
                json!([[{"subnet": "10.0.0.0/24"}], [{"subnet": "10.0.0.128/25"}]]),
                "overlap: 10.0.0.0/24 and 10.0.0.128/25",
            ),
        ] {
            let error = of(list.clone()).unwrap_err();
            assert!(error.contains(expected), "{list}: {error}");
        }
        let many = vec![json!([{"subnet": "10.0.0.0/24"}]); MAX_RANGES + 1];
        assert!(of(Value::Array(many)).unwrap_err().contains("more than"));
    }
}
