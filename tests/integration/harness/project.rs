//! A sample Git project.

use std::path::{Path, PathBuf};

use anyhow::Result;
use fs_err as fs;

use super::command::Invocation;

/// Makes a Git repository with a few files and commits.
pub fn make(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory.join("src"))?;
    fs::write(directory.join("README.md"), "# sample\n")?;
    fs::write(directory.join("src/main.py"), "print('hello from the sample project')\n")?;
    fs::write(directory.join(".gitignore"), "build/\n*.log\nnode_modules/\n.venv/\n")?;
    git(directory, &["init", "--quiet", "--initial-branch=main"])?;
    for (key, value) in [("user.name", "Test Developer"), ("user.email", "developer@example.invalid")] {
        git(directory, &["config", key, value])?;
    }
    git(directory, &["add", "."])?;
    git(directory, &["commit", "--quiet", "--message", "sample project"])?;
    Ok(())
}

/// Runs host Git in the project, without the developer's own configuration, and gives its output.
pub fn git(directory: &Path, arguments: &[&str]) -> Result<String> {
    let git = Invocation::new("git").args(arguments).directory(directory);
    let git = git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    Ok(git.run()?.ok()?.stdout())
}

/// Lists every path below the directory with type, mode, size and content digest, sorted, so that
/// two states can be compared. Timestamps are left out.
pub fn inventory(directory: &Path) -> Result<Vec<String>> {
    use sha2::{Digest, Sha256};
    use std::os::unix::fs::MetadataExt;
    let mut lines = Vec::new();
    let mut pending: Vec<PathBuf> = vec![directory.to_owned()];
    while let Some(path) = pending.pop() {
        let metadata = fs::symlink_metadata(&path)?;
        let content = if metadata.is_file() {
            hex::encode(Sha256::digest(fs::read(&path)?))
        } else if metadata.is_symlink() {
            fs::read_link(&path)?.display().to_string()
        } else {
            String::new()
        };
        if metadata.is_dir() {
            for entry in fs::read_dir(&path)? {
                pending.push(entry?.path());
            }
        }
        let name = path.strip_prefix(directory)?.display();
        lines.push(format!("{name} {:o} {}:{} {content}", metadata.mode(), metadata.uid(), metadata.gid()));
    }
    lines.sort();
    Ok(lines)
}
