//! What a build contains, by its cargo features.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

/// Without a feature what it does for tests is not there, not even the name of the variable that asks for it.
#[test]
fn only_test_builds_fail_and_tell_on_demand() {
    for executable in [env!("CARGO_BIN_EXE_lazaret"), env!("CARGO_BIN_EXE_lazaret-guest")] {
        let content = std::fs::read(executable).unwrap();
        let names = |text: &str| content.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(names("lazaret"), "{executable} has readable text");
        for (variable, built) in
            [("LAZARET_FAULT", cfg!(feature = "fault-injection")), ("LAZARET_TRACE", cfg!(feature = "protocol-trace"))]
        {
            assert_eq!(names(variable), built && executable.ends_with("lazaret"), "{variable} in {executable}");
        }
    }
}
