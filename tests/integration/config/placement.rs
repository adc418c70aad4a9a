//! What decides about a sandbox is out of that sandbox's reach (SR-2, SR-3): such a start is refused with
//! the way out, before anything begins.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use fs_err as fs;

use crate::harness::{Case, CaseResult, Environment, Invocation, Output, case};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("a_home_directory_is_no_workspace", &[], a_home_directory_is_no_workspace),
        case("configuration_in_the_workspace_is_refused", &[], configuration_in_the_workspace_is_refused),
        case("state_in_the_workspace_is_refused", &[], state_in_the_workspace_is_refused),
        case("a_volume_of_what_is_lazaret_s_is_refused", &[], a_volume_of_what_is_lazaret_s_is_refused),
        case("a_volume_may_not_open_the_workspace", &[], a_volume_may_not_open_the_workspace),
        case("a_volume_may_not_be_named_by_the_sandbox", &[], a_volume_may_not_be_named_by_the_sandbox),
        case("nothing_in_the_workspace_configures", &[], nothing_in_the_workspace_configures),
    ]
}

/// Demands that the start is refused with all of the texts, by both commands, and that nothing was begun.
fn refused(environment: &Environment, run: &Invocation, texts: &[&str]) -> Result<Output> {
    let output = run.run()?.expect_code(125)?;
    for text in texts {
        ensure!(output.stderr().contains(text), "no word of '{text}'\n{output}");
    }
    ensure!(output.stderr().contains("\nhint: "), "no way out is given\n{output}");
    ensure!(!environment.runtime().join("lazaret").exists(), "something was begun\n{output}");
    Ok(output)
}

fn run(environment: &Environment) -> Invocation {
    environment.lazaret(["run", "--", "true"])
}

fn a_home_directory_is_no_workspace() -> CaseResult {
    let environment = Environment::new()?;
    // As it is without XDG variables: everything below the home directory.
    let home = environment.home();
    fs::create_dir_all(home.join(".config"))?;
    fs::rename(environment.config().join("lazaret"), home.join(".config/lazaret"))?;
    let natural = |directory: &Path| {
        let run = run(&environment).without_env("XDG_CONFIG_HOME").without_env("XDG_DATA_HOME");
        run.directory(directory)
    };
    let shown = format!("the workspace {} holds the configuration file", home.display());
    let hint = format!("hint: run lazaret in a project directory below {}", home.display());
    refused(&environment, &natural(&home), &[&shown, &hint])?;
    symlink(&home, environment.directory().join("link"))?;
    refused(&environment, &natural(&environment.directory().join("link")), &[&shown])?;
    refused(&environment, &natural(Path::new("/")), &["the workspace / "])?;
    let named = environment.lazaret(["up", "--workspace", "..", "--", "true"]).without_env("XDG_CONFIG_HOME");
    refused(&environment, &named, &[&shown])?;
    // The directory of the configuration itself, and one in it.
    for below in [".config", ".config/lazaret", ".config/lazaret/profiles"] {
        refused(&environment, &natural(&home.join(below)), &["the workspace "])?;
    }
    Ok(())
}

fn configuration_in_the_workspace_is_refused() -> CaseResult {
    let environment = Environment::new()?;
    let (project, profiles) = (environment.project(), environment.config().join("lazaret/profiles"));
    // A profile that is a link into the workspace; a link that lies there; a directory that does.
    let kept = environment.home().join("kept.toml");
    fs::rename(profiles.join("test.toml"), &kept)?;
    fs::copy(&kept, project.join("profile.toml"))?;
    symlink(project.join("profile.toml"), profiles.join("test.toml"))?;
    refused(&environment, &run(&environment), &["holds the configuration file", "profile.toml"])?;
    fs::remove_file(profiles.join("test.toml"))?;
    symlink(&kept, project.join("link.toml"))?;
    symlink(project.join("link.toml"), profiles.join("test.toml"))?;
    refused(&environment, &run(&environment), &["holds the configuration file", "link.toml"])?;
    fs::remove_file(profiles.join("test.toml"))?;
    fs::rename(&kept, profiles.join("test.toml"))?;
    fs::rename(environment.config().join("lazaret"), project.join("dotfiles"))?;
    symlink(project.join("dotfiles"), environment.config().join("lazaret"))?;
    refused(&environment, &run(&environment), &["holds the configuration file", "dotfiles"])?;
    let elsewhere = run(&environment).env("XDG_CONFIG_HOME", project.join("config"));
    fs::create_dir(project.join("config"))?;
    fs::rename(project.join("dotfiles"), project.join("config/lazaret"))?;
    refused(&environment, &elsewhere, &["holds the configuration file"])?;
    Ok(())
}

