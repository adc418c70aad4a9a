//! A mistake is shown with its file, line and column, a mark under it, and what to write instead.

use anyhow::{Result, ensure};
use fs_err as fs;

use crate::harness::{Case, CaseResult, Environment, case};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("a_mistake_is_marked", &[], a_mistake_is_marked),
        case("all_mistakes_are_shown_together", &[], all_mistakes_are_shown_together),
        case("contradictions_are_refused", &[], contradictions_are_refused),
        case("a_file_that_is_no_configuration", &[], a_file_that_is_no_configuration),
        case("a_profile_that_does_not_exist", &[], a_profile_that_does_not_exist),
    ]
}

/// Starts with a profile and gives what is said, with the profile's path as `PROFILE`.
fn said(environment: &Environment, text: &str) -> Result<String> {
    environment.write_profile("test", text)?;
    let output = environment.lazaret(["run", "--", "true"]).run()?.expect_code(125)?;
    ensure!(output.stdout.is_empty(), "{output}");
    let profile = environment.config().join("lazaret/profiles/test.toml");
    Ok(output.stderr().replace(&profile.display().to_string(), "PROFILE"))
}

fn a_mistake_is_marked() -> CaseResult {
    let environment = Environment::new()?;
    let cases = [
        (
            "image = \"x\"\n[network]\nalow = [\"1.2.3.0/24\"]\n",
            "\
lazaret: error: the configuration has a mistake
  × unknown key 'alow' in 'network'
   ╭─[PROFILE:3:1]
 2 │ [network]
 3 │ alow = [\"1.2.3.0/24\"]
   · ──┬─
   ·   ╰── here
   ╰────
  help: did you mean 'allow'?
",
        ),
        (
            "image = \"x\"\n[network]\nallow = [\"10.1.2.3/16\"]\n",
            "\
lazaret: error: the configuration has a mistake
  × '10.1.2.3/16' has bits set beyond its length of 16
   ╭─[PROFILE:3:10]
 2 │ [network]
 3 │ allow = [\"10.1.2.3/16\"]
   ·          ──────┬──────
   ·                ╰── here
   ╰────
  help: write \"10.1.0.0/16\", or \"10.1.2.3/32\" for the one address
",
        ),
        (
            "image = \"x\"\n# é, so that bytes and columns differ\nuser = \"é\" ; persistent = 5\n",
            "\
lazaret: error: the configuration has a mistake
  × unexpected key or value, expected newline, `#`
   ╭─[PROFILE:3:12]
 2 │ # é, so that bytes and columns differ
 3 │ user = \"é\" ; persistent = 5
   ·            ▲
   ·            ╰── here
   ╰────
  help: correct the TOML syntax here; 'lazaret config reference' has examples
",
        ),
        (
            "image = \"x\"\npersistent = \"/home\"\n",
            "\
lazaret: error: the configuration has a mistake
  × 'persistent' cannot be string \"/home\"
   ╭─[PROFILE:2:14]
 1 │ image = \"x\"
 2 │ persistent = \"/home\"
   ·              ───┬───
   ·                 ╰── here
   ╰────
  help: 'persistent' is a list of sandbox paths, such as [\"/home/agent\"]
",
        ),
    ];
    for (text, expected) in cases {
        let said = said(&environment, text)?;
        ensure!(said.trim_end() == expected.trim_end(), "of\n{text}\nit is said\n{said}\ninstead of\n{expected}");
    }
    Ok(())
}

/// Demands that each mistake is shown at its place; help is compared without its line breaks.
fn expect(environment: &Environment, text: &str, shown: &[(&str, &str, &str)]) -> CaseResult {
    let said = said(environment, text)?;
    let flat = |text: &str| {
        let words = text.split(|c: char| c.is_whitespace() || c == '│').filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join(" ")
    };
    let all = flat(&said);
    for (place, message, help) in shown {
        let block = flat(&format!("× {message} ╭─[PROFILE:{place}]"));
        ensure!(all.contains(&block), "'{block}' is not shown for\n{text}\n{said}");
        ensure!(all.contains(&flat(&format!("help: {help}"))), "'{help}' is not said for\n{text}\n{said}");
    }
    let first = said.lines().next().unwrap_or_default();
    match shown.len() {
        1 => ensure!(first == "lazaret: error: the configuration has a mistake", "{said}"),
        many => ensure!(first == format!("lazaret: error: the configuration has {many} mistakes"), "{said}"),
    }
    let count = said.matches("╭─[").count();
    ensure!(count == shown.len(), "{count} mistakes are shown instead of {}\n{said}", shown.len());
    Ok(())
}

fn all_mistakes_are_shown_together() -> CaseResult {
    let environment = Environment::new()?;
    let text = "image = \"x\"\npersistent = [\"/workspace/x\", \"relative\", \"/home/dev\", \"/home\"]\n\
        [limits]\ntmp = \"5 bananas\"\nprocesses = 3\n[[volumes]]\nhost = \"/no/such\"\nguest = \"/data\"\n\
        [env]\nset = { LAZARET_X = \"1\", A = \"b\" }\npass = [\"A\"]\n";
    let relative = "'relative' is not a sandbox path: it must be absolute, not '/', and without '.' or '..' components";
    let shown = [
        (
            "2:15",
            "'/workspace/x' is not the profile's to fill: '/workspace' holds the workspace",
            "choose another path",
        ),
        ("2:31", relative, "write a path such as \"/home/agent\""),
        ("2:43", "'/home/dev' lies in '/home', which persists as a whole", "take one of them out"),
        ("4:7", "'5 bananas' is not a size", "write a whole number and a unit, such as \"512MiB\" or \"8GiB\""),
        ("5:13", "3 is not a sensible number here", "between 16 and 1048576"),
        ("7:8", "'/no/such' does not exist", "run 'mkdir -p /no/such', or correct the path"),
        ("10:9", "'LAZARET_X' is reserved: Lazaret sets variables of that form itself", "choose another name"),
        (
            "11:9",
            "'A' is passed through and has a fixed value as well",
            "keep one of them; the value is set in line 10",
        ),
    ];
    expect(&environment, text, &shown)
}

fn contradictions_are_refused() -> CaseResult {
    let environment = Environment::new()?;
    let text = "image = \"x\"\n[network]\nallow = [\"10.1.0.0/16\"]\ndeny = [\"10.1.0.0/16\"]\n";
    // A path in a help text is broken in the middle, so that only the text before it is compared.
    expect(&environment, text, &[("3:10", "'10.1.0.0/16' is both permitted and denied", "it is denied at")])?;
    let text = "image = \"x\"\n[[escalation.deny]]\ncommand = [\"/usr/bin/gh\"]\n\
        [[escalation.allow]]\ncommand = [\"/usr/bin/gh\", \"pr\"]\n";
    let message = "this command is allowed and denied; the denial would win, and the rule do nothing";
    expect(&environment, text, &[("5:11", message, "take one of them out; it is denied at")])?;
    let text = "image = \"x\"\n[network]\nallow = [\"2001:db8::/32\"]\n";
    let said = said(&environment, text)?;
    ensure!(said.contains("[PROFILE:3:10]") && said.contains("ipv6"), "{said}");
    Ok(())
}

fn a_file_that_is_no_configuration() -> CaseResult {
    let environment = Environment::new()?;
    let file = environment.config().join("lazaret/profiles/test.toml");
    let run = || environment.lazaret(["run", "--", "true"]).run()?.expect_code(125);
    for (content, text) in [
        (b"image = \"\xff\"\n".to_vec(), "UTF-8"),
        (vec![b'#'; (1 << 20) + 1], "is larger than 1024 KiB"),
        (b"image = \"a\0b\"\n".to_vec(), "test.toml"),
        (Vec::new(), "'image' is missing"),
    ] {
        fs::write(&file, content)?;
        let output = run()?;
        ensure!(output.stderr().contains(text), "no word of '{text}'\n{output}");
        ensure!(!output.stderr().contains('\0'), "{output}");
    }
    fs::remove_file(&file)?;
    fs::create_dir(&file)?;
    run()?.expect_stderr("test.toml")?;
    fs::remove_dir(&file)?;
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU)?;
    run()?.expect_stderr("test.toml")?;
    Ok(())
}

fn a_profile_that_does_not_exist() -> CaseResult {
    let environment = Environment::new()?;
    environment.profile("other", "")?;
    let output = environment.lazaret(["run", "-p", "nope", "--", "true"]).run()?.expect_code(125)?;
    ensure!(output.stderr().contains("there is no profile 'nope'"), "{output}");
    ensure!(output.stderr().contains("hint: profiles that exist: other, test"), "{output}");
    fs::write(environment.config().join("lazaret/config.toml"), "")?;
    let output = environment.lazaret(["run", "--", "true"]).run()?.expect_code(125)?;
    ensure!(output.stderr().contains("other") && output.stderr().contains("test"), "{output}");
    fs::write(environment.config().join("lazaret/config.toml"), "default_profile = \"gone\"\n")?;
    let output = environment.lazaret(["run", "--", "true"]).run()?.expect_code(125)?;
    ensure!(output.stderr().contains("config.toml:1:") && output.stderr().contains("gone"), "{output}");
    environment.lazaret(["run", "-p", "../../etc/x", "--", "true"]).run()?.expect_code(2)?;
    Ok(())
}
