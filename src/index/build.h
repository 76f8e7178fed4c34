#pragma once
// From a run and a folder of images to an index; what an unchanged file had is kept.

#include <functional>
#include <optional>

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
};

struct LookerOptions {
  std::string checkpoint = "last";
  int64_t image_size = 0;                ///< 0: as the run was trained
  int64_t references = 512;              ///< views that define the energy
  std::filesystem::path data_root = {};  ///< where named sets are kept
  engine::Placement placement = {};
  std::string version = {};  ///< of the program
};

/// The encoder of a run. Energies need the run's own images: without them a note says so.
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
  std::vector<int64_t> kept;            ///< numbers of the files that could be read
  std::vector<std::string> unreadable;  ///< one line for each that could not
};

/// Looks at some files, `names` relative to `folder`.
Looked look(const Looker& looker, const std::filesystem::path& folder, const std::vector<std::string>& names);
/// Features [Q, D] of query images; one that cannot be read is an error that names it.
torch::Tensor look_at_queries(const Looker& looker, const std::vector<std::string>& files);

/// What became of the folder's files.
struct BuildReport {
  int64_t kept = 0, added = 0, changed = 0, removed = 0;
  std::vector<std::string> unreadable;  ///< a line for each file and folder that could not be looked at
  std::vector<std::string> unseen;      ///< the same of those whose images stay as they were
  bool stopped = false;                 ///< interrupted: the index holds what was done
  bool graph = false;
};

struct BuildOptions {
  bool fresh = false;  ///< nothing of an existing file is used
  GraphOptions graph = {};
  int64_t graph_from = kExactLimit + 1;  ///< images from which a graph is built
  std::function<void(const std::string&, double)> progress = {};
  std::function<bool()> stop = {};  ///< asked between chunks
};

/// Makes or renews an index of all images below a folder.
BuildReport build_index(const Looker& looker, const std::filesystem::path& folder,
                        const std::filesystem::path& out, const BuildOptions& options);

/// Files of the index that are no longer where they were.
std::vector<int64_t> vanished(const Index& index, const std::vector<int64_t>& rows);

}  // namespace ebclr::index
