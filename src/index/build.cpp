#include "index/build.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <thread>

#include "core/error.h"
#include "core/files.h"
#include "core/text.h"
#include "data/folder.h"
#include "data/walk.h"
#include "density/density.h"
#include "ebm/objective.h"
#include "image/decode.h"
#include "image/encode.h"
#include "image/read_file.h"
#include "image/resize.h"
#include "nn/encoder.h"
#include "run/images.h"

namespace ebclr::index {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kBuildComponent = "index";
constexpr int64_t kBatch = 64;

std::string fingerprint(const run::Model& model, int64_t image_size) {
  // "large": JPEGs are decoded for the larger copy that sets keep (data::decode_for).
  std::string all = fmt::format("{} {} large\n", image_size, model.encoder->options().channels);
  for (const torch::nn::Module* module : {static_cast<const torch::nn::Module*>(model.encoder.get()),
                                          static_cast<const torch::nn::Module*>(model.head.get())})
    for (const auto& [name, tensor] : nn::state_of(*module, "")) {
      const auto t = tensor.detach().to(torch::kCPU).contiguous();
      all += name + " " + core::sha256(std::span(static_cast<const std::byte*>(t.data_ptr()), t.nbytes())) +
             "\n";
    }
  return core::sha256(std::as_bytes(std::span(all)));
}

// Is the file still there?
bool is_there(const fs::path& path) {
  std::error_code ec;
  return fs::is_regular_file(path, ec);
}

// The grey picture of kSmallSide from RGB planes of kThumbnailSide, by averages of whole squares.
void shrink(const uint8_t* rgb, uint8_t* out) {
  constexpr int64_t f = kThumbnailSide / kSmallSide, plane = kThumbnailSide * kThumbnailSide;
  static_assert(f * kSmallSide == kThumbnailSide);
  for (int64_t y = 0; y < kSmallSide; ++y)
    for (int64_t x = 0; x < kSmallSide; ++x) {
      int64_t sum = 0;
      for (int64_t j = 0; j < f; ++j)
        for (int64_t i = 0; i < f; ++i) {
          const auto* p = rgb + (y * f + j) * kThumbnailSide + x * f + i;
          sum += 299 * p[0] + 587 * p[plane] + 114 * p[2 * plane];
        }
      out[y * kSmallSide + x] = static_cast<uint8_t>(sum / (1000 * f * f));
    }
}

std::vector<uint8_t> to_jpeg(const uint8_t* rgb) {
  constexpr int side = static_cast<int>(kThumbnailSide);
  constexpr int64_t plane = kThumbnailSide * kThumbnailSide;
  image::Pixels pixels(side, side, 3);
  for (int64_t i = 0; i < plane; ++i)
    for (int64_t c = 0; c < 3; ++c) pixels.data[static_cast<size_t>(3 * i + c)] = rgb[c * plane + i];
  const auto bytes = image::encode_jpeg(pixels, 85);
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  return {p, p + bytes.size()};
}

/// One decoded file.
struct Decoded {
  Record record;
  std::vector<uint8_t> thumbnail;
  std::string error;
};

// Why a file could not be read, without the component and the name that the error begins with.
std::string reason_of(const std::exception& e, const fs::path& folder, const std::string& name) {
  std::string text = e.what();
  if (const auto end = text.find("] "); text.starts_with("[") && end != std::string::npos)
    text.erase(0, end + 2);
  for (const auto& named : {name + ": ", (folder / name).string() + ": "})
    if (text.starts_with(named)) text.erase(0, named.size());
  return text.empty() ? "unknown problem" : text;
}

// Where the run's own images are: empty for where they were in training, `other` when they have moved there,
// nothing when they are in neither.
std::optional<std::string> own_images(const run::Run& run, const std::string& other) {
  const auto list = run::image_list(run.folder());
  if (!list || list->empty() || run::is_moved(run, run.config().data.source)) return "";
  if (other.empty() || !run::is_moved(run, other)) return std::nullopt;
  return fs::absolute(other).lexically_normal().string();
}

// The outputs that define the energy, or why there are none.
void add_references(const run::Run& run, const LookerOptions& o, Looker& looker,
                    std::vector<std::string>& notes) {
  try {
    const auto images = own_images(run, o.images);
    if (!images) {
      looker.no_energies = fmt::format(
          "the images that {} learnt from are not in {} any more; once they are back there (a link will do), "
          "the same command adds energies",
          run.folder().root.string(), run.config().data.source);
      return;
    }
    const auto density = density::density_of(
        run, looker.model,
        {.data_root = o.data_root, .data = *images, .references = o.references, .placement = o.placement});
    notes.insert(notes.end(), density.images->notes.begin(), density.images->notes.end());
    looker.references = density.references.to(torch::kCPU);
    looker.info.has_energies = true;
  } catch (const core::Error& e) {
    if (e.code() == core::ExitCode::kInterrupted) throw;
    looker.no_energies = e.what();
  }
}

// Sizes and widths that an index names must be those of its encoder: memory is laid out by them.
void check_fits(const Index& index, const run::Model& model) {
  const auto& made = index.info();
  const auto references = index.references();
  if (made.channels != model.encoder->options().channels || made.dim != model.encoder->feature_dim() ||
      (references.defined() && references.size(1) != model.head->options().out))
    core::usage_error(
        kBuildComponent,
        fmt::format("{}: damaged (its sizes are not those of its encoder); make it anew with --fresh",
                    index.file().string()));
}

// Energies [N] on the CPU of what the encoder says of images, [N, D]; undefined where none are computed.
torch::Tensor energies_of(const Looker& looker, const torch::Tensor& features) {
  if (!looker.info.has_energies || !looker.references.defined()) return {};
  const auto outputs = looker.model.head->forward(features.to(looker.device)).to(torch::kCPU);
  return looker.info.method == methods::kSupervised
             ? ebm::class_energy(outputs)
             : ebm::energy(outputs, looker.references, looker.info.tau);
}

}  // namespace

