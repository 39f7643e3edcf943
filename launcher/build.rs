//! Compiles `seccomp/*.json` to BPF for the target, so that installing a filter at start costs one system call.
//! The assembler is seccompiler's. It has no user-notification action, so the notify filters are compiled with
//! `trace` and their return value is rewritten; the assertion below holds that to exactly one kind of return.
//!
//! The layers of a stack become one program: a binary search by call number, then seccompiler's own comparisons for the
//! calls whose arguments matter. The kernel walks a filter once for each number when it is installed, and compiles each:
//! seccompiler's chains, one filter a layer, took 1.1 ms there, this takes 0.1. seccompiler's programs stay the
//! reference: both are run here for every number, and the build fails if they differ.

use std::collections::BTreeMap;
use std::{env, fs, path::Path};

use serde::Deserialize;
use serde_json::{json, Value};

const RET_K: u16 = 0x06;
const RET_TRACE: u32 = 0x7ff0_0000;
const RET_USER_NOTIF: u32 = 0x7fc0_0000;

type Program = Vec<(u16, u8, u8, u32)>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Filter {
    /// Why the filter exists; for readers.
    #[allow(dead_code)]
    about: String,
    matched: Value,
    otherwise: Value,
    calls: Vec<Group>,
}

/// Calls that share one reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    why: String,
    #[serde(default)]
    only: Option<String>,
    names: Vec<String>,
    /// All must hold. Several groups may name one call: any of them matches.
    #[serde(default)]
    when: Vec<Value>,
}

fn main() {
    println!("cargo:rerun-if-changed=seccomp");
    println!("cargo:rerun-if-changed=build.rs");
    let target = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    // Those of other architectures are for the tests: a call that one of them lacks stops this build, not theirs.
    for arch in ["x86_64", "aarch64", &target] {
        let source = filters(arch);
        fs::write(Path::new(&out).join(format!("filters-{arch}.rs")), &source).expect("written");
        if arch == target {
            fs::write(Path::new(&out).join("filters.rs"), &source).expect("written");
        }
    }
}

/// The source of `FILTERS` for one architecture.
fn filters(arch: &str) -> String {
    let target: seccompiler::TargetArch = arch.try_into().expect("x86_64, aarch64 or riscv64");
    let read = |name: &str| {
        let path = format!("seccomp/{name}.json");
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        let filter: Filter = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"));
        compile(name, &filter, arch, target)
    };
    let mut source = String::from("pub static FILTERS: &[(&str, &[sys::Instruction])] = &[\n");
    for (name, layers) in STACKS {
        let layers: Vec<Program> = layers.iter().map(|layer| read(layer)).collect();
        source.push_str(&format!("    ({name:?}, &{:?}),\n", stack(name, &layers)));
    }
    for name in NOTIFY {
        source.push_str(&format!("    ({name:?}, &{:?}),\n", read(name)));
    }
    source.push_str("];\n");
    source
}

/// What a plan can name (and the relay takes for itself), and the layers that make it, the strictest last. Only the last layer looks at arguments.
const STACKS: &[(&str, &[&str])] = &[
    ("default", &["allow", "refuse-calls", "no-memfd", "refuse-arguments"]),
    ("default+memfd", &["allow", "refuse-calls", "refuse-arguments"]),
    ("relay", &["relay"]),
];
const NOTIFY: &[&str] = &["observe-exec-connect", "observe-open"];

fn compile(name: &str, filter: &Filter, arch: &str, target: seccompiler::TargetArch) -> Program {
    let mut seen: BTreeMap<&str, bool> = BTreeMap::new();
    let mut rules = Vec::new();
    for group in &filter.calls {
        assert!(!group.why.is_empty(), "{name}: every group carries its reason");
        if group.only.as_deref().is_some_and(|only| only != arch) {
            continue;
        }
        for call in &group.names {
            let conditional = !group.when.is_empty();
            let before = seen.insert(call, conditional);
            assert!(before.is_none_or(|c| c && conditional), "{name}: {call} stands twice");
            let mut rule = json!({"syscall": call, "comment": group.why});
            if conditional {
                rule["args"] = Value::Array(group.when.clone());
            }
            rules.push(rule);
        }
    }
    let notify = filter.matched == json!("notify");
    let matched = if notify { json!({"trace": 0}) } else { filter.matched.clone() };
    let document = json!({ name: {"mismatch_action": filter.otherwise, "match_action": matched, "filter": rules} });
    let programs = seccompiler::compile_from_json(document.to_string().as_bytes(), target)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut rewritten = 0;
    let program: Program = programs[name]
        .iter()
        .map(|i| {
            let k = if notify && i.code == RET_K && i.k == RET_TRACE {
                rewritten += 1;
                RET_USER_NOTIF
            } else {
                i.k
            };
            (i.code, i.jt, i.jf, k)
        })
        .collect();
    assert_eq!(rewritten > 0, notify, "{name}: notify filters, and only they, return a notification");
    program
}

