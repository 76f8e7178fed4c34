#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "watch/site.h"

namespace CLI {
class App;
}

namespace ebclr::cli {

void add_watch_command(CLI::App& app);

/// --watch and --watch-port of commands that train.
struct WatchOptions {
  bool watch = false;
  int port = 0;  ///< 0: 8090, or the next one that is free
};

void add_watch_options(CLI::App& command, WatchOptions& options);

/// The page of these folders while a command works; null without --watch. A page that cannot be served is a
/// warning: the work goes on. At its end, pages that are open hear how it ended.
class LivePage {
 public:
  LivePage(const WatchOptions& options, std::vector<std::filesystem::path> folders, const std::string& title);
  ~LivePage();
  LivePage(const LivePage&) = delete;
  LivePage& operator=(const LivePage&) = delete;
  /// Null when there is none.
  watch::Site* site() { return site_.get(); }

 private:
  std::unique_ptr<watch::Site> site_;
};

}  // namespace ebclr::cli
