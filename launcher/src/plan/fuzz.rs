//! Whatever bytes arrive, `Plan::parse` answers; what it takes keeps its promises. Golden plans are changed at random:
//! keys dropped, renamed, doubled; values of other types, sizes and depths; bytes cut, joined and flipped.

use std::fs;
use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, Index};
use serde_json::{json, Value};

use super::{Plan, RootOp};

static GOLDEN: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/contract/fixtures/plans");
    let files = fs::read_dir(folder).expect(folder);
    files.map(|file| fs::read(file.expect("entry").path()).expect("readable")).map(|text| parsed(&text)).collect()
});

fn parsed(text: &[u8]) -> Value {
    let mut plan: Value = serde_json::from_slice(text).expect("JSON");
    // A few of each step: what is large is slow to change and tells no more.
    let mut seen = std::collections::BTreeMap::<String, u32>::new();
    let root = plan["root"].as_array_mut().expect("steps");
    root.retain(|step| {
        let count = seen.entry(step["op"].to_string()).or_default();
        *count += 1;
        *count <= 2 || step["op"] == "scratch"
    });
    plan
}

#[derive(Debug, Clone)]
enum Change {
    Remove,
    Replace(Value),
    Rename(String),
    Nest(usize),
}

const TEXTS: &[&str] = &[
    "",
    "/",
    ".",
    "..",
    "/..",
    "/a/../b",
    "/a/./b",
    "//a",
    "/a/",
    "a/b",
    "/a\0b",
    "\0",
    "x\0",
    "/.scratch",
    "/.scratch/a",
    "/.scratchy",
    "/sys/fs/cgroup/../../etc",
    "/sys/fs/cgroup",
    "/sys/fs/cgroup/a",
    "../x",
    "work",
    "prefix",
    "tmp",
    "default",
    "default+memfd",
    "observe-open",
    "dir",
    "file",
    "scratch",
    "overlay",
    "mask",
    "tty",
    "\u{202e}",
    "é\u{10ffff}",
];
const KEYS: &[&str] = &["op", "path", "to", "from", "name", "version", "uid", "keep", "Path", "path ", "", "pat\0h"];

fn change() -> impl Strategy<Value = Change> {
    let number = select(vec![
        json!(0),
        json!(-1),
        json!(1),
        json!(2),
        json!(1.5),
        json!(1e300),
        json!(u32::MAX),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(0o4755),
        json!(1u64 << 60),
    ]);
    let text = select(TEXTS).prop_map(|text| json!(text));
    let other = select(vec![json!(null), json!(true), json!([]), json!({}), json!([[]]), json!([null])]);
    prop_oneof![
        Just(Change::Remove),
        prop_oneof![number, text, other, any::<String>().prop_map(Value::from)].prop_map(Change::Replace),
        select(KEYS).prop_map(|key| Change::Rename(key.into())),
        (1usize..300).prop_map(Change::Nest),
    ]
}

/// Every place of a value below `at`, as JSON pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    let mut below = |key: &str, value: &Value| {
        let place = format!("{at}/{key}");
        places(value, &place, found);
        found.push(place);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| below(key, value)),
        Value::Array(list) => list.iter().enumerate().for_each(|(i, value)| below(&i.to_string(), value)),
        _ => {}
    }
}

fn apply(plan: &mut Value, which: Index, change: &Change) {
    let mut found = Vec::new();
    places(plan, "", &mut found);
    let Some(place) = (!found.is_empty()).then(|| which.get(&found)) else { return };
    let (above, key) = place.rsplit_once('/').expect("a pointer");
    let Some(above) = plan.pointer_mut(above) else { return };
    let index = key.parse::<usize>();
    match change {
        Change::Remove => match above {
            Value::Object(map) => drop(map.remove(key)),
            Value::Array(list) => drop(list.remove(index.expect("an index"))),
            _ => {}
        },
        Change::Rename(name) => {
            if let Some((map, value)) = above.as_object_mut().and_then(|map| map.remove(key).map(|value| (map, value)))
            {
                map.insert(name.clone(), value);
            }
        }
        Change::Replace(value) => *plan.pointer_mut(place).expect("found") = value.clone(),
        Change::Nest(depth) => {
            let slot = plan.pointer_mut(place).expect("found");
            *slot = (0..*depth).fold(slot.take(), |inner, _| json!([inner]));
        }
    }
}

#[derive(Debug, Clone)]
enum Bytes {
    Cut(Index),
    Flip(Index, u8),
    Twice,
    Doubled(Index),
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        any::<Index>().prop_map(Bytes::Cut),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Bytes::Flip(at, byte)),
        Just(Bytes::Twice),
        any::<Index>().prop_map(Bytes::Doubled),
    ]
}

