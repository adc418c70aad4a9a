use std::path::Path;

use super::*;
use crate::cli::error::CliError;
use crate::domain::profile::Access;

const IMAGE: &str = "image = \"debian:bookworm\"\n";

/// A home directory with configuration in it.
struct Home {
    directory: tempfile::TempDir,
    dirs: ConfigDirs,
}

impl Home {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let dirs = ConfigDirs { config: directory.path().join("lazaret"), home: directory.path().to_owned() };
        std::fs::create_dir_all(dirs.profiles()).unwrap();
        Self { directory, dirs }
    }

    fn common(self, text: &str) -> Self {
        std::fs::write(self.dirs.common_file(), text).unwrap();
        self
    }

    fn profile(self, name: &str, text: &str) -> Self {
        std::fs::write(self.dirs.profiles().join(format!("{name}.toml")), text).unwrap();
        self
    }

    fn load(&self) -> Result<Loaded, ConfigError> {
        load_profile(&self.dirs, None)
    }
}

fn load(text: &str) -> Result<Loaded, ConfigError> {
    Home::new().profile("p", text).load()
}

fn load_with_image(text: &str) -> Result<Loaded, ConfigError> {
    load(&format!("{IMAGE}{text}"))
}

/// Gives each problem as `LINE:COLUMN message | help`, in the order of places.
fn problems(result: Result<Loaded, ConfigError>) -> Vec<String> {
    let mut records = result.expect_err("this configuration is wrong").records();
    records.sort_by_key(|record| (record.line, record.column));
    let place = |part: Option<usize>| part.map_or("-".to_owned(), |part| part.to_string());
    let line = |record: error::ProblemRecord| {
        let help = record.help.unwrap_or_default();
        format!("{}:{} {} | {help}", place(record.line), place(record.column), record.message)
    };
    records.into_iter().map(line).collect()
}

#[track_caller]
fn one(text: &str, message: &str, help: &str) {
    let found = problems(load_with_image(text));
    assert_eq!(found.len(), 1, "{text}: {found:#?}");
    let (before, after) = found[0].split_once(" | ").unwrap();
    assert!(before.contains(message), "{text}: {before}");
    assert!(after.contains(help), "{text}: {after}");
}

#[test]
fn a_full_profile_is_read() {
    let home = Home::new();
    let data = home.directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let home =
        home.common("default_profile = \"p\"\nlinger = \"1m\"\n[network]\ndeny = [\"169.254.0.0/16\"]\n").profile(
            "p",
            r#"
            image = "oci:./layout:tag"
            user = "agent:1000"
            command = ["claude", "--continue"]
            persistent = ["/usr/local/", "/home/agent"]
            [env]
            set = { EDITOR = "vim" }
            pass = ["LANG", "ANTHROPIC_API_KEY"]
            [[volumes]]
            host = "~/data"
            guest = "/home/agent/data"
            access = "rw"
            [network]
            allow = ["10.1.0.0/16"]
            dns = ["192.168.1.1"]
            [network.probe]
            resolve = ["example.org"]
            connect = ["10.1.0.7:443"]
            denied = ["10.9.0.1"]
            [workspace]
            isolate_ignored = false
            hide = [".vscode"]
            [[escalation.allow]]
            command = ["/usr/bin/gh", "pr", "view"]
            args = "any"
            directory = "~/x"
            timeout = "60s"
            [limits]
            open_files = 4096
            memory = "8GiB"
        "#,
        );
    let Loaded { profile, files, .. } = home.load().unwrap();
    assert_eq!(files, [home.dirs.profiles().join("p.toml"), home.dirs.common_file()]);
    assert_eq!(profile.image.to_string(), format!("oci:{}:tag", home.dirs.profiles().join("layout").display()));
    assert_eq!(profile.user.unwrap().to_string(), "agent:1000");
    let persistent: Vec<_> = profile.persistent.iter().map(|path| path.as_str()).collect();
    assert_eq!(persistent, ["/home/agent", "/usr/local"]);
    assert_eq!(profile.volumes[0].host, data.canonicalize().unwrap());
    assert_eq!(profile.volumes[0].access, Access::ReadWrite);
    assert_eq!(profile.network.deny, ["169.254.0.0/16".parse().unwrap()]);
    assert_eq!(profile.linger.as_secs(), 60);
    assert!(!profile.workspace.isolate_ignored);
    assert_eq!(profile.escalation[0].timeout, Some(60));
    assert_eq!(profile.escalation[0].directory.as_deref(), Some(home.directory.path().join("x").as_path()));
    assert_eq!(profile.limits.memory, Some(8 << 30));
    assert_eq!(profile.limits.tmp, validate::DEFAULT_TMP);
}

