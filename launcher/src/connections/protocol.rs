//! What the broker and the relay say to each other: one JSON object a packet, over one SOCK_SEQPACKET socket.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{recvmsg, send, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags};
use serde::{Deserialize, Deserializer, Serialize};

#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Descriptors: the guest's socket and the upstream's.
    Relay(Terms),
    Close {
        id: u64,
    },
    /// In answer to `wants`: so many bytes beyond those of before.
    More {
        id: u64,
        up_bytes: u64,
        down_bytes: u64,
    },
}

/// `null` is "without limit" and must be said: a limit that was forgotten is not one that was waived.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    pub id: u64,
    #[serde(deserialize_with = "said")]
    pub up_bytes: Option<u64>,
    #[serde(deserialize_with = "said")]
    pub down_bytes: Option<u64>,
    /// At a cap: ask for more, or end?
    pub asks: bool,
    #[serde(deserialize_with = "said")]
    pub idle_ms: Option<u64>,
    #[serde(deserialize_with = "said")]
    pub bytes_per_second: Option<NonZeroU64>,
}

fn said<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(from)
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Both directions came to their end.
    Closed,
    /// One side was reset, or is of no use.
    Reset,
    Cap,
    Idle,
    /// The broker asked for it, or is gone.
    Asked,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    Ended {
        id: u64,
        up: u64,
        down: u64,
        reason: Reason,
    },
    /// There is more to carry, up or down, than it was given. That direction waits.
    Wants {
        id: u64,
        up: bool,
        down: bool,
    },
}

/// Identifiers are half the numbers: one bit says which end an epoll event is of, and the last number is the control's.
pub const LARGEST_ID: u64 = u64::MAX / 2 - 1;

/// No packet is longer; a caller that sends more is not ours.
const LONGEST: usize = 1024;
/// So many events that nobody takes, and no more commands are read.
const MUCH: usize = 1024;

pub struct Control {
    socket: OwnedFd,
    backlog: VecDeque<Vec<u8>>,
}

pub struct Heard {
    pub command: Command,
    pub sockets: Vec<OwnedFd>,
    /// The kernel could not give us all descriptors: we hold too many.
    pub lacking: bool,
}

impl Control {
    pub fn new(socket: OwnedFd) -> Control {
        Control { socket, backlog: VecDeque::new() }
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub fn waits(&self) -> bool {
        !self.backlog.is_empty()
    }

    pub fn full(&self) -> bool {
        self.backlog.len() > MUCH
    }

    /// `Ok(None)`: nothing more for now. An error: the broker is gone (`PIPE`) or does not make sense.
    pub fn hear(&self) -> Result<Option<Heard>, Errno> {
        let mut bytes = [0u8; LONGEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let read = match recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            other => other?,
        };
        let mut sockets = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                sockets.extend(rights);
            }
        }
        if read.bytes == 0 {
            return Err(Errno::PIPE);
        }
        if read.flags.contains(ReturnFlags::TRUNC) {
            return Err(Errno::MSGSIZE);
        }
        let command = serde_json::from_slice(&bytes[..read.bytes]).map_err(|_| Errno::BADMSG)?;
        Ok(Some(Heard { command, sockets, lacking: read.flags.contains(ReturnFlags::CTRUNC) }))
    }

    /// Never waits: what is not taken now is kept.
    pub fn say(&mut self, event: &Event) {
        self.backlog.push_back(serde_json::to_vec(event).unwrap_or_default());
        self.flush();
    }

    pub fn flush(&mut self) {
        while let Some(packet) = self.backlog.front() {
            match send(&self.socket, packet, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS) => return,
                // Sent; or the broker is gone, which the loop sees on the same descriptor.
                Ok(_) | Err(_) => drop(self.backlog.pop_front()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Command, Terms};

    const RELAY: &str = r#"{"command":"relay","id":7,"up_bytes":1,"down_bytes":null,"asks":false,"idle_ms":null,"bytes_per_second":null}"#;

    #[test]
    fn a_limit_is_said_or_it_is_not_understood() {
        let terms =
            Terms { id: 7, up_bytes: Some(1), down_bytes: None, asks: false, idle_ms: None, bytes_per_second: None };
        assert_eq!(serde_json::from_str::<Command>(RELAY).expect("a command"), Command::Relay(terms));
        for (from, to) in [
            (r#""idle_ms":null,"#, ""),
            (r#""asks":false,"#, ""),
            (r#""idle_ms":null"#, r#""idle_ms":-1"#),
            (r#""idle_ms":null"#, r#""idle":null"#),
            (r#""bytes_per_second":null"#, r#""bytes_per_second":0"#),
            (r#""id":7"#, r#""id":7,"more":1"#),
        ] {
            assert!(serde_json::from_str::<Command>(&RELAY.replace(from, to)).is_err(), "{to}");
        }
    }
}
