//! Deaths and crashes on demand, for tests.
//!
//! Built with the cargo feature `fault-injection`, Lazaret does what the environment variable
//! `LAZARET_FAULT` says; the module `injected` has its grammar. In every other build each function
//! here does nothing, and the executable does not contain the variable's name.
//!
//! - [`actor`] makes an actor that can be made to die; [`task`] does the same for a task.
//! - [`effector`] makes one like that of which each handler is a point as well; see the next.
//! - [`handed_on`] gives the variable to a process that gets an environment of its own.
//! - [`around`] numbers the moments right before and after something that must be survived at any
//!   moment: a durable write, or an effect of one of the two roots.

#[cfg(feature = "fault-injection")]
mod injected;
#[cfg(not(feature = "fault-injection"))]
mod off;

#[cfg(feature = "fault-injection")]
use injected as chosen;
#[cfg(not(feature = "fault-injection"))]
use off as chosen;

pub use chosen::{Around, actor, around, effector, handed_on, task};
