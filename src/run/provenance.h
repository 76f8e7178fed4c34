#pragma once
// What trained a run: a list of sessions in provenance.json, one for each start or resumption.

#include <cstdint>
#include <string>
#include <vector>

#include "run/run.h"

namespace ebclr::run {

/// One process that trained the run, or a part of it.
struct Session {
  std::string version = {};       ///< of the program
  std::string code = {};          ///< digest of the sources that training depends on
  std::string engine = {};        ///< "native" or "torch"
  std::string instructions = {};  ///< "avx512", ... of the native engine
  std::string device = {};        ///< "cpu", "cuda:0"
  std::string processor = {};     ///< as the system calls it; empty before it was recorded
  int threads = 0;
  int ranks = 1;          ///< processes that trained together
  int64_t from_step = 0;  ///< where it began

  /// "0.3.0 (code 1a2b3c), native avx512, 2 threads on AMD EPYC".
  std::string text() const;
  /// Two sessions that may differ in their last digits or more: other code, engine, instructions or device.
  bool same_arithmetic(const Session& other) const;
};

/// Version of this program and digest of its training code.
std::string this_version();
std::string this_code();

/// Appends a session (or begins the list anew); version, code and processor are filled in.
void record_session(const RunFolder& folder, Session session, bool append);
/// All sessions; empty for a run from before they were recorded, or a damaged file.
std::vector<Session> read_sessions(const RunFolder& folder);

/// A run by name and what trained it.
struct NamedSessions {
  std::string name;
  std::vector<Session> sessions;
};

/// What a reader of figures must know: runs that were not trained alike, runs whose own sessions differ, and
/// training code that has changed since. Empty when all is well.
std::vector<std::string> provenance_warnings(const std::vector<NamedSessions>& runs);

}  // namespace ebclr::run