std::string line(const data::FileProblem& problem) {
  return fmt::format("{}: {}", problem.path, problem.reason);
}

Looker load_looker(const run::Run& run, const LookerOptions& o, std::vector<std::string>& notes) {
  Looker looker{.model = run.load(o.checkpoint), .device = o.placement.device};
  auto& i = looker.info;
  i.image_size = o.image_size > 0 ? o.image_size : looker.model.side;
  i.fingerprint = fingerprint(looker.model, i.image_size);
  i.run = fs::absolute(run.folder().root).lexically_normal().string();
  i.method = run.config().method.name;
  i.version = o.version;
  i.epoch = looker.model.position.epoch;
  i.step = looker.model.position.step;
  i.channels = looker.model.encoder->options().channels;
  i.dim = looker.model.encoder->feature_dim();
  i.tau = run.config().method.ebclr.objective.tau;
  if (!can_be_read(i.image_size, i.channels))
    core::usage_error(
        kBuildComponent,
        fmt::format("{}: sees images of {} channels at {} pixels; files are read with 1 or 3 channels, at 8 "
                    "to 1024 pixels (--image-size)",
                    run.folder().root.string(), i.channels, i.image_size));
  engine::place(*looker.model.encoder, looker.model.head.get(), o.placement);
  looker.has_energy = density::learns_density(run) || density::learns_classes(run);
  if (looker.has_energy) add_references(run, o, looker, notes);
  return looker;
}

Looker load_looker(const Index& index, const std::string& folder, const engine::Placement& placement) {
  const auto& made = index.info();
  const std::string where = folder.empty() ? made.run : folder;
  if (!fs::exists(where))
    core::usage_error(
        kBuildComponent,
        fmt::format("{}: the run that made this index is gone from {}; say where it is: --run RUN",
                    index.file().string(), where));
  const auto run = run::Run::open(where);
  Looker looker{.info = made, .references = index.references(), .device = placement.device};
  looker.info.folder.clear();
  looker.info.count = 0;
  for (const auto& c : run.checkpoints()) {
    if (c.position.step != made.step) continue;
    looker.model = run.load(c.file);
    if (fingerprint(looker.model, made.image_size) == made.fingerprint) {
      check_fits(index, looker.model);
      engine::place(*looker.model.encoder, looker.model.head.get(), placement);
      return looker;
    }
  }
  core::usage_error(kBuildComponent,
                    fmt::format("{}: was made by another encoder or an older ebclr (epoch {}, step {} of {}) "
                                "and {} has no checkpoint that is "
                                "it; make the index anew: ebclr index {} --data {} --out {} --fresh",
                                index.file().string(), made.epoch, made.step, made.run, where, where,
                                made.folder, index.file().string()));
}

