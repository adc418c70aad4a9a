//! stub for compile
use crate::domain::artifact::*;
use crate::domain::layout::StorageRoot;
use crate::domain::profile::Profile;
use crate::wire::bootstrap::Progress;
pub struct PrepareRequest;
impl PrepareRequest {
    pub fn of_profile(_: &Profile, _: StorageRoot) -> Self {
        PrepareRequest
    }
}
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct PrepareError;
impl PrepareError {
    pub fn hints(&self) -> Vec<String> {
        vec![]
    }
}
pub async fn prepare(
    _: &PrepareRequest,
    _: &(dyn Fn(Progress) + Send + Sync),
) -> Result<ArtifactManifest, PrepareError> {
    Err(PrepareError)
}
