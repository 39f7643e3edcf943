//! Where no cgroup holds the sandbox: the processes of its own /proc are sampled, and the monitor kills. A *partial*
//! mechanism: what is allocated and freed between two looks is not seen.

use std::os::fd::OwnedFd;

use rustix::fs::{openat, Mode, OFlags};

#[derive(Default, Clone, Copy)]
pub struct Sample {
    pub processes: u64,
    /// Proportional share, so that what forked children share counts once.
    pub memory_bytes: u64,
    pub cpu_us: u64,
}

/// `root`: the sandbox's root, whose /proc lists its processes alone.
/// Memory is summed resident sizes first; only a sum above `exact_above` is looked at again, by proportional share.
/// `None`: /proc could not be read.
pub fn sample(root: &OwnedFd, exact_above: u64) -> Option<Sample> {
    let mut sample = Sample::default();
    let pids = entries(root, "proc")?;
    sample.processes = pids.len() as u64;
    for pid in &pids {
        sample.memory_bytes += resident(root, pid).unwrap_or(0);
        sample.cpu_us += cpu(root, pid).unwrap_or(0);
    }
    if sample.memory_bytes > exact_above {
        sample.memory_bytes =
            pids.iter().map(|pid| proportional(root, pid).or_else(|| resident(root, pid)).unwrap_or(0)).sum();
    }
    Some(sample)
}

/// The numbers that are listed in a directory of the sandbox's /proc.
fn entries(root: &OwnedFd, directory: &str) -> Option<Vec<String>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(proc) = openat(root, directory, flags, Mode::empty()) else { return None };
    let Ok(entries) = rustix::fs::Dir::read_from(proc) else { return None };
    let numbers = entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str().ok()?.to_owned()))
        .filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
    Some(numbers.collect())
}

fn read(root: &OwnedFd, pid: &str, file: &str) -> Option<String> {
    let path = format!("proc/{pid}/{file}");
    let fd = openat(root, &*path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = vec![0; 4096];
    let n = rustix::io::read(fd, &mut bytes[..]).ok()?;
    bytes.truncate(n);
    String::from_utf8(bytes).ok()
}

fn resident(root: &OwnedFd, pid: &str) -> Option<u64> {
    let of = |file: &str| read(root, pid, file)?.split(' ').nth(1)?.parse::<u64>().ok();
    let mut pages = of("statm")?;
    if pages == 0 {
        // A first thread that has ended shows no memory, and the others may still have all of it.
        pages = entries(root, &format!("proc/{pid}/task"))
            .unwrap_or_default()
            .iter()
            .filter_map(|thread| of(&format!("task/{thread}/statm")))
            .max()
            .unwrap_or(0);
    }
    Some(pages * rustix::param::page_size() as u64)
}

fn proportional(root: &OwnedFd, pid: &str) -> Option<u64> {
    let text = read(root, pid, "smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn cpu(root: &OwnedFd, pid: &str) -> Option<u64> {
    let text = read(root, pid, "stat")?;
    // After the name, which may hold anything: utime and stime (and those of waited-for children).
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: u64 = fields.get(11..15)?.iter().filter_map(|f| f.parse::<u64>().ok()).sum();
    Some(ticks * 1_000_000 / rustix::param::clock_ticks_per_second())
}
