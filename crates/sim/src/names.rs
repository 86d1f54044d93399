//! The names of variants, for coverage.
//!
//! Each function is one exhaustive `match`: a variant that is added to the contract does not compile here until it
//! has a name, and the coverage test then asks the simulator to produce it.

use millpond_core::{Command, Event, FreeMode, Outcome, Refusal, Reply};

/// Every command, by name.
pub const COMMANDS: [&str; 18] = [
    "Zero",
    "Load",
    "Fold",
    "Copy",
    "Read",
    "WriteBack",
    "Rescue",
    "TakeOut",
    "TakeOutLeaf",
    "Clear",
    "Look",
    "TakeOutIfBlank",
    "Save",
    "Zap",
    "FreeFrame",
    "Release",
    "Wake",
    "Poison",
];
/// Every outcome, by name.
pub const OUTCOMES: [&str; 18] = [
    "Installed",
    "InstallSplit",
    "InstallGone",
    "LoadFailed",
    "TakenOut",
    "TakenOutBlank",
    "Cleared",
    "Blank",
    "Written",
    "TakeOutBusy",
    "TakeOutImmovable",
    "Stored",
    "Unchanged",
    "AllZero",
    "StoreFull",
    "StoreFailed",
    "Zapped",
    "Poisoned",
];
/// Every event, by name.
pub const EVENTS: [&str; 39] = [
    "CreateGroup",
    "SetGroupLimits",
    "RemoveGroup",
    "MoveRegion",
    "ReclaimGroup",
    "CreateRegion",
    "DropRegion",
    "Snapshot",
    "Remap",
    "Resize",
    "Detach",
    "Merge",
    "Fault",
    "Completed",
    "LeafTakenOut",
    "LeafTakenOut, not",
    "TakeLeaves",
    "FrameFreed",
    "SlotReleased",
    "Reclaim",
    "Discard",
    "LazyFree shared",
    "LazyFree exclusive",
    "LazyFree zeroed",
    "LazyFree stored",
    "LazyFree cleared",
    "TrimLazyFree",
    "GiveFreedBack",
    "RecountLazyFree",
    "Purge",
    "Pin",
    "Unpin",
    "Advise",
    "Protected",
    "SetLimit",
    "SetRefaultCost",
    "SetFileCost",
    "Tick",
    "RetryStore",
];

/// What workingset detection did.
pub const WORKINGSET: [&str; 8] = [
    "refault",
    "activate",
    "restore",
    "shadows only",
    "reuse",
    "looked at for the curve",
    "spared by more memory",
    "dropped behind",
];

/// Replies and refusals that a run must produce. Not all: records are plenty here, and the order of
/// checks hides some refusals behind others.
pub const REPLIES: [&str; 28] = [
    "ReclaimGroup",
    "Group",
    "UnknownGroup",
    "GroupInUse",
    "BadLimits",
    "TooDeep",
    "Done",
    "More",
    "Wait",
    "WaitForBase",
    "Detached",
    "NeedsResident",
    "Present",
    "Reclaim",
    "Scattered",
    "Seen",
    "Region",
    "BadRange",
    "OutsideRegion",
    "NoAddressSpace",
    "UnknownRegion",
    "RegionInUse",
    "FileBacked",
    "Busy",
    "Pinned",
    "NotPinned",
    "PinOverflow",
    "Poisoned",
];
/// Every fault that the simulated world can inject.
pub const INJECTED: [&str; 11] = [
    "gone",
    "copied",
    "busy",
    "load failed",
    "store full",
    "save failed",
    "impossible",
    "late fault",
    "closed neighbours",
    "book in use",
    "no place to drop",
];
/// Every answer of a call that more than the core has a part in.
pub const ANSWERS: [&str; 18] = [
    "free refused",
    "mark refused",
    "survived",
    "purged",
    "purged, but pinned",
    "gather waits",
    "gathered in parts",
    "a leaf was told in parts",
    "a leaf that could not leave was told in parts",
    "spare frames gathered",
    "discard gathers a slot",
    "discard gathers a run",
    "a run was waited for",
    "several leaves at once",
    "left behind by copies, gathered",
    "in pieces, gathered",
    "a leaf was put out for a stream",
    "all memory was held",
];