#[test]
fn a_minimal_profile_has_safe_defaults() {
    let profile = load(IMAGE).unwrap().profile;
    assert!(profile.workspace.isolate_ignored && !profile.network.ipv6.is_on());
    assert!(profile.volumes.is_empty() && profile.persistent.is_empty() && profile.network.allow.is_empty());
    assert!(profile.linger.is_zero() && profile.command.is_empty());
}

#[test]
fn unknown_keys_name_the_nearest_known_one() {
    assert_eq!(problems(load("imgae = \"x\"\n")), ["1:1 unknown key 'imgae' | did you mean 'image'?"]);
    one("[network]\nalow = []\n", "3:1 unknown key 'alow' in 'network'", "did you mean 'allow'?");
    one("[limits]\nbanana = 1\n", "unknown key 'banana' in 'limits'", "open_files, processes");
    one("default_profile = \"x\"\n", "unknown key 'default_profile'", "config.toml");
    one("[[volumes]]\nhost = \"/\"\ngest = \"/x\"\n", "unknown key 'gest' in 'volumes'", "'guest'");
    one("[[escalation.deny]]\ncommand = [\"/x\"]\ntimout = \"5s\"\n", "unknown key 'timout'", "");
    let home = Home::new().common("[network]\nallow = [\"10.1.0.0/16\"]\n").profile("p", IMAGE);
    let found = problems(home.load());
    assert!(found[0].contains("2:1 unknown key 'allow'") && found[0].contains("only narrow"), "{found:?}");
}

#[test]
fn wrong_types_name_the_right_one() {
    one("[network]\nallow = \"10.0.0.0/8\"\n", "3:9 'network.allow' cannot be string", "a list of prefixes");
    one("[network]\nallow = [1]\n", "3:10 'network.allow' cannot be integer", "a list of prefixes");
    one("[network]\nipv6 = \"yes\"\n", "3:8 'network.ipv6' cannot be string", "true or false");
    one("linger = 30\n", "2:10 'linger' cannot be integer", "\"30s\"");
    one("[limits]\nmemory = 8\n", "'limits.memory' cannot be integer", "\"8GiB\"");
    one("volumes = 3\n", "'volumes' cannot be integer", "[[volumes]]");
    one("[env.set]\nA = 1\n", "'env.set.A' cannot be integer", "");
    one("[[volumes]]\nhost = \"/\"\n", "'guest' is missing in 'volumes'", "add guest");
    assert_eq!(problems(load("user = \"x\"\n"))[0].split(" | ").next(), Some("1:1 'image' is missing"));
}

#[test]
fn syntax_errors_have_a_place() {
    for (text, place) in [
        ("image = \"x\"\nimage = \"y\"\n", "2:1"),
        ("image = \n", "1:9"),
        ("[network\n", "1:9"),
        ("image = \"x", "1:1"),
        ("a b c", "1:"),
    ] {
        let found = problems(load(text));
        assert!(found[0].starts_with(place), "{text:?}: {found:?}");
    }
}

#[test]
fn values_must_make_sense() {
    one("user = \":\"\n", "2:8 ':' is not a user", "NAME:GROUP");
    one("command = []\n", "2:11 the command has no words", "");
    one("command = [\"claude --continue\"]\n", "one program with spaces", "each word on its own");
    one("command = [\"a\\u0000\"]\n", "NUL", "");
    one("linger = \"soon\"\n", "'soon' is not a time", "\"5m\"");
    one("persistent = [\"home\"]\n", "2:15 'home' is not a sandbox path", "/home/agent");
    one("persistent = [\"/\"]\n", "not a sandbox path", "the root is new");
    one("persistent = [\"/a/../b\"]\n", "not a sandbox path", "");
    one("[limits]\nopen_files = 0\n", "0 is not a sensible number", "between 64");
    one("[limits]\nprocesses = -1\n", "-1 is not a sensible number", "");
    one("[limits]\nmemory = \"1KiB\"\n", "not a sensible size", "64 MiB");
    one("[limits]\ntmp = \"9999TiB\"\n", "not a sensible size", "1 TiB");
    one("[workspace]\nhide = [\"a/b\"]\n", "not a directory's name", "");
    one("[workspace]\nhide = [\".git\"]\n", "cannot be hidden", "");
    assert!(problems(load("image = \"/x\"\n"))[0].contains("1:9 "));
}

