//! The OCI runtime specification of the Agent Sandbox.
