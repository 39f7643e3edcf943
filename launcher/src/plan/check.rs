//! What a plan's types don't say and its maker promises. Each fault names its field; a plan with one is not begun.

use super::{from_hex, Cgroup, Kind, Landlock, Plan, RootOp, MOST_PORTS, VERSION};

/// The kernel takes 0 for "without a limit", and rounds sizes up.
const MOST_BYTES: u64 = 1 << 60;
/// Where the launcher keeps what it needs while the root is made.
const OURS: &str = "/.scratch";
const CGROUPS: &str = "/sys/fs/cgroup/";

type Checked = Result<(), String>;

fn fail(what: impl Into<String>) -> Checked {
    Err(what.into())
}

pub fn check(plan: &Plan) -> Checked {
    if plan.version != VERSION {
        return fail(format!("plan version {} is not {VERSION}", plan.version));
    }
    if plan.sandbox.is_empty() || !plan.sandbox.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return fail("sandbox: letters, digits and '-' only");
    }
    identity(plan)?;
    if plan.hostname.is_empty() || plan.hostname.len() > 64 {
        return fail("hostname: 1 to 64 bytes");
    }
    text("hostname", &plan.hostname)?;
    if !(1..=MOST_BYTES).contains(&plan.scratch.bytes) || plan.scratch.inodes == 0 {
        return fail("scratch: a size of 0, or one beyond all memory, would be no limit");
    }
    if let Some(network) = &plan.network {
        let ports: std::collections::BTreeSet<_> = network.ports.iter().collect();
        if ports.len() != network.ports.len() || ports.len() > MOST_PORTS || ports.contains(&0) {
            return fail(format!("network.ports: at most {MOST_PORTS}, each once, and none is 0"));
        }
        if network.own == Some(network.address) {
            return fail("network.own: the two ends have addresses of their own");
        }
    }
    plan.root.iter().try_for_each(step)?;
    if let Some(name) = &plan.keep {
        let named = |op: &RootOp| match op {
            RootOp::Scratch { name: scratch, .. } => scratch == name,
            RootOp::Overlay { write, .. } => *write && name == "work",
            _ => false,
        };
        if !plan.root.iter().any(named) {
            return fail(format!("keep: no step of the root makes {name:?}"));
        }
    }
    landlock(&plan.landlock)?;
    if !matches!(&*plan.seccomp.filter, "default" | "default+memfd") {
        return fail(format!("seccomp.filter: there is no filter named {:?}", plan.seccomp.filter));
    }
    if !matches!(plan.seccomp.notify.as_deref(), None | Some("observe-exec-connect" | "observe-open")) {
        return fail(format!("seccomp.notify: {:?} observes nothing", plan.seccomp.notify));
    }
    plan.cgroup.as_ref().map_or(Ok(()), cgroup)?;
    let command = &plan.command;
    if command.argv.is_empty() {
        return fail("command.argv is empty");
    }
    absolute("command.path", &command.path)?;
    absolute("command.cwd", &command.cwd)?;
    command.argv.iter().try_for_each(|argument| text("command.argv", argument))?;
    command.env.iter().try_for_each(|variable| text("command.env", variable))
}

fn identity(plan: &Plan) -> Checked {
    let id = &plan.identity;
    // The last one stands for "unchanged" in the calls that set ids.
    let bad = |id: u32| id == 0 || id == u32::MAX;
    if bad(id.uid) || bad(id.gid) || id.host_uid.is_some_and(bad) || id.host_gid.is_some_and(bad) {
        return fail("identity: id 0 is never given to a sandbox, nor the id that means none");
    }
    if id.host_uid.is_some() != id.host_gid.is_some() {
        return fail("identity: host_uid and host_gid go together");
    }
    Ok(())
}

fn step(op: &RootOp) -> Checked {
    let target = op.target();
    normalised("root", target)?;
    if target.strip_prefix(OURS).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
        return fail(format!("root: {target:?} is the launcher's own"));
    }
    match op {
        RootOp::Dir { mode, .. } | RootOp::File { mode, .. } | RootOp::Bytes { mode, .. } if mode & !0o1777 != 0 => {
            fail(format!("root: {target:?}: the mode {mode:#o} has more than permissions and the sticky bit"))
        }
        RootOp::Bytes { hex, .. } if from_hex(hex).is_none() => {
            fail(format!("root: {target:?}: its content is not pairs of hexadecimal digits"))
        }
        RootOp::Symlink { target: leads, .. } if leads.is_empty() => fail(format!("root: {target:?} leads nowhere")),
        RootOp::Symlink { target: leads, .. } => text("root", leads),
        RootOp::Bind { from, kind, dev, .. } => {
            if *dev && *kind == Kind::Dir {
                return fail(format!("root: {target:?}: devices are shown one by one"));
            }
            absolute("root", from)
        }
        RootOp::Mask { bytes: Some(bytes), .. } => {
            let clean = from_hex(bytes).is_some_and(|path| {
                let ours = path.strip_prefix(OURS.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
                let mut parts = path.strip_prefix(b"/").unwrap_or(b"").split(|b| *b == b'/');
                !ours && !path.contains(&0) && parts.all(|part| !matches!(part, b"" | b"." | b".."))
            });
            if clean {
                Ok(())
            } else {
                fail(format!("root: {target:?}: its bytes are not an absolute, normalised path"))
            }
        }
        RootOp::Overlay { lower, .. } => absolute("root", lower),
        RootOp::Scratch { name, .. } if !matches!(&**name, "work" | "tmp" | "shm" | "home" | "prefix") => {
            fail(format!("root: there is no scratch directory named {name:?}"))
        }
        _ => Ok(()),
    }
}

fn landlock(plan: &Landlock) -> Checked {
    let mut paths = plan.rules.iter().flat_map(|rule| &rule.paths);
    paths.try_for_each(|path| if path == "/" { Ok(()) } else { normalised("landlock", path) })
}

fn cgroup(plan: &Cgroup) -> Checked {
    if !matches!((plan.version, plan.groups.len()), (1, 1..) | (2, 1)) {
        return fail("cgroup: version 1 with its groups, or version 2 with its one");
    }
    for group in &plan.groups {
        normalised("cgroup", &group.dir)?;
        if !group.dir.starts_with(CGROUPS) {
            return fail(format!("cgroup: {:?} is not below {CGROUPS}", group.dir));
        }
        for setting in &group.set {
            if setting.file.is_empty() || setting.file.contains(['/', '\0']) || setting.file.starts_with('.') {
                return fail(format!("cgroup: {:?} is no file of a cgroup", setting.file));
            }
        }
    }
    Ok(())
}

/// What goes to the kernel ends at the first NUL; so two readers would see two things.
fn text(field: &str, value: &str) -> Checked {
    if value.contains('\0') {
        return fail(format!("{field}: {value:?} holds a NUL"));
    }
    Ok(())
}

fn absolute(field: &str, path: &str) -> Checked {
    if !path.starts_with('/') {
        return fail(format!("{field}: {path:?} is not an absolute path"));
    }
    text(field, path)
}

fn normalised(field: &str, path: &str) -> Checked {
    let clean = path.starts_with('/') && path.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
    if !clean {
        return fail(format!("{field}: {path:?} is not an absolute, normalised path"));
    }
    text(field, path)
}
