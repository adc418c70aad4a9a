use std::time::Duration;

use super::*;
use crate::domain::network::NetworkGrant;
use crate::domain::profile::{Environment, GuestPath, Limits, Volume, fixtures};

fn profile() -> Profile {
    Profile {
        environment: Environment { set: [("TOKEN".to_owned(), "s3cret".to_owned())].into(), pass: vec!["LANG".into()] },
        network: NetworkGrant { allow: vec!["10.1.0.0/16".parse().unwrap()], ..NetworkGrant::default() },
        limits: Limits { tmp: 512 << 20, ..Limits::default() },
        linger: Duration::from_secs(30),
        ..fixtures::profile()
    }
}

#[test]
fn each_grant_is_shown_with_its_origin_and_no_secret() {
    let mut origins = Origins::default();
    let origin = Origin::File { path: "/c/p.toml".into(), line: 7 };
    origins.record("network.allow", "10.1.0.0/16", origin.clone());
    origins.record("network.allow", "10.1.0.0/16", Origin::Default);
    let grants = grants(&profile(), &origins);
    let of = |key: &str| grants.iter().find(|grant| grant.key == key).unwrap();
    assert_eq!(of("network.allow").origin, origin);
    assert_eq!(of("network.allow").origin.to_string(), "/c/p.toml:7");
    assert_eq!(of("network.dns").value, "the host's, through the connectivity helper");
    assert_eq!(of("limits.tmp").value, "512 MiB");
    assert_eq!((of("linger").value.as_str(), &of("linger").origin), ("30s", &Origin::Default));
    assert!(grants.iter().all(|grant| !grant.value.contains("s3cret")));
}

#[test]
fn differences_are_told_in_lines_and_without_secrets() {
    let running = profile();
    assert!(difference(&running, &running).is_empty());
    let mut ours = profile();
    ours.network.allow = vec!["10.2.0.0/16".parse().unwrap()];
    ours.environment.set = [("TOKEN".to_owned(), "other".to_owned()), ("NEW".to_owned(), "x".to_owned())].into();
    ours.environment.pass = vec![];
    ours.user = Some("node".to_owned().try_into().unwrap());
    ours.volumes = vec![Volume {
        host: "/srv".into(),
        guest: GuestPath::try_from("/srv".to_owned()).unwrap(),
        access: Access::ReadOnly,
    }];
    let lines = difference(&running, &ours);
    assert_eq!(
        lines,
        [
            "user: the image's user -> node",
            "env.set: TOKEN has another value",
            "env.pass: - LANG",
            "network.allow: - 10.1.0.0/16",
            "env.set: + NEW",
            "volumes: + /srv at /srv (ro)",
            "network.allow: + 10.2.0.0/16",
        ]
    );
}

#[test]
fn an_order_that_matters_is_a_difference_too() {
    let mut running = profile();
    running.network.dns = vec!["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
    let mut ours = running.clone();
    ours.network.dns.reverse();
    assert_eq!(difference(&running, &ours), ["the order of values"]);
}
