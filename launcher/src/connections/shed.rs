//! What the relay gives up before it hears its first command. What it needs afterwards: the descriptors that it is given,
//! memory and a clock.

use std::os::fd::{AsRawFd, OwnedFd};

use landlock::{Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr, Scope, ABI};
use rustix::io::Errno;
use rustix::process::{getrlimit, set_parent_process_death_signal, setrlimit, Resource, Rlimit, Signal};
use rustix::thread::{set_capabilities, set_no_new_privs, CapabilitySet, CapabilitySets};

use crate::{confine, sys};

pub fn all(control: &OwnedFd) -> Result<(), Errno> {
    // The end of the control socket says it too, but a relay that is stopped could not hear it.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    sys::close_all_but(&[0, 1, 2, control.as_raw_fd()]);
    let descriptors = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: descriptors, maximum: descriptors })?;
    sys::set_dumpable(false)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    landlock();
    confine::filter("relay")
}

/// No path, no new connection, no signal to anybody. As much of that as this kernel has: the filter of system calls refuses
/// the same, and always.
fn landlock() {
    let abi = ABI::V6;
    let _ = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(abi)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(abi)))
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self);
}