#[test]
fn environment_names_are_checked() {
    one("[env]\npass = [\"A=B\"]\n", "3:9 'A=B' is not the name", "below [env.set]");
    one("[env]\npass = [\"LAZARET_X\"]\n", "reserved", "");
    one("[env.set]\n\"A-B\" = \"1\"\n", "3:1 'A-B' is not the name", "");
    one("[env.set]\nA = \"\\u0000\"\n", "3:5 a NUL", "");
    one("[env]\npass = [\"A\"]\n[env.set]\nA = \"1\"\n", "3:9 'A' is passed through and has a fixed value", "line 5");
    one("[env]\npass = [\"A\", \"A\"]\n", "3:14 'A' is in 'env.pass' twice", "line 3");
}

#[test]
fn sandbox_paths_that_are_taken_are_refused() {
    for path in ["/workspace", "/workspace/x", "/proc", "/sys/fs", "/dev/shm", "/run/lazaret", "/run/lazaret/bin"] {
        one(&format!("persistent = [\"{path}\"]\n"), "not the profile's to fill", "");
        one(&format!("[[volumes]]\nhost = \"/\"\nguest = \"{path}\"\n"), "not the profile's to fill", "");
    }
    one("persistent = [\"/a\", \"/a/b\"]\n", "2:21 '/a/b' lies in '/a'", "");
    one("persistent = [\"/a\", \"/a/\"]\n", "twice", "");
    one("persistent = [\"/etc/hosts\"]\n", "Lazaret writes", "");
    one("persistent = [\"/etc\"]\n", "would hide '/etc/hostname'", "\"/etc/NAME\"");
    one("[[volumes]]\nhost = \"/\"\nguest = \"/etc\"\n", "would hide '/etc/hostname'", "");
    one("[[volumes]]\nhost = \"/\"\nguest = \"/run\"\n", "would hide '/run/lazaret'", "");
    assert!(load_with_image("persistent = [\"/workspaces\", \"/etc/ssl\", \"/tmp\"]\n").is_ok());
}

#[test]
fn volumes_are_host_paths_that_exist() {
    let volume = |host: &str, guest: &str| format!("[[volumes]]\nhost = \"{host}\"\nguest = \"{guest}\"\n");
    one(&volume("~/absent", "/x"), "does not exist", "mkdir -p");
    one(&volume("relative", "/x"), "3:8 'relative' is not an absolute path", "~/");
    one(&volume("$HOME/x", "/x"), "not an absolute path", "variables are not expanded");
    one(&volume("~root/x", "/x"), "another user's home", "");
    one(&volume("/dev/null", "/x"), "neither a directory nor a file", "");
    one(&format!("{}access = \"rwx\"\n", volume("/", "/x")), "'rwx' is not a kind of access", "\"ro\"");
    one(&format!("{}{}", volume("/", "/x"), volume("/etc", "/x")), "7:9 two volumes are at '/x'", "line 4");
    one(&format!("persistent = [\"/x/y\"]\n{}", volume("/", "/x")), "would hide the persistent path", "line 2");
    one(
        &format!("{}{}", volume("/etc", "/x"), volume("/usr", "/x/absent")),
        "nothing to mount it over",
        "mkdir -p /etc/absent",
    );
    assert!(load_with_image(&format!("{}{}", volume("/usr", "/x"), volume("/etc", "/x/bin"))).is_ok());
    assert!(load_with_image(&format!("persistent = [\"/x\"]\n{}", volume("/", "/x/y"))).is_ok());
    let tilde = load_with_image(&volume("~", "/x")).unwrap().profile;
    assert_eq!(tilde.volumes[0].access, Access::ReadOnly);
}

