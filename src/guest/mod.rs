//! What `lazaret-guest` does inside the sandbox: be its process 1 ([`init`]) and probe its network
//! ([`probe`]), carry sessions ([`session`]), and stand in for the Escalation Client.
//!
//! It runs in images that it knows nothing of, at the start of every session, so it is small, static
//! and single-threaded. It trusts what it is told on its command line and in its environment, and nothing that it finds.

pub mod command_line;
pub mod init;
pub mod probe;
pub mod session;

use std::ffi::OsString;

use command_line::GuestCommand;

use crate::domain::failure::Failure;
use crate::sys::guest::replace_command_line;
use crate::sys::inherited;
use crate::wire::lifeline;

/// What the Escalation Client says until there is one.
const NO_ESCALATION: &str = "host escalation is not available in this version of Lazaret; \
    run the command on the host, outside the sandbox";

/// Does what the process's arguments say and gives the exit status.
pub fn run() -> u8 {
    // The builder of our command lines writes UTF-8; anything else cannot be one of them.
    let text = |part: OsString| part.to_string_lossy().into_owned();
    let line: Vec<String> = std::env::args_os().map(text).collect();
    let environment = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
    match command_line::parse(&line, environment) {
        Ok(GuestCommand::Init(plan)) => init::run(&plan),
        Ok(GuestCommand::Session(process)) => {
            replace_command_line("lazaret-session");
            match inherited::take(lifeline::DESCRIPTOR) {
                Some(descriptor) => session::run(&process, descriptor.into()),
                None => {
                    session::say("a session is started by Lazaret's supervisor only");
                    session::FAILED
                }
            }
        }
        Ok(GuestCommand::Escalate) => {
            session::say(NO_ESCALATION);
            session::FAILED
        }
        Err(error) => {
            session::say(&Failure::of(&error).line());
            session::FAILED
        }
    }
}
