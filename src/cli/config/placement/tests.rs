use std::fs::create_dir_all;
use std::os::unix::fs::symlink;

use super::*;
use crate::cli::config::{ConfigDirs, load_profile};

/// A home directory with configuration, storage and runtime directories, and a project.
struct Host {
    #[expect(dead_code, reason = "removes the directory when dropped")]
    directory: tempfile::TempDir,
    home: PathBuf,
}

impl Host {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().canonicalize().unwrap();
        for path in [".config/lazaret/profiles", "data/lazaret/domains", "run/lazaret", "src/project/.git/hooks"] {
            create_dir_all(home.join(path)).unwrap();
        }
        std::fs::write(home.join(".config/lazaret/config.toml"), "").unwrap();
        Self { directory, home }
    }

    fn check(&self, workspace: &str, volumes: &[&str]) -> Result<(), PlacementError> {
        let config = self.home.join(".config/lazaret");
        let mut text = "image = \"debian\"\n".to_owned();
        for (index, volume) in volumes.iter().enumerate() {
            text.push_str(&format!("[[volumes]]\nhost = \"~/{volume}\"\nguest = \"/v{index}\"\naccess = \"rw\"\n"));
        }
        let file = config.join("profiles/p.toml");
        if file.symlink_metadata().is_err() {
            std::fs::write(&file, text).unwrap();
        }
        let dirs = ConfigDirs { config, home: self.home.clone() };
        let loaded = load_profile(&dirs, None).unwrap_or_else(|error| panic!("{:?}", error.records()));
        let workspace = Workspace::from_canonical(self.home.join(workspace).canonicalize().unwrap());
        let (storage, runtime) = (self.home.join("data/lazaret"), self.home.join("run/lazaret"));
        let places = HostPlaces { config: &dirs.config, storage: &storage, runtime: &runtime };
        check_placement(&loaded, &workspace, places)
    }
}

#[test]
fn a_project_beside_lazarets_own_directories_is_fine() {
    let host = Host::new();
    create_dir_all(host.home.join("cache")).unwrap();
    host.check("src/project", &["cache"]).unwrap();
}

#[test]
fn a_workspace_around_or_in_lazarets_own_directories_is_refused() {
    let host = Host::new();
    let error = host.check("", &[]).unwrap_err();
    assert!(matches!(&error, PlacementError::Configuration { mounted: Mounted::Workspace(_), .. }));
    assert!(error.hint().contains("project directory below"), "{}", error.hint());
    assert!(matches!(host.check("/", &[]), Err(PlacementError::Configuration { .. })));
    assert!(matches!(host.check(".config", &[]), Err(PlacementError::Configuration { .. })));
    for around in ["data", "data/lazaret", "run", "run/lazaret"] {
        assert!(matches!(host.check(around, &[]), Err(PlacementError::Contains { .. })), "{around}");
    }
    let within = host.check("data/lazaret/domains", &[]).unwrap_err();
    assert!(matches!(within, PlacementError::LiesWithin { .. }));
    assert!(within.hint().contains("elsewhere"));
}

#[test]
fn volumes_are_held_to_the_same() {
    for (volume, expected) in
        [(".config/lazaret/profiles", "configuration"), ("data", "contains"), ("run/lazaret", "contains")]
    {
        let error = Host::new().check("src/project", &[volume]).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.to_string().contains("the volume"), "{error}");
    }
    for volume in ["src", "src/project"] {
        let error = Host::new().check("src/project", &[volume]).unwrap_err();
        assert!(matches!(error, PlacementError::Unprotected { .. }), "{volume}: {error}");
    }
}

#[test]
fn nothing_that_the_sandbox_can_replace_decides_what_is_mounted() {
    for volume in ["src/project/.git", "src/project/.git/hooks"] {
        let error = Host::new().check("src/project", &[volume]).unwrap_err();
        assert!(matches!(error, PlacementError::Replaceable { .. }), "{volume}: {error}");
    }
    // A sandbox that has put a link in the place of a directory gains nothing by it.
    let host = Host::new();
    create_dir_all(host.home.join("secrets")).unwrap();
    symlink(host.home.join("secrets"), host.home.join("src/project/cache")).unwrap();
    assert!(matches!(host.check("src/project", &["src/project/cache"]), Err(PlacementError::Replaceable { .. })));

    let host = Host::new();
    create_dir_all(host.home.join("data2/inner")).unwrap();
    let error = host.check("src/project", &["data2", "data2/inner"]).unwrap_err();
    assert!(error.hint().contains("\"ro\""), "{error}: {}", error.hint());
    let host = Host::new();
    create_dir_all(host.home.join("data2")).unwrap();
    host.check("src/project", &["data2", "data2"]).unwrap();
}

#[test]
fn links_hide_nothing() {
    let host = Host::new();
    symlink(host.home.join("data"), host.home.join("link")).unwrap();
    assert!(matches!(host.check("src/project", &["link"]), Err(PlacementError::Contains { .. })));

    // The configuration file is a link into the project.
    let host = Host::new();
    std::fs::write(host.home.join("src/project/p.toml"), "image = \"debian\"\n").unwrap();
    symlink("../../../src/project/p.toml", host.home.join(".config/lazaret/profiles/p.toml")).unwrap();
    let error = host.check("src/project", &[]).unwrap_err();
    assert!(
        matches!(&error, PlacementError::Configuration { file, .. } if file.ends_with("src/project/p.toml")),
        "{error}"
    );

    // The file itself lies elsewhere, but a link on the way to it is in the project.
    let host = Host::new();
    std::fs::write(host.home.join("real.toml"), "image = \"debian\"\n").unwrap();
    symlink("../../real.toml", host.home.join("src/project/step.toml")).unwrap();
    symlink(host.home.join("src/project/step.toml"), host.home.join(".config/lazaret/profiles/p.toml")).unwrap();
    let error = host.check("src/project", &[]).unwrap_err();
    assert!(matches!(&error, PlacementError::Configuration { file, .. } if file.ends_with("step.toml")), "{error}");

    // The Storage Root does not exist yet, and would be made through a link out of the project.
    let host = Host::new();
    std::fs::remove_dir_all(host.home.join("data")).unwrap();
    create_dir_all(host.home.join("src/project/data")).unwrap();
    symlink(host.home.join("src/project/data"), host.home.join("data")).unwrap();
    assert!(matches!(host.check("src/project", &[]), Err(PlacementError::Contains { .. })));
}

#[test]
fn a_loop_of_links_is_an_error_and_not_a_hang() {
    let directory = tempfile::tempdir().unwrap();
    symlink("b", directory.path().join("a")).unwrap();
    symlink("a", directory.path().join("b")).unwrap();
    assert!(matches!(trail(&directory.path().join("a")), Err(PlacementError::Resolve { .. })));
}
