//! The launch plan: everything the launcher does, as data. The shape is `contracts/launch-plan.v1.schema.json`; Python's
//! `remit.plan.launch_plan` writes it, and both sides parse the same golden fixtures. Unknown keys are refused: a plan
//! from a newer compiler must not be half obeyed.

use std::net::Ipv4Addr;

use serde::Deserialize;

mod check;
#[cfg(test)]
mod fuzz;

pub const VERSION: u32 = 1;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub version: u32,
    /// Names the sandbox in cgroups and messages.
    pub sandbox: String,
    pub identity: Identity,
    pub hostname: String,
    /// A way out through the caller's broker; `None`: the loopback of its own and nothing else.
    #[serde(default)]
    pub network: Option<Network>,
    pub scratch: Scratch,
    pub root: Vec<RootOp>,
    pub landlock: Landlock,
    pub seccomp: Seccomp,
    pub cgroup: Option<Cgroup>,
    pub rlimits: Rlimits,
    pub limits: Limits,
    pub stdio: Stdio,
    /// The scratch directory whose descriptor is handed over at the end (`work`, which may be an overlay's upper layer,
    /// or `prefix`); the launcher then waits until the caller has taken what it keeps.
    pub keep: Option<String>,
    pub command: Command,
}

/// Who the program is. `uid` and `gid` are what it sees; `host_*` are what the host sees. `None` (an ordinary user):
/// the caller's own ids, which are the only ones it may map.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    pub host_uid: Option<u32>,
    pub host_gid: Option<u32>,
}

/// What is opened inside for the broker outside.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// The sandbox's own address beside 127.0.0.1, and where its names are answered.
    pub address: Ipv4Addr,
    pub dns: bool,
    /// TCP ports that the broker serves, on every address.
    pub ports: Vec<u16>,
    /// The broker's sockets are in a namespace beside the sandbox's, so that all ports inside are the programs' own; this is
    /// the sandbox's address then, and `address` is beyond. `None`: they are inside, and take their ports.
    #[serde(default)]
    pub own: Option<Ipv4Addr>,
}

/// More could not be handed over at once.
pub const MOST_PORTS: usize = 60;

/// The one tmpfs that holds all that can be written (and the skeleton of the root), so that one cap covers it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scratch {
    pub bytes: u64,
    pub inodes: u64,
}

/// One step in the making of the root. Paths are absolute, as seen inside; parents come first.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum RootOp {
    Dir {
        path: String,
        mode: u32,
    },
    Symlink {
        path: String,
        target: String,
    },
    File {
        path: String,
        mode: u32,
        content: String,
    },
    /// A file that is no text.
    Bytes {
        path: String,
        mode: u32,
        hex: String,
    },
    /// A file or directory of the host, seen at `to`.
    Bind {
        from: String,
        to: String,
        kind: Kind,
        #[serde(default)]
        write: bool,
        #[serde(default)]
        exec: bool,
        /// Device nodes work on it. For /dev/null and the like alone.
        #[serde(default)]
        dev: bool,
        /// Refuse to go on if what is there is not what was hashed.
        #[serde(default)]
        expect: Option<Stamp>,
        /// As root: show the owner of `from` as the guest's own id, by an idmapped mount.
        #[serde(default)]
        own: bool,
    },
    /// A directory `name` of the scratch tmpfs, writable at `to`.
    Scratch {
        name: String,
        to: String,
        exec: bool,
    },
    /// `lower` (a host directory) below and, with `write`, the scratch above, copy on write, at `to`. Without, it is only
    /// read; it is an overlay all the same, since through one a socket or FIFO of the host is not the host's.
    Overlay {
        lower: String,
        to: String,
        write: bool,
        exec: bool,
        own: bool,
    },
    Proc {
        to: String,
    },
    Devpts {
        to: String,
    },
    /// Make `path` unreadable if it is there.
    Mask {
        path: String,
        /// The path's bytes in hexadecimal, where they are no UTF-8: whatever a file is called, it can be masked.
        #[serde(default)]
        bytes: Option<String>,
    },
    /// Make the mount at `path` read-only, if it is there.
    Readonly {
        path: String,
    },
    /// The sandbox's own cgroup of one controller (version 2: the only one), read-only at `to`.
    CgroupView {
        controller: String,
        to: String,
    },
}

#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    File,
    Dir,
}

