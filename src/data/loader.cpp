#include "data/loader.h"

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "core/error.h"
#include "data/image_cache.h"

namespace ebclr::data {

namespace {
constexpr std::string_view kLoaderComponent = "data.loader";
constexpr int64_t kHeldBytes = 256'000'000;
}  // namespace

torch::Tensor epoch_order(int64_t n, uint64_t seed, uint64_t epoch) {
  auto order = torch::empty({n}, torch::kInt64);
  auto* p = order.data_ptr<int64_t>();
  std::iota(p, p + n, int64_t{0});
  core::Rng rng(seed, core::Stream::kShuffle, {epoch});
  for (int64_t i = n - 1; i > 0; --i) std::swap(p[i], p[rng.below(static_cast<uint64_t>(i) + 1)]);
  return order;
}

struct Loader::Impl {
  struct Made {
    Batch batch;
    std::exception_ptr error;
  };

  std::shared_ptr<const ImageSet> set;
  ViewMaker maker;
  LoaderOptions options;
  int64_t per_epoch = 0;

  std::mutex mutex;
  std::condition_variable made_one, room;
  std::map<int64_t, Made> ready;            // by running number
  std::map<int64_t, torch::Tensor> orders;  // by epoch
  int64_t next_to_make = 0, next_to_give = 0;
  std::atomic<int64_t> touched{0};  // bytes of the mapping since the last release
  bool stop = false;
  std::vector<std::thread> workers;

  Impl(std::shared_ptr<const ImageSet> s, const ViewOptions& views, const LoaderOptions& o)
      : set(std::move(s)), maker(views, *set), options(o) {}

  ~Impl() {
    {
      const std::scoped_lock lock(mutex);
      stop = true;
    }
    room.notify_all();
    for (auto& w : workers) w.join();
  }

  torch::Tensor order_of(int64_t epoch) {
    const std::scoped_lock lock(mutex);
    auto it = orders.find(epoch);
    if (it == orders.end()) {
      it = orders.emplace(epoch, epoch_order(set->size(), options.seed, static_cast<uint64_t>(epoch))).first;
      while (orders.begin()->first < next_to_give / per_epoch) orders.erase(orders.begin());
    }
    return it->second;
  }

  Batch make(int64_t running) {
    Batch b;
    b.epoch = running / per_epoch;
    b.number = running % per_epoch;
    if (options.on_batch) options.on_batch(b.epoch, b.number);
    const int64_t start = b.number * options.batch_size;
    b.total = std::min(options.batch_size, set->size() - start);
    const int64_t from = start + b.total * options.rank / options.world;
    const int64_t to = start + b.total * (options.rank + 1) / options.world;
    b.indices = order_of(b.epoch).slice(0, from, to).clone();
    const auto number = static_cast<uint64_t>(b.number), epoch = static_cast<uint64_t>(b.epoch);
    b.view1 = make_views(maker, *set, b.indices, options.seed, epoch, 0, number);
    b.view2 = make_views(maker, *set, b.indices, options.seed, epoch, 1, number);
    // Mapped pages that were read count as this process's memory until it lets go of them.
    if (set->mapping) {
      const int64_t read = b.indices.numel() * set->channels() * maker.source().height * maker.source().width;
      if (touched.fetch_add(read) + read > kHeldBytes) {
        touched = 0;
        set->mapping->release();
      }
    }
    return b;
  }

  void work() {
    for (;;) {
      int64_t mine = 0;
      {
        std::unique_lock lock(mutex);
        room.wait(lock, [&] { return stop || next_to_make < next_to_give + options.ahead; });
        if (stop) return;
        mine = next_to_make++;
      }
      Made made;
      try {
        made.batch = make(mine);
      } catch (...) {
        made.error = std::current_exception();
      }
      const bool failed = made.error != nullptr;
      {
        const std::scoped_lock lock(mutex);
        ready.emplace(mine, std::move(made));
      }
      made_one.notify_all();
      if (failed) return;
    }
  }
};

Loader::Loader(std::shared_ptr<const ImageSet> set, ViewOptions views, LoaderOptions options, int64_t epoch,
               int64_t batch) {
  if (!set || set->size() == 0) core::usage_error(kLoaderComponent, "the set has no images");
  if (options.batch_size < 1)
    core::usage_error(kLoaderComponent,
                      fmt::format("batch_size is {}; expected at least 1", options.batch_size));
  if (options.world < 1 || options.rank < 0 || options.rank >= options.world)
    core::usage_error(kLoaderComponent, fmt::format("rank {} of {} processes; expected 0 <= rank < world",
                                                    options.rank, options.world));
  options.threads = std::max(options.threads, 1);
  options.ahead = std::max(options.ahead, 1);
  const int64_t global = options.batch_size, n = set->size();
  if (global < options.world)
    core::usage_error(kLoaderComponent,
                      fmt::format("a batch of {} cannot be shared by {} processes; raise batch_size", global,
                                  options.world));
  // Without drop_last the rest makes a batch if every process gets at least one image of it.
  const int64_t per_epoch = n / global + (!options.drop_last && n % global >= options.world ? 1 : 0);
  if (per_epoch < 1)
    core::usage_error(kLoaderComponent,
                      fmt::format("{} images do not fill one batch of {}; lower batch_size", n, global));
  if (epoch < 0 || batch < 0)
    core::usage_error(kLoaderComponent,
                      fmt::format("start at epoch {}, batch {}; expected 0 or more", epoch, batch));
  if (!view_source(*set).is_contiguous()) {
    auto copy = std::make_shared<ImageSet>(*set);
    (copy->large.defined() ? copy->large : copy->pixels) = view_source(*set).contiguous();
    set = std::move(copy);
  }
  impl_ = std::make_unique<Impl>(std::move(set), views, options);
  impl_->per_epoch = per_epoch;
  impl_->next_to_make = impl_->next_to_give = epoch * per_epoch + batch;
  for (int i = 0; i < options.threads; ++i)
    impl_->workers.emplace_back([impl = impl_.get()] { impl->work(); });
}

Loader::~Loader() = default;

Batch Loader::next() {
  Impl::Made made;
  {
    std::unique_lock lock(impl_->mutex);
    impl_->made_one.wait(lock, [&] { return impl_->ready.contains(impl_->next_to_give); });
    auto it = impl_->ready.find(impl_->next_to_give);
    if (it->second.error)
      std::rethrow_exception(it->second.error);  // stays, so that a second call says the same
    made = std::move(it->second);
    impl_->ready.erase(it);
    ++impl_->next_to_give;
  }
  impl_->room.notify_all();
  return std::move(made.batch);
}

int64_t Loader::batches_per_epoch() const {
  return impl_->per_epoch;
}

}  // namespace ebclr::data
