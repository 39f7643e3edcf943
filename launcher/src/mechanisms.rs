//! Each mechanism of one sandbox, as `full`, `partial` or `none`, with a word on why it is not full.

use crate::plan::Plan;

/// `skipped`: optional settings of the cgroups that this kernel does not have.
pub fn mechanisms(plan: &Plan, landlock_abi: u32, skipped: &[&str]) -> Vec<(String, &'static str, String)> {
    let mut found: Vec<(String, &'static str, String)> = Vec::new();
    let mut say = |name: &str, strength: &'static str, note: &str| found.push((name.into(), strength, note.into()));
    // Each of these is in force when the init reports: any failure before has ended the launch.
    for name in [
        "namespaces.user",
        "namespaces.mount",
        "namespaces.pid",
        "namespaces.net",
        "namespaces.ipc",
        "namespaces.uts",
        "namespaces.cgroup",
        "root",
        "capabilities",
        "no_new_privs",
        "seccomp",
        "rlimits",
        "disk",
        "die_with_parent",
    ] {
        say(name, "full", "");
    }
    match landlock_abi {
        0 => say("landlock", "none", "the kernel has no Landlock"),
        1..=5 => {
            say("landlock", "partial", &format!("ABI {landlock_abi}: signals and abstract sockets are not scoped"))
        }
        abi => say("landlock", "full", &format!("ABI {abi}")),
    }
    match &plan.cgroup {
        Some(cgroup) => {
            let note = format!("cgroup v{}", cgroup.version);
            for controller in ["memory", "pids", "cpu"] {
                let held = cgroup.version == 2 || cgroup.groups.iter().any(|g| g.controller == controller);
                let swaps = controller == "memory" && skipped.iter().any(|file| file.contains("sw")) && has_swap();
                match (held, swaps) {
                    (false, _) => say(&format!("cgroup.{controller}"), "none", &note),
                    (true, true) => say("cgroup.memory", "partial", "swap is not accounted: it comes on top"),
                    (true, false) => say(&format!("cgroup.{controller}"), "full", &note),
                }
            }
        }
        None => {
            let sampled = "no cgroup: sampled every 50 ms, killed from outside";
            say("cgroup.memory", if plan.limits.watchdog { "partial" } else { "none" }, sampled);
            say("cgroup.pids", "partial", "no cgroup: RLIMIT_NPROC of the user namespace");
            say("cgroup.cpu", "none", "no cgroup: no share of the cpu is held");
        }
    }
    let on = |set: bool| if set { "full" } else { "none" };
    say("wall_clock", on(plan.limits.wall_ms.is_some()), "");
    say("output_cap", on(plan.limits.output_bytes.is_some()), "");
    say("observe", on(plan.seccomp.notify.is_some()), plan.seccomp.notify.as_deref().unwrap_or("not asked for"));
    found
}

/// Has this host any swap? What it has not needs no holding.
fn has_swap() -> bool {
    std::fs::read_to_string("/proc/swaps").map_or(true, |text| text.lines().count() > 1)
}
