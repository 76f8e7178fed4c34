// Images through the stages and back, by one thread, by all of them together, and as Langevin chains.

#include <algorithm>

#include "cpu/network.h"

namespace ebclr::cpu {

/// The images of a stage, a chunk at a time: whoever is free takes the next one, because a core that shares
/// its units with a stranger is slower than the other. If the team goes together there is one chunk, of all
/// images, for everybody. No result depends on who computed it.
class Network::Chunks {
 public:
  Chunks(bool joint, int size, int images, std::atomic<long>& taken)
      : joint_(joint), size_(joint ? images : size), images_(images), taken_(taken) {}
  bool next() {
    first_ = joint_ ? first_ + size_ : taken_.fetch_add(size_, std::memory_order_relaxed);
    return first_ < images_;
  }
  long first() const { return first_; }
  int count() const { return static_cast<int>(std::min<long>(size_, images_ - first_)); }

 private:
  bool joint_;
  int size_, images_;
  std::atomic<long>& taken_;
  long first_ = joint_ ? -size_ : 0;
};

/// One chunk of images in one stage.
struct Network::StageWork {
  const Pass& pass;
  int stage;
  Share share;
  Team team;       // who works on the chunk
  Worker& worker;  // this thread's work space
  Worker& space;   // that of the chunk's activations: the team's, if it goes together
  long first = 0;  // images [first, first + count)
  int count = 0;

