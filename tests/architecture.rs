//! Rules about the source tree that the compiler does not know.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Gives every Rust file below the directory with its text, sorted by path.
fn sources(directory: &str) -> Vec<(PathBuf, String)> {
    let (mut found, mut pending) = (Vec::new(), vec![root().join(directory)]);
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path.strip_prefix(root()).unwrap().to_owned(), text));
        }
    }
    found.sort();
    found
}

/// Gives a file without its unit tests, which close it.
fn before_tests(text: &str) -> &str {
    let tests = text.match_indices("\n#[cfg(test)]\n").find(|(at, marker)| {
        let next = text[at + marker.len()..].lines().next();
        next.is_some_and(|line| line.ends_with("mod tests {"))
    });
    tests.map_or(text, |(at, _)| &text[..at])
}

/// Gives a file's lines of code with their numbers: without comments, and without the unit tests.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let without_comment = |line| Some(line).filter(|line: &&str| !line.trim_start().starts_with("//"));
    before_tests(text).lines().enumerate().filter_map(move |(index, line)| Some((index + 1, without_comment(line)?)))
}

/// What decides never touches the world: no runtime, actor, system call, file, clock or randomness.
const WORLDLY: &[&str] = &[
    "tokio",
    "ractor",
    "nix",
    "rustix",
    "fs_err",
    "redb",
    "rand",
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::process",
    "std::thread",
    "std::os::fd",
    "std::time::Instant",
    "std::time::SystemTime",
    "jiff",
    "std::io::Read",
    "std::io::Write",
    "std::env::var",
    "std::env::var_os",
    "std::env::current_dir",
];

/// The one exception: random identifiers are made where their type lives.
const EXCEPTIONS: &[(&str, &str)] = &[("src/domain/ids.rs", "rand")];

/// Tells whether the code names the path, as a whole first part (`nix::…`, `use nix;`).
fn names(line: &str, path: &str) -> bool {
    let boundary = |character: char| !(character.is_alphanumeric() || character == '_' || character == ':');
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_none_or(boundary);
        let after = line[at + path.len()..].chars().next().is_none_or(|c| !(c.is_alphanumeric() || c == '_'));
        // `std::net::Tcp` stands for every name that begins so.
        before
            && (after || path.ends_with("Tcp") || path.ends_with("Udp"))
            && (path.contains("::") || line[at + path.len()..].starts_with("::") || line.starts_with("use "))
    })
}

#[test]
fn what_decides_touches_nothing() {
    let mut violations = Vec::new();
    for (path, text) in ["src/core", "src/policy", "src/domain"].into_iter().flat_map(sources) {
        for (number, line) in code(&text) {
            let excepted = |name: &str| EXCEPTIONS.contains(&(path.to_str().unwrap(), name));
            for name in WORLDLY.iter().filter(|name| names(line, name) && !excepted(name)) {
                violations.push(format!("{}:{number}: {name}: {}", path.display(), line.trim()));
            }
        }
    }
    assert!(violations.is_empty(), "a decision reaches into the world:\n{}", violations.join("\n"));
}

/// Modules from top to bottom; each may import those below it. `sys` serves all that act.
const LAYERS: &[(&str, &[&str])] = &[
    ("src/domain", &["domain"]),
    ("src/core", &["core", "domain"]),
    ("src/policy", &["policy", "core", "domain"]),
    ("src/wire", &["wire", "core", "domain"]),
    ("src/sys", &["sys", "domain"]),
    ("src/fault", &["fault"]),
    ("src/protocol_trace", &["protocol_trace"]),
    ("src/observe", &["observe", "domain"]),
    ("src/store", &["store", "core", "domain", "sys", "fault", "protocol_trace"]),
    ("src/identity", &["identity", "wire", "core", "domain", "sys"]),
    ("src/oci", &["oci", "wire", "identity", "core", "domain", "sys"]),
    ("src/guest", &["guest", "wire", "domain", "sys"]),
    ("src/git_router", &["git_router", "wire", "domain", "sys", "fault"]),
    (
        "src/actors",
        &[
            "actors",
            "guest",
            "git_router",
            "oci",
            "identity",
            "store",
            "fault",
            "protocol_trace",
            "observe",
            "wire",
            "policy",
            "core",
            "domain",
            "sys",
        ],
    ),
];

#[test]
fn imports_point_down() {
    let mut violations = Vec::new();
    for (directory, allowed) in LAYERS {
        for (path, text) in sources(directory) {
            for (number, line) in code(&text) {
                let Some((_, rest)) = line.split_once("crate::") else { continue };
                let module: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if !module.is_empty() && !allowed.contains(&module.as_str()) {
                    violations.push(format!("{}:{number}: {}", path.display(), line.trim()));
                }
            }
        }
    }
    assert!(violations.is_empty(), "an import points up or sideways:\n{}", violations.join("\n"));
}

/// What is started through `fault` can be made to die, so that a test can show what its death means.
#[test]
fn every_actor_is_mortal() {
    let starts = |line: &str| line.contains("Actor::spawn");
    let mut immortal = Vec::new();
    for (path, text) in sources("src/actors") {
        for (number, line) in code(&text).filter(|(_, line)| starts(line) && !line.contains("fault::")) {
            immortal.push(format!("{}:{number}: {}", path.display(), line.trim()));
        }
    }
    assert!(immortal.is_empty(), "actors that are started without fault::actor:\n{}", immortal.join("\n"));
}

