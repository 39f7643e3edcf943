//! From a plan to an init at work: pipes, cgroups, namespaces, ids. What fails here has started nothing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{socketpair, AddressFamily, SocketFlags, SocketType};
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::{pidfd_send_signal, set_parent_process_death_signal, Signal};

use crate::failure::{Failure, Outcome, Step};
use crate::messages::{receive, send, FromInit, FromMonitor};
use crate::monitor::{Monitor, PATIENCE, SIGNALS};
use crate::plan::{Plan, Stdio};
use crate::relay::Relay;
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
