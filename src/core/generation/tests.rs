use super::fixtures::*;
use super::*;

fn refuse(document: &GenerationDocument, change: Change) -> Refusal {
    apply(Some(document.clone()), &change).expect_err(&format!("{change:?}"))
}

/// Applies a generation's transactions up to, and not including, the first that satisfies `stop`.
fn until(stop: impl Fn(&Change) -> bool) -> GenerationDocument {
    let life = life(1);
    let before = life.iter().take_while(|transaction| !transaction.iter().any(&stop));
    accept(None, before.flatten())
}

fn owning(participant: Participant) -> impl Fn(&Change) -> bool {
    move |change| matches!(change, Change::Own(owned, _) if *owned == participant)
}

fn ownership(participant: &Participant) -> Ownership {
    resources().into_iter().find(|(found, _, _)| found == participant).unwrap().2
}

#[test]
fn a_generation_lives_and_the_next_follows() {
    let document = accept(None, life(1).iter().flatten());
    assert_eq!(document.decision, Decision::Published);
    let clean = accept(Some(document), ending().iter().flatten());
    assert_eq!((clean.decision, clean.release), (Decision::Clean, LeaseRelease::Deleted));
    assert_eq!(next_generation(Some(&clean)), Generation(2));
    let second = accept(Some(clean), &beginning(2));
    assert_eq!(second.identity.generation, Generation(2));
    assert!(second.participants.values().all(|intent| matches!(intent, Intent::Intended(_))));
}

#[test]
fn a_generation_begins_only_after_a_clean_one_and_in_order() {
    for transactions in 1..=life(1).len() {
        let document = accept(None, life(1)[..transactions].iter().flatten());
        let refusal = refuse(&document, Change::Begin(Box::new(identity(2))));
        assert!(matches!(refusal, Refusal::Decision { action: "BeginGeneration", .. }), "{refusal}");
    }
    let first = apply(None, &Change::Begin(Box::new(identity(2))));
    assert_eq!(first, Err(Refusal::OutOfOrder { begun: Generation(2), expected: Generation(1) }));
    let clean = accept(None, life(1).iter().chain(&ending()).flatten());
    assert!(matches!(refuse(&clean, Change::Begin(Box::new(identity(1)))), Refusal::OutOfOrder { .. }));
    let mut foreign = identity(2);
    foreign.domain = DomainId::derive(&profile(), Path::new("/elsewhere"));
    assert!(matches!(refuse(&clean, Change::Begin(Box::new(foreign))), Refusal::ForeignDomain { .. }));
    assert_eq!(apply(None, &Change::Publish), Err(Refusal::NoGeneration { action: "Publish" }));
}

#[test]
fn there_is_no_ownership_without_intent() {
    let begun = accept(None, &[Change::Begin(Box::new(identity(1)))]);
    for (participant, _, ownership) in resources() {
        let refusal = refuse(&begun, Change::Own(participant.clone(), ownership));
        assert_eq!(refusal, Refusal::NotIntended { participant });
    }
}

#[test]
fn targets_and_ownerships_are_of_their_participant_s_kind() {
    let begun = accept(None, &[Change::Begin(Box::new(identity(1)))]);
    let intended = accept(None, &beginning(1));
    let kind = |change: &Change| match change {
        Change::Intend(_, target) => std::mem::discriminant(target),
        _ => unreachable!(),
    };
    for (participant, target, _) in resources() {
        for (_, other, ownership) in resources() {
            let intend = Change::Intend(participant.clone(), other.clone());
            if kind(&intend) != kind(&Change::Intend(participant.clone(), target.clone())) {
                assert!(matches!(refuse(&begun, intend), Refusal::KindMismatch { .. }), "{participant} as {other:?}");
                if !matches!((&target, &ownership), (_, Ownership::Path(_))) {
                    let refusal = refuse(&intended, Change::Own(participant.clone(), ownership));
                    assert!(matches!(refusal, Refusal::KindMismatch { .. }), "{participant} as {other:?}: {refusal}");
                }
            }
        }
    }
    let other = Change::Own(Participant::Lease, Ownership::Artifact(ArtifactId::of(b"other")));
    assert!(matches!(refuse(&intended, other), Refusal::KindMismatch { .. }));
}

