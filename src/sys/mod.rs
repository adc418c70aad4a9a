//! The unsafe fence: every system call that needs `unsafe`, and the kernel interfaces around it.
#![allow(unsafe_code)]