fn spoil(mut text: Vec<u8>, how: &Bytes) -> Vec<u8> {
    match how {
        Bytes::Cut(at) => text.truncate(at.index(text.len())),
        Bytes::Flip(at, byte) => {
            let at = at.index(text.len());
            text[at] = *byte;
        }
        Bytes::Twice => text.extend(text.clone()),
        Bytes::Doubled(which) => {
            // A key with its value once more: `"uid":1000,` becomes `"uid":1000,"uid":1000,`.
            let pairs: Vec<_> = text.windows(2).enumerate().filter(|(_, w)| w == b"\":").map(|(at, _)| at).collect();
            let colon = *which.get(&pairs);
            let start = text[..colon].iter().rposition(|b| *b == b'"').expect("the key's start");
            let end = colon + text[colon..].iter().position(|b| matches!(b, b',' | b'}')).expect("an end");
            let mut pair = text[start..end].to_vec();
            pair.push(b',');
            text.splice(start..start, pair);
        }
    }
    text
}

/// What the rest of the launcher relies on, said once more and otherwise.
fn promises(plan: &Plan) {
    let clean = |path: &str| {
        let parts: Vec<_> = std::path::Path::new(path).components().collect();
        let again: std::path::PathBuf = parts.iter().collect();
        assert!(path.starts_with('/') && again.as_os_str() == path && !path.contains("/../"), "{path:?}");
        assert!(!path.ends_with("/..") && !path.contains('\0'), "{path:?}");
    };
    assert_eq!(plan.version, 1);
    assert!(!plan.sandbox.contains(['/', '.', '\0']) && !plan.sandbox.is_empty());
    let ids = [Some(plan.identity.uid), Some(plan.identity.gid), plan.identity.host_uid, plan.identity.host_gid];
    assert!(ids.into_iter().flatten().all(|id| id != 0 && id != u32::MAX));
    assert!(plan.scratch.bytes > 0 && plan.scratch.inodes > 0);
    for op in &plan.root {
        clean(op.target());
        assert!(op.target() != "/" && op.target().split('/').nth(1) != Some(".scratch"));
        match op {
            RootOp::Dir { mode, .. } | RootOp::File { mode, .. } | RootOp::Bytes { mode, .. } => {
                assert_eq!(mode & 0o6000, 0)
            }
            RootOp::Bind { from, .. } | RootOp::Overlay { lower: from, .. } => assert!(from.starts_with('/')),
            RootOp::Scratch { name, .. } => assert!(name.bytes().all(|b| b.is_ascii_lowercase()) && !name.is_empty()),
            _ => {}
        }
    }
    plan.landlock.rules.iter().flat_map(|rule| &rule.paths).for_each(|path| clean(path));
    assert!(plan.seccomp.filter.starts_with("default"));
    for group in plan.cgroup.iter().flat_map(|cgroup| &cgroup.groups) {
        clean(&group.dir);
        assert!(group.dir.starts_with("/sys/fs/cgroup/") && group.set.iter().all(|s| !s.file.contains('/')));
    }
    let command = &plan.command;
    let all = command.argv.iter().chain(&command.env).chain([&command.path, &command.cwd, &plan.hostname]);
    assert!(all.into_iter().all(|text| !text.contains('\0')));
    assert!(!command.argv.is_empty() && command.path.starts_with('/') && command.cwd.starts_with('/'));
}

fn judge(text: &[u8]) -> bool {
    match Plan::parse(text) {
        Ok(plan) => {
            promises(&plan);
            true
        }
        Err(error) => {
            assert!(!error.is_empty());
            false
        }
    }
}

fn settings() -> ProptestConfig {
    ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(settings())]

    #[test]
    fn a_changed_plan_is_refused_or_keeps_every_promise(
        which in any::<Index>(),
        changes in vec((any::<Index>(), change()), 1..4),
        spoiled in prop::option::weighted(0.3, bytes()),
    ) {
        let mut plan = which.get(&GOLDEN).clone();
        changes.iter().for_each(|(at, change)| apply(&mut plan, *at, change));
        let text = serde_json::to_vec(&plan).expect("JSON");
        let taken = match &spoiled {
            Some(how) if text.windows(2).any(|w| w == b"\":") => judge(&spoil(text, how)),
            _ => judge(&text),
        };
        prop_assert!(!(taken && matches!(spoiled, Some(Bytes::Twice | Bytes::Doubled(_) | Bytes::Cut(_)))));
    }

    #[test]
    fn any_bytes_are_answered(text in vec(any::<u8>(), 0..200)) {
        judge(&text);
    }
}

#[test]
fn the_golden_plans_of_the_fuzz_are_taken() {
    assert!(GOLDEN.iter().all(|plan| judge(&serde_json::to_vec(plan).expect("JSON"))));
}
