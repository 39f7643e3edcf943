//! The inside: process 1 of the sandbox. It makes the root, gives up everything, starts the program under the same
//! restrictions as itself, reaps what is orphaned and passes on signals. When it ends, the kernel ends the rest.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{set_parent_process_death_signal, Signal};

use crate::failure::{Failure, Outcome, Step};
use crate::marks::Marks;
use crate::messages::{receive, send, FromInit, FromMonitor};
use crate::plan::{Plan, Stdio};
use crate::sources::{self, Sources};
use crate::{cgroup, confine, network, root, sys};

/// How much later than the monitor the init enforces the wall clock itself, should the monitor hang.
const SECOND_LOCK: Duration = Duration::from_secs(2);

pub struct Start<'a> {
    pub plan: &'a Plan,
    pub socket: OwnedFd,
    /// Made by root beforehand; an ordinary user's are made here.
    pub sources: Option<Sources>,
    /// The program's ends of its pipes; none with a terminal.
    pub stdio: Option<[OwnedFd; 3]>,
    pub as_root: bool,
    pub began: Instant,
}

pub fn run(start: Start<'_>) -> ! {
    let socket = start.socket.as_raw_fd();
    let mut keep = vec![socket];
    keep.extend(start.stdio.iter().flatten().map(|fd| fd.as_raw_fd()));
    keep.extend(start.sources.iter().flatten().flatten().map(|fd| fd.as_raw_fd()));
    sys::close_all_but(&keep);
    let wall = start.plan.limits.wall_ms.map(|ms| Instant::now() + Duration::from_millis(ms) + SECOND_LOCK);
    match begin(&start) {
        Ok(Some(program)) => attend(&start.socket, program, wall),
        Ok(None) => {}
        Err(failure) => {
            let _ = send(&start.socket, &FromInit::Failed(failure), &[]);
        }
    }
    sys::exit_now(0)
}

/// Everything up to the running program. `None`: it could not be executed, and the monitor has been told.
fn begin(start: &Start<'_>) -> Outcome<Option<i32>> {
    let Start { plan, socket, .. } = start;
    let mut marks = Marks::new(start.began);
    marks.mark("init: born");
    // What needs no mapped ids runs while the monitor maps them.
    let sockets = network::open(plan.network.as_ref())?;
    if !sockets.is_empty() {
        let fds: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        send(socket, &FromInit::Listening, &fds).step("network.listen")?;
    }
    drop(sockets);
    rustix::system::sethostname(plan.hostname.as_bytes()).step("hostname")?;
    let own = if start.sources.is_none() { Some(sources::open(plan)?) } else { None };
    let sources = start.sources.as_ref().or(own.as_ref()).map_or(&[][..], Vec::as_slice);
    marks.mark("init: sources");
    expect(socket, |m| matches!(m, FromMonitor::Mapped))?;
    sys::become_user(plan.identity.uid, plan.identity.gid, start.as_root).step("identity")?;
    // After the change of ids, which clears it.
    set_parent_process_death_signal(Some(Signal::KILL)).step("die_with_parent")?;
    marks.mark("init: identity");
    let made = root::build(plan, sources, || {
        marks.mark("init: root");
        let doors = expect(socket, |m| matches!(m, FromMonitor::Limited))?;
        cgroup::enter(&doors)?;
        // After the move: the namespace's root is the cgroup that it is made in.
        sys::unshare(libc::CLONE_NEWCGROUP).step("namespaces")
    })?;
    marks.mark("init: limits");
    confine::capabilities()?;
    marks.mark("init: capabilities");
    let terminal = made.terminal.as_ref().map(open_slave).transpose()?;
    let landlock_abi = confine::landlock(&plan.landlock)?;
    marks.mark("init: landlock");
    let fds: Vec<_> =
        [Some(&made.kept), Some(&made.view), made.terminal.as_ref()].into_iter().flatten().map(AsFd::as_fd).collect();
    let placeholders = made.placeholders.clone();
    let ready = FromInit::Ready { landlock_abi, marks: marks.as_slice().to_vec(), placeholders };
    send(socket, &ready, &fds).step("report")?;
    drop(fds);
    drop(made);

    let command = &plan.command;
    let mut exec = sys::Exec::new(&command.path, &command.argv, &command.env, &command.cwd).step("command")?;
    exec.rlimits = rlimits(plan);
    exec.controlling_terminal = plan.stdio == Stdio::Tty;
    exec.stdio = match (&terminal, &start.stdio) {
        (Some(slave), _) => [slave.as_raw_fd(); 3],
        (None, Some(pipes)) => [pipes[0].as_raw_fd(), pipes[1].as_raw_fd(), pipes[2].as_raw_fd()],
        (None, None) => return Err(Failure::new("stdio", "neither a terminal nor pipes")),
    };
    let listener = confine::seccomp(&plan.seccomp)?;
    let fds: Vec<_> = listener.iter().map(AsFd::as_fd).collect();
    send(socket, &FromInit::Confined, &fds).step("report")?;
    drop(fds);
    drop(listener);
    marks.mark("init: confined");
    // Before anything of the guest's runs: under /proc it can read nothing of its parent, which holds nothing anyway.
    sys::set_dumpable(false).step("dumpable")?;
    let mut keep = vec![socket.as_raw_fd()];
    keep.extend(exec.stdio);
    sys::close_all_but(&keep);
    std::mem::forget((terminal, own));
    match sys::spawn(&exec) {
        Ok(pid) => {
            // The program's ends of its pipes: kept open here they would never reach their end.
            sys::close_all_but(&[socket.as_raw_fd()]);
            marks.mark("init: executed");
            send(socket, &FromInit::Started { pid }, &[]).step("report")?;
            Ok(Some(pid))
        }
        Err(("exec", errno)) => {
            let _ = send(socket, &FromInit::NotExecuted { errno: errno.raw_os_error() }, &[]);
            Ok(None)
        }
        Err((at, errno)) => Err(errno).at(at, if at == "cwd" { &command.cwd } else { &command.path }),
    }
}

