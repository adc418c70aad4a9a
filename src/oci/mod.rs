//! Images: references, registries, layouts, archives, blobs, and unpacking into prepared lowers.
//!
//! An image goes through these modules in order:
//!
//! ```text
//! reference  text → ImageSource
//! source     ImageSource → where its manifest and blobs are read (registry | layout | archive)
//! container  the directory or tar file that a layout or archive lies in
//! manifest   which manifest is for the platform; its configuration and layers, checked
//! blobs      every blob verified by digest into the store that images share
//! layers     layer tars are read (never unpacked) for the accounts and the uncompressed digests
//! accounts   USER → numbers, by the image's own /etc/passwd and /etc/group
//! unpack     umoci, in the mapped namespaces, applies the layers
//! ```
//!
//! All bytes of an image are hostile input: every size is bounded before it is read, names from
//! it never become paths of ours, and nothing here follows a link that an image contains.

pub mod accounts;
pub mod archive;
pub mod blobs;
pub mod container;
pub mod credentials;
pub mod decode;
pub mod digest;
pub mod docker_archive;
pub mod layers;
pub mod layout;
pub mod manifest;
pub mod platform;
pub mod reference;
pub mod registry;
pub mod resolved;
pub mod source;
pub mod tree;
pub mod unpack;
pub mod untrusted;
