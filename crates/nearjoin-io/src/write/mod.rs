//! Results into files, while they are found.
