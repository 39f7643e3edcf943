//! The outside: makes the cgroups, starts the init, then serves one loop until nothing of the sandbox is left.
//! Every way out of the loop kills the whole tree first; nothing here ever lets a program go on unsupervised.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::ending::{Ending, Reason};
use crate::failure::Failure;
use crate::marks::Marks;
use crate::mechanisms::mechanisms;
use crate::messages::{receive, send, FromInit, FromMonitor};
use crate::plan::Plan;
use crate::relay::{Progress, Relay};
use crate::repeats::Repeats;
use crate::report::{Report, Reporter};
use crate::terminal::RawTerminal;
use crate::{cgroup, control, notify, sys, watchdog};

/// How often limits that the kernel does not enforce by itself are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How long to wait for the cgroups to become empty after the last process has died.
pub const PATIENCE: Duration = Duration::from_secs(2);
pub const SIGNALS: [i32; 9] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGTSTP,
    libc::SIGCONT,
    libc::SIGWINCH,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

pub struct Monitor<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) reporter: &'a Reporter,
    pub(crate) marks: Marks,
    pub(crate) held: Option<cgroup::Held<'a>>,
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    pub(crate) socket: OwnedFd,
    pub(crate) signals: OwnedFd,
    pub(crate) input: Option<Relay>,
    pub(crate) output: Vec<Relay>,
    pub(crate) listener: Option<OwnedFd>,
    pub(crate) kept: Option<OwnedFd>,
    pub(crate) view: Option<OwnedFd>,
    pub(crate) terminal: Option<(OwnedFd, RawTerminal)>,
    pub(crate) control: control::Control,
    pub(crate) ending: Option<Ending>,
    pub(crate) failure: Option<Failure>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) grace: Option<Instant>,
    pub(crate) peak: watchdog::Sample,
    pub(crate) cpu_us: u64,
    pub(crate) started: bool,
    /// Has the program said anything yet?
    pub(crate) spoke: bool,
    pub(crate) early: Vec<i32>,
    /// The program of the plan, until its start has been reported.
    pub(crate) first: Option<&'a str>,
    pub(crate) next_look: Instant,
    pub(crate) repeats: Repeats,
}

/// Runs the plan to its end. Returns the exit status for the caller's shell.
pub fn run(plan: &Plan, reporter: &Reporter, began: Instant, timings: bool) -> i32 {
    let outcome = Monitor::start(plan, reporter, began).map(Monitor::serve);
    match outcome {
        Ok((exit, marks)) => {
            if timings {
                reporter.say(&Report::Timings { marks: &marks });
                print_timings(&marks);
            }
            exit
        }
        Err(failure) => {
            reporter.say(&Report::Failed { failure: &failure });
            reporter.flush(SendFlags::empty());
            125
        }
    }
}

fn print_timings(marks: &[(String, u64)]) {
    let mut sorted: Vec<_> = marks.to_vec();
    sorted.sort_by_key(|(_, at)| *at);
    let mut last = 0;
    for (name, at) in sorted {
        eprintln!("{at:>8} us  +{:<6} {name}", at - last);
        last = at;
    }
}

impl<'a> Monitor<'a> {
    fn serve(mut self) -> (i32, Vec<(String, u64)>) {
        while self.ending.is_none() && self.failure.is_none() {
            if let Err(errno) = self.turn() {
                self.failure = Some(Failure::new("monitor", std::io::Error::from(errno).to_string()));
            }
        }
        self.finish()
    }

    fn end(&mut self, reason: Reason) {
        if self.ending.is_none() {
            self.ending = Some(Ending::killed(reason));
        }
    }

