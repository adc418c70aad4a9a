//! What goes wrong, and when, as `LAZARET_FAULT` says.
//!
//! The variable holds assignments, separated by semicolons. It reaches all three processes.
//!
//! | fault | meaning |
//! | :--- | :--- |
//! | `actor=Mounts;how=panic` | the first handler that this actor runs panics; `how=error`: it gives an error |
//! | `actor=Mounts;how=stop` | the actor is stopped as soon as it runs; `how=kill`: it is killed |
//! | … `;after=FILE` | only once FILE exists |
//! | … `;message=2` | the second handler, of those that count |
//! | `task=preparation` | this task of the coordinator panics; `times=4`: the first four times |
//! | `process=coordinator;point=17` | the process (`client`, `coordinator`, `supervisor`) ends at its 17th point |
//! | `process=coordinator;at=after Own 3` | it ends when it passes `after Own` for the third time |
//! | … `;once=FILE` | only where there is no FILE, which it makes: what is started afterwards goes on |
//! | `record=FILE` | each point is appended to FILE: process, number, moment, name, how often it was passed |
//!
//! One of each may be given. An actor is called by its type's name, and one dies in a process, so that
//! of several sessions one is hit. Points are numbered in each process from 1 on, and pass between threads in the order
//! of their numbers. Which of two concurrent steps comes first may differ from one run to the next, so
//! whoever walks over all points takes them by name from the record.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Debug;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, ActorStatus, SupervisionEvent};

const VARIABLE: &str = "LAZARET_FAULT";

/// Status of a process that ends at a point.
const STATUS: i32 = 86;

/// What an actor or a task dies with.
const INJECTED: &str = "a fault was injected";

/// How often the file of `after` is looked for.
const LOOK: Duration = Duration::from_millis(2);

static PLAN: LazyLock<Plan> = LazyLock::new(|| match std::env::var(VARIABLE) {
    Ok(text) => Plan::parse(&text).unwrap_or_else(|wrong| panic!("{VARIABLE}: {wrong}")),
    Err(_) => Plan::default(),
});
/// Whether the actor was ended from outside.
static STRUCK: AtomicBool = AtomicBool::new(false);
/// Handlers of the actor that counted so far.
static HANDLERS: AtomicU64 = AtomicU64::new(0);
/// Beginnings of the task so far.
static TASKS: AtomicU64 = AtomicU64::new(0);
/// Points passed so far.
static POINTS: Mutex<Points> = Mutex::new(Points { all: 0, each: BTreeMap::new() });

/// How often points were passed.
struct Points {
    all: u64,
    /// By moment and name.
    each: BTreeMap<String, u64>,
}

/// What is to go wrong.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    actor: Option<String>,
    how: Option<How>,
    message: Option<u64>,
    after: Option<PathBuf>,
    task: Option<String>,
    times: Option<u64>,
    process: Option<String>,
    point: Option<u64>,
    at: Option<String>,
    once: Option<PathBuf>,
    record: Option<PathBuf>,
}

/// How an actor dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Panic,
    Error,
    Stop,
    Kill,
}

impl Plan {
    fn parse(text: &str) -> Result<Self, String> {
        let mut plan = Self::default();
        for assignment in text.split(';') {
            let (key, value) = assignment.split_once('=').ok_or_else(|| format!("no assignment: {assignment}"))?;
            let number = || value.parse().map_err(|_| format!("no number: {assignment}"));
            match key {
                "actor" => plan.actor = Some(value.to_owned()),
                "how" => plan.how = Some(How::parse(value)?),
                "message" => plan.message = Some(number()?),
                "after" => plan.after = Some(value.into()),
                "task" => plan.task = Some(value.to_owned()),
                "times" => plan.times = Some(number()?),
                "process" => plan.process = Some(value.to_owned()),
                "point" => plan.point = Some(number()?),
                "at" => plan.at = Some(value.to_owned()),
                "once" => plan.once = Some(value.into()),
                "record" => plan.record = Some(value.into()),
                _ => return Err(format!("unknown: {assignment}")),
            }
        }
        let of_actor = plan.message.is_none() && plan.after.is_none() || plan.actor.is_some();
        let ends = usize::from(plan.point.is_some()) + usize::from(plan.at.is_some());
        let whole = plan.actor.is_some() == plan.how.is_some() && usize::from(plan.process.is_some()) == ends;
        let of_point = plan.once.is_none() || plan.process.is_some();
        if of_actor && of_point && whole && (plan.times.is_none() || plan.task.is_some()) {
            Ok(plan)
        } else {
            Err(format!("a part is missing: {text}"))
        }
    }