Looked look(const Looker& looker, const fs::path& folder, const std::vector<std::string>& names) {
  const int64_t n = static_cast<int64_t>(names.size()), size = looker.info.image_size,
                channels = looker.info.channels;
  auto pixels = torch::empty({n, channels, size, size}, torch::kUInt8);
  auto small = torch::zeros({n, kSmallSide, kSmallSide}, torch::kUInt8);
  std::vector<Decoded> decoded(names.size());
  {
    std::atomic<int64_t> next{0};
    std::vector<std::thread> team;
    const auto work = [&] {
      std::vector<uint8_t> thumb(3 * kThumbnailSide * kThumbnailSide);
      for (int64_t i; (i = next++) < n;) {
        auto& d = decoded[static_cast<size_t>(i)];
        const auto& name = names[static_cast<size_t>(i)];
        try {
          image::FileStamp when;
          const auto bytes = image::read_regular(folder / name, image::kMaxFileBytes, &when);
          data::decode_image(bytes, name, size, channels == 1, pixels[i].data_ptr<uint8_t>());
          const auto picture = image::decode(bytes, name, {.at_least = static_cast<int>(kThumbnailSide)});
          image::square_planes(picture, static_cast<int>(kThumbnailSide), false, thumb.data());
          shrink(thumb.data(), small[i].data_ptr<uint8_t>());
          d.thumbnail = to_jpeg(thumb.data());
          d.record.bytes = static_cast<int64_t>(when.size);
          d.record.modified = when.modified;
          const auto hex = core::sha256(bytes);
          for (size_t k = 0; k < 32; ++k)
            d.record.sha256[k] = static_cast<uint8_t>(std::stoi(hex.substr(2 * k, 2), nullptr, 16));
        } catch (const std::exception& e) {
          d.error = reason_of(e, folder, name);
        }
      }
    };
    for (int t = 1; t < at::get_num_threads(); ++t) team.emplace_back(work);
    work();
    for (auto& t : team) t.join();
  }
  Looked out;
  for (int64_t i = 0; i < n; ++i) {
    auto& d = decoded[static_cast<size_t>(i)];
    if (!d.error.empty()) {
      out.unreadable.push_back({names[static_cast<size_t>(i)], d.error});
      continue;
    }
    out.kept.push_back(i);
    out.records.push_back(d.record);
    out.thumbnails.push_back(std::move(d.thumbnail));
  }
  const auto rows = torch::tensor(out.kept, torch::kInt64);
  out.small = small.index_select(0, rows).contiguous();
  const auto count = static_cast<int64_t>(out.kept.size());
  out.features = torch::empty({count, looker.info.dim});
  torch::NoGradGuard no_grad;
  const auto kept = pixels.index_select(0, rows);
  for (int64_t i = 0; i < count; i += kBatch) {
    const int64_t m = std::min(kBatch, count - i);
    const auto f = looker.model.encoder->forward(data::to_unit_range(kept.narrow(0, i, m)).to(looker.device));
    const auto on_cpu = f.to(torch::kCPU);
    const auto norm = on_cpu.norm(2, 1, true);
    if (!norm.isfinite().all().item<bool>())
      core::usage_error(kBuildComponent, "the encoder computes values that are not finite; train it anew");
    out.features.narrow(0, i, m).copy_(on_cpu / norm.clamp_min(1e-12));
    const auto energy = energies_of(looker, f);
    for (int64_t r = 0; r < m; ++r) {
      auto& record = out.records[static_cast<size_t>(i + r)];
      record.norm = norm[r].item<float>();
      record.energy = energy.defined() ? energy[r].item<float>() : std::numeric_limits<float>::quiet_NaN();
    }
  }
  return out;
}

torch::Tensor look_at_queries(const Looker& looker, const std::vector<std::string>& files) {
  if (files.empty()) return {};
  const auto seen = look(looker, "", files);
  if (!seen.unreadable.empty())
    core::usage_error("search", fmt::format("a query cannot be read: {}", line(seen.unreadable.front())));
  return seen.features;
}

