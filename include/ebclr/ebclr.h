#pragma once
// The whole public interface of libebclr. docs/library.md is the guide; docs of each part are in its header.

#include <ebclr/configuration.h>
#include <ebclr/error.h>
#include <ebclr/images.h>
#include <ebclr/method.h>
#include <ebclr/model.h>
#include <ebclr/sampling.h>
#include <ebclr/training.h>
#include <ebclr/views.h>
