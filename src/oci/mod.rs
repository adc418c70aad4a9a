//! Images: references, fetching, layouts, archives, blobs, and unpacking into prepared lowers.
