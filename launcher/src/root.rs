//! The root, made from nothing: one tmpfs holds the skeleton (shown read-only) and everything that can be written, so
//! that one cap in bytes and in files covers it all. Only what the plan lists is ever attached; the host's own tree is
//! detached at the end and no descriptor to it stays.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{mkdirat, openat, openat2, symlinkat, Mode, OFlags, ResolveFlags, CWD};
use rustix::io::Errno;
use rustix::mount::{
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, unmount,
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};
use rustix::process::{fchdir, pivot_root};

use crate::failure::{Outcome, Step};
use crate::plan::{from_hex, Cgroup, Kind, Plan, RootOp};
use crate::sources::{NODEV, NOEXEC, NOSUID, RDONLY};
use crate::sys;

/// The scratch tmpfs while the root is being made, inside the new root; gone before the program starts.
const SCRATCH: &str = ".scratch";
const MASK_DIR: &str = ".scratch/hidden.d";
const MASK_FILE: &str = ".scratch/hidden";
/// Of the 128 instances that a host commonly gives one id; and as many watches as the least of hosts gives.
const WATCHES: [(&str, &str); 2] = [("max_inotify_instances", "16"), ("max_inotify_watches", "8192")];

/// What is left to the monitor once the root stands.
pub struct Root {
    /// What `keep` takes from: the work directory, or the upper layer where an input lies below it.
    pub kept: OwnedFd,
    /// The root as the guest sees it, for resolving paths from outside.
    pub view: OwnedFd,
    pub terminal: Option<OwnedFd>,
    /// The inodes, in `kept`, of the empty files that were made to mount inputs on: they are not the guest's.
    pub placeholders: Vec<u64>,
}

struct Builder<'a> {
    plan: &'a Plan,
    /// The new root; the current directory, too, so that relative paths are under it.
    root: OwnedFd,
    kept: Option<OwnedFd>,
    /// Where `kept` is seen inside.
    kept_at: &'a str,
    placeholders: Vec<u64>,
    overlays: usize,
    /// Where links may stand that lead out of the new root, which is not `/` yet.
    linked: Vec<(&'a str, ResolveFlags)>,
}

/// A directory below the new root and a name in it.
struct Spot<'a> {
    above: Option<OwnedFd>,
    root: BorrowedFd<'a>,
    name: &'a [u8],
}

impl AsFd for Spot<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.above.as_ref().map_or(self.root, AsFd::as_fd)
    }
}

/// `limited` is called once everything but the views of the cgroups stands: it waits until they exist.
pub fn build(plan: &Plan, sources: &[Option<OwnedFd>], limited: impl FnOnce() -> Outcome<()>) -> Outcome<Root> {
    // Modes mean what the plan says; the program gets the customary mask at the end.
    rustix::process::umask(Mode::empty());
    let scratch = scratch(plan)?;
    for (name, mode) in [("root", 0o755), ("hidden.d", 0), ("overlay", 0o700)] {
        mkdirat(&scratch, name, Mode::from_raw_mode(mode)).at("root.scratch", name)?;
    }
    file(&scratch, "hidden", 0, b"")?;
    // A part of a mount can be shown elsewhere only once the mount hangs somewhere (before Linux 6.15). Any directory
    // serves until the pivot.
    let place = ["/tmp", "/"].into_iter().find(|path| attach(&scratch, CWD, path).is_ok()).unwrap_or("/");
    let root = clone_of(&scratch, "root")?;
    attach(&root, CWD, place)?;
    fchdir(&root).step("root.enter")?;
    mkdirat(&root, SCRATCH, Mode::from_raw_mode(0o700)).at("root.scratch", SCRATCH)?;
    attach(&clone_of(&scratch, "")?, &root, SCRATCH)?;

    let mut builder =
        Builder { plan, root, kept: None, kept_at: "", placeholders: Vec::new(), overlays: 0, linked: Vec::new() };
    builder.cover_masks()?;
    for (op, source) in plan.root.iter().zip(sources) {
        builder.apply(op, source.as_ref())?;
        match op {
            // A checkout that the operator may never have looked at: what it links is not where a step is meant to act.
            RootOp::Overlay { to, .. } => builder.linked.push((to, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)),
            RootOp::Bind { to: path, kind: Kind::Dir, .. } | RootOp::Symlink { path, .. } => {
                builder.linked.push((path, ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS));
            }
            _ => {}
        }
    }
    limited()?;
    for op in &plan.root {
        if let RootOp::CgroupView { controller, to } = op {
            builder.cgroup(controller, to)?;
        }
    }
    builder.finish()
}

