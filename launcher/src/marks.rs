//! When each named step was reached, in microseconds since the launcher began: what `--timings` prints.
//!
//! Every mark is a fault point too. In a build with the feature `fault-points`, and only there,
//! `REMIT_FAULT="init: root=kill"` makes the process that reaches that mark die there (`kill`), or hang (`stop`): the tests
//! show with it that nothing is left and nothing starts unconfined, whatever is lost and whenever.

use std::time::Instant;

pub struct Marks {
    began: Instant,
    reached: Vec<(String, u64)>,
}

impl Marks {
    pub fn new(began: Instant) -> Marks {
        Marks { began, reached: Vec::with_capacity(16) }
    }

    pub fn began(&self) -> Instant {
        self.began
    }

    pub fn mark(&mut self, name: &str) {
        self.reached.push((name.to_owned(), self.began.elapsed().as_micros() as u64));
        fault(name);
    }

    /// Those of the init, which counts from the same beginning.
    pub fn join(&mut self, others: Vec<(String, u64)>) {
        self.reached.extend(others);
    }

    pub fn as_slice(&self) -> &[(String, u64)] {
        &self.reached
    }

    pub fn into_vec(self) -> Vec<(String, u64)> {
        self.reached
    }
}

#[cfg(not(feature = "fault-points"))]
fn fault(_: &str) {}

#[cfg(feature = "fault-points")]
fn fault(name: &str) {
    let Ok(asked) = std::env::var("REMIT_FAULT") else { return };
    let signal = match asked.split_once('=') {
        Some((at, "kill")) if at == name => libc::SIGKILL,
        Some((at, "stop")) if at == name => libc::SIGSTOP,
        _ => return,
    };
    let _ = crate::sys::kill(rustix::process::getpid().as_raw_pid(), signal);
    // Process 1 of a pid namespace is not killed by its own signal.
    if signal == libc::SIGKILL {
        crate::sys::exit_now(137);
    } else if rustix::process::getpid().is_init() {
        std::thread::sleep(std::time::Duration::from_secs(3600));
    }
}
