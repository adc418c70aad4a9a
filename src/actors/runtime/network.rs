//! The Network Sidecar role: installs the derived policy and attests it.
//!
//! Parent: [`supervisor`](super::supervisor). Children: none. It holds no resource of its own beyond a
//! netlink socket that lives as long as a step; what it installed lives in the namespace. Its death
//! while building fails the build; afterwards it has nothing left to do and has ended.

mod error;
mod install;
mod observe;
mod settings;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tracing::debug;

use self::error::NetworkError;
use super::messages::SupervisorMessage;
use crate::core::supervision::Event;
use crate::domain::network::NetworkAttestation;
use crate::domain::runtime::{ENFORCEMENT_NAMESPACE, RuntimePlan};
use crate::policy::derive;
use crate::policy::enforcement::Enforcement;
use crate::sys::procfs;
use crate::wire::lease::SupervisorReport;

/// Longest time that one exchange with the kernel may take; it answers in microseconds.
const NETLINK_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the kernel may take to bring IPv6 addresses up; it takes a few milliseconds.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// What a network actor is started with.
pub struct NetworkArguments {
    /// Where results go.
    pub supervisor: ActorRef<SupervisorMessage>,
    /// The generation's plan.
    pub plan: Arc<RuntimePlan>,
}

/// What a network actor is told.
pub enum NetworkMessage {
    /// Apply settings and bring the loopback device up.
    Prepare,
    /// Install the policy on the link, which exists now, and attest it.
    Install,
}

/// The network actor.
pub struct Network;

impl Actor for Network {
    type Msg = NetworkMessage;
    type State = NetworkArguments;
    type Arguments = NetworkArguments;

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        arguments: NetworkArguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(arguments)
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: NetworkMessage,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let step = async {
            match message {
                NetworkMessage::Prepare => prepare(&state.plan).await,
                NetworkMessage::Install => install_and_attest(&state.plan).await,
            }
        };
        let outcome = tokio::time::timeout(NETLINK_TIMEOUT, step).await.unwrap_or(Err(NetworkError::TimedOut));
        let (event, report) = match outcome {
            Ok(result) => result,
            Err(error) => (Event::Failed(error.failure()), None),
        };
        state.supervisor.cast(SupervisorMessage::Resource(event, report))?;
        Ok(())
    }
}

async fn prepare(plan: &RuntimePlan) -> Result<(Event, Option<SupervisorReport>), NetworkError> {
    let began = Instant::now();
    with_netlink(async |handle| install::prepare(&handle, &plan.policy).await).await?;
    debug!(elapsed_us = began.elapsed().as_micros(), "namespace prepared");
    Ok((Event::NamespacePrepared, None))
}

async fn install_and_attest(plan: &RuntimePlan) -> Result<(Event, Option<SupervisorReport>), NetworkError> {
    let began = Instant::now();
    let attestation = with_netlink(async |handle| {
        install::install(&handle, &plan.policy).await?;
        loop {
            match attest(plan, &observe::observe(&handle, plan.policy.ipv6).await?) {
                // The kernel brings an IPv6 address up in a work queue of its own.
                Err(NetworkError::NotAsDerived { .. }) if plan.policy.ipv6.is_on() && began.elapsed() < SETTLE_TIME => {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                outcome => break outcome,
            }
        }
    })
    .await?;
    debug!(elapsed_us = began.elapsed().as_micros(), policy = attestation.policy.short(), "policy attested");
    Ok((Event::PolicyAttested, Some(SupervisorReport::NetworkReady(attestation))))
}

/// Compares what was read back with what the policy wants, and binds the result to the generation.
fn attest(plan: &RuntimePlan, observed: &Enforcement) -> Result<NetworkAttestation, NetworkError> {
    let mut wanted = Enforcement::of(&plan.policy);
    wanted.settings = settings::applicable(wanted.settings.into_iter().collect()).into_iter().collect();
    let differences = wanted.differences(observed);
    if !differences.is_empty() {
        return Err(NetworkError::NotAsDerived { differences });
    }
    let namespace = procfs::namespace_identity(ENFORCEMENT_NAMESPACE.as_ref()).map_err(NetworkError::Namespace)?;
    let policy = derive::digest(&plan.policy);
    let fingerprint = derive::readiness_fingerprint(
        &plan.domain,
        plan.generation,
        &plan.configuration,
        &plan.sidecar,
        &policy,
        &namespace,
    );
    Ok(NetworkAttestation { namespace, policy, fingerprint })
}

/// Runs a step with a netlink socket that is closed afterwards.
async fn with_netlink<T>(
    step: impl AsyncFnOnce(rtnetlink::Handle) -> Result<T, NetworkError>,
) -> Result<T, NetworkError> {
    let (connection, handle, _unsolicited) = rtnetlink::new_connection().map_err(NetworkError::Socket)?;
    let connection = tokio::spawn(connection);
    let outcome = step(handle).await;
    connection.abort();
    outcome
}
