//! The durable generation document as `status --json` shows it; the schema is in docs/cli.md.

use std::os::unix::ffi::OsStrExt;

use serde::Serialize;

use crate::core::generation::{
    Decision, GenerationDocument, Intent, LeaseRelease, Ownership, Participant, SessionRecord, Target,
};
use crate::domain::escaped::escape;
use crate::domain::ownership::{MountIdentity, NamespaceIdentity, PathIdentity, ProcessIdentity};

/// A generation document.
#[derive(Debug, Serialize)]
pub struct DocumentView {
    /// The decision about the whole.
    pub decision: &'static str,
    /// When the generation began, seconds since the epoch.
    pub began: i64,
    /// The Host Coordinator's process.
    pub leader: ProcessIdentity,
    /// The Network Sidecar role instance.
    pub sidecar: String,
    /// The readiness fingerprint; absent before the network is attested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness: Option<String>,
    /// Whether the probe inside the sandbox found the policy to hold; absent before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_holds: Option<bool>,
    /// How far the release of the prepared-lower lease is.
    pub lease_release: &'static str,
    /// Every external resource.
    pub participants: Vec<ParticipantView>,
    /// Recorded sessions.
    pub sessions: Vec<SessionRecordView>,
}

/// One external resource.
#[derive(Debug, Serialize)]
pub struct ParticipantView {
    /// Which.
    pub name: &'static str,
    /// The sandbox path, where there may be one for each of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// How far it is.
    pub state: &'static str,
    /// The host path that is intended, escaped, for one that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What was made, exactly, while it is owned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ownership: Option<OwnershipView>,
}

/// What was made, exactly.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OwnershipView {
    /// A process.
    Process(ProcessIdentity),
    /// A namespace.
    Namespace(NamespaceIdentity),
    /// A mount in the Runtime Supervisor's mount namespace.
    Mount(MountIdentity),
    /// What lies at the path.
    Path(PathIdentity),
    /// A lease in the Storage Catalog.
    Lease {
        /// The artifact that is leased.
        artifact: String,
    },
}

/// One recorded session.
#[derive(Debug, Serialize)]
pub struct SessionRecordView {
    /// The session.
    pub id: String,
    /// The client; absent while the session is prepared and nobody has registered for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Seconds since the epoch.
    pub registered: i64,
    /// Its `runsc exec` client; absent while it is only intended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<ProcessIdentity>,
    /// Its process in the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_pid: Option<i32>,
}

impl From<&GenerationDocument> for DocumentView {
    fn from(document: &GenerationDocument) -> Self {
        let identity = &document.identity;
        Self {
            decision: match document.decision {
                Decision::Starting => "starting",
                Decision::Published => "published",
                Decision::TearingDown => "tearing_down",
                Decision::Recovering => "recovering",
                Decision::Clean => "clean",
            },
            began: identity.began_at,
            leader: identity.leader.clone(),
            sidecar: identity.sidecar.to_string(),
            readiness: document.readiness.as_ref().map(|attested| attested.fingerprint.to_string()),
            probe_holds: document.probe.as_ref().map(|probe| probe.failures().next().is_none()),
            lease_release: match document.release {
                LeaseRelease::NotBegun => "not_begun",
                LeaseRelease::Intended => "intended",
                LeaseRelease::Unmounted => "unmounted",
                LeaseRelease::Deleted => "deleted",
            },
            participants: document.participants.iter().map(ParticipantView::from).collect(),
            sessions: document.sessions.values().map(SessionRecordView::from).collect(),
        }
    }
}

impl From<(&Participant, &Intent)> for ParticipantView {
    fn from((participant, intent): (&Participant, &Intent)) -> Self {
        let (name, at) = match participant {
            Participant::RuntimeDirectory => ("runtime_directory", None),
            Participant::Scratch => ("scratch", None),
            Participant::Lease => ("lease", None),
            Participant::RuntimeSupervisor => ("runtime_supervisor", None),
            Participant::Helper => ("helper", None),
            Participant::NetworkNamespace => ("network_namespace", None),
            Participant::RootMount => ("root_mount", None),
            Participant::AnchorMount(path) => ("anchor_mount", Some(path.to_string())),
            Participant::WorkspaceMount => ("workspace_mount", None),
            Participant::VolumeMount(path) => ("volume_mount", Some(path.to_string())),
            Participant::Runsc => ("runsc", None),
            Participant::Socket => ("socket", None),
            Participant::Publication => ("publication", None),
        };
        let path = |target: &Target| target.path().map(|path| escape(path.as_os_str().as_bytes()));
        let (state, path, ownership) = match intent {
            Intent::Intended(target) => ("intended", path(target), None),
            Intent::Owned { target, ownership } => ("owned", path(target), Some(OwnershipView::from(ownership))),
            Intent::Released => ("released", None, None),
        };
        Self { name, at, state, path, ownership }
    }
}

