//! Which of an index's images is for a platform.

use oci_spec::image::{Descriptor, ImageIndex};

use super::manifest::ManifestError;
use crate::domain::artifact::Platform;

/// Chooses the entry of an index that is for the platform.
///
/// An entry without a platform is taken only when it is the index's only one; the configuration
/// then has the last word.
pub fn choose<'a>(index: &'a ImageIndex, wanted: &Platform) -> Result<&'a Descriptor, ManifestError> {
    let entries = index.manifests();
    let fitting = entries.iter().find(|entry| platform_of(entry).is_some_and(|offered| fits(&offered, wanted)));
    match (fitting, entries.as_slice()) {
        (Some(entry), _) => Ok(entry),
        (None, [only]) if only.platform().is_none() => Ok(only),
        _ => Err(ManifestError::Platform { wanted: wanted.clone(), available: platforms(entries) }),
    }
}

/// Names the platforms that an index offers; attestations (`unknown/unknown`) are not images.
fn platforms(entries: &[Descriptor]) -> Vec<String> {
    let mut names: Vec<String> = entries
        .iter()
        .filter_map(platform_of)
        .filter(|platform| platform.os != "unknown")
        .map(|platform| platform.to_string())
        .collect();
    names.dedup();
    names
}

fn platform_of(entry: &Descriptor) -> Option<Platform> {
    entry.platform().as_ref().map(|platform| Platform {
        os: platform.os().to_string(),
        architecture: platform.architecture().to_string(),
        variant: platform.variant().clone(),
    })
}

/// Tells whether an image for `offered` is what `wanted` asks for. Without a variant asked for, the
/// architecture's base variant fits: a `v8` image on arm64, a `v1` image on amd64.
fn fits(offered: &Platform, wanted: &Platform) -> bool {
    let variant = match (&wanted.variant, &offered.variant) {
        (None, None) => true,
        (None, Some(offered)) => {
            matches!((wanted.architecture.as_str(), offered.as_str()), ("arm64", "v8") | ("amd64", "v1") | (_, ""))
        }
        (Some(wanted), Some(offered)) => wanted == offered,
        (Some(variant), None) => {
            matches!((wanted.architecture.as_str(), variant.as_str()), ("arm64", "v8") | ("amd64", "v1"))
        }
    };
    offered.os == wanted.os && offered.architecture == wanted.architecture && variant
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci::digest::BlobDigest;
    use crate::oci::manifest::{Document, MANIFEST_TYPES, parse};
    use serde_json::json;

    fn platform(text: &str) -> Platform {
        let mut parts = text.split('/').map(str::to_owned);
        let (os, architecture) = (parts.next().unwrap(), parts.next().unwrap());
        Platform { os, architecture, variant: parts.next() }
    }

    fn index(platforms: &[&str]) -> ImageIndex {
        let entry = |(number, text): (usize, &&str)| {
            let p = platform(text);
            let mut described = json!({"os": p.os, "architecture": p.architecture});
            if let Some(variant) = p.variant {
                described["variant"] = variant.into();
            }
            json!({"mediaType": MANIFEST_TYPES[0], "size": number, "digest": BlobDigest::of(text.as_bytes()).to_string(), "platform": described})
        };
        let entries: Vec<_> = platforms.iter().enumerate().map(entry).collect();
        let bytes = serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": entries})).unwrap();
        match parse(&bytes, None).unwrap() {
            Document::Index(index) => *index,
            Document::Manifest(_) => panic!("not an index"),
        }
    }

    #[test]
    fn the_platform_decides_and_variants_fall_back_to_the_base_one() {
        let offered = ["unknown/unknown", "linux/arm/v7", "linux/arm64/v8", "linux/amd64"];
        let chosen = |wanted: &str| choose(&index(&offered), &platform(wanted)).map(|entry| entry.size()).ok();
        assert_eq!(chosen("linux/amd64"), Some(3));
        assert_eq!(chosen("linux/amd64/v1"), Some(3));
        assert_eq!(chosen("linux/arm64"), Some(2));
        assert_eq!(chosen("linux/arm/v7"), Some(1));
        assert_eq!(chosen("linux/arm"), None);
        assert_eq!(chosen("linux/amd64/v3"), None);
        let refused = choose(&index(&offered), &platform("linux/s390x")).unwrap_err().to_string();
        assert_eq!(refused, "no manifest for platform linux/s390x; there is linux/arm/v7, linux/arm64/v8, linux/amd64");
    }
}
