//! Tests that see more than a user of the crate does.

mod end_of_manager;
mod failing_file;
mod observed;
mod provoked;
mod slow_load;
mod spare_excess;
mod stale_look;
mod streams;
mod write_back;
