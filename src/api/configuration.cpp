#include "ebclr/configuration.h"

#include <fmt/format.h>

#include "api/configuration_impl.h"
#include "api/translate.h"

namespace ebclr {

Error::~Error() = default;

Configuration::Configuration() : impl_(std::make_unique<Impl>()) {}
Configuration::Configuration(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Configuration::~Configuration() = default;
Configuration::Configuration(const Configuration& other) : impl_(std::make_unique<Impl>(*other.impl_)) {}
Configuration& Configuration::operator=(const Configuration& other) {
  if (this != &other) impl_ = std::make_unique<Impl>(*other.impl_);
  return *this;
}
Configuration::Configuration(Configuration&&) noexcept = default;
Configuration& Configuration::operator=(Configuration&&) noexcept = default;

Configuration Configuration::load(const std::string& file_or_name) {
  return api::translated([&] {
    Configuration c;
    c.impl_->layers.push_back(run::read_layer(file_or_name, c.impl_->warnings));
    c.impl_->resolved();
    return c;
  });
}

Configuration Configuration::parse(const std::string& yaml) {
  return api::translated([&] {
    Configuration c;
    c.impl_->layers.push_back(run::parse_layer(yaml, "configuration", c.impl_->warnings));
    c.impl_->resolved();
    return c;
  });
}

Configuration& Configuration::set(const std::string& key, const std::string& value) {
  api::translated([&] {
    run::Layer layer{"set", {{key, value}}};
    run::check(layer);
    impl_->layers.push_back(std::move(layer));
  });
  return *this;
}

Configuration& Configuration::set(const std::string& key, double value) {
  return set(key, fmt::format("{}", value));
}

std::string Configuration::get(const std::string& key) const {
  return api::translated([&] {
    const auto config = impl_->resolved();
    for (const auto& f : run::fields())
      if (f.key == key) return f.get(config);
    run::check({"get", {{key, ""}}});  // throws, naming the nearest
    return std::string();
  });
}

std::string Configuration::yaml() const {
  return api::translated([&] { return run::to_yaml(impl_->resolved()); });
}

const std::vector<std::string>& Configuration::warnings() const {
  return impl_->warnings;
}

std::vector<Configuration::Key> Configuration::keys() {
  const auto defaults = run::resolve({});
  std::vector<Key> out;
  for (const auto& f : run::fields()) out.push_back({f.key, f.doc, f.choices, f.get(defaults)});
  return out;
}

std::string version() {
  return EBCLR_VERSION;
}

}  // namespace ebclr
