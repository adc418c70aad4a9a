//! The network probe inside the sandbox (FR-20): what the policy says, tried.
//!
//! Nothing here waits for a timeout when the policy holds. What a *denied* address must not do is
//! looked at a moment after everything else has answered; what must answer, answers on the link.
//!
//! | attempt at a denied address | what shows that it is held back |
//! | :--- | :--- |
//! | route: a connected UDP socket | its own address is a loopback one: the deny route was taken |
//! | TCP connection, nothing special | neither established nor refused: no packet came back |
//! | UDP and TCP bound to the device, UDP with `IP_PKTINFO` | see below |
//!
//! A socket that names the device skips the deny routes on `lo`. The policy's `prohibit` rule then
//! leaves it no route, and the IPv4 stack takes the destination for a neighbour on the link (ip(7)
//! says nothing of it; seen on Linux 6.18), where nobody answers for it. Such a datagram waits for
//! the neighbour in the kernel and stays charged to its socket, so a socket with the smallest send
//! buffer is **not writable** any more. Had it been given to the gateway, whose address was
//! resolved by the echo just before, it would be gone and the socket writable at once. One `poll`
//! tells the two apart, without any packet leaving the sandbox when the policy holds.

mod answers;
mod denied;
mod dns;
mod echo;
mod sockets;
mod verdict;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use answers::Answers;
use denied::Batch;
use sockets::Link;
use verdict::Verdict;

use crate::domain::network::{LINK, LINK_V6, ProbeObservation, ProbePlan, ProbeReport};

/// How long packets to denied addresses get to show themselves once all else has answered.
const GRACE: Duration = Duration::from_millis(5);

/// How long the first look at denied addresses waits for the gateway's echo.
const ECHO_PATIENCE: Duration = Duration::from_millis(250);

/// How many denied addresses are tried at the same time; each takes four descriptors.
const BATCH: usize = 48;

/// Tries everything that the plan names and reports what was seen.
pub fn run(plan: &ProbePlan) -> ProbeReport {
    let start = Instant::now();
    let deadline = start + Duration::from_millis(plan.deadline_ms);
    let mut observations = Vec::new();

    let mut answers = Answers::open(plan);
    let link = Link::find(&plan.device);
    let mut batches = plan.denied.chunks(BATCH);
    let first = Batch::open(batches.next().unwrap_or_default(), &link);
    let routed = plan.routed.iter().map(|&address| {
        observation(format!("permit {address} (route)"), verdict::routed(sockets::source(address), own(address)))
    });
    let routed: Vec<_> = routed.collect();

    answers.advance(deadline.min(start + ECHO_PATIENCE), Answers::echoed);
    answers.advance(deadline.min(Instant::now() + GRACE), |_| false);
    let links = first.look_at_links();
    let mut later = Vec::new();
    for addresses in batches {
        let batch = Batch::open(addresses, &link);
        answers.advance(Instant::now() + GRACE, |_| false);
        let links = batch.look_at_links();
        later.extend(batch.judge(links));
    }
    answers.advance(deadline, Answers::complete);

    observations.extend(first.judge(links));
    observations.extend(later);
    observations.extend(routed);
    observations.extend(answers.judge());
    let elapsed_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    ProbeReport { observations, elapsed_us }
}

/// Gives the enforcement namespace's own address on the link, in an address's family.
fn own(address: IpAddr) -> IpAddr {
    if address.is_ipv4() { LINK.own.into() } else { LINK_V6.0.into() }
}

/// Gives a verdict as an observation.
fn observation(subject: String, Verdict { holds, seen }: Verdict) -> ProbeObservation {
    ProbeObservation { subject, holds, seen }
}