  bool joint() const { return share != Share::kImages; }
  /// Between two layers. Where channels are divided a layer ends with a sync itself.
  void sync() const {
    if (share == Share::kTiles) team.sync();
  }
};

ConvJob Network::conv_job(int conv, int stage, const Pass& pass, int images, bool gradient, Worker& worker) {
  const ConvLayer& layer = convs_[conv];
  const Size size = stage_size(stage, pass);
  const bool taps = reads_taps(conv, stage, pass, gradient);
  const auto& tap_list = gradient ? pass.weights.backward_taps : pass.weights.forward_taps;
  return {.images = images,
          .height = size.height,
          .width = size.width,
          .in = gradient ? layer.out : layer.in,
          .out = gradient ? layer.in : layer.out,
          .u = taps ? tap_list[conv].data() : weights_of(conv, pass, gradient),
          .taps = taps,
          .epilogue = {},
          .schedule = schedule(conv, stage, pass, gradient, worker)};
}

/// What DownJob and DownGradJob have in common.
template <class Job>
Job Network::stride_job(const BlockLayer& block, const Pass& pass, int images, bool gradient,
                        Worker& worker) {
  const ConvLayer& layer = convs_[block.conv1];
  const Size size = stage_size(block.stage - 1, pass);
  Job job;
  job.images = images;
  job.height = size.height;
  job.width = size.width;
  job.in = layer.in;
  job.out = layer.out;
  job.u = weights_of(block.conv1, pass, gradient);
  job.u_shortcut = weights_of(block.shortcut, pass, gradient);
  job.schedule = schedule(block.conv1, block.stage, pass, gradient, worker);
  return job;
}

DownJob Network::down_job(const BlockLayer& block, const Pass& pass, int images, Worker& worker) {
  return stride_job<DownJob>(block, pass, images, false, worker);
}

DownGradJob Network::down_grad_job(const BlockLayer& block, const Pass& pass, int images, Worker& worker) {
  return stride_job<DownGradJob>(block, pass, images, true, worker);
}

StemJob Network::stem_job(const Pass& pass, int images, Worker& worker) const {
  const ConvLayer& conv = convs_[0];
  return {.shape = shape_.stem,
          .images = images,
          .height = pass.height,
          .width = pass.width,
          .in = conv.in,
          .out = conv.out,
          .out_real = conv.out_real,
          .w = pass.weights.forward[0].data(),
          .epilogue = {},
          .scratch = worker.stem.data()};
}

StemGradJob Network::stem_grad_job(const Pass& pass, int images, const Tape& tape, Worker& worker) const {
  const ConvLayer& conv = convs_[0];
  return {.shape = shape_.stem,
          .images = images,
          .height = pass.height,
          .width = pass.width,
          .in = conv.in,
          .out = conv.out,
          .out_real = conv.out_real,
          .origin = shape_.stem.pool ? const_cast<float*>(tape.origin.data()) : nullptr,
          .raw = worker.raw.data(),
          .w = pass.weights.forward[0].data(),
          .scratch = worker.stem.data()};
}

/// The stem of a chunk, its result in y. Pooling goes image by image, while the convolution's result is near.
void Network::forward_stem(const StageWork& work, const float* x, Tape* tape, float* y) {
  const Pass& pass = work.pass;
  const Epilogue activate{.bias = pass.weights.bias[0].data(),
                          .activate = true,
                          .signs_out = tape != nullptr ? signs(*tape, 0, pass, work.first) : nullptr,
                          .slope = shape_.slope};
  const long values = static_cast<long>(shape_.channels) * pass.height * pass.width;
  StemJob job = stem_job(pass, work.count, work.worker);
  job.x = x + work.first * values;
  if (!shape_.stem.pool) {
    job.y = y;
    job.epilogue = activate;
    kernels_.stem(job, work.team);
    if (work.joint()) work.team.sync();
    return;
  }
  const auto floats = static_cast<long>(image_floats(0, pass));
  const Size size = stem_size(pass);
  job.images = 1;
  job.y = work.space.raw.data();
  for (long n = 0; n < work.count; ++n, job.x += values) {
    kernels_.stem(job, work.team);
    if (work.joint()) work.team.sync();
    MaxPoolJob pool{.images = 1,
                    .height = size.height,
                    .width = size.width,
                    .channels = convs_[0].out,
                    .x = job.y,
                    .y = y + n * floats,
                    .origin = tape != nullptr ? tape->origin.data() + (work.first + n) * floats : nullptr,
                    .epilogue = activate};
    if (tape != nullptr) pool.epilogue.signs_out = signs(*tape, 0, pass, work.first + n);
    kernels_.max_pool(pool, work.team);
    if (work.joint()) work.team.sync();
  }
}

/// One block of a chunk; `current` is its input (unless it begins a stage) and becomes its result.
void Network::forward_block(const StageWork& work, int b, Tape* tape, float*& current) {
  const Pass& pass = work.pass;
  const BlockLayer& block = blocks_[b];
  const bool keep = tape != nullptr && tape->training;
  const auto floats = static_cast<long>(image_floats(work.stage, pass));
  const auto kept = [&](int tensor, float* otherwise) {
    return keep ? tape->activations[tensor].data() + work.first * floats : otherwise;
  };
  const auto activate = [&](int conv, int tensor) {
    return Epilogue{.bias = pass.weights.bias[conv].data(),
                    .activate = true,
                    .signs_out = tape != nullptr ? signs(*tape, tensor, pass, work.first) : nullptr,
                    .slope = shape_.slope};
  };
  const bool ends_stage = b + 1 == static_cast<int>(blocks_.size()) || blocks_[b + 1].stage != work.stage;
  float* mid = kept(1 + 2 * b, work.space.mid.data());
  // The result may overwrite the residual: each element is read just before it is written.
  float* result = kept(
      2 + 2 * b, ends_stage ? stage_[work.stage].data() + work.first * floats : work.space.current.data());
  if (block.shortcut < 0) {
    ConvJob job = conv_job(block.conv1, work.stage, pass, work.count, false, work.worker);
    job.x = current;
    job.y = mid;
    job.epilogue = activate(block.conv1, 1 + 2 * b);
    kernels_.conv(job, work.team);
  } else {
    const auto from_floats = static_cast<long>(image_floats(work.stage - 1, pass));
    DownJob job = down_job(block, pass, work.count, work.worker);
    job.x =
        (keep ? tape->activations[2 * b].data() : stage_[work.stage - 1].data()) + work.first * from_floats;
    job.y = mid;
    job.shortcut = current = work.space.current.data();
    job.epilogue = activate(block.conv1, 1 + 2 * b);
    job.shortcut_bias = pass.weights.bias[block.shortcut].data();
    kernels_.down(job, work.team);
  }
  work.sync();
  ConvJob job = conv_job(block.conv2, work.stage, pass, work.count, false, work.worker);
  job.x = mid;
  job.y = result;
  job.epilogue = activate(block.conv2, 2 + 2 * b);
  job.epilogue.residual = current;
  kernels_.conv(job, work.team);
  work.sync();
  current = result;
}

/// One stage of all images.
void Network::forward_stage(const Pass& pass, int stage, const float* x, Tape* tape, float* out,
                            const Team& whole) {
  const Share share = this->share(stage, pass);
  const bool joint = share != Share::kImages;
  Worker& worker = workers_[whole.id];
  StageWork work{pass, stage, share, joint ? whole : Team{}, worker, joint ? common_ : worker};
  int begin_block = 0;
  for (int s = 0; s < stage; ++s) begin_block += shape_.blocks[s];
  Chunks chunks(joint, chunk(stage, pass), pass.images, taken_there_[stage]);
  while (chunks.next()) {
    work.first = chunks.first();
    work.count = chunks.count();
    float* current = work.space.current.data();
    if (stage == 0) {
      if (tape != nullptr && tape->training) {
        current = tape->activations[0].data() + work.first * static_cast<long>(image_floats(0, pass));
      }
      forward_stem(work, x, tape, current);
    }
    for (int b = begin_block; b < begin_block + shape_.blocks[stage]; ++b) {
      forward_block(work, b, tape, current);
    }
    if (stage == 3) {
      kernels_.pool(current, work.count, stage_channels(3), features(), stage_size(3, pass).pixels(),
                    out + work.first * features(), work.team);
    }
  }
}

/// Back through one block of a chunk: from the gradient of its result before the activation to that of its
/// input, in place or, where the block begins a stage, in the stage before.
void Network::backward_block(const StageWork& work, int b, const Tape& tape, float* gradient) {
  const Pass& pass = work.pass;
  const BlockLayer& block = blocks_[b];
  float* mid = work.space.mid.data();
  ConvJob job = conv_job(block.conv2, work.stage, pass, work.count, true, work.worker);
  job.x = gradient;
  job.y = mid;
  job.epilogue = {.signs_in = signs(tape, 1 + 2 * b, pass, work.first), .slope = shape_.slope};
  kernels_.conv_grad(job, work.team);
  work.sync();
  Epilogue epilogue{.signs_in = signs(tape, 2 * b, pass, work.first), .slope = shape_.slope};
  if (b == cut_block(pass)) epilogue.signs_in = nullptr;
  if (block.shortcut < 0) {
    ConvJob first = conv_job(block.conv1, work.stage, pass, work.count, true, work.worker);
    first.x = mid;
    first.y = gradient;
    first.epilogue = epilogue;
    first.epilogue.residual = gradient;
    kernels_.conv_grad(first, work.team);
  } else {
    DownGradJob down = down_grad_job(block, pass, work.count, work.worker);
    down.g = mid;
    down.g_shortcut = gradient;
    down.dx =
        stage_[work.stage - 1].data() + work.first * static_cast<long>(image_floats(work.stage - 1, pass));
    down.epilogue = epilogue;
    kernels_.down_grad(down, work.team);
  }
  work.sync();
}

/// The way back through one stage: gradients to the inputs only.
void Network::backward_stage(const Pass& pass, int stage, const Tape& tape, const float* dfeatures, float* dx,
                             const Team& whole) {
  const Share share = this->share(stage, pass);
  const bool joint = share != Share::kImages;
  Worker& worker = workers_[whole.id];
  StageWork work{pass, stage, share, joint ? whole : Team{}, worker, joint ? common_ : worker};
  int begin_block = 0;
  for (int s = 0; s < stage; ++s) begin_block += shape_.blocks[s];
  const int end_block = begin_block + shape_.blocks[stage];
  Chunks chunks(joint, chunk(stage, pass), pass.images, taken_back_[stage]);
  while (chunks.next()) {
    work.first = chunks.first();
    work.count = chunks.count();
    float* gradient = stage_[stage].data() + work.first * static_cast<long>(image_floats(stage, pass));
    if (stage == 3) {
      kernels_.pool_grad(dfeatures + work.first * features(), work.count, stage_channels(3), features(),
                         stage_size(3, pass).pixels(), signs(tape, 2 * end_block, pass, work.first),
                         shape_.slope, gradient, work.team);
      if (joint) whole.sync();
    }
    for (int b = end_block - 1; b >= begin_block; --b) backward_block(work, b, tape, gradient);
    if (stage == 0 && pass.cut == kNoCut) backward_stem(work, tape, gradient, dx);
  }
}

/// From the gradient of a chunk's first activations, before their activation, to that of its images.
void Network::backward_stem(const StageWork& work, const Tape& tape, const float* gradient, float* dx) {
  const Pass& pass = work.pass;
  StemGradJob job = stem_grad_job(pass, work.count, tape, work.worker);
  if (job.origin != nullptr) job.origin += work.first * static_cast<long>(image_floats(0, pass));
  job.g = gradient;
  job.dx = dx + work.first * shape_.channels * pass.height * pass.width;
  kernels_.stem_data_grad(job, work.team);
}

void Network::forward_stages(const Pass& pass, const float* x, Tape* tape, float* out, const Team& team) {
  for (int stage = 0; stage < 4; ++stage) {
    forward_stage(pass, stage, x, tape, out, team);
    team.sync();
  }
}

/// To the images or, with a cut, to the layer there.
void Network::backward_stages(const Pass& pass, const Tape& tape, const float* dfeatures, float* dx,
                              const Team& team) {
  for (int stage = 3; stage >= (pass.cut == 1 ? 1 : 0); --stage) {
    backward_stage(pass, stage, tape, dfeatures, dx, team);
    team.sync();
  }
}

/// The block whose input is the layer of the cut; -1 without one.
int Network::cut_block(const Pass& pass) const {
  return pass.cut == kNoCut ? -1 : pass.cut == 0 ? 0 : shape_.blocks[0];
}

/// Nobody has taken any images yet. Ends with a sync.
void Network::clear_taken(const Team& team) {
  if (team.id == 0) {
    for (auto* list : {&taken_there_, &taken_back_}) {
      for (auto& taken : *list) taken = 0;
    }
  }
  team.sync();
}

/// Images through the layers before the cut; only the signs are kept.
void Network::forward_to_cut(const Pass& pass, const float* x, Tape& tape, const Team& team) {
  if (pass.cut == 1) {
    forward_stage(pass, 0, x, &tape, nullptr, team);
  } else {
    Worker& worker = workers_[team.id];
    const bool joint = share(0, pass) != Share::kImages;
    StageWork work{pass, 0, share(0, pass), joint ? team : Team{}, worker, joint ? common_ : worker};
    Chunks chunks(joint, chunk(0, pass), pass.images, taken_there_[0]);
    while (chunks.next()) {
      work.first = chunks.first();
      work.count = chunks.count();
      forward_stem(work, x, &tape, work.space.current.data());
    }
  }
  team.sync();
}

/// From the gradient at the cut, `costate`, to that of the images.
void Network::backward_from_cut(const Pass& pass, const Tape& tape, const float* costate, float* dx,
                                const Team& team) {
  const int tensor = pass.cut == 1 ? 2 * shape_.blocks[0] : 0;
  const auto floats = static_cast<long>(image_floats(0, pass));
  kernels_.derive(costate, signs(tape, tensor, pass, 0), shape_.slope, pass.images * floats / kernels_.lanes,
                  stage_[0].data(), team);
  team.sync();
  const Pass whole{pass.weights, pass.images, pass.height, pass.width};
  if (pass.cut == 1) {
    backward_stage(whole, 0, tape, nullptr, dx, team);
  } else {
    Worker& worker = workers_[team.id];
    const bool joint = share(0, pass) != Share::kImages;
    StageWork work{whole, 0, share(0, pass), joint ? team : Team{}, worker, joint ? common_ : worker};
    Chunks chunks(joint, chunk(0, pass), pass.images, taken_back_[0]);
    while (chunks.next()) {
      work.first = chunks.first();
      work.count = chunks.count();
      backward_stem(work, tape, stage_[0].data() + work.first * floats, dx);
    }
  }
  team.sync();
}

/// This thread's share of one Langevin step.
void Network::langevin_step(const ChainPlan& plan, long number, long values, long total, const float* dv,
                            float* v, const Team& team) const {
  // Noise is made a piece at a time, so that it is still in L1 when it is added.
  constexpr long kPiece = 1024;
  float noise[kPiece];
  const long pieces = (total + kPiece - 1) / kPiece;
  for (long piece = team.begin(pieces); piece < team.end(pieces); ++piece) {
    const long first = piece * kPiece, last = std::min(first + kPiece, total);
    plan.noise(number * total + first, noise, last - first);
    for (long i = first; i < last; ++i) {
      float g = dv[i];
      if (plan.clamp > 0) g = g < -plan.clamp ? -plan.clamp : g > plan.clamp ? plan.clamp : g;
      v[i] = (v[i] - g * plan.step_size) + noise[i - first] * plan.sigma[i / values];
    }
  }
}

void Network::chains(const WeightSet& weights, const EnergyHead& head, const ChainPlan& plan, float* v,
                     int images, int height, int width, float* energies) {
  const bool cut = plan.inner > 0;
  const Pass pass{weights, images, height, width, cut ? plan.cut : kNoCut};
  prepare(pass, true);
  const std::unique_ptr<Tape> tape = new_tape(pass, false);
  HeadPass top(head, kernels_, images);
  const long values = static_cast<long>(shape_.channels) * height * width, total = images * values;
  const std::size_t first_stage = static_cast<std::size_t>(images) * image_floats(0, pass);
  Buffer out = pool_->take(static_cast<std::size_t>(images) * features()),
         dout = pool_->take(static_cast<std::size_t>(images) * features()),
         dv = pool_->take(static_cast<std::size_t>(total)), costate = pool_->take(cut ? first_stage : 0);
  run_team(threads_, [&](const Team& team) {
    top.load(team);
    long number = 0;
    for (int step = 0; step < plan.steps; ++step) {
      clear_taken(team);
      forward_stages(pass, v, tape.get(), out.data(), team);
      top.run(out.data(), energies + static_cast<long>(step) * images, dout.data(), team);
      backward_stages(pass, *tape, dout.data(), dv.data(), team);
      if (!cut) {
        langevin_step(plan, number++, values, total, dv.data(), v, team);
        team.sync();
        continue;
      }
      const auto size = static_cast<long>(first_stage);
      std::copy(stage_[0].data() + team.begin(size), stage_[0].data() + team.end(size),
                costate.data() + team.begin(size));
      team.sync();
      for (int inner = 0; inner < plan.inner; ++inner) {
        clear_taken(team);
        // The first time the signs are still those of the pass before.
        if (inner > 0) forward_to_cut(pass, v, *tape, team);
        backward_from_cut(pass, *tape, costate.data(), dv.data(), team);
        langevin_step(plan, number++, values, total, dv.data(), v, team);
        team.sync();
      }
    }
  });
  for (Buffer* buffer : {&out, &dout, &dv, &costate}) pool_->give(std::move(*buffer));
}

}  // namespace ebclr::cpu
