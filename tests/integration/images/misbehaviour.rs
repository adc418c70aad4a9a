//! Registries that break the rules, or use those that a simple one does not.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use fs_err as fs;

use super::NEEDS;
use super::fake::{Fake, Reply, Request};
use super::fixture::{Image, Layer, MANIFEST_TYPE};
use super::prepared::{partials, prepare, refused};
use crate::harness::environment::Data;
use crate::harness::{Case, CaseResult, Environment, case};

pub fn cases() -> Vec<Case> {
    vec![
        case(
            "a_registry_without_ranges_is_read_from_the_start",
            NEEDS,
            a_registry_without_ranges_is_read_from_the_start,
        ),
        case("a_wrong_range_is_noticed_and_all_fetched_anew", NEEDS, a_wrong_range_is_noticed_and_all_fetched_anew),
        case("a_blob_of_another_length_is_refused", NEEDS, a_blob_of_another_length_is_refused),
        case("an_endless_manifest_is_refused", NEEDS, an_endless_manifest_is_refused),
        case("a_registry_in_trouble_is_asked_again", NEEDS, a_registry_in_trouble_is_asked_again),
        case("too_many_requests_are_explained", NEEDS, too_many_requests_are_explained),
        case("a_token_is_fetched_with_the_password", NEEDS, a_token_is_fetched_with_the_password),
        case("credentials_do_not_follow_a_redirect", NEEDS, credentials_do_not_follow_a_redirect),
    ]
}

/// What a registry holds: bodies by the end of their path.
#[derive(Debug, Clone)]
struct Holdings {
    manifest: Vec<u8>,
    blobs: BTreeMap<String, Vec<u8>>,
    layer: String,
}

impl Holdings {
    fn of(environment: &Environment, image: &Image) -> Result<Self> {
        let layout = environment.directory().join("layout");
        let (_, digest) = image.write_layout(&layout)?;
        let mut blobs = BTreeMap::new();
        for entry in fs::read_dir(layout.join("blobs/sha256"))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            blobs.insert(format!("sha256:{name}"), fs::read(&path)?);
        }
        let manifest = blobs.get(&digest).cloned().unwrap_or_default();
        Ok(Self { manifest, blobs, layer: image.layer_digest(0).to_string() })
    }

    /// Answers as an honest registry.
    fn answer(&self, request: &Request) -> Reply {
        let name = request.path.rsplit('/').next().unwrap_or_default();
        if request.path == "/v2/" {
            return Reply::ok("{}");
        }
        if request.path.contains("/manifests/") {
            return Reply::ok(self.manifest.clone()).header("Content-Type", MANIFEST_TYPE);
        }
        match (self.blobs.get(name), request.range_from) {
            (None, _) => Reply::status(404),
            (Some(bytes), None) => Reply::ok(bytes.clone()),
            (Some(bytes), Some(from)) if from >= bytes.len() => Reply::status(416),
            (Some(bytes), Some(from)) => Reply { status: 206, ..Reply::ok(&bytes[from..]) },
        }
    }

    fn asks_for_layer(&self, request: &Request) -> bool {
        request.path.ends_with(&self.layer)
    }
}

fn noisy() -> Image {
    Image::new([Layer::base().noise("noise", 200_000, 31)])
}

/// Leaves a partial download of the layer, as an interrupted preparation does.
fn leave_partial(environment: &Environment, holdings: &Holdings, bytes: &[u8]) -> Result<()> {
    let blobs = environment.storage().blobs();
    fs::create_dir_all(&blobs)?;
    for directory in [environment.storage().path(), Path::new(&blobs)] {
        fs::set_permissions(directory, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    }
    let hex = holdings.layer.trim_start_matches("sha256:");
    fs::write(blobs.join(format!(".partial-{hex}")), bytes)?;
    Ok(())
}

fn a_registry_without_ranges_is_read_from_the_start() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let holdings = Holdings::of(&environment, &noisy())?;
    leave_partial(&environment, &holdings, &holdings.blobs[&holdings.layer][..70_000])?;
    let fake = Fake::start({
        let holdings = holdings.clone();
        move |request| holdings.answer(&Request { range_from: None, ..request.clone() })
    })?;
    prepare(&environment, &format!("{}/image:v1", fake.address()), &[])?;
    let asked: Vec<_> = fake.requests().into_iter().filter(|request| holdings.asks_for_layer(request)).collect();
    ensure!(asked.len() == 1 && asked[0].range_from == Some(70_000), "{asked:?}");
    ensure!(partials(&environment).is_empty(), "a partial blob is left");
    Ok(())
}

fn a_wrong_range_is_noticed_and_all_fetched_anew() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let holdings = Holdings::of(&environment, &noisy())?;
    // What an earlier attempt left is damaged, so that no range makes it whole.
    leave_partial(&environment, &holdings, &[b'x'; 70_000])?;
    let fake = Fake::start({
        let holdings = holdings.clone();
        move |request| holdings.answer(request)
    })?;
    prepare(&environment, &format!("{}/image:v1", fake.address()), &[])?;
    let asked = fake.requests().into_iter().filter(|request| holdings.asks_for_layer(request));
    let ranges: Vec<_> = asked.map(|request| request.range_from).collect();
    ensure!(ranges == [Some(70_000), None], "{ranges:?}");
    Ok(())
}

