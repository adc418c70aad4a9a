//! How the other parts call `lazaret-guest`: one place builds the command lines and reads them.
//!
//! Arguments, environment and directory are byte strings, so each travels as `domain::escaped`
//! text. NUL is escaped as well, because it would end the argument on its way through `execve`; the
//! reader then refuses it with a message instead of running something shorter.
//!
//! A session's environment may hold secrets, so it travels in the environment of `lazaret-guest`, one variable
//! for each of its own: runsc shows the arguments of what it fails to start, on the session's terminal, and never
//! the environment.

use std::collections::BTreeMap;

use crate::domain::escaped::{InvalidEscape, escape, unescape};
use crate::domain::network::ProbePlan;
use crate::domain::runtime::{DEFAULT_PATH, GUEST_EXECUTABLE, GuestProcess};

/// File name under which the executable is the Escalation Client.
pub const ESCALATE_NAME: &str = "lazaret-escalate";

/// What the variables that carry a session's environment begin with; a number follows, and `NAME=VALUE` is the value.
const CARRIED: &str = "LAZARET_SESSION_ENV_";

/// What `lazaret-guest` was called to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestCommand {
    /// To be process 1 of the sandbox.
    Init(Box<ProbePlan>),
    /// To carry one session's process.
    Session(Box<GuestProcess>),
    /// To ask for a Host Escalation.
    Escalate,
}

