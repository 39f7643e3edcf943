//! The words of rtnetlink(7) that the sandbox's networks are made with.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{socket_with, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const NLA_F_NESTED: u16 = 0x8000;
/// linux/veth.h and linux/if_link.h; libc has none of them.
const VETH_INFO_PEER: u16 = 1;
const RTNH_F_ONLINK: u32 = 4;
const NUD_PERMANENT: u16 = 0x80;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
pub const LO: u32 = 1;
/// The address of a link.
pub type Hardware = [u8; 6];

/// Speaks of the network namespace that it was opened in, whatever namespace the process is in later.
pub struct Netlink(OwnedFd);

/// Where a route leads.
pub enum Route {
    /// Every address of IPv4 is this namespace's own, and answers come from `from` where nothing else is asked.
    AllLocal { from: Ipv4Addr },
    /// To one address, ahead of `AllLocal`.
    To { address: Ipv4Addr, by: u32 },
    /// Everything that is not known otherwise, by a neighbour that needs no route of its own.
    Default { via: Ipv4Addr, by: u32, from: Ipv4Addr },
}

impl Netlink {
    pub fn open() -> Result<Netlink, Errno> {
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).map(Netlink)
    }

    /// `ip address add ADDRESS/32 dev LINK`.
    pub fn address(&self, address: Ipv4Addr, link: u32) -> Result<(), Errno> {
        // struct ifaddrmsg: family, prefix length, flags, scope, index.
        let mut body = vec![libc::AF_INET as u8, 32, 0, libc::RT_SCOPE_UNIVERSE];
        body.extend(link.to_ne_bytes());
        attribute(&mut body, libc::IFA_LOCAL, &address.octets());
        attribute(&mut body, libc::IFA_ADDRESS, &address.octets());
        self.request(libc::RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &body)
    }

    pub fn route(&self, route: &Route) -> Result<(), Errno> {
        let (length, table, scope, kind) = match route {
            Route::AllLocal { .. } => (0, libc::RT_TABLE_LOCAL, libc::RT_SCOPE_HOST, libc::RTN_LOCAL),
            // The local table is asked first; there the longer prefix wins.
            Route::To { .. } => (32, libc::RT_TABLE_LOCAL, libc::RT_SCOPE_LINK, libc::RTN_UNICAST),
            Route::Default { .. } => (0, libc::RT_TABLE_MAIN, libc::RT_SCOPE_UNIVERSE, libc::RTN_UNICAST),
        };
        // struct rtmsg: family, lengths of destination and source, tos, table, protocol, scope, type, flags.
        let mut body = vec![libc::AF_INET as u8, length, 0, 0, table, libc::RTPROT_BOOT, scope, kind];
        let flags = if matches!(route, Route::Default { .. }) { RTNH_F_ONLINK } else { 0 };
        body.extend(flags.to_ne_bytes());
        match route {
            Route::AllLocal { from } => {
                attribute(&mut body, libc::RTA_OIF, &LO.to_ne_bytes());
                attribute(&mut body, libc::RTA_PREFSRC, &from.octets());
            }
            Route::To { address, by } => {
                attribute(&mut body, libc::RTA_DST, &address.octets());
                attribute(&mut body, libc::RTA_OIF, &by.to_ne_bytes());
            }
            Route::Default { via, by, from } => {
                attribute(&mut body, libc::RTA_GATEWAY, &via.octets());
                attribute(&mut body, libc::RTA_OIF, &by.to_ne_bytes());
                attribute(&mut body, libc::RTA_PREFSRC, &from.octets());
            }
        }
        self.request(libc::RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &body)
    }

    /// `ip neighbour add ADDRESS lladdr HARDWARE dev LINK nud permanent`: nothing is asked, so that no setting of the host
    /// for answers (`arp_ignore` and its like, which new namespaces take over) can be in the way.
    pub fn neighbour(&self, address: Ipv4Addr, hardware: Hardware, link: u32) -> Result<(), Errno> {
        // struct ndmsg: family, padding, index, state, flags, type.
        let mut body = vec![libc::AF_INET as u8, 0, 0, 0];
        body.extend(link.to_ne_bytes());
        body.extend(NUD_PERMANENT.to_ne_bytes());
        body.extend([0, libc::RTN_UNICAST]);
        attribute(&mut body, libc::NDA_DST, &address.octets());
        attribute(&mut body, libc::NDA_LLADDR, &hardware);
        self.request(libc::RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_EXCL, &body)
    }

    /// `ip link add NAME index INDEX mtu MTU address HERE type veth peer name NAME … address THERE netns NAMESPACE`.
    pub fn pair(
        &self,
        name: &str,
        index: u32,
        mtu: u32,
        [here, there]: [Hardware; 2],
        namespace: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        let mut peer = link(index, false);
        named(&mut peer, name, mtu, there);
        attribute(&mut peer, libc::IFLA_NET_NS_FD, &(namespace.as_raw_fd() as u32).to_ne_bytes());
        let mut data = Vec::new();
        attribute(&mut data, VETH_INFO_PEER | NLA_F_NESTED, &peer);
        let mut info = Vec::new();
        attribute(&mut info, libc::IFLA_INFO_KIND, b"veth");
        attribute(&mut info, libc::IFLA_INFO_DATA | NLA_F_NESTED, &data);
        let mut body = link(index, false);
        named(&mut body, name, mtu, here);
        attribute(&mut body, libc::IFLA_LINKINFO | NLA_F_NESTED, &info);
        self.request(libc::RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &body)
    }

    /// `ip link set INDEX addrgenmode none` and `up`: with no address of IPv6 that the kernel would make by itself.
    pub fn up(&self, index: u32) -> Result<(), Errno> {
        let mut inet6 = Vec::new();
        attribute(&mut inet6, IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
        let mut families = Vec::new();
        attribute(&mut families, libc::AF_INET6 as u16 | NLA_F_NESTED, &inet6);
        let mut body = link(index, false);
        attribute(&mut body, libc::IFLA_AF_SPEC | NLA_F_NESTED, &families);
        match self.request(libc::RTM_NEWLINK, 0, &body) {
            // A kernel without IPv6 makes none.
            Ok(()) | Err(Errno::AFNOSUPPORT) => {}
            Err(errno) => return Err(errno),
        }
        self.request(libc::RTM_NEWLINK, 0, &link(index, true))
    }

    /// Sends one request and reads its answer.
    fn request(&self, kind: u16, flags: u16, body: &[u8]) -> Result<(), Errno> {
        let length = u32::try_from(16 + body.len()).map_err(|_| Errno::INVAL)?;
        let mut message = Vec::with_capacity(16 + body.len());
        message.extend(length.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
        message.extend([0; 8]);
        message.extend(body);
        rustix::net::send(&self.0, &message, SendFlags::empty())?;
        let mut answer = [0u8; 1024];
        let (_, n) = rustix::net::recv(&self.0, &mut answer[..], RecvFlags::empty())?;
        // struct nlmsgerr after the header: a negative errno, 0 for done.
        let error = answer.get(16..20).filter(|_| n >= 20).and_then(|b| b.try_into().ok()).map(i32::from_ne_bytes);
        match error {
            Some(0) => Ok(()),
            Some(error) => Err(Errno::from_raw_os_error(-error)),
            None => Err(Errno::BADMSG),
        }
    }
}

/// struct ifinfomsg: family, padding, type, index, flags, which flags.
fn link(index: u32, up: bool) -> Vec<u8> {
    let flag = if up { libc::IFF_UP as u32 } else { 0 };
    let mut body = vec![libc::AF_UNSPEC as u8, 0, 0, 0];
    for word in [index, flag, flag] {
        body.extend(word.to_ne_bytes());
    }
    body
}

fn named(body: &mut Vec<u8>, name: &str, mtu: u32, hardware: Hardware) {
    attribute(body, libc::IFLA_ADDRESS, &hardware);
    attribute(body, libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
    attribute(body, libc::IFLA_MTU, &mtu.to_ne_bytes());
}

/// Padded to four bytes, which its length does not count.
fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend((4 + value.len() as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}
