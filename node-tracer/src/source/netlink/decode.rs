//! The few attributes of rtnetlink's answers that are used. What is not known
//! is passed over.

use std::{convert::Infallible, net::IpAddr};

use netlink_packet_core::{
    NLA_HEADER_SIZE, NetlinkDeserializable, NetlinkHeader, NlasIterator, parse_ip, parse_string,
};

/// A device.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) kind: Option<String>,
    pub(super) loopback: bool,
}

/// What of an answer is of use.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Link {
        index: u32,
        link: Link,
    },
    Address {
        index: u32,
        address: IpAddr,
        prefix: u8,
    },
    Other,
}

impl NetlinkDeserializable for Answer {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Infallible> {
        let answer = match header.message_type {
            libc::RTM_NEWLINK => link(payload),
            libc::RTM_NEWADDR => address(payload),
            _ => None,
        };
        Ok(answer.unwrap_or(Self::Other))
    }
}

/// The attributes of a message, as (kind, value).
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    // The iterator has checked that each lies within the bytes.
    NlasIterator::new(bytes)
        .map_while(Result::ok)
        .map(|attribute| {
            let (kind, length) = (attribute.kind(), attribute.value_length());
            (kind, &attribute.into_inner()[NLA_HEADER_SIZE..][..length])
        })
}

/// `struct ifinfomsg` and what follows it.
pub(super) fn link(payload: &[u8]) -> Option<Answer> {
    let (head, rest) = payload.split_at_checked(size_of::<libc::ifinfomsg>())?;
    let index = u32::from_ne_bytes(head[4..8].try_into().ok()?);
    let flags = u32::from_ne_bytes(head[8..12].try_into().ok()?);
    let mut link = Link {
        name: String::new(),
        kind: None,
        loopback: flags & libc::IFF_LOOPBACK as u32 != 0,
    };
    for (kind, value) in attributes(rest) {
        match kind {
            libc::IFLA_IFNAME => link.name = parse_string(value).ok()?,
            libc::IFLA_LINKINFO => {
                let mut inner = attributes(value);
                let value = inner.find(|(kind, _)| *kind == libc::IFLA_INFO_KIND);
                link.kind = value.and_then(|(_, value)| parse_string(value).ok());
            }
            _ => {}
        }
    }
    Some(Answer::Link { index, link })
}

/// `struct ifaddrmsg` and what follows it.
pub(super) fn address(payload: &[u8]) -> Option<Answer> {
    let (head, rest) = payload.split_at_checked(8)?;
    let prefix = head[1];
    let index = u32::from_ne_bytes(head[4..8].try_into().ok()?);
    let (mut local, mut far) = (None, None);
    for (kind, value) in attributes(rest) {
        match kind {
            libc::IFA_LOCAL => local = parse_ip(value).ok(),
            libc::IFA_ADDRESS => far = parse_ip(value).ok(),
            _ => {}
        }
    }
    // On a point-to-point link IFA_ADDRESS is the other end's.
    let address = local.or(far)?;
    Some(Answer::Address {
        index,
        address,
        prefix,
    })
}
