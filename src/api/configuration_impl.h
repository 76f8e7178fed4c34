#pragma once

#include "ebclr/configuration.h"
#include "run/config.h"

namespace ebclr {

/// The layers that were given; resolved when asked, because two keys that must fit each other are set one by
/// one.
struct Configuration::Impl {
  std::vector<run::Layer> layers;
  std::vector<std::string> warnings;

  run::Config resolved() const { return run::resolve(layers); }
};

}  // namespace ebclr