    /// Gives how this actor is to die.
    fn death_of(&self, actor: &str) -> Option<How> {
        self.how.filter(|_| self.actor.as_deref() == Some(actor))
    }

    /// Tells whether this process is to end at a point, which it does.
    fn ends_at(&self, number: u64, point: &str) -> bool {
        self.process.as_deref() == Some(role())
            && (self.point == Some(number) || self.at.as_deref() == Some(point))
            && self.once.as_ref().is_none_or(|file| std::fs::File::create_new(file).is_ok())
    }

    fn is_due(&self) -> bool {
        self.after.as_deref().is_none_or(Path::exists)
    }
}

impl How {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "panic" => Ok(Self::Panic),
            "error" => Ok(Self::Error),
            "stop" => Ok(Self::Stop),
            "kill" => Ok(Self::Kill),
            _ => Err(format!("no way to die: {text}")),
        }
    }
}

/// Makes an actor that dies when the fault says so.
pub fn actor<A: Actor>(actor: A) -> Mortal<A> {
    Mortal { actor, is: Is::Any }
}

/// Makes an actor like [`actor`], whose handlers carry a root's effects out and so are points.
pub fn effector<A: Actor>(actor: A) -> Mortal<A> {
    Mortal { actor, is: Is::Effector }
}

/// An actor that may be made to die.
#[derive(Debug)]
pub struct Mortal<A> {
    actor: A,
    is: Is,
}

#[derive(Debug, PartialEq, Eq)]
enum Is {
    Any,
    Effector,
}

impl<A: Actor> Actor for Mortal<A> {
    type Msg = A::Msg;
    type State = A::State;
    type Arguments = A::Arguments;

    async fn pre_start(&self, myself: ActorRef<A::Msg>, given: A::Arguments) -> Result<A::State, ActorProcessingErr> {
        self.actor.pre_start(myself, given).await
    }

    async fn post_start(&self, myself: ActorRef<A::Msg>, state: &mut A::State) -> Result<(), ActorProcessingErr> {
        if let Some(how @ (How::Stop | How::Kill)) = PLAN.death_of(called::<A>()) {
            tokio::spawn(end_from_outside(myself.get_cell(), how));
        }
        self.actor.post_start(myself, state).await
    }

    async fn handle(
        &self,
        myself: ActorRef<A::Msg>,
        message: A::Msg,
        state: &mut A::State,
    ) -> Result<(), ActorProcessingErr> {
        let _around = (self.is == Is::Effector).then(|| around(&format_args!("{}", called::<A>())));
        end_in_handler(called::<A>())?;
        self.actor.handle(myself, message, state).await
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<A::Msg>,
        event: SupervisionEvent,
        state: &mut A::State,
    ) -> Result<(), ActorProcessingErr> {
        self.actor.handle_supervisor_evt(myself, event, state).await
    }

    async fn post_stop(&self, myself: ActorRef<A::Msg>, state: &mut A::State) -> Result<(), ActorProcessingErr> {
        self.actor.post_stop(myself, state).await
    }
}

/// Gives a type's name without its path.
fn called<A>() -> &'static str {
    let path = std::any::type_name::<A>();
    path.rsplit_once("::").map_or(path, |(_, name)| name)
}

async fn end_from_outside(actor: ActorCell, how: How) {
    while !PLAN.is_due() {
        tokio::time::sleep(LOOK).await;
    }
    // One that has ended meanwhile leaves it to another of its kind.
    if actor.get_status() <= ActorStatus::Running && !STRUCK.swap(true, Ordering::SeqCst) {
        if how == How::Kill { actor.kill() } else { actor.stop(None) }
    }
}

