//! A network of addresses, by its first one and its size.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Network {
    /// As it is written: need not be the network's first.
    pub(super) address: IpAddr,
    pub(super) length: u32,
}

impl Network {
    /// `address/length`
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let length = length
            .parse()
            .ok()
            .filter(|length| *length <= bits(address))?;
        Some(Self { address, length })
    }

    /// Whether an address is in it.
    pub(super) fn contains(self, address: IpAddr) -> bool {
        Self::around(self.address, self.length) == Self::around(address, self.length)
    }

    /// The network of a length that an address is in, from its first one.
    pub(super) fn around(address: IpAddr, length: u32) -> Self {
        let host = bits(address).saturating_sub(length);
        let address = match address {
            IpAddr::V4(it) => {
                let mask = u32::MAX.checked_shl(host).unwrap_or_default();
                Ipv4Addr::from_bits(it.to_bits() & mask).into()
            }
            IpAddr::V6(it) => {
                let mask = u128::MAX.checked_shl(host).unwrap_or_default();
                Ipv6Addr::from_bits(it.to_bits() & mask).into()
            }
        };
        Self { address, length }
    }

    /// The address that is so many after the one that is written, if that is
    /// still inside.
    pub(super) fn at(self, offset: u128) -> Option<IpAddr> {
        let inside = (bits(self.address) - self.length).min(127);
        let host = u128::MAX.checked_shr(128 - inside).unwrap_or_default();
        match self.address {
            IpAddr::V4(address) => {
                let number = u128::from(address.to_bits());
                let other = number.checked_add(offset)?;
                let same = other & !host == number & !host;
                let other = u32::try_from(other).ok().filter(|_| same)?;
                Some(Ipv4Addr::from_bits(other).into())
            }
            IpAddr::V6(address) => {
                let number = address.to_bits();
                let other = number.checked_add(offset)?;
                let same = other & !host == number & !host;
                same.then(|| Ipv6Addr::from_bits(other).into())
            }
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

fn bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(network: &str, offset: u128) -> Option<String> {
        Some(Network::parse(network)?.at(offset)?.to_string())
    }

    #[test]
    fn an_address_is_in_the_network_around_it_and_in_no_other() {
        for (address, length, around) in [
            ("10.0.0.77", 26, "10.0.0.64/26"),
            ("10.0.0.77", 0, "0.0.0.0/0"),
            ("10.0.0.77", 32, "10.0.0.77/32"),
            ("fd00::7f", 122, "fd00::40/122"),
            ("fd00::7f", 0, "::/0"),
        ] {
            let address = address.parse().unwrap();
            let network = Network::around(address, length);
            assert_eq!(network.to_string(), around);
            assert!(network.contains(address));
        }
        let network = Network::parse("10.0.0.64/26").unwrap();
        assert!(!network.contains("10.0.0.63".parse().unwrap()));
        assert!(!network.contains("::a00:40".parse().unwrap()));
    }

    #[test]
    fn addresses_are_counted_from_the_one_that_is_written() {
        assert_eq!(at("10.0.0.0/26", 63).as_deref(), Some("10.0.0.63"));
        assert_eq!(at("10.0.0.0/26", 64), None);
        assert_eq!(at("10.0.0.5/24", 2).as_deref(), Some("10.0.0.7"));
        assert_eq!(at("10.0.0.5/24", 251), None);
        assert_eq!(at("10.0.0.1/32", 0).as_deref(), Some("10.0.0.1"));
        assert_eq!(at("10.0.0.1/32", 1), None);
        assert_eq!(at("255.255.255.255/0", 1), None);
        assert_eq!(at("0.0.0.0/0", 1 << 31).as_deref(), Some("128.0.0.0"));
        assert_eq!(at("fd00::/122", 63).as_deref(), Some("fd00::3f"));
        assert_eq!(at("fd00::/122", 64), None);
        assert_eq!(at("fd00::/0", u128::MAX), None);
        assert_eq!(at("fd00::1/128", 1), None);
    }

    #[test]
    fn what_is_no_network_is_none() {
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0/24",
            "fd00::/129",
            "/",
            "a/b",
        ] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }
}
