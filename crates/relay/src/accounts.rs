//! Which process may still need which slot.
//!
//! A process has an *account*, with the slots that it has handed over. A forked child has inherited the table that
//! says which page is where, so it may read all of its parent's slots: it has an account with the same slots, and a
//! slot dies when no account has it any more. The child's account is made before the fork, in the parent's name, so
//! that nothing that the parent meanwhile releases is lost to the child; the child takes it over as soon as it runs.
//!
//! A process that becomes another program begins again, and its old account ends. One that was killed says nothing:
//! once a second the server checks which processes are still there.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

/// The maximum time for a child to start running, if its parent is gone.
const ADOPTED_WITHIN: Duration = Duration::from_secs(60);

/// A process. Its number alone does not identify it, because numbers are reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Process {
    number: u32,
    /// When it started, in ticks since the machine started.
    began: Option<u64>,
}

impl Process {
    fn of(number: u32) -> Self {
        let began = began(number);
        Self { number, began }
    }

    fn lives(&self) -> bool {
        let now = began(self.number);
        now.is_some() && (now == self.began || self.began.is_none())
    }
}

/// Returns when a running process started: the 22nd field of its `stat`. A process that ended and has not yet been
/// waited for is not running.
fn began(number: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The second field, the name, may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let began = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(began)
}

/// Whether there is a running process with this number.
pub(crate) fn runs(number: u32) -> bool {
    began(number).is_some()
}

struct Account {
    /// The process that owns these slots, or the parent of the child that will.
    process: Process,
    /// Set until the child has taken the account over.
    unborn_since: Option<Instant>,
    slots: HashSet<u32>,
}

impl Account {
    fn is_over(&self) -> bool {
        match self.unborn_since {
            None => !self.process.lives(),
            Some(since) => !self.process.lives() && since.elapsed() > ADOPTED_WITHIN,
        }
    }
}

/// All accounts. The module's documentation describes them.
#[derive(Default)]
pub(crate) struct Accounts {
    last: u64,
    all: HashMap<u64, Account>,
    /// For each slot in several accounts: in how many apart from the first.
    shared: HashMap<u32, u32>,
    /// One more than the highest number of a slot.
    end: u32,
    free: Vec<u32>,
}

impl Accounts {
    fn open(&mut self, process: Process, unborn: bool, slots: HashSet<u32>) -> u64 {
        self.last += 1;
        let account = Account {
            process,
            unborn_since: unborn.then(Instant::now),
            slots,
        };
        self.all.insert(self.last, account);
        self.last
    }

    /// Opens an account for a process that begins. Returns its number, and the slots that died because the process
    /// was another program before.
    pub(crate) fn begin(&mut self, process: u32) -> (u64, Vec<u32>) {
        let was_its =
            |account: &Account| account.process.number == process && account.unborn_since.is_none();
        let before: Vec<u64> = self.numbers(was_its);
        let dead = before.into_iter().flat_map(|old| self.end(old)).collect();
        (self.open(Process::of(process), false, HashSet::new()), dead)
    }

    /// Opens an account for the child that the owner of `account` is about to create.
    pub(crate) fn fork(&mut self, account: u64) -> Option<u64> {
        let parent = self.all.get(&account)?;
        let (process, slots) = (parent.process, parent.slots.clone());
        for &slot in &slots {
            *self.shared.entry(slot).or_insert(0) += 1;
        }
        Some(self.open(process, true, slots))
    }

    /// Gives the account to the child `process`. Returns whether there is such an account.
    pub(crate) fn adopt(&mut self, account: u64, process: u32) -> bool {
        let Some(account) = self.all.get_mut(&account) else {
            return false;
        };
        account.process = Process::of(process);
        account.unborn_since = None;
        true
    }

    /// Closes an account. Returns the slots that died.
    pub(crate) fn end(&mut self, account: u64) -> Vec<u32> {
        let slots = self.all.remove(&account).map(|account| account.slots);
        let slots = slots.into_iter().flatten();
        slots.filter(|&slot| !self.others_have(slot)).collect()
    }