fn end_in_handler(actor: &str) -> Result<(), ActorProcessingErr> {
    let Some(how @ (How::Panic | How::Error)) = PLAN.death_of(actor) else { return Ok(()) };
    if !PLAN.is_due() || HANDLERS.fetch_add(1, Ordering::SeqCst) + 1 != PLAN.message.unwrap_or(1) {
        return Ok(());
    }
    if how == How::Panic { panic!("{INJECTED}") } else { Err(INJECTED.into()) }
}

/// Panics when the fault says that this task does.
pub fn task(name: &str) {
    if PLAN.task.as_deref() == Some(name) && TASKS.fetch_add(1, Ordering::SeqCst) < PLAN.times.unwrap_or(1) {
        panic!("{INJECTED}");
    }
}

/// Passes the point before something, and when it is dropped the point after it.
pub fn around(what: &dyn Debug) -> Around {
    let name = short(&format!("{what:?}"));
    pass("before", &name);
    Around(name)
}

/// What [`around`] gives.
#[derive(Debug)]
#[must_use = "the moment after is when this is dropped"]
pub struct Around(String);

impl Drop for Around {
    fn drop(&mut self) {
        pass("after", &self.0);
    }
}

/// Gives the first name in what Debug prints.
fn short(text: &str) -> String {
    let named = text.trim_start_matches(|character: char| !character.is_alphanumeric());
    named.chars().take_while(|character| character.is_alphanumeric() || "_ ".contains(*character)).collect()
}

fn pass(moment: &str, name: &str) {
    // Held until the process has ended, so that no other thread gets beyond a point at which it ends.
    let mut points = POINTS.lock().unwrap_or_else(PoisonError::into_inner);
    points.all += 1;
    let number = points.all;
    let point = format!("{moment} {}", name.trim());
    let times = points.each.entry(point.clone()).or_default();
    *times += 1;
    let point = format!("{point} {times}");
    if let Some(record) = &PLAN.record {
        let line = format!("{} {number} {point}\n", role());
        let file = std::fs::OpenOptions::new().create(true).append(true).open(record);
        if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
            panic!("{}: {error}", record.display());
        }
    }
    if PLAN.ends_at(number, &point) {
        std::process::exit(STATUS);
    }
}

/// Tells which of the three processes this is.
fn role() -> &'static str {
    match std::env::args_os().nth(1) {
        Some(role) if role == "__coordinator" => "coordinator",
        Some(role) if role == "__supervisor" => "supervisor",
        _ => "client",
    }
}

/// Gives the variable for a process that gets an environment of its own.
pub fn handed_on() -> Option<(OsString, OsString)> {
    std::env::var_os(VARIABLE).map(|value| (VARIABLE.into(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_planned_is_what_was_written() {
        let plan = Plan::parse("actor=Mounts;how=error;message=2;after=/a/b").unwrap();
        assert_eq!((plan.death_of("Mounts"), plan.death_of("Helper")), (Some(How::Error), None));
        assert_eq!((plan.message, plan.after), (Some(2), Some("/a/b".into())));
        let plan = Plan::parse("process=supervisor;point=17;task=lease;times=3;record=/r").unwrap();
        assert_eq!((plan.process.as_deref(), plan.point), (Some("supervisor"), Some(17)));
        assert_eq!((plan.task.as_deref(), plan.times, plan.record), (Some("lease"), Some(3), Some("/r".into())));
        assert_eq!(Plan::parse("process=client;at=after Own 3").unwrap().at.as_deref(), Some("after Own 3"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let parts = [
            "actor=A",
            "how=panic",
            "process=client",
            "point=1",
            "at=after Own 1",
            "after=/f",
            "message=1",
            "times=2",
            "once=/f",
        ];
        for text in parts.into_iter().chain([
            "",
            "actor",
            "actor=A;how=cough",
            "process=client;point=x",
            "process=client;point=1;at=x",
            "other=1",
        ]) {
            assert!(Plan::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_point_is_named_after_what_happens_first() {
        assert_eq!(short("RecordTearDown(Idle)"), "RecordTearDown");
        assert_eq!(short("[[Begin(GenerationIdentity { domain: x })]]"), "Begin");
        assert_eq!(short("Publish"), "Publish");
        assert_eq!(called::<Mortal<u8>>(), "Mortal<u8>");
    }
}
