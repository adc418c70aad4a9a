//! What a build contains, by its cargo features.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

/// Without the feature the variable that makes Lazaret fail is not looked at, as not even its name is there.
#[test]
fn only_test_builds_can_be_made_to_fail() {
    for executable in [env!("CARGO_BIN_EXE_lazaret"), env!("CARGO_BIN_EXE_lazaret-guest")] {
        let content = std::fs::read(executable).unwrap();
        let names = |text: &str| content.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(names("lazaret"), "{executable} has readable text");
        let expected = cfg!(feature = "fault-injection") && executable.ends_with("lazaret");
        assert_eq!(names("LAZARET_FAULT"), expected, "{executable}");
    }
}