/// What a file was when its contents were hashed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stamp {
    pub dev: u64,
    pub ino: u64,
    pub size: u64,
    pub ctime_ns: i64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Landlock {
    /// Least ABI to go on with; 0 means that a host without Landlock is accepted, and `mechanisms` says `none`.
    pub min_abi: u32,
    pub rules: Vec<LandlockRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LandlockRule {
    pub access: Access,
    pub paths: Vec<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    Read,
    Execute,
    Write,
    /// Read, write and ioctl on device nodes.
    Device,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seccomp {
    /// Name of a filter compiled into this binary (`build.rs`, STACKS): `default` or `default+memfd`.
    pub filter: String,
    /// The filter whose matches are reported, if any: `observe-exec-connect` or `observe-open`.
    pub notify: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cgroup {
    pub version: u32,
    pub groups: Vec<CgroupGroup>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CgroupGroup {
    /// `memory`, `pids`, `cpu`, `cpuacct`, `freezer`; `unified` in version 2.
    pub controller: String,
    /// The directory to make. Its parent exists.
    pub dir: String,
    pub set: Vec<CgroupSetting>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CgroupSetting {
    pub file: String,
    pub value: String,
    /// The kernel may not have this file (swap accounting off, an older kernel); without it the limit still holds.
    #[serde(default)]
    pub optional: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rlimits {
    pub nofile: u64,
    pub nproc: u64,
    pub core: u64,
    /// Seconds of cpu for one process; `None` leaves the caller's own limit.
    pub cpu: Option<u64>,
    pub memlock: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    pub wall_ms: Option<u64>,
    pub cpu_time_ms: Option<u64>,
    pub output_bytes: Option<u64>,
    pub memory_bytes: u64,
    /// Sample the memory of the whole tree and kill: where no cgroup holds it.
    pub watchdog: bool,
    /// After SIGTERM from the caller: how long until the rest is killed.
    pub grace_ms: u64,
}

#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Stdio {
    Pipe,
    Tty,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    pub path: String,
    pub argv: Vec<String>,
    pub env: Vec<String>,
    pub cwd: String,
}

impl Plan {
    /// Parses and checks what the types alone don't say. The message names the field.
    pub fn parse(text: &[u8]) -> Result<Plan, String> {
        let plan: Plan = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        check::check(&plan)?;
        Ok(plan)
    }
}

impl RootOp {
    /// Where inside the step acts.
    pub fn target(&self) -> &str {
        match self {
            RootOp::Dir { path, .. }
            | RootOp::Symlink { path, .. }
            | RootOp::File { path, .. }
            | RootOp::Bytes { path, .. }
            | RootOp::Mask { path, .. }
            | RootOp::Readonly { path } => path,
            RootOp::Bind { to, .. }
            | RootOp::Scratch { to, .. }
            | RootOp::Overlay { to, .. }
            | RootOp::Proc { to }
            | RootOp::Devpts { to }
            | RootOp::CgroupView { to, .. } => to,
        }
    }
}

/// The bytes that `text` says in hexadecimal; `None` if it says none.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some((digit(*pair.first()?)? << 4) | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::Plan;
    use std::fs;

    fn fixtures(folder: &str) -> Vec<(String, Vec<u8>)> {
        let folder = format!("{}/../tests/contract/fixtures/{folder}", env!("CARGO_MANIFEST_DIR"));
        let mut found: Vec<_> = fs::read_dir(&folder)
            .expect(&folder)
            .map(|entry| {
                let path = entry.expect("entry").path();
                (path.display().to_string(), fs::read(&path).expect("readable"))
            })
            .collect();
        found.sort();
        found
    }

    #[test]
    fn every_golden_plan_is_read() {
        let plans = fixtures("plans");
        assert!(plans.len() >= 3);
        for (name, text) in plans {
            let plan = Plan::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!plan.root.is_empty(), "{name}");
        }
    }

    #[test]
    fn every_bad_plan_is_refused_with_words() {
        let plans = fixtures("bad-plans");
        assert!(plans.len() >= 30);
        for (name, text) in plans {
            let error = Plan::parse(&text).err().unwrap_or_else(|| panic!("{name} was read"));
            assert!(!error.is_empty(), "{name}");
        }
    }

    #[test]
    fn no_cut_of_a_plan_is_read() {
        let (name, text) = fixtures("plans").swap_remove(0);
        let whole = text.iter().rposition(|b| *b == b'}').expect("an object");
        for end in (0..whole).step_by(7) {
            assert!(Plan::parse(&text[..end]).is_err(), "{name} cut at {end}");
        }
    }
}
