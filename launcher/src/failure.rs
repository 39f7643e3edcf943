//! A step that failed: its name, the errno, the path and the remedy. "Set-up failed at step X" and "the program exited
//! with N" are different answers, so nothing here ever becomes an exit status of the program.

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failure {
    pub step: String,
    pub errno: i32,
    pub path: String,
    pub message: String,
    pub hint: Option<String>,
}

pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub fn new(step: &str, message: impl Into<String>) -> Failure {
        Failure { step: step.into(), errno: 0, path: String::new(), message: message.into(), hint: None }
    }

    pub fn hint(mut self, hint: &str) -> Failure {
        self.hint = Some(hint.into());
        self
    }
}

/// Names the step (and the path) of a failed call.
pub trait Step<T> {
    fn step(self, step: &str) -> Outcome<T>;
    fn at(self, step: &str, path: &str) -> Outcome<T>;
}

impl<T> Step<T> for Result<T, Errno> {
    fn step(self, step: &str) -> Outcome<T> {
        self.at(step, "")
    }

    fn at(self, step: &str, path: &str) -> Outcome<T> {
        self.map_err(|errno| Failure {
            step: step.into(),
            errno: errno.raw_os_error(),
            path: path.into(),
            message: std::io::Error::from(errno).to_string(),
            hint: remedy(step, errno).map(str::to_owned),
        })
    }
}

/// What the operator can do about the failures that hosts are known for.
fn remedy(step: &str, errno: Errno) -> Option<&'static str> {
    Some(match (step, errno) {
        ("namespaces", Errno::PERM | Errno::ACCESS) => {
            "this host does not let this user make user namespaces; see `remit doctor`"
        }
        ("namespaces", Errno::NOSPC | Errno::USERS) => {
            "the limit of namespaces is reached: raise user.max_user_namespaces"
        }
        ("namespaces", Errno::NOSYS) => "a seccomp filter (a container's?) answers clone3; see `remit doctor`",
        ("namespaces", Errno::NOENT) => {
            "/sys/fs/cgroup is not that of this cgroup namespace (a container with the host's?): mount its own there"
        }
        ("namespaces", Errno::INVAL) => "the kernel lacks one of the namespaces; see `remit doctor`",
        ("identity", Errno::PERM | Errno::ACCESS) => {
            "AppArmor may restrict user namespaces (kernel.apparmor_restrict_unprivileged_userns); see `remit doctor`"
        }
        ("root.place" | "root.mask", Errno::LOOP) => {
            "a symbolic link of filesystem.work.from lies on this path: name where it leads, or remove it"
        }
        ("root.proc", Errno::PERM) => {
            "parts of /proc are covered here (a container?), so no new one may be mounted; see `remit doctor`"
        }
        ("root.bind", Errno::NOENT) => "the file is gone since the remit was compiled; run again",
        ("root.bind" | "root.write", Errno::NOSPC) => {
            "the scratch space is too small: raise limits.disk or limits.files"
        }
        ("cgroup.create" | "cgroup.limit", Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
            "this cgroup is not delegated to the caller; see `remit doctor`"
        }
        _ => return None,
    })
}
