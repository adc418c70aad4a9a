//! Domain Store and Storage Catalog.