    /// One wait and what it brings.
    fn turn(&mut self) -> Result<(), Errno> {
        let timeout = self.timeout();
        let mut fds = vec![
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::new(&self.pidfd, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
        ];
        let wanted = if self.reporter.waits() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let control = self.reporter.descriptor().map(|fd| PollFd::from_borrowed_fd(fd, wanted));
        let listener = self.listener.as_ref().filter(|_| !self.reporter.full());
        let listener = listener.map(|fd| PollFd::new(fd, PollFlags::IN));
        let (has_control, has_listener) = (control.is_some(), listener.is_some());
        fds.extend(control.into_iter().chain(listener));
        let relays_at = fds.len();
        let relays: Vec<usize> = (0..=self.output.len())
            .filter(|i| {
                let relay = if *i == 0 { self.input.as_ref() } else { self.output.get(i - 1) };
                relay.and_then(Relay::interest).is_some_and(|(fd, flags)| {
                    // A job in the background must not read its terminal.
                    let ready = *i != 0 || control::may_read_terminal();
                    if ready {
                        fds.push(PollFd::from_borrowed_fd(fd, flags));
                    }
                    ready
                })
            })
            .collect();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let mut ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if has_control {
            // Room for reports is not a word from the caller.
            ready[3] = fds[3].revents().intersects(!PollFlags::OUT);
        }
        drop(fds);

        self.reporter.flush(SendFlags::DONTWAIT);
        if ready[2] {
            self.signals();
        }
        if has_listener && ready[3 + usize::from(has_control)] {
            if let (Some(listener), Some(view)) = (&self.listener, &self.view) {
                let first = self.first.take();
                if let Some(attempt) = notify::attend(listener.as_fd(), view, self.reporter.heard(), first) {
                    self.repeats.say(attempt, self.reporter);
                }
            }
        }
        for (slot, relay) in relays.into_iter().enumerate() {
            if ready[relays_at + slot] {
                self.carry(relay);
            }
        }
        if ready[0] {
            self.hear();
        }
        if has_control && ready[3] {
            self.obey();
        }
        if self.repeats.due().is_some_and(|due| Instant::now() >= due) {
            self.repeats.tell(self.reporter);
        }
        self.look_at_limits();
        // The init is dead: what it said is all there will be, and its end is the last of it.
        while ready[1] && self.ending.is_none() && self.failure.is_none() {
            self.hear();
        }
        Ok(())
    }

    fn timeout(&self) -> Option<Timespec> {
        let now = Instant::now();
        let ends = [self.deadline, self.grace, self.repeats.due()]
            .into_iter()
            .flatten()
            .map(|end| end.saturating_duration_since(now));
        let tick = self.ticks().then_some(TICK);
        let wait = ends.chain(tick).min()?;
        Some(Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() })
    }

    /// Is there a limit that must be looked at from time to time?
    fn ticks(&self) -> bool {
        let v1 = self.plan.cgroup.as_ref().is_some_and(|c| c.version == 1);
        self.plan.limits.watchdog || self.plan.limits.cpu_time_ms.is_some() || v1
    }

    fn hear(&mut self) {
        let (message, mut fds) = match receive::<FromInit>(&self.socket) {
            Ok(Some(heard)) => heard,
            Ok(None) => {
                let reason = if self.killed_for_memory() { Reason::Memory } else { Reason::Lost };
                return self.end(reason);
            }
            Err(errno) => {
                self.failure = Some(Failure::new("report", std::io::Error::from(errno).to_string()));
                return;
            }
        };
        let mut fds = fds.drain(..);
        match message {
            FromInit::Ready { landlock_abi, marks, placeholders } => {
                self.marks.join(marks);
                (self.kept, self.view) = (fds.next(), fds.next());
                if let Some(master) = fds.next() {
                    self.attach_terminal(master);
                }
                self.marks.mark("ready");
                let skipped = self.held.as_ref().map_or(&[][..], |held| &held.skipped);
                let mechanisms = mechanisms(self.plan, landlock_abi, skipped);
                self.reporter.say(&Report::Started {
                    pid: self.pid,
                    mechanisms: &mechanisms,
                    placeholders: &placeholders,
                });
            }
            FromInit::Listening => {
                let sockets: Vec<OwnedFd> = fds.collect();
                if let Err(errno) = self.reporter.give(&Report::Network { sockets: sockets.len() }, &sockets) {
                    let message = std::io::Error::from(errno).to_string();
                    self.failure = Some(Failure::new("network.hand_over", message));
                }
                self.marks.mark("network handed over");
            }
            FromInit::Confined => {
                self.listener = fds.next();
                self.marks.mark("confined");
            }
            FromInit::Started { .. } => {
                self.started = true;
                for signal in std::mem::take(&mut self.early) {
                    self.pass_on(signal);
                }
                self.marks.mark("executed");
            }
            FromInit::NotExecuted { errno } => self.ending = Some(Ending::not_executed(errno)),
            FromInit::Failed(failure) => self.failure = Some(failure),
            FromInit::Ended { code, signal, cpu_us, peak_kib } => {
                self.marks.mark("program ended");
                self.cpu_us = self.cpu_us.max(cpu_us);
                self.peak.memory_bytes = self.peak.memory_bytes.max(peak_kib * 1024);
                let memory = signal == Some(libc::SIGKILL) && self.killed_for_memory();
                // Any program can send itself this signal: it tells of the limit only if that was reached.
                let used = self.held.as_ref().and_then(cgroup::Held::cpu_us).unwrap_or(0).max(self.cpu_us);
                let cpu = signal == Some(libc::SIGXCPU)
                    && self.plan.limits.cpu_time_ms.is_some_and(|cap| used >= cap.saturating_mul(1000));
                self.ending = Some(match (memory, cpu) {
                    (true, _) => Ending::killed(Reason::Memory),
                    (_, true) => Ending::killed(Reason::CpuTime),
                    _ => Ending::exited(code, signal),
                });
            }
        }
    }