#[test]
fn a_repeated_change_changes_nothing_and_a_different_one_is_refused() {
    let life = life(1);
    for (index, transaction) in life.iter().enumerate().skip(1) {
        let document = accept(None, life[..=index].iter().flatten());
        assert_eq!(accept(Some(document.clone()), transaction), document, "{transaction:?}");
    }
    let document = serving();
    let other = Change::Own(Participant::RuntimeSupervisor, Ownership::Process(process(99)));
    assert!(matches!(refuse(&document, other), Refusal::RecordedDifferently { .. }));
    let other = SessionProcess { exec: process(98), guest_pid: 1 };
    let change = Change::StartSession(session('1').id, other);
    assert!(matches!(refuse(&document, change), Refusal::SessionStartedDifferently { .. }));
}

#[test]
fn what_something_stands_on_is_owned_first() {
    let begun = accept(None, &beginning(1));
    let expected = [
        (Participant::Helper, Participant::RuntimeSupervisor),
        (Participant::NetworkNamespace, Participant::RuntimeSupervisor),
        (Participant::RootMount, Participant::RuntimeSupervisor),
        (Participant::Runsc, Participant::RuntimeSupervisor),
        (Participant::Publication, Participant::Socket),
    ];
    for (participant, missing) in expected {
        let change = Change::Own(participant.clone(), ownership(&participant));
        assert_eq!(refuse(&begun, change), Refusal::Needs { participant, missing });
    }
    // FR-22: no mount before the lease, even with the supervisor there.
    let supervised =
        accept(Some(begun), &[Change::Own(Participant::RuntimeSupervisor, ownership(&Participant::RuntimeSupervisor))]);
    let change = Change::Own(Participant::RootMount, ownership(&Participant::RootMount));
    let refusal = Refusal::Needs { participant: Participant::RootMount, missing: Participant::Lease };
    assert_eq!(refuse(&supervised, change), refusal);
    // SR-5: no sandbox before the policy is attested.
    let unattested = until(|change| matches!(change, Change::AttestNetwork(_)));
    let change = Change::Own(Participant::Runsc, ownership(&Participant::Runsc));
    assert_eq!(refuse(&unattested, change), Refusal::NotAttested { action: "Own" });
    // The record that clients look for comes after the decision.
    let unpublished = until(|change| *change == Change::Publish);
    let opened = accept(Some(unpublished), &[Change::Own(Participant::Socket, ownership(&Participant::Socket))]);
    let change = Change::Own(Participant::Publication, ownership(&Participant::Publication));
    assert!(matches!(refuse(&opened, change), Refusal::NotReady { .. }));
}

#[test]
fn an_attestation_is_about_this_generation_s_namespace() {
    let document = until(|change| matches!(change, Change::AttestNetwork(_)));
    let mut foreign = attestation();
    foreign.namespace.inode += 1;
    assert!(matches!(refuse(&document, Change::AttestNetwork(foreign)), Refusal::NotAttested { .. }));
    let helperless = until(owning(Participant::Helper));
    let refusal = refuse(&helperless, Change::AttestNetwork(attestation()));
    assert!(matches!(refusal, Refusal::Needs { missing: Participant::Helper, .. }), "{refusal}");
}

#[test]
fn a_failed_probe_is_not_accepted_and_says_what_failed() {
    let document = until(|change| matches!(change, Change::AcceptProbe(_)));
    let refusal = refuse(&document, Change::AcceptProbe(probe(false)));
    assert_eq!(refusal.to_string(), "the network probe failed at 'deny 10.255.255.254': connected");
    assert_eq!(refuse(&document, Change::Publish), Refusal::NotProbed);
}

