//! Every key that configuration files have, with its form: for help after a mistake, and checked
//! against the starter and the documentation by tests.

/// Which files a key belongs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// `profiles/NAME.toml`.
    Profile,
    /// `config.toml`.
    Common,
    /// Both.
    Both,
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its path, table names first.
    pub path: &'static str,
    /// Where it belongs.
    pub place: Place,
    /// What its value looks like, for a help line.
    pub form: &'static str,
}

const fn key(path: &'static str, place: Place, form: &'static str) -> Key {
    Key { path, place, form }
}

/// All keys.
pub const KEYS: [Key; 38] = [
    key("default_profile", Place::Common, "a profile's name, such as \"claude\""),
    key("image", Place::Profile, "text, such as \"debian:bookworm\", \"oci:./layout\" or \"oci-archive:./image.tar\""),
    key("user", Place::Profile, "text: \"NAME\", \"UID\", \"NAME:GROUP\" or \"UID:GID\""),
    key("command", Place::Profile, "a list of words, such as [\"claude\", \"--continue\"]"),
    key("persistent", Place::Profile, "a list of sandbox paths, such as [\"/home/agent\"]"),
    key("linger", Place::Both, "a time as text, such as \"30s\" or \"5m\""),
    key("env", Place::Profile, "a table with 'set' and 'pass'"),
    key("env.set", Place::Profile, "a table of texts, such as EDITOR = \"vim\""),
    key("env.pass", Place::Profile, "a list of variable names, such as [\"LANG\"]"),
    key("volumes", Place::Profile, "tables, each headed [[volumes]]"),
    key("volumes.host", Place::Profile, "an absolute host path, or one that begins with ~/"),
    key("volumes.guest", Place::Profile, "an absolute sandbox path"),
    key("volumes.access", Place::Profile, "\"ro\" or \"rw\""),
    key("network", Place::Both, "a table, headed [network]"),
    key("network.allow", Place::Profile, "a list of prefixes, such as [\"10.1.0.0/16\"]"),
    key("network.deny", Place::Both, "a list of prefixes, such as [\"169.254.0.0/16\"]"),
    key("network.dns", Place::Profile, "a list of addresses, such as [\"192.168.1.1\"]"),
    key("network.ipv6", Place::Profile, "true or false"),
    key("network.probe", Place::Profile, "a table, headed [network.probe]"),
    key("network.probe.resolve", Place::Profile, "a list of host names, such as [\"example.org\"]"),
    key("network.probe.connect", Place::Profile, "a list of ADDRESS:PORT, such as [\"198.51.100.7:443\"]"),
    key("network.probe.denied", Place::Profile, "a list of addresses, such as [\"10.9.0.1\"]"),
    key("workspace", Place::Both, "a table, headed [workspace]"),
    key("workspace.isolate_ignored", Place::Profile, "true or false"),
    key("workspace.hide", Place::Both, "a list of directory names, such as [\".vscode\"]"),
    key("escalation", Place::Both, "tables, each headed [[escalation.allow]] or [[escalation.deny]]"),
    key("escalation.allow", Place::Profile, "tables, each headed [[escalation.allow]]"),
    key("escalation.deny", Place::Both, "tables, each headed [[escalation.deny]]"),
    key("escalation.allow.command", Place::Profile, "a list: the executable's absolute path, then its arguments"),
    key("escalation.allow.args", Place::Profile, "\"none\" or \"any\": what may follow the command"),
    key("escalation.allow.directory", Place::Profile, "an absolute host directory, or one that begins with ~/"),
    key("escalation.allow.timeout", Place::Profile, "a time as text, such as \"60s\""),
    key("limits", Place::Profile, "a table, headed [limits]"),
    key("limits.open_files", Place::Profile, "a whole number, such as 65536"),
    key("limits.processes", Place::Profile, "a whole number, such as 4096"),
    key("limits.memory", Place::Profile, "a size as text, such as \"8GiB\""),
    key("limits.file_size", Place::Profile, "a size as text, such as \"4GiB\""),
    key("limits.tmp", Place::Profile, "a size as text, such as \"512MiB\""),
];

/// Gives the key at a path. Both kinds of escalation rules have the same keys.
pub fn find(path: &str) -> Option<&'static Key> {
    let path = path.replace("escalation.deny.", "escalation.allow.");
    KEYS.iter().find(|key| key.path == path)
}

/// Gives the candidate that a misspelt word most likely means, if any is near.
pub fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let distance = |candidate: &str| strsim::osa_distance(&word.to_lowercase(), candidate);
    let best = candidates.iter().copied().min_by_key(|candidate| distance(candidate))?;
    // A third of the word may be wrong; "xyz" is no misspelling of "env".
    (distance(best) <= (best.len().max(3) / 3).max(1)).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_words_are_proposed() {
        let known = ["image", "user", "env", "persistent", "volumes"];
        assert_eq!(nearest("imgae", &known), Some("image"));
        assert_eq!(nearest("Persistant", &known), Some("persistent"));
        assert_eq!(nearest("volume", &known), Some("volumes"));
        assert_eq!(nearest("xyz", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
