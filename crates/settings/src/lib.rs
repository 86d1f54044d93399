//! The settings of a run, in one place for everything that reads or writes them.
//!
//! # The path of a setting
//! ```text
//! --store file:/fast          MILLPOND_STORE=file:/fast            StoreKind::File { .. }
//!        │                       │            │                        ▲
//!        ▼                       │            ▼                        │
//!   millpond run ──▶ Settings ───┘        Settings ──▶ the library in each process
//! ```
//! `millpond run` turns its options into [`Settings`], and [`Settings::variables`] turns these into environment
//! variables, which also reach the programs that the program starts. In each process the preloaded library reads them
//! with [`Settings::read`] and builds its memory accordingly. Both directions use the rows of [`variables::TABLE`],
//! so each side reads every setting that the other side writes. The documentation pages that list the variables are
//! generated from the same rows ([`pages`]).
//!
//! # The text of a setting
//! Each setting is one type with one text form: `Display` writes it, `FromStr` reads it, and the error names the text
//! and the valid values. The text is the same in an option, in a variable, and in the C library's structure.
//! [`DeliveryChoice`], [`Engage`], [`OnStoreFull`], [`Switch`] and [`Tell`] are words ([`word`]), and [`StoreChoice`]
//! is a word or a path. `OrderPolicy`, `Delivery` and `Mask` are types of lower crates, which define their text forms.
//!
//! # Where it may run
//! The preloaded library reads the settings in its constructor, before the C library has set up the environment. So
//! [`Settings::read`] gets the variables from its caller and does not access the environment. It allocates, so it
//! must not run on the path of a fault.

pub mod pages;
mod settings;
mod store;
pub mod variables;
pub mod word;

pub use settings::{BadVariable, Record, Settings};
pub use store::{BadStore, StoreChoice};
pub use word::{BadWord, DeliveryChoice, Engage, OnStoreFull, Switch, Tell, Word};
