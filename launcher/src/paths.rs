//! Where a path leads that a program inside gives: walked as the kernel would walk it for that program, from outside.
//!
//! The kernel's own walk in the sandbox's root answers nearly all. It can't for a path through /proc/self (the caller's
//! there, nobody's here), through a link of /proc that leads somewhere without a name (/proc/PID/cwd), for what is below
//! a directory that was removed, or for an openat2 that is held below its directory: those are walked part by part.
//! Nothing is normalised as text where a link could lie.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use rustix::fs::{openat2, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// As the kernel follows.
const MAX_LINKS: usize = 40;
const DELETED: &[u8] = b" (deleted)";
/// In the sandbox's root, and through none of the links of /proc, which would mean the monitor's.
const INSIDE: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

/// How openat2 may be told to hold a path back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    None,
    /// RESOLVE_IN_ROOT: its directory is `/`.
    InRoot,
    /// RESOLVE_BENEATH: what leads out is refused.
    Beneath,
}

pub struct Walk<'a> {
    /// The sandbox's root.
    pub root: &'a OwnedFd,
    /// Of the caller, as the monitor's own /proc numbers it.
    pub pid: u32,
    pub hold: Hold,
    /// Whether the last part is followed if it is a link.
    pub follow: bool,
}

/// The name of what a descriptor or a link of /proc leads to; empty if it can't be told.
pub fn link(path: &str) -> Vec<u8> {
    std::fs::read_link(path).map(|p| p.into_os_string().into_vec()).unwrap_or_default()
}

fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|part| !matches!(*part, b"" | b"."))
}

fn join(at: &[u8], part: &[u8]) -> Vec<u8> {
    let mut whole = if at == b"/" { Vec::new() } else { at.to_vec() };
    whole.push(b'/');
    whole.extend_from_slice(part);
    whole
}

/// What lies above `at`, which is resolved.
fn above(at: &[u8]) -> Vec<u8> {
    match at.iter().rposition(|b| *b == b'/') {
        None | Some(0) => b"/".to_vec(),
        Some(end) => at[..end].to_vec(),
    }
}

/// Without `.`, `..` and doubled slashes: only for what leads through no link.
fn normal(path: &[u8]) -> Vec<u8> {
    let mut at = b"/".to_vec();
    for part in parts(path) {
        at = if part == b".." { above(&at) } else { join(&at, part) };
    }
    at
}

/// Is this in the directory of one process under /proc? Its links have no text to be followed by.
fn of_a_process(at: &[u8]) -> bool {
    at.strip_prefix(b"/proc/").and_then(|rest| rest.first()).is_some_and(u8::is_ascii_digit)
}

