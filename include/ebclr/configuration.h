#pragma once
// The settings of a run, by key. docs/configuration.md describes them; keys() lists them.

#include <ebclr/api.h>

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace ebclr {

/// Typed values behind dotted keys ("sampler.steps"). A wrong key or value throws Error, which names the
/// nearest key or what is expected.
class EBCLR_API Configuration {
 public:
  /// EBCLR with the paper's defaults.
  Configuration();
  /// A YAML file, or the name of a shipped configuration, e.g. "quick/ebclr_cifar10".
  static Configuration load(const std::string& file_or_name);
  /// YAML text.
  static Configuration parse(const std::string& yaml);

  ~Configuration();
  Configuration(const Configuration& other);
  Configuration& operator=(const Configuration& other);
  Configuration(Configuration&&) noexcept;
  Configuration& operator=(Configuration&&) noexcept;

  /// Sets one key and returns *this, so that calls can be chained. Setting method.name changes the defaults
  /// of keys that were not set.
  Configuration& set(const std::string& key, const std::string& value);
  Configuration& set(const std::string& key, const char* value) { return set(key, std::string(value)); }
  Configuration& set(const std::string& key, bool value) { return set(key, value ? "true" : "false"); }
  Configuration& set(const std::string& key, double value);
  template <class Integer,
            std::enable_if_t<std::is_integral_v<Integer> && !std::is_same_v<Integer, bool>, int> = 0>
  Configuration& set(const std::string& key, Integer value) {
    return set(key, std::to_string(value));
  }

  /// The value in effect, as text.
  std::string get(const std::string& key) const;
  /// The whole configuration; load() and parse() read it back to the same.
  std::string yaml() const;
  /// What a reader should know about the file that was loaded.
  const std::vector<std::string>& warnings() const;

  /// A documented key.
  struct Key {
    std::string name, description;
    std::string choices;        ///< "a | b | c" where the value is one of a few words
    std::string default_value;  ///< for EBCLR
  };
  static std::vector<Key> keys();

  struct Impl;
  /// For the library's own use.
  const Impl& impl() const { return *impl_; }

 private:
  friend class Model;
  explicit Configuration(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The version of the library, e.g. "0.4.0".
EBCLR_API std::string version();

}  // namespace ebclr
