//! `lazaret-guest` runs in any image: it needs no dynamic loader and no file at all.

use std::time::Duration;

use anyhow::{Context, ensure};

use crate::harness::world::world;
use crate::harness::{Case, CaseResult, Invocation, Need, case, executable};

pub fn cases() -> Vec<Case> {
    vec![
        case("names_no_interpreter", &[], names_no_interpreter),
        case("runs_in_an_empty_root", &[Need::IdMaps], runs_in_an_empty_root),
    ]
}

/// Type of the program header that names the dynamic loader (elf(5)).
const PT_INTERP: u32 = 3;

fn names_no_interpreter() -> CaseResult {
    for executable in [world().guest(), world().lazaret()] {
        let image = fs_err::read(&executable)?;
        ensure!(image.starts_with(b"\x7fELF\x02\x01"), "{} is no 64-bit ELF file", executable.display());
        let half = |at: usize| u16::from_le_bytes([image[at], image[at + 1]]);
        let offset = u64::from_le_bytes(image[32..40].try_into()?);
        let (size, count) = (usize::from(half(54)), usize::from(half(56)));
        let headers = image.get(usize::try_from(offset)?..).context("no program headers")?.chunks(size).take(count);
        let kinds: Vec<_> =
            headers.map(|header| u32::from_le_bytes([header[0], header[1], header[2], header[3]])).collect();
        ensure!(kinds.len() == count && !kinds.contains(&PT_INTERP), "{} needs a loader", executable.display());
    }
    Ok(())
}

fn runs_in_an_empty_root() -> CaseResult {
    let root = tempfile::tempdir_in(world().base.join("c"))?;
    executable::copy(&world().guest(), &root.path().join("guest"))?;
    let unshare = Invocation::new("unshare").args(["--map-root-user", "--root"]).arg(root.path());
    // Outside a sandbox it only says so; that it can say it is what counts.
    let output = unshare.arg("/guest").deadline(Duration::from_secs(10)).run()?;
    output.expect_code(125)?.expect_stderr("lazaret: ")?;
    Ok(())
}
