#pragma once
// Features by our engine against ONNX Runtime on the file that we export, in turn.

#include <filesystem>
#include <string>
#include <vector>

#include "bench/engine_bench.h"

namespace ebclr::bench {

/// Seconds per call over a batch.
struct OnnxRuntimeBench {
  BenchOptions options = {};
  std::string version = {};  ///< of ONNX Runtime
  int threads = 0;
  Timing native = {}, theirs = {};
  double error = 0;  ///< largest difference of the features, as a part of the largest

  double ratio() const { return theirs.min / native.min; }
};

/// Where npm put ONNX Runtime: `given`, else $EBCLR_ONNXRUNTIME, else ~/.cache/ebclr/judges/node_modules.
/// Throws Error that says how to get it when it is not there.
std::filesystem::path find_onnxruntime(const std::filesystem::path& given);

/// Exports an encoder, checks that ONNX Runtime (in a process of its own) computes the same features, then
/// lets both embed the same batch in turn. `modules` is the node_modules folder.
OnnxRuntimeBench bench_onnxruntime(const BenchOptions& options, const std::filesystem::path& modules);

/// Objects with batch, width, milliseconds per image and the ratio.
nlohmann::json to_json(const std::vector<OnnxRuntimeBench>& results);

}  // namespace ebclr::bench
