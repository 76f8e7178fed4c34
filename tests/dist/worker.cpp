// One rank of a group in the tests: does what its first argument says and prints what came out.

#include <fmt/format.h>
#include <torch/torch.h>

#include <csignal>
#include <cstdlib>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "core/error.h"
#include "dist/group.h"

namespace {
using namespace ebclr;

void exchange(dist::Group& group) {
  const int64_t total = 7;  // not a multiple of the ranks
  const auto all = torch::arange(total * 3, torch::kFloat32).view({total, 3});
  const auto [begin, end] = group.share(total);
  auto mine = all.slice(0, begin, end).clone().requires_grad_();
  const auto gathered = dist::gather_for_loss(group, mine, total);
  // A loss that mixes all rows: every rank computes it whole.
  (gathered.matmul(gathered.t()).pow(2).sum() / 1000).backward();
  auto gradient = torch::zeros_like(all);
  gradient.slice(0, begin, end).copy_(mine.grad());
  group.sum(gradient);
  auto reference = all.clone().requires_grad_();
  (reference.matmul(reference.t()).pow(2).sum() / 1000).backward();
  auto seven = torch::full({2}, group.rank() == 0 ? 7.0 : 0.0);
  group.broadcast(seven);
  std::vector<torch::Tensor> parameters = {torch::zeros({5}).requires_grad_(),
                                           torch::zeros({2, 2}).requires_grad_()};
  parameters[0].mutable_grad() = torch::full({5}, group.rank() + 1.0);  // the second has none
  dist::sum_gradients(group, parameters);
  const auto texts = group.gather_text(fmt::format("rank {}", group.rank()));
  fmt::print("gathered {} gradient {} broadcast {} any {} {} sum {} zero {} texts {}\n", gathered.equal(all),
             torch::allclose(gradient, reference.grad()), seven[1].item<double>(),
             group.any(group.rank() == 1), group.any(false), parameters[0].grad()[4].item<double>(),
             parameters[1].grad().sum().item<double>(), fmt::join(texts, ","));
}

/// As torchrun's agent does: a store that no rank keeps.
[[noreturn]] void keep_store() {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(std::atoi(std::getenv("MASTER_PORT")));
  options.isServer = true;
  options.waitWorkers = false;
#if TORCH_VERSION_MAJOR >= 2
  options.useLibUV = false;  // Debian's libtorch is built without it
#endif
  const c10d::TCPStore store("127.0.0.1", options);
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

void run(const std::string& mode) {
  if (mode == "keep") keep_store();
  const auto launch = dist::find_launch(dist::process_environment());
  const auto group = launch ? dist::connect(*launch, {.join = 20, .silence = 5}) : dist::solo();
  auto one = torch::ones({1});
  if (mode == "exchange") {
    exchange(*group);
  } else if (mode == "differ") {
    group->require_same("configuration", group->rank() == 1 ? "a: 1\nb: 3\n" : "a: 1\nb: 2\n");
  } else if (mode == "die" || mode == "hang" || mode == "hang0") {
    group->sum(one);
    if (group->rank() == (mode == "hang0" ? 0 : 1)) std::raise(mode == "die" ? SIGKILL : SIGSTOP);
    for (;;) group->sum(one);
  } else if (mode == "abandon") {
    group->sum(one);
    if (group->rank() == 1) {
      group->abandon("the disk is full");
      core::run_error("test", "the disk is full");
    }
    group->sum(one);
  } else if (mode == "late") {
    // Longer than the silence that is allowed, and not silent: others wait.
    if (group->rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(8));
    group->sum(one);
    fmt::print("{}\n", one.item<double>());
  }
}

}  // namespace

int main(int, char** argv) {
  try {
    run(argv[1]);
    return 0;
  } catch (const core::Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    std::fflush(nullptr);
    return static_cast<int>(e.code());
  }
}
