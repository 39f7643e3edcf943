//! What of the host is shown inside, as detached mounts: opened once, checked against what was hashed, and mounted from
//! the same descriptor, so that no name is looked up twice.
//!
//! As root they are made before the namespaces, by root (whose files an unprivileged id could not reach), and inputs
//! get an idmapped mount so that their owner is the guest's own id. An ordinary user makes them inside its own mount
//! namespace, where alone it may.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Statx, StatxFlags, CWD};
use rustix::io::Errno;
use rustix::mount::{open_tree, OpenTreeFlags};

use crate::failure::{Failure, Outcome, Step};
use crate::idmap;
use crate::plan::{Kind, Plan, RootOp, Stamp};
use crate::sys;

pub const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;
pub const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
pub const NODEV: u64 = libc::MOUNT_ATTR_NODEV;
pub const NOEXEC: u64 = libc::MOUNT_ATTR_NOEXEC;

/// One descriptor for each step of the root that shows something of the host; `None` for the others.
pub type Sources = Vec<Option<OwnedFd>>;

pub fn open(plan: &Plan) -> Outcome<Sources> {
    plan.root.iter().map(|op| open_one(plan, op)).collect()
}

fn open_one(plan: &Plan, op: &RootOp) -> Outcome<Option<OwnedFd>> {
    match op {
        RootOp::Bind { from, kind, write, exec, dev, expect, own, .. } => {
            let recursive = *kind == Kind::Dir;
            let tree = clone_tree(from, recursive)?;
            let found = stat(&tree, from)?;
            check_kind(&found, *kind, from)?;
            if let Some(stamp) = expect {
                verify(&found, stamp, from)?;
            }
            let attributes = NOSUID
                | if *write { 0 } else { RDONLY }
                | if *exec { 0 } else { NOEXEC }
                | if *dev { 0 } else { NODEV };
            if *own {
                map_owner(plan, &tree, &found, from)?;
            }
            sys::mount_setattr(tree.as_fd(), c"", recursive, attributes, None).at("root.attributes", from)?;
            Ok(Some(tree))
        }
        RootOp::Overlay { lower, own, .. } => {
            // Not recursive on purpose: overlayfs does not look into mounts below its lower layer.
            let tree = clone_tree(lower, false).or_else(|_| clone_tree(lower, true))?;
            let found = stat(&tree, lower)?;
            check_kind(&found, Kind::Dir, lower)?;
            if *own {
                map_owner(plan, &tree, &found, lower)?;
            }
            sys::mount_setattr(tree.as_fd(), c"", true, NOSUID | NODEV | RDONLY, None).at("root.attributes", lower)?;
            Ok(Some(tree))
        }
        _ => Ok(None),
    }
}

fn clone_tree(path: &str, recursive: bool) -> Outcome<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(CWD, path, flags).at("root.bind", path)
}

fn stat(tree: &OwnedFd, path: &str) -> Outcome<Statx> {
    rustix::fs::statx(tree, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).at("root.verify", path)
}

fn check_kind(found: &Statx, kind: Kind, path: &str) -> Outcome<()> {
    let is_dir = u32::from(found.stx_mode) & libc::S_IFMT == libc::S_IFDIR;
    if is_dir == (kind == Kind::Dir) {
        return Ok(());
    }
    let errno = if is_dir { Errno::ISDIR } else { Errno::NOTDIR };
    Err(errno).at("root.verify", path)
}

fn verify(found: &Statx, stamp: &Stamp, path: &str) -> Outcome<()> {
    let dev = libc::makedev(found.stx_dev_major, found.stx_dev_minor);
    let ctime = found.stx_ctime.tv_sec * 1_000_000_000 + i64::from(found.stx_ctime.tv_nsec);
    if (dev, found.stx_ino, found.stx_size, ctime) == (stamp.dev, stamp.ino, stamp.size, stamp.ctime_ns) {
        return Ok(());
    }
    Err(Failure {
        step: "root.verify".into(),
        errno: 0,
        path: path.into(),
        message: "the file is not the one that was hashed when the remit was compiled".into(),
        hint: Some("if the change is yours, run again: the closure is built anew".into()),
    })
}

/// Shows the owner of `tree` as the guest's id. File systems that can't be idmapped are shown as they are: what others
/// may read stays readable, and the rest is refused by the file's own mode.
fn map_owner(plan: &Plan, tree: &OwnedFd, found: &Statx, path: &str) -> Outcome<()> {
    let (Some(uid), Some(gid)) = (plan.identity.host_uid, plan.identity.host_gid) else { return Ok(()) };
    let namespace = idmap::namespace((found.stx_uid, uid), (found.stx_gid, gid))?;
    match sys::mount_setattr(tree.as_fd(), c"", true, 0, Some(namespace.as_fd())) {
        Ok(()) | Err(Errno::INVAL | Errno::PERM) => Ok(()),
        Err(errno) => Err(errno).at("root.idmap", path),
    }
}