#[test]
fn publication_needs_everything() {
    let ready = until(|change| *change == Change::Publish);
    assert_eq!(accept(Some(ready.clone()), &[Change::Publish]).decision, Decision::Published);
    for (participant, target, _) in resources() {
        if matches!(participant, Participant::Socket | Participant::Publication) {
            let mut without = ready.clone();
            without.participants.remove(&participant);
            let refusal = Refusal::NotReady { participant, needed: "intended" };
            assert_eq!(refuse(&without, Change::Publish), refusal);
        } else {
            let mut unowned = ready.clone();
            unowned.participants.insert(participant.clone(), Intent::Intended(target));
            assert_eq!(refuse(&unowned, Change::Publish), Refusal::NotReady { participant, needed: "owned" });
        }
    }
}

#[test]
fn sessions_live_only_in_a_published_generation_and_one_per_client() {
    let document = until(|change| *change == Change::Publish);
    assert!(matches!(refuse(&document, Change::RegisterSession(session('1'))), Refusal::Decision { .. }));
    let serving = serving();
    let mut same_client = session('2');
    same_client.client = session('1').client;
    assert!(matches!(refuse(&serving, Change::RegisterSession(same_client)), Refusal::SessionExists { .. }));
    let unknown = Change::StartSession(session('3').id, session_process());
    assert!(matches!(refuse(&serving, unknown), Refusal::NoSession { .. }));
    let ending = accept(Some(serving), &[Change::BeginTearDown(EndReason::Down)]);
    assert!(matches!(refuse(&ending, Change::RegisterSession(session('2'))), Refusal::Decision { .. }));
    let ended = accept(Some(ending), &[Change::EndSession(session('1').id)]);
    assert!(ended.sessions.is_empty());
}

#[test]
fn a_prepared_session_is_nobodys_until_it_is_adopted_after_publication() {
    let prepare = Change::PrepareSession(session('1'));
    let started = Change::StartSession(session('1').id, session_process());
    let adopt = Change::AdoptSession(session('1'));
    let prepared = accept(None, life(1).iter().take(1).flatten().chain([&prepare, &started]));
    assert_eq!(prepared.sessions[&session('1').id].client, None);
    assert!(matches!(refuse(&prepared, adopt.clone()), Refusal::Decision { .. }));
    assert!(matches!(refuse(&prepared, prepare.clone()), Refusal::SessionExists { .. }));
    let published = accept(Some(prepared), life(1).iter().skip(1).flatten());
    assert!(matches!(refuse(&published, Change::PrepareSession(session('2'))), Refusal::Decision { .. }));
    assert!(matches!(refuse(&published, Change::RegisterSession(session('1'))), Refusal::SessionExists { .. }));
    assert!(matches!(refuse(&published, Change::AdoptSession(session('2'))), Refusal::NoSession { .. }));
    let adopted = accept(Some(published), [&adopt]);
    assert_eq!(adopted.sessions[&session('1').id], SessionRecord { process: Some(session_process()), ..session('1') });
    assert!(matches!(refuse(&adopted, adopt), Refusal::SessionExists { .. }));
}

