//! The compiled filters against every system call of both architectures, each in the class that
//! `seccomp/every-call.txt` gives it. The programs are run as the kernel runs them, so this holds whatever makes them.

use std::collections::BTreeMap;

use syscalls::{aarch64, x86_64};

type Filters = &'static [(&'static str, &'static [crate::sys::Instruction])];

const X86_64: u32 = 0xc000_003e;
const AARCH64: u32 = 0xc000_00b7;
const I386: u32 = 0x4000_0003;
const ARM: u32 = 0x4000_0028;
const RISCV64: u32 = 0xc000_00f3;
const X32: u32 = 0x4000_0000;

const ALLOW: u32 = 0x7fff_0000;
const NOTIFY: u32 = 0x7fc0_0000;
const KILL: u32 = 0x8000_0000;
const EPERM: u32 = 0x0005_0001;
const ENOSYS: u32 = 0x0005_0026;

mod of_x86_64 {
    use crate::sys;
    include!(concat!(env!("OUT_DIR"), "/filters-x86_64.rs"));
}
mod of_aarch64 {
    use crate::sys;
    include!(concat!(env!("OUT_DIR"), "/filters-aarch64.rs"));
}

/// Beyond what any kernel has.
const NUMBERS: std::ops::Range<u32> = 0..8192;

struct Arch {
    name: &'static str,
    audit: u32,
    filters: Filters,
    /// Every call that has a name, as the `syscalls` crate takes them from the kernel's tables.
    calls: BTreeMap<u32, &'static str>,
}

fn arches() -> [Arch; 2] {
    [
        Arch {
            name: "x86_64",
            audit: X86_64,
            filters: of_x86_64::FILTERS,
            calls: NUMBERS.filter_map(|n| Some((n, x86_64::Sysno::new(n as usize)?.name()))).collect(),
        },
        Arch {
            name: "aarch64",
            audit: AARCH64,
            filters: of_aarch64::FILTERS,
            calls: NUMBERS.filter_map(|n| Some((n, aarch64::Sysno::new(n as usize)?.name()))).collect(),
        },
    ]
}

impl Arch {
    fn answer(&self, filter: &str, number: u32, args: [u64; 6]) -> u32 {
        let (_, program) = self.filters.iter().find(|(name, _)| *name == filter).expect(filter);
        run(program, number, self.audit, args).0
    }

    fn looks_at_arguments(&self, filter: &str, number: u32) -> bool {
        let (_, program) = self.filters.iter().find(|(name, _)| *name == filter).expect(filter);
        run(program, number, self.audit, [0; 6]).1
    }

    fn number(&self, call: &str) -> Option<u32> {
        self.calls.iter().find(|(_, known)| **known == call).map(|(number, _)| *number)
    }
}

/// A filter over one `struct seccomp_data`, as the kernel interprets it: the answer, and whether arguments were looked at.
fn run(program: &[crate::sys::Instruction], number: u32, arch: u32, args: [u64; 6]) -> (u32, bool) {
    let mut looked = false;
    let mut data = Vec::new();
    data.extend_from_slice(&number.to_le_bytes());
    data.extend_from_slice(&arch.to_le_bytes());
    data.extend_from_slice(&0u64.to_le_bytes());
    args.iter().for_each(|arg| data.extend_from_slice(&arg.to_le_bytes()));
    let (mut at, mut a) = (0usize, 0u32);
    loop {
        let (code, jt, jf, k) = program[at];
        at += 1;
        let mut jump = |holds: bool| at += usize::from(if holds { jt } else { jf });
        match code {
            0x20 => {
                looked |= k >= 16;
                a = u32::from_le_bytes(data[k as usize..][..4].try_into().expect("four bytes"));
            }
            0x54 => a &= k,
            0x05 => at += k as usize,
            0x15 => jump(a == k),
            0x25 => jump(a > k),
            0x35 => jump(a >= k),
            0x45 => jump(a & k != 0),
            0x06 => return (k, looked),
            other => panic!("instruction {other:#x} is not known here"),
        }
    }
}

