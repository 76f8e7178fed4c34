#pragma once
// The page of runs and its server.

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "watch/watcher.h"
#include "web/server.h"

namespace ebclr::watch {

class Site {
 public:
  /// Watches these folders; serves nothing before start().
  Site(web::ServerOptions options, std::vector<std::filesystem::path> roots, std::string title);
  ~Site();

  /// Serves from threads of its own; throws Error when the port cannot be had.
  void start();
  /// What to open in a browser.
  std::string address() const;
  /// What to know before letting others in; empty where nobody else can look.
  std::string caution() const;
  /// Lets pages that are open hear how it ended; takes a second when there are any.
  void finish();
  /// Shows where a study stands.
  void show(const StudyBoard& board);

 private:
  std::string title_;
  Watcher watcher_;
  std::timed_mutex turn_, detail_turn_;  // of requests; a closer look takes seconds and has its own
  web::Server server_;
};

}  // namespace ebclr::watch
