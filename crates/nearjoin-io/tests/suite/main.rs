//! Everything that is read and written, checked through the public door.

mod read_columns;
mod read_csv;
mod read_damage;
mod read_door;
mod read_make;
mod read_npy;
mod write_arrays;
mod write_check;
mod write_ids;
mod write_pairs;
mod write_target;
