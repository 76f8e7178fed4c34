#pragma once
// The native CPU engine behind an encoder: one autograd function over the whole network. Methods, optimizers,
// checkpoints and evaluation see only nn::Encoder and do not know that it is there.

#include <cstddef>
#include <string>

#include "nn/encoder.h"

namespace ebclr::cpu {
struct StemShape;
}

namespace ebclr::engine {

/// kAuto: native where it can run, else torch.
enum class Engine { kAuto, kNative, kTorch };

struct EngineOptions {
  Engine engine = Engine::kAuto;
  int threads = 0;                ///< 0: as many as torch uses
  std::string instructions = {};  ///< "amx", "avx512" or "avx2"; empty for the best in float
};

/// What `attach` decided.
struct EngineChoice {
  bool native = false;
  std::string reason;             ///< one line for the log
  std::string instructions = {};  ///< "avx512", ... of the native engine; empty for torch
};

/// Sets or clears the encoder's backend; throws Error if kNative is asked for and cannot run.
/// The backend follows the encoder's parameters by itself, whoever changes them.
EngineChoice attach(nn::Encoder& encoder, const EngineOptions& options);

/// Where a network computes.
struct Placement {
  torch::Device device = torch::kCPU;
  EngineOptions engine = {};
};

/// Moves an encoder and its head (may be null) to a device; on a CPU the encoder gets the engine.
EngineChoice place(nn::Encoder& encoder, nn::Head* head, const Placement& placement);

/// A stem as the kernels see it.
cpu::StemShape stem_shape(nn::Stem stem);

/// auto, native or torch, or the native engine with one instruction set: amx, avx512 or avx2. Throws Error
/// naming the choices.
EngineOptions parse_engine(const std::string& name);

}  // namespace ebclr::engine
