//! One connection: two ends, two directions, and what it may cost.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::flow::{End, Flow};
use super::protocol::{Reason, Terms};
use super::rate::Bucket;

/// The guest's end and the upstream's; as an index too.
pub const ENDS: usize = 2;

pub struct Connection {
    ends: [End; ENDS],
    /// Up, from end 0 to end 1, and down.
    flows: [Flow; ENDS],
    /// For which directions more was asked for, and not given yet.
    asked: [bool; ENDS],
    rate: Option<Bucket>,
    idle: Option<Duration>,
    active: Instant,
    first: usize,
    /// When it wants to be stepped though nothing happens; kept by the loop.
    pub timer: Option<Instant>,
    /// Is it in the loop's queue?
    pub queued: bool,
}

pub enum Step {
    /// There is more to move: again, after the others.
    Again,
    /// Until something happens, or until then.
    Wait(Option<Instant>),
}

impl Connection {
    pub fn new(terms: &Terms, ends: [End; ENDS], now: Instant) -> Connection {
        Connection {
            ends,
            flows: [Flow::new(terms.up_bytes, terms.asks), Flow::new(terms.down_bytes, terms.asks)],
            asked: [false; ENDS],
            rate: terms.bytes_per_second.map(|rate| Bucket::new(rate, now)),
            idle: terms.idle_ms.map(Duration::from_millis),
            active: now,
            first: 0,
            timer: None,
            queued: false,
        }
    }

    pub fn sockets(&self) -> [BorrowedFd<'_>; ENDS] {
        [self.ends[0].socket.as_fd(), self.ends[1].socket.as_fd()]
    }

    pub fn note(&mut self, end: usize, events: EventFlags) {
        self.ends[end].note(events);
    }

    /// Bytes up and down.
    pub fn moved(&self) -> (u64, u64) {
        (self.flows[0].moved, self.flows[1].moved)
    }

    /// Up and down: what is to be asked for now, once each time.
    pub fn wants(&mut self) -> Option<[bool; ENDS]> {
        let starved = [self.flows[0].starved(), self.flows[1].starved()];
        let new = [starved[0] && !self.asked[0], starved[1] && !self.asked[1]];
        self.asked = starved;
        (new != [false, false]).then_some(new)
    }

    pub fn feed(&mut self, bytes: [u64; ENDS], now: Instant) {
        for (direction, bytes) in bytes.into_iter().enumerate().filter(|(_, bytes)| *bytes > 0) {
            self.flows[direction].feed(bytes);
            self.asked[direction] = false;
        }
        // Waiting for an answer is not idling.
        self.active = now;
    }

    /// Moves what can be moved now, a bounded amount. An error: it is over.
    pub fn step(&mut self, buffer: &mut [u8], now: Instant) -> Result<Step, Reason> {
        // With a rate the first one takes what there is, so they take turns.
        self.first ^= 1;
        let mut moved = 0;
        for direction in [self.first, self.first ^ 1] {
            moved += self.direction(direction, buffer, now)?;
        }
        if moved > 0 {
            self.active = now;
        }
        let [guest, upstream] = &self.ends;
        let ready = [self.flows[0].ready(guest, upstream), self.flows[1].ready(upstream, guest)];
        // What came before a reset is passed on as far as the other side takes it.
        if (guest.failed || upstream.failed) && !(guest.failed && ready[0] || upstream.failed && ready[1]) {
            return Err(Reason::Reset);
        }
        if self.flows.iter().all(Flow::ended) {
            return Err(Reason::Closed);
        }
        if ready != [false, false] {
            let Some(bucket) = self.rate.as_mut() else { return Ok(Step::Again) };
            if bucket.holds(now) > 0 {
                return Ok(Step::Again);
            }
            // What the rate holds up is not idle: that counts from when it may go on.
            self.active = bucket.wakes();
            return Ok(Step::Wait(Some(self.active)));
        }
        let idle = self.idle.and_then(|idle| self.active.checked_add(idle));
        match idle {
            Some(until) if now >= until => Err(Reason::Idle),
            _ => Ok(Step::Wait(idle)),
        }
    }

    fn direction(&mut self, direction: usize, buffer: &mut [u8], now: Instant) -> Result<usize, Reason> {
        let [guest, upstream] = &mut self.ends;
        let (from, to) = if direction == 0 { (guest, upstream) } else { (upstream, guest) };
        let mut moved = 0;
        // Twice: the second time mostly finds nothing, which spares a turn of the loop.
        for _ in 0..2 {
            let allowed = self.rate.as_mut().map_or(usize::MAX, |bucket| bucket.holds(now));
            let piece = self.flows[direction].pump(from, to, buffer, allowed)?;
            if let Some(bucket) = &mut self.rate {
                bucket.take(piece);
            }
            moved += piece;
        }
        Ok(moved)
    }

    /// Tells both sides how it ended. Both sockets have left the epoll set.
    pub fn end(self, reason: Reason) {
        for end in self.ends {
            match reason {
                Reason::Closed => end.close(),
                _ => end.reset(),
            }
        }
    }
}

/// The two sockets of a connection, made ready.
pub fn ends(sockets: [OwnedFd; ENDS]) -> Result<[End; ENDS], Errno> {
    let [guest, upstream] = sockets;
    // Both before either is judged: one that fails must not keep the other from being reset.
    let (guest, upstream) = (End::new(guest), End::new(upstream));
    Ok([guest?, upstream?])
}
