#include "cli/data_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "cli/checks.h"
#include "core/error.h"
#include "core/text.h"
#include "data/folder.h"
#include "run/config.h"

namespace ebclr::cli {

void add_data_options(CLI::App& c, DataOptions& o, bool with_data) {
  if (with_data)
    c.add_option("--data", o.data, "Set by name, or a folder of images (default: the run's own)");
  c.add_option("--data-root", o.data_root,
               "Where sets are kept (default: $EBCLR_DATA, else the cache folder)");
  c.add_option("--image-size", o.image_size, "Folders: short side after resizing; the centre is taken")
      ->check(CLI::Range(8, 1024));
  c.add_flag("--grayscale", o.grayscale, "One channel: folders and shapes are read so, others converted");
  c.add_option("--labels-csv,--labels", o.labels_csv,
               "Folders: CSV of path,label for all or a part of the images");
  c.add_option("--test-fraction", o.test_fraction, "Folders: part that becomes the test split")
      ->check(CLI::Range(0.0, 0.99));
  c.add_option("--limit", o.limit, "At most this many train images, class-balanced (0: all)")
      ->check(kNotNegative);
  c.add_option("--limit-test", o.limit_test, "The same for the test split")->check(kNotNegative);
  c.add_option("--cache", o.cache, "Folders: where decoded images are kept: auto, memory, disk or none")
      ->check(CLI::IsMember({"auto", "memory", "disk", "none"}));
}

std::string choice_of_images(const DataOptions& o) {
  if (!o.data.empty()) return "--data";
  if (!o.labels_csv.empty()) return "--labels-csv";
  if (!o.cache.empty()) return "--cache";
  if (o.test_fraction >= 0) return "--test-fraction";
  if (o.limit >= 0) return "--limit";
  return o.limit_test >= 0 ? "--limit-test" : "";
}

data::ImageSet read_named(const std::vector<std::string>& files, int64_t image_size, int threads,
                          std::vector<data::FileProblem>& problems) {
  const data::FolderOptions options{.image_size = image_size, .threads = threads};
  std::optional<core::Error> trouble;
  try {
    return data::read_files({files.begin(), files.end()}, options);
  } catch (const core::Error& e) {
    trouble = e;
  }
  std::vector<std::filesystem::path> good;
  for (const auto& file : files) try {
      data::read_files({file}, options);
      good.emplace_back(file);
    } catch (const core::Error& e) {
      const std::string text = e.what(), head = file + ": ";
      const auto at = text.find(head);
      problems.push_back({file, at == std::string::npos ? text : text.substr(at + head.size())});
    }
  if (good.empty()) throw *trouble;
  return data::read_files(good, options);
}

data::SourceOptions apply(const DataOptions& o, data::SourceOptions base) {
  if (!o.data_root.empty()) base.data_root = o.data_root;
  if (o.image_size > 0) base.image_size = o.image_size;
  if (!o.labels_csv.empty()) base.labels_csv = o.labels_csv;
  if (o.test_fraction >= 0) base.test_fraction = o.test_fraction;
  if (o.limit >= 0) base.limit = o.limit;
  if (o.limit_test >= 0) base.limit_test = o.limit_test;
  if (!o.cache.empty()) base.cache = run::resolve({{"--cache", {{"data.cache", o.cache}}}}).data.cache;
  return base;
}

data::LoadContext load_context(int threads, bool quiet) {
  data::LoadContext context{.threads = threads};
  if (quiet) return context;
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  context.progress = [terminal](const data::LoadProgress& p) {
    const double left =
        p.done > 0 ? p.seconds / static_cast<double>(p.done) * static_cast<double>(p.total - p.done) : 0;
    const bool end = p.done == p.total;
    if (terminal)
      fmt::print(stderr, "\r\x1b[K{}",
                 end ? ""
                     : fmt::format("decoding pictures: {} of {}, {} left", p.done, p.total,
                                   core::human_seconds(left)));
    if (end && p.seconds > 2)
      fmt::print(stderr, "decoded {} pictures in {} ({:.0f} a second)\n", p.total,
                 core::human_seconds(p.seconds), static_cast<double>(p.total) / p.seconds);
    std::fflush(stderr);
  };
  return context;
}

}  // namespace ebclr::cli