    fn attach_terminal(&mut self, master: OwnedFd) {
        let stdin = rustix::stdio::stdin();
        sys::terminal_size(stdin, master.as_fd());
        let relays = rustix::io::fcntl_dupfd_cloexec(&master, 3).and_then(|to_guest| {
            let from_guest = rustix::io::fcntl_dupfd_cloexec(&master, 3)?;
            Ok((Relay::inward(stdin, to_guest)?, Relay::outward(from_guest, rustix::stdio::stdout())?))
        });
        match relays {
            Ok((input, output)) => {
                self.input = Some(input);
                self.output = vec![output];
                self.terminal = Some((master, RawTerminal::enter()));
            }
            Err(errno) => {
                self.failure = Some(Failure::new("terminal", std::io::Error::from(errno).to_string()));
            }
        }
    }

    pub(crate) fn output_bytes(&self) -> u64 {
        self.output.iter().map(|relay| relay.moved).sum()
    }

    fn carry(&mut self, which: usize) {
        let left = self.plan.limits.output_bytes.map(|cap| cap.saturating_sub(self.output_bytes()));
        if which == 0 {
            if let Some(input) = &mut self.input {
                if input.step(None) == Progress::Done {
                    self.input = None;
                }
            }
            return;
        }
        if self.output[which - 1].step(left) == Progress::OverCap {
            self.end(Reason::Output);
        }
        if !self.spoke && self.output_bytes() > 0 {
            self.spoke = true;
            self.marks.mark("first output");
        }
    }

    fn signals(&mut self) {
        while let Some(signal) = sys::read_signal(self.signals.as_fd()) {
            match signal {
                libc::SIGWINCH => {
                    if let Some((master, _)) = &self.terminal {
                        sys::terminal_size(rustix::stdio::stdin(), master.as_fd());
                    }
                }
                libc::SIGTSTP => {
                    // The job stops as a whole, and goes on as a whole.
                    self.pass_on(libc::SIGSTOP);
                    let _ = sys::kill(rustix::process::getpid().as_raw_pid(), libc::SIGSTOP);
                    // What wakes us, SIGCONT, is read next and passed on: in the foreground the terminal is read again.
                }
                signal => self.signal(signal),
            }
        }
    }

    /// A signal for the program; one that asks it to end gives it a while to do so.
    fn signal(&mut self, signal: i32) {
        self.pass_on(signal);
        if matches!(signal, libc::SIGTERM | libc::SIGHUP) {
            let grace = Duration::from_millis(self.plan.limits.grace_ms);
            self.grace.get_or_insert_with(|| Instant::now() + grace);
        }
    }

    fn pass_on(&mut self, signal: i32) {
        if !self.started {
            // The program may run already, and its first word be on its way: it gets the signal once it is known to.
            self.early.push(signal);
        } else {
            // A program that has just ended can't be told any more; how it ended is on its way.
            let _ = send(&self.socket, &FromMonitor::Signal(signal), &[]);
        }
    }

    fn obey(&mut self) {
        let Some(fd) = self.reporter.descriptor() else { return };
        match self.control.read(fd) {
            Ok(commands) => {
                for command in commands {
                    match command {
                        control::Command::Signal { signal } => self.signal(signal),
                        control::Command::Kill => self.end(Reason::Killed),
                        control::Command::Release => {}
                    }
                }
            }
            // The caller is gone (or talks nonsense): nobody supervises, so nothing goes on.
            Err(_) => self.end(Reason::Lost),
        }
    }

    pub(crate) fn killed_for_memory(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.memory_kills() > 0)
    }

    fn look_at_limits(&mut self) {
        let now = Instant::now();
        if self.deadline.is_some_and(|end| now >= end) {
            return self.end(Reason::Wall);
        }
        if self.grace.is_some_and(|end| now >= end) {
            return self.end(Reason::Killed);
        }
        if self.ending.is_some() || !self.ticks() || !self.started || now < self.next_look {
            return;
        }
        self.next_look = now + TICK;
        // Version 1 has no memory.oom.group: one kill by the kernel becomes the end of the whole tree here.
        if self.plan.cgroup.as_ref().is_some_and(|c| c.version == 1) && self.killed_for_memory() {
            return self.end(Reason::Memory);
        }
        if self.plan.limits.watchdog {
            if let Some(view) = &self.view {
                let Some(seen) = watchdog::sample(view, self.plan.limits.memory_bytes) else {
                    // What can't be looked at is not held.
                    return self.end(Reason::Lost);
                };
                self.peak.memory_bytes = self.peak.memory_bytes.max(seen.memory_bytes);
                self.peak.processes = self.peak.processes.max(seen.processes);
                self.cpu_us = self.cpu_us.max(seen.cpu_us);
                if seen.memory_bytes > self.plan.limits.memory_bytes {
                    return self.end(Reason::Memory);
                }
            }
        }
        if let Some(held) = &self.held {
            self.cpu_us = held.cpu_us().unwrap_or(self.cpu_us);
        }
        if self.plan.limits.cpu_time_ms.is_some_and(|cap| self.cpu_us > cap.saturating_mul(1000)) {
            self.end(Reason::CpuTime);
        }
    }
}
