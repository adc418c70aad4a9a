//! When an action of the generation document is enabled, and what it does.

use super::*;

/// What must be owned when the generation is published.
const PUBLISHED_CORE: [Participant; 7] = [
    Participant::Lease,
    Participant::RuntimeSupervisor,
    Participant::Helper,
    Participant::NetworkNamespace,
    Participant::RootMount,
    Participant::WorkspaceMount,
    Participant::Runsc,
];

/// Gives the document after a change, or says why it can't be. A change that is already so changes nothing.
pub fn apply(document: Option<GenerationDocument>, change: &Change) -> Result<GenerationDocument, Refusal> {
    if let Change::Begin(identity) = change {
        return begin(document, identity);
    }
    let mut document = document.ok_or(Refusal::NoGeneration { action: change.action() })?;
    let step = Step { action: change.action(), document: &mut document };
    match change {
        Change::Begin(_) => {}
        Change::Intend(participant, target) => step.intend(participant, target)?,
        Change::Own(participant, ownership) => step.own(participant, ownership)?,
        Change::AttestNetwork(attestation) => step.attest_network(attestation)?,
        Change::AcceptProbe(report) => step.accept_probe(report)?,
        Change::Publish => step.publish()?,
        Change::PrepareSession(record) => step.prepare_session(record)?,
        Change::AdoptSession(record) => step.adopt_session(record)?,
        Change::RegisterSession(record) => step.register_session(record)?,
        Change::StartSession(session, process) => step.start_session(session, process)?,
        Change::EndSession(session) => step.end_session(session)?,
        Change::BeginTearDown(reason) => step.begin_tear_down(reason)?,
        Change::BeginRecovery(recoverer) => step.begin_recovery(recoverer)?,
        Change::Release(participant) => step.release(participant)?,
        Change::IntendLeaseRelease => step.intend_lease_release()?,
        Change::ConfirmUnmounted => step.confirm_unmounted()?,
        Change::ConfirmCatalogDelete => step.confirm_catalog_delete()?,
        Change::Finish => step.finish()?,
    }
    Ok(document)
}

fn begin(document: Option<GenerationDocument>, identity: &GenerationIdentity) -> Result<GenerationDocument, Refusal> {
    let expected = next_generation(document.as_ref());
    if let Some(last) = document {
        if last.decision != Decision::Clean {
            let generation = last.identity.generation;
            return Err(Refusal::Decision { action: "BeginGeneration", generation, decision: last.decision });
        }
        if last.identity.domain != identity.domain {
            return Err(Refusal::ForeignDomain { stored: last.identity.domain, given: identity.domain.clone() });
        }
    }
    if identity.generation != expected {
        return Err(Refusal::OutOfOrder { begun: identity.generation, expected });
    }
    Ok(GenerationDocument {
        identity: identity.clone(),
        decision: Decision::Starting,
        participants: BTreeMap::new(),
        sessions: BTreeMap::new(),
        readiness: None,
        probe: None,
        release: LeaseRelease::NotBegun,
        end: None,
        recoverer: None,
    })
}

/// Tells whether a target is of the kind that a participant has.
fn fits(participant: &Participant, target: &Target) -> bool {
    match participant {
        Participant::RuntimeDirectory | Participant::Scratch => matches!(target, Target::Directory { .. }),
        Participant::Lease => matches!(target, Target::Lease { .. }),
        Participant::RuntimeSupervisor | Participant::Helper | Participant::Runsc => *target == Target::Process,
        Participant::NetworkNamespace => *target == Target::Namespace,
        Participant::RootMount
        | Participant::AnchorMount(_)
        | Participant::WorkspaceMount
        | Participant::VolumeMount(_) => *target == Target::Mount,
        Participant::Socket => matches!(target, Target::Socket { .. }),
        Participant::Publication => matches!(target, Target::Record { .. }),
    }
}

/// Tells whether an ownership is one of what was intended.
fn fulfils(target: &Target, ownership: &Ownership) -> bool {
    match (target, ownership) {
        (Target::Process, Ownership::Process(_))
        | (Target::Namespace, Ownership::Namespace(_))
        | (Target::Mount, Ownership::Mount(_))
        | (Target::Directory { .. } | Target::Socket { .. } | Target::Record { .. }, Ownership::Path(_)) => true,
        (Target::Lease { artifact }, Ownership::Artifact(leased)) => artifact == leased,
        _ => false,
    }
}

