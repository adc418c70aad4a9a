//! The developer's configuration: `config.toml` and `profiles/NAME.toml`, read, validated, explained.
//!
//! Nothing in a workspace configures Lazaret (SR-2): these two files are all that is read.
//!
//! - [`source`]: a file's text, bounded; [`excerpt`]: the part of it that a mistake is shown in
//! - [`raw`]: its shape
//! - [`validate`], [`network`], [`paths`], [`escalation`], [`values`]: what it means; [`notes`]: what is
//!   wrong with it, and where each value comes from
//! - [`placement`]: that nothing mounted into a sandbox holds configuration or state
//! - [`starter`]: what `lazaret init` writes

pub mod error;
pub mod escalation;
pub mod excerpt;
pub mod keys;
pub mod network;
pub mod notes;
pub mod paths;
pub mod placement;
pub mod raw;
pub mod source;
pub mod starter;
pub mod validate;
pub mod values;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub use error::{ConfigError, Problems};
pub use placement::{HostPlaces, PlacementError, check_placement};

use self::keys::Place;
use self::notes::{Notes, Shaped};
use self::raw::{RawCommon, RawProfile};
use self::source::SourceFile;
use self::values::Wrong;
use crate::domain::ids::ProfileName;
use crate::domain::network::{PolicyRule, Verdict};
use crate::domain::profile::Profile;
use crate::policy::explain::{Origin, Origins};

/// Where configuration is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigDirs {
    /// `$XDG_CONFIG_HOME/lazaret`.
    pub config: PathBuf,
    /// The developer's home directory, for `~`.
    pub home: PathBuf,
}

impl ConfigDirs {
    /// Gives the directories that the environment names.
    pub fn from_environment() -> Result<Self, ConfigError> {
        Self::from_variables(|name| std::env::var_os(name))
    }

    /// Gives the directories that variables name. A relative path counts as unset, as the XDG base
    /// directory specification has it.
    pub fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = absolute("HOME");
        let base = absolute("XDG_CONFIG_HOME").or_else(|| Some(home.as_ref()?.join(".config")));
        let base = base.ok_or(ConfigError::NoHome)?;
        Ok(Self { config: base.join("lazaret"), home: home.unwrap_or_else(|| PathBuf::from("/")) })
    }

    /// Gives the file with what applies to all profiles.
    pub fn common_file(&self) -> PathBuf {
        self.config.join("config.toml")
    }

    /// Gives the directory of profiles.
    pub fn profiles(&self) -> PathBuf {
        self.config.join("profiles")
    }

    /// Gives a profile's file.
    pub fn profile_file(&self, name: &ProfileName) -> PathBuf {
        self.profiles().join(format!("{name}.toml"))
    }

    /// Gives the place where a value comes from, with the home directory as `~`.
    pub fn place(&self, origin: &Origin) -> String {
        match origin {
            Origin::File { path, line } => match path.strip_prefix(&self.home) {
                Ok(below) => format!("~/{}:{line}", below.display()),
                Err(_) => origin.to_string(),
            },
            Origin::Default => origin.to_string(),
        }
    }

    /// Gives the place where a rule of a derived policy is written; of one that was derived from something else, what that is.
    pub fn because(&self, rule: &PolicyRule, origins: &Origins) -> String {
        let key = match rule.verdict {
            Verdict::Permit => "network.allow",
            Verdict::Deny => "network.deny",
        };
        match origins.of(key, &rule.prefix.to_string()) {
            Origin::Default => rule.origin.clone(),
            written => self.place(&written),
        }
    }

    /// Gives the names of the profiles that exist, in order.
    pub fn profile_names(&self) -> Result<Vec<ProfileName>, ConfigError> {
        Ok(self.profile_files()?.iter().filter_map(|path| profile_name(path)).collect())
    }

    /// Gives the TOML files in the directory of profiles, in order.
    fn profile_files(&self) -> Result<Vec<PathBuf>, ConfigError> {
        let path = self.profiles();
        let fail = |source| ConfigError::Read { path: path.clone(), source };
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(fail(error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let file = entry.map_err(fail)?.path();
            // Editors leave hidden files beside the one they edit.
            let hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if !hidden && file.extension().is_some_and(|extension| extension == "toml") {
                files.push(file);
            }
        }
        files.sort();
        Ok(files)
    }
}

/// A profile that was loaded and found valid.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The profile.
    pub profile: Profile,
    /// The files that were read for it.
    pub files: Vec<PathBuf>,
    /// The volumes' host paths as written, symbolic links unresolved, in the order of the volumes.
    pub volume_paths: Vec<PathBuf>,
    /// Where each of its values comes from.
    pub origins: Origins,
}

/// What `config.toml` says, validated as far as it can be without a profile.
#[derive(Debug)]
struct Common {
    shaped: Option<Shaped<RawCommon>>,
    default_profile: Option<ProfileName>,
}

/// Gives the profile that `config.toml` makes the default one.
pub fn default_profile(dirs: &ConfigDirs) -> Result<Option<ProfileName>, ConfigError> {
    Ok(load_common(dirs)?.default_profile)
}

