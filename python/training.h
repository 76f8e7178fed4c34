#pragma once

#include <pybind11/pybind11.h>

namespace ebclr::python {

/// Adds `train`.
void add_training(pybind11::module_& m);

}  // namespace ebclr::python
