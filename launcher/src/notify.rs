//! Observation: what was *attempted*, read from a seccomp user notification before the call runs. It never allows and
//! never refuses: the call always goes on to the kernel's own checks, since its arguments may change between this look
//! and that use. A supervisor that dies leaves the caller with ENOSYS.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::ResolveFlags;

use crate::paths::{link, Hold, Walk};
use crate::report::Attempt;
use crate::sys::{self, Notification};

const PATH_MAX: usize = 4096;
const PAGE: u64 = 4096;

/// Looks at one notification and answers it; what it was an attempt at, if somebody listens (`heard`). `first`: the program
/// that the plan itself starts, whose memory can't be looked at: the init that executes it hides its own.
pub fn attend(listener: BorrowedFd<'_>, root: &OwnedFd, heard: bool, first: Option<&str>) -> Option<Attempt> {
    // ENOENT: the caller was killed meanwhile.
    let notification = sys::notification_receive(listener).ok()?;
    let mut seen = None;
    if heard {
        let executes = matches!(i64::from(notification.data.nr), libc::SYS_execve | libc::SYS_execveat);
        seen = match first.filter(|_| executes) {
            Some(path) => Some(Attempt::Exec {
                pid: notification.pid,
                raw: path.into(),
                resolved: {
                    let walk = Walk { root, pid: notification.pid, hold: Hold::None, follow: true };
                    Some(text(&walk.resolve(b"/", path.as_bytes()).0))
                },
                found: true,
            }),
            None => describe(&notification, root),
        };
        // What was read may be of another process by now.
        seen = seen.filter(|_| sys::notification_valid(listener, notification.id));
    }
    // Before it is reported: the program goes on meanwhile.
    let _ = sys::notification_continue(listener, notification.id);
    seen
}

struct PathCall {
    dir: i32,
    path: u64,
    write: bool,
    /// The last part is made, removed or replaced: it is not followed if it is a link.
    follow: bool,
    hold: Hold,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn describe(n: &Notification, root: &OwnedFd) -> Option<Attempt> {
    let call = i64::from(n.data.nr);
    let a = n.data.args;
    if call == libc::SYS_connect {
        return connect(n.pid, a[1], a[2]);
    }
    let at_cwd = |path: u64, write: bool| PathCall { follow: true, write, ..entry(libc::AT_FDCWD as u64, path) };
    let path_call = match call {
        libc::SYS_execve => at_cwd(a[0], false),
        libc::SYS_execveat => PathCall { follow: true, write: false, ..entry(a[0], a[1]) },
        libc::SYS_openat => opens(a[0], a[1], a[2]),
        libc::SYS_openat2 => {
            // struct open_how: flags, mode, resolve.
            let mut how = [0u8; 24];
            let n = sys::read_memory(n.pid as i32, a[2], &mut how).ok()?;
            let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| how[at + i]));
            let resolve = ResolveFlags::from_bits_retain(if n == how.len() { word(16) } else { 0 });
            let hold = match () {
                () if resolve.contains(ResolveFlags::IN_ROOT) => Hold::InRoot,
                () if resolve.contains(ResolveFlags::BENEATH) => Hold::Beneath,
                () => Hold::None,
            };
            PathCall { hold, ..opens(a[0], a[1], word(0)) }
        }
        libc::SYS_truncate => at_cwd(a[0], true),
        libc::SYS_mkdirat | libc::SYS_unlinkat => entry(a[0], a[1]),
        libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_linkat => entry(a[2], a[3]),
        libc::SYS_symlinkat => entry(a[1], a[2]),
        _ => old_forms(call, &a)?,
    };
    let (raw, resolved, found) = look(n.pid, &path_call, root);
    let (pid, write) = (n.pid, path_call.write);
    Some(if call == libc::SYS_execve || call == libc::SYS_execveat {
        Attempt::Exec { pid, raw, resolved, found }
    } else {
        Attempt::Open { pid, raw, resolved, found, write }
    })
}

