//! How a sandbox ended, and what a shell is told: the program's own status, 128 + a signal, 124 for the wall clock, 137
//! for other limits, 126/127 for a program that could not be executed, 125 for set-up.

use rustix::io::Errno;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Exited,
    NotExecuted,
    Wall,
    Memory,
    CpuTime,
    Output,
    /// By the caller's word or signal.
    Killed,
    /// The init or the caller vanished.
    Lost,
    Setup,
}

impl Reason {
    pub fn name(self) -> &'static str {
        match self {
            Reason::Exited => "exited",
            Reason::NotExecuted => "not_executed",
            Reason::Wall => "wall",
            Reason::Memory => "memory",
            Reason::CpuTime => "cpu_time",
            Reason::Output => "output",
            Reason::Killed => "killed",
            Reason::Lost => "lost",
            Reason::Setup => "setup",
        }
    }
}

pub struct Ending {
    pub reason: Reason,
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub exit: i32,
    pub errno: i32,
}

impl Ending {
    pub fn exited(code: Option<i32>, signal: Option<i32>) -> Ending {
        let exit = code.unwrap_or_else(|| 128 + signal.unwrap_or(libc::SIGKILL));
        Ending { reason: Reason::Exited, code, signal, exit, errno: 0 }
    }

    pub fn killed(reason: Reason) -> Ending {
        let exit = if reason == Reason::Wall { 124 } else { 128 + libc::SIGKILL };
        Ending { reason, code: None, signal: Some(libc::SIGKILL), exit, errno: 0 }
    }

    pub fn not_executed(errno: i32) -> Ending {
        let exit = if errno == Errno::NOENT.raw_os_error() { 127 } else { 126 };
        Ending { reason: Reason::NotExecuted, code: None, signal: None, exit, errno }
    }

    pub fn setup_failed() -> Ending {
        Ending { reason: Reason::Setup, code: None, signal: None, exit: 125, errno: 0 }
    }

    pub fn was_killed(&self) -> bool {
        !matches!(self.reason, Reason::Exited | Reason::NotExecuted)
    }

    /// The limit that ended it, by its name in the remit.
    pub fn limit(&self) -> Option<&'static str> {
        match self.reason {
            Reason::Wall | Reason::Memory | Reason::CpuTime | Reason::Output => Some(self.reason.name()),
            _ => None,
        }
    }
}
