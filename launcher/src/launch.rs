//! From a plan to an init at work: pipes, cgroups, namespaces, ids. What fails here has started nothing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::net::{socketpair, AddressFamily, SocketFlags, SocketType};
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::{pidfd_send_signal, set_parent_process_death_signal, Signal};

use crate::failure::{Failure, Outcome, Step};
use crate::marks::Marks;
use crate::messages::{receive, send, FromInit, FromMonitor};
use crate::monitor::{Monitor, PATIENCE, SIGNALS};
use crate::plan::{Cgroup, Plan, Stdio};
use crate::relay::Relay;
use crate::repeats::Repeats;
use crate::report::Reporter;
use crate::sys::Forked;
use crate::{cgroup, control, idmap, init, sources, sys, watchdog};

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
    if let (Some(uid), Some(gid)) = (plan.identity.host_uid, plan.identity.host_gid) {
        // The guest's own, as an ordinary user's are: it opens them again by /dev/stdin, /dev/stdout and /dev/stderr.
        for pipe in [&in_r, &out_w, &err_w] {
            rustix::fs::fchown(pipe, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).step("stdio")?;
        }
    }
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
    pub fn start(plan: &'a Plan, reporter: &'a Reporter, began: Instant) -> Outcome<Monitor<'a>> {
        let mut marks = Marks::new(began);
        marks.mark("plan");
        sys::ignore_sigpipe();
        let signals = sys::signal_descriptor(&SIGNALS).step("signals")?;
        // The caller's death is the sandbox's. (The control socket's end says it too, for callers that only detach.)
        set_parent_process_death_signal(Some(Signal::TERM)).step("die_with_parent")?;
        let as_root = plan.identity.host_uid.is_some();
        let pipes = pipes(plan)?;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).step("report")?;
        marks.mark("pipes");
        let mut held = None;
        match Monitor::begin(plan, as_root, &mut marks, &mut held, &ours, theirs, pipes.inside) {
            Ok((pid, pidfd)) => {
                marks.mark("limited");
                let deadline = plan.limits.wall_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
                Ok(Monitor {
                    plan,
                    reporter,
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
                    spoke: false,
                    early: Vec::new(),
                    first: Some(plan.command.path.as_str()),
                    next_look: Instant::now(),
                    repeats: Repeats::default(),
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
    fn begin(
        plan: &'a Plan,
        as_root: bool,
        marks: &mut Marks,
        held: &mut Option<cgroup::Held<'a>>,
        ours: &OwnedFd,
        theirs: OwnedFd,
        stdio: Option<[OwnedFd; 3]>,
    ) -> Outcome<(i32, OwnedFd)> {
        let sources = if as_root { Some(sources::open(plan)?) } else { None };
        // Version 2 is born into its cgroup; version 1's are made while the init makes the root.
        let (now, later) = match &plan.cgroup {
            Some(cgroup) if cgroup.version == 2 => (Some(cgroup), None),
            other => (None, other.as_ref()),
        };
        *held = now.map(cgroup::Held::create).transpose()?;
        if held.is_some() {
            marks.mark("cgroups made");
        }
        let birthplace = held.as_ref().map(cgroup::Held::birthplace).transpose()?;
        let flags = libc::CLONE_NEWNET
            | libc::CLONE_NEWUSER
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS;
        match sys::clone_into(flags, birthplace.as_ref().map(|fd| fd.as_fd())).step("namespaces")? {
            Forked::Child => {
                init::run(init::Start { plan, socket: theirs, sources, stdio, as_root, began: marks.began() })
            }
            Forked::Parent { pid, pidfd } => {
                drop((theirs, stdio, sources));
                marks.mark("cloned");
                if let Err(failure) = Monitor::settle(plan, pid, later, marks, held, ours) {
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

    /// What the init waits for: its ids, then its limits.
    fn settle(
        plan: &Plan,
        pid: i32,
        later: Option<&'a Cgroup>,
        marks: &mut Marks,
        held: &mut Option<cgroup::Held<'a>>,
        ours: &OwnedFd,
    ) -> Outcome<()> {
        idmap::map_sandbox(pid, &plan.identity)?;
        marks.mark("mapped");
        send(ours, &FromMonitor::Mapped, &[]).step("report")?;
        let mut doors = Vec::new();
        if let Some(cgroup) = later {
            let made = held.insert(cgroup::Held::create(cgroup)?);
            doors = made.doors()?;
            marks.mark("cgroups made");
        }
        let doors: Vec<_> = doors.iter().map(AsFd::as_fd).collect();
        send(ours, &FromMonitor::Limited, &doors).step("report")
    }
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