/// Gives what must be owned before a participant can be.
fn prerequisites(participant: &Participant) -> &'static [Participant] {
    use Participant::*;
    match participant {
        Helper | NetworkNamespace => &[RuntimeSupervisor],
        // FR-22: the lease is durable before anything of the prepared lower is mounted.
        RootMount | AnchorMount(_) | WorkspaceMount | VolumeMount(_) => &[RuntimeSupervisor, Lease],
        Runsc => &[RuntimeSupervisor, Helper, NetworkNamespace, RootMount, WorkspaceMount],
        Publication => &[Socket],
        RuntimeDirectory | Scratch | Lease | RuntimeSupervisor | Socket => &[],
    }
}

/// One action on a document.
struct Step<'a> {
    action: &'static str,
    document: &'a mut GenerationDocument,
}

impl Step<'_> {
    fn during(&self, decisions: &[Decision]) -> Result<(), Refusal> {
        let (generation, decision) = (self.document.identity.generation, self.document.decision);
        if decisions.contains(&decision) {
            Ok(())
        } else {
            Err(Refusal::Decision { action: self.action, generation, decision })
        }
    }

    fn while_ending(&self) -> Result<(), Refusal> {
        self.during(&[Decision::TearingDown, Decision::Recovering])
    }

    fn is_left(&self, participant: &Participant) -> bool {
        matches!(self.document.intent(participant), Some(Intent::Intended(_) | Intent::Owned { .. }))
    }

    fn first_left(&self, which: impl Fn(&Participant) -> bool) -> Option<&Participant> {
        self.document.participants.keys().find(|participant| which(participant) && self.is_left(participant))
    }

    fn intend(self, participant: &Participant, target: &Target) -> Result<(), Refusal> {
        self.during(&[Decision::Starting])?;
        if !fits(participant, target) {
            return Err(Refusal::KindMismatch { participant: participant.clone() });
        }
        match self.document.intent(participant) {
            None => {
                self.document.participants.insert(participant.clone(), Intent::Intended(target.clone()));
                Ok(())
            }
            Some(Intent::Intended(recorded)) if recorded == target => Ok(()),
            Some(_) => Err(Refusal::RecordedDifferently { participant: participant.clone() }),
        }
    }

    /// A report of ownership may arrive after the teardown has begun and must then be kept, not lost.
    fn own(self, participant: &Participant, ownership: &Ownership) -> Result<(), Refusal> {
        self.during(&[Decision::Starting, Decision::Published, Decision::TearingDown])?;
        let target = match self.document.intent(participant) {
            None => return Err(Refusal::NotIntended { participant: participant.clone() }),
            Some(Intent::Owned { ownership: recorded, .. }) if recorded == ownership => return Ok(()),
            Some(Intent::Owned { .. } | Intent::Released) => {
                return Err(Refusal::RecordedDifferently { participant: participant.clone() });
            }
            Some(Intent::Intended(target)) => target.clone(),
        };
        if !fulfils(&target, ownership) {
            return Err(Refusal::KindMismatch { participant: participant.clone() });
        }
        if let Some(missing) = prerequisites(participant).iter().find(|p| self.document.ownership(p).is_none()) {
            return Err(Refusal::Needs { participant: participant.clone(), missing: missing.clone() });
        }
        // SR-5: the policy is in force before the sandbox starts.
        if *participant == Participant::Runsc && self.document.readiness.is_none() {
            return Err(Refusal::NotAttested { action: self.action });
        }
        // The publication record is what a client looks for, so the decision is durable before it.
        if *participant == Participant::Publication && self.document.decision == Decision::Starting {
            return Err(Refusal::NotReady { participant: participant.clone(), needed: "preceded by Publish" });
        }
        let intent = Intent::Owned { target, ownership: ownership.clone() };
        self.document.participants.insert(participant.clone(), intent);
        Ok(())
    }

    fn attest_network(self, attestation: &NetworkAttestation) -> Result<(), Refusal> {
        self.during(&[Decision::Starting])?;
        for participant in [Participant::RuntimeSupervisor, Participant::Helper] {
            if self.document.ownership(&participant).is_none() {
                return Err(Refusal::Needs { participant: Participant::NetworkNamespace, missing: participant });
            }
        }
        let namespace = self.document.ownership(&Participant::NetworkNamespace);
        let same = self.document.readiness.as_ref().is_none_or(|recorded| recorded == attestation);
        if namespace != Some(&Ownership::Namespace(attestation.namespace)) || !same {
            return Err(Refusal::NotAttested { action: self.action });
        }
        self.document.readiness = Some(attestation.clone());
        Ok(())
    }

    fn accept_probe(self, report: &ProbeReport) -> Result<(), Refusal> {
        self.during(&[Decision::Starting])?;
        if self.document.ownership(&Participant::Runsc).is_none() {
            return Err(Refusal::NotReady { participant: Participant::Runsc, needed: "owned" });
        }
        if let Some(failure) = report.failures().next() {
            return Err(Refusal::ProbeFailed { subject: failure.subject.clone(), seen: failure.seen.clone() });
        }
        self.document.probe = Some(report.clone());
        Ok(())
    }

    fn publish(self) -> Result<(), Refusal> {
        if self.document.decision == Decision::Published {
            return Ok(());
        }
        self.during(&[Decision::Starting])?;
        if self.document.readiness.is_none() {
            return Err(Refusal::NotAttested { action: self.action });
        }
        if self.document.probe.is_none() {
            return Err(Refusal::NotProbed);
        }
        let later = [Participant::Socket, Participant::Publication];
        let made = PUBLISHED_CORE.iter().chain(self.document.participants.keys()).filter(|p| !later.contains(p));
        if let Some(missing) = made.clone().find(|p| self.document.ownership(p).is_none()) {
            return Err(Refusal::NotReady { participant: missing.clone(), needed: "owned" });
        }
        if let Some(missing) = later.iter().find(|p| !self.is_left(p)) {
            return Err(Refusal::NotReady { participant: missing.clone(), needed: "intended" });
        }
        self.document.decision = Decision::Published;
        Ok(())
    }

    fn prepare_session(self, record: &SessionRecord) -> Result<(), Refusal> {
        self.during(&[Decision::Starting])?;
        if self.document.sessions.contains_key(&record.id) {
            return Err(Refusal::SessionExists { session: record.id.clone() });
        }
        let prepared = SessionRecord { client: None, process: None, ..record.clone() };
        self.document.sessions.insert(record.id.clone(), prepared);
        Ok(())
    }

    /// The process may be known already; it stays.
    fn adopt_session(self, record: &SessionRecord) -> Result<(), Refusal> {
        self.during(&[Decision::Published])?;
        let Some(prepared) = self.document.sessions.get(&record.id) else {
            return Err(Refusal::NoSession { session: record.id.clone() });
        };
        if prepared.client.is_some() || self.has_session(&record.client) {
            return Err(Refusal::SessionExists { session: record.id.clone() });
        }
        let adopted = SessionRecord { process: prepared.process.clone(), ..record.clone() };
        self.document.sessions.insert(record.id.clone(), adopted);
        Ok(())
    }

    fn register_session(self, record: &SessionRecord) -> Result<(), Refusal> {
        self.during(&[Decision::Published])?;
        if self.document.sessions.contains_key(&record.id) || self.has_session(&record.client) {
            return Err(Refusal::SessionExists { session: record.id.clone() });
        }
        let registered = SessionRecord { process: None, ..record.clone() };
        self.document.sessions.insert(record.id.clone(), registered);
        Ok(())
    }

    /// Tells whether this client has a session; a client that is not given has none.
    fn has_session(&self, client: &Option<ClientCliId>) -> bool {
        client.is_some() && self.document.sessions.values().any(|known| known.client == *client)
    }

    /// Before publication only a prepared session can start, since there is no other.
    fn start_session(self, session: &SessionId, process: &SessionProcess) -> Result<(), Refusal> {
        self.during(&[Decision::Starting, Decision::Published, Decision::TearingDown])?;
        let Some(record) = self.document.sessions.get_mut(session) else {
            return Err(Refusal::NoSession { session: session.clone() });
        };
        if record.process.as_ref().is_some_and(|recorded| recorded != process) {
            return Err(Refusal::SessionStartedDifferently { session: session.clone() });
        }
        record.process = Some(process.clone());
        Ok(())
    }

    fn end_session(self, session: &SessionId) -> Result<(), Refusal> {
        self.during(&[Decision::Starting, Decision::Published, Decision::TearingDown, Decision::Recovering])?;
        self.document.sessions.remove(session);
        Ok(())
    }

    fn begin_tear_down(self, reason: &EndReason) -> Result<(), Refusal> {
        if self.document.decision == Decision::TearingDown {
            return Ok(());
        }
        self.during(&[Decision::Starting, Decision::Published])?;
        self.document.decision = Decision::TearingDown;
        self.document.end = Some(reason.clone());
        // FR-17: the intent to release is durable before the supervisor is ordered to unmount anything.
        if self.is_left(&Participant::Lease) {
            self.document.release = LeaseRelease::Intended;
        }
        Ok(())
    }

    fn begin_recovery(self, recoverer: &ProcessIdentity) -> Result<(), Refusal> {
        self.during(&[Decision::Starting, Decision::Published, Decision::TearingDown, Decision::Recovering])?;
        self.document.decision = Decision::Recovering;
        self.document.recoverer = Some(recoverer.clone());
        Ok(())
    }

    fn release(self, participant: &Participant) -> Result<(), Refusal> {
        self.while_ending()?;
        match self.document.intent(participant) {
            None => return Err(Refusal::NotIntended { participant: participant.clone() }),
            Some(Intent::Released) => return Ok(()),
            Some(Intent::Intended(_) | Intent::Owned { .. }) => {}
        }
        let order = |needed| Err(Refusal::ReleaseOrder { action: self.action, needed });
        match participant {
            Participant::Lease => return order("the lease is released by IntendLeaseRelease and what follows it"),
            mount
                if mount.is_mount()
                    && self.is_left(&Participant::Lease)
                    && self.document.release < LeaseRelease::Intended =>
            {
                return order("the intent to release the lease is durable before any unmount");
            }
            Participant::RuntimeSupervisor if self.first_left(Participant::ends_with_supervisor).is_some() => {
                return order("what ends with the Runtime Supervisor is released before it");
            }
            Participant::Scratch if self.first_left(Participant::is_mount).is_some() => {
                return order("mounts are released before the scratch directory that they use");
            }
            _ => {}
        }
        self.document.participants.insert(participant.clone(), Intent::Released);
        Ok(())
    }

    fn intend_lease_release(self) -> Result<(), Refusal> {
        self.while_ending()?;
        if self.document.release != LeaseRelease::NotBegun {
            return Ok(());
        }
        if !self.is_left(&Participant::Lease) {
            return Err(Refusal::NotIntended { participant: Participant::Lease });
        }
        self.document.release = LeaseRelease::Intended;
        Ok(())
    }

    fn confirm_unmounted(self) -> Result<(), Refusal> {
        self.while_ending()?;
        if self.document.release >= LeaseRelease::Unmounted {
            return Ok(());
        }
        let order = |needed| Err(Refusal::ReleaseOrder { action: self.action, needed });
        if self.document.release != LeaseRelease::Intended {
            return order("the intent to release the lease is durable");
        }
        if self.first_left(|p| p.is_mount() || *p == Participant::Runsc).is_some() {
            return order("every mount and the attached runsc are released");
        }
        self.document.release = LeaseRelease::Unmounted;
        Ok(())
    }

    fn confirm_catalog_delete(self) -> Result<(), Refusal> {
        self.while_ending()?;
        match self.document.release {
            LeaseRelease::Deleted => Ok(()),
            LeaseRelease::Unmounted => {
                self.document.release = LeaseRelease::Deleted;
                self.document.participants.insert(Participant::Lease, Intent::Released);
                Ok(())
            }
            LeaseRelease::NotBegun | LeaseRelease::Intended => {
                Err(Refusal::ReleaseOrder { action: self.action, needed: "the unmount is durable" })
            }
        }
    }

    fn finish(self) -> Result<(), Refusal> {
        if self.document.decision == Decision::Clean {
            return Ok(());
        }
        self.while_ending()?;
        if let Some(participant) = self.first_left(|_| true) {
            return Err(Refusal::Unreleased { participant: participant.clone() });
        }
        if !self.document.sessions.is_empty() {
            return Err(Refusal::SessionsLeft { count: self.document.sessions.len() });
        }
        self.document.decision = Decision::Clean;
        Ok(())
    }
}