#[test]
fn a_lease_is_released_in_the_order_of_fr_17() {
    let published = accept(None, life(1).iter().flatten());
    let down = accept(Some(published.clone()), &[Change::BeginTearDown(EndReason::Down)]);
    assert_eq!(down.release, LeaseRelease::Intended, "the decision to tear down is the intent to release");
    let down = accept(Some(published), &[Change::BeginRecovery(process(11))]);
    let early = refuse(&down, Change::Release(Participant::RootMount));
    assert!(matches!(early, Refusal::ReleaseOrder { .. }), "an unmount before the intent: {early}");
    assert!(matches!(refuse(&down, Change::ConfirmUnmounted), Refusal::ReleaseOrder { .. }));
    let intended = accept(Some(down), &[Change::IntendLeaseRelease]);
    assert!(matches!(refuse(&intended, Change::ConfirmUnmounted), Refusal::ReleaseOrder { .. }));
    assert!(matches!(refuse(&intended, Change::ConfirmCatalogDelete), Refusal::ReleaseOrder { .. }));
    assert!(matches!(refuse(&intended, Change::Release(Participant::Lease)), Refusal::ReleaseOrder { .. }));
    assert!(matches!(refuse(&intended, Change::Release(Participant::Scratch)), Refusal::ReleaseOrder { .. }));
    assert!(matches!(refuse(&intended, Change::Release(Participant::RuntimeSupervisor)), Refusal::ReleaseOrder { .. }));
    let first_three = ending();
    let unmounted = accept(Some(intended), first_three[1..4].iter().flatten());
    assert_eq!(unmounted.release, LeaseRelease::Unmounted);
    let unfinished = accept(Some(unmounted), &[Change::ConfirmCatalogDelete]);
    assert!(matches!(refuse(&unfinished, Change::Finish), Refusal::Unreleased { .. }));
}

#[test]
fn a_generation_that_ends_by_itself_can_be_recovered_but_not_the_other_way_round() {
    let down = accept(Some(serving()), &[Change::BeginTearDown(EndReason::Down)]);
    let recovering = accept(Some(down), &[Change::BeginRecovery(process(11))]);
    assert!(matches!(refuse(&recovering, Change::BeginTearDown(EndReason::Down)), Refusal::Decision { .. }));
    let taken_over = accept(Some(recovering), &[Change::BeginRecovery(process(12))]);
    assert_eq!(taken_over.recoverer, Some(process(12)));
    let clean = accept(None, life(1).iter().chain(&ending()).flatten());
    assert!(matches!(refuse(&clean, Change::BeginRecovery(process(11))), Refusal::Decision { .. }));
}

/// Checks in every reachable document what must never be otherwise.
#[test]
fn every_reachable_document_keeps_the_invariants() {
    let documents = reachable();
    assert!(documents.len() > 5000, "{}", documents.len());
    for document in &documents {
        let owned = |participant: &Participant| document.ownership(participant).is_some();
        let left = |participant: &Participant| {
            matches!(document.intent(participant), Some(Intent::Intended(_) | Intent::Owned { .. }))
        };
        let mounts = || document.participants.keys().filter(|participant| participant.is_mount());
        let context = || format!("{document:#?}");
        if document.decision == Decision::Published {
            let needed = [Participant::Lease, Participant::RuntimeSupervisor, Participant::Helper, Participant::Runsc];
            assert!(needed.iter().all(owned) && mounts().all(owned), "{}", context());
            assert!(document.readiness.is_some() && document.probe.is_some(), "{}", context());
        }
        let session_phases = [Decision::Published, Decision::TearingDown, Decision::Recovering];
        let admitted = document.sessions.values().any(|session| session.client.is_some());
        assert!(!admitted || session_phases.contains(&document.decision), "{}", context());
        if mounts().any(owned) {
            assert!(left(&Participant::Lease), "a mount without its lease: {}", context());
            assert!(left(&Participant::RuntimeSupervisor), "a mount without its namespace: {}", context());
            assert!(document.release <= LeaseRelease::Intended, "{}", context());
        }
        assert!(!owned(&Participant::Runsc) || document.readiness.is_some(), "{}", context());
        assert!(!owned(&Participant::Publication) || document.decision != Decision::Starting, "{}", context());
        assert_eq!(document.release == LeaseRelease::Deleted, !left(&Participant::Lease), "{}", context());
        if document.decision == Decision::Clean {
            assert!(document.participants.values().all(|intent| *intent == Intent::Released), "{}", context());
            assert!(document.sessions.is_empty(), "{}", context());
        }
    }
}