/// The log tells a line's actor by the module, and knows the modules by a list.
#[test]
fn the_log_knows_every_actor() {
    for tree in ["src/actors/host", "src/actors/runtime"] {
        let mut actors = Vec::new();
        for (path, text) in sources(tree) {
            if code(&text).any(|(_, line)| line.starts_with("impl") && line.contains("Actor for ")) {
                let module = path.strip_prefix(tree).unwrap().iter().next().unwrap();
                actors.push(format!("{:?}", Path::new(module).file_stem().unwrap()));
            }
        }
        let list = format!("const ACTORS: &[&str] = &[{}];", actors.join(", "));
        let text = fs::read_to_string(root().join(tree).join("mod.rs")).unwrap();
        assert!(!actors.is_empty() && text.contains(&list), "{tree}/mod.rs lacks {list}");
    }
}

#[test]
fn unsafe_code_stays_behind_its_fence() {
    let outside = sources("src").into_iter().filter(|(path, _)| !path.starts_with("src/sys"));
    let offenders: Vec<_> = outside
        .filter(|(_, text)| code(text).any(|(_, line)| line.contains("allow(unsafe_code)") || names(line, "unsafe")))
        .map(|(path, _)| path)
        .collect();
    assert!(offenders.is_empty(), "unsafe code outside src/sys: {offenders:?}");
}

#[test]
fn names_say_what_is_inside() {
    let vague = ["utils", "util", "helpers", "common", "manager", "misc"];
    let all = sources("src").into_iter().chain(sources("tests"));
    let offenders: Vec<_> = all
        .map(|(path, _)| path)
        .filter(|path| path.iter().any(|part| vague.contains(&part.to_str().unwrap().trim_end_matches(".rs"))))
        .collect();
    assert!(offenders.is_empty(), "names that say nothing: {offenders:?}");
}

#[test]
fn files_stay_readable() {
    let all = sources("src").into_iter().chain(sources("tests"));
    let long: Vec<_> = all.filter(|(_, text)| before_tests(text).lines().count() > 500).map(|(path, _)| path).collect();
    assert!(long.is_empty(), "files of more than 500 lines: {long:?}");
}

#[test]
fn every_integration_file_is_wired() {
    let main = fs::read_to_string(root().join("tests/integration/main.rs")).unwrap();
    for entry in fs::read_dir(root().join("tests/integration")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.is_file() && name != "main" {
            let (module, cases) = (format!("mod {name};"), format!("(\"{name}\", {name}::cases())"));
            assert!(
                main.contains(&module) && main.contains(&cases),
                "{name} is not wired in tests/integration/main.rs"
            );
        }
    }
}

#[test]
fn every_case_is_listed() {
    for (path, text) in
        sources("tests/integration").into_iter().filter(|(path, _)| !path.starts_with("tests/integration/harness"))
    {
        let returns = "-> CaseResult {";
        for line in text.lines().filter(|line| line.starts_with("fn ") && line.ends_with(returns)) {
            let name = line["fn ".len()..].split('(').next().unwrap();
            let is_case = line.starts_with(&format!("fn {name}()"));
            assert!(!is_case || text.matches(name).count() > 1, "{}: {name} never runs", path.display());
        }
    }
}

/// Gives what is between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Gives the identifiers in a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// The model's actions: what a disjunct of some …Next calls.
fn actions_of_the_model() -> BTreeSet<String> {
    let model = fs::read_to_string(root().join("protocol/Lazaret.tla")).unwrap();
    let steps = &model[model.find("\nClientNext(").unwrap()..model.find("\nNext ==").unwrap()];
    let called =
        steps.match_indices('(').filter_map(|(at, _)| words(steps[..at].split_whitespace().next_back()?).last());
    let is_action = |name: &&str| {
        name.len() > 1 && !name.ends_with("Next") && !["Transactions", "Releasable", "Intent"].contains(name)
    };
    called.filter(is_action).map(str::to_owned).collect()
}

/// The table in protocol/README.md has every action of the model, and what it names in the code is there.
#[test]
fn model_and_code_have_the_same_names() {
    let readme = fs::read_to_string(root().join("protocol/README.md")).unwrap();
    let table = readme.split("\n## ").find(|section| section.starts_with("Actions\n")).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split(" | ").collect()).collect();
    let listed: BTreeSet<String> = rows.iter().flat_map(|row| quoted(row[0])).map(str::to_owned).collect();
    assert_eq!(listed, actions_of_the_model());
    let code: Vec<(PathBuf, String)> = sources("src");
    let known: BTreeSet<&str> = code.iter().flat_map(|(_, text)| words(text)).collect();
    for row in &rows {
        // What is in italics does not exist yet.
        let exists = row.last().unwrap().split('*').step_by(2).flat_map(quoted).flat_map(words);
        let unknown: Vec<_> = exists.filter(|word| !known.contains(word) && !listed.contains(*word)).collect();
        assert!(unknown.is_empty(), "{}: not in the code: {unknown:?}", row[0]);
    }
    let after = |mark: &'static str| code.iter().flat_map(move |(_, text)| text.split(mark).skip(1));
    let told = after("protocol_trace::event(\"").filter_map(|rest| rest.split('"').next());
    let bodies = after("fn action(&self").filter_map(|rest| rest.split("\n    }\n").next());
    for action in told.chain(bodies.flat_map(|body| body.split('"').skip(1).step_by(2))) {
        assert!(listed.contains(action), "{action} is said to be an action of the model");
    }
}
