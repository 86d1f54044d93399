//! The client's side: objects of the same size as Millpond's, through OpenDAL's operator.

use crate::error::Failure;
use crate::remote::objects::{Objects, SENT_AT_ONCE};
use crate::remote::work::{Outcome, Task};
use opendal::Operator;
use tokio::task::JoinSet;

/// Puts the objects, gets them in order, and gets ranges of them at random.
///
/// # Errors
/// When the service does not answer.
pub fn work(task: &Task) -> Result<Outcome, Failure> {
    // Millpond uses one thread for a service.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build()?;
    runtime.block_on(move_objects(task, &task.url()?.operator()?))
}

async fn move_objects(task: &Task, operator: &Operator) -> Result<Outcome, Failure> {
    let objects = Objects::new(task);
    let clocks = task.start()?;
    put(operator, objects).await?;
    let fill = clocks.stop(objects.pages)?;

    let mut wrong_pages = 0;
    let clocks = task.start()?;
    for object in 0..objects.count() {
        let bytes = operator.read(&Objects::path(object)).await?.to_vec();
        wrong_pages += objects.wrong(object, &bytes);
    }
    let read = clocks.stop(objects.pages)?;

    let clocks = task.start()?;
    for access in objects.at_random() {
        let range = access.bytes.start as u64..access.bytes.end as u64;
        let bytes = operator.read_with(&access.path).range(range).await?;
        wrong_pages += u64::from(!access.is_right(&bytes.to_vec()));
    }
    let random = clocks.stop(objects.accesses)?;
    for object in 0..objects.count() {
        operator.delete(&Objects::path(object)).await?;
    }
    Ok(Outcome {
        fill,
        read,
        random,
        wrong_pages,
        ..Outcome::default()
    })
}

/// Puts all objects, as many at once as Millpond does.
async fn put(operator: &Operator, objects: Objects) -> Result<(), Failure> {
    let mut sending = JoinSet::new();
    for object in 0..objects.count() {
        let bytes = objects.make(object);
        if sending.len() == SENT_AT_ONCE
            && let Some(sent) = sending.join_next().await
        {
            sent??;
        }
        let (operator, path) = (operator.clone(), Objects::path(object));
        sending.spawn(async move { operator.write(&path, bytes).await.map(drop) });
    }
    while let Some(sent) = sending.join_next().await {
        sent??;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::PAGE;
    use crate::remote::Side;
    use crate::remote::Sizes;

    #[test]
    fn objects_read_back_unchanged_and_none_remain() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("fs://{}", directory.path().display());
        let task = Task {
            side: Side::Client,
            url,
            server: std::process::id() as i32,
            sizes: Sizes {
                budget_bytes: 16 << 20,
                file_bytes: 0,
                // Objects of 512 KiB, the last of which is shorter.
                beyond_bytes: (1 << 20) + 3 * PAGE as u64,
                accesses: 300,
            },
        };
        let outcome = work(&task).unwrap();
        assert_eq!(outcome.wrong_pages, 0);
        assert!(outcome.fill.wall > 0.0 && outcome.random.wall > 0.0);
        let left = std::fs::read_dir(directory.path().join("objects")).unwrap();
        assert_eq!(left.count(), 0);
    }
}
