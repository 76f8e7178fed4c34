#pragma once
// The images of a run. A run on a folder keeps the list of its files (images.csv): the split stays what it
// was, and a folder that has changed is noticed.

#include <optional>
#include <string>

#include "data/catalog.h"
#include "run/run.h"

namespace ebclr::run {

/// The list of a run; nothing for named sets, and for runs from before lists were kept.
std::optional<data::ImageList> image_list(const RunFolder& folder);
/// Writes it; an empty list (a named set) writes nothing.
void write_image_list(const RunFolder& folder, const data::ImageList& list);

/// Loads images for a run; where the folder holds the images of its list, they keep their split. What has
/// changed since is in the train set's notes.
data::TrainTest load_images(const RunFolder& folder, const data::SourceOptions& source,
                            data::LoadContext context = {});

/// The same for who needs no labels: where their CSV is not there, the images of the list come without, and a
/// note says so.
data::TrainTest load_pixels(const RunFolder& folder, const data::SourceOptions& source,
                            data::LoadContext context = {});
/// The images that a run goes on with: one that learns from labels needs them.
data::TrainTest load_to_resume(const RunFolder& folder, const Config& config,
                               const data::LoadContext& context = {});

/// Does this folder hold the images of the run's list, at least half of them by names and sizes?
bool is_moved(const Run& run, const std::string& folder);

/// Throws Error unless is_moved, or nobody can know: the run keeps no list, or nothing is there.
void check_holds_images(const Run& run, const std::string& source);

/// Throws Error saying what changed, unless the images are those of the list.
void check_same_images(const RunFolder& folder, const data::ImageList& now, const std::string& source);

/// One line that tells sets of images apart: what they are, and a digest of names, labels and a sample of
/// pixels.
std::string describe_images(const data::ImageSet& set);

/// The source with absolute paths, so that a run does not depend on where it was started.
data::SourceOptions absolute(data::SourceOptions source);

}  // namespace ebclr::run