fn state_in_the_workspace_is_refused() -> CaseResult {
    let environment = Environment::new()?;
    let project = environment.project();
    for (variable, what) in
        [("XDG_DATA_HOME", "Lazaret's Storage Root"), ("XDG_RUNTIME_DIR", "Lazaret's runtime directory")]
    {
        // Whether or not it exists already, and through a link as well.
        let inside = project.join("state");
        let contains = format!("the workspace {} contains {what}", project.display());
        refused(&environment, &run(&environment).env(variable, &inside), &[&contains])?;
        fs::create_dir_all(inside.join("lazaret"))?;
        refused(&environment, &run(&environment).env(variable, &inside), &[&contains])?;
        let link = environment.home().join("link");
        symlink(&inside, &link)?;
        refused(&environment, &run(&environment).env(variable, &link), &[&contains])?;
        fs::remove_file(&link)?;
        fs::remove_dir_all(&inside)?;
    }
    let within = environment.storage().path().join("project");
    fs::create_dir_all(&within)?;
    let lies = format!("lies in Lazaret's Storage Root, {}", environment.storage().path().display());
    refused(&environment, &run(&environment).directory(&within), &[&lies])?;
    fs::remove_dir(&within)?;
    Ok(())
}

fn with_volumes(environment: &Environment, volumes: &[(&Path, &str)]) -> Result<()> {
    let volume = |(number, (host, access)): (usize, &(&Path, &str))| {
        format!("[[volumes]]\nhost = \"{}\"\nguest = \"/v{number}\"\naccess = \"{access}\"\n", host.display())
    };
    environment.profile("test", &volumes.iter().enumerate().map(volume).collect::<String>())
}

fn a_volume_of_what_is_lazaret_s_is_refused() -> CaseResult {
    let environment = Environment::new()?;
    let link = environment.home().join("link");
    let storage = environment.storage().path().to_owned();
    fs::create_dir_all(&storage)?;
    let places: [(PathBuf, &str); 6] = [
        (environment.config(), "holds the configuration file"),
        (environment.config().join("lazaret/profiles/test.toml"), "holds the configuration file"),
        (environment.config().join("lazaret/config.toml"), "holds the configuration file"),
        (storage.parent().unwrap_or(&storage).to_owned(), "contains Lazaret's Storage Root"),
        (storage.clone(), "Lazaret's Storage Root"),
        (environment.runtime(), "contains Lazaret's runtime directory"),
    ];
    for (place, text) in places {
        for access in ["ro", "rw"] {
            with_volumes(&environment, &[(&place, access)])?;
            refused(&environment, &run(&environment), &["the volume ", text])?;
            symlink(&place, &link)?;
            with_volumes(&environment, &[(&link, access)])?;
            refused(&environment, &run(&environment), &["the volume ", text])?;
            fs::remove_file(&link)?;
        }
    }
    Ok(())
}

fn a_volume_may_not_open_the_workspace() -> CaseResult {
    let environment = Environment::new()?;
    let project = environment.project();
    for volume in [project.clone(), environment.home()] {
        with_volumes(&environment, &[(&volume, "ro")])?;
        refused(&environment, &run(&environment), &["contains the workspace", "without its protections"])?;
    }
    Ok(())
}

fn a_volume_may_not_be_named_by_the_sandbox() -> CaseResult {
    let environment = Environment::new()?;
    let (project, outside) = (environment.project(), environment.home().join("outside"));
    fs::create_dir_all(outside.join("inner"))?;
    let through = "where the sandbox could put a link to anything";
    with_volumes(&environment, &[(&project.join("src"), "ro")])?;
    refused(&environment, &run(&environment), &[through, "what is in the workspace is below /workspace already"])?;
    symlink(&outside, project.join("link"))?;
    with_volumes(&environment, &[(&project.join("link/inner"), "ro")])?;
    refused(&environment, &run(&environment), &[through])?;
    with_volumes(&environment, &[(&outside, "rw"), (&outside.join("inner"), "ro")])?;
    refused(&environment, &run(&environment), &[through, "make the outer volume \"ro\""])?;
    // With the outer one read-only there is nothing to fear, and only the missing image stops the start.
    with_volumes(&environment, &[(&outside, "ro"), (&outside.join("inner"), "rw")])?;
    environment.lazaret(["config", "check"]).run()?.ok()?;
    Ok(())
}

/// Every name under which tools look for project configuration, with content that would grant everything.
fn nothing_in_the_workspace_configures() -> CaseResult {
    let environment = Environment::new()?;
    let project = environment.project();
    let hostile = "image = \"oci:/hostile\"\ndefault_profile = \"hostile\"\n[network]\nallow = [\"0.0.0.0/0\"]\n";
    for name in
        [".lazaret.toml", "lazaret.toml", ".lazaret/config.toml", ".config/lazaret/config.toml", ".env", "config.toml"]
    {
        let path = project.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&project))?;
        fs::write(path, hostile)?;
    }
    let before = environment.lazaret(["config", "show", "--json"]).directory(environment.home()).run()?.ok()?;
    let inside = environment.lazaret(["config", "show", "--json"]).run()?.ok()?;
    ensure!(before.stdout == inside.stdout && !inside.stdout().contains("hostile"), "{inside}");
    Ok(())
}
