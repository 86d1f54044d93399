//! The parts of `millpond`: `run`, `record`, `replay`, `stat`, `top`, `metrics`, `remote`, `doctor`, `help`, and what
//! they share with `millpond-bench`.

mod arch;
pub mod bench;
pub mod command;
pub mod curve;
pub mod doctor;
pub mod dormancy;
pub mod figures;
pub mod help;
pub mod machine;
pub mod metrics;
pub mod numbers;
pub mod page;
pub mod print;
pub mod record;
pub mod remote;
pub mod replay;
pub mod run;
pub mod sibling;
pub mod size;
pub mod stat;
pub mod top;
pub mod ways;
