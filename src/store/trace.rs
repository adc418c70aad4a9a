//! What became durable, as events of the protocol.

use crate::core::catalog::{self, CatalogChange, CatalogState};
use crate::core::generation::{self, Change, GenerationDocument, Target};
use crate::protocol_trace::{self, Event, event};

/// Writes what a transaction of the Domain Store did to a document: each change that changed something.
pub(super) fn document(before: Option<&GenerationDocument>, requests: &[&[Change]]) {
    if !protocol_trace::is_on() {
        return;
    }
    let (mut document, mut events) = (before.cloned(), Vec::new());
    for changes in requests {
        let mut next = document.clone();
        let mut did = Vec::new();
        let applied = changes.iter().try_for_each(|change| {
            let after = generation::apply(next.clone(), change)?;
            if next.as_ref() != Some(&after) {
                did.push(of_change(next.as_ref(), &after, change, changes));
            }
            next = Some(after);
            Ok::<_, generation::Refusal>(())
        });
        if applied.is_ok() {
            document = next;
            events.extend(did);
        }
    }
    protocol_trace::write(events);
}

fn of_change(
    before: Option<&GenerationDocument>,
    after: &GenerationDocument,
    change: &Change,
    transaction: &[Change],
) -> Event {
    let event = event(change.action()).of_generation(after.identity.generation.0);
    let bound = |event: Event, document: Option<&GenerationDocument>, session| match document
        .and_then(|document| document.sessions.get(session)?.client.as_ref())
    {
        Some(client) => event.with("client", client),
        None => event,
    };
    match change {
        Change::Begin(_) => transaction.iter().fold(event, |event, change| match change {
            Change::Intend(_, Target::Lease { artifact }) => event.with("artifact", artifact),
            _ => event,
        }),
        Change::Intend(participant, _) | Change::Release(participant) => {
            event.with_all("participants", [participant.name()])
        }
        Change::Own(participant, _) => event.with("participant", &participant.name()),
        Change::AdoptSession(record) | Change::RegisterSession(record) => {
            bound(event, Some(after), &record.id).with("session", &record.id)
        }
        Change::StartSession(session, _) => bound(event, Some(after), session),
        Change::EndSession(session) => bound(event, before, session),
        _ => event,
    }
}

/// Writes what a transaction of the Storage Catalog did.
pub(super) fn catalog(before: &CatalogState, changes: &[CatalogChange]) {
    if !protocol_trace::is_on() {
        return;
    }
    let mut state = before.clone();
    let did = changes.iter().filter(|change| {
        let last = state.clone();
        catalog::apply(&mut state, change).is_ok() && state != last
    });
    protocol_trace::write(did.map(of_catalog_change).collect::<Vec<_>>());
}

fn of_catalog_change(change: &CatalogChange) -> Event {
    let event = event(change.action());
    match change {
        CatalogChange::BeginPreparation(record) => event.with("preparation", &record.id),
        CatalogChange::OwnPreparation(id, _) | CatalogChange::AbandonPreparation(id) => event.with("preparation", id),
        CatalogChange::SealPreparation(id, manifest) | CatalogChange::CompletePreparation(id, manifest) => {
            event.with("preparation", id).with("artifact", &manifest.id)
        }
        CatalogChange::AcquireLease(lease) => {
            event.with("domain", &lease.domain).of_generation(lease.generation.0).with("artifact", &lease.artifact)
        }
        CatalogChange::ReleaseLease(domain, generation) => event.with("domain", domain).of_generation(generation.0),
        CatalogChange::BeginRemoval(artifact) | CatalogChange::FinishRemoval(artifact) => {
            event.with("artifact", artifact)
        }
    }
}
