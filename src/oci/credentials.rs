//! Registry credentials from the files that `podman login` and `docker login` write.

use std::fs::File;
use std::path::{Path, PathBuf};

use docker_credential::{CredentialRetrievalError, DockerCredential};
use oci_client::Reference;
use oci_client::secrets::RegistryAuth;

/// Largest credential file that is read, in bytes.
const FILE_LIMIT: u64 = 1 << 20;

/// What was found out about a registry's credentials.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// What to send.
    pub auth: RegistryAuth,
    /// The file that it is from, when it is from one.
    pub file: Option<PathBuf>,
    /// All files that were looked at, in order.
    pub looked_at: Vec<PathBuf>,
    /// Why a file was of no use, for people.
    pub trouble: Vec<String>,
}

/// Looks the registry's credentials up in the developer's credential files.
///
/// A file that can't be used is noted, not an error: most images need no credentials, and when this
/// one does the note is part of the answer. Credential helpers that a file names are run.
pub fn find(reference: &Reference) -> Credentials {
    find_in(credential_files(|name| std::env::var_os(name).filter(|value| !value.is_empty())), reference)
}

fn find_in(files: Vec<PathBuf>, reference: &Reference) -> Credentials {
    let mut found = Credentials { auth: RegistryAuth::Anonymous, file: None, looked_at: files, trouble: Vec::new() };
    for path in found.looked_at.clone() {
        for key in keys(reference) {
            match lookup(&path, &key) {
                Ok(Some(auth)) => return Credentials { auth, file: Some(path), ..found },
                Ok(None) => {}
                Err(trouble) => {
                    let trouble = format!("{}: {trouble}", path.display());
                    if !found.trouble.contains(&trouble) {
                        found.trouble.push(trouble);
                    }
                }
            }
        }
    }
    found
}

/// Lists the files in the order of containers-auth.json(5), then Docker's.
fn credential_files(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Vec<PathBuf> {
    if let Some(only) = variable("REGISTRY_AUTH_FILE") {
        return vec![only.into()];
    }
    let home = variable("HOME").map(PathBuf::from);
    let below_home = |path: &str| home.as_ref().map(|home| home.join(path));
    let files = [
        variable("XDG_RUNTIME_DIR").map(|directory| Path::new(&directory).join("containers/auth.json")),
        variable("XDG_CONFIG_HOME")
            .map(|directory| Path::new(&directory).join("containers/auth.json"))
            .or_else(|| below_home(".config/containers/auth.json")),
        variable("DOCKER_CONFIG")
            .map(|directory| Path::new(&directory).join("config.json"))
            .or_else(|| below_home(".docker/config.json")),
    ];
    files.into_iter().flatten().collect()
}

/// Gives the keys that may name the registry in a file, the most specific first.
fn keys(reference: &Reference) -> Vec<String> {
    let registry = reference.registry();
    let mut keys = Vec::new();
    let mut name = format!("{registry}/{}", reference.repository());
    while name.len() > registry.len() {
        keys.push(name.clone());
        name.truncate(name.rfind('/').unwrap_or(0));
    }
    keys.push(registry.to_owned());
    if registry == "docker.io" {
        keys.push("https://index.docker.io/v1/".to_owned());
    }
    keys
}

fn lookup(path: &Path, key: &str) -> Result<Option<RegistryAuth>, String> {
    use std::io::Read;
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    match docker_credential::get_credential_from_reader(file.take(FILE_LIMIT), key) {
        Ok(DockerCredential::UsernamePassword(name, _)) if name.is_empty() => Ok(None),
        Ok(DockerCredential::UsernamePassword(name, password)) => Ok(Some(RegistryAuth::Basic(name, password))),
        Ok(DockerCredential::IdentityToken(_)) => {
            Err("it holds an identity token, which lazaret can't use; log in with a user name and a password".into())
        }
        Err(CredentialRetrievalError::NoCredentialConfigured) => Ok(None),
        // What a helper prints may hold a secret; that it failed is enough.
        Err(CredentialRetrievalError::HelperFailure { helper, .. }) => Err(format!("{helper} gave no credentials")),
        Err(CredentialRetrievalError::ConfigReadError) => Err("it is not a credential file".into()),
        Err(other) => Err(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(text: &str) -> Reference {
        text.parse().unwrap()
    }

    #[test]
    fn the_most_specific_entry_of_the_first_file_that_has_one_wins() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        // "dXNlcjpwYXNz" is user:pass, "dGVhbTpzZWNyZXQ=" team:secret.
        let broken = write("broken", "{");
        let first = write("first", r#"{"auths":{"other.example":{"auth":"dXNlcjpwYXNz"}}}"#);
        let second = write(
            "second",
            r#"{"auths":{"reg.example:5000":{"auth":"dXNlcjpwYXNz"},"reg.example:5000/team":{"auth":"dGVhbTpzZWNyZXQ="}}}"#,
        );
        let files = vec![broken, directory.path().join("none"), first, second.clone()];
        let found = find_in(files.clone(), &reference("reg.example:5000/team/image"));
        assert_eq!(found.auth, RegistryAuth::Basic("team".into(), "secret".into()));
        assert_eq!(found.file, Some(second));
        assert_eq!(found.trouble.len(), 1, "{:?}", found.trouble);
        let found = find_in(files.clone(), &reference("reg.example:5000/image"));
        assert_eq!(found.auth, RegistryAuth::Basic("user".into(), "pass".into()));
        let found = find_in(files, &reference("reg.example/image"));
        assert_eq!((found.auth, found.file), (RegistryAuth::Anonymous, None));
    }

    #[test]
    fn docker_hub_is_found_under_its_old_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        std::fs::write(&path, r#"{"auths":{"https://index.docker.io/v1/":{"auth":"dXNlcjpwYXNz"}}}"#).unwrap();
        let found = find_in(vec![path.clone()], &reference("debian"));
        assert_eq!(found.file, Some(path));
    }

    #[test]
    fn one_variable_names_the_only_file() {
        let files = |set: &[(&str, &str)]| {
            let set: Vec<(String, String)> = set.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            credential_files(move |name| set.iter().find(|(n, _)| n == name).map(|(_, value)| value.into()))
        };
        assert_eq!(files(&[("REGISTRY_AUTH_FILE", "/a"), ("HOME", "/h")]), [PathBuf::from("/a")]);
        let usual = files(&[("HOME", "/h"), ("XDG_RUNTIME_DIR", "/r")]);
        let expected = ["/r/containers/auth.json", "/h/.config/containers/auth.json", "/h/.docker/config.json"];
        assert_eq!(usual, expected.map(PathBuf::from));
    }
}
