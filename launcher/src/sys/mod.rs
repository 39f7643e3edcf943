//! All of the launcher's `unsafe`: system calls that rustix has no safe face for. Each function is one call (or the few
//! that make one act) with owned descriptors in and out; nothing here knows what a plan is.

mod spawn;

pub use spawn::{spawn, Exec};

use std::ffi::{c_char, c_int, c_void, CStr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;

fn check(result: i64) -> Result<i64, Errno> {
    if result < 0 {
        // SAFETY: reading errno of this thread.
        Err(Errno::from_raw_os_error(unsafe { *libc::__errno_location() }))
    } else {
        Ok(result)
    }
}

#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

pub enum Forked {
    Child,
    Parent { pid: i32, pidfd: OwnedFd },
}

/// libc's own constant does not fit its type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// clone3 as fork(2) with namespaces. `cgroup`: born into it (version 2), which costs no migration.
///
/// The launcher has one thread, so the copied address space is consistent in the child.
pub fn clone_into(flags: c_int, cgroup: Option<BorrowedFd<'_>>) -> Result<Forked, Errno> {
    let mut pidfd: c_int = -1;
    let mut args = CloneArgs {
        flags: flags as u32 as u64 | libc::CLONE_PIDFD as u64,
        pidfd: &raw mut pidfd as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..Default::default()
    };
    if let Some(fd) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = fd.as_raw_fd() as u64;
    }
    // SAFETY: args outlives the call and has the size given; without a stack the child goes on as after fork.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) })?;
    if pid == 0 {
        return Ok(Forked::Child);
    }
    // SAFETY: the kernel has just made this descriptor for us (it is close-on-exec).
    Ok(Forked::Parent { pid: pid as i32, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
}

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// mount_setattr on what `dir` and `path` name (an empty path: `dir` itself).
pub fn mount_setattr(
    dir: BorrowedFd<'_>,
    path: &CStr,
    recursive: bool,
    set: u64,
    userns: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let attr = MountAttr {
        set: if userns.is_some() { set | libc::MOUNT_ATTR_IDMAP } else { set },
        clear: 0,
        propagation: 0,
        userns: userns.map_or(0, |fd| fd.as_raw_fd() as u64),
    };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: attr outlives the call and has the size given.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    })
    .map(drop)
}

/// One instruction of a seccomp filter: code, jump if true, jump if false, operand.
pub type Instruction = (u16, u8, u8, u32);

/// Installs one seccomp filter. `notify`: returns the descriptor on which its matches are reported.
pub fn seccomp(program: &[Instruction], notify: bool) -> Result<Option<OwnedFd>, Errno> {
    let instructions: Vec<libc::sock_filter> =
        program.iter().map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k }).collect();
    let prog = libc::sock_fprog { len: instructions.len() as u16, filter: instructions.as_ptr().cast_mut() };
    let install = |flags: libc::c_ulong| {
        // SAFETY: prog and its instructions outlive the call.
        check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const prog) })
    };
    if !notify {
        return install(0).map(|_| None);
    }
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // WAIT_KILLABLE_RECV (Linux 5.19): a signal does not make the program repeat a call that is being looked at.
    let fd = match install(listener | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
        Err(Errno::INVAL) => install(listener),
        other => other,
    }?;
    // Linux 6.6: who waits for the answer is woken on the processor that gives it. An older kernel says EINVAL.
    // SAFETY: a plain call with a number.
    unsafe { libc::ioctl(fd as RawFd, NOTIF_SET_FLAGS as _, NOTIF_SYNC_WAKE_UP) };
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
}

pub use libc::seccomp_notif as Notification;

const NOTIF_RECV: u64 = 0xc050_2100;
const NOTIF_SEND: u64 = 0xc018_2101;
const NOTIF_ID_VALID: u64 = 0x4008_2102;
const NOTIF_SET_FLAGS: u64 = 0x4008_2104;
const NOTIF_SYNC_WAKE_UP: u64 = 1;

pub fn notification_receive(fd: BorrowedFd<'_>) -> Result<Notification, Errno> {
    // SAFETY: a zeroed notification is what the kernel asks for, and it fills it.
    unsafe {
        let mut notification: Notification = std::mem::zeroed();
        check(i64::from(libc::ioctl(fd.as_raw_fd(), NOTIF_RECV as _, &raw mut notification)))?;
        Ok(notification)
    }
}

/// Is the call still waiting? Asked after reading its memory: its pid may be another's by then.
pub fn notification_valid(fd: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: id outlives the call.
    unsafe { libc::ioctl(fd.as_raw_fd(), NOTIF_ID_VALID as _, &raw const id) == 0 }
}

/// Lets the call go on to the kernel's own checks. This never grants anything: the mount table, Landlock, the network
/// namespace and the other filters decide, on arguments that may have changed since they were read here.
pub fn notification_continue(fd: BorrowedFd<'_>, id: u64) -> Result<(), Errno> {
    let answer =
        libc::seccomp_notif_resp { id, val: 0, error: 0, flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 };
    // SAFETY: answer outlives the call.
    check(i64::from(unsafe { libc::ioctl(fd.as_raw_fd(), NOTIF_SEND as _, &raw const answer) })).map(drop)
}

/// Bytes of another process's memory; fewer than asked for where a page ends the readable part.
pub fn read_memory(pid: i32, address: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: buffer.len() };
    // SAFETY: both vectors outlive the call; the remote address is only ever used in the other process.
    check(unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) } as i64)
        .map(|n| n as usize)
}

/// Brings up `lo` of the current network namespace.
pub fn loopback_up(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: a zeroed ifreq with a short name; the kernel reads the flags.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as c_char;
        request.ifr_name[1] = b'o' as c_char;
        request.ifr_ifru.ifru_flags = libc::IFF_UP as i16;
        check(i64::from(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request))).map(drop)
    }
}