impl From<&Ownership> for OwnershipView {
    fn from(ownership: &Ownership) -> Self {
        match ownership.clone() {
            Ownership::Process(process) => Self::Process(process),
            Ownership::Namespace(namespace) => Self::Namespace(namespace),
            Ownership::Mount(mount) => Self::Mount(mount),
            Ownership::Path(path) => Self::Path(path),
            Ownership::Artifact(artifact) => Self::Lease { artifact: artifact.to_string() },
        }
    }
}

impl From<&SessionRecord> for SessionRecordView {
    fn from(record: &SessionRecord) -> Self {
        Self {
            id: record.id.to_string(),
            client: record.client.as_ref().map(ToString::to_string),
            registered: record.registered_at,
            exec: record.process.as_ref().map(|process| process.exec.clone()),
            guest_pid: record.process.as_ref().map(|process| process.guest_pid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::generation::Change;
    use crate::core::generation::fixtures::{accept, beginning, serving};
    use serde_json::{Value, json};

    fn view(document: &GenerationDocument) -> Value {
        serde_json::to_value(DocumentView::from(document)).unwrap()
    }

    fn named<'a>(view: &'a Value, name: &str) -> &'a Value {
        view["participants"].as_array().unwrap().iter().find(|participant| participant["name"] == name).unwrap()
    }

    #[test]
    fn a_serving_generation_shows_what_it_owns() {
        let view = view(&serving());
        let process = |pid: i32| json!({"pid": pid, "start_time": 1000 + pid, "boot_id": "1".repeat(8) + "-1111-1111-1111-" + &"1".repeat(12)});
        assert_eq!((&view["decision"], &view["lease_release"]), (&json!("published"), &json!("not_begun")));
        assert_eq!((&view["leader"], &view["probe_holds"]), (&process(10), &json!(true)));
        let mut supervisor = process(20);
        supervisor["kind"] = "process".into();
        assert_eq!(
            *named(&view, "runtime_supervisor"),
            json!({"name": "runtime_supervisor", "state": "owned", "ownership": supervisor})
        );
        assert_eq!(
            *named(&view, "anchor_mount"),
            json!({
                "name": "anchor_mount", "at": "/root", "state": "owned",
                "ownership": {"kind": "mount", "target": "/s/anchors/root", "mount_id": 52, "device": 40},
            })
        );
        assert_eq!(
            *named(&view, "scratch"),
            json!({
                "name": "scratch", "state": "owned", "path": "/data/domains/d/scratch-1",
                "ownership": {"kind": "path", "device": 1, "inode": 101, "born": 1_700_000_000_000_000_101_i64},
            })
        );
        assert_eq!(named(&view, "lease")["ownership"]["kind"], "lease");
        assert_eq!(
            named(&view, "network_namespace")["ownership"],
            json!({"kind": "namespace", "device": 4, "inode": 4_026_532_000_u32})
        );
        assert_eq!(
            view["sessions"],
            json!([{"id": "1".repeat(32), "client": "1".repeat(32), "registered": 1_700_000_001, "exec": process(30), "guest_pid": 7}])
        );
    }

    #[test]
    fn what_is_intended_or_gone_shows_no_ownership() {
        let begun = accept(None, &beginning(1));
        let shown = view(&begun);
        assert_eq!(*named(&shown, "helper"), json!({"name": "helper", "state": "intended"}));
        assert_eq!((shown.get("readiness"), shown.get("probe_holds")), (None, None));
        let released = accept(
            Some(begun),
            &[Change::BeginTearDown(crate::core::lifecycle::EndReason::Down), Change::Release(Participant::Helper)],
        );
        let shown = view(&released);
        assert_eq!(*named(&shown, "helper"), json!({"name": "helper", "state": "released"}));
        assert_eq!((&shown["decision"], &shown["lease_release"]), (&json!("tearing_down"), &json!("intended")));
    }
}