/// A call that makes, removes or replaces the entry `path` itself.
fn entry(dir: u64, path: u64) -> PathCall {
    PathCall { dir: dir as i32, path, write: true, follow: false, hold: Hold::None }
}

fn opens(dir: u64, path: u64, flags: u64) -> PathCall {
    let has = |flag: i32| flags & flag as u64 == flag as u64;
    let write = [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC].into_iter().any(has);
    // A file that must be new is not looked for behind a link.
    let follow = !has(libc::O_NOFOLLOW) && !has(libc::O_CREAT | libc::O_EXCL);
    PathCall { write, follow, ..entry(dir, path) }
}

#[cfg(target_arch = "x86_64")]
fn old_forms(call: i64, a: &[u64; 6]) -> Option<PathCall> {
    let here = libc::AT_FDCWD as u64;
    Some(match call {
        libc::SYS_open => opens(here, a[0], a[1]),
        libc::SYS_creat => PathCall { follow: true, ..entry(here, a[0]) },
        libc::SYS_mkdir | libc::SYS_rmdir | libc::SYS_unlink => entry(here, a[0]),
        libc::SYS_rename | libc::SYS_link | libc::SYS_symlink => entry(here, a[1]),
        _ => return None,
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn old_forms(_call: i64, _a: &[u64; 6]) -> Option<PathCall> {
    None
}

/// The path as given, where it leads inside, and whether something is there.
fn look(pid: u32, call: &PathCall, root: &OwnedFd) -> (String, Option<String>, bool) {
    let Some(raw) = read_string(pid, call.path) else { return ("?".into(), None, false) };
    let start = if raw.starts_with(b"/") && call.hold == Hold::None {
        b"/".to_vec()
    } else if call.dir == libc::AT_FDCWD {
        link(&format!("/proc/{pid}/cwd"))
    } else {
        link(&format!("/proc/{pid}/fd/{}", call.dir))
    };
    if !start.starts_with(b"/") {
        return (text(&raw), None, false);
    }
    let walk = Walk { root, pid, hold: call.hold, follow: call.follow };
    let (resolved, found) = walk.resolve(&start, &raw);
    (text(&raw), Some(text(&resolved)), found)
}

fn read_string(pid: u32, address: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(256);
    while bytes.len() < PATH_MAX {
        let at = address.checked_add(bytes.len() as u64)?;
        // Up to the end of the page: the next one may not be mapped.
        let mut piece = vec![0u8; ((PAGE - at % PAGE) as usize).min(256)];
        let n = sys::read_memory(pid as i32, at, &mut piece).ok()?;
        if n == 0 {
            return None;
        }
        if let Some(end) = piece[..n].iter().position(|b| *b == 0) {
            bytes.extend_from_slice(&piece[..end]);
            return Some(bytes);
        }
        bytes.extend_from_slice(&piece[..n]);
    }
    None
}

fn connect(pid: u32, address: u64, length: u64) -> Option<Attempt> {
    let mut bytes = [0u8; 128];
    let length = (length as usize).min(bytes.len());
    let n = sys::read_memory(pid as i32, address, &mut bytes[..length]).ok()?;
    let bytes = &bytes[..n];
    let family = i32::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
    let port = |b: &[u8]| Some(u16::from_be_bytes(b.get(2..4)?.try_into().ok()?));
    let (family, address, port) = match family {
        libc::AF_INET => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            ("inet", IpAddr::from(Ipv4Addr::from(ip)).to_string(), port(bytes)?)
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            ("inet6", IpAddr::from(Ipv6Addr::from(ip)).to_string(), port(bytes)?)
        }
        libc::AF_UNIX => {
            let name = &bytes[2..];
            let text = match name.first() {
                Some(0) => format!("@{}", String::from_utf8_lossy(&name[1..])),
                _ => String::from_utf8_lossy(name.split(|b| *b == 0).next()?).into_owned(),
            };
            ("unix", text, 0)
        }
        // AF_UNSPEC dissolves an association; others are refused at socket().
        _ => return None,
    };
    Some(Attempt::Connect { pid, family, address, port })
}
