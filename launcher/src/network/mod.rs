//! The network inside: `lo`, and for a plan with a `network` one way out. Every address of IPv4 is made local (AnyIP), so
//! that every connection, of any program, to anywhere, lands in a socket opened here; those sockets are handed to the
//! caller's broker outside, which sees by `getsockname` where the program wanted to go. There is no other route: an
//! address or port without a socket answers "refused" at once, by the kernel.
//!
//! The sockets are in the sandbox's own namespace, where they take their ports from programs; or, with `own`, in a second
//! one beside it that no process is in: a pair of veth leads there, and the sockets alone keep it. In both the broker sees
//! the same, and nothing is ever forwarded: to the kernel every packet has arrived.

mod netlink;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{bind, listen, socket_with, sockopt, AddressFamily, SocketFlags, SocketType};
use rustix::thread::{move_into_link_name_space, LinkNameSpaceType};

use crate::failure::{Outcome, Step};
use crate::plan::Network;
use crate::sys;
use netlink::{Hardware, Netlink, Route, LO};

const BACKLOG: i32 = 1024;
const DNS: u16 = 53;

/// Brings up `lo`, and what the plan asks for beyond. The sockets in the order that the caller expects: DNS by datagram and
/// by stream where there is any, then one for each port.
pub fn open(network: Option<&Network>) -> Outcome<Vec<OwnedFd>> {
    loopback()?;
    let Some(network) = network else { return Ok(Vec::new()) };
    match network.own {
        None => {
            everything_here(network.address)?;
            sockets(network)
        }
        Some(own) => beside(network, own),
    }
}

fn loopback() -> Outcome<()> {
    let any = inet(SocketType::DGRAM).step("network.loopback")?;
    sys::loopback_up(any.as_fd()).step("network.loopback")
}

/// `lo` has `address` (names are looked up only where there is one beyond 127.0.0.1), and every other one too.
fn everything_here(address: Ipv4Addr) -> Outcome<Netlink> {
    let netlink = Netlink::open().step("network.route")?;
    netlink.address(address, LO).step("network.route")?;
    netlink.route(&Route::AllLocal { from: address }).step("network.route")?;
    Ok(netlink)
}

/// Both ends are called so, and have this number: it is the only link of its namespace beside `lo`.
const NAME: &str = "net";
const LINK: u32 = 2;
/// Of the end that the sockets are at, and of the sandbox's. Chosen locally, for one machine: bit 2 of the first byte.
const HARDWARE: [Hardware; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
/// As long as a packet of IPv4 can be: between two queues of one kernel nothing has to be cut.
const MTU: u32 = 65_535;

/// The namespace beside the sandbox's, the way there, and the sockets in it.
fn beside(network: &Network, own: Ipv4Addr) -> Outcome<Vec<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let home = rustix::fs::open("/proc/self/ns/net", flags, Mode::empty()).step("network.beside")?;
    let inside = Netlink::open().step("network.beside")?;
    sys::unshare(libc::CLONE_NEWNET).step("network.beside")?;
    loopback()?;
    let outside = everything_here(network.address)?;
    outside.pair(NAME, LINK, MTU, HARDWARE, home.as_fd()).at("network.beside", "veth").map_err(|failure| {
        failure.hint("ports from 1024 on need veth: `modprobe veth`, or a kernel with CONFIG_VETH")
    })?;
    outside.up(LINK).step("network.beside")?;
    outside.route(&Route::To { address: own, by: LINK }).step("network.beside")?;
    outside.neighbour(own, HARDWARE[1], LINK).step("network.beside")?;
    let sockets = sockets(network)?;
    move_into_link_name_space(home.as_fd(), Some(LinkNameSpaceType::Network)).step("network.beside")?;
    inside.address(own, LINK).step("network.beside")?;
    inside.up(LINK).step("network.beside")?;
    inside.neighbour(network.address, HARDWARE[0], LINK).step("network.beside")?;
    inside.route(&Route::Default { via: network.address, by: LINK, from: own }).step("network.beside")?;
    Ok(sockets)
}

fn sockets(network: &Network) -> Outcome<Vec<OwnedFd>> {
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
