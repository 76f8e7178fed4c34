#pragma once
// The server of the page: numbers of images come in, thumbnails and facts of the index go out. No path of a
// request reaches the file system, and no file but the index is read.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "index/index_file.h"
#include "web/server.h"

namespace ebclr::browse {

struct SiteOptions {
  web::ServerOptions server = {};
  std::filesystem::path classes = {};  ///< predictions of `ebclr classify`; empty: none
  std::string strangers_by = "auto";
  std::function<void(double)> progress = {};  ///< of the map
};

class Site {
 public:
  /// Lays out the map; serves nothing before start().
  Site(index::Index index, const SiteOptions& options);
  ~Site();

  /// Serves from threads of its own; throws Error when the port cannot be had.
  void start();
  /// What to open in a browser.
  std::string address() const;
  /// What to know before letting others in; empty where nobody else can look.
  std::string caution() const;
  /// What is to be known of the files that were given; empty: nothing.
  std::string note() const;
  /// What a request would be answered, without a network: for tests.
  std::string reply_to(const std::string& request);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebclr::browse
