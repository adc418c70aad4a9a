//! The coordinator's effects, each carried out as one method named after it.

use super::reclaim::ReclaimError;
use super::*;

impl CoordinatorState {
    pub(super) fn recover(&self, myself: &ActorRef<HostMessage>, done: Event) {
        let (store, places) = (self.store.clone(), self.places.clone());
        task::begin(myself, "recovery", async move {
            HostMessage::Event(match reclaim::run(&store, &places).await {
                Ok(()) => done,
                Err(error) => {
                    let failure = Failure::of(&error).with_hints(error.hints());
                    if matches!(error, ReclaimError::Foreign(_)) { Event::Refused(failure) } else { failure.into() }
                }
            })
        });
    }

    pub(super) fn prepare(&mut self, myself: &ActorRef<HostMessage>) {
        self.startup.phase("preparing the image");
        let request = PrepareRequest::of_profile(&self.start.profile, self.places.storage.clone());
        self.preparing = Some(Preparing::begin(request, self.startup.clone(), myself));
    }

    pub(super) fn begin(&mut self, myself: &ActorRef<HostMessage>) {
        let Some(artifact) = self.artifact.take() else { return };
        self.startup.phase("starting the sandbox");
        let beginning = Beginning {
            domain: self.domain.clone(),
            profile: self.start.profile.clone(),
            workspace: self.start.workspace.clone(),
            artifact: *artifact,
            places: self.places.clone(),
            first: self.start.first.take(),
        };
        let store = self.store.clone();
        self.making.push(task::begin(myself, "beginning", async move {
            match begin::begin(beginning, &store).await {
                Ok(generation) => HostMessage::Begun(Arc::new(generation)),
                Err(error) => HostMessage::Event(failed(&error)),
            }
        }));
    }

    pub(super) async fn spawn_supervisor(&mut self, myself: &ActorRef<HostMessage>) {
        let Some(generation) = self.generation.clone() else { return };
        let request = SpawnRequest {
            domain: self.domain.clone(),
            profile: self.start.profile.name.clone(),
            mapping: generation.artifact.mapping.clone(),
            log: self.places.domain.supervisor_log(),
        };
        let event = match ractor::call_t!(self.link, LinkMessage::Spawn, SPAWN_DEADLINE, request) {
            Ok(Ok(identity)) => {
                protocol_trace::event("SpawnSupervisor").write();
                generation.supervisor.set(identity.pid).ok();
                let own = Change::Own(Participant::RuntimeSupervisor, Ownership::Process(identity));
                self.record(myself, vec![own]);
                Event::SupervisorSpawned
            }
            Ok(Err(error)) => Failure::of(&error).with_hints(vec!["run `lazaret doctor`".to_owned()]).into(),
            Err(error) => failed(&error),
        };
        myself.cast(HostMessage::Event(event)).ok();
    }

    pub(super) fn acquire_lease(&mut self, myself: &ActorRef<HostMessage>) {
        let Some(generation) = self.generation.clone() else { return };
        let store = self.store.clone();
        self.making.push(task::begin(myself, "lease", async move {
            HostMessage::Event(match lease::acquire(&generation, &store).await {
                Ok(()) => Event::LeaseAcquired,
                Err(error) => failed(&error),
            })
        }));
    }

    pub(super) async fn build(&mut self, myself: &ActorRef<HostMessage>) {
        let Some(generation) = self.generation.clone() else { return };
        match plan::make(&generation) {
            Ok(planned) => {
                for notice in planned.notices {
                    tracing::warn!(notice, "workspace");
                    self.startup.progress(crate::wire::bootstrap::Progress::Notice(notice));
                }
                let order = CoordinatorOrder::Build(Box::new(planned.plan));
                self.link.cast(LinkMessage::Order(order, Vec::new())).ok();
                let arguments = RegistryArguments {
                    generation,
                    link: self.link.clone(),
                    store: self.store.clone(),
                    coordinator: myself.clone(),
                };
                match spawn(myself, Registry, arguments).await {
                    Ok(registry) => self.registry = Some(registry),
                    Err(error) => drop(myself.cast(HostMessage::Event(failed(&error)))),
                }
            }
            Err(error) => {
                let event = Failure::of(&error).with_hints(error.hints()).into();
                myself.cast(HostMessage::Event(event)).ok();
            }
        }
    }

    pub(super) fn publish(&mut self, myself: &ActorRef<HostMessage>) {
        let Some(generation) = self.generation.clone() else { return };
        let store = self.store.clone();
        self.making.push(task::begin(myself, "publication", async move {
            match publication::publish(&generation, &store).await {
                Ok((listener, face)) => HostMessage::PublicationReady(listener, face),
                Err(error) => HostMessage::Event(failed(&error)),
            }
        }));
    }

    pub(super) async fn unpublish(&mut self) {
        if let Some(face) = &self.face {
            face.withdraw();
        }
        self.published = None;
        if let Some(publisher) = self.publisher.take() {
            publisher.stop(None);
        }
        // What is recorded, and no other; what a publication that is still under way makes, the release removes.
        let document = match self.store.document().await {
            Ok(Some(document)) => document,
            Ok(None) => return,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                return tracing::warn!(error, "the publication stays until the next start removes it");
            }
        };
        for participant in [Participant::Publication, Participant::Socket] {
            let owned = document.path(&participant).zip(document.ownership(&participant));
            if let Some((path, Ownership::Path(identity))) = owned
                && let Err(error) = reclaim::remove_file(participant.clone(), path, identity)
            {
                tracing::warn!(error = &error as &dyn std::error::Error, "left to the release");
            }
        }
    }

    /// The same comparison of records and world as after a crash removes what the supervisor did not.
    pub(super) async fn release(&mut self, myself: &ActorRef<HostMessage>) {
        for making in self.making.drain(..) {
            making.await.ok();
        }
        // What never got to a teardown is recovered as it is.
        if self.generation.is_some() {
            protocol_trace::event("BeginRelease").write();
        }
        self.recover(myself, Event::Released);
    }

    pub(super) async fn report_failed(&self) {
        if let Some(EndReason::Failed(failure)) = &self.life.end {
            tracing::error!(causes = ?failure.causes, "the generation failed");
            self.startup.outcome(StartOutcome::Failed(failure.clone())).await;
        }
    }

    pub(super) fn start_clock(&mut self, myself: &ActorRef<HostMessage>, time: Duration) {
        self.stop_clock();
        self.clock = Some(myself.send_after(time, || HostMessage::Event(Event::LingerElapsed)));
    }

    pub(super) fn stop_clock(&mut self) {
        if let Some(clock) = self.clock.take() {
            clock.abort();
        }
    }
}
