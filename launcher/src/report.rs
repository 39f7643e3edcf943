//! Reports: one JSON object a line (`contracts/launcher-event.v1.schema.json`).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::Serialize;
use std::cell::RefCell;
use std::io::IoSlice;
use std::mem::MaybeUninit;

use crate::failure::Failure;

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Report<'a> {
    Started {
        pid: i32,
        mechanisms: &'a [(String, &'static str, String)],
        /// Inodes of what was made, where `keep` takes from, to mount inputs on.
        placeholders: &'a [u64],
    },
    Attempt {
        #[serde(flatten)]
        attempt: &'a Attempt,
        /// So many more like one that was reported before.
        #[serde(skip_serializing_if = "Option::is_none")]
        times: Option<u64>,
    },
    /// The sockets of the plan's `network`, which ride along in the plan's order.
    Network {
        sockets: usize,
    },
    /// Output that the program wrote and its reader's side could not take.
    OutputLost {
        errno: i32,
    },
    /// A limit ended the sandbox, or refused something within it.
    Limit {
        limit: &'static str,
    },
    Ended {
        reason: &'static str,
        code: Option<i32>,
        signal: Option<i32>,
        exit: i32,
        usage: Usage,
        errno: i32,
    },
    Removed {
        teardown_us: u64,
        processes_left: u64,
        cgroups_left: &'a [String],
    },
    Failed {
        #[serde(flatten)]
        failure: &'a Failure,
    },
    Timings {
        marks: &'a [(String, u64)],
    },
}

#[derive(Serialize, Default)]
pub struct Usage {
    pub wall_us: u64,
    pub cpu_us: u64,
    pub peak_memory_bytes: Option<u64>,
    pub peak_processes: Option<u64>,
    pub refused_forks: u64,
    pub memory_kills: u64,
    pub output_bytes: u64,
    pub disk_bytes: u64,
    pub disk_files: u64,
}

#[derive(Serialize, PartialEq, Eq, Hash)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Attempt {
    Exec { pid: u32, raw: String, resolved: Option<String>, found: bool },
    Open { pid: u32, raw: String, resolved: Option<String>, found: bool, write: bool },
    Connect { pid: u32, family: &'static str, address: String, port: u16 },
}

impl Attempt {
    /// Of its names, in bytes.
    pub fn length(&self) -> usize {
        match self {
            Attempt::Exec { raw, resolved, .. } | Attempt::Open { raw, resolved, .. } => {
                raw.len() + resolved.as_ref().map_or(0, String::len)
            }
            Attempt::Connect { address, .. } => address.len(),
        }
    }
}

/// Where reports go. Without a destination they are dropped, but for failures, which stderr gets as text.
///
/// Nothing waits here while a sandbox runs: a reader that stalls must stop neither the clock nor the limits. What it has
/// not taken is kept, and while that is much, nothing more is observed (`full`), so the sandbox waits and nothing is lost.
pub struct Reporter {
    to: Option<OwnedFd>,
    backlog: RefCell<Vec<u8>>,
}

const MUCH: usize = 256 * 1024;

impl Reporter {
    pub fn new(to: Option<OwnedFd>) -> Reporter {
        Reporter { to, backlog: RefCell::default() }
    }

    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.to.as_ref().map(|fd| fd.as_fd())
    }

    /// Is anybody listening? Spares the work of saying what nobody hears.
    pub fn heard(&self) -> bool {
        self.to.is_some()
    }

    pub fn waits(&self) -> bool {
        !self.backlog.borrow().is_empty()
    }

    pub fn full(&self) -> bool {
        self.backlog.borrow().len() > MUCH
    }

    pub fn say(&self, report: &Report<'_>) {
        if let Report::Failed { failure } = report {
            if self.to.is_none() {
                eprintln!("remit-launcher: {}: {} {}", failure.step, failure.message, failure.path);
                if let Some(hint) = &failure.hint {
                    eprintln!("  hint: {hint}");
                }
            }
        }
        if self.to.is_some() {
            self.backlog.borrow_mut().extend_from_slice(&line(report));
            self.flush(SendFlags::DONTWAIT);
        }
    }

    /// Gives the reader what it takes now.
    pub fn flush(&self, flags: SendFlags) {
        let Some(to) = &self.to else { return };
        let mut backlog = self.backlog.borrow_mut();
        while !backlog.is_empty() {
            match rustix::net::send(to, &backlog, flags | SendFlags::NOSIGNAL) {
                Ok(n) => drop(backlog.drain(..n)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The reader is gone: the monitor sees that on the same descriptor and ends the sandbox.
                Err(_) => backlog.clear(),
            }
        }
    }

    /// While the sandbox is being made: with descriptors, whole or not at all.
    pub fn give(&self, report: &Report<'_>, fds: &[OwnedFd]) -> Result<(), Errno> {
        self.flush(SendFlags::DONTWAIT);
        // Nobody to take them, or one that does not read: nothing may wait for either.
        let to = self.to.as_ref().filter(|_| !self.waits()).ok_or(Errno::NOTCONN)?;
        let bytes = line(report);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(Errno::MSGSIZE);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = sendmsg(to, &[IoSlice::new(&bytes)], &mut ancillary, flags)?;
        if sent == bytes.len() {
            Ok(())
        } else {
            Err(Errno::MSGSIZE)
        }
    }

    /// At the end, when everything is dead and there is time: everything, with a descriptor.
    pub fn hand_over(&self, report: &Report<'_>, fd: BorrowedFd<'_>) {
        self.flush(SendFlags::empty());
        let Some(to) = &self.to else { return };
        let bytes = line(report);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        let sent = sendmsg(to, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL).unwrap_or(0);
        self.backlog.borrow_mut().extend_from_slice(&bytes[sent..]);
        self.flush(SendFlags::empty());
    }
}

fn line(report: &Report<'_>) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(report).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
