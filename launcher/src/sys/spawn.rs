//! Starting a program from the init: vfork and exec, with everything prepared beforehand.

use std::ffi::{c_char, c_int, c_void, CString};
use std::os::fd::RawFd;

use rustix::io::Errno;

use super::{check, Resource};

/// Everything between fork and exec, prepared beforehand: the child shares this memory and must not allocate.
pub struct Exec {
    pub path: CString,
    argv: Vec<CString>,
    env: Vec<CString>,
    pub cwd: CString,
    pub stdio: [RawFd; 3],
    /// Make the descriptor 0 the controlling terminal of the new session.
    pub controlling_terminal: bool,
    /// Soft and hard limits, by resource.
    pub rlimits: Vec<(Resource, u64)>,
}

impl Exec {
    pub fn new(path: &str, argv: &[String], env: &[String], cwd: &str) -> Result<Exec, Errno> {
        let c = |text: &str| CString::new(text).map_err(|_| Errno::INVAL);
        let all = |texts: &[String]| texts.iter().map(|t| c(t)).collect::<Result<Vec<_>, _>>();
        Ok(Exec {
            path: c(path)?,
            argv: all(argv)?,
            env: all(env)?,
            cwd: c(cwd)?,
            stdio: [0, 1, 2],
            controlling_terminal: false,
            rlimits: Vec::new(),
        })
    }
}

struct Vfork<'a> {
    exec: &'a Exec,
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    errno: c_int,
    at: &'static str,
}

/// Starts the program as the leader of a session of its own and returns its pid once it has been executed.
/// The error names what failed: `session`, `stdio`, `terminal`, `cwd`, `rlimits` or `exec`.
///
/// CLONE_VM|CLONE_VFORK saves copying the page tables (145 us of 460). The parent sleeps until the child has executed
/// or ended, so nothing is raced; the child has a stack of its own and allocates nothing.
pub fn spawn(exec: &Exec) -> Result<i32, (&'static str, Errno)> {
    let pointers =
        |texts: &[CString]| texts.iter().map(|t| t.as_ptr()).chain([std::ptr::null()]).collect::<Vec<*const c_char>>();
    let mut call = Vfork { exec, argv: pointers(&exec.argv), env: pointers(&exec.env), errno: 0, at: "exec" };
    let mut stack = vec![0u8; 64 * 1024];
    // The stack grows down; its top is kept aligned to 16 bytes.
    let top = (stack.as_mut_ptr() as usize + stack.len()) & !15;
    // SAFETY: the child runs `vforked` on its own stack while this thread is suspended; `call` outlives it.
    let pid = unsafe {
        libc::clone(
            vforked,
            top as *mut c_void,
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw mut call).cast(),
        )
    };
    let pid = check(i64::from(pid)).map_err(|errno| ("fork", errno))? as i32;
    // The child wrote these through shared memory before it ended; volatile, as the compiler can't know.
    // SAFETY: `call` is a valid local.
    let errno = unsafe { (&raw const call.errno).read_volatile() };
    if errno == 0 {
        return Ok(pid);
    }
    // SAFETY: as above.
    let at = unsafe { (&raw const call.at).read_volatile() };
    // SAFETY: reaps the child that ended above.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    Err((at, Errno::from_raw_os_error(errno)))
}

extern "C" fn vforked(argument: *mut c_void) -> c_int {
    // SAFETY: `argument` is the `Vfork` of `spawn`, whose thread is suspended; only async-signal-safe calls follow.
    unsafe {
        let call = &mut *argument.cast::<Vfork>();
        let fail = |call: &mut Vfork, at: &'static str| -> ! {
            call.at = at;
            call.errno = *libc::__errno_location();
            libc::_exit(127)
        };
        if libc::setsid() < 0 {
            fail(call, "session");
        }
        // Move the three out of the way of each other first: one may be the number of another.
        let mut high = [0; 3];
        for (slot, fd) in high.iter_mut().zip(call.exec.stdio) {
            *slot = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 10);
            if *slot < 0 {
                fail(call, "stdio");
            }
        }
        for (number, fd) in high.iter().enumerate() {
            if libc::dup2(*fd, number as c_int) < 0 {
                fail(call, "stdio");
            }
        }
        if call.exec.controlling_terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
            fail(call, "terminal");
        }
        if libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) < 0 {
            fail(call, "stdio");
        }
        if libc::chdir(call.exec.cwd.as_ptr()) < 0 {
            fail(call, "cwd");
        }
        for (resource, value) in &call.exec.rlimits {
            let limit = libc::rlimit { rlim_cur: *value, rlim_max: *value };
            if libc::setrlimit(*resource, &limit) < 0 {
                fail(call, "rlimits");
            }
        }
        // All dispositions and the mask as a program expects them: the launcher ignores SIGPIPE and blocks what it
        // reads by descriptor.
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::execve(call.exec.path.as_ptr(), call.argv.as_ptr(), call.env.as_ptr());
        fail(call, "exec")
    }
}