/// The next word of the monitor, which must be `wanted`, and the descriptors that come with it.
fn expect(socket: &OwnedFd, wanted: impl Fn(&FromMonitor) -> bool) -> Outcome<Vec<OwnedFd>> {
    match receive::<FromMonitor>(socket).step("report")? {
        Some((message, fds)) if wanted(&message) => Ok(fds),
        // The monitor is gone or out of step: nothing may start.
        _ => sys::exit_now(0),
    }
}

fn open_slave(master: &OwnedFd) -> Outcome<OwnedFd> {
    rustix::pty::unlockpt(master).step("terminal")?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let name = rustix::pty::ptsname(master, Vec::new()).step("terminal")?;
    rustix::fs::open(name, flags, Mode::empty()).step("terminal")
}

fn rlimits(plan: &Plan) -> Vec<(sys::Resource, u64)> {
    let wanted = [
        (libc::RLIMIT_NOFILE, Some(plan.rlimits.nofile)),
        (libc::RLIMIT_NPROC, Some(plan.rlimits.nproc)),
        (libc::RLIMIT_CORE, Some(plan.rlimits.core)),
        (libc::RLIMIT_CPU, plan.rlimits.cpu),
        (libc::RLIMIT_MEMLOCK, Some(plan.rlimits.memlock)),
    ];
    // Never above what the caller has: raising it needs a privilege that hosts withhold.
    let lower = |(resource, value): (sys::Resource, Option<u64>)| {
        value.map(|value| (resource, value.min(sys::get_hard_rlimit(resource))))
    };
    wanted.into_iter().filter_map(|(r, v)| lower((r, v))).collect()
}

/// Until the program ends: reap, pass on signals, and end if the monitor is lost or the wall clock is past.
fn attend(socket: &OwnedFd, program: i32, wall: Option<Instant>) {
    let Ok(children) = sys::signal_descriptor(&[libc::SIGCHLD]) else { return };
    loop {
        // Before waiting: the program may have ended before its signal could be seen.
        loop {
            match sys::reap(false) {
                Ok(Some(ended)) if ended.pid == program => {
                    let (cpu_us, peak_kib) = sys::children_usage();
                    let last = FromInit::Ended { code: ended.code, signal: ended.signal, cpu_us, peak_kib };
                    let _ = send(socket, &last, &[]);
                    return;
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        let patience = wall.map(|end| end.saturating_duration_since(Instant::now()));
        if patience.is_some_and(|p| p.is_zero()) {
            return;
        }
        let timeout = patience.map(|p| Timespec { tv_sec: p.as_secs() as i64, tv_nsec: p.subsec_nanos().into() });
        let mut fds = [PollFd::new(&children, PollFlags::IN), PollFd::new(socket, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        let (child, message) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
        if child {
            while sys::read_signal(children.as_fd()).is_some() {}
        }
        if message {
            match receive::<FromMonitor>(socket) {
                Ok(Some((FromMonitor::Signal(signal), _))) => {
                    let _ = sys::kill(-program, signal);
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }
}
