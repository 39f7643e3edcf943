//! What the init, and so everything it starts, gives up: capabilities, new privileges, paths (Landlock), system calls
//! (seccomp). In this order: Landlock needs open files, seccomp refuses what the earlier steps call.

use std::os::fd::OwnedFd;

use landlock::{
    Access as _, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    Scope, ABI,
};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use crate::failure::{Failure, Outcome, Step};
use crate::plan::{Access, Landlock, Seccomp};
use crate::sys;

include!(concat!(env!("OUT_DIR"), "/filters.rs"));

/// The newest ABI whose rights this launcher asks for.
const WANTED: ABI = ABI::V6;

/// Empties every capability set and locks the ways back.
pub fn capabilities() -> Outcome<()> {
    let all = CapabilitySet::all();
    for capability in all.iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // A capability that this kernel does not have yet.
            Err(Errno::INVAL) => {}
            other => other.step("capabilities")?,
        }
    }
    let locked = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(locked).step("capabilities")?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).step("capabilities")?;
    rustix::thread::set_no_new_privs(true).step("no_new_privs")
}

/// The ABI of Landlock that this kernel has; 0 for none.
pub fn landlock_abi() -> u32 {
    sys::landlock_version()
}

/// Restricts to the plan's paths. Returns the ABI that is in force, 0 where the plan accepts a host without any.
pub fn landlock(plan: &Landlock) -> Outcome<u32> {
    let found = landlock_abi();
    if found < plan.min_abi {
        return Err(Failure::new(
            "landlock",
            format!("the kernel has Landlock ABI {found}, {} is needed", plan.min_abi),
        )
        .hint("boot with landlock in the lsm= list and a newer kernel, or accept a lesser tier by name"));
    }
    if found == 0 {
        return Ok(0);
    }
    let abi = ABI::from(found.min(WANTED as u32) as i32);
    let failed = |error: &dyn std::fmt::Display| Failure::new("landlock", error.to_string());
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))
        .map_err(|e| failed(&e))?;
    if abi >= ABI::V6 {
        ruleset = ruleset.scope(Scope::from_all(abi)).map_err(|e| failed(&e))?;
    }
    let mut created = ruleset.create().map_err(|e| failed(&e))?;
    for rule in &plan.rules {
        for path in &rule.paths {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let fd = rustix::fs::open(&**path, flags, Mode::empty()).at("landlock", path)?;
            let found = rustix::fs::fstat(&fd).at("landlock", path)?;
            let mut access = rights(rule.access, abi);
            if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
                access &= AccessFs::from_file(abi);
            }
            created = created.add_rule(PathBeneath::new(fd, access)).map_err(|e| failed(&e))?;
        }
    }
    created.restrict_self().map_err(|e| failed(&e))?;
    Ok(abi as u32)
}

fn rights(access: Access, abi: ABI) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    match access {
        Access::Read => read,
        Access::Execute => read | AccessFs::Execute,
        // No device nodes: mknod of them is refused by seccomp too.
        Access::Write => (read | AccessFs::from_write(abi)) & !(AccessFs::MakeChar | AccessFs::MakeBlock),
        Access::Device => {
            let device = read | AccessFs::WriteFile;
            if abi >= ABI::V5 {
                device | AccessFs::IoctlDev
            } else {
                device
            }
        }
    }
}

/// Installs the filter of that name on this process: for one that confines itself, without a plan.
pub fn filter(name: &str) -> Result<(), Errno> {
    let (_, program) = FILTERS.iter().find(|(known, _)| *known == name).ok_or(Errno::NOENT)?;
    sys::seccomp(program, false).map(drop)
}

/// Installs the plan's filter, and the notifying one over it. Returns its listener.
pub fn seccomp(plan: &Seccomp) -> Outcome<Option<OwnedFd>> {
    let find = |name: &str| {
        let found = FILTERS.iter().find(|(known, _)| *known == name);
        found.map(|(_, program)| *program).ok_or_else(|| {
            Failure::new("seccomp", format!("this launcher has no filter named {name:?}"))
                .hint("the plan and the launcher are of different versions")
        })
    };
    if plan.filter.starts_with("observe") {
        return Err(Failure::new("seccomp", "an observing filter allows everything: it can't be the filter"));
    }
    sys::seccomp(find(&plan.filter)?, false).at("seccomp", &plan.filter)?;
    match &plan.notify {
        Some(name) => sys::seccomp(find(name)?, true).at("seccomp", name),
        None => Ok(None),
    }
}

#[cfg(test)]
#[path = "every_call.rs"]
mod every_call;