/// The name of an event's variant.
#[must_use]
pub fn event(event: &Event) -> &'static str {
    match event {
        Event::CreateRegion { .. } => "CreateRegion",
        Event::DropRegion { .. } => "DropRegion",
        Event::Snapshot { .. } => "Snapshot",
        Event::Remap { .. } => "Remap",
        Event::Resize { .. } => "Resize",
        Event::Detach { .. } => "Detach",
        Event::Merge { .. } => "Merge",
        Event::Fault { .. } => "Fault",
        Event::Completed { .. } => "Completed",
        Event::LeafTakenOut { taken: true, .. } => "LeafTakenOut",
        Event::LeafTakenOut { taken: false, .. } => "LeafTakenOut, not",
        Event::TakeLeaves { .. } => "TakeLeaves",
        Event::FrameFreed { .. } => "FrameFreed",
        Event::SlotReleased { .. } => "SlotReleased",
        Event::CreateGroup { .. } => "CreateGroup",
        Event::SetGroupLimits { .. } => "SetGroupLimits",
        Event::RemoveGroup { .. } => "RemoveGroup",
        Event::MoveRegion { .. } => "MoveRegion",
        Event::Reclaim { .. } => "Reclaim",
        Event::ReclaimGroup { .. } => "ReclaimGroup",
        Event::Discard { .. } => "Discard",
        Event::LazyFree { mode, .. } => match mode {
            FreeMode::Shared => "LazyFree shared",
            FreeMode::Exclusive => "LazyFree exclusive",
            FreeMode::Zeroed => "LazyFree zeroed",
            FreeMode::Stored => "LazyFree stored",
            FreeMode::Cleared => "LazyFree cleared",
        },
        Event::TrimLazyFree => "TrimLazyFree",
        Event::GiveFreedBack { .. } => "GiveFreedBack",
        Event::RecountLazyFree { .. } => "RecountLazyFree",
        Event::Purge { .. } => "Purge",
        Event::Pin { .. } => "Pin",
        Event::Unpin { .. } => "Unpin",
        Event::Advise { .. } => "Advise",
        Event::Protected { .. } => "Protected",
        Event::SetLimit { .. } => "SetLimit",
        Event::SetRefaultCost { .. } => "SetRefaultCost",
        Event::SetFileCost { .. } => "SetFileCost",
        Event::Tick => "Tick",
        Event::RetryStore => "RetryStore",
    }
}

/// The name of a reply's variant.
#[must_use]
pub fn reply(reply: &Reply) -> &'static str {
    match reply {
        Reply::Done => "Done",
        Reply::More { .. } => "More",
        Reply::Wait { .. } => "Wait",
        Reply::WaitForBase { .. } => "WaitForBase",
        Reply::Detached { .. } => "Detached",
        Reply::NeedsResident { .. } => "NeedsResident",
        Reply::Present => "Present",
        Reply::Reclaim { .. } => "Reclaim",
        Reply::Scattered { .. } => "Scattered",
        Reply::ReclaimGroup { .. } => "ReclaimGroup",
        Reply::Seen { .. } => "Seen",
        Reply::Region { .. } => "Region",
        Reply::Group { .. } => "Group",
        Reply::Refused(why) => match why {
            Refusal::BadRange => "BadRange",
            Refusal::OutsideRegion => "OutsideRegion",
            Refusal::NoAddressSpace => "NoAddressSpace",
            Refusal::UnknownRegion => "UnknownRegion",
            Refusal::FileBacked => "FileBacked",
            Refusal::RegionInUse => "RegionInUse",
            Refusal::Busy => "Busy",
            Refusal::Pinned { .. } => "Pinned",
            Refusal::NotPinned { .. } => "NotPinned",
            Refusal::PinOverflow { .. } => "PinOverflow",
            Refusal::Poisoned { .. } => "Poisoned",
            Refusal::UnknownGroup => "UnknownGroup",
            Refusal::GroupInUse => "GroupInUse",
            Refusal::BadLimits => "BadLimits",
            Refusal::TooDeep => "TooDeep",
            Refusal::TooManyGroups => "TooManyGroups",
            Refusal::OutOfRecords => "OutOfRecords",
        },
    }
}

/// The name of a command's variant.
#[must_use]
pub fn command(command: &Command) -> &'static str {
    match command {
        Command::Zero { .. } => "Zero",
        Command::Load { .. } => "Load",
        Command::Fold { .. } => "Fold",
        Command::Copy { .. } => "Copy",
        Command::Read { .. } => "Read",
        Command::WriteBack { .. } => "WriteBack",
        Command::Rescue { .. } => "Rescue",
        Command::TakeOut { .. } => "TakeOut",
        Command::TakeOutLeaf { .. } => "TakeOutLeaf",
        Command::Clear { .. } => "Clear",
        Command::Look { .. } => "Look",
        Command::TakeOutIfBlank { .. } => "TakeOutIfBlank",
        Command::Save { .. } => "Save",
        Command::Zap { .. } => "Zap",
        Command::FreeFrame { .. } => "FreeFrame",
        Command::Release { .. } => "Release",
        Command::Wake { .. } => "Wake",
        Command::Poison { .. } => "Poison",
    }
}

/// The name of an outcome's variant.
#[must_use]
pub fn outcome(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Installed { .. } => "Installed",
        Outcome::InstallSplit { .. } => "InstallSplit",
        Outcome::InstallGone { .. } => "InstallGone",
        Outcome::LoadFailed { .. } => "LoadFailed",
        Outcome::TakenOut => "TakenOut",
        Outcome::TakenOutBlank => "TakenOutBlank",
        Outcome::Cleared => "Cleared",
        Outcome::Blank => "Blank",
        Outcome::Written => "Written",
        Outcome::TakeOutBusy => "TakeOutBusy",
        Outcome::TakeOutImmovable => "TakeOutImmovable",
        Outcome::Stored => "Stored",
        Outcome::Unchanged => "Unchanged",
        Outcome::AllZero => "AllZero",
        Outcome::StoreFull => "StoreFull",
        Outcome::StoreFailed => "StoreFailed",
        Outcome::Zapped => "Zapped",
        Outcome::Poisoned => "Poisoned",
    }
}
