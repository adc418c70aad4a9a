//! `lazaret image`: prepares base images ahead of time, and lists what is prepared.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::actors::host::preparation::{PrepareRequest, Refresh, prepare};
use crate::cli::error::CliError;
use crate::cli::output::{self, Table, Target};
use crate::cli::places::Places;
use crate::cli::progress::{ProgressDisplay, Verbosity};
use crate::core::catalog::ArtifactStatus;
use crate::domain::artifact::{ArtifactManifest, Platform, UserSpec};
use crate::oci::reference;
use crate::store::Catalog;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: ImageVerb,
}

#[derive(Debug, Subcommand)]
enum ImageVerb {
    /// Fetch a base image and unpack it, so that the next start finds it ready
    Prepare(PrepareArgs),
    /// List prepared base images
    List(ListArgs),
}

#[derive(Debug, clap::Args)]
struct PrepareArgs {
    /// The image: REGISTRY/NAME with :TAG or @DIGEST, or oci:DIRECTORY, oci-archive:FILE or
    /// docker-archive:FILE, each with :NAME when it holds several images
    #[arg(value_name = "IMAGE")]
    reference: String,
    /// User of the image that becomes you: NAME, UID, NAME:GROUP or UID:GID [default: the image's own]
    #[arg(short, long, value_name = "USER", value_parser = user)]
    user: Option<UserSpec>,
    /// Platform to choose from a multi-platform image [default: this machine's]
    #[arg(long, value_name = "OS/ARCH[/VARIANT]", value_parser = platform)]
    platform: Option<Platform>,
    /// Do not ask the registry whether it has a newer image under this name
    #[arg(long)]
    no_refresh: bool,
    /// Speak to this registry without TLS; may be given several times
    #[arg(long, value_name = "HOST[:PORT]")]
    insecure_registry: Vec<String>,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
    /// Print the artifact's record as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    match args.verb {
        ImageVerb::Prepare(args) => {
            // One thread: children are spawned by the thread whose end would end them.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let prepared = runtime.block_on(prepare_image(args));
            runtime.shutdown_background();
            prepared
        }
        ImageVerb::List(args) => list(&args),
    }
}

async fn prepare_image(args: PrepareArgs) -> Result<ExitCode, CliError> {
    let places = Places::from_environment()?;
    let request = PrepareRequest {
        source: reference::parse(&args.reference, &std::env::current_dir()?)?,
        storage: places.storage,
        user: args.user,
        platform: args.platform.unwrap_or_else(Platform::host),
        refresh: if args.no_refresh { Refresh::WhenUnknown } else { Refresh::Always },
        insecure_registries: args.insecure_registry,
    };
    let mut display = ProgressDisplay::begin(if args.quiet { Verbosity::Quiet } else { Verbosity::Normal });
    // What does not fit is dropped: the next report says more than the lost one.
    let (sender, mut reports) = mpsc::channel(64);
    let report = move |progress| drop(sender.try_send(progress));
    let preparation = prepare(&request, &report);
    tokio::pin!(preparation);
    let outcome = loop {
        tokio::select! {
            biased;
            Some(progress) = reports.recv() => display.report(progress),
            () = display.due() => {}
            outcome = &mut preparation => break outcome,
        }
    };
    drop(display);
    let manifest = outcome.map_err(|error| {
        let hints = error.hints();
        hints.into_iter().fold(CliError::from(error), CliError::hint)
    })?;
    if args.json {
        output::json(&Listed::new(&manifest, 0))?;
    } else {
        output::text(&format!(
            "{}  {}  user {}\n",
            manifest.id.short(),
            output::printable(&manifest.source.to_string()),
            who(&manifest)
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One prepared image as it is listed; the JSON schema.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    id: &'a str,
    image: String,
    manifest_digest: &'a str,
    platform: String,
    user: String,
    uid: u32,
    gid: u32,
    size: u64,
    prepared_at: i64,
    /// How many running Domains use it.
    leases: usize,
}

impl<'a> Listed<'a> {
    fn new(manifest: &'a ArtifactManifest, leases: usize) -> Self {
        Self {
            id: manifest.id.as_str(),
            image: manifest.source.to_string(),
            manifest_digest: &manifest.manifest_digest,
            platform: manifest.platform.to_string(),
            user: who(manifest),
            uid: manifest.user.uid,
            gid: manifest.user.gid,
            size: manifest.size,
            prepared_at: manifest.prepared_at,
            leases,
        }
    }
}

fn who(manifest: &ArtifactManifest) -> String {
    manifest.user.name.clone().unwrap_or_else(|| manifest.user.uid.to_string())
}

fn list(args: &ListArgs) -> Result<ExitCode, CliError> {
    let storage = Places::from_environment()?.storage;
    let path: PathBuf = storage.catalog();
    let state = match path.try_exists()? {
        true => Catalog::open(&storage)?.state().clone(),
        // Nothing was prepared yet; listing makes no catalog.
        false => Default::default(),
    };
    let ready = state.artifacts.values().filter(|record| record.status == ArtifactStatus::Ready);
    let mut listed: Vec<_> =
        ready.map(|record| Listed::new(&record.manifest, state.leases_of(&record.manifest.id).count())).collect();
    listed.sort_by(|a, b| (&a.image, a.id).cmp(&(&b.image, b.id)));
    if args.json {
        output::json(&listed)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["ID", "IMAGE", "PLATFORM", "USER", "SIZE", "PREPARED", "IN USE"]);
    let now = output::now();
    for image in &listed {
        table.row(vec![
            image.id[..12].to_owned(),
            image.image.clone(),
            image.platform.clone(),
            image.user.clone(),
            indicatif::HumanBytes(image.size).to_string(),
            output::age(image.prepared_at, now),
            if image.leases == 0 { "no".into() } else { format!("by {}", image.leases) },
        ]);
    }
    output::text(&table.render(output::style(Target::Output)))?;
    Ok(ExitCode::SUCCESS)
}

fn user(text: &str) -> Result<UserSpec, String> {
    UserSpec::try_from(text.to_owned()).map_err(|error| error.to_string())
}

fn platform(text: &str) -> Result<Platform, String> {
    let mut parts = text.split('/');
    let valid = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match (parts.next().filter(valid), parts.next().filter(valid), parts.next(), parts.next()) {
        (Some("linux"), Some(architecture), variant, None) if variant.is_none_or(|variant| valid(&variant)) => {
            Ok(Platform { os: "linux".into(), architecture: architecture.into(), variant: variant.map(str::to_owned) })
        }
        (Some(os), Some(_), _, None) if os != "linux" => Err("only linux images can be prepared".into()),
        _ => Err("expected OS/ARCH or OS/ARCH/VARIANT, as in linux/arm64".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_are_read() {
        assert_eq!(platform("linux/arm64").unwrap().to_string(), "linux/arm64");
        assert_eq!(platform("linux/arm/v7").unwrap().variant.as_deref(), Some("v7"));
        for text in ["", "linux", "linux/", "windows/amd64", "linux/a/b/c", "linux/amd64/", "linux/../x"] {
            assert!(platform(text).is_err(), "{text}");
        }
    }
}
