//! The outside: makes the cgroups, starts the init, then serves one loop until nothing of the sandbox is left.
//! Every way out of the loop kills the whole tree first; nothing here ever lets a program go on unsupervised.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{socketpair, AddressFamily, SocketFlags, SocketType};
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::{pidfd_send_signal, set_parent_process_death_signal, Signal};

use crate::ending::{Ending, Reason};
use crate::failure::{Failure, Outcome, Step};
use crate::init;
use crate::mechanisms::mechanisms;
use crate::messages::{receive, send, FromInit, FromMonitor};
use crate::plan::{Plan, Stdio};
use crate::relay::{Progress, Relay};
use crate::report::{Report, Reporter, Usage};
use crate::sys::Forked;
use crate::terminal::RawTerminal;
use crate::{cgroup, control, idmap, notify, sources, sys, watchdog};

/// How often limits that the kernel does not enforce by itself are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How long to wait for the cgroups to become empty after the last process has died.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long output that was already written may take to reach its reader after a kill.
const DRAIN: Duration = Duration::from_secs(1);

const SIGNALS: [i32; 8] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGTSTP,
    libc::SIGWINCH,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

pub struct Monitor<'a> {
    plan: &'a Plan,
    reporter: &'a Reporter,
    began: Instant,
    marks: Vec<(String, u64)>,
    held: Option<cgroup::Held<'a>>,
    pid: i32,
    pidfd: OwnedFd,
    socket: OwnedFd,
    signals: OwnedFd,
    input: Option<Relay>,
    output: Vec<Relay>,
    listener: Option<OwnedFd>,
    kept: Option<OwnedFd>,
    view: Option<OwnedFd>,
    terminal: Option<(OwnedFd, RawTerminal)>,
    control: control::Control,
    ending: Option<Ending>,
    failure: Option<Failure>,
    deadline: Option<Instant>,
    grace: Option<Instant>,
    peak: watchdog::Sample,
    cpu_us: u64,
    started: bool,
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

struct Pipes {
    inside: Option<[OwnedFd; 3]>,
    input: Option<Relay>,
    output: Vec<Relay>,
}

/// The sandbox's own pipes. An empty input (closed, or /dev/null) is an end of file at once.
fn pipes(plan: &Plan) -> Outcome<Pipes> {
    if plan.stdio == Stdio::Tty {
        return Ok(Pipes { inside: None, input: None, output: Vec::new() });
    }
    let make = || pipe_with(PipeFlags::CLOEXEC).step("stdio");
    let ((in_r, in_w), (out_r, out_w), (err_r, err_w)) = (make()?, make()?, make()?);
    let stdin = rustix::stdio::stdin();
    let empty = match rustix::fs::fstat(stdin) {
        Ok(found) => found.st_rdev == libc::makedev(1, 3) && found.st_mode & libc::S_IFMT == libc::S_IFCHR,
        Err(_) => true,
    };
    let input = if empty { None } else { Some(Relay::inward(stdin, in_w).step("stdio")?) };
    let outward = |pipe, to: BorrowedFd<'_>| match Relay::outward(pipe, to) {
        Ok(relay) => Ok(Some(relay)),
        // The caller closed it: so does the sandbox.
        Err(Errno::BADF) => Ok(None),
        Err(errno) => Err(errno).step("stdio"),
    };
    let out = outward(out_r, rustix::stdio::stdout())?;
    let err = outward(err_r, rustix::stdio::stderr())?;
    Ok(Pipes { inside: Some([in_r, out_w, err_w]), input, output: out.into_iter().chain(err).collect() })
}

