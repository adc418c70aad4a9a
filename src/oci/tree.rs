//! What layers leave at a few paths of an image: whiteouts, replaced parents, links. No IO but reading entries.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

use tar::EntryType;

/// Largest account file that is read, in bytes.
pub const FILE_LIMIT: u64 = 256 << 10;

/// Most links that are followed to an account file.
pub const LINK_LIMIT: usize = 8;

/// A path in the image without leading slash, components cleaned.
pub type ImagePath = Vec<u8>;

/// What a layer has at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Directory,
    /// A file with its content.
    File(Vec<u8>),
    /// A symbolic link's target as it stands, or a hard link's, made absolute.
    Link(Vec<u8>),
    /// Something else.
    Other,
}

/// What one layer does to the paths of interest.
#[derive(Debug, Default)]
pub struct Changes {
    removed: BTreeSet<ImagePath>,
    opaque: BTreeSet<ImagePath>,
    nodes: BTreeMap<ImagePath, Node>,
    /// The highest user id that owns something in the layer.
    pub highest_uid: u64,
    /// The highest group id that owns something in the layer.
    pub highest_gid: u64,
}

/// A file that is looked for can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// It is larger than any real account file.
    #[error("the image's /{0} is larger than {FILE_LIMIT} bytes")]
    LargeFile(String),
    /// It is something else.
    #[error("the image's /{0} is neither a file nor a link to one")]
    NotAFile(String),
    /// Links lead nowhere.
    #[error("the image's /{0} is a link that leads through more than {LINK_LIMIT} others")]
    LinkLoop(String),
}

/// Where the search for one file stands.
pub struct Search {
    name: String,
    at: ImagePath,
    links: usize,
    found: Option<Vec<u8>>,
}

impl Search {
    /// Begins the search for a path without leading slash.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), at: name.into(), links: 0, found: None }
    }

    /// Gives the content once the search has ended; empty when there is no such file.
    pub fn found(&self) -> Option<&[u8]> {
        self.found.as_deref()
    }

    /// Gives the path that is looked for and its parents, or nothing when it is found.
    pub fn interests(&self) -> Vec<ImagePath> {
        if self.found.is_some() { Vec::new() } else { self.parents().chain([self.at.clone()]).collect() }
    }

    fn parents(&self) -> impl Iterator<Item = ImagePath> {
        self.at.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| self.at[..end].to_vec())
    }

    /// Looks at the merged layers: finds the file, or finds it missing, or learns of a link to follow.
    pub fn advance(&mut self, view: &BTreeMap<ImagePath, Node>) -> Result<(), SearchError> {
        if self.found.is_some() {
            return Ok(());
        }
        for parent in self.parents().collect::<Vec<_>>() {
            match view.get(&parent) {
                None | Some(Node::Directory) => {}
                Some(Node::Link(target)) => return self.follow(&parent, &target.clone()),
                Some(Node::File(_) | Node::Other) => {
                    self.found = Some(Vec::new());
                    return Ok(());
                }
            }
        }
        match view.get(&self.at) {
            None => self.found = Some(Vec::new()),
            Some(Node::File(content)) if content.len() as u64 > FILE_LIMIT => {
                return Err(SearchError::LargeFile(self.name.clone()));
            }
            Some(Node::File(content)) => self.found = Some(content.clone()),
            Some(Node::Link(target)) => return self.follow(&self.at.clone(), &target.clone()),
            Some(Node::Directory | Node::Other) => return Err(SearchError::NotAFile(self.name.clone())),
        }
        Ok(())
    }

    /// Continues where the link at `link`, on the way or at its end, points.
    fn follow(&mut self, link: &[u8], target: &[u8]) -> Result<(), SearchError> {
        self.links += 1;
        if self.links > LINK_LIMIT {
            return Err(SearchError::LinkLoop(self.name.clone()));
        }
        let parent = link.iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |end| &link[..end]);
        let rest = &self.at[link.len()..];
        let joined = if target.starts_with(b"/") { target.to_vec() } else { [parent, b"/", target].concat() };
        self.at = clean(&[joined.as_slice(), rest].concat());
        Ok(())
    }
}

/// Lays the layers' changes over each other.
pub fn merge(layers: &[Changes], interests: &BTreeSet<ImagePath>) -> BTreeMap<ImagePath, Node> {
    let mut view = BTreeMap::new();
    for layer in layers {
        for path in interests {
            if layer.hides(path) {
                view.remove(path);
            }
            if let Some(node) = layer.nodes.get(path) {
                view.insert(path.clone(), node.clone());
            }
        }
    }
    view
}

impl Changes {
    /// Tells whether what lower layers have at the path is gone.
    fn hides(&self, path: &[u8]) -> bool {
        let parents = || (0..path.len()).filter(|end| path[*end] == b'/').map(|end| &path[..end]);
        let replaced = |parent: &[u8]| self.nodes.get(parent).is_some_and(|node| *node != Node::Directory);
        self.removed.contains(path)
            || self.opaque.contains(&b""[..])
            || parents().any(|parent| self.removed.contains(parent) || self.opaque.contains(parent) || replaced(parent))
    }
}

/// Cleans a path: no leading slash, no `.` and empty components, `..` clamped at the root.
fn clean(path: &[u8]) -> ImagePath {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}

impl Changes {
    /// Notes what a tar entry does to the paths of interest.
    pub fn note<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>, interests: &BTreeSet<ImagePath>) -> io::Result<()> {
        let path = clean(&entry.path_bytes());
        let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(end) => (&path[..end], &path[end + 1..]),
            None => (&b""[..], &path[..]),
        };
        if name == b".wh..wh..opq" {
            if parent.is_empty() || interests.contains(parent) {
                self.opaque.insert(parent.to_vec());
            }
            return Ok(());
        }
        if let Some(hidden) = name.strip_prefix(b".wh.") {
            let hidden = if parent.is_empty() { hidden.to_vec() } else { [parent, b"/", hidden].concat() };
            if interests.contains(&hidden) {
                self.removed.insert(hidden);
            }
            return Ok(());
        }
        if entry.header().entry_type() != EntryType::XGlobalHeader {
            // Some writers leave the fields empty, which umoci reads as 0.
            self.highest_uid = self.highest_uid.max(entry.header().uid().unwrap_or(0));
            self.highest_gid = self.highest_gid.max(entry.header().gid().unwrap_or(0));
        }
        if interests.contains(&path) {
            let node = match entry.header().entry_type() {
                EntryType::Directory => Node::Directory,
                EntryType::Symlink => Node::Link(entry.link_name_bytes().unwrap_or_default().into_owned()),
                EntryType::Link => Node::Link([b"/", &*entry.link_name_bytes().unwrap_or_default()].concat()),
                EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                    let mut content = Vec::new();
                    entry.take(FILE_LIMIT + 1).read_to_end(&mut content)?;
                    Node::File(content)
                }
                EntryType::XGlobalHeader => return Ok(()),
                _ => Node::Other,
            };
            self.nodes.insert(path, node);
        }
        Ok(())
    }
}
