//! Why the policy could not be put in force.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;

use crate::domain::failure::Failure;
use crate::policy::enforcement::Family;

/// Why the policy could not be put in force.
#[derive(Debug, thiserror::Error)]
pub(super) enum NetworkError {
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
    /// Gives what the supervisor tells, with what the developer can do.
    pub(super) fn failure(&self) -> Failure {
        let hint = match self {
            Self::Rule { .. } => "the kernel needs CONFIG_IP_MULTIPLE_TABLES (policy routing)",
            _ => return Failure::of(self),
        };
        Failure::of(self).with_hints(vec![hint.to_owned()])
    }
}