/// A command line that is not one of ours.
#[derive(Debug, thiserror::Error)]
pub enum CommandLineError {
    /// No known subcommand.
    #[error("expected 'init PLAN' or 'session …'; a sandbox's own processes have no use for this program")]
    Subcommand,
    /// The probe plan is not one.
    #[error("the probe plan cannot be read")]
    Plan(#[source] serde_json::Error),
    /// An option that `session` does not have.
    #[error("unknown option '{0}'")]
    Option(String),
    /// An option without its value.
    #[error("option '{0}' needs a value")]
    Value(String),
    /// A value that is not a number where one is needed.
    #[error("option '{option}' needs a number, not '{text}'")]
    Number {
        /// The option.
        option: String,
        /// What was given.
        text: String,
    },
    /// A required part is missing.
    #[error("'{0}' is missing")]
    Missing(&'static str),
    /// A value that is not escaped text.
    #[error("a value is not escaped text")]
    Escape(#[source] InvalidEscape),
    /// A value with a NUL byte, which no argument, variable or path can hold.
    #[error("{0} contains a NUL byte")]
    Nul(&'static str),
    /// An environment entry without `=`.
    #[error("'{0}' is not NAME=VALUE")]
    Variable(String),
}

/// Gives the whole argument vector of process 1 of a sandbox.
pub fn init(plan: &ProbePlan) -> Vec<String> {
    let plan = serde_json::to_string(plan).expect("a probe plan has only string keys");
    vec![GUEST_EXECUTABLE.into(), "init".into(), plan]
}

/// Gives the whole argument vector that runs a process as a session; [`environment`] belongs to it.
pub fn session(process: &GuestProcess) -> Vec<String> {
    let mut line = vec![GUEST_EXECUTABLE.to_owned(), "session".to_owned()];
    let mut option = |name: &str, value: String| line.extend([name.to_owned(), value]);
    option("--uid", process.uid.to_string());
    option("--gid", process.gid.to_string());
    for group in &process.groups {
        option("--group", group.to_string());
    }
    option("--dir", escape_argument(&process.directory));
    if process.interactive {
        line.push("--tty".to_owned());
    }
    line.push("--".to_owned());
    line.extend(process.argv.iter().map(|argument| escape_argument(argument)));
    line
}

/// Gives the environment, as `NAME=VALUE`, of `lazaret-guest` when it runs a process as a session.
pub fn environment(process: &GuestProcess) -> Vec<String> {
    let carried = process.env.iter().enumerate().map(|(position, (name, value))| {
        format!("{CARRIED}{position}={}", escape_argument(&[name.as_slice(), b"=", value].concat()))
    });
    std::iter::once(format!("PATH={DEFAULT_PATH}")).chain(carried).collect()
}

/// Reads a whole argument vector, the program's own name included, and the environment that came with it.
pub fn parse(
    line: &[String],
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<GuestCommand, CommandLineError> {
    let name = line.first().map_or("", |path| path.rsplit('/').next().unwrap_or(path));
    if name == ESCALATE_NAME {
        return Ok(GuestCommand::Escalate);
    }
    match line.get(1).map(String::as_str) {
        Some("init") => {
            let plan = line.get(2).ok_or(CommandLineError::Missing("PLAN"))?;
            Ok(GuestCommand::Init(serde_json::from_str(plan).map_err(CommandLineError::Plan)?))
        }
        Some("session") => {
            let mut process = parse_session(&line[2..])?;
            process.env = carried(environment)?;
            Ok(GuestCommand::Session(Box::new(process)))
        }
        _ => Err(CommandLineError::Subcommand),
    }
}

/// Reads what follows `session`.
fn parse_session(line: &[String]) -> Result<GuestProcess, CommandLineError> {
    let (mut uid, mut gid, mut directory) = (None, None, None);
    let mut process = GuestProcess {
        argv: Vec::new(),
        env: Vec::new(),
        directory: Vec::new(),
        uid: 0,
        gid: 0,
        groups: Vec::new(),
        interactive: false,
    };
    let mut rest = line.iter();
    while let Some(option) = rest.next() {
        match option.as_str() {
            "--" => break,
            "--tty" => process.interactive = true,
            "--uid" => uid = Some(number(option, rest.next())?),
            "--gid" => gid = Some(number(option, rest.next())?),
            "--group" => process.groups.push(number(option, rest.next())?),
            "--dir" => directory = Some(bytes("the directory", value(option, rest.next())?)?),
            _ => return Err(CommandLineError::Option(option.clone())),
        }
    }
    process.argv = rest.map(|argument| bytes("an argument", argument)).collect::<Result<_, _>>()?;
    if process.argv.is_empty() {
        return Err(CommandLineError::Missing("ARG"));
    }
    process.uid = uid.ok_or(CommandLineError::Missing("--uid"))?;
    process.gid = gid.ok_or(CommandLineError::Missing("--gid"))?;
    process.directory = directory.ok_or(CommandLineError::Missing("--dir"))?;
    Ok(process)
}

/// Takes an option's value.
fn value<'a>(option: &str, text: Option<&'a String>) -> Result<&'a str, CommandLineError> {
    text.map(String::as_str).ok_or_else(|| CommandLineError::Value(option.to_owned()))
}

/// Takes an option's value as a number.
fn number(option: &str, text: Option<&String>) -> Result<u32, CommandLineError> {
    let text = value(option, text)?;
    text.parse().map_err(|_| CommandLineError::Number { option: option.to_owned(), text: text.to_owned() })
}

/// Decodes a value.
fn bytes(what: &'static str, text: &str) -> Result<Vec<u8>, CommandLineError> {
    let bytes = unescape(text).map_err(CommandLineError::Escape)?;
    if bytes.contains(&0) { Err(CommandLineError::Nul(what)) } else { Ok(bytes) }
}

/// Picks a session's variables out of the environment that carries them, in their order.
fn carried(environment: impl IntoIterator<Item = (String, String)>) -> Result<Vec<Variable>, CommandLineError> {
    let numbered = environment.into_iter().filter_map(|(name, value)| {
        let position: usize = name.strip_prefix(CARRIED)?.parse().ok()?;
        Some((position, value))
    });
    let ordered: BTreeMap<_, _> = numbered.collect();
    ordered.into_values().map(|value| variable(&value)).collect()
}

/// Name and value of an environment variable.
type Variable = (Vec<u8>, Vec<u8>);

/// Decodes an environment entry.
fn variable(text: &str) -> Result<Variable, CommandLineError> {
    let mut name = bytes("an environment variable", text)?;
    let equals = name.iter().position(|&byte| byte == b'=');
    let equals = equals.ok_or_else(|| CommandLineError::Variable(text.to_owned()))?;
    let value = name.split_off(equals + 1);
    name.truncate(equals);
    Ok((name, value))
}

/// Encodes a byte string as an argument.
fn escape_argument(bytes: &[u8]) -> String {
    escape(bytes).replace('\0', "%00")
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Byte strings that an argument can hold.
    fn argument() -> impl Strategy<Value = Vec<u8>> {
        vec(1u8..=255, 0..24)
    }

    fn process() -> impl Strategy<Value = GuestProcess> {
        let name = vec(any::<u8>().prop_filter("in a name", |b| !matches!(b, 0 | b'=')), 1..8);
        let fields = (any::<u32>(), any::<u32>(), vec(any::<u32>(), 0..4), any::<bool>());
        (vec(argument(), 1..6), vec((name, argument()), 0..6), argument(), fields).prop_map(
            |(argv, env, directory, (uid, gid, groups, interactive))| GuestProcess {
                argv,
                env,
                directory,
                uid,
                gid,
                groups,
                interactive,
            },
        )
    }

    fn line(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    proptest! {
        #[test]
        fn every_session_survives(process in process()) {
            let (line, environment) = (session(&process), environment(&process));
            prop_assert!(line.iter().chain(&environment).all(|word| !word.contains('\0')));
            let variables = environment.iter().filter_map(|entry| entry.split_once('='));
            let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
            prop_assert_eq!(parse(&line, variables).unwrap(), GuestCommand::Session(Box::new(process)));
        }

        #[test]
        fn no_line_panics(words in vec(".{0,12}", 0..8)) {
            let _ = parse(&words, []);
            let _ = parse(&[line(&["lazaret-guest", "session"]), words].concat(), []);
        }
    }

    #[test]
    fn a_nul_is_refused_and_never_cuts_an_argument_short() {
        let mut process =
            match parse(&line(&["g", "session", "--uid", "0", "--gid", "0", "--dir", "/", "--", "rm"]), []) {
                Ok(GuestCommand::Session(process)) => *process,
                other => panic!("{other:?}"),
            };
        process.argv.push(b"a\0b".to_vec());
        assert!(matches!(parse(&session(&process), []), Err(CommandLineError::Nul(_))));
    }

    #[test]
    fn options_after_the_dashes_belong_to_the_command() {
        let words = ["g", "session", "--uid", "1", "--gid", "2", "--dir", "/w", "--", "sh", "--tty", "--", "x"];
        let Ok(GuestCommand::Session(process)) = parse(&line(&words), []) else { panic!() };
        assert_eq!(process.argv, [b"sh".to_vec(), b"--tty".to_vec(), b"--".to_vec(), b"x".to_vec()]);
        assert!(!process.interactive);
    }

    #[test]
    fn what_is_missing_is_named() {
        let cases: [(&[&str], &str); 4] = [
            (&["g", "session", "--gid", "0", "--dir", "/", "--", "x"], "'--uid' is missing"),
            (&["g", "session", "--uid", "0", "--gid", "0", "--dir", "/", "--"], "'ARG' is missing"),
            (&["g", "session", "--uid", "-1"], "option '--uid' needs a number, not '-1'"),
            (&["g", "session", "--uid"], "option '--uid' needs a value"),
        ];
        for (words, expected) in cases {
            assert_eq!(parse(&line(words), []).unwrap_err().to_string(), expected);
        }
        let words = ["g", "session", "--uid", "0", "--gid", "0", "--dir", "/", "--", "x"];
        let broken = [(format!("{CARRIED}0"), "NAME".to_owned())];
        assert_eq!(parse(&line(&words), broken).unwrap_err().to_string(), "'NAME' is not NAME=VALUE");
    }

    #[test]
    fn no_argument_holds_the_environment() {
        let mut process =
            match parse(&line(&["g", "session", "--uid", "0", "--gid", "0", "--dir", "/", "--", "id"]), []) {
                Ok(GuestCommand::Session(process)) => *process,
                other => panic!("{other:?}"),
            };
        process.env.push((b"TOKEN".to_vec(), b"secret".to_vec()));
        assert!(session(&process).iter().all(|word| !word.contains("secret")));
        assert!(environment(&process).contains(&format!("{CARRIED}0=TOKEN=secret")));
    }

    #[test]
    fn a_probe_plan_survives_and_the_other_name_is_known() {
        let plan = ProbePlan {
            denied: vec!["10.255.255.254".parse().unwrap()],
            routed: vec![],
            echo: vec![],
            resolvers: vec![],
            resolve: vec!["example.org".into()],
            connect: vec!["[2001:db8::1]:443".parse().unwrap()],
            device: "tap0".into(),
            deadline_ms: 2000,
        };
        assert_eq!(parse(&init(&plan), []).unwrap(), GuestCommand::Init(Box::new(plan)));
        let escalate = line(&["/run/lazaret/bin/lazaret-escalate", "init", "{}"]);
        assert_eq!(parse(&escalate, []).unwrap(), GuestCommand::Escalate);
    }
}
