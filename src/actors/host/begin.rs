//! The beginning of a generation: identities minted, every intent durable, its own directories made.

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use super::generation::{Announced, GenerationContext, Places};
use super::reclaim::{own_identity, owned_identity};
use super::records::Records;
use crate::core::generation::{
    Change, Contents, GenerationIdentity, Ownership, Participant, SessionRecord, Target, next_generation,
};
use crate::domain::artifact::ArtifactManifest;
use crate::domain::ids::{CoordinatorId, DomainId, SandboxId, SessionId, SidecarId};
use crate::domain::profile::Profile;
use crate::domain::session::SessionRequest;
use crate::domain::workspace::Workspace;
use crate::policy::derive;
use crate::store::writer::WriteError;
use crate::sys::private;
use crate::{observe, protocol_trace};

/// What a generation begins with.
#[derive(Debug)]
pub struct Beginning {
    /// The Domain.
    pub domain: DomainId,
    /// The validated profile.
    pub profile: Profile,
    /// The workspace.
    pub workspace: Workspace,
    /// The prepared lower.
    pub artifact: ArtifactManifest,
    /// Where the Domain's things lie.
    pub places: Places,
    /// The session that the starting client announces.
    pub first: Option<SessionRequest>,
}

/// A generation can't begin.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// This process can't be identified.
    #[error("this process can't be identified")]
    Identity(#[source] io::Error),
    /// The store refused or failed.
    #[error("the generation can't be recorded")]
    Store(#[from] WriteError),
    /// A directory can't be made.
    #[error("the directory {} can't be made", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Mints identities, writes every intent in one transaction, then makes the generation's directories
/// and records them. The directories stay empty until that record is durable.
pub async fn begin(beginning: Beginning, store: &Records) -> Result<GenerationContext, BeginError> {
    let Beginning { domain, profile, workspace, artifact, places, first } = beginning;
    let leader = own_identity().map_err(BeginError::Identity)?;
    let document = store.document().await?;
    let generation = next_generation(document.as_deref());
    observe::serves(generation);
    let identity = GenerationIdentity {
        domain,
        profile: profile.name.clone(),
        workspace,
        generation,
        coordinator: CoordinatorId::mint(),
        sidecar: SidecarId::mint(),
        sandbox: SandboxId::mint(),
        configuration: profile.fingerprint(),
        leader,
        began_at: jiff::Timestamp::now().as_second(),
    };
    let runtime = places.runtime_of(generation);
    let scratch = places.domain.scratch(generation);
    let mut changes = vec![Change::Begin(Box::new(identity.clone()))];
    let mut intend = |participant, target| changes.push(Change::Intend(participant, target));
    let contents = Contents::Mapped(artifact.mapping.clone());
    intend(Participant::RuntimeDirectory, Target::Directory { path: runtime.clone(), contents: contents.clone() });
    intend(Participant::Scratch, Target::Directory { path: scratch.clone(), contents });
    intend(Participant::Lease, Target::Lease { artifact: artifact.id.clone() });
    intend(Participant::RuntimeSupervisor, Target::Process);
    intend(Participant::Helper, Target::Process);
    intend(Participant::NetworkNamespace, Target::Namespace);
    intend(Participant::RootMount, Target::Mount);
    intend(Participant::WorkspaceMount, Target::Mount);
    for path in &profile.persistent {
        intend(Participant::AnchorMount(path.clone()), Target::Mount);
    }
    for volume in &profile.volumes {
        intend(Participant::VolumeMount(volume.guest.clone()), Target::Mount);
    }
    intend(Participant::Runsc, Target::Process);
    intend(Participant::Socket, Target::Socket { path: places.runtime.socket() });
    intend(Participant::Publication, Target::Record { path: places.runtime.publication() });
    let announced = first.map(|request| Announced { session: SessionId::mint(), request });
    if let Some(Announced { session, .. }) = &announced {
        let record =
            SessionRecord { id: session.clone(), client: None, registered_at: identity.began_at, process: None };
        changes.push(Change::PrepareSession(record));
    }
    store.apply(changes).await?;

    let mut owned = Vec::new();
    for (participant, path) in [(Participant::RuntimeDirectory, runtime), (Participant::Scratch, scratch)] {
        let made = private::make_directory(&path).and_then(|()| owned_identity(&path));
        let identity = made.map_err(|source| BeginError::Directory { path, source })?;
        protocol_trace::event("MakeDirectory").with("participant", &participant.name()).write();
        owned.push(Change::Own(participant, Ownership::Path(identity)));
    }
    store.apply(owned).await?;
    let policy = derive::network_policy(&profile.network);
    Ok(GenerationContext {
        identity,
        profile,
        artifact,
        policy,
        places,
        announced,
        supervisor: OnceLock::new(),
        ending: AtomicBool::new(false),
    })
}
