//! Tests that see more than a user of the crate does.

mod end_of_manager;
mod provoked;
mod slow_load;