#[test]
fn a_volume_that_leads_to_a_name_that_is_not_utf8_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let home = Home::new().profile("p", &format!("{IMAGE}[[volumes]]\nhost = \"~/link\"\nguest = \"/x\"\n"));
    let odd = home.directory.path().join(std::ffi::OsStr::from_bytes(b"odd\xff"));
    std::fs::create_dir(&odd).unwrap();
    std::os::unix::fs::symlink(&odd, home.directory.path().join("link")).unwrap();
    assert!(problems(home.load())[0].contains("not UTF-8"));
}

#[test]
fn contradictions_in_the_network_grant_are_refused() {
    let network = |lines: &str| format!("[network]\n{lines}\n");
    one(
        &network("allow = [\"10.1.0.0/16\"]\ndeny = [\"10.1.0.0/16\"]"),
        "3:10 '10.1.0.0/16' is both permitted and denied",
        "p.toml:4",
    );
    one(&network("allow = [\"10.0.0.0/8\"]"), "denied by default", "\"10.0.0.0/16\"");
    one(&network("allow = [\"10.1.2.3/16\"]"), "bits set beyond", "\"10.1.0.0/16\"");
    one(&network("allow = [\"0.0.0.0/0\"]"), "permitted already", "");
    one(&network("allow = [\"128.0.0.0/1\"]\ndeny = [\"0.0.0.0/0\"]"), "both permitted and denied", "");
    one(&network("allow = [\"2001:db8::/32\"]"), "IPv6 is off", "ipv6 = true");
    one(&network("ipv6 = true\nallow = [\"fc00::/7\"]"), "denied by default", "");
    one(&network("ipv6 = true\ndeny = [\"::ffff:10.0.0.0/104\"]"), "IPv4 written as IPv6", "");
    one(&network("allow = [\"127.0.0.0/8\"]"), "loopback", "");
    one(&network("deny = [\"10.0.2.3/32\"]"), "connectivity helper", "");
    one(&network("dns = [\"127.0.0.53\"]"), "no resolver that a sandbox can reach", "leave 'dns' out");
    one(&network("dns = [\"2001:db8::1\"]"), "IPv6 is off", "");
    one(&network("dns = [\"192.0.2.1\"]\ndeny = [\"192.0.2.1/32\"]"), "is a resolver and denied", "");
    one(&network("dns = [\"1.1.1.1\",\"1.1.1.2\",\"1.1.1.3\",\"1.1.1.4\"]"), "3 resolvers at most", "");
    one(&network("[network.probe]\nconnect = [\"10.1.1.1:1\"]"), "the policy denies it", "\"10.1.1.1/32\"");
    one(&network("[network.probe]\ndenied = [\"192.0.2.1\"]"), "the policy permits it", "");
    one(&network("[network.probe]\nresolve = [\"a b\"]"), "not a host name", "");
    assert!(load_with_image(&network("ipv6 = true\nallow = [\"fd12::/32\"]\ndns = [\"fd12::1\"]")).is_ok());
    assert!(load_with_image(&network("deny = [\"10.0.0.0/8\", \"0.0.0.0/0\"]")).is_ok());
}

#[test]
fn escalation_rules_are_exact_vectors() {
    let allow = |lines: &str| format!("[[escalation.allow]]\n{lines}\n");
    one(&allow("command = [\"gh\"]"), "3:12 'gh' is not the absolute path", "never searches PATH");
    one(&allow("command = [\"/usr/../gh\"]"), "not the absolute path", "");
    one(&allow("command = []"), "no words", "");
    one(&allow("command = [\"/x\"]\nargs = \"some\""), "4:8 'some' says nothing", "\"any\"");
    one(&allow("command = [\"/x\"]\ntimeout = \"0s\""), "at least a second", "");
    one(&allow("command = [\"/x\"]\ndirectory = \"x\""), "not an absolute path", "");
    let deny = "[[escalation.deny]]\ncommand = [\"/x\"]\n";
    one(&format!("{}{deny}", allow("command = [\"/x\"]")), "3:11 this command is allowed and denied", "p.toml:5");
    one(&format!("{}{deny}", allow("command = [\"/x\", \"y\"]")), "allowed and denied", "");
    one(&format!("{0}{0}", allow("command = [\"/x\"]")), "5:11 this rule is there twice", "line 3");
    let narrower = "[[escalation.deny]]\ncommand = [\"/x\", \"rm\"]\n";
    assert!(load_with_image(&format!("{}{narrower}", allow("command = [\"/x\"]\nargs = \"any\""))).is_ok());
}

