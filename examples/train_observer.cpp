// Trains on the built-in shapes with an observer of its own, which also ends the run early:
//   train_observer FOLDER [STEPS]
#include <ebclr/ebclr.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace {

/// Prints a line now and then, and stops after so many steps.
class Report : public ebclr::Observer {
 public:
  explicit Report(int64_t steps) : steps_(steps) {}

  void on_step(const ebclr::StepReport& r) override {
    if (r.step % 4 == 0 || r.step == steps_)
      std::printf("step %lld of %lld: loss %.4f, %.0f images/s\n", static_cast<long long>(r.step),
                  static_cast<long long>(r.total_steps), r.loss, r.images_per_second);
    if (r.step >= steps_) training->stop();
  }
  void on_warning(const std::string& text) override { std::printf("warning: %s\n", text.c_str()); }

  ebclr::Training* training = nullptr;

 private:
  int64_t steps_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: train_observer FOLDER [STEPS]\n");
    return 2;
  }
  try {
    ebclr::Configuration configuration;
    configuration.set("data.source", "shapes")
        .set("data.limit", 256)
        .set("encoder.width", 8)
        .set("buffer.size", 256)
        .set("sampler.steps", 3)
        .set("train.batch_size", 32)
        .set("train.epochs", 2);
    auto report = std::make_shared<Report>(argc > 2 ? std::atoll(argv[2]) : 12);
    ebclr::TrainingOptions options;
    options.folder = argv[1];
    options.observer = report;
    ebclr::Training training(configuration, options);
    report->training = &training;
    const auto outcome = training.run();
    std::printf("%s at step %lld\n", outcome.finished ? "finished" : "stopped, can be resumed",
                static_cast<long long>(outcome.step));

    const auto model = ebclr::Model::load(options.folder);
    const auto shapes = ebclr::load_set("shapes", [] {
      ebclr::SetOptions o;
      o.limit = 10;
      return o;
    }());
    const auto features = model.embed(shapes);
    std::printf("features of %lld images: %lld columns\n", static_cast<long long>(features.size(0)),
                static_cast<long long>(features.size(1)));
    return 0;
  } catch (const ebclr::Error& e) {
    std::fprintf(stderr, "train_observer: %s\n", e.what());
    return 1;
  }
}
