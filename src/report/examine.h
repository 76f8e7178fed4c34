#pragma once
// What a report computes anew: neighbours of the encoder's features and a map of them.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "report/page.h"
#include "report/run_record.h"

namespace ebclr::report {

struct ExamineOptions {
  int64_t train = 5000, test = 1000;  ///< images, class-balanced; 0: all
  int64_t map_images = 500;           ///< on the map; 0: no map
  int64_t sheet_images = 5000;        ///< that neighbours and groups are looked for in; 0: no sheets
  std::string data_root = {};         ///< empty: the run's
  std::string data = {};              ///< where the folder of images of runs that had it lies now
  uint64_t seed = 0;                  ///< of the choice of images
  engine::Placement placement = {};
  std::function<void(const std::string&, double)> progress = {};
};

/// Findings about the newest checkpoint of a run; what could not be found out is in `notes`.
struct Examination {
  std::optional<Matrix> confusion;
  double accuracy = 0, low = 0, high = 0;  ///< of the neighbours, with `confusion`
  std::string how;                         ///< the same in words: protocol and numbers of images
  std::optional<PointMap> map;
  std::optional<Picture> neighbours;    ///< images and those that the encoder finds most like them
  std::optional<Picture> clusters;      ///< groups of images, examples of each
  std::vector<std::string> unreadable;  ///< files of the run's folder that could not be read, and why
  std::vector<std::string> notes;
};

/// Loads the newest readable checkpoint and the run's images and judges them; does not throw for what is
/// missing or damaged.
Examination examine(const RunRecord& record, const ExamineOptions& options);

}  // namespace ebclr::report
