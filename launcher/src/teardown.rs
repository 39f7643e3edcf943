//! The end of a sandbox: kill what is left, carry the last output, read the accounts, hand over what is kept, remove.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, Timespec};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::process::{pidfd_send_signal, Signal};

use crate::ending::{Ending, Reason};
use crate::monitor::{Monitor, PATIENCE};
use crate::relay::Progress;
use crate::report::{Report, Usage};
use crate::{cgroup, sys};

/// How long output that was already written may take to reach its reader after a kill.
const DRAIN: Duration = Duration::from_secs(1);

impl Monitor<'_> {
    /// Kills what is left, carries the last output, reads the accounts, hands over what is kept, removes the rest.
    pub fn finish(mut self) -> (i32, Vec<(String, u64)>) {
        let teardown = Instant::now();
        let wall_us = self.marks.began().elapsed().as_micros() as u64;
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        if let Some(held) = &self.held {
            held.kill();
        }
        // A descendant waiting for an answer dies with the listener's end.
        self.listener = None;
        while matches!(sys::reap(true), Err(Errno::INTR)) {}
        self.marks.mark("tree dead");
        self.repeats.tell(self.reporter);
        self.drain();
        drop(self.terminal.take());
        let usage = self.usage(wall_us);
        if let Some(errno) = self.output.iter().find_map(|relay| relay.lost) {
            self.reporter.say(&Report::OutputLost { errno: errno.raw_os_error() });
        }
        if let Some(failure) = &self.failure {
            self.reporter.say(&Report::Failed { failure });
        }
        let ending = match &self.failure {
            Some(_) => Ending::setup_failed(),
            None => self.ending.take().unwrap_or(Ending::killed(Reason::Lost)),
        };
        if let Some(limit) = ending.limit() {
            self.reporter.say(&Report::Limit { limit });
        }
        let report = Report::Ended {
            reason: ending.reason.name(),
            code: ending.code,
            signal: ending.signal,
            exit: ending.exit,
            usage,
            errno: ending.errno,
        };
        // What the caller takes to copy is not the sandbox's end.
        let mut copied = Duration::ZERO;
        match self.kept.take().filter(|_| self.plan.keep.is_some() && self.failure.is_none()) {
            Some(kept) => {
                self.reporter.hand_over(&report, kept.as_fd());
                self.marks.mark("handed over");
                if let Some(fd) = self.reporter.descriptor() {
                    let copying = Instant::now();
                    self.control.wait_for_release(fd);
                    copied = copying.elapsed();
                }
            }
            None => self.reporter.say(&report),
        }
        self.view = None;
        // By the kernel's count where there is one. Without a cgroup it is none by construction: the init has been reaped,
        // and the kernel ends a pid namespace before its first process.
        let processes_left = self.held.as_ref().and_then(cgroup::Held::processes).unwrap_or(0);
        let left = self.held.take().map(|held| held.remove(PATIENCE)).unwrap_or_default();
        self.marks.mark("removed");
        self.reporter.say(&Report::Removed {
            teardown_us: (teardown.elapsed() - copied).as_micros() as u64,
            processes_left,
            cgroups_left: &left,
        });
        self.reporter.flush(SendFlags::empty());
        (ending.exit, self.marks.into_vec())
    }

    /// All writers are dead: what is in the pipes is all there will be.
    fn drain(&mut self) {
        let now = Instant::now();
        let end = match self.ending.as_ref().is_some_and(Ending::was_killed) {
            true => Some(now + DRAIN),
            // The program is over, and its reader has what was left of its time.
            false => self.deadline.map(|deadline| deadline.max(now) + DRAIN),
        };
        loop {
            let waiting: Vec<usize> = (0..self.output.len()).filter(|i| !self.output[*i].is_done()).collect();
            let mut fds: Vec<PollFd<'_>> = waiting
                .iter()
                .filter_map(|i| self.output[*i].interest().map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)))
                .collect();
            if fds.is_empty() {
                return;
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                drop(fds);
                for which in waiting {
                    self.output[which].lost.get_or_insert(Errno::TIMEDOUT);
                }
                return;
            }
            let slice = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            if !matches!(poll(&mut fds, Some(&slice)), Ok(_) | Err(Errno::INTR)) {
                return;
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            for (slot, which) in waiting.into_iter().enumerate() {
                if ready[slot] {
                    let left = self.plan.limits.output_bytes.map(|cap| cap.saturating_sub(self.output_bytes()));
                    if self.output[which].step(left) == Progress::OverCap {
                        // More than the cap was already on its way when the program ended.
                        self.ending = Some(Ending::killed(Reason::Output));
                        return;
                    }
                }
            }
        }
    }

    fn usage(&self, wall_us: u64) -> Usage {
        let held = self.held.as_ref();
        let disk = self.kept.as_ref().and_then(|fd| rustix::fs::fstatvfs(fd).ok());
        Usage {
            wall_us,
            cpu_us: held.and_then(cgroup::Held::cpu_us).unwrap_or(self.cpu_us),
            peak_memory_bytes: held
                .and_then(cgroup::Held::peak_memory)
                .or((self.peak.memory_bytes > 0).then_some(self.peak.memory_bytes)),
            peak_processes: held
                .and_then(cgroup::Held::peak_processes)
                .or((self.peak.processes > 0).then_some(self.peak.processes)),
            refused_forks: held.map_or(0, cgroup::Held::refused_forks),
            memory_kills: held.map_or(0, cgroup::Held::memory_kills),
            output_bytes: self.output_bytes(),
            disk_bytes: disk.as_ref().map_or(0, |d| (d.f_blocks - d.f_bfree) * d.f_frsize),
            disk_files: disk.as_ref().map_or(0, |d| d.f_files - d.f_ffree),
        }
    }
}