namespace {

/// What became of the images of a chunk, and their names.
struct Piece {
  Looked looked;
  std::vector<std::string> names;
};

/// Where a row of the new index comes from.
struct Place {
  const Piece* piece;  // null: the old index
  int64_t row;
};

// The index that is there, if it may be continued with this encoder and folder.
std::optional<Index> index_to_continue(const Looker& looker, const fs::path& root, const fs::path& out,
                                       const BuildOptions& o) {
  if (!fs::exists(out)) return std::nullopt;
  if (o.fresh) {
    if (!is_index(out))
      core::usage_error(
          kBuildComponent,
          fmt::format("{}: is there and no index of ebclr, so it is not replaced; name another --out",
                      out.string()));
    return std::nullopt;
  }
  auto old = Index::open(out);
  const auto& made = old.info();
  if (made.fingerprint != looker.info.fingerprint) {
    if (made.image_size != looker.info.image_size &&
        fingerprint(looker.model, made.image_size) == made.fingerprint)
      core::usage_error(
          kBuildComponent,
          fmt::format("{}: its images were read at {} pixels, not {}; say --image-size {}, name another "
                      "--out, or say --fresh to replace it",
                      out.string(), made.image_size, looker.info.image_size, made.image_size));
    core::usage_error(
        kBuildComponent,
        fmt::format(
            "{}: was made by another encoder or an older ebclr (epoch {} of {}); say --fresh to replace it",
            out.string(), made.epoch, made.run));
  }
  if (fs::path(old.info().folder) != root)
    core::usage_error(kBuildComponent,
                      fmt::format("{}: is an index of {}; name another --out, or say --fresh", out.string(),
                                  old.info().folder));
  check_fits(old, looker.model);
  return old;
}

// The pictures below the folder, of which there must be some.
data::Found pictures_of(const fs::path& folder) {
  std::error_code ec;
  const auto status = fs::status(folder, ec);
  if (!fs::is_directory(status))
    core::usage_error(kBuildComponent,
                      fmt::format("{}: {}; name a folder of images", folder.string(),
                                  status.type() == fs::file_type::not_found ? "no such folder"
                                  : fs::exists(status)                      ? "not a folder"
                                                                            : ec.message()));
  auto found = data::find_pictures(folder);
  if (found.files.empty())
    core::usage_error(kBuildComponent,
                      fmt::format("{}: no images in it or below it{}", folder.string(),
                                  found.unreadable_folders.empty()
                                      ? ""
                                      : fmt::format("; {} could not be listed",
                                                    core::join(found.unreadable_folders, ", "))));
  return found;
}

// A file of several names (links) keeps the one that the old index has, as long as it leads there.
void keep_names(const Index& old, const fs::path& root, data::Found& found) {
  std::vector<std::string> names;
  std::set<data::FileId> named;
  std::set<std::string_view> seen;
  for (const auto& f : found.files) {
    seen.insert(f.path);
    if (old.find(f.path) < 0) continue;
    names.push_back(f.path);
    named.insert(f.id);
  }
  for (int64_t row = 0; row < old.size(); ++row) {
    const std::string path(old.path(row));
    if (seen.contains(path)) continue;
    if (const auto file = data::file_at(root, path); file && named.insert(file->id).second)
      names.push_back(path);
  }
  data::take_names(names, root, found);
}

// There, as a name at least, but nobody can say what it leads to: a link to a disk that is not mounted.
bool is_away(const fs::path& path) {
  struct stat s {};
  return ::stat(path.c_str(), &s) != 0 && (::lstat(path.c_str(), &s) == 0 || errno != ENOENT);
}

// Names what the walk could not look at. Nobody knows whether images of a folder that could not be listed, or
// behind a link to what is away, are gone, so those of the old index stay.
void tell_unseen(const data::Found& found, const fs::path& root, const std::optional<Index>& old,
                 std::map<std::string, Place>& places, BuildReport& report) {
  std::set<std::string_view> seen;
  std::error_code ec;
  for (const auto& f : found.files) seen.insert(f.path);
  for (const auto& run : found.runs) report.notes.push_back("left out, written by a run: " + run);
  for (const auto& folder : found.unreadable_folders) {
    const std::string inside = folder == "." ? "" : folder + "/";
    const bool away = is_away(root / folder) && fs::is_symlink(root / folder, ec);
    int64_t kept = 0;
    for (int64_t row = 0; old && row < old->size(); ++row)
      if (const auto path = old->path(row);
          (path == folder || path.starts_with(inside)) && !seen.contains(path))
        kept += places.try_emplace(std::string(path), Place{nullptr, row}).second;
    const data::FileProblem problem{
        folder, away ? "a link that could not be followed" : "a folder that could not be listed"};
    if (kept > 0)
      report.unseen.push_back(fmt::format("{}; {} image(s) of it stay as they were", line(problem), kept));
    else
      report.unreadable.push_back(problem);
  }
  for (const auto& p : found.problems) {
    const int64_t row = old && is_away(root / p.path) ? old->find(p.path) : -1;
    if (row >= 0) {
      places.try_emplace(p.path, Place{nullptr, row});
      report.unseen.push_back(line(p) + "; it stays as it was until the link is removed");
    } else {
      report.unreadable.push_back(p);
    }
  }
}

// Looks at these files, chunk by chunk, until the end or until told to stop.
std::deque<Piece> look_at_all(const Looker& eye, const fs::path& root, const std::vector<std::string>& todo,
                              const BuildOptions& o, BuildReport& report) {
  std::deque<Piece> pieces;
  const auto total = static_cast<int64_t>(todo.size());
  for (int64_t i = 0; i < total; i += o.chunk) {
    if (o.stop && o.stop()) {
      report.stopped = true;
      report.unreached = total - i;
      break;
    }
    const int64_t end = std::min(total, i + o.chunk);
    const std::vector<std::string> names(todo.begin() + i, todo.begin() + end);
    auto& piece = pieces.emplace_back(Piece{look(eye, root, names), {}});
    for (const int64_t k : piece.looked.kept) piece.names.push_back(names[static_cast<size_t>(k)]);
    const auto& bad = piece.looked.unreadable;
    report.unreadable.insert(report.unreadable.end(), bad.begin(), bad.end());
    if (o.progress) o.progress("images", static_cast<double>(end) / static_cast<double>(total));
  }
  return pieces;
}

// Rows in the order of their paths, old and new mixed.
Contents put_together(const IndexInfo& info, const std::map<std::string, Place>& places,
                      const std::optional<Index>& old) {
  Contents c{.info = info};
  c.info.count = static_cast<int64_t>(places.size());
  c.features = torch::empty({c.info.count, c.info.dim});
  c.small = torch::empty({c.info.count, kSmallSide, kSmallSide}, torch::kUInt8);
  int64_t at = 0;
  for (const auto& [name, place] : places) {
    auto* row = c.features.data_ptr<float>() + at * c.info.dim;
    auto* small = c.small.data_ptr<uint8_t>() + at * kSmallSide * kSmallSide;
    const auto k = static_cast<size_t>(place.row);
    if (place.piece) {
      const auto& l = place.piece->looked;
      std::memcpy(row, l.features.data_ptr<float>() + place.row * c.info.dim, sizeof(float) * c.info.dim);
      std::memcpy(small, l.small.data_ptr<uint8_t>() + place.row * kSmallSide * kSmallSide,
                  kSmallSide * kSmallSide);
      c.records.push_back(l.records[k]);
      c.thumbnails.push_back(l.thumbnails[k]);
    } else {
      std::memcpy(row, old->row(place.row), sizeof(float) * c.info.dim);
      std::memcpy(small, old->small(place.row), kSmallSide * kSmallSide);
      c.records.push_back(old->record(place.row));
      const auto t = old->thumbnail(place.row);
      c.thumbnails.emplace_back(t.begin(), t.end());
    }
    if (!c.info.has_energies) c.records.back().energy = std::numeric_limits<float>::quiet_NaN();
    c.paths.push_back(name);
    ++at;
  }
  return c;
}

// Energies of images that an index without them had, from the features that it keeps: no file is read again.
// How many they are.
int64_t add_energies(const Looker& eye, const std::map<std::string, Place>& places, Contents& c) {
  std::vector<int64_t> rows;
  int64_t at = 0;
  for (const auto& [name, place] : places) {
    if (!place.piece) rows.push_back(at);
    ++at;
  }
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < rows.size(); i += kBatch) {
    const std::vector<int64_t> some(
        rows.begin() + static_cast<std::ptrdiff_t>(i),
        rows.begin() + static_cast<std::ptrdiff_t>(std::min(rows.size(), i + kBatch)));
    auto norms = torch::empty({static_cast<int64_t>(some.size()), 1});
    for (size_t k = 0; k < some.size(); ++k)
      norms.data_ptr<float>()[k] = c.records[static_cast<size_t>(some[k])].norm;
    const auto energy =
        energies_of(eye, c.features.index_select(0, torch::tensor(some, torch::kInt64)) * norms);
    for (size_t k = 0; k < some.size(); ++k)
      c.records[static_cast<size_t>(some[k])].energy = energy[static_cast<int64_t>(k)].item<float>();
  }
  return static_cast<int64_t>(rows.size());
}

