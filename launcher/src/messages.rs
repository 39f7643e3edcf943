//! What the monitor (outside) and the init (inside) say to each other over one SOCK_SEQPACKET pair. Typed, one packet
//! each; descriptors ride along. A packet that can't be read, or the end of the stream, means that the other is lost.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::{de::DeserializeOwned, Deserialize, Serialize};

use crate::failure::Failure;

/// From the init.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromInit {
    /// The sockets of the plan's `network`, which ride along.
    Listening,
    /// The root stands. Descriptors: the directory that `keep` takes from, the root, the terminal's master if any.
    Ready {
        landlock_abi: u32,
        marks: Vec<(String, u64)>,
        placeholders: Vec<u64>,
    },
    /// The last filter is installed. Descriptor: the notifications' listener, if the plan observes.
    Confined,
    /// The program runs.
    Started {
        pid: i32,
    },
    /// The program could not be executed: the answer of a shell, not a failure of set-up.
    NotExecuted {
        errno: i32,
    },
    Failed(Failure),
    /// The program ended (not its descendants).
    Ended {
        code: Option<i32>,
        signal: Option<i32>,
        cpu_us: u64,
        peak_kib: u64,
    },
}

/// From the monitor.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromMonitor {
    /// The ids are mapped: go on.
    Mapped,
    /// The limits are in force. Descriptors, in version 1: where the init moves itself in.
    Limited,
    /// Send this signal to the program's process group.
    Signal(i32),
}

/// What one packet of such a pair may hold: some ten thousand placeholders.
const LONGEST: usize = 256 * 1024;

pub fn send<M: Serialize>(socket: impl AsFd, message: &M, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let bytes = serde_json::to_vec(message).map_err(|_| Errno::INVAL)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}

/// `Ok(None)`: the other end is gone.
pub fn receive<M: DeserializeOwned>(socket: impl AsFd) -> Result<Option<(M, Vec<OwnedFd>)>, Errno> {
    let mut bytes = vec![0u8; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let read = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            // A reset is said once, before what was queued: the other closed with something of ours unread.
            Err(Errno::INTR | Errno::CONNRESET) => continue,
            other => break other?,
        }
    };
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if read.bytes == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(&bytes[..read.bytes]).map_err(|_| Errno::BADMSG)?;
    Ok(Some((message, fds)))
}
