//! Maps of ids: of the sandbox's own user namespace, and of the small namespaces that idmapped mounts refer to.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, CWD};
use rustix::io::Errno;

use crate::failure::{Outcome, Step};
use crate::plan::Identity;
use crate::sys::{self, Forked};

fn write(pid: i32, file: &str, text: &str) -> Outcome<()> {
    let path = format!("/proc/{pid}/{file}");
    let fd = rustix::fs::openat(CWD, &*path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    fd.and_then(|fd| rustix::io::write(fd, text.as_bytes()).map(drop)).at("identity", &path)
}

/// Maps the one id that the sandbox has. As an ordinary user the host id is the caller's own, and setgroups is denied
/// first, as the kernel demands.
pub fn map_sandbox(pid: i32, identity: &Identity) -> Outcome<()> {
    let host_uid = identity.host_uid.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    let host_gid = identity.host_gid.unwrap_or_else(|| rustix::process::getegid().as_raw());
    if identity.host_gid.is_none() {
        write(pid, "setgroups", "deny")?;
    }
    write(pid, "uid_map", &format!("{} {host_uid} 1", identity.uid))?;
    write(pid, "gid_map", &format!("{} {host_gid} 1", identity.gid))
}

/// A user namespace in which the id on disk means the id of the guest. It is held by the returned descriptor alone.
pub fn namespace(uid: (u32, u32), gid: (u32, u32)) -> Outcome<OwnedFd> {
    match sys::clone_into(libc::CLONE_NEWUSER, None).step("root.idmap")? {
        Forked::Child => loop {
            // Nothing of the launcher's is held here: not the socket whose end means its death.
            sys::close_all_but(&[]);
            // Lives until it is killed below; dies with the launcher if that dies first.
            let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
            let _ = rustix::event::poll(&mut [], None);
        },
        Forked::Parent { pid, .. } => {
            let made = write(pid, "uid_map", &format!("{} {} 1", uid.0, uid.1))
                .and_then(|()| write(pid, "gid_map", &format!("{} {} 1", gid.0, gid.1)))
                .and_then(|()| {
                    let path = format!("/proc/{pid}/ns/user");
                    rustix::fs::open(&*path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).at("root.idmap", &path)
                });
            let _ = sys::kill(pid, libc::SIGKILL);
            while matches!(sys::reap(true), Err(Errno::INTR)) {}
            made
        }
    }
}