/// Call to class, for one architecture.
fn reviewed(arch: &str) -> BTreeMap<&'static str, &'static str> {
    let mut found = BTreeMap::new();
    let text = include_str!("../seccomp/every-call.txt");
    let mut class = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let names = match line.split_once(':') {
            Some((head, names)) => {
                let (name, only) = head.split_once(' ').map_or((head, None), |(name, only)| (name, Some(only)));
                assert!(matches!(only, None | Some("x86_64" | "aarch64")), "{head}");
                class = only.is_none_or(|only| only == arch).then_some(name);
                names
            }
            None => line,
        };
        for name in names.split_whitespace() {
            if let Some(class) = class {
                assert_eq!(found.insert(name, class), None, "{name} stands twice for {arch}");
            }
        }
    }
    found
}

/// What the class `arguments` answers: call, arguments, answer.
const ARGUMENTS: &[(&str, [u64; 6], u32)] = &[
    ("clone", [0x0000_0011, 0, 0, 0, 0, 0], ALLOW), // fork
    ("clone", [0x003d_0f00, 0, 0, 0, 0, 0], ALLOW), // a thread
    ("clone", [0x0000_4111, 0, 0, 0, 0, 0], ALLOW), // vfork
    ("clone", [0x0002_0011, 0, 0, 0, 0, 0], EPERM), // NEWNS
    ("clone", [0x0200_0011, 0, 0, 0, 0, 0], EPERM), // NEWCGROUP
    ("clone", [0x0400_0011, 0, 0, 0, 0, 0], EPERM), // NEWUTS
    ("clone", [0x0800_0011, 0, 0, 0, 0, 0], EPERM), // NEWIPC
    ("clone", [0x1000_0011, 0, 0, 0, 0, 0], EPERM), // NEWUSER
    ("clone", [0x2000_0011, 0, 0, 0, 0, 0], EPERM), // NEWPID
    ("clone", [0x4000_0011, 0, 0, 0, 0, 0], EPERM), // NEWNET
    ("clone", [0xffff_ffff_1000_0011, 0, 0, 0, 0, 0], EPERM),
    ("unshare", [0x0000_0600, 0, 0, 0, 0, 0], ALLOW), // files, fs
    ("unshare", [0x0000_0080, 0, 0, 0, 0, 0], EPERM), // NEWTIME
    ("unshare", [0x0002_0000, 0, 0, 0, 0, 0], EPERM),
    ("unshare", [0x0200_0000, 0, 0, 0, 0, 0], EPERM),
    ("unshare", [0x0400_0000, 0, 0, 0, 0, 0], EPERM),
    ("unshare", [0x0800_0000, 0, 0, 0, 0, 0], EPERM),
    ("unshare", [0x1000_0000, 0, 0, 0, 0, 0], EPERM),
    ("unshare", [0x2000_0000, 0, 0, 0, 0, 0], EPERM),
    ("unshare", [0x4000_0000, 0, 0, 0, 0, 0], EPERM),
    ("mknodat", [0, 0, 0o100_644, 0, 0, 0], ALLOW),
    ("mknodat", [0, 0, 0o010_644, 0, 0, 0], ALLOW),
    ("mknodat", [0, 0, 0o020_644, 0, 0, 0], EPERM),
    ("mknodat", [0, 0, 0o060_644, 0, 0, 0], EPERM),
    ("mknod", [0, 0o010_644, 0, 0, 0, 0], ALLOW),
    ("mknod", [0, 0o020_644, 0, 0, 0, 0], EPERM),
    ("mknod", [0, 0o060_644, 0, 0, 0, 0], EPERM),
    ("ioctl", [0, 0x5401, 0, 0, 0, 0], ALLOW), // TCGETS
    ("ioctl", [0, 0x5412, 0, 0, 0, 0], EPERM), // TIOCSTI
    ("ioctl", [0, 0x1_0000_5412, 0, 0, 0, 0], EPERM),
    ("ioctl", [0, 0x541c, 0, 0, 0, 0], EPERM), // TIOCLINUX
    ("ioctl", [0, 0x541d, 0, 0, 0, 0], EPERM), // TIOCCONS
    ("ioctl", [0, 0x5424, 0, 0, 0, 0], ALLOW), // TIOCGETD
    ("ioctl", [0, 0x5423, 0, 0, 0, 0], EPERM), // TIOCSETD
    ("fcntl", [0, 3, 0, 0, 0, 0], ALLOW),      // F_GETFL
    ("fcntl", [0, 1030, 0, 0, 0, 0], ALLOW),   // F_DUPFD_CLOEXEC
    ("fcntl", [0, 1024, 0, 0, 0, 0], EPERM),   // F_SETLEASE
    ("fcntl", [0, 0x1_0000_0400, 0, 0, 0, 0], EPERM),
    ("sendto", [0, 0, 0, 0x4000, 0, 0], ALLOW),
    ("sendto", [0, 0, 0, 0x2000_4000, 0, 0], EPERM), // MSG_FASTOPEN
    ("sendmsg", [0, 0, 0x4000, 0, 0, 0], ALLOW),
    ("sendmsg", [0, 0, 0x2000_4000, 0, 0, 0], EPERM),
    ("sendmmsg", [0, 0, 0, 0x4000, 0, 0], ALLOW),
    ("sendmmsg", [0, 0, 0, 0x2000_4000, 0, 0], EPERM),
    ("socket", [1, 0x80801, 0, 0, 0, 0], ALLOW),
    ("socket", [1, 5, 0, 0, 0, 0], ALLOW), // SOCK_SEQPACKET
    ("socket", [2, 1, 6, 0, 0, 0], ALLOW),
    ("socket", [10, 2, 17, 0, 0, 0], ALLOW),
    ("socket", [16, 0x80003, 0, 0, 0, 0], ALLOW), // netlink route
    ("socket", [16, 3, 9, 0, 0, 0], EPERM),       // netlink audit
    ("socket", [2, 3, 1, 0, 0, 0], EPERM),        // raw
    ("socket", [10, 0x80803, 58, 0, 0, 0], EPERM),
    ("socket", [17, 2, 0, 0, 0, 0], EPERM),       // AF_PACKET
    ("socket", [2, 10, 0x300, 0, 0, 0], EPERM),   // AF_PACKET, as SOCK_PACKET
    ("socket", [2, 0x8_000a, 3, 0, 0, 0], EPERM), // with a flag
    ("socket", [2, 1, 262, 0, 0, 0], EPERM),      // MPTCP
    ("socket", [2, 5, 132, 0, 0, 0], EPERM),      // SCTP
    ("socket", [10, 6, 33, 0, 0, 0], EPERM),      // DCCP
    ("socket", [2, 2, 136, 0, 0, 0], EPERM),      // UDP-Lite
    ("socket", [10, 2, 58, 0, 0, 0], ALLOW),      // ping
    ("socket", [38, 5, 0, 0, 0, 0], EPERM),       // AF_ALG
    ("socket", [40, 1, 0, 0, 0, 0], EPERM),       // AF_VSOCK
    ("socket", [0x1_0000_0026, 5, 0, 0, 0, 0], EPERM),
    ("socketpair", [1, 1, 0, 0, 0, 0], ALLOW),
    ("socketpair", [2, 1, 0, 0, 0, 0], EPERM),
    ("personality", [0xffff_ffff, 0, 0, 0, 0, 0], ALLOW),
    ("personality", [0, 0, 0, 0, 0, 0], ALLOW),
    ("personality", [0x0004_0000, 0, 0, 0, 0, 0], ALLOW),
    ("personality", [0x0002_0000, 0, 0, 0, 0, 0], EPERM), // another kernel's version
    ("personality", [0x0010_0000, 0, 0, 0, 0, 0], EPERM), // MMAP_PAGE_ZERO
];

