// MoCo v2: queries against a queue of keys from a slowly moving network.

#include <fmt/format.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "methods/families.h"
#include "methods/losses.h"
#include "methods/momentum.h"

namespace ebclr::methods {
namespace {

// Query forward and backward (3) and key forward (1); twice that when symmetric.
double units_of(const MocoOptions& o) {
  return o.symmetric ? 8 : 4;
}

class Moco : public Method {
 public:
  Moco(const MethodOptions& options, const MethodContext& context)
      : Method(options, context.ranks),
        o_(options.moco),
        key_(*encoder_, *head_),
        train_images_(context.train_images) {
    if (o_.queue < 1)
      core::usage_error("methods.moco", fmt::format("moco.queue {} must be at least 1", o_.queue));
    // Random unit rows until real keys have come, as in the original work.
    queue_ = torch::empty({o_.queue, head_->options().out});
    core::Rng rng(options.seed, core::Stream::kInit, {2});
    float* p = queue_.data_ptr<float>();
    for (int64_t i = 0; i < queue_.numel(); ++i) p[i] = rng.normal();
    queue_ = ebm::unit_rows(queue_);
    position_ = torch::zeros({1}, torch::kInt64);
  }

  StepOutput step(const StepInput& input) override {
    StepOutput out;
    const auto [q1, k2] = compare(input.view1, input.view2, input.images());
    out.loss = moco_loss(q1, k2, queue_, o_.temperature);
    new_keys_ = k2;
    if (o_.symmetric) {
      const auto [q2, k1] = compare(input.view2, input.view1, input.images());
      out.loss = (out.loss + moco_loss(q2, k1, queue_, o_.temperature)) * 0.5;
      new_keys_ = torch::cat({k2, k1});
    }
    out.projections = q1.detach();
    return out;
  }

  void after_update(const StepInput&) override {
    key_.update(*encoder_, *head_, o_.momentum);
    enqueue(ebm::unit_rows(new_keys_));
  }

  std::vector<MethodModule> modules() override {
    auto list = Method::modules();
    list.push_back({"key_encoder", key_.encoder(), MethodModule::kFollows});
    list.push_back({"key_head", key_.head(), MethodModule::kFollows});
    return list;
  }

  std::vector<std::pair<std::string, torch::Tensor>> state() override {
    auto state = Method::state();
    state.emplace_back("queue", queue_);
    state.emplace_back("queue_position", position_);
    return state;
  }

  void to(torch::Device device) override {
    Method::to(device);
    queue_ = queue_.to(device);
  }

  std::vector<std::string> warnings() const override {
    if (train_images_ == 0 || o_.queue < train_images_) return {};
    return {
        fmt::format("moco.queue {} is not smaller than the {} train images: an image can meet its own old "
                    "key as a negative",
                    o_.queue, train_images_)};
  }
  double forward_units(int64_t) const override { return units_of(o_); }

 private:
  // Queries of one view and keys of the other, [N, D] each, of all ranks: the queue takes keys in their
  // global order.
  std::pair<torch::Tensor, torch::Tensor> compare(const torch::Tensor& query, const torch::Tensor& key,
                                                  int64_t total) {
    const auto q = head_->forward(encoder_->forward(query));
    const auto all = gather({q, key_.forward(key)}, total);
    return {all[0], all[1].detach()};
  }

  // First in, first out, over the end of the queue where a batch does not fit.
  void enqueue(torch::Tensor keys) {
    torch::NoGradGuard no_grad;
    if (keys.size(0) > o_.queue) keys = keys.narrow(0, keys.size(0) - o_.queue, o_.queue);
    int64_t at = position_[0].item<int64_t>(), done = 0;
    while (done < keys.size(0)) {
      const int64_t n = std::min(keys.size(0) - done, o_.queue - at);
      queue_.narrow(0, at, n).copy_(keys.narrow(0, done, n));
      done += n;
      at = (at + n) % o_.queue;
    }
    position_.fill_(at);
  }

  MocoOptions o_;
  MomentumCopy key_;
  int64_t train_images_;
  torch::Tensor queue_, position_, new_keys_;
};

}  // namespace

double moco_units(const MethodOptions& options, int64_t) {
  return units_of(options.moco);
}

std::unique_ptr<Method> make_moco(const MethodOptions& options, const MethodContext& context) {
  return std::make_unique<Moco>(options, context);
}

}  // namespace ebclr::methods