fn scratch(plan: &Plan) -> Outcome<OwnedFd> {
    let fs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).step("root.scratch")?;
    let set = |key: &str, value: String| fsconfig_set_string(fs.as_fd(), key, &*value).at("root.scratch", key);
    set("size", plan.scratch.bytes.to_string())?;
    set("nr_inodes", plan.scratch.inodes.to_string())?;
    set("mode", "0755".into())?;
    fsconfig_create(fs.as_fd()).step("root.scratch")?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes).step("root.scratch")
}

fn clone_of(dir: &OwnedFd, path: &str) -> Outcome<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(dir, path, flags).at("root.mount", path)
}

fn attach(mount: &OwnedFd, dir: impl AsFd, path: impl AsRef<[u8]>) -> Outcome<()> {
    let path = path.as_ref();
    move_mount(mount, "", dir, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .at("root.mount", &String::from_utf8_lossy(path))
}

fn file(dir: impl AsFd, path: impl AsRef<[u8]>, mode: u32, content: &[u8]) -> Outcome<()> {
    let shown = String::from_utf8_lossy(path.as_ref());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = openat(dir, path.as_ref(), flags, Mode::from_raw_mode(mode)).at("root.file", &shown)?;
    let mut rest = content;
    while !rest.is_empty() {
        let n = rustix::io::write(&fd, rest).at("root.write", &shown)?;
        rest = &rest[n..];
    }
    Ok(())
}

/// The path under the new root: without its leading slash.
fn under(path: &str) -> &str {
    path.strip_prefix('/').unwrap_or(path)
}

impl<'a> Builder<'a> {
    fn apply(&mut self, op: &'a RootOp, source: Option<&OwnedFd>) -> Outcome<()> {
        match (op, source) {
            (RootOp::Dir { path, mode }, _) => self.dir(path, *mode),
            (RootOp::Symlink { path, target }, _) => {
                let spot = self.spot(path).at("root.place", path)?;
                symlinkat(&**target, &spot, spot.name).at("root.link", path)
            }
            (RootOp::File { path, mode, content }, _) => {
                let spot = self.spot(path).at("root.place", path)?;
                file(&spot, spot.name, *mode, content.as_bytes())
            }
            (RootOp::Bytes { path, mode, hex }, _) => {
                let spot = self.spot(path).at("root.place", path)?;
                file(&spot, spot.name, *mode, &from_hex(hex).unwrap_or_default())
            }
            (RootOp::Bind { to, kind, .. }, Some(tree)) => {
                self.mountpoint(to, *kind)?;
                self.remember(to, *kind);
                self.attach(tree, to)
            }
            (RootOp::Scratch { name, to, exec }, _) => self.scratch(name, to, *exec),
            (RootOp::Overlay { to, write, exec, .. }, Some(lower)) => self.overlay(lower, to, *write, *exec),
            (RootOp::Proc { to }, _) => {
                self.mountpoint(to, Kind::Dir)?;
                let fs = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).at("root.proc", to)?;
                self.mount_new(&fs, "root.proc", to, NOEXEC | NODEV)?;
                self.cap_watches(to)
            }
            (RootOp::Devpts { to }, _) => {
                self.mountpoint(to, Kind::Dir)?;
                let fs = fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC).at("root.devpts", to)?;
                for (key, value) in [("ptmxmode", "0666"), ("mode", "0620"), ("max", "64")] {
                    fsconfig_set_string(fs.as_fd(), key, value).at("root.devpts", key)?;
                }
                self.mount_new(&fs, "root.devpts", to, NOEXEC)
            }
            (RootOp::Mask { path, bytes }, _) => {
                let bytes = bytes.as_deref().and_then(from_hex).unwrap_or_else(|| path.as_bytes().to_vec());
                self.mask(path, &bytes)
            }
            (RootOp::Readonly { path }, _) => {
                let Some(mount) = self.existing(path)? else { return Ok(()) };
                let attributes = RDONLY | NOSUID | NODEV | NOEXEC;
                sys::mount_setattr(mount.as_fd(), c"", false, attributes, None).at("root.attributes", path)?;
                self.attach(&mount, path)
            }
            // Later: they may not exist yet.
            (RootOp::CgroupView { .. }, _) => Ok(()),
            (op @ (RootOp::Bind { .. } | RootOp::Overlay { .. }), None) => {
                Err(Errno::BADF).at("root.bind", op.target())
            }
        }
    }

    /// Where `path` is in the new root. The host is still around it: below whatever brings links of its own, none is
    /// followed out.
    fn spot<'p>(&'p self, path: &'p (impl AsRef<[u8]> + ?Sized)) -> Result<Spot<'p>, Errno> {
        let path = path.as_ref();
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let below = |top: &str| path.strip_prefix(under(top).as_bytes()).is_some_and(|rest| rest.starts_with(b"/"));
        let mut spot = Spot { above: None, root: self.root.as_fd(), name: path };
        if let Some((_, resolve)) = self.linked.iter().rev().find(|(top, _)| below(top)) {
            let end = path.iter().rposition(|b| *b == b'/').ok_or(Errno::INVAL)?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            spot.above = Some(openat2(&self.root, &path[..end], flags, Mode::empty(), *resolve)?);
            spot.name = &path[end + 1..];
        }
        Ok(spot)
    }

    fn attach(&self, mount: &OwnedFd, path: &str) -> Outcome<()> {
        let spot = self.spot(path).at("root.place", path)?;
        attach(mount, &spot, spot.name)
    }

    fn dir(&self, path: &str, mode: u32) -> Outcome<()> {
        let spot = self.spot(path).at("root.place", path)?;
        match mkdirat(&spot, spot.name, Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno).at("root.dir", path),
        }
    }

    fn mountpoint(&self, path: &str, kind: Kind) -> Outcome<()> {
        match kind {
            Kind::Dir => self.dir(path, 0o755),
            Kind::File => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let spot = self.spot(path).at("root.place", path)?;
                match openat(&spot, spot.name, flags, Mode::from_raw_mode(0o644)) {
                    // Already there and not ours to write (a lower layer): it serves as a mountpoint all the same.
                    Ok(_) | Err(Errno::ACCESS | Errno::ROFS) => Ok(()),
                    Err(errno) => Err(errno).at("root.file", path),
                }
            }
        }
    }

    /// Told by its inode: the guest may move a directory above it, and make a file of its own of that name.
    fn remember(&mut self, path: &str, kind: Kind) {
        let Some(kept) = self.kept.as_ref().filter(|_| kind == Kind::File) else { return };
        let Some(name) = path.strip_prefix(self.kept_at).and_then(|rest| rest.strip_prefix('/')) else { return };
        // Not there: it stands in a lower layer, from which nothing is kept.
        if let Ok(found) = rustix::fs::statat(kept, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
            self.placeholders.push(found.st_ino);
        }
    }

    fn mount_new(&self, fs: &OwnedFd, step: &str, to: &str, attributes: u64) -> Outcome<()> {
        fsconfig_create(fs.as_fd()).at(step, to)?;
        let attributes = MountAttrFlags::from_bits_retain((attributes | NOSUID) as u32);
        let mount = fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes).at(step, to)?;
        self.attach(&mount, to)
    }

    fn scratch(&mut self, name: &str, to: &'a str, exec: bool) -> Outcome<()> {
        let path = format!("{SCRATCH}/{name}");
        let mode = if name == "tmp" || name == "shm" { 0o1777 } else { 0o755 };
        mkdirat(&self.root, &*path, Mode::from_raw_mode(mode)).at("root.scratch", &path)?;
        self.mountpoint(to, Kind::Dir)?;
        let mount = clone_of(&self.root, &path)?;
        let attributes = NOSUID | NODEV | if exec { 0 } else { NOEXEC };
        sys::mount_setattr(mount.as_fd(), c"", false, attributes, None).at("root.attributes", to)?;
        if self.plan.keep.as_deref() == Some(name) {
            self.kept = Some(self.open_dir(&path)?);
            self.kept_at = to;
        }
        self.attach(&mount, to)
    }

    fn overlay(&mut self, lower: &OwnedFd, to: &'a str, write: bool, exec: bool) -> Outcome<()> {
        let base = format!("{SCRATCH}/overlay/{}", self.overlays);
        self.overlays += 1;
        for name in ["", "/lower", "/upper", "/index"] {
            mkdirat(&self.root, &*format!("{base}{name}"), Mode::from_raw_mode(0o755)).at("root.overlay", to)?;
        }
        attach(lower, &self.root, format!("{base}/lower"))?;
        self.mountpoint(to, Kind::Dir)?;
        let fs = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).at("root.overlay", to)?;
        let set = |key: &str, value: &str| fsconfig_set_string(fs.as_fd(), key, value).at("root.overlay", to);
        // Relative paths start at the new root: the current directory. (A lower path of the host's never stands here, so
        // no character of it needs quoting.)
        if write {
            set("lowerdir", &format!("{base}/lower"))?;
            set("upperdir", &format!("{base}/upper"))?;
            set("workdir", &format!("{base}/index"))?;
        } else {
            // An overlay without an upper layer wants two lower ones; the second is empty.
            set("lowerdir", &format!("{base}/lower:{base}/upper"))?;
        }
        // In a user namespace overlayfs keeps its marks in user.* attributes.
        fsconfig_set_flag(fs.as_fd(), "userxattr").at("root.overlay", "userxattr")?;
        let attributes = NODEV | if exec { 0 } else { NOEXEC } | if write { 0 } else { RDONLY };
        self.mount_new(&fs, "root.overlay", to, attributes)?;
        if write {
            self.kept = Some(self.open_dir(&format!("{base}/upper"))?);
            self.kept_at = to;
        }
        Ok(())
    }

    /// What inotify hands out is counted for the id that made the namespace: uncapped, one sandbox takes all that root,
    /// or the user, has. The caps are this namespace's own, and only lower; a program can't write them (/proc/sys is
    /// read-only by then).
    fn cap_watches(&self, proc: &str) -> Outcome<()> {
        for (name, most) in WATCHES {
            let path = format!("{}/sys/user/{name}", under(proc));
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            match openat(&self.root, &*path, flags, Mode::empty()) {
                Ok(fd) => drop(rustix::io::write(&fd, most.as_bytes()).at("root.watches", &path)?),
                // A kernel without inotify has none to take.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno).at("root.watches", &path),
            }
        }
        Ok(())
    }

    /// A bind of what is already inside at `path`; `None` if nothing is.
    fn existing(&self, path: &str) -> Outcome<Option<OwnedFd>> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let flags = flags | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
        match self.spot(path).and_then(|spot| open_tree(&spot, spot.name, flags)) {
            Ok(mount) => Ok(Some(mount)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno).at("root.mask", path),
        }
    }

    /// Covers with an empty file or directory that nobody may open, on a read-only mount (so its mode stays).
    fn mask(&self, path: &str, bytes: &[u8]) -> Outcome<()> {
        let nofollow = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        let found = match self.spot(bytes).and_then(|spot| rustix::fs::statat(&spot, spot.name, nofollow)) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            other => other.at("root.mask", path)?,
        };
        let cover = match found.st_mode & libc::S_IFMT {
            libc::S_IFDIR => MASK_DIR,
            libc::S_IFLNK => return Err(Errno::LOOP).at("root.mask", path),
            _ => MASK_FILE,
        };
        let spot = self.spot(bytes).at("root.place", path)?;
        attach(&clone_of(&self.root, cover)?, &spot, spot.name)
    }

    /// Makes the covers mounts of their own, read-only, so that each clone of them is too.
    fn cover_masks(&self) -> Outcome<()> {
        for cover in [MASK_DIR, MASK_FILE] {
            let mount = clone_of(&self.root, cover)?;
            let attributes = RDONLY | NOSUID | NODEV | NOEXEC;
            sys::mount_setattr(mount.as_fd(), c"", false, attributes, None).at("root.attributes", cover)?;
            attach(&mount, &self.root, cover)?;
        }
        Ok(())
    }

    fn cgroup(&self, controller: &str, to: &str) -> Outcome<()> {
        let Some(Cgroup { groups, .. }) = &self.plan.cgroup else { return Ok(()) };
        let Some(group) = groups.iter().find(|g| g.controller == controller) else { return Ok(()) };
        self.mountpoint(to, Kind::Dir)?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let mount = open_tree(CWD, &*group.dir, flags).at("root.cgroup", &group.dir)?;
        let attributes = RDONLY | NOSUID | NODEV | NOEXEC;
        sys::mount_setattr(mount.as_fd(), c"", false, attributes, None).at("root.attributes", to)?;
        self.attach(&mount, to)
    }

    fn open_dir(&self, path: &str) -> Outcome<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.root, path, flags, Mode::empty()).at("root.scratch", path)
    }

    /// Leaves the host behind: the scratch's own mount goes (its parts stay bound), the new root becomes `/`.
    fn finish(self) -> Outcome<Root> {
        let kept = match self.kept {
            Some(kept) => kept,
            None => self.open_dir(SCRATCH)?,
        };
        unmount(SCRATCH, UnmountFlags::DETACH).at("root.scratch", SCRATCH)?;
        rustix::fs::unlinkat(&self.root, SCRATCH, rustix::fs::AtFlags::REMOVEDIR).at("root.scratch", SCRATCH)?;
        pivot_root(".", ".").step("root.pivot")?;
        unmount(".", UnmountFlags::DETACH).step("root.detach")?;
        rustix::process::chdir("/").step("root.enter")?;
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let view = rustix::fs::open("/", flags, Mode::empty()).step("root.enter")?;
        sys::mount_setattr(view.as_fd(), c"", false, RDONLY | NOSUID | NODEV, None).at("root.attributes", "/")?;
        let terminal = match self.plan.stdio {
            crate::plan::Stdio::Pipe => None,
            crate::plan::Stdio::Tty => {
                let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
                Some(rustix::fs::open("/dev/pts/ptmx", flags, Mode::empty()).at("terminal", "/dev/pts/ptmx")?)
            }
        };
        Ok(Root { kept, view, terminal, placeholders: self.placeholders })
    }
}