/// Arguments that no rule is about, and such as rules are about.
const SAMPLES: [[u64; 6]; 4] = [[0; 6], [u64::MAX; 6], [0x5412; 6], [0x7fff_0000_2002_3a13; 6]];

#[test]
fn every_named_call_answers_as_its_class_says() {
    for arch in arches() {
        let classes = reviewed(arch.name);
        assert!(arch.calls.len() > 300);
        for (number, call) in &arch.calls {
            let class = *classes.get(call).unwrap_or_else(|| panic!("{}: {call} is in no class", arch.name));
            let looked = arch.looks_at_arguments("default", *number);
            assert_eq!(looked, class == "arguments", "{}: {call} is {class}; looked at arguments: {looked}", arch.name);
            for args in SAMPLES {
                let answers = (arch.answer("default", *number, args), arch.answer("default+memfd", *number, args));
                let right = match class {
                    "allowed" => answers == (ALLOW, ALLOW),
                    "memfd" => answers == (EPERM, ALLOW),
                    "eperm" => answers == (EPERM, EPERM),
                    "enosys" => answers == (ENOSYS, ENOSYS),
                    "arguments" => answers.0 == answers.1 && matches!(answers.0, ALLOW | EPERM),
                    other => panic!("{other} is no class"),
                };
                assert!(right, "{}: {call} ({number}) is {class} and answers {answers:x?}", arch.name);
            }
        }
        for call in classes.keys() {
            assert!(arch.number(call).is_some(), "{}: there is no call {call}", arch.name);
        }
    }
}