    /// Returns a number for a slot that is about to be saved, or `None` if none is left. It belongs to no account
    /// yet: otherwise, if the account ended meanwhile, the number could be reused for another slot.
    pub(crate) fn new_slot(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let slot = self.end;
            self.end = slot.checked_add(1)?;
            Some(slot)
        })
    }

    /// Adds a saved slot to the account. Returns whether there is such an account.
    pub(crate) fn give(&mut self, account: u64, slot: u32) -> bool {
        let account = self.all.get_mut(&account);
        account.is_some_and(|account| account.slots.insert(slot))
    }

    /// Removes a slot from the account. Returns whether the slot died.
    pub(crate) fn let_go(&mut self, account: u64, slot: u32) -> bool {
        let had = self
            .all
            .get_mut(&account)
            .is_some_and(|account| account.slots.remove(&slot));
        had && !self.others_have(slot)
    }

    /// Whether another account still has a slot that one has just released.
    fn others_have(&mut self, slot: u32) -> bool {
        let Some(others) = self.shared.get_mut(&slot) else {
            return false;
        };
        *others -= 1;
        if *others == 0 {
            self.shared.remove(&slot);
        }
        true
    }

    /// Makes the number of a dead slot available for another.
    pub(crate) fn reuse(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Closes the accounts of processes that are gone. Returns the slots that died.
    pub(crate) fn sweep(&mut self) -> Vec<u32> {
        let over = self.numbers(Account::is_over);
        over.into_iter()
            .flat_map(|account| self.end(account))
            .collect()
    }

    /// Returns the processes that have slots here.
    pub(crate) fn owners(&self) -> Vec<u32> {
        let with_slots = self
            .all
            .values()
            .filter(|account| !account.slots.is_empty());
        let mut owners: Vec<u32> = with_slots.map(|account| account.process.number).collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    fn numbers(&self, which: impl Fn(&Account) -> bool) -> Vec<u64> {
        let found = self.all.iter().filter(|(_, account)| which(account));
        found.map(|(&number, _)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Saves a slot at once, and returns it.
    fn saved(accounts: &mut Accounts, account: u64) -> u32 {
        let slot = accounts.new_slot().unwrap();
        assert!(accounts.give(account, slot));
        slot
    }

    fn me() -> u32 {
        std::process::id()
    }

    #[test]
    fn a_slot_is_freed_with_the_last_account_that_has_it() {
        let mut accounts = Accounts::default();
        let (parent, _) = accounts.begin(me());
        let slot = saved(&mut accounts, parent);
        let child = accounts.fork(parent).unwrap();
        let grandchild = accounts.fork(child).unwrap();
        assert!(!accounts.let_go(parent, slot));
        assert!(!accounts.let_go(parent, slot), "it is let go of once");
        assert!(accounts.end(child).is_empty());
        assert!(accounts.let_go(grandchild, slot));
        accounts.reuse(slot);
        assert_eq!(saved(&mut accounts, grandchild), slot);
    }

    #[test]
    fn an_exec_ends_the_account_of_a_process() {
        let mut accounts = Accounts::default();
        let (before, _) = accounts.begin(me());
        let slot = saved(&mut accounts, before);
        // The account of a child that does not exist yet is not the process's own.
        let child = accounts.fork(before).unwrap();
        let (after, dead) = accounts.begin(me());
        assert!(dead.is_empty() && after != before);
        assert_eq!(accounts.end(child), [slot]);
        assert!(!accounts.give(before, 7));
    }

    #[test]
    fn accounts_of_processes_that_are_gone_end() {
        let mut accounts = Accounts::default();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let (of_child, _) = accounts.begin(child.id());
        let (mine, _) = accounts.begin(me());
        let slots = [of_child, mine].map(|account| saved(&mut accounts, account));
        assert!(accounts.sweep().is_empty());
        assert_eq!(accounts.owners().len(), 2);
        child.kill().unwrap();
        // Until it has been waited for, its number is still taken.
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(accounts.sweep(), slots[..1]);
        child.wait().unwrap();
        assert!(accounts.sweep().is_empty());
        assert_eq!(accounts.owners(), [me()]);
    }

    proptest! {
        /// Compares with a list of sets: a slot dies exactly when no set has it, and no number is used for two slots
        /// at once.
        #[test]
        fn slots_die_when_no_account_has_them(work in prop::collection::vec((0u8..5, 0usize..6, 0usize..40), 1..200)) {
            let mut accounts = Accounts::default();
            let mut model: Vec<(u64, HashSet<u32>)> = Vec::new();
            for (act, which, slot) in work {
                if act == 0 || model.is_empty() {
                    // Impossible process numbers, so that none of them ends another's account.
                    let (account, dead) = accounts.begin(u32::MAX - accounts.last as u32);
                    prop_assert!(dead.is_empty());
                    model.push((account, HashSet::new()));
                    continue;
                }
                let at = which % model.len();
                let account = model[at].0;
                let mut gone = Vec::new();
                match act {
                    1 => {
                        let new = saved(&mut accounts, account);
                        prop_assert!(model.iter().all(|(_, slots)| !slots.contains(&new)));
                        model[at].1.insert(new);
                    }
                    2 => {
                        let child = accounts.fork(account).unwrap();
                        let slots = model[at].1.clone();
                        model.push((child, slots));
                    }
                    3 => {
                        let found = model[at].1.iter().nth(slot).copied();
                        if let Some(found) = found {
                            let dies = accounts.let_go(account, found);
                            model[at].1.remove(&found);
                            gone.push(found);
                            prop_assert_eq!(dies, model.iter().all(|(_, slots)| !slots.contains(&found)));
                            if dies {
                                accounts.reuse(found);
                            }
                        }
                    }
                    _ => {
                        let dead: HashSet<u32> = accounts.end(account).into_iter().collect();
                        let (_, slots) = model.swap_remove(at);
                        let expected = slots.into_iter().filter(|slot| model.iter().all(|(_, other)| !other.contains(slot)));
                        prop_assert_eq!(&dead, &expected.collect::<HashSet<u32>>());
                        dead.into_iter().for_each(|slot| accounts.reuse(slot));
                    }
                }
            }
        }
    }
}
