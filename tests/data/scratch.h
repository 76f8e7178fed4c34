#pragma once
// A folder of a test's own, and small helpers to fill it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "core/error.h"
#include "temp_dir.h"

namespace ebclr::data {

/// A temporary folder that can be filled.
class Scratch : public ebclr::testing::TempDir {
 public:
  /// Writes a file, with its folders.
  std::filesystem::path write(const std::string& name, const std::string& content) const {
    const auto p = path() / name;
    std::filesystem::create_directories(p.parent_path());
    std::filesystem::remove(p);  // some file systems flush a file that is overwritten
    std::ofstream(p, std::ios::binary) << content;
    return p;
  }
};

/// The content as a gzip file.
inline std::string gzipped(const std::string& content) {
  z_stream z{};
  deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, content.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  z.avail_in = static_cast<uInt>(content.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

/// What the call says when it throws core::Error; "" when it does not.
inline std::string error_of(const std::function<void()>& call, core::ExitCode code = core::ExitCode::kUsage) {
  try {
    call();
  } catch (const core::Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << "an error is one line";
    return e.what();
  }
  return "";
}

}  // namespace ebclr::data
