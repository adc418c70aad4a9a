//! Image references as people write them.

use std::path::{Path, PathBuf};

use oci_client::Reference;

use crate::domain::artifact::ImageSource;

/// The text is not an image reference.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// Nothing was written.
    #[error("an image reference is empty")]
    Empty,
    /// A transport is named but no path follows.
    #[error("'{text}' names no path after '{transport}:'")]
    NoPath {
        /// What was written.
        text: String,
        /// The transport.
        transport: &'static str,
    },
    /// The text looks like a file, which needs a transport.
    #[error("'{0}' is a path: write oci:DIRECTORY, oci-archive:FILE or docker-archive:FILE")]
    BarePath(String),
    /// The transport is one that Lazaret does not have.
    #[error(
        "'{0}' uses a transport that lazaret does not have: use a registry reference, oci:, oci-archive: or docker-archive:"
    )]
    Transport(String),
    /// The text is not a registry reference.
    #[error("'{text}' is not an image reference, REGISTRY/NAME[:TAG][@DIGEST]")]
    Malformed {
        /// What was written.
        text: String,
        /// What is wrong with it.
        #[source]
        source: oci_client::ParseError,
    },
    /// The digest is not a SHA-256 one.
    #[error("'{0}' has a digest other than sha256, which is the only kind that lazaret verifies")]
    Algorithm(String),
}

/// Reads an image reference; a relative path is taken from `base`.
///
/// A reference without a registry is Docker Hub's, and one without tag and digest is `:latest`, as
/// every container tool has it. After `oci:` and the archives' prefixes the path ends at the first
/// colon (containers-transports(5)), so a path with a colon in it can't be written.
pub fn parse(text: &str, base: &Path) -> Result<ImageSource, ReferenceError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(ReferenceError::Empty);
    }
    for transport in ["oci", "oci-archive", "docker-archive"] {
        if let Some(rest) = text.strip_prefix(transport).and_then(|rest| rest.strip_prefix(':')) {
            // `oci:5000/name` would be a host named oci with a port; such a host is written docker://oci:5000/name.
            let (path, tag) = split_path(rest, base);
            let Some(path) = path else {
                return Err(ReferenceError::NoPath { text: text.to_owned(), transport });
            };
            return Ok(match transport {
                "oci" => ImageSource::OciLayout { path, tag },
                "oci-archive" => ImageSource::OciArchive { path, tag },
                _ => ImageSource::DockerArchive { path, tag },
            });
        }
    }
    if text.starts_with(['/', '.', '~']) {
        return Err(ReferenceError::BarePath(text.to_owned()));
    }
    let name = text.strip_prefix("docker://").unwrap_or(text);
    if name.contains("://")
        || ["dir:", "docker-daemon:", "containers-storage:", "sif:"].iter().any(|t| name.starts_with(t))
    {
        return Err(ReferenceError::Transport(text.to_owned()));
    }
    let reference =
        Reference::try_from(name).map_err(|source| ReferenceError::Malformed { text: text.to_owned(), source })?;
    if reference.digest().is_some_and(|digest| !digest.starts_with("sha256:")) {
        return Err(ReferenceError::Algorithm(text.to_owned()));
    }
    Ok(ImageSource::Registry(reference.whole()))
}

fn split_path(rest: &str, base: &Path) -> (Option<PathBuf>, Option<String>) {
    let (path, tag) = match rest.split_once(':') {
        Some((path, tag)) => (path, Some(tag).filter(|tag| !tag.is_empty())),
        None => (rest, None),
    };
    let path = (!path.is_empty()).then(|| base.join(path));
    (path, tag.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<ImageSource, ReferenceError> {
        parse(text, Path::new("/base"))
    }

    #[test]
    fn registry_references_become_full_ones() {
        let cases = [
            ("debian", "docker.io/library/debian:latest"),
            ("debian:12", "docker.io/library/debian:12"),
            ("docker://debian:12", "docker.io/library/debian:12"),
            ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
            ("ghcr.io/x/y:v1", "ghcr.io/x/y:v1"),
        ];
        for (text, full) in cases {
            assert_eq!(read(text), Ok(ImageSource::Registry(full.into())), "{text}");
        }
        let digest = "a".repeat(64);
        let pinned = format!("ghcr.io/x/y@sha256:{digest}");
        assert_eq!(read(&pinned), Ok(ImageSource::Registry(pinned.clone())));
    }

    #[test]
    fn paths_are_taken_from_the_base_and_may_name_an_image() {
        let layout =
            |path: &str, tag: Option<&str>| ImageSource::OciLayout { path: path.into(), tag: tag.map(Into::into) };
        assert_eq!(read("oci:dir"), Ok(layout("/base/dir", None)));
        assert_eq!(read("oci:/abs/dir:v1"), Ok(layout("/abs/dir", Some("v1"))));
        assert_eq!(
            read("docker-archive:a.tar:repo/name:tag"),
            Ok(ImageSource::DockerArchive { path: "/base/a.tar".into(), tag: Some("repo/name:tag".into()) })
        );
        assert_eq!(read("oci-archive:/a.tar"), Ok(ImageSource::OciArchive { path: "/a.tar".into(), tag: None }));
    }

    #[test]
    fn what_is_no_reference_is_refused_with_the_reason() {
        assert_eq!(read(" "), Err(ReferenceError::Empty));
        assert!(matches!(read("oci:"), Err(ReferenceError::NoPath { .. })));
        assert!(matches!(read("./image.tar"), Err(ReferenceError::BarePath(_))));
        assert!(matches!(read("docker-daemon:x:y"), Err(ReferenceError::Transport(_))));
        assert!(matches!(read("https://x/y"), Err(ReferenceError::Transport(_))));
        assert!(matches!(read("UPPER/Case"), Err(ReferenceError::Malformed { .. })));
        assert!(matches!(read("x@sha256:12"), Err(ReferenceError::Malformed { .. })));
        assert!(matches!(read(&format!("x@sha512:{}", "a".repeat(128))), Err(ReferenceError::Algorithm(_))));
    }

    proptest! {
        #[test]
        fn a_parsed_reference_reads_back_as_itself(text in "[a-z0-9./:@_-]{1,60}") {
            if let Ok(source) = read(&text) {
                prop_assert_eq!(read(&source.to_string()), Ok(source));
            }
        }
    }
}
