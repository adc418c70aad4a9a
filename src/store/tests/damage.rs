//! Stores whose files were torn or altered behind our back: opened, they give a document that was once committed, or
//! are refused by name and stay as they are.

use std::fmt::Debug;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;

use super::Home;
use super::catalog::Storage;
use crate::core::catalog::CatalogState;
use crate::core::generation::GenerationDocument;
use crate::core::generation::fixtures::{domain, life};
use crate::domain::ids::Generation;
use crate::store::{Catalog, CatalogError, DomainStore, FileError, StoreError};

/// The size of redb's pages, and of what a disk may write apart.
const PAGE: usize = 4096;
const SECTOR: usize = 512;

/// A store's file as it was after each transaction, and what it held then.
struct Past<T>(Vec<(Vec<u8>, T)>);

static DOMAIN_STORE: LazyLock<Past<Option<GenerationDocument>>> = LazyLock::new(|| {
    let home = Home::new();
    let mut past = Vec::new();
    for transaction in life(1) {
        home.open().apply(&transaction).unwrap();
        past.push((std::fs::read(home.store()).unwrap(), home.open().document().cloned()));
    }
    Past(past)
});

static CATALOG: LazyLock<Past<CatalogState>> = LazyLock::new(|| {
    let storage = Storage::new();
    let id = storage.prepare("debian", 1);
    let mut past = Vec::new();
    for generation in 1..=6 {
        Catalog::open(&storage.root).unwrap().acquire_lease(&domain(), Generation(generation), &id).unwrap();
        let content = std::fs::read(storage.root.catalog()).unwrap();
        past.push((content, Catalog::open(&storage.root).unwrap().state().clone()));
    }
    Past(past)
});

impl<T: PartialEq + Debug> Past<T> {
    fn newest(&self) -> &[u8] {
        &self.0.last().unwrap().0
    }

    /// Opens a store with this content, and checks what comes of it.
    fn expect(
        &self,
        content: &[u8],
        path: &Path,
        open: impl Fn() -> Result<T, FileError>,
    ) -> Result<(), TestCaseError> {
        std::fs::write(path, content).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        match open() {
            Ok(found) => prop_assert!(self.0.iter().any(|(_, held)| *held == found), "never committed: {found:#?}"),
            Err(error) => {
                let damaged = matches!(
                    error,
                    FileError::Corrupt { .. }
                        | FileError::Record { .. }
                        | FileError::Read { .. }
                        | FileError::Newer { .. }
                );
                prop_assert!(damaged && error.to_string().contains(&path.display().to_string()), "{error:?}");
                prop_assert!(std::fs::read(path).unwrap() == content, "a refused file was changed: {error}");
            }
        }
        Ok(())
    }

    fn flipped(&self, bits: &[usize]) -> Vec<u8> {
        let mut content = self.newest().to_vec();
        for bit in bits {
            let bit = bit % (content.len() * 8);
            content[bit / 8] ^= 1 << (bit % 8);
        }
        content
    }

    /// Gives one file put together of two, piece by piece.
    fn torn(&self, first: usize, second: usize, size: usize, pieces: &[bool]) -> Vec<u8> {
        let of = |number: usize| &self.0[number % self.0.len()].0;
        let (old, mut content) = (of(first), of(second).clone());
        for (number, piece) in content.chunks_mut(size).enumerate() {
            let at = number * size;
            if pieces[number % pieces.len()] && at + piece.len() <= old.len() {
                piece.copy_from_slice(&old[at..at + piece.len()]);
            }
        }
        content
    }
}

fn expect_domain_store(content: &[u8]) -> Result<(), TestCaseError> {
    let home = Home::new();
    DOMAIN_STORE.expect(content, &home.store(), || match DomainStore::open(&home.store(), &domain()) {
        Ok(store) => Ok(store.document().cloned()),
        Err(StoreError::File(error)) => Err(error),
        Err(other) => panic!("{other}"),
    })
}

fn expect_catalog(content: &[u8]) -> Result<(), TestCaseError> {
    let storage = Storage::new();
    CATALOG.expect(content, &storage.root.catalog(), || match Catalog::open(&storage.root) {
        Ok(catalog) => Ok(catalog.state().clone()),
        Err(CatalogError::File(error)) => Err(error),
        Err(other) => panic!("{other}"),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bits_are_noticed(bits in vec(any::<usize>(), 1..5)) {
        expect_domain_store(&DOMAIN_STORE.flipped(&bits))?;
        expect_catalog(&CATALOG.flipped(&bits))?;
    }

    #[test]
    fn a_torn_file_is_noticed(
        first: usize,
        second: usize,
        size in prop_oneof![Just(SECTOR), Just(PAGE)],
        pieces in vec(any::<bool>(), 64),
    ) {
        expect_domain_store(&DOMAIN_STORE.torn(first, second, size, &pieces))?;
        expect_catalog(&CATALOG.torn(first, second, size, &pieces))?;
    }
}

/// The header, by which everything else is found, is 320 bytes long.
#[test]
fn the_header_is_guarded() {
    for bit in (0..320 * 8).step_by(7) {
        expect_domain_store(&DOMAIN_STORE.flipped(&[bit])).unwrap_or_else(|error| panic!("bit {bit}: {error}"));
    }
}
