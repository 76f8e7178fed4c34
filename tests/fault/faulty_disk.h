#pragma once
// A disk that fails on purpose. Linked into a test program, it stands before libc's open, write, fsync,
// rename and so on, counts the calls that change anything below one folder, and makes the n-th of them fail.
// The program under test is not told and not built differently, so nothing that writes can be forgotten.

#include <cstdint>
#include <filesystem>
#include <string>

namespace ebclr::testing {

enum class Fault {
  kNone,
  kNoSpace,      ///< ENOSPC
  kInputOutput,  ///< EIO
  kShortWrite,   ///< half of a write succeeds, and there is no space for the rest
  kCrashBefore,  ///< the process ends before the call
  kCrashAfter,   ///< the process ends after the call
  kPowerCut,  ///< ends after the call, and what was not synced is lost: data of files, and names in folders
};

const char* name_of(Fault fault);

/// Exit code of a process that the fault ended.
inline constexpr int kCrashed = 99;

/// From now on calls below `folder` are counted, and the n-th (from 1) fails.
void arm(const std::filesystem::path& folder, Fault fault, int64_t n);
/// Somebody has made room: after kShortWrite writes succeed again.
void free_space();
/// Calls counted so far.
int64_t calls();
/// Files that were opened to be made, if need be, in a way that would follow a link; empty: none.
std::string followed();
/// Did the fault happen?
bool struck();
/// What the n-th call was, e.g. "rename config.yaml".
std::string struck_call();

}  // namespace ebclr::testing
