//! The IDs by which a namespace calls others: the kernel tells by them where the
//! other end of a device is.

use std::os::fd::AsRawFd;

use netlink_sys::{Socket, SocketAddr};

/// `NETNSA_NSID` of linux/net_namespace.h, which libc does not have.
const NETNSA_NSID: u16 = 1;
/// `NETNSA_FD`
const NETNSA_FD: u16 = 3;
/// Size of `struct nlmsghdr`.
const HEAD: usize = size_of::<libc::nlmsghdr>();
/// Size of `struct rtgenmsg`, with what aligns the attributes behind it.
const RTGENMSG: usize = 4;

/// The ID that the namespace of a socket has for another one, negative if it has
/// none; `None` if the kernel does not say.
pub(super) fn of(netns: &impl AsRawFd, socket: &Socket) -> Option<i32> {
    let kernel = SocketAddr::new(0, 0);
    socket
        .send_to(&request(netns.as_raw_fd()), &kernel, 0)
        .ok()?;
    let mut answer = Vec::with_capacity(512);
    loop {
        answer.clear();
        let (_, sender) = socket.recv_from(&mut answer, 0).ok()?;
        // Somebody in the namespace can talk to the socket.
        if sender == kernel {
            return id(&answer);
        }
    }
}

fn request(fd: i32) -> Vec<u8> {
    const LENGTH: usize = HEAD + RTGENMSG + 8;
    let mut bytes = Vec::with_capacity(LENGTH);
    bytes.extend((LENGTH as u32).to_ne_bytes());
    bytes.extend(libc::RTM_GETNSID.to_ne_bytes());
    bytes.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    bytes.extend([0; 8 + RTGENMSG]);
    bytes.extend(8_u16.to_ne_bytes());
    bytes.extend(NETNSA_FD.to_ne_bytes());
    bytes.extend(fd.to_ne_bytes());
    bytes
}

fn id(answer: &[u8]) -> Option<i32> {
    let (head, rest) = answer.split_at_checked(HEAD)?;
    let kind = u16::from_ne_bytes([head[4], head[5]]);
    let attribute = rest.get(RTGENMSG..RTGENMSG + 8)?;
    let is_id = u16::from_ne_bytes([attribute[2], attribute[3]]) == NETNSA_NSID;
    let value = i32::from_ne_bytes(attribute[4..].try_into().ok()?);
    (kind == libc::RTM_NEWNSID && is_id).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_has_an_id() {
        let answer = |kind: u16, attribute: u16, value: i32| {
            let mut bytes = request(value);
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes[HEAD + RTGENMSG + 2..][..2].copy_from_slice(&attribute.to_ne_bytes());
            bytes
        };
        let told = answer(libc::RTM_NEWNSID, NETNSA_NSID, 7);
        assert_eq!(id(&told), Some(7));
        assert_eq!(id(&answer(libc::RTM_NEWNSID, NETNSA_NSID, -1)), Some(-1));
        assert_eq!(id(&answer(libc::NLMSG_ERROR as u16, NETNSA_NSID, 7)), None);
        assert_eq!(id(&answer(libc::RTM_NEWNSID, NETNSA_FD, 7)), None);
        assert_eq!(id(&told[..told.len() - 1]), None);
    }
}
