//! The Network Sidecar role: installs the derived policy and attests it.
//!
//! Parent: [`supervisor`](super::supervisor). Children: none. It holds no resource of its own beyond a
//! netlink socket that lives as long as a step; what it installed lives in the namespace. Its death
//! while building fails the build; afterwards it has nothing left to do and has ended.

mod install;
mod observe;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tracing::debug;

use super::messages::SupervisorMessage;
use crate::core::supervision::{Event, Failure};
use crate::domain::network::NetworkAttestation;
use crate::domain::runtime::{ENFORCEMENT_NAMESPACE, RuntimePlan};
use crate::policy::derive;
use crate::policy::enforcement::{Enforcement, Family};
use crate::sys::procfs;
use crate::wire::lease::SupervisorReport;

/// Longest time that one exchange with the kernel may take; it answers in microseconds.
const NETLINK_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the kernel may take to bring IPv6 addresses up; it takes a few milliseconds.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// Why the policy could not be put in force.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// No netlink socket could be had.
    #[error("can't open a netlink socket")]
    Socket(#[source] std::io::Error),
    /// The kernel did not answer.
    #[error("the kernel did not answer a netlink request in time")]
    TimedOut,
    /// A kernel setting can't be read or written.
    #[error("can't apply {}", path.display())]
    Setting {
        /// The file below `/proc/sys`.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A link can't be configured.
    #[error("can't configure the link {device}")]
    Link {
        /// Its name.
        device: String,
        /// Why.
        source: rtnetlink::Error,
    },
    /// A link is not there.
    #[error("there is no link {device} in the enforcement namespace")]
    NoLink {
        /// Its name.
        device: String,
    },
    /// An address can't be added.
    #[error("can't add the address {address}")]
    Address {
        /// The address.
        address: IpAddr,
        /// Why.
        source: rtnetlink::Error,
    },
    /// A route can't be added.
    #[error("can't add the route to {destination}")]
    Route {
        /// Its destination.
        destination: IpNet,
        /// Why.
        source: rtnetlink::Error,
    },
    /// The rule against device-bound lookups can't be added.
    #[error("can't add the {family:?} rule that guards the link")]
    Rule {
        /// Its family.
        family: Family,
        /// Why.
        source: rtnetlink::Error,
    },
    /// The namespace can't be read back.
    #[error("can't read the enforcement namespace back")]
    ReadBack(#[source] rtnetlink::Error),
    /// The namespace is not what the policy says.
    #[error("the enforcement namespace is not as the policy says: {}", differences.join("; "))]
    NotAsDerived {
        /// Each difference.
        differences: Vec<String>,
    },
    /// The namespace can't be identified.
    #[error("can't identify the enforcement namespace")]
    Namespace(#[source] std::io::Error),
}

impl NetworkError {
    fn failure(&self) -> Failure {
        let hint = match self {
            Self::Rule { .. } => "the kernel needs CONFIG_IP_MULTIPLE_TABLES (policy routing)",
            _ => return Failure::of(self),
        };
        Failure { hints: vec![hint.to_owned()], ..Failure::of(self) }
    }
}

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
                Err(NetworkError::NotAsDerived { .. }) if plan.policy.ipv6 && began.elapsed() < SETTLE_TIME => {
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
    wanted.settings = install::applicable(wanted.settings.into_iter().collect()).into_iter().collect();
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