fn a_blob_of_another_length_is_refused() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let holdings = Holdings::of(&environment, &noisy())?;
    let size = holdings.blobs[&holdings.layer].len();
    for (length, text) in [
        (size + 1, format!("is longer than the {size} bytes that its descriptor promises")),
        (100_000, format!("is truncated: 100000 of {size} bytes")),
        // Once more: the range begins where the registry's bytes end.
        (100_000, format!("is truncated: 100000 of {size} bytes")),
    ] {
        let fake = Fake::start({
            let mut holdings = holdings.clone();
            holdings.blobs.entry(holdings.layer.clone()).or_default().resize(length, 0);
            move |request| holdings.answer(request)
        })?;
        refused(&environment, &format!("{}/image:v1", fake.address()), &[], &text)?;
    }
    Ok(())
}

fn an_endless_manifest_is_refused() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let fake = Fake::start(|request| match request.path.as_str() {
        "/v2/" => Reply::ok("{}"),
        _ => Reply { endless: true, ..Reply::ok(vec![b' '; 64 << 10]) },
    })?;
    refused(&environment, &format!("{}/image:v1", fake.address()), &[], "is larger than 4194304 bytes")?;
    Ok(())
}

fn a_registry_in_trouble_is_asked_again() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let holdings = Holdings::of(&environment, &noisy())?;
    let asked = Arc::new(AtomicUsize::new(0));
    let fake = Fake::start({
        let (holdings, asked) = (holdings.clone(), asked.clone());
        move |request| match holdings.asks_for_layer(request) && asked.fetch_add(1, Ordering::SeqCst) < 2 {
            true => Reply::status(503),
            false => holdings.answer(request),
        }
    })?;
    prepare(&environment, &format!("{}/image:v1", fake.address()), &[])?;
    ensure!(asked.load(Ordering::SeqCst) == 3, "it was asked {} times", asked.load(Ordering::SeqCst));
    Ok(())
}

fn too_many_requests_are_explained() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let fake = Fake::start(|request| match request.path.as_str() {
        "/v2/" => Reply::ok("{}"),
        _ => Reply { status: 429, ..Reply::ok("\u{1b}[2Jslow down") },
    })?;
    let output = refused(&environment, &format!("{}/image:v1", fake.address()), &[], "with status 429")?;
    ensure!(!output.stderr.contains(&0x1b), "an escape sequence of the registry reaches the terminal: {output}");
    output.expect_stderr("log in to have a higher limit")?;
    Ok(())
}

fn a_token_is_fetched_with_the_password() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let holdings = Holdings::of(&environment, &noisy())?;
    let tokens = Fake::start(|request| match request.authorization.as_deref() {
        Some("Basic bWU6c2VjcmV0") if request.path.contains("scope=repository%3Aimage%3Apull") => {
            Reply::ok(r#"{"token": "let-me-in"}"#)
        }
        _ => Reply::status(401),
    })?;
    let realm = tokens.address();
    let fake = Fake::start(move |request| match request.authorization.as_deref() {
        Some("Bearer let-me-in") => holdings.answer(request),
        _ => {
            let challenge = format!("Bearer realm=\"http://{realm}/token\",service=\"fake\"");
            Reply::status(401).header("WWW-Authenticate", challenge)
        }
    })?;
    let reference = format!("{}/image:v1", fake.address());
    refused(&environment, &reference, &[], "(401): no credentials")?;
    fs::create_dir_all(environment.home().join(".docker"))?;
    let file = format!(r#"{{"auths": {{"{}": {{"auth": "bWU6c2VjcmV0"}}}}}}"#, fake.address());
    fs::write(environment.home().join(".docker/config.json"), file)?;
    prepare(&environment, &reference, &[])?;
    Ok(())
}

fn credentials_do_not_follow_a_redirect() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let holdings = Holdings::of(&environment, &noisy())?;
    let storage = Fake::start({
        let holdings = holdings.clone();
        move |request| holdings.answer(request)
    })?;
    let elsewhere = storage.address();
    let fake = Fake::start(move |request| match &request.authorization {
        None => Reply::status(401).header("WWW-Authenticate", "Basic realm=\"fake\""),
        Some(_) if request.path.contains("/blobs/") => {
            Reply::status(307).header("Location", format!("http://{elsewhere}{}", request.path))
        }
        Some(_) => holdings.answer(request),
    })?;
    fs::create_dir_all(environment.home().join(".docker"))?;
    let file = format!(r#"{{"auths": {{"{}": {{"auth": "bWU6c2VjcmV0"}}}}}}"#, fake.address());
    fs::write(environment.home().join(".docker/config.json"), file)?;
    prepare(&environment, &format!("{}/image:v1", fake.address()), &[])?;
    let leaked = storage.requests().into_iter().find(|request| request.authorization.is_some());
    ensure!(!storage.requests().is_empty() && leaked.is_none(), "the password went elsewhere: {leaked:?}");
    Ok(())
}
