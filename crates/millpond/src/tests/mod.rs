//! Tests that see more than a user does.

mod end_of_manager;
mod provoked;
mod slow_load;
