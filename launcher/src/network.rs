//! The network inside: `lo`, and for a plan with a `network` one way out. Every address of IPv4 is made local (AnyIP), so
//! that every connection, of any program, to anywhere, lands in a socket opened here; those sockets are handed to the
//! caller's broker outside, which sees by `getsockname` where the program wanted to go. There is no other route: an
//! address or port without a socket answers "refused" at once, by the kernel.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{bind, listen, socket_with, sockopt, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::failure::{Outcome, Step};
use crate::plan::Network;
use crate::sys;

const BACKLOG: i32 = 1024;
const DNS: u16 = 53;

/// Brings up `lo`, and what the plan asks for beyond. The sockets in the order that the caller expects: DNS by datagram and
/// by stream where there is any, then one for each port.
pub fn open(network: Option<&Network>) -> Outcome<Vec<OwnedFd>> {
    let any = inet(SocketType::DGRAM).step("network.loopback")?;
    sys::loopback_up(any.as_fd()).step("network.loopback")?;
    let Some(network) = network else { return Ok(Vec::new()) };
    route(network.address).step("network.route")?;
    let mut sockets = Vec::with_capacity(network.ports.len() + 2);
    if network.dns {
        let at = SocketAddrV4::new(network.address, DNS);
        let datagrams = inet(SocketType::DGRAM).step("network.dns")?;
        bind(&datagrams, &at).step("network.dns")?;
        sockets.push(datagrams);
        sockets.push(listener(at).step("network.dns")?);
    }
    for port in &network.ports {
        let socket = listener(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, *port));
        sockets.push(socket.at("network.listen", &port.to_string())?);
    }
    Ok(sockets)
}

fn inet(kind: SocketType) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

fn listener(at: SocketAddrV4) -> Result<OwnedFd, Errno> {
    let socket = inet(SocketType::STREAM)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &at)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_EXCL: u16 = 0x200;
const LO: u32 = 1;

/// `ip address add ADDRESS/32 dev lo` (names are looked up only where there is an address beyond 127.0.0.1) and
/// `ip route add local 0.0.0.0/0 dev lo src ADDRESS`, in the words of rtnetlink(7).
fn route(address: Ipv4Addr) -> Result<(), Errno> {
    let netlink = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let own = address.octets();
    // struct ifaddrmsg: family, prefix length, flags, scope, index.
    let mut body = vec![libc::AF_INET as u8, 32, 0, libc::RT_SCOPE_UNIVERSE];
    body.extend(LO.to_ne_bytes());
    attribute(&mut body, libc::IFA_LOCAL, &own);
    attribute(&mut body, libc::IFA_ADDRESS, &own);
    request(&netlink, libc::RTM_NEWADDR, &body)?;
    // struct rtmsg: family, lengths of destination and source, tos, table, protocol, scope, type, flags.
    let mut body = vec![
        libc::AF_INET as u8,
        0,
        0,
        0,
        libc::RT_TABLE_LOCAL,
        libc::RTPROT_BOOT,
        libc::RT_SCOPE_HOST,
        libc::RTN_LOCAL,
    ];
    body.extend(0u32.to_ne_bytes());
    attribute(&mut body, libc::RTA_OIF, &LO.to_ne_bytes());
    attribute(&mut body, libc::RTA_PREFSRC, &own);
    request(&netlink, libc::RTM_NEWROUTE, &body)
}

fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8; 4]) {
    message.extend(8u16.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
}

/// Sends one request and reads its answer.
fn request(netlink: &OwnedFd, kind: u16, body: &[u8]) -> Result<(), Errno> {
    let length = u32::try_from(16 + body.len()).map_err(|_| Errno::INVAL)?;
    let mut message = Vec::with_capacity(64);
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    rustix::net::send(netlink, &message, SendFlags::empty())?;
    let mut answer = [0u8; 256];
    let (_, n) = rustix::net::recv(netlink, &mut answer[..], RecvFlags::empty())?;
    // struct nlmsgerr after the header: a negative errno, 0 for done.
    let error = answer.get(16..20).filter(|_| n >= 20).and_then(|b| b.try_into().ok()).map(i32::from_ne_bytes);
    match error {
        Some(0) => Ok(()),
        Some(error) => Err(Errno::from_raw_os_error(-error)),
        None => Err(Errno::BADMSG),
    }
}
