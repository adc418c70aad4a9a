//! The derived network policy and the probe plan.