// Energies of old and new images must be against the same references: an index that has some keeps them.
// Has it?
bool keep_references(const Index& old, Looker& eye) {
  if (!eye.has_energy || !old.info().has_energies || !old.references().defined()) return false;
  eye.references = old.references();
  eye.info.has_energies = true;
  return true;
}

// What an interruption left stays in the index as it was.
void keep_unreached(const std::vector<std::string>& todo, const std::optional<Index>& old,
                    std::map<std::string, Place>& places, BuildReport& report) {
  if (!old) return;
  for (auto name = todo.end() - report.unreached; name != todo.end(); ++name)
    if (const int64_t row = old->find(*name); row >= 0)
      report.kept += places.try_emplace(*name, Place{nullptr, row}).second;
}

}  // namespace

BuildReport build_index(const Looker& looker, const fs::path& folder, const fs::path& out,
                        const BuildOptions& o) {
  auto found = pictures_of(folder);
  const auto root = fs::absolute(folder).lexically_normal();
  const auto old = index_to_continue(looker, root, out, o);
  Looker eye = looker;
  eye.info.folder = root.string();
  if (old) keep_names(*old, root, found);
  const bool had_energies = old && keep_references(*old, eye);
  BuildReport report;
  report.energies = eye.info.has_energies;
  if (report.energies)
    report.references = eye.references.size(0);
  else if (!eye.no_energies.empty())
    report.notes.push_back("no energies: " + eye.no_energies);
  std::vector<std::string> todo;
  std::map<std::string, Place> places;
  for (const auto& file : found.files) {
    const int64_t row = old ? old->find(file.path) : -1;
    if (row >= 0 && old->record(row).bytes == static_cast<int64_t>(file.stamp.size) &&
        old->record(row).modified == file.stamp.modified) {
      places[file.path] = {nullptr, row};
    } else {
      todo.push_back(file.path);
    }
  }
  tell_unseen(found, root, old, places, report);
  report.kept = static_cast<int64_t>(places.size());
  const auto pieces = look_at_all(eye, root, todo, o, report);
  keep_unreached(todo, old, places, report);
  for (const auto& p : pieces)
    for (size_t k = 0; k < p.names.size(); ++k) {
      places[p.names[k]] = {&p, static_cast<int64_t>(k)};
      report.changed += old && old->find(p.names[k]) >= 0;
    }
  report.added = static_cast<int64_t>(places.size()) - report.kept;
  report.removed = old ? old->size() - report.kept - report.changed : 0;
  if (report.stopped && (pieces.empty() || places.empty())) {
    report.kept = old ? old->size() : 0;
    report.added = report.changed = report.removed = 0;
    return report;
  }
  if (places.empty())
    core::usage_error(kBuildComponent, fmt::format("{}: none of {} files could be read: {}", folder.string(),
                                                   found.files.size(), line(report.unreadable.back())));
  auto contents = put_together(eye.info, places, old);
  if (report.energies) contents.references = eye.references;
  if (report.energies && !had_energies)
    if (const auto n = add_energies(eye, places, contents); n > 0)
      report.notes.push_back(fmt::format("{} image(s) that had no energies have them now", n));
  if (contents.info.count >= o.graph_from && !report.stopped) {
    auto g = o.graph;
    if (o.progress) g.progress = [&](double share) { o.progress("graph", share); };
    contents.graph = build_graph(contents.features, g);
    report.graph = true;
  }
  write_index(out, contents);
  report.written = true;
  return report;
}

std::vector<int64_t> vanished(const Index& index, const std::vector<int64_t>& rows) {
  std::vector<int64_t> out;
  for (const int64_t r : rows)
    if (!is_there(fs::path(index.info().folder) / index.path(r))) out.push_back(r);
  return out;
}

}  // namespace ebclr::index
