//! Commands that hints name: each does what it says from any directory, as it is printed.

use crate::cli::output;
use crate::domain::ids::{DomainId, ProfileName};
use crate::domain::workspace::Workspace;

/// Gives a command on one sandbox, such as `lazaret down d-…`.
pub fn on(command: &str, domain: &DomainId) -> String {
    format!("lazaret {command} {domain}")
}

/// Says where to read what happened to a sandbox.
pub fn logs(domain: &DomainId) -> String {
    format!("see what happened: {}", on("logs", domain))
}

/// Gives the command that starts a sandbox: the one of a profile, or of the default one, in a workspace,
/// or in the project around the current directory.
pub fn up(profile: Option<&ProfileName>, workspace: Option<&Workspace>) -> String {
    let profile = profile.map(|profile| format!(" -p {profile}")).unwrap_or_default();
    let workspace = workspace.map(|workspace| format!(" --workspace {}", output::word(workspace.path())));
    format!("lazaret up{profile}{}", workspace.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_what_it_is_about() {
        let profile: ProfileName = "claude".parse().unwrap();
        let workspace = Workspace::from_canonical("/home/dev/it's here".into());
        assert_eq!(up(None, None), "lazaret up");
        assert_eq!(up(Some(&profile), Some(&workspace)), r"lazaret up -p claude --workspace '/home/dev/it'\''s here'");
        let domain = DomainId::derive(&profile, workspace.path());
        assert_eq!(on("down --yes", &domain), format!("lazaret down --yes {domain}"));
    }
}
