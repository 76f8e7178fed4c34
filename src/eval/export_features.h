#pragma once
// Features of images as files for other programs.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/catalog.h"
#include "eval/features.h"
#include "run/run.h"

namespace ebclr::eval {

/// "train", "test", or "all": both and what is in neither, one after the other. Throws Error when there are
/// none.
data::ImageSet pick_split(data::TrainTest sets, const std::string& split);
/// The image's relative path where it has one, else set/split/number.
std::string image_name(const data::ImageSet& set, int64_t i);

struct ExportOptions {
  std::filesystem::path out;  ///< ends in .npy; the other files lie beside it
  bool projection = false;    ///< outputs of the head instead of the encoder's features
  bool csv = false;           ///< also file, label and features as CSV
  std::function<void(double)> progress = {};
  std::shared_ptr<dist::Group> ranks = dist::solo();  ///< that share the work; rank 0 writes
};

struct Exported {
  int64_t images = 0, dimensions = 0;
  std::vector<std::filesystem::path> files;
};

/// Throws Error unless the name ends in .npy.
void check_export_name(const std::filesystem::path& out);

/// Writes features [N, D] as .npy, names as .files.txt (a line break in one as \\n), labels (if there are
/// any) as .labels.npy and the names of their classes as .classes.txt, line k for label k. What an earlier
/// call wrote beside the same array and this one does not is removed; labels of somebody else's are an error.
/// The set must be fit for the encoder (see adapt).
Exported export_features(const run::Model& model, const data::ImageSet& set, const ExportOptions& options);

}  // namespace ebclr::eval
