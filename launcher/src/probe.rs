//! What this host offers, tried and not guessed from versions: one JSON object for `remit doctor`.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::mount::{fsconfig_create, fsmount, fsopen, FsMountFlags, FsOpenFlags, MountAttrFlags};
use serde_json::{json, Value};

use crate::network;
use crate::plan::Network;
use crate::sys::{self, Forked};

pub fn print() -> i32 {
    let uname = rustix::system::uname();
    let found = json!({
        "kernel": uname.release().to_string_lossy(),
        "machine": uname.machine().to_string_lossy(),
        "landlock_abi": sys::landlock_version(),
        "namespaces": tried(Ok),
        "proc": tried(|()| mount("proc")),
        "tmpfs": tried(|()| mount("tmpfs")),
        "devpts": tried(|()| mount("devpts")),
        "loopback": tried(|()| {
            use rustix::net::{AddressFamily, SocketType};
            let any = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
            sys::loopback_up(any.as_fd())
        }),
        "network_beside": tried(|()| {
            let (address, own) = (Ipv4Addr::new(198, 18, 0, 1), Some(Ipv4Addr::new(198, 18, 0, 2)));
            let network = Network { address, dns: true, ports: vec![8443], own };
            network::open(Some(&network)).map(drop).map_err(|failure| Errno::from_raw_os_error(failure.errno))
        }),
        "seccomp_notify": tried(|()| {
            rustix::thread::set_no_new_privs(true)?;
            // Allows everything: only the making of the listener is asked for.
            sys::seccomp(&[(0x06, 0, 0, 0x7fff_0000)], true).map(drop)
        }),
    });
    println!("{found}");
    0
}

fn mount(kind: &str) -> Result<(), Errno> {
    let fs = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(fs.as_fd())?;
    fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).map(drop)
}

/// Runs `act` as the first process of fresh namespaces. The child's exit status is the errno.
fn tried(act: impl Fn(()) -> Result<(), Errno>) -> Value {
    let flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    let errno = match sys::clone_into(flags, None) {
        Err(errno) => errno.raw_os_error(),
        Ok(Forked::Child) => {
            // Wait for the map: tmpfs and others need the mounter's id to be mapped.
            let identity = || std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|m| !m.is_empty());
            let end = std::time::Instant::now() + std::time::Duration::from_millis(500);
            while !identity() && std::time::Instant::now() < end {
                std::thread::yield_now();
            }
            let errno = act(()).err().map_or(0, |errno| errno.raw_os_error());
            sys::exit_now(errno.clamp(0, 250))
        }
        Ok(Forked::Parent { pid, .. }) => {
            let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
            let write = |file: &str, text: String| std::fs::write(format!("/proc/{pid}/{file}"), text);
            let mapped = write("setgroups", "deny".into())
                .and_then(|()| write("gid_map", format!("1000 {gid} 1")))
                .and_then(|()| write("uid_map", format!("1000 {uid} 1")));
            let mapped = mapped.err().and_then(|e| e.raw_os_error());
            let ended = sys::reap(true).ok().flatten().and_then(|e| e.code).unwrap_or(libc::EIO);
            mapped.unwrap_or(ended)
        }
    };
    let message = (errno != 0).then(|| std::io::Error::from_raw_os_error(errno).to_string());
    json!({"ok": errno == 0, "errno": errno, "message": message})
}
