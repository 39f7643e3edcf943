//! Limits by cgroup, versions 1 and 2. The plan names directories, files and values; this makes, fills, reads and
//! removes them. Version 2: the init is born inside (`CLONE_INTO_CGROUP`). Version 1: it moves itself before anything else.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, CWD};
use rustix::io::Errno;

use crate::failure::{Failure, Outcome, Step};
use crate::plan::{Cgroup, CgroupGroup};

/// Moves the caller, a single thread, through `doors`.
pub fn enter(doors: &[OwnedFd]) -> Outcome<()> {
    doors.iter().try_for_each(|door| rustix::io::write(door, b"0").map(drop).step("cgroup.admit"))
}

/// Cgroups that exist and are removed again, whatever happens.
pub struct Held<'a> {
    plan: &'a Cgroup,
    made: Vec<&'a CgroupGroup>,
    /// Optional settings that this kernel does not have.
    pub skipped: Vec<&'a str>,
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn write(dir: &str, file: &str, value: &str) -> Result<(), Errno> {
    let path = format!("{dir}/{file}");
    let fd = rustix::fs::openat(CWD, &*path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&fd, value.as_bytes()).map(drop)
}

/// A small file of the cgroup's, in one read.
fn read(path: &str) -> Option<String> {
    let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = vec![0; 4096];
    let n = rustix::io::read(fd, &mut bytes[..]).ok()?;
    bytes.truncate(n);
    String::from_utf8(bytes).ok()
}

impl<'a> Held<'a> {
    /// Makes and fills them; if one can't be, those already made are removed again.
    pub fn create(plan: &'a Cgroup) -> Outcome<Held<'a>> {
        let mut held = Held { plan, made: Vec::new(), skipped: Vec::new() };
        match held.fill() {
            Ok(()) => Ok(held),
            Err(failure) => {
                held.remove(Duration::ZERO);
                Err(failure)
            }
        }
    }

    fn fill(&mut self) -> Outcome<()> {
        for group in &self.plan.groups {
            rustix::fs::mkdir(&*group.dir, Mode::from_raw_mode(0o755)).at("cgroup.create", &group.dir)?;
            self.made.push(group);
            for setting in &group.set {
                match write(&group.dir, &setting.file, &setting.value) {
                    Err(Errno::NOENT | Errno::OPNOTSUPP | Errno::ACCESS) if setting.optional => {
                        self.skipped.push(&setting.file);
                    }
                    other => other.at("cgroup.limit", &format!("{}/{}", group.dir, setting.file))?,
                }
            }
        }
        Ok(())
    }

    /// The directory to be born in, in version 2.
    pub fn birthplace(&self) -> Outcome<OwnedFd> {
        let Some(group) = self.plan.groups.first() else {
            return Err(Failure::new("cgroup.create", "version 2 needs its one group"));
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(&*group.dir, flags, Mode::empty()).at("cgroup.create", &group.dir)
    }

    /// What the init writes `0` to, to move itself in, in version 1.
    ///
    /// A thread that moves itself takes no global lock. Moving another (or a whole process, `cgroup.procs`) waits for a
    /// grace period of the kernel first: 5 to 10 ms where this takes 0.02. The kernel judges the write by who opened.
    pub fn doors(&self) -> Outcome<Vec<OwnedFd>> {
        if self.plan.version != 1 {
            return Ok(Vec::new());
        }
        let open = |group: &CgroupGroup| {
            let path = format!("{}/tasks", group.dir);
            rustix::fs::open(&*path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).at("cgroup.admit", &path)
        };
        self.plan.groups.iter().map(open).collect()
    }

    fn group(&self, controller: &str) -> Option<&'a CgroupGroup> {
        let v2 = self.plan.version == 2;
        self.made.iter().copied().find(|g| v2 || g.controller == controller)
    }

    fn number(&self, controller: &str, file: &str, key: Option<&str>) -> Option<u64> {
        let group = self.group(controller)?;
        let text = read(&format!("{}/{file}", group.dir))?;
        let Some(key) = key else { return text.trim().parse().ok() };
        text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
    }

    pub fn cpu_us(&self) -> Option<u64> {
        match self.plan.version {
            2 => self.number("cpu", "cpu.stat", Some("usage_usec")),
            _ => self.number("cpuacct", "cpuacct.usage", None).map(|ns| ns / 1000),
        }
    }

    pub fn peak_memory(&self) -> Option<u64> {
        match self.plan.version {
            2 => self.number("memory", "memory.peak", None),
            _ => self.number("memory", "memory.max_usage_in_bytes", None),
        }
    }

    pub fn peak_processes(&self) -> Option<u64> {
        self.number("pids", "pids.peak", None)
    }

    /// How often the kernel killed for memory.
    pub fn memory_kills(&self) -> u64 {
        match self.plan.version {
            2 => self.number("memory", "memory.events", Some("oom_kill")),
            _ => self.number("memory", "memory.oom_control", Some("oom_kill")),
        }
        .unwrap_or(0)
    }

    /// How often a fork was refused.
    pub fn refused_forks(&self) -> u64 {
        self.number("pids", "pids.events", Some("max")).unwrap_or(0)
    }

    /// Kills all that is left inside. The end of the pid namespace does the same; this is the second lock.
    pub fn kill(&self) {
        if self.plan.version == 2 {
            if let Some(group) = self.made.first() {
                let _ = write(&group.dir, "cgroup.kill", "1");
            }
        }
    }

    /// How many processes are in there, by the kernel's own count.
    pub fn processes(&self) -> Option<u64> {
        self.number("pids", "pids.current", None)
    }

    /// Removes the directories; returns those that could not be removed within `patience`.
    pub fn remove(self, patience: Duration) -> Vec<String> {
        let end = Instant::now() + patience;
        let mut left: Vec<String> = Vec::new();
        for group in self.made.iter().rev() {
            loop {
                match fs::remove_dir(Path::new(&group.dir)) {
                    Ok(()) => break,
                    Err(error) if errno(&error) == Errno::NOENT => break,
                    Err(error) if errno(&error) == Errno::BUSY && Instant::now() < end => {
                        std::thread::sleep(Duration::from_micros(200));
                    }
                    Err(_) => {
                        left.push(group.dir.clone());
                        break;
                    }
                }
            }
        }
        left
    }
}
