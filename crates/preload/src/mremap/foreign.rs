//! Moves of the kernel's mappings that lie in the space, or are to lie there.

use super::Request;
use crate::raw;
use crate::vma::{Kind, Range, Vmas};
use libc::{MREMAP_DONTUNMAP, MREMAP_FIXED};
use rustix::io::Errno;

impl Vmas {
    /// Moves a mapping of the kernel out of the space, into it, or within it.
    pub(super) fn remap_foreign(&mut self, request: Request) -> Result<usize, Errno> {
        let (_, old_inside, _) = self.split(&request.old_range());
        let place = if request.has(MREMAP_FIXED) {
            let (_, inside, _) = self.split(&request.new_range());
            if request.old_len == 0 && !inside.is_empty() {
                return self.duplicate(request, inside);
            }
            self.make_way(&inside)?;
            match request.to_kernel() {
                Ok(place) if inside.is_empty() => place,
                Ok(place) => {
                    self.map.insert(inside, Kind::Foreign);
                    place
                }
                Err(error) => {
                    if !inside.is_empty() {
                        self.space.restore(inside.start, inside.len())?;
                    }
                    return Err(error);
                }
            }
        } else {
            request.to_kernel()?
        };
        let gone = if place != request.old {
            old_inside
        } else {
            let end = (place + request.new_len).clamp(old_inside.start, old_inside.end);
            end..old_inside.end
        };
        if !gone.is_empty() && !request.has(MREMAP_DONTUNMAP) {
            self.space.restore(gone.start, gone.len())?;
            self.map.remove(gone);
        }
        Ok(place)
    }

    /// Makes a second mapping of shared memory over a part of the space. It is first made elsewhere, so that nothing
    /// is lost if the kernel refuses.
    fn duplicate(&mut self, request: Request, inside: Range) -> Result<usize, Errno> {
        let elsewhere = Request {
            flags: request.flags & !MREMAP_FIXED,
            new: 0,
            ..request
        };
        let made = elsewhere.to_kernel()?;
        let target = request.new_range();
        self.move_over(made, target.len(), target.clone(), inside)
            .inspect_err(|_| {
                // SAFETY: the mapping was made in this call and no one knows of it.
                let _ = unsafe { raw::munmap(made, target.len()) };
            })?;
        Ok(target.start)
    }
}
