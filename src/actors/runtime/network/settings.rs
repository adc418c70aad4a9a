//! The enforcement namespace's kernel settings, below `/proc/sys` (proc(5)).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::error::NetworkError;
use crate::domain::network::Ipv6;
use crate::policy::enforcement::{Setting, link_settings, settings};

/// Leaves out the settings of an address family that the kernel does not have at all.
pub(super) fn applicable(settings: Vec<Setting>) -> Vec<Setting> {
    let has_ipv6 = Path::new("/proc/sys/net/ipv6").is_dir();
    settings.into_iter().filter(|setting| has_ipv6 || !setting.path.starts_with("net/ipv6/")).collect()
}

/// Gives a setting its value, unless it has it already.
pub(super) fn apply(setting: &Setting) -> Result<(), NetworkError> {
    let path = file(setting);
    let present = std::fs::read_to_string(&path).map(|text| normal(&text));
    if present.is_ok_and(|value| value == setting.value) {
        return Ok(());
    }
    std::fs::write(&path, &setting.value).map_err(|source| NetworkError::Setting { path, source })
}

/// Reads back every setting that the policy names.
pub(super) fn read(ipv6: Ipv6) -> Result<BTreeSet<Setting>, NetworkError> {
    let read = |setting: Setting| {
        let path = file(&setting);
        let text = std::fs::read_to_string(&path).map_err(|source| NetworkError::Setting { path, source })?;
        Ok(Setting { value: normal(&text), ..setting })
    };
    applicable(settings(ipv6).into_iter().chain(link_settings(ipv6)).collect()).into_iter().map(read).collect()
}

fn file(setting: &Setting) -> PathBuf {
    Path::new("/proc/sys").join(&setting.path)
}

/// Gives a setting's text with its fields separated by single spaces.
fn normal(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
