//! One direction of a connection. What the reader does not take stays where it is, in the kernel's buffer of the sender's
//! socket: it is looked at (MSG_PEEK), written, and as much as was written is then dropped (MSG_TRUNC). So nothing is ever
//! held here, a slow reader slows the sender by TCP's own window, and what is counted is what was written.
//!
//! splice(2) would copy less (a bare loop of it was a fifth faster over loopback), but what is in a pipe can't be put back:
//! each direction whose reader stalls would keep a pipe of its own, full of pages that count for no socket.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{connect_unspec, recv, send, shutdown, sockopt, RecvFlags, SendFlags, Shutdown};

use super::protocol::Reason;

/// The most that is carried at once; also the size of the one buffer.
pub const MOST: usize = 128 * 1024;
/// To begin with, and for a reader that takes little: what is looked at and not taken was copied for nothing.
const LEAST: usize = 16 * 1024;

/// One socket of a connection, and what is known of it. Edge-triggered: each is believed until a call says otherwise.
pub struct End {
    pub socket: OwnedFd,
    readable: bool,
    writable: bool,
    pub failed: bool,
}

impl End {
    /// A lingering time of zero from the start: however this process ends, the kernel resets what it held.
    ///
    /// The descriptors' status flags are the caller's too and stay as they are; each call says that it doesn't wait.
    pub fn new(socket: OwnedFd) -> Result<End, Errno> {
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        // Not for every kind of socket, and not needed by it then. Whoever wrote has decided when to send; and urgent
        // data stay in their place, or what is looked at would not be what is dropped.
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        let _ = sockopt::set_socket_oobinline(&socket, true);
        Ok(End { socket, readable: true, writable: true, failed: false })
    }

    pub fn note(&mut self, events: EventFlags) {
        self.readable |= events.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP);
        self.writable |= events.intersects(EventFlags::OUT | EventFlags::HUP);
        self.failed |= events.contains(EventFlags::ERR);
    }

    /// Tells the peer at once, even where the caller still holds a copy of the descriptor.
    pub fn reset(self) {
        if connect_unspec(&self.socket).is_err() {
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
    }

    /// After both directions ended: what is still on its way is delivered.
    pub fn close(self) {
        let _ = sockopt::set_socket_linger(&self.socket, None);
    }
}

pub struct Flow {
    pub moved: u64,
    cap: Option<u64>,
    asks: bool,
    /// At its cap, with more to carry.
    starved: bool,
    size: usize,
    ended: bool,
}

impl Flow {
    /// `asks`: at its cap it waits for more, where it would else be an error.
    pub fn new(cap: Option<u64>, asks: bool) -> Flow {
        Flow { moved: 0, cap, asks, starved: false, size: LEAST, ended: false }
    }

    pub fn starved(&self) -> bool {
        self.starved
    }

    pub fn feed(&mut self, bytes: u64) {
        self.cap = self.cap.map(|cap| cap.saturating_add(bytes));
        self.starved &= bytes == 0;
    }

    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Could it move something now, as far as is known?
    pub fn ready(&self, from: &End, to: &End) -> bool {
        !self.ended && !self.starved && from.readable && to.writable && !to.failed
    }

    /// Moves one piece of at most `allowed` bytes and says how much that was. An end that fails is marked so; the error is
    /// that there is more than the cap allows.
    pub fn pump(&mut self, from: &mut End, to: &mut End, buffer: &mut [u8], allowed: usize) -> Result<usize, Reason> {
        if allowed == 0 || !self.ready(from, to) {
            return Ok(0);
        }
        let left = self.cap.map_or(usize::MAX, |cap| usize::try_from(cap - self.moved).unwrap_or(usize::MAX));
        // At the cap one more byte is one too many, the end is fine: so one is looked at.
        let room = self.size.min(buffer.len()).min(allowed).min(left).max(1);
        let seen = loop {
            match recv(&from.socket, &mut buffer[..room], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
                Ok((_, seen)) => break seen,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                Err(_) => from.failed = true,
            }
            from.readable = false;
            return Ok(0);
        };
        if seen == 0 {
            from.readable = false;
            // After an error was said once, a read answers as if at the end: that is none to be passed on.
            self.ended = !from.failed;
            to.failed |= self.ended && shutdown(&to.socket, Shutdown::Write).is_err();
            return Ok(0);
        }
        if left == 0 {
            self.starved = self.asks;
            return if self.asks { Ok(0) } else { Err(Reason::Cap) };
        }
        let written = self.write(to, &buffer[..seen]);
        self.size = if written < seen {
            written.max(LEAST)
        } else if seen == self.size {
            (self.size * 2).min(MOST)
        } else {
            self.size
        };
        from.failed |= !consume(from, &mut buffer[..written]);
        Ok(written)
    }

    /// As much as `to` takes now.
    fn write(&mut self, to: &mut End, bytes: &[u8]) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            match send(&to.socket, &bytes[written..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(n) => written += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    to.writable = false;
                    break;
                }
                Err(_) => {
                    to.failed = true;
                    break;
                }
            }
        }
        self.moved += written as u64;
        written
    }
}

/// Drops what was seen and written, fewer at a time where urgent data begin. False: it is not there, as if somebody else
/// read this socket.
fn consume(from: &End, written: &mut [u8]) -> bool {
    let mut dropped = 0;
    while dropped < written.len() {
        match recv(&from.socket, &mut written[dropped..], RecvFlags::TRUNC | RecvFlags::DONTWAIT) {
            Ok((_, n)) if n > 0 => dropped += n,
            Err(Errno::INTR) => {}
            Ok(_) | Err(_) => return false,
        }
    }
    true
}
