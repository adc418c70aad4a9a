//! What the processes do is what the protocol's model permits, and the model notices when it is not.
//!
//! Each run is traced (`src/protocol_trace.rs`) and replayed against `protocol/Lazaret.tla`: some behaviour of the model
//! must have all events of the run in their order. Tampered traces must not be accepted.

mod runs;
mod tampered;

use crate::harness::{Case, Need, case};

pub fn cases() -> Vec<Case> {
    let needs = &[Need::Sandbox, Need::Faults, Need::Replay];
    vec![
        case("runs_are_what_the_model_permits", needs, runs::are_what_the_model_permits),
        case("tampered_traces_are_rejected", needs, tampered::traces_are_rejected),
    ]
}