/// Loads a profile: the one that is named, or else `default_profile`, or else the only one there is.
pub fn load_profile(dirs: &ConfigDirs, asked: Option<&ProfileName>) -> Result<Loaded, ConfigError> {
    let common = load_common(dirs)?;
    let known = dirs.profile_names()?;
    let name = match (asked.or(common.default_profile.as_ref()), known.as_slice()) {
        (Some(name), _) => name,
        (None, [only]) => only,
        (None, []) if common.shaped.is_none() => return Err(ConfigError::Nothing { directory: dirs.config.clone() }),
        (None, _) => return Err(ConfigError::NoneChosen { known }),
    };
    let path = dirs.profile_file(name);
    let Some(file) = SourceFile::read(&path)? else {
        if asked.is_none() {
            default_exists(dirs, &common, &known)?;
        }
        if known.is_empty() && common.shaped.is_none() {
            return Err(ConfigError::Nothing { directory: dirs.config.clone() });
        }
        return Err(ConfigError::NoSuchProfile { name: name.clone(), path, known });
    };
    validate_profile(dirs, name, file, common.shaped.as_ref())
}

/// Validates one profile's text as if it had been read; for tests and for `init`.
pub fn validate_profile(
    dirs: &ConfigDirs,
    name: &ProfileName,
    file: SourceFile,
    common: Option<&Shaped<RawCommon>>,
) -> Result<Loaded, ConfigError> {
    let raw: RawProfile = raw::read(&file, Place::Profile)?;
    let own = Shaped { file, raw };
    let mut notes = Notes::default();
    let profile = validate::profile(name, &own, common, &dirs.home, &mut notes);
    let mut files = vec![own.file.path().to_owned()];
    files.extend(common.map(|common| common.file.path().to_owned()));
    match (Problems::collect(notes.problems), profile) {
        (Some(problems), _) => Err(ConfigError::Invalid(problems)),
        (None, Some(profile)) => {
            Ok(Loaded { profile, files, volume_paths: notes.volume_paths, origins: notes.origins })
        }
        (None, None) => Err(invalid(own.file.problem(0..0, "this profile cannot be used", "write it anew"))),
    }
}

fn invalid(problem: error::Problem) -> ConfigError {
    ConfigError::Invalid(Problems::one(problem))
}

fn load_common(dirs: &ConfigDirs) -> Result<Common, ConfigError> {
    let path = dirs.common_file();
    let Some(file) = SourceFile::read(&path)? else { return Ok(Common { shaped: None, default_profile: None }) };
    let raw: RawCommon = raw::read(&file, Place::Common)?;
    let mut notes = Notes::default();
    let default_profile = raw.default_profile.as_ref().and_then(|name| {
        let help = "write the name of a file in profiles/ without its '.toml', such as \"claude\"";
        let read = name.get_ref().parse::<ProfileName>().map_err(|error| Wrong::new(error.to_string(), help));
        notes.take(&file, name, read)
    });
    match Problems::collect(notes.problems) {
        Some(problems) => Err(ConfigError::Invalid(problems)),
        None => Ok(Common { shaped: Some(Shaped { file, raw }), default_profile }),
    }
}

/// What `lazaret config check` found in one file.
#[derive(Debug)]
pub struct Checked {
    /// The file.
    pub path: PathBuf,
    /// The profile, or what is wrong.
    pub result: Result<Option<Loaded>, ConfigError>,
}

/// Checks every configuration file there is: `config.toml`, and each profile together with it.
pub fn check_all(dirs: &ConfigDirs) -> Result<Vec<Checked>, ConfigError> {
    let names = dirs.profile_names()?;
    let (common, verdict) = match load_common(dirs) {
        Ok(common) => {
            let verdict = default_exists(dirs, &common, &names);
            (common.shaped, verdict)
        }
        Err(error) => (None, Err(error)),
    };
    let mut checked = Vec::new();
    if common.is_some() || verdict.is_err() {
        checked.push(Checked { path: dirs.common_file(), result: verdict.map(|()| None) });
    }
    for path in stray_files(dirs)? {
        checked.push(Checked { result: Err(ConfigError::NotAProfile { path: path.clone() }), path });
    }
    for name in &names {
        let path = dirs.profile_file(name);
        let result = match SourceFile::read(&path) {
            Ok(Some(file)) => validate_profile(dirs, name, file, common.as_ref()).map(Some),
            Ok(None) => continue,
            Err(error) => Err(error),
        };
        checked.push(Checked { path, result });
    }
    match checked.is_empty() {
        true => Err(ConfigError::Nothing { directory: dirs.config.clone() }),
        false => Ok(checked),
    }
}

/// Gives the TOML files among the profiles whose names no profile can have.
fn stray_files(dirs: &ConfigDirs) -> Result<Vec<PathBuf>, ConfigError> {
    let mut stray = dirs.profile_files()?;
    stray.retain(|path| profile_name(path).is_none());
    Ok(stray)
}

fn profile_name(path: &Path) -> Option<ProfileName> {
    path.file_stem()?.to_str()?.parse().ok()
}

fn default_exists(dirs: &ConfigDirs, common: &Common, names: &[ProfileName]) -> Result<(), ConfigError> {
    match (&common.default_profile, &common.shaped) {
        (Some(name), Some(Shaped { file, raw })) if !names.contains(name) => {
            let span = raw.default_profile.as_ref().map_or(0..0, toml::Spanned::span);
            let message = format!("there is no profile '{name}' in {}", dirs.profiles().display());
            let known: Vec<_> = names.iter().map(ProfileName::as_str).collect();
            let help = match keys::nearest(name.as_str(), &known) {
                Some(near) => format!("did you mean '{near}'?"),
                None => format!("profiles that exist: {}", known.join(", ")),
            };
            Err(invalid(file.problem(span, message, help)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
