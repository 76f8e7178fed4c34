#pragma once
// What the page asks for about runs. Each run is answered once however often it is named, work ends when
// nobody waits for it any more, and replies have a bound: the page asks again for what is missing.

#include <cstddef>

#include "watch/watcher.h"
#include "web/server.h"

namespace ebclr::watch {

inline constexpr size_t kMostAsked = 200;       ///< runs of one request
inline constexpr size_t kMostDetailed = 8;      ///< of those that are read again: seconds of work each
inline constexpr size_t kMostReply = 4u << 20;  ///< bytes after which no further run is added

/// ask=RUN.GENERATION.PER.HAVE,...: what each of these runs has that the page has not.
web::Reply series(const Watcher& watcher, const web::Request& request);
/// runs=N,... x=AXIS low=A high=B: a part of their curves in detail.
web::Reply detail(const Watcher& watcher, const web::Request& request);
/// runs=N,...: their configurations.
web::Reply configurations(const Watcher& watcher, const web::Request& request);

}  // namespace ebclr::watch