const ARCH_OFFSET: u32 = 4;
const LD_W_ABS: u16 = 0x20;
const JA: u16 = 0x05;
const JEQ_K: u16 = 0x15;
const JGE_K: u16 = 0x35;
/// Call numbers up to here are compared one by one; x32's bit and the far ends are sampled.
const NUMBERS: u32 = 4096;

/// Stands for "the arguments decide"; no filter returns it.
const ARGUMENTS: u32 = 0xdead_beef;
const RET_ALLOW: u32 = 0x7fff_0000;

/// What the kernel makes of several filters: the strictest answer, here the last layer that refuses.
fn strictest(layers: &[Program], number: u32) -> u32 {
    let answers = layers.iter().map(|layer| run(layer, number));
    answers.fold(RET_ALLOW, |so_far, answer| match (so_far, answer) {
        (before, RET_ALLOW) => before,
        // Arguments matter only for what the other layers allow.
        (RET_ALLOW, ARGUMENTS) => ARGUMENTS,
        (before, ARGUMENTS) => before,
        (_, refused) => refused,
    })
}

fn stack(name: &str, layers: &[Program]) -> Program {
    let mut edges: Vec<(u32, u32)> = Vec::new();
    for number in 0..NUMBERS {
        let answer = strictest(layers, number);
        if edges.last().is_none_or(|(_, last)| *last != answer) {
            edges.push((number, answer));
        }
    }
    let last = layers.last().expect("a stack has layers");
    // seccompiler's head: load the architecture, kill on another one, load the number.
    assert!(last[0] == (LD_W_ABS, 0, 0, ARCH_OFFSET) && last[1].0 == JEQ_K && last[2].0 == RET_K);
    let mut program: Program = last[..3].to_vec();
    program.push((LD_W_ABS, 0, 0, 0));
    split(&edges, &mut program);
    let arguments = program.len();
    for (at, instruction) in program.iter_mut().enumerate() {
        if *instruction == (JA, 0, 0, ARGUMENTS) {
            instruction.3 = u32::try_from(arguments - at - 1).expect("forward");
        }
    }
    program.extend_from_slice(&last[3..]);
    let far = [0x4000_0000, 0x4000_0001, 0x4000_003b, 0x7fff_ffff, 0x8000_0000, u32::MAX - 1, u32::MAX];
    for number in (0..NUMBERS).chain((0..NUMBERS).map(|n| n | 0x4000_0000)).chain(far) {
        assert_eq!(run(&program, number), strictest(layers, number), "{name}: call {number:#x}");
    }
    program
}

fn split(edges: &[(u32, u32)], program: &mut Program) {
    if let [(_, answer)] = edges {
        let jump = *answer == ARGUMENTS;
        program.push((if jump { JA } else { RET_K }, 0, 0, *answer));
        return;
    }
    let (left, right) = edges.split_at(edges.len() / 2);
    let node = program.len();
    program.push((JGE_K, 0, 0, right[0].0));
    split(left, program);
    program[node].1 = u8::try_from(program.len() - node - 1).expect("the left side fits a jump");
    split(right, program);
}

/// What `program` returns for call `number` on the architecture it was made for.
fn run(program: &Program, number: u32) -> u32 {
    let arch = program[1].3;
    let (mut at, mut a) = (0usize, 0u32);
    loop {
        let (code, jt, jf, k) = program[at];
        at += 1;
        match code {
            LD_W_ABS if k == ARCH_OFFSET => a = arch,
            LD_W_ABS if k == 0 => a = number,
            LD_W_ABS => return ARGUMENTS,
            JA => at += k as usize,
            JEQ_K => at += usize::from(if a == k { jt } else { jf }),
            JGE_K => at += usize::from(if a >= k { jt } else { jf }),
            RET_K => return k,
            other => panic!("instruction {other:#x} is not expected in a filter of numbers"),
        }
    }
}
