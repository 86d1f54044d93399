//! The settings of a run, in one place for all who read or write them.
//!
//! # The way of a setting
//! ```text
//! --store file:/fast          MILLPOND_STORE=file:/fast            StoreKind::File { .. }
//!        │                       │            │                        ▲
//!        ▼                       │            ▼                        │
//!   millpond run ──▶ Settings ───┘        Settings ──▶ the library in each process
//! ```
//! `millpond run` turns its options into [`Settings`], and [`Settings::variables`] turns these into environment
//! variables: variables also reach the programs that the program starts. In each process the preloaded library reads
//! them by [`Settings::read`] and builds its memory from what it finds. Both directions use the rows of
//! [`variables::TABLE`], so a setting that one side writes is a setting that the other side reads. The pages of the
//! documentation that list the variables are made from the same rows ([`pages`]).
//!
//! # The text of a setting
//! Each setting is one type, with one text form: `Display` writes it, `FromStr` reads it, and the error names the text
//! and what it could have been. The text is the same as an option's value, in a variable, and in the structure of the C
//! library. [`DeliveryChoice`], [`OnStoreFull`], [`Switch`] and [`Tell`] are words ([`word`]), and [`StoreChoice`] is a
//! word or a path. `OrderPolicy`, `Delivery` and `Mask` are types of the crates below, which have their text forms
//! there.
//!
//! # Where it may run
//! The preloaded library reads the settings in its constructor, before the C library has its own environment. So
//! [`Settings::read`] gets the variables from its caller and asks the environment for nothing. It allocates: nothing
//! here is for the path of a fault.

pub mod pages;
mod settings;
mod store;
pub mod variables;
pub mod word;

pub use settings::{BadVariable, Record, Settings};
pub use store::{BadStore, StoreChoice};
pub use word::{BadWord, DeliveryChoice, OnStoreFull, Switch, Tell, Word};
