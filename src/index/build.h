#pragma once
// From a run and a folder of images to an index; what an unchanged file had is kept.

#include <functional>
#include <optional>

#include "data/walk.h"
#include "engine/engine.h"
#include "index/index_file.h"
#include "index/search.h"
#include "run/run.h"

namespace ebclr::index {

/// An encoder that looks at image files as one index does.
struct Looker {
  run::Model model = {};
  IndexInfo info = {};            ///< run, checkpoint, fingerprint, how images are read; no folder, no images
  torch::Tensor references = {};  ///< outputs [M, P] that define the energy; undefined without
  torch::Device device = torch::kCPU;
  bool has_energy = true;        ///< of a density or of classes; else none are computed, and none are missed
  std::string no_energies = {};  ///< why there are none though there could be
};

struct LookerOptions {
  std::string checkpoint = "last";
  int64_t image_size = 0;                ///< 0: as the run was trained
  int64_t references = 512;              ///< views that define the energy
  std::filesystem::path data_root = {};  ///< where named sets are kept
  /// A folder that may hold the run's own images, should they have moved.
  std::string images = {};
  engine::Placement placement = {};
  std::string version = {};  ///< of the program
};

/// The encoder of a run. Energies need the run's own images; notes say what changed in these.
Looker load_looker(const run::Run& run, const LookerOptions& options, std::vector<std::string>& notes);
/// The encoder that made an index, from its run (`run`, or the folder that the index remembers); throws Error
/// when no checkpoint there is that encoder.
Looker load_looker(const Index& index, const std::string& run, const engine::Placement& placement);

/// Files as an encoder sees them and what the index keeps of each.
struct Looked {
  torch::Tensor features;  ///< float [N, D], rows of length 1
  torch::Tensor small;     ///< uint8 [N, kSmallSide, kSmallSide]
  std::vector<Record> records;
  std::vector<std::vector<uint8_t>> thumbnails;
  std::vector<int64_t> kept;                  ///< numbers of the files that could be read
  std::vector<data::FileProblem> unreadable;  ///< those that could not
};

/// "FILE: REASON".
std::string line(const data::FileProblem& problem);

/// Looks at some files, `names` relative to `folder`.
Looked look(const Looker& looker, const std::filesystem::path& folder, const std::vector<std::string>& names);
/// Features [Q, D] of query images; one that cannot be read is an error that names it.
torch::Tensor look_at_queries(const Looker& looker, const std::vector<std::string>& files);

/// What became of the folder's files.
struct BuildReport {
  int64_t kept = 0, added = 0, changed = 0, removed = 0;
  std::vector<data::FileProblem> unreadable;  ///< files and folders that could not be looked at
  std::vector<std::string> unseen;            ///< a line for each of those whose images stay as they were
  std::vector<std::string> notes;             ///< what else is to be known
  bool stopped = false;   ///< interrupted: the index holds what was done, and the rest as it was
  int64_t unreached = 0;  ///< files that should have been looked at by then
  bool written = false;   ///< else there was nothing to keep, and what was there is there
  bool energies = false, graph = false;
  int64_t references = 0;  ///< outputs that define the energy
};

struct BuildOptions {
  bool fresh = false;  ///< nothing of an existing file is used
  GraphOptions graph = {};
  int64_t graph_from = kExactLimit + 1;  ///< images from which a graph is built
  std::function<void(const std::string&, double)> progress = {};
  std::function<bool()> stop = {};  ///< asked between chunks
  int64_t chunk = 512;              ///< files that are decoded, then embedded
};

/// Makes or renews an index of all images below a folder.
BuildReport build_index(const Looker& looker, const std::filesystem::path& folder,
                        const std::filesystem::path& out, const BuildOptions& options);

/// Files of the index that are no longer where they were.
std::vector<int64_t> vanished(const Index& index, const std::vector<int64_t>& rows);

}  // namespace ebclr::index
