//! The executable inside the sandbox. See [`lazaret::guest`].
#![cfg_attr(not(test), no_main)]

#[cfg(not(test))]
lazaret::guest_main!(lazaret::guest::run);