#[test]
fn several_mistakes_are_told_together() {
    let text =
        "[network]\nallow = [\"b\"]\n[[volumes]]\nhost = \"~/absent\"\nguest = \"/proc\"\n[limits]\ntmp = \"a\"\n";
    let lines = |error: &ConfigError| error.records().iter().map(|record| record.line).collect::<Vec<_>>();
    assert_eq!(lines(&load_with_image(text).unwrap_err()), [Some(3), Some(5), Some(6), Some(8)]);
}

#[test]
fn the_common_file_only_narrows() {
    let common = "[network]\ndeny = [\"100.64.0.0/10\", \"2001:db8::/32\"]\n[workspace]\nhide = [\".idea\"]\n\
                  [[escalation.deny]]\ncommand = [\"/usr/bin/sudo\"]\n";
    let home = Home::new().common(common).profile("p", &format!("{IMAGE}[network]\ndeny = [\"100.64.0.0/10\"]\n"));
    let loaded = home.load().unwrap();
    assert_eq!(loaded.profile.network.deny, ["100.64.0.0/10".parse().unwrap()]);
    assert_eq!(loaded.profile.workspace.hide, [".idea"]);
    assert_eq!(loaded.profile.escalation.len(), 1);
    assert!(loaded.origins.of("workspace.hide", ".idea").to_string().ends_with("config.toml:4"));

    let home = Home::new().common(common).profile("p", &format!("{IMAGE}[network]\nallow = [\"100.64.0.0/10\"]\n"));
    let found = problems(home.load());
    assert!(found[0].contains("config.toml:2"), "{found:?}");
    let home = Home::new()
        .common(common)
        .profile("p", &format!("{IMAGE}[[escalation.allow]]\ncommand = [\"/usr/bin/sudo\"]\n"));
    assert!(problems(home.load())[0].contains("config.toml:6"));
}

#[test]
fn the_profile_is_the_named_the_default_or_the_only_one() {
    let name: ProfileName = "b".parse().unwrap();
    let home = Home::new();
    assert!(matches!(home.load(), Err(ConfigError::Nothing { .. })));
    let home = home.profile("a", IMAGE);
    assert_eq!(home.load().unwrap().profile.name.as_str(), "a");
    let home = home.profile("b", IMAGE);
    assert!(matches!(home.load(), Err(ConfigError::NoneChosen { known }) if known.len() == 2));
    assert_eq!(load_profile(&home.dirs, Some(&name)).unwrap().profile.name, name);
    let home = home.common("default_profile = \"b\"\n");
    assert_eq!(home.load().unwrap().profile.name, name);
    let absent = load_profile(&home.dirs, Some(&"bb".parse().unwrap())).unwrap_err();
    assert!(absent.hints()[0].contains("did you mean 'b'?"), "{:?}", absent.hints());
    let home = home.common("default_profile = \"B\"\n");
    assert!(problems(home.load())[0].starts_with("1:19 'B' is not a valid profile name"));
}

#[test]
fn check_looks_at_every_file() {
    let home = Home::new().common("default_profile = \"goood\"\n").profile("good", IMAGE).profile("bad", "x = 1\n");
    std::fs::write(home.dirs.profiles().join("Not A Name.toml"), "").unwrap();
    std::fs::write(home.dirs.profiles().join(".hidden.toml"), "").unwrap();
    let checked = check_all(&home.dirs).unwrap();
    let verdicts: Vec<_> =
        checked.iter().map(|file| (file.path.file_name().unwrap().to_str().unwrap(), file.result.is_ok())).collect();
    let expected = [("config.toml", false), ("Not A Name.toml", false), ("bad.toml", false), ("good.toml", true)];
    assert_eq!(verdicts, expected);
    assert!(checked[0].result.as_ref().unwrap_err().records()[0].help.as_ref().unwrap().contains("'good'"));
}

