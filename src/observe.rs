//! The only place that builds a tracing subscriber.
