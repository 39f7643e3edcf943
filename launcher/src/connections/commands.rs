//! How connections begin and end: by the broker's commands, and with an event for each.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::connection::{self, Connection, ENDS};
use super::protocol::{Command, Event, Heard, Reason, Terms, LARGEST_ID};
use super::{Relay, CONTROL};

/// So many commands a turn: thousands of new connections must not hold up those that are there.
const COMMANDS: usize = 64;

impl Relay {
    /// What the broker says. An error ends everything.
    pub fn obey(&mut self, events: EventFlags, now: Instant) -> Result<(), Errno> {
        if events.intersects(EventFlags::HUP | EventFlags::ERR) {
            return Err(Errno::PIPE);
        }
        if events.contains(EventFlags::OUT) {
            self.control.flush();
        }
        if !events.contains(EventFlags::IN) {
            return Ok(());
        }
        for _ in 0..COMMANDS {
            let Some(heard) = self.control.hear()? else { break };
            self.command(heard, now)?;
        }
        Ok(())
    }

    fn command(&mut self, heard: Heard, now: Instant) -> Result<(), Errno> {
        let Heard { command, sockets, lacking } = heard;
        match command {
            Command::Relay(terms) if terms.id <= LARGEST_ID && !self.connections.contains_key(&terms.id) => {
                match <[OwnedFd; ENDS]>::try_from(sockets) {
                    Ok(sockets) if !lacking => self.begin(&terms, sockets, now),
                    // Not the broker's fault: it is told, and the others go on.
                    Err(some) if lacking && some.len() < ENDS => self.ended(terms.id, (0, 0), Reason::Reset),
                    _ => return Err(Errno::BADMSG),
                }
                Ok(())
            }
            Command::More { id, up_bytes, down_bytes } if sockets.is_empty() && !lacking => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.feed([up_bytes, down_bytes], now);
                    self.enqueue(id);
                }
                Ok(())
            }
            // One that is not there has just ended: the two messages crossed.
            Command::Close { id } if sockets.is_empty() && !lacking => {
                self.end(id, Reason::Asked);
                Ok(())
            }
            _ => Err(Errno::BADMSG),
        }
    }

    fn begin(&mut self, terms: &Terms, sockets: [OwnedFd; ENDS], now: Instant) {
        let Ok(ends) = connection::ends(sockets) else { return self.ended(terms.id, (0, 0), Reason::Reset) };
        let connection = Connection::new(terms, ends, now);
        let wanted = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let added = connection.sockets().into_iter().enumerate().try_for_each(|(end, socket)| {
            epoll::add(&self.epoll, socket, EventData::new_u64(terms.id << 1 | end as u64), wanted)
        });
        self.connections.insert(terms.id, connection);
        match added {
            Ok(()) => self.enqueue(terms.id),
            Err(_) => self.end(terms.id, Reason::Reset),
        }
    }

    pub fn end(&mut self, id: u64, reason: Reason) {
        let Some(connection) = self.connections.remove(&id) else { return };
        for socket in connection.sockets() {
            // Closing would not do: the caller may still hold a copy.
            let _ = epoll::delete(&self.epoll, socket);
        }
        if let Some(set) = connection.timer {
            self.timers.remove(&(set, id));
        }
        let moved = connection.moved();
        connection.end(reason);
        self.ended(id, moved, reason);
    }

    fn ended(&mut self, id: u64, (up, down): (u64, u64), reason: Reason) {
        self.control.say(&Event::Ended { id, up, down, reason });
    }

    pub fn end_all(&mut self) {
        while let Some((&id, _)) = self.connections.first_key_value() {
            self.end(id, Reason::Asked);
        }
    }

    /// Waits on the control socket for what is wanted now. Its end is always heard.
    pub fn listen(&mut self) -> Result<(), Errno> {
        let mut wanted = EventFlags::empty();
        wanted.set(EventFlags::IN, !self.control.full());
        wanted.set(EventFlags::OUT, self.control.waits());
        if wanted != self.interest {
            epoll::modify(&self.epoll, self.control.descriptor(), EventData::new_u64(CONTROL), wanted)?;
            self.interest = wanted;
        }
        Ok(())
    }
}
