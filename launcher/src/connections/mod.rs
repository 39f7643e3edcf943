//! `remit-launcher relay`: carries bytes between sockets that a broker connected and judged. It opens nothing, resolves
//! nothing and decides nothing; each connection has the terms it came with.
//!
//! One thread, one epoll set, edge-triggered: a socket is added once and never changed. What can move stands in a queue and
//! moves a bounded piece each turn, so that no connection starves another. When the broker is gone or makes no sense, all
//! connections are reset.

mod commands;
mod connection;
mod flow;
mod protocol;
mod rate;
mod shed;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::Timespec;
use rustix::io::Errno;

use connection::{Connection, Step};
use protocol::{Control, Event};

const CONTROL: u64 = u64::MAX;

/// Runs until the broker is gone. The exit status: 0 then, 1 if it did not make sense.
pub fn run(control: OwnedFd) -> i32 {
    let ended = shed::all(&control).and_then(|()| Relay::new(control)).map(|mut relay| {
        let error = relay.turns();
        relay.end_all();
        error
    });
    match ended {
        Ok(Errno::PIPE | Errno::CONNRESET) => 0,
        Ok(error) | Err(error) => {
            eprintln!("remit-launcher: relay: {}", std::io::Error::from(error));
            1
        }
    }
}

struct Relay {
    epoll: OwnedFd,
    control: Control,
    /// What is waited for on the control socket, as the kernel knows it.
    interest: EventFlags,
    connections: BTreeMap<u64, Connection>,
    /// Those to step.
    queue: VecDeque<u64>,
    /// Those to step at a time. Exactly the `timer` of each connection.
    timers: BTreeSet<(Instant, u64)>,
    buffer: Vec<u8>,
}

impl Relay {
    fn new(control: OwnedFd) -> Result<Relay, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &control, EventData::new_u64(CONTROL), EventFlags::IN)?;
        Ok(Relay {
            epoll,
            control: Control::new(control),
            interest: EventFlags::IN,
            connections: BTreeMap::new(),
            queue: VecDeque::new(),
            timers: BTreeSet::new(),
            buffer: vec![0; flow::MOST],
        })
    }

    /// Until it is over; the error says why.
    fn turns(&mut self) -> Errno {
        let mut events = Vec::with_capacity(256);
        loop {
            if let Err(error) = self.turn(&mut events) {
                return error;
            }
        }
    }

    fn turn(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), Errno> {
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), self.timeout().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let mut control = EventFlags::empty();
        for event in events.iter() {
            let (data, flags) = (event.data.u64(), event.flags);
            if data == CONTROL {
                control = flags;
            } else if let Some(connection) = self.connections.get_mut(&(data >> 1)) {
                connection.note((data & 1) as usize, flags);
                self.enqueue(data >> 1);
            }
        }
        let now = Instant::now();
        self.obey(control, now)?;
        while let Some(&(at, id)) = self.timers.first().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, id));
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.timer = None;
            }
            self.enqueue(id);
        }
        for _ in 0..self.queue.len() {
            if let Some(id) = self.queue.pop_front() {
                self.step(id, now);
            }
        }
        self.listen()
    }

    /// Until when to wait: not at all if there is work, or until the first timer.
    fn timeout(&self) -> Option<Timespec> {
        let wait = match self.timers.first() {
            _ if !self.queue.is_empty() => Duration::ZERO,
            Some((at, _)) => at.saturating_duration_since(Instant::now()),
            None => return None,
        };
        // Whole milliseconds, rounded up: the kernel's own measure. A day is as good as longer.
        let ms = wait.as_nanos().div_ceil(1_000_000).min(86_400_000) as i64;
        Some(Timespec { tv_sec: ms / 1000, tv_nsec: (ms % 1000) * 1_000_000 })
    }

    fn enqueue(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id).filter(|connection| !connection.queued) {
            connection.queued = true;
            self.queue.push_back(id);
        }
    }

    fn step(&mut self, id: u64, now: Instant) {
        let Some(connection) = self.connections.get_mut(&id).filter(|connection| connection.queued) else { return };
        connection.queued = false;
        let stepped = connection.step(&mut self.buffer, now);
        if let (Ok(_), Some([up, down])) = (&stepped, connection.wants()) {
            self.control.say(&Event::Wants { id, up, down });
        }
        match stepped {
            Ok(Step::Again) => self.enqueue(id),
            Ok(Step::Wait(until)) => {
                // An earlier one stays: it costs one step in vain, not two changes for every byte.
                if let Some(until) = until.filter(|until| connection.timer.is_none_or(|set| *until < set)) {
                    if let Some(set) = connection.timer.replace(until) {
                        self.timers.remove(&(set, id));
                    }
                    self.timers.insert((until, id));
                }
            }
            Err(reason) => self.end(id, reason),
        }
    }
}
