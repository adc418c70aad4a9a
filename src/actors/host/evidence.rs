//! What a supervisor's reports prove, as changes of the generation document.

use super::generation::GenerationContext;
use crate::core::generation::{Change, Ownership, Participant};
use crate::domain::ownership::{MountIdentity, ProcessIdentity};
use crate::wire::lease::{InnerProcess, SupervisorReport};

/// Whether the evidence is complete, so that the generation may be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Complete {
    /// More is to come.
    No,
    /// The probe inside the sandbox was the last piece.
    Yes,
}

/// A report names a process that is no longer there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {0} ended before it could be recorded")]
pub struct ProcessGone(Participant);

/// Gives the changes that a report about the build stands for; sessions and endings stand for none.
pub fn changes(
    generation: &GenerationContext,
    report: SupervisorReport,
) -> Result<(Vec<Change>, Complete), ProcessGone> {
    let process = |participant: Participant, inner: &InnerProcess| -> Result<Change, ProcessGone> {
        let identity: Option<ProcessIdentity> = generation.outer_process(inner);
        let identity = identity.ok_or_else(|| ProcessGone(participant.clone()))?;
        Ok(Change::Own(participant, Ownership::Process(identity)))
    };
    let changes = match report {
        SupervisorReport::HelperReady { helper, namespace } => vec![
            process(Participant::Helper, &helper)?,
            Change::Own(Participant::NetworkNamespace, Ownership::Namespace(namespace)),
        ],
        SupervisorReport::MountsReady { mounts } => {
            mounts.into_iter().filter_map(|mount| mount_change(generation, mount)).collect()
        }
        SupervisorReport::NetworkReady(attestation) => vec![Change::AttestNetwork(attestation)],
        SupervisorReport::SandboxCreated { runsc } => vec![process(Participant::Runsc, &runsc)?],
        SupervisorReport::Probed(report) => return Ok((vec![Change::AcceptProbe(report)], Complete::Yes)),
        SupervisorReport::BuildFailed(_)
        | SupervisorReport::SessionStarted { .. }
        | SupervisorReport::SessionEnded { .. }
        | SupervisorReport::SandboxLost { .. }
        | SupervisorReport::TornDown => Vec::new(),
    };
    Ok((changes, Complete::No))
}

/// Protective mounts within the workspace are part of its staging and have no record of their own.
fn mount_change(generation: &GenerationContext, mount: MountIdentity) -> Option<Change> {
    let mounts = generation.places.mounts_of(generation.identity.generation);
    let participant = mounts.participant(&mount.target, &generation.profile)?;
    Some(Change::Own(participant, Ownership::Mount(mount)))
}