/// Sets real, effective and saved ids, group first, and drops supplementary groups where the namespace allows it
/// (an ordinary user's map must deny setgroups; the kernel then answers EPERM, which is that user's own state).
pub fn become_user(uid: u32, gid: u32, drop_groups: bool) -> Result<(), Errno> {
    // SAFETY: plain calls; the raw system calls change this thread, and there is only one.
    unsafe {
        if drop_groups {
            check(libc::syscall(libc::SYS_setgroups, 0usize, std::ptr::null::<u32>()))?;
        }
        check(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
        check(libc::syscall(libc::SYS_setresuid, uid, uid, uid)).map(drop)
    }
}

/// What `libc` calls a resource: glibc's is unsigned, musl's is not.
#[cfg(target_env = "gnu")]
pub type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
pub type Resource = c_int;

pub fn get_hard_rlimit(resource: Resource) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills limit.
    unsafe { libc::getrlimit(resource, &mut limit) };
    limit.rlim_max
}

/// A descriptor on which `signals` are read; they are blocked first.
pub fn signal_descriptor(signals: &[c_int]) -> Result<OwnedFd, Errno> {
    // SAFETY: the set is initialised by sigemptyset; the descriptor is made for us.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        check(i64::from(libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut())))?;
        let fd = check(i64::from(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// The number of a signal read from a signal descriptor.
pub fn read_signal(fd: BorrowedFd<'_>) -> Option<c_int> {
    // SAFETY: a zeroed record of the right size, filled by read.
    unsafe {
        let mut info: libc::signalfd_siginfo = std::mem::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        let n = libc::read(fd.as_raw_fd(), (&raw mut info).cast(), size);
        (n == size as isize).then_some(info.ssi_signo as c_int)
    }
}

/// The launcher writes to pipes that readers close; that is data (EPIPE), not a reason to die.
pub fn ignore_sigpipe() {
    // SAFETY: sets a disposition.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

pub fn kill(pid: i32, signal: c_int) -> Result<(), Errno> {
    // SAFETY: a plain call.
    check(i64::from(unsafe { libc::kill(pid, signal) })).map(drop)
}

pub struct Ended {
    pub pid: i32,
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

/// Reaps one child, of any kind; `None` when none has ended. `Errno::CHILD`: there are none left.
pub fn reap(block: bool) -> Result<Option<Ended>, Errno> {
    let mut status = 0;
    // SAFETY: status outlives the call.
    let pid =
        check(i64::from(unsafe { libc::waitpid(-1, &raw mut status, if block { 0 } else { libc::WNOHANG }) }))? as i32;
    if pid == 0 {
        return Ok(None);
    }
    let exited = libc::WIFEXITED(status);
    Ok(Some(Ended {
        pid,
        code: exited.then(|| libc::WEXITSTATUS(status)),
        signal: (!exited).then(|| libc::WTERMSIG(status)),
    }))
}

/// Cpu time (microseconds) and peak resident size (KiB) of the children that were reaped.
pub fn children_usage() -> (u64, u64) {
    // SAFETY: the kernel fills usage.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        let us = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
        (us(usage.ru_utime) + us(usage.ru_stime), usage.ru_maxrss as u64)
    }
}

pub fn set_dumpable(on: bool) -> Result<(), Errno> {
    // SAFETY: a plain call.
    check(i64::from(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, c_int::from(on), 0, 0, 0) })).map(drop)
}

/// An `OwnedFd` from a number given on the command line, if it is open. Taken once.
pub fn adopt(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: only asks; then takes ownership of an open descriptor that the caller gave us by number.
    unsafe {
        if number < 3 || libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) < 0 {
            return None;
        }
        Some(OwnedFd::from_raw_fd(number))
    }
}

/// Gives the terminal `to` the size of the terminal `from`.
pub fn terminal_size(from: BorrowedFd<'_>, to: BorrowedFd<'_>) {
    // SAFETY: winsize is filled by the first call and read by the second; failures leave the size as it is.
    unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        if libc::ioctl(from.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) == 0 {
            libc::ioctl(to.as_raw_fd(), libc::TIOCSWINSZ, &raw const size);
        }
    }
}

pub fn unshare(flags: c_int) -> Result<(), Errno> {
    // SAFETY: namespaces alone; no memory or descriptors are concerned.
    check(i64::from(unsafe { libc::unshare(flags) })).map(drop)
}

/// The newest Landlock ABI of this kernel; 0 where it is absent or switched off.
pub fn landlock_version() -> u32 {
    const VERSION: u32 = 1;
    // SAFETY: asks for the version; the other arguments are null as the call demands.
    let found = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, VERSION) };
    u32::try_from(found).unwrap_or(0)
}

/// Closes every descriptor but `keep`.
///
/// For the init, which starts as a copy of the launcher and must hold nothing of the host's (it never returns, so no
/// `OwnedFd` of the copied frames is ever dropped), and for the relay, which owns nothing yet but what it keeps.
pub fn close_all_but(keep: &[RawFd]) {
    let mut keep: Vec<u32> = keep.iter().filter(|fd| **fd >= 0).map(|fd| *fd as u32).collect();
    keep.sort_unstable();
    let mut next = 0;
    // SAFETY: see above.
    let close = |first: u32, last: u32| unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    for fd in keep {
        if fd > next {
            close(next, fd - 1);
        }
        next = fd + 1;
    }
    close(next, u32::MAX);
}

/// Ends this process at once, without unwinding or handlers.
pub fn exit_now(code: c_int) -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(code) }
}
