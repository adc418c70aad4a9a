//! The files that `lazaret init` writes: every key, with its default and a word of explanation.

use crate::domain::ids::ProfileName;

/// A file of the starter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StarterFile {
    /// Path below the configuration directory.
    pub path: String,
    /// Content.
    pub content: String,
}

/// A profile of the starter: what its agent needs.
struct Agent {
    name: &'static str,
    title: &'static str,
    image: &'static str,
    /// The lines from `user` to `[env.set]`'s content.
    settings: &'static str,
    pass: &'static str,
    install: Option<&'static str>,
}

const AGENTS: [Agent; 3] = [
    Agent {
        name: "claude",
        title: "Claude Code, in an image with Node.js and Git.",
        image: "node:22-bookworm",
        settings: NODE_SETTINGS,
        pass: "\"ANTHROPIC_API_KEY\", \"LANG\"",
        install: Some("npm install -g @anthropic-ai/claude-code"),
    },
    Agent {
        name: "codex",
        title: "Codex, in an image with Node.js and Git.",
        image: "node:22-bookworm",
        settings: NODE_SETTINGS,
        pass: "\"OPENAI_API_KEY\", \"LANG\"",
        install: Some("npm install -g @openai/codex"),
    },
    Agent {
        name: "shell",
        title: "A plain shell in Debian, as root of the sandbox.",
        image: "debian:bookworm",
        settings: "",
        pass: "\"LANG\"",
        install: None,
    },
];

/// What an agent needs that is installed by npm below the user's home directory.
const NODE_SETTINGS: &str = "\
NPM_CONFIG_PREFIX = \"/home/node/.local\"
PATH = \"/home/node/.local/bin:/usr/local/bin:/usr/bin:/bin\"
";

/// The profile that the starter makes the default.
pub const DEFAULT_PROFILE: &str = "claude";

/// Gives all files of the starter.
pub fn files() -> Vec<StarterFile> {
    let common = StarterFile { path: "config.toml".to_owned(), content: COMMON.to_owned() };
    let profile =
        |agent: &Agent| StarterFile { path: format!("profiles/{}.toml", agent.name), content: profile(agent) };
    std::iter::once(common).chain(AGENTS.iter().map(profile)).collect()
}

/// Gives what to do next with the profiles of the starter, one command each with what it does.
pub fn next_steps() -> Vec<(String, &'static str)> {
    let mut steps = vec![
        ("lazaret doctor".to_owned(), "checks that this machine has what is needed"),
        ("lazaret config check".to_owned(), "after editing the profiles: image, user, command, what is granted"),
    ];
    let default = AGENTS.iter().find(|agent| agent.name == DEFAULT_PROFILE);
    if let Some(Agent { name, image, install, .. }) = default {
        steps.push((format!("lazaret image prepare {image}"), "fetches the image and unpacks it"));
        steps.extend(install.map(|line| {
            (format!("lazaret run -p {name} -- {line}"), "in your project: installs the agent, which stays")
        }));
        steps.push((format!("lazaret up -p {name}"), "in your project: opens a session with the profile's command"));
    }
    steps
}

/// Gives the names of the starter's profiles.
pub fn profile_names() -> Vec<ProfileName> {
    AGENTS.iter().filter_map(|agent| agent.name.parse().ok()).collect()
}

const COMMON: &str = r#"# Lazaret: what applies to all profiles. Each profile is a file in profiles/.
#
# Nothing in this file can widen what a profile grants: denials and hidden directories
# are added to the profile's own. 'lazaret config reference' explains every key,
# 'lazaret config check' validates, 'lazaret config show' tells where each grant comes from.

# The profile that is used when none is named.
default_profile = "claude"

# How long a sandbox stays after its last session ended. A profile may say otherwise.
# linger = "0s"

[network]
# Denied in every profile, besides the private ranges 10.0.0.0/8, 172.16.0.0/12 and
# 192.168.0.0/16, which are denied anyway:
#   169.254.0.0/16  link-local; on cloud machines the metadata service, which hands out credentials
#   100.64.0.0/10   shared address space: provider networks, and VPNs such as Tailscale
deny = ["169.254.0.0/16", "100.64.0.0/10"]

[workspace]
# Directories at a workspace's top that the sandbox gets an empty one of instead, since host
# tools obey what is in them. Only those that exist can be hidden.
hide = [".vscode", ".idea"]

# Commands that no profile may have run on the host, whatever follows them.
# [[escalation.deny]]
# command = ["/usr/bin/sudo"]
# args = "any"
"#;

fn profile(agent: &Agent) -> String {
    let Agent { name, title, image, settings, pass, install } = agent;
    let node = !settings.is_empty();
    let user = if node { "user = \"node\"" } else { "# user = \"NAME\"" };
    let command = if node { format!("command = [\"{name}\"]") } else { "# command = [\"bash\", \"-l\"]".to_owned() };
    let persistent = if node { "persistent = [\"/home/node\"]" } else { "persistent = [\"/root\"]" };
    let install = install.map_or(String::new(), |line| {
        format!("#\n# The agent is not in the image. Install it once in each project, where it stays, as its directory is persistent:\n#     lazaret run -p {name} -- {line}\n")
    });
    format!(
        r#"# {title}
{install}
# The base image: a registry reference, or "oci:DIR", "oci-archive:FILE", "docker-archive:FILE"
# relative to this file. 'lazaret image prepare' fetches it ahead of the first start.
image = "{image}"

# The user that sessions run as, who is you on the host. Default: the image's.
{user}

# What a session runs when no command is given. Default: the user's login shell.
{command}

# Sandbox directories that persist. Everything else is as in the image again at each start.
# Default: none.
{persistent}

# How long the sandbox stays after its last session ended. Default: config.toml's, or "0s".
# linger = "0s"

[env]
# Variables of yours that sessions get, by name. Default: none.
pass = [{pass}]

[env.set]
# Variables with fixed values.
{settings}
# Host paths in the sandbox. They must exist; access is "ro" unless it is "rw".
# [[volumes]]
# host = "~/reference"
# guest = "/reference"
# access = "ro"

[network]
# Everything is permitted but the private ranges and what is denied here and in config.toml.
# A permission must be more specific than the denial it is an exception from.
# allow = ["10.1.2.0/24"]
# deny = []

# Resolvers; permitted even in denied ranges. Default: the host's, wherever it listens.
# dns = []

# IPv6, under an equal policy. Default: off.
# ipv6 = false

# What must hold besides the policy itself before a start counts as one. Default: nothing, so that
# starting works offline.
# [network.probe]
# resolve = ["example.org"]
# connect = ["198.51.100.7:443"]
# denied = ["10.9.0.1"]

[workspace]
# The default, true, keeps Git-ignored paths (node_modules, .venv, build results) apart from the
# host's. This version can't do that yet and shares them, which only 'false' agrees to.
isolate_ignored = false

# Directories at the workspace's top to hide, besides those in config.toml. Default: none.
# hide = []

# What may run on the host without asking: exactly these words, args = "any" to let more follow.
# [[escalation.allow]]
# command = ["/usr/bin/gh", "pr", "view"]
# args = "none"
# directory = "~/project"
# timeout = "60s"

# What is refused without asking. Denials win.
# [[escalation.deny]]
# command = ["/usr/bin/gh", "repo", "delete"]
# args = "any"

[limits]
# Default: none, but for /tmp and /dev/shm, which are held in memory and have this size each.
# open_files = 65536
# processes = 4096
# memory = "8GiB"
# file_size = "16GiB"
# tmp = "512MiB"
"#
    )
}