impl<'a> Monitor<'a> {
    fn start(plan: &'a Plan, reporter: &'a Reporter, began: Instant) -> Outcome<Monitor<'a>> {
        let mut marks = vec![("plan".to_owned(), began.elapsed().as_micros() as u64)];
        let mut mark = |name: &str| marks.push((name.to_owned(), began.elapsed().as_micros() as u64));
        sys::ignore_sigpipe();
        let signals = sys::signal_descriptor(&SIGNALS).step("signals")?;
        // The caller's death is the sandbox's. (The control socket's end says it too, for callers that only detach.)
        set_parent_process_death_signal(Some(Signal::TERM)).step("die_with_parent")?;
        let as_root = plan.identity.host_uid.is_some();
        let pipes = pipes(plan)?;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).step("report")?;
        let held = plan.cgroup.as_ref().map(cgroup::Held::create).transpose()?;
        mark("cgroup");
        match Monitor::clone(plan, as_root, began, held.as_ref(), &ours, theirs, pipes.inside) {
            Ok((pid, pidfd)) => {
                mark("mapped");
                let deadline = plan.limits.wall_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
                Ok(Monitor {
                    plan,
                    reporter,
                    began,
                    marks,
                    held,
                    pid,
                    pidfd,
                    socket: ours,
                    signals,
                    input: pipes.input,
                    output: pipes.output,
                    listener: None,
                    kept: None,
                    view: None,
                    terminal: None,
                    control: control::Control::default(),
                    ending: None,
                    failure: None,
                    deadline,
                    grace: None,
                    peak: watchdog::Sample::default(),
                    cpu_us: 0,
                    started: false,
                })
            }
            Err(failure) => {
                if let Some(held) = held {
                    held.kill();
                    held.remove(PATIENCE);
                }
                Err(failure)
            }
        }
    }

    /// Starts the init and takes it to where it waits for nothing more than its own work.
    fn clone(
        plan: &Plan,
        as_root: bool,
        began: Instant,
        held: Option<&cgroup::Held<'_>>,
        ours: &OwnedFd,
        theirs: OwnedFd,
        stdio: Option<[OwnedFd; 3]>,
    ) -> Outcome<(i32, OwnedFd)> {
        let sources = if as_root { Some(sources::open(plan)?) } else { None };
        let birthplace = held.map(cgroup::Held::birthplace).transpose()?.flatten();
        let doors = held.map(cgroup::Held::doors).transpose()?.unwrap_or_default();
        let flags = libc::CLONE_NEWUSER
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS;
        match sys::clone_into(flags, birthplace.as_ref().map(|fd| fd.as_fd())).step("namespaces")? {
            Forked::Child => init::run(init::Start { plan, socket: theirs, sources, stdio, doors, as_root, began }),
            Forked::Parent { pid, pidfd } => {
                drop((theirs, stdio, sources, doors));
                let mapped = idmap::map_sandbox(pid, &plan.identity)
                    .and_then(|()| send(ours, &FromMonitor::Mapped, &[]).step("report"));
                if let Err(failure) = mapped {
                    // What the init says of its own failure is nearer to the cause than a broken pipe here.
                    let _ = pidfd_send_signal(&pidfd, Signal::KILL);
                    let nearer = last_word(ours);
                    let _ = sys::reap(true);
                    return Err(nearer.unwrap_or(failure));
                }
                Ok((pid, pidfd))
            }
        }
    }

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
        let control = self.reporter.descriptor().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let listener = self.listener.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN));
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
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);

        if ready[2] {
            self.signals();
        }
        if has_listener && ready[3 + usize::from(has_control)] {
            if let (Some(listener), Some(view)) = (&self.listener, &self.view) {
                if !notify::attend(listener.as_fd(), view, self.reporter) {
                    self.listener = None;
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
        self.look_at_limits();
        if ready[1] && !ready[0] && self.ending.is_none() && self.failure.is_none() {
            // The init is dead and has said nothing: the kernel's killer, or somebody's kill -9.
            self.end(if self.killed_for_memory() { Reason::Memory } else { Reason::Lost });
        }
        Ok(())
    }

    fn timeout(&self) -> Option<Timespec> {
        let now = Instant::now();
        let ends = [self.deadline, self.grace].into_iter().flatten().map(|end| end.saturating_duration_since(now));
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
            FromInit::Ready { landlock_abi, marks } => {
                self.marks.extend(marks);
                (self.kept, self.view) = (fds.next(), fds.next());
                if let Some(master) = fds.next() {
                    self.attach_terminal(master);
                }
                let mechanisms = mechanisms(self.plan, landlock_abi);
                self.reporter.say(&Report::Started { pid: self.pid, mechanisms: &mechanisms });
            }
            FromInit::Confined => {
                self.listener = fds.next();
                self.mark("confined");
            }
            FromInit::Started { .. } => {
                self.started = true;
                self.mark("executed");
            }
            FromInit::NotExecuted { errno } => self.ending = Some(Ending::not_executed(errno)),
            FromInit::Failed(failure) => self.failure = Some(failure),
            FromInit::Ended { code, signal, cpu_us, peak_kib } => {
                self.mark("program ended");
                self.cpu_us = self.cpu_us.max(cpu_us);
                self.peak.memory_bytes = self.peak.memory_bytes.max(peak_kib * 1024);
                let memory = signal == Some(libc::SIGKILL) && self.killed_for_memory();
                let cpu = signal == Some(libc::SIGXCPU);
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

    fn mark(&mut self, name: &str) {
        self.marks.push((name.into(), self.began.elapsed().as_micros() as u64));
    }

    fn output_bytes(&self) -> u64 {
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
        } else if self.output[which - 1].step(left) == Progress::OverCap {
            self.end(Reason::Output);
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
                    self.pass_on(libc::SIGCONT);
                }
                signal => {
                    self.pass_on(signal);
                    if matches!(signal, libc::SIGTERM | libc::SIGHUP) {
                        let grace = Duration::from_millis(self.plan.limits.grace_ms);
                        self.grace.get_or_insert_with(|| Instant::now() + grace);
                    }
                }
            }
        }
    }

    fn pass_on(&mut self, signal: i32) {
        if !self.started {
            // Nothing runs yet that could handle it.
            if !matches!(signal, libc::SIGSTOP | libc::SIGCONT | libc::SIGUSR1 | libc::SIGUSR2) {
                self.end(Reason::Killed);
            }
        } else if send(&self.socket, &FromMonitor::Signal(signal), &[]).is_err() {
            self.end(Reason::Lost);
        }
    }

    fn obey(&mut self) {
        let Some(fd) = self.reporter.descriptor() else { return };
        match self.control.read(fd) {
            Ok(commands) => {
                for command in commands {
                    match command {
                        control::Command::Signal { signal } => self.pass_on(signal),
                        control::Command::Kill => self.end(Reason::Killed),
                        control::Command::Release => {}
                    }
                }
            }
            // The caller is gone (or talks nonsense): nobody supervises, so nothing goes on.
            Err(_) => self.end(Reason::Lost),
        }
    }

    fn killed_for_memory(&self) -> bool {
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
        if self.ending.is_some() || !self.ticks() || !self.started {
            return;
        }
        // Version 1 has no memory.oom.group: one kill by the kernel becomes the end of the whole tree here.
        if self.plan.cgroup.as_ref().is_some_and(|c| c.version == 1) && self.killed_for_memory() {
            return self.end(Reason::Memory);
        }
        if self.plan.limits.watchdog {
            if let Some(view) = &self.view {
                let seen = watchdog::sample(view, self.plan.limits.memory_bytes);
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
        if self.plan.limits.cpu_time_ms.is_some_and(|cap| self.cpu_us > cap * 1000) {
            self.end(Reason::CpuTime);
        }
    }

    /// Kills what is left, carries the last output, reads the accounts, hands over what is kept, removes the rest.
    fn finish(mut self) -> (i32, Vec<(String, u64)>) {
        let teardown = Instant::now();
        let wall_us = self.began.elapsed().as_micros() as u64;
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        if let Some(held) = &self.held {
            held.kill();
        }
        // A descendant waiting for an answer dies with the listener's end.
        self.listener = None;
        while matches!(sys::reap(true), Err(Errno::INTR)) {}
        self.mark("tree dead");
        self.drain();
        drop(self.terminal.take());
        let usage = self.usage(wall_us);
        if let Some(failure) = &self.failure {
            self.reporter.say(&Report::Failed { failure });
        }
        let ending = match &self.failure {
            Some(_) => Ending::setup_failed(),
            None => self.ending.take().unwrap_or(Ending::killed(Reason::Lost)),
        };
        if let Some(limit) = ending.limit() {
            self.reporter.say(&Report::Limit { limit });
        }
        let report = Report::Ended {
            reason: ending.reason.name(),
            code: ending.code,
            signal: ending.signal,
            exit: ending.exit,
            usage,
            errno: ending.errno,
        };
        match self.kept.take().filter(|_| self.plan.keep && self.failure.is_none()) {
            Some(kept) => {
                self.reporter.hand_over(&report, kept.as_fd());
                if let Some(fd) = self.reporter.descriptor() {
                    self.control.wait_for_release(fd);
                }
            }
            None => self.reporter.say(&report),
        }
        self.view = None;
        let processes_left = u64::from(rustix::process::test_kill_process(pid(self.pid)).is_ok());
        let left = self.held.take().map(|held| held.remove(PATIENCE)).unwrap_or_default();
        self.mark("removed");
        self.reporter.say(&Report::Removed {
            teardown_us: teardown.elapsed().as_micros() as u64,
            processes_left,
            cgroups_left: &left,
        });
        (ending.exit, self.marks)
    }

    /// All writers are dead: what is in the pipes is all there will be.
    fn drain(&mut self) {
        let killed = self.ending.as_ref().is_some_and(Ending::was_killed);
        let end = killed.then(|| Instant::now() + DRAIN);
        loop {
            let waiting: Vec<usize> =
                (0..self.output.len()).filter(|i| !self.output[*i].is_done()).collect();
            let mut fds: Vec<PollFd<'_>> = waiting
                .iter()
                .filter_map(|i| self.output[*i].interest().map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)))
                .collect();
            if fds.is_empty() || end.is_some_and(|end| Instant::now() >= end) {
                return;
            }
            let slice = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            if !matches!(poll(&mut fds, Some(&slice)), Ok(_) | Err(Errno::INTR)) {
                return;
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            for (slot, which) in waiting.into_iter().enumerate() {
                if ready[slot] {
                    let left = self.plan.limits.output_bytes.map(|cap| cap.saturating_sub(self.output_bytes()));
                    if self.output[which].step(left) == Progress::OverCap {
                        // More than the cap was already on its way when the program ended.
                        self.ending = Some(Ending::killed(Reason::Output));
                        return;
                    }
                }
            }
        }
    }

    fn usage(&self, wall_us: u64) -> Usage {
        let held = self.held.as_ref();
        let disk = self.kept.as_ref().and_then(|fd| rustix::fs::fstatvfs(fd).ok());
        Usage {
            wall_us,
            cpu_us: held.and_then(cgroup::Held::cpu_us).unwrap_or(self.cpu_us),
            peak_memory_bytes: held
                .and_then(cgroup::Held::peak_memory)
                .or((self.peak.memory_bytes > 0).then_some(self.peak.memory_bytes)),
            peak_processes: held
                .and_then(cgroup::Held::peak_processes)
                .or((self.peak.processes > 0).then_some(self.peak.processes)),
            refused_forks: held.map_or(0, cgroup::Held::refused_forks),
            memory_kills: held.map_or(0, cgroup::Held::memory_kills),
            output_bytes: self.output_bytes(),
            disk_bytes: disk.as_ref().map_or(0, |d| (d.f_blocks - d.f_bfree) * d.f_frsize),
            disk_files: disk.as_ref().map_or(0, |d| d.f_files - d.f_ffree),
        }
    }
}

fn pid(raw: i32) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(raw).unwrap_or(rustix::process::Pid::INIT)
}

/// The failure that a dying init still managed to say.
fn last_word(socket: &OwnedFd) -> Option<Failure> {
    loop {
        match receive::<FromInit>(socket) {
            Ok(Some((FromInit::Failed(failure), _))) => return Some(failure),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}
