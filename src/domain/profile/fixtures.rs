//! A profile for tests.

use super::*;

/// Gives a profile that grants nothing.
pub(crate) fn profile() -> Profile {
    Profile {
        name: "test".parse().unwrap(),
        image: ImageSource::Registry("localhost/x:1".into()),
        user: None,
        command: vec![],
        environment: Environment::default(),
        persistent: vec![],
        volumes: vec![],
        network: NetworkGrant::default(),
        workspace: WorkspaceGrant { isolate_ignored: false, hide: vec![] },
        escalation: vec![],
        limits: Limits::default(),
        linger: Duration::ZERO,
    }
}
