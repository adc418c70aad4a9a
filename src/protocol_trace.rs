//! Events of the protocol, for replay against its model.
//!
//! Built with the cargo feature `protocol-trace`, the processes append to the file that the environment
//! variable `LAZARET_TRACE` names what they do, in the model's words: `protocol/README.md` has the format. In every other
//! build each function here does nothing, and the executable does not contain the variable's name.
//!
//! - [`event`] begins an event, [`Event::write`] appends it.
//! - [`write()`] appends the events of one transaction, whole, so that a process that is killed leaves all of them or none.
//! - [`serves`] says which Domain all events of this process are of.
//! - [`handed_on`] gives the variable to a process that gets an environment of its own.
//!
//! An event is written after what it tells of, and before anybody is told of it.

#[cfg(not(feature = "protocol-trace"))]
mod off;
#[cfg(feature = "protocol-trace")]
mod on;

#[cfg(not(feature = "protocol-trace"))]
use off as chosen;
#[cfg(feature = "protocol-trace")]
use on as chosen;

pub use chosen::{Event, event, handed_on, is_on, serves, write};