impl Walk<'_> {
    /// Where `raw` leads if it starts at `start` (absolute and resolved: a working directory, or that of a descriptor),
    /// and whether something is there. What isn't there is said by its nearest parent.
    pub fn resolve(&self, start: &[u8], raw: &[u8]) -> (Vec<u8>, bool) {
        if self.hold == Hold::None && !start.ends_with(DELETED) {
            let full = if raw.starts_with(b"/") { raw.to_vec() } else { join(start, raw) };
            match self.open(&full, self.follow, ResolveFlags::NO_SYMLINKS) {
                // Through no link a path leads where it says: the kernel need not be asked for the name.
                Ok(_) => return (normal(&full), true),
                Err(Errno::NOENT) if !parts(&full).any(|part| part == b"..") => return (normal(&full), false),
                Err(_) => {}
            }
            if let Ok(fd) = self.open(&full, self.follow, ResolveFlags::empty()) {
                return (link(&format!("/proc/self/fd/{}", fd.as_raw_fd())), true);
            }
        }
        self.by_parts(start, raw)
    }

    fn open(&self, path: &[u8], follow: bool, more: ResolveFlags) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        openat2(self.root, path, flags, Mode::empty(), INSIDE | more)
    }

    fn by_parts(&self, start: &[u8], raw: &[u8]) -> (Vec<u8>, bool) {
        let top: &[u8] = if self.hold == Hold::None { b"/" } else { start };
        let mut at = if raw.starts_with(b"/") { top.to_vec() } else { start.to_vec() };
        let mut rest: Vec<Vec<u8>> = parts(raw).rev().map(<[u8]>::to_vec).collect();
        let follow = self.follow || raw.ends_with(b"/");
        let mut links = 0;
        let mut out = self.hold == Hold::Beneath && raw.starts_with(b"/");
        while let Some(part) = rest.pop() {
            if part == b".." {
                match (at == top, self.hold) {
                    (false, _) | (_, Hold::None) => at = above(&at),
                    (true, Hold::InRoot) => {}
                    (true, Hold::Beneath) => {
                        out = true;
                        at = above(&at);
                    }
                }
                continue;
            }
            let here = join(&at, &part);
            if let Some(own) = self.own(&at, &part) {
                at = own;
                continue;
            }
            // What is resolved already holds no link, unless one was put there this moment: then nothing is there.
            let opened = self.open(&here, false, ResolveFlags::NO_SYMLINKS);
            let kind = opened.as_ref().ok().and_then(|fd| rustix::fs::fstat(fd).ok());
            let (Ok(fd), Some(kind)) = (opened, kind) else { return (Self::missing(here, rest), false) };
            match FileType::from_raw_mode(kind.st_mode) {
                FileType::Symlink if !rest.is_empty() || follow => {
                    links += 1;
                    let Ok(target) = rustix::fs::readlinkat(&fd, c"", Vec::new()) else {
                        return (Self::missing(here, rest), false);
                    };
                    let target = target.into_bytes();
                    if links > MAX_LINKS {
                        return (Self::missing(here, rest), false);
                    }
                    if of_a_process(&here) {
                        // Such a link leads to the thing itself, whatever its name is by now.
                        out |= self.hold != Hold::None;
                        at = if target.starts_with(b"/") { target } else { here };
                        continue;
                    }
                    if target.starts_with(b"/") {
                        out |= self.hold == Hold::Beneath;
                        at = top.to_vec();
                    }
                    rest.extend(parts(&target).rev().map(<[u8]>::to_vec));
                }
                FileType::Directory | FileType::Symlink => at = here,
                _ if rest.is_empty() => at = here,
                _ => return (Self::missing(here, rest), false),
            }
        }
        (at, !out)
    }

    fn missing(here: Vec<u8>, rest: Vec<Vec<u8>>) -> Vec<u8> {
        rest.into_iter().rev().filter(|part| part != b"..").fold(here, |at, part| join(&at, &part))
    }

    /// /proc/self and /proc/thread-self, as they are for the caller.
    fn own(&self, at: &[u8], part: &[u8]) -> Option<Vec<u8>> {
        if at != b"/proc" || !matches!(part, b"self" | b"thread-self") {
            return None;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        // The last number is that of the innermost namespace: the sandbox's.
        let number = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().last());
        let process = number("NStgid:")?;
        let own = match part {
            b"self" => format!("/proc/{process}"),
            _ => format!("/proc/{process}/task/{}", number("NSpid:")?),
        };
        Some(own.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::{Hold, Walk};
    use rustix::fs::{Mode, OFlags};
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    /// `in/a`, a link `out -> /in`, a link `in/up -> ..`, and a link that leads to nothing.
    fn tree(name: &str) -> PathBuf {
        let top = std::env::temp_dir().join(format!("remit-paths-{}-{name}", std::process::id()));
        std::fs::create_dir_all(top.join("in")).expect("a directory");
        std::fs::write(top.join("in/a"), "x").expect("a file");
        for (target, place) in [("/in", "out"), ("..", "in/up"), ("nowhere", "dangling")] {
            symlink(target, top.join(place)).expect("a link");
        }
        top
    }

    #[test]
    fn a_path_leads_where_the_kernel_would_lead_it() {
        let top = tree("kernel");
        let root = rustix::fs::open(&top, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).expect("a root");
        for (hold, follow, start, raw, leads, found) in [
            (Hold::None, true, "/", "/in/a", "/in/a", true),
            (Hold::None, true, "/in", "a", "/in/a", true),
            (Hold::None, true, "/in", "./up//out/a", "/in/a", true),
            // A link before `..`: the text alone would say /a.
            (Hold::None, true, "/", "/in/up/../b", "/b", false),
            (Hold::None, true, "/", "/out/../in/b", "/in/b", false),
            (Hold::None, true, "/", "/out/c/d", "/in/c/d", false),
            (Hold::None, true, "/", "/dangling", "/nowhere", false),
            (Hold::None, false, "/", "/dangling", "/dangling", true),
            (Hold::None, true, "/", "/in/a/b", "/in/a/b", false),
            (Hold::None, true, "/", "/../../in/a", "/in/a", true),
            (Hold::InRoot, true, "/in", "/a", "/in/a", true),
            (Hold::InRoot, true, "/in", "../../a", "/in/a", true),
            (Hold::InRoot, true, "/in", "up/a", "/in/a", true),
            (Hold::Beneath, true, "/in", "a", "/in/a", true),
            (Hold::Beneath, true, "/", "in/up/in/a", "/in/a", true),
            // Refused by the kernel, and so not found.
            (Hold::Beneath, true, "/in", "../in/a", "/in/a", false),
            (Hold::Beneath, true, "/", "/in/a", "/in/a", false),
            (Hold::None, true, "/gone (deleted)", "../in/a", "/in/a", true),
            (Hold::None, true, "/gone (deleted)", "a", "/gone (deleted)/a", false),
        ] {
            let walk = Walk { root: &root, pid: std::process::id(), hold, follow };
            let (at, is) = walk.resolve(start.as_bytes(), raw.as_bytes());
            // The kernel names what it found from the host's root; the sandbox's is its own.
            let at = String::from_utf8(at).expect("text");
            let at = at.strip_prefix(top.to_str().expect("text")).unwrap_or(&at);
            assert_eq!((at, is), (leads, found), "{start} {raw}");
        }
        std::fs::remove_dir_all(top).expect("removed");
    }
}
