//! The whole core as one system, walked through: what the modules of `core` decide is carried out on a world
//! of sets, in every order that the actors could do it in, with crashes in between.
//!
//! [`system`] holds the state and its steps, [`coordinator`] and [`supervisor`] what these do in them, and
//! [`invariants`] what must hold in each state; an invariant has the name that it has in `protocol/Lazaret.tla`.

mod coordinator;
mod invariants;
mod key;
mod supervisor;
mod system;

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use system::{Bounds, Step, System};

/// Walks through every state that can be reached, and checks each. Gives how many there are.
fn walk(bounds: Bounds) -> usize {
    let first = System::new(bounds);
    let mut numbers = HashMap::from([(first.key(), 0usize)]);
    // For each state whence it came, and by which step: the way to a state that breaks an invariant.
    let mut ways: Vec<Option<(usize, Step)>> = vec![None];
    // For each state the states that lead to it without a fault.
    let mut before: Vec<Vec<usize>> = vec![vec![]];
    let mut resting = vec![];
    let mut queue = VecDeque::from([(0, first)]);
    while let Some((number, system)) = queue.pop_front() {
        if let Err(broken) = invariants::check(&system) {
            panic!("{broken}\n{}\n{system:#?}", way_to(&ways, number));
        }
        if system.rests() {
            resting.push(number);
        }
        for step in system.steps() {
            let next = system.clone().take(&step);
            let fresh = numbers.len();
            let found = *numbers.entry(next.key()).or_insert(fresh);
            if found == fresh {
                ways.push(Some((number, step.clone())));
                before.push(vec![]);
                queue.push_back((fresh, next));
            }
            if !step.is_fault() {
                before[found].push(number);
            }
        }
    }
    // From everywhere a generation's end can be reached without another fault.
    let mut ends = vec![false; before.len()];
    let mut open = resting;
    while let Some(number) = open.pop() {
        if !std::mem::replace(&mut ends[number], true) {
            open.extend(&before[number]);
        }
    }
    if let Some(stuck) = ends.iter().position(|ends| !ends) {
        panic!("no end can be reached\n{}", way_to(&ways, stuck));
    }
    numbers.len()
}

fn way_to(ways: &[Option<(usize, Step)>], mut number: usize) -> String {
    let mut steps = vec![];
    while let Some((from, step)) = &ways[number] {
        steps.push(format!("{step:?}"));
        number = *from;
    }
    steps.reverse();
    steps.join("\n")
}

#[test]
fn every_state_of_a_generation_that_may_crash_keeps_the_invariants() {
    let states = walk(Bounds { crashes: 1, strangers: 1, sessions: 0, generations: 1, failures: 1 });
    println!("{states} states");
    assert!(states > 100_000, "{states}");
}

#[test]
fn every_state_of_a_session_keeps_the_invariants() {
    let states = walk(Bounds { crashes: 1, strangers: 0, sessions: 1, generations: 1, failures: 0 });
    println!("{states} states");
    assert!(states > 15_000, "{states}");
}

proptest! {
    /// Long lives of many generations, with any crashes, end clean or name what is not theirs.
    #[test]
    fn any_schedule_keeps_the_invariants(choices in prop::collection::vec(any::<prop::sample::Index>(), 1500)) {
        let bounds = Bounds { crashes: 6, strangers: 2, sessions: 6, generations: 4, failures: 3 };
        let mut system = System::new(bounds);
        let mut taken = vec![];
        for choice in choices {
            let steps = system.steps();
            if steps.is_empty() {
                break;
            }
            let step = choice.get(&steps);
            taken.push(format!("{step:?}"));
            system = system.take(step);
            let kept = invariants::check(&system);
            prop_assert!(kept.is_ok(), "{}\n{}\n{system:#?}", kept.unwrap_err(), taken.join("\n"));
        }
        // Without further faults, and when everybody goes home, it comes to rest.
        for _ in 0..2000 {
            let steps = system.steps();
            let Some(step) = steps.iter().find(|step| step.is_homeward()) else { break };
            system = system.take(step);
            prop_assert!(invariants::check(&system).is_ok());
        }
        prop_assert!(system.rests(), "{}\n{system:#?}", taken.join("\n"));
    }
}
