//! The network namespace, made beside the root by a process that shares this one's memory.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use rustix::io::Errno;

use super::{check, kill, loopback_up};

/// A network namespace being made by a process of its own, at the same time as the root: it takes 0.4 ms of the kernel's
/// time, and there is more than one processor.
pub struct NetworkMaker {
    pid: i32,
    /// Its memory is shared, so these must live as long as it does.
    result: Box<MakerResult>,
    _stack: Vec<u8>,
}

#[derive(Clone, Copy)]
struct MakerResult {
    namespace: c_int,
    errno: c_int,
}

/// Starts the maker. It shares this process's memory and descriptors (copying them would cost as much as is won), and so
/// calls the kernel directly, allocates nothing and writes nothing but its result.
pub fn make_network() -> Result<NetworkMaker, Errno> {
    let mut stack = vec![0u8; 32 * 1024];
    let top = (stack.as_mut_ptr() as usize + stack.len()) & !15;
    let mut result = Box::new(MakerResult { namespace: -1, errno: 0 });
    // SAFETY: `network_maker` runs on its own stack; stack and result are kept until it is reaped.
    let pid = check(i64::from(unsafe {
        libc::clone(
            network_maker,
            top as *mut c_void,
            libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD,
            (&raw mut *result).cast(),
        )
    }))? as i32;
    Ok(NetworkMaker { pid, result, _stack: stack })
}

extern "C" fn network_maker(argument: *mut c_void) -> c_int {
    use rustix::net::{AddressFamily, SocketType};
    use rustix::thread::{unshare_unsafe, UnshareFlags};
    // SAFETY: a new network namespace for this process alone; no memory is concerned.
    let made = unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
        .and_then(|()| rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None))
        .and_then(|any| loopback_up(any.as_fd()))
        .and_then(|()| {
            use rustix::fs::{Mode, OFlags};
            rustix::fs::open(c"/proc/self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        });
    // SAFETY: the box lives until this process is reaped, and nobody else touches it before.
    let result = unsafe { &mut *argument.cast::<MakerResult>() };
    match made {
        Ok(namespace) => result.namespace = namespace.into_raw_fd(),
        Err(errno) => result.errno = errno.raw_os_error(),
    }
    0
}

impl NetworkMaker {
    fn reap(&mut self) -> Result<(), Errno> {
        loop {
            // SAFETY: reaps our own child.
            match check(i64::from(unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) })) {
                Err(Errno::INTR) => {}
                other => {
                    self.pid = 0;
                    return other.map(drop);
                }
            }
        }
    }

    /// Waits for the namespace and joins it.
    pub fn join(mut self) -> Result<(), Errno> {
        self.reap()?;
        // SAFETY: the maker has ended, so its result is ours alone (read through a pointer, as the compiler can't know who
        // wrote it), and the descriptor in it too.
        unsafe {
            let MakerResult { namespace, errno } = (&raw const *self.result).read_volatile();
            if namespace < 0 {
                return Err(Errno::from_raw_os_error(if errno == 0 { libc::ECHILD } else { errno }));
            }
            let namespace = OwnedFd::from_raw_fd(namespace);
            check(i64::from(libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET))).map(drop)
        }
    }
}

/// Its stack and result are this process's memory: they are not given back while it may still use them.
impl Drop for NetworkMaker {
    fn drop(&mut self) {
        if self.pid > 0 {
            let _ = kill(self.pid, libc::SIGKILL);
            let _ = self.reap();
        }
    }
}
