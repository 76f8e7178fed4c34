#pragma once
// What the library throws.

#include <ebclr/api.h>

#include <stdexcept>
#include <string>

namespace ebclr {

/// The one exception of the library; what() is a complete line: where, what was wrong, what to do. (A wrong
/// tensor given to torch throws torch's own c10::Error.)
class EBCLR_API Error : public std::runtime_error {
 public:
  enum class Kind {
    kInput,  ///< the caller gave something wrong: a path, a key, a shape
    kRun     ///< the input was fine and the work still failed: full disk, divergence, network
  };

  Error(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ~Error() override;

  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

}  // namespace ebclr
