#pragma once
// One maker per method; the explicit table of them is in method.cpp.

#include "methods/method.h"

namespace ebclr::methods {

std::unique_ptr<Method> make_ebclr(const MethodOptions& options, const MethodContext& context);
std::unique_ptr<Method> make_simclr(const MethodOptions& options, const MethodContext& context);
std::unique_ptr<Method> make_moco(const MethodOptions& options, const MethodContext& context);
std::unique_ptr<Method> make_simsiam(const MethodOptions& options, const MethodContext& context);
std::unique_ptr<Method> make_byol(const MethodOptions& options, const MethodContext& context);
std::unique_ptr<Method> make_supervised(const MethodOptions& options, const MethodContext& context);

// Cost of a step of each, per image, in encoder forwards of one view.
double ebclr_units(const MethodOptions& options, int64_t batch);
double simclr_units(const MethodOptions& options, int64_t batch);
double moco_units(const MethodOptions& options, int64_t batch);
double simsiam_units(const MethodOptions& options, int64_t batch);
double byol_units(const MethodOptions& options, int64_t batch);
double supervised_units(const MethodOptions& options, int64_t batch);

/// The predictor that BYOL and SimSiam put behind a projection head: two layers, BatchNorm between them.
std::shared_ptr<nn::Head> make_predictor(const nn::Head& projection, int64_t hidden, uint64_t seed);

}  // namespace ebclr::methods