#[test]
fn arguments_are_refused_and_their_neighbours_are_not() {
    for arch in arches() {
        for (call, args, answer) in ARGUMENTS {
            let Some(number) = arch.number(call) else { continue };
            for filter in ["default", "default+memfd"] {
                assert_eq!(arch.answer(filter, number, *args), *answer, "{}: {call} {args:x?}", arch.name);
            }
        }
        for (call, class) in reviewed(arch.name) {
            let both = [ALLOW, EPERM].iter().all(|a| ARGUMENTS.iter().any(|(c, _, answer)| (*c, answer) == (call, a)));
            assert_eq!(both, class == "arguments", "{}: {call} is {class}", arch.name);
        }
    }
}

#[test]
fn a_number_without_a_name_answers_enosys() {
    for arch in arches() {
        let far = [X32, X32 | 59, X32 | 512, X32 | 547, 0x7fff_ffff, 0x8000_0000, u32::MAX];
        for number in NUMBERS.chain((0..1024).map(|n| n | X32)).chain(far) {
            if !arch.calls.contains_key(&number) {
                for (filter, args) in [("default", SAMPLES[0]), ("default+memfd", SAMPLES[1])] {
                    assert_eq!(arch.answer(filter, number, args), ENOSYS, "{}: {number:#x}", arch.name);
                }
            }
        }
    }
}

#[test]
fn a_call_of_another_architecture_kills() {
    for arch in arches() {
        for (name, program) in arch.filters {
            for foreign in [0, I386, ARM, RISCV64, X86_64, AARCH64, u32::MAX] {
                for number in 0..600 {
                    let killed = run(program, number, foreign, [0; 6]).0 == KILL;
                    assert_eq!(killed, foreign != arch.audit, "{}: {name}: {number} of {foreign:#x}", arch.name);
                }
            }
        }
    }
}

#[test]
fn what_is_observed_is_what_opens_changes_starts_or_connects_by_path() {
    let few = ["execve", "execveat", "connect"];
    let more = [
        "open",
        "creat",
        "openat",
        "openat2",
        "mkdir",
        "mkdirat",
        "rmdir",
        "unlink",
        "unlinkat",
        "rename",
        "renameat",
        "renameat2",
        "link",
        "linkat",
        "symlink",
        "symlinkat",
        "truncate",
    ];
    for arch in arches() {
        for number in NUMBERS {
            let call = arch.calls.get(&number).copied().unwrap_or_default();
            let expected = |reported: bool| if reported { NOTIFY } else { ALLOW };
            let said = few.contains(&call);
            assert_eq!(arch.answer("observe-exec-connect", number, [0; 6]), expected(said), "{}: {call}", arch.name);
            let said = said || more.contains(&call);
            assert_eq!(arch.answer("observe-open", number, [0; 6]), expected(said), "{}: {call}", arch.name);
        }
    }
}
