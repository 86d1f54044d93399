//! Why a process engaged: it began dormant, served by the kernel alone, and is managed now.

/// What made a process engage. The numbers stand in [`Field::EngagedFor`](crate::Field::EngagedFor).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum EngagedFor {
    /// Its memory might not have fit into its budget any more.
    Memory = 1,
    /// It made a thread, or a child that shares its memory or its descriptors.
    Thread,
    /// It made a call that a dormant process could not serve later, such as one that installs a filter.
    Call,
}

impl EngagedFor {
    /// All reasons.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Thread, Self::Call];

    /// The reason with this number.
    ///
    /// ```
    /// use millpond_board::EngagedFor;
    /// assert_eq!(EngagedFor::of_number(2), Some(EngagedFor::Thread));
    /// assert_eq!(EngagedFor::of_number(0), None);
    /// ```
    #[must_use]
    pub fn of_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|&one| one as u64 == number)
    }
}
