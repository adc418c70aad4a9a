//! `lazaret image prepare`: every way in which an image comes, is broken, or attacks.

mod attacks;
mod contents;
mod fake;
pub(crate) mod fixture;
mod interruptions;
mod misbehaviour;
pub(crate) mod prepared;
mod proxy;
mod registries;
mod sources;

use crate::harness::{Case, Need};

/// What preparing needs.
const NEEDS: &[Need] = &[Need::IdMaps, Need::Program("umoci")];

/// What a registry needs besides.
const REGISTRY: &[Need] = &[
    Need::IdMaps,
    Need::Program("umoci"),
    Need::Program("docker-registry"),
    Need::Program("skopeo"),
    Need::Program("htpasswd"),
];

pub fn cases() -> Vec<Case> {
    let cases = [
        registries::cases(),
        misbehaviour::cases(),
        sources::cases(),
        contents::cases(),
        attacks::cases(),
        interruptions::cases(),
    ];
    cases.into_iter().flatten().collect()
}