#[test]
fn the_fingerprint_follows_meaning_and_not_spelling() {
    let one =
        "image = \"debian\"\nlinger = \"60s\"\n[network]\nallow = [\"10.1.0.0/16\", \"10.2.0.0/16\"]\nipv6 = false\n";
    let other = "# the same\nlinger   = \"1m\"\nnetwork = { ipv6=false, allow = [ \"10.2.0.0/16\",\n \"10.1.0.0/16\", ] }\n\
                 image = 'debian'\n";
    let other = other.replace(",\n ", ", ").replace(", ]", " ]");
    let fingerprint = |text: &str| load(text).unwrap().profile.fingerprint();
    assert_eq!(fingerprint(one), fingerprint(&other));
    let variants = [
        one.replace("60s", "61s"),
        one.replace("debian", "debian:12"),
        one.replace("10.2.0.0/16", "10.3.0.0/16"),
        one.replace("ipv6 = false", "ipv6 = true"),
        one.replace("ipv6", "deny = [\"9.9.9.9/32\"]\nipv6"),
        one.replace("ipv6", "dns = [\"9.9.9.9\"]\nipv6"),
        format!("{one}[workspace]\nisolate_ignored = false\n"),
        format!("{one}[workspace]\nhide = [\".idea\"]\n"),
        format!("{one}[env]\npass = [\"A\"]\n"),
        format!("{one}[env.set]\nA = \"1\"\n"),
        format!("{one}[limits]\ntmp = \"1GiB\"\n"),
        format!("{one}[[volumes]]\nhost = \"/\"\nguest = \"/x\"\n"),
        format!("{one}[[escalation.deny]]\ncommand = [\"/x\"]\n"),
        format!("user = \"root\"\n{one}"),
        format!("command = [\"sh\"]\n{one}"),
        format!("persistent = [\"/x\"]\n{one}"),
    ];
    let mut all: Vec<_> = variants.iter().map(|text| fingerprint(text)).chain([fingerprint(one)]).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), variants.len() + 1);
    let ours = load(one).unwrap().profile;
    for variant in &variants {
        let difference = crate::policy::explain::difference(&load(variant).unwrap().profile, &ours);
        assert_eq!(difference.len(), if variant.contains("10.3.0.0") { 2 } else { 1 }, "{variant}: {difference:?}");
    }
}

#[test]
fn a_mistake_is_shown_with_its_line_and_a_mark_under_the_value() {
    let error: CliError = load_with_image("[network]\nallow = [\"10.1.2.3/16\"]\n").unwrap_err().into_cli();
    let text = error.render(crate::cli::output::Style::Plain);
    assert!(text.contains("p.toml:3:10"), "{text}");
    assert!(text.contains("allow = [\"10.1.2.3/16\"]"), "{text}");
    assert!(text.contains("10.1.0.0/16"), "{text}");
    let value_column = text.lines().find(|line| line.contains("allow =")).and_then(|line| line.find("\"10.1")).unwrap();
    let shown = text.lines().skip_while(|line| !line.contains("allow =")).nth(1).unwrap();
    let mark = shown.chars().position(|c| matches!(c, '^' | '─' | '-')).unwrap();
    let value_column = text.lines().find(|l| l.contains("allow =")).unwrap()[..value_column].chars().count();
    assert_eq!(mark, value_column, "{text}");
}

#[test]
fn the_starter_and_the_documentation_name_every_key() {
    let starter: String = starter::files().into_iter().map(|file| file.content).collect();
    let documentation = include_str!("../../../docs/configuration.md");
    for key in keys::KEYS {
        let name = key.path.rsplit('.').next().unwrap();
        assert!(starter.contains(name), "the starter has no {}", key.path);
        let documented = key.path.replace("escalation.allow.", "escalation.*.");
        assert!(documentation.contains(&format!("`{documented}`")), "docs/configuration.md has no `{documented}`");
    }
}

#[test]
fn directories_come_from_absolute_variables_only() {
    let from = |pairs: &[(&str, &str)]| {
        let pairs: Vec<(String, String)> = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        ConfigDirs::from_variables(|name| pairs.iter().find(|(k, _)| k == name).map(|(_, v)| v.into()))
    };
    assert_eq!(from(&[("HOME", "/h")]).unwrap().config, Path::new("/h/.config/lazaret"));
    assert_eq!(from(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/c")]).unwrap().config, Path::new("/c/lazaret"));
    assert_eq!(from(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "c")]).unwrap().config, Path::new("/h/.config/lazaret"));
    assert!(matches!(from(&[("HOME", "h")]), Err(ConfigError::NoHome)));
}
